"""The built package works where no clone is: wheel and source distribution, installed elsewhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, PathDistribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.xdist_group("packaging")


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """What a command prints; without what could lead it back to the clone."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "VIRTUAL_ENV", "COV"))
    }
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the source distribution and the wheel built from it."""
    target = tmp_path_factory.mktemp("dist")
    run(
        sys.executable, "-m", "build", "--no-isolation", "--outdir", target, ROOT, cwd=target
    )  # fmt: skip
    return target


@pytest.fixture(scope="module")
def wheel(distributions: Path) -> Path:
    (found,) = distributions.glob("*.whl")
    return found


def required(names: Iterable[str]) -> Iterator[Distribution]:
    """The distributions that these requirements ask for here, and those that they ask for."""
    waiting, seen = [Requirement(name) for name in names], set()
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        if name in seen or (wanted.marker and not wanted.marker.evaluate({"extra": ""})):
            continue
        seen.add(name)
        found = distribution(name)
        assert found.version in wanted.specifier, f"{name} {found.version} is not {wanted}"
        waiting += [Requirement(one) for one in found.requires or ()]
        yield found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of an empty environment with the wheel and the dependencies it declares, no more.

    The dependencies are links to the ones that are installed here, so nothing is downloaded.
    """
    place = tmp_path_factory.mktemp("far-away") / "venv"
    venv.create(place, with_pip=False)
    run(
        sys.executable, "-m", "pip", "--python", place / "bin" / "python", "install", "-q",
        "--no-deps", "--no-index", wheel, cwd=place,
    )  # fmt: skip
    (site,) = (place / "lib").glob("python*/site-packages")
    (own,) = site.glob("shioenv-*.dist-info")
    for one in required(PathDistribution(own).requires or ()):
        for top in {file.parts[0] for file in one.files or () if file.parts[0] != ".."}:
            if top != "__pycache__" and not (site / top).exists():
                (site / top).symlink_to(Path(str(one.locate_file(top))))
    return place / "bin"


def test_the_wheel_holds_the_programs_the_data_and_the_types(wheel: Path) -> None:
    assert "-py3-none-linux_" in wheel.name
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        programs = [
            info for info in archive.infolist() if info.filename.endswith("bin/shioenv-sandbox")
        ]
    assert len(programs) == 1
    assert programs[0].external_attr >> 16 & 0o111, "the helper must be executable"
    for name in (
        "shioenv/native/bin/preload.so",
        "shioenv/native/committed/answers.so",
        "shioenv/native/committed/processor.so",
        "shioenv/py.typed",
        "shioenv/grammar/commands/ls.grammar",
        "shioenv/grammar/shared/common.grammar",
        "shioenv/sandbox/namespaces/probes.txt",
        "shioenv/systems/debian-12.toml",
        "shioenv/systems/home/tree.toml",
        "shioenv/systems/home/files/dot/bashrc",
    ):
        assert name in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not [name for name in names if name.startswith(("tests", "docs"))]


def test_every_file_of_the_package_is_in_the_wheel(wheel: Path) -> None:
    listed = run("git", "ls-files", "src/shioenv", cwd=ROOT) if (ROOT / ".git").exists() else ""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    for line in listed.splitlines():
        if (ROOT / line).exists():
            assert line.removeprefix("src/") in names


def test_the_source_distribution_holds_nothing_that_was_compiled_here(distributions: Path) -> None:
    (found,) = distributions.glob("*.tar.gz")
    with tarfile.open(found) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for name in ("pyproject.toml", "hatch_build.py", "LICENSE", "README.md"):
        assert name in names
    for name in ("around/supervisor.c", "inside/server.h", "committed/answers.so"):
        assert f"src/shioenv/native/{name}" in names
    assert not [name for name in names if name.startswith("src/shioenv/native/bin")]


def test_the_installed_package_is_not_the_clone(installed: Path) -> None:
    code = "import shioenv; print(shioenv.__file__)"
    where = run(installed / "python", "-c", code, cwd=installed)
    assert where.startswith(str(installed.parent))


def test_the_installed_command_line_works(installed: Path, tmp_path: Path) -> None:
    assert run(installed / "shioenv", "--version", cwd=tmp_path).startswith("shioenv ")
    systems = json.loads(
        run(
            installed / "shioenv", "system", "list", "--json",
            cwd=tmp_path, SHIOENV_CACHE=str(tmp_path),
        )
    )  # fmt: skip
    assert "debian-12" in [system["name"] for system in systems]
    shown = run(installed / "shioenv", "grammar", "show", "df", cwd=tmp_path)
    assert "df" in shown


@pytest.mark.usefixtures("system")
def test_the_installed_package_runs_an_input(installed: Path, tmp_path: Path) -> None:
    document = json.loads(
        run(installed / "shioenv", "run", "--json", "echo $0; touch x", cwd=tmp_path)
    )
    assert document["output"] == "bash\n"
    assert document["context_patch"][0][:2] == ["a", "/fs/x"]
