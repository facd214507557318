"""The built package works where no clone is: wheel and source distribution, installed elsewhere."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, PathDistribution, distribution
from pathlib import Path
from types import ModuleType

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


@pytest.fixture(scope="module")
def again(distributions: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same two, built from the source distribution in another place by a stricter user."""
    place = tmp_path_factory.mktemp("elsewhere")
    (source,) = distributions.glob("*.tar.gz")
    run("tar", "-xf", source, cwd=place)
    (copy,) = place.iterdir()
    for path in copy.rglob("*"):
        os.utime(path, (1_700_000_000, 1_700_000_000))
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", "made", "."]
    run("sh", "-c", 'umask 077; exec "$@"', "sh", *command, cwd=copy)
    return copy / "made"


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
    assert wheel.name.endswith("-py3-none-manylinux_2_17_x86_64.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        programs = [
            info for info in archive.infolist() if info.filename.endswith("bin/shioenv-sandbox")
        ]
    assert len(programs) == 1
    assert programs[0].external_attr >> 16 & 0o111, "the helper must be executable"
    for name in (
        "shioenv/native/bin/preload.so",
        "shioenv/native/bin/ssh-names.so",
        "shioenv/native/bin/ssh-passwords.so",
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


def test_two_builds_are_the_same_bytes(distributions: Path, again: Path) -> None:
    names = sorted(path.name for path in distributions.iterdir())
    assert [path.suffix for path in map(Path, names)] == [".whl", ".gz"]
    for name in names:
        assert (distributions / name).read_bytes() == (again / name).read_bytes(), name


def test_the_native_programs_take_nothing_from_the_host(wheel: Path) -> None:
    said = run(sys.executable, "-m", "auditwheel", "show", wheel, cwd=wheel.parent)
    said = " ".join(said.split())
    assert "references no external versioned symbols" in said
    assert "requires no external shared libraries" in said


def description(wheel: Path) -> str:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("dist-info/METADATA")]
        text = archive.read(name).decode("utf-8")
    return text.partition("\n\n")[2]


def targets(markdown: str) -> list[str]:
    """Where links and pictures lead."""
    return re.findall(r'(?:\]\(|(?:src|srcset|href)=")([^)"]*)', markdown)


def test_no_link_of_the_long_description_is_relative(wheel: Path) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = description(wheel)
    assert "# ShIOEnv" in shown
    assert [target for target in targets(readme) if not target.startswith("https:")]
    assert [target for target in targets(shown) if not target.startswith("https:")] == []


def test_links_lead_to_the_files_of_that_version(hatch_build: ModuleType) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = hatch_build.long_description(readme, "https://forge.test/shioenv", "1.2.3")
    before = [target for target in targets(readme) if not target.startswith("https:")]
    begins = "https://forge.test/shioenv/"
    after = [target for target in targets(shown) if target.startswith(begins)]
    assert [target.removeprefix(begins).split("/", 2)[1] for target in after] == ["v1.2.3"] * len(
        before
    )
    assert [target.removeprefix(begins).split("/", 2)[2] for target in after] == before
    for target in after:
        kind = "raw" if target.endswith(".svg") else "blob"
        assert target.startswith(f"{begins}{kind}/")
    assert all((ROOT / target).exists() for target in before)


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
    previewed = run(installed / "shioenv", "preview", "--json", "--", "touch", "new", cwd=tmp_path)
    assert json.loads(previewed)["context_patch"][0][:2] == ["a", "/fs/new"]


@pytest.mark.usefixtures("system")
@pytest.mark.parametrize(
    ("page", "commands"),
    [
        ("datasets", ["generate ds --count 3 --budget 2", "dataset export ds --out a.jsonl"]),
        (
            "judge",
            [
                "suite record words --out suite",
                "evaluate --suite suite --predictor default --out x",
            ],
        ),
        ("train", ["system derive another --seed 7 --out another", "predict ls"]),
        ("policy", ["sample --count 3"]),
        ("preview", ["preview -- touch new"]),
        ("systems", ["system show debian-12"]),
        ("write-a-grammar", ["grammar check"]),
    ],
)
def test_a_plain_install_follows_the_pages(
    installed: Path, tmp_path: Path, page: str, commands: list[str]
) -> None:
    """What needs no extra by the page needs none."""
    (tmp_path / "words").write_text("ls -l\n")
    text = (ROOT / f"docs/how-to/{page}.md").read_text(encoding="utf-8")
    for command in commands:
        assert f"shioenv {command.split()[0]}" in text
        run(installed / "shioenv", *command.split(), cwd=tmp_path)


@pytest.mark.usefixtures("system")
def test_the_installed_package_runs_an_input(installed: Path, tmp_path: Path) -> None:
    document = json.loads(
        run(installed / "shioenv", "run", "--json", "echo $0; touch x", cwd=tmp_path)
    )
    assert document["output"] == "bash\n"
    assert document["context_patch"][0][:2] == ["a", "/fs/x"]
