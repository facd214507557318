"""The built package works without a clone: wheel and source distribution, installed elsewhere."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, PathDistribution, distribution
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import native_build
from support.nightly import NIGHTLY

ROOT = Path(__file__).parents[2]
PACKAGES = sorted(path.parent.name for path in ROOT.glob("packages/*/pyproject.toml"))
COMPILED = sorted(path.parent.name for path in ROOT.glob("packages/*/hatch_build.py"))
GUESTS = [name for name in PACKAGES if name != "shioenv"]
pytestmark = pytest.mark.xdist_group("packaging")


def declared(package: str) -> dict[str, Any]:
    """Return the contents of the package's pyproject.toml."""
    text = (ROOT / "packages" / package / "pyproject.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """Return a command's output, in an environment that does not lead back to the clone."""
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
    """A directory with the source distributions of all packages and the wheels built from them."""
    target = tmp_path_factory.mktemp("dist")
    for package in PACKAGES:
        source = ROOT / "packages" / package
        run(
            sys.executable, "-m", "build", "--no-isolation", "--outdir", target, source, cwd=target
        )  # fmt: skip
    return target


def wheel_of(package: str, distributions: Path) -> Path:
    (found,) = distributions.glob(f"{package.replace('-', '_')}-*.whl")
    return found


def source_of(package: str, distributions: Path) -> Path:
    (found,) = distributions.glob(f"{package.replace('-', '_')}-*.tar.gz")
    return found


@pytest.fixture(scope="module")
def wheel(distributions: Path) -> Path:
    """The core's wheel."""
    return wheel_of("shioenv", distributions)


def required(names: Iterable[str]) -> Iterator[Distribution]:
    """Return the third-party distributions that these requirements need here, with their own
    needs."""
    waiting, seen = [Requirement(name) for name in names], set()
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        if name in seen or (wanted.marker and not wanted.marker.evaluate({"extra": ""})):
            continue
        seen.add(name)
        if name in PACKAGES:
            continue
        found = distribution(name)
        assert found.version in wanted.specifier, f"{name} {found.version} is not {wanted}"
        waiting += [Requirement(one) for one in found.requires or ()]
        yield found


def with_dependencies(package: str) -> list[str]:
    """Return the package, and those packages of this project that it needs."""
    found = [package]
    for name in found:
        asked = [Requirement(one) for one in declared(name)["project"]["dependencies"]]
        found += [one.name for one in asked if one.name in PACKAGES and one.name not in found]
    return found


def install(packages: Iterable[str], distributions: Path, place: Path) -> Path:
    """Return the `bin` of a new environment with wheels and their declared dependencies, no more.

    The dependencies are links to the ones installed here, so nothing is downloaded.
    """
    venv.create(place, with_pip=False)
    run(
        sys.executable, "-m", "pip", "--python", place / "bin" / "python", "install", "-q",
        "--no-deps", "--no-index", *(wheel_of(name, distributions) for name in packages), cwd=place,
    )  # fmt: skip
    (site,) = (place / "lib").glob("python*/site-packages")
    own = [PathDistribution(path) for path in site.glob("shioenv*.dist-info")]
    for one in required(asked for each in own for asked in each.requires or ()):
        for top in {file.parts[0] for file in one.files or () if file.parts[0] != ".."}:
            if top != "__pycache__" and not (site / top).exists():
                (site / top).symlink_to(Path(str(one.locate_file(top))))
    return place / "bin"


@pytest.fixture(scope="module")
def installed(distributions: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the core alone."""
    return install(["shioenv"], distributions, tmp_path_factory.mktemp("far-away") / "venv")


@pytest.fixture(scope="module")
def complete(distributions: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with all packages."""
    return install(PACKAGES, distributions, tmp_path_factory.mktemp("together") / "venv")


def files_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


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
        "shioenv/native/committed/answers.so",
        "shioenv/native/committed/processor.so",
        "shioenv/grammar/commands/ls.grammar",
        "shioenv/grammar/shared/common.grammar",
        "shioenv/sandbox/namespaces/probes.txt",
        "shioenv/systems/debian-12.toml",
        "shioenv/systems/home/tree.toml",
        "shioenv/systems/home/files/dot/bashrc",
    ):
        assert name in names


@pytest.mark.parametrize(
    ("package", "names"),
    [
        ("shioenv-serve", ["native/bin/ssh-names.so", "native/bin/ssh-keeper"]),
        ("shioenv-backends", ["native/bin/shioenv-guest", "native/bin/shioenv-guest-sandbox"]),
        ("shioenv-eval", ["report/templates/page.js"]),
        ("shioenv-model", ["models/default.model"]),
    ],
)
def test_the_wheel_of_a_guest_holds_its_data(
    package: str, names: list[str], distributions: Path
) -> None:
    found = files_in(wheel_of(package, distributions))
    assert {f"{package.replace('-', '_')}/{name}" for name in names} <= found


@pytest.mark.parametrize("package", PACKAGES)
def test_every_file_of_the_package_is_in_the_wheel(package: str, distributions: Path) -> None:
    names = files_in(wheel_of(package, distributions))
    source = ROOT / "packages" / package / "src"
    listed = run("git", "ls-files", source, cwd=source) if (ROOT / ".git").exists() else ""
    for line in listed.splitlines():
        if (source / line).exists():
            assert line in names
    top = package.replace("-", "_")
    assert f"{top}/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert {name.partition("/")[0] for name in names} - {top, "shioenv_tasks.py"} == {
        wheel_of(package, distributions).name.partition("-py3")[0] + ".dist-info"
    }


@NIGHTLY
@pytest.mark.parametrize("package", PACKAGES)
def test_two_builds_are_the_same_bytes(package: str, distributions: Path, tmp_path: Path) -> None:
    """The second one by a user with a stricter umask, from the source distribution, in another
    place."""
    first = [source_of(package, distributions), wheel_of(package, distributions)]
    run("tar", "-xf", first[0], cwd=tmp_path)
    (copy,) = tmp_path.iterdir()
    for path in copy.rglob("*"):
        os.utime(path, (1_700_000_000, 1_700_000_000))
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", "made", "."]
    run("sh", "-c", 'umask 077; exec "$@"', "sh", *command, cwd=copy)
    for path in first:
        assert path.read_bytes() == (copy / "made" / path.name).read_bytes(), path.name


@pytest.mark.parametrize("package", COMPILED)
def test_the_native_programs_take_nothing_from_the_host(package: str, distributions: Path) -> None:
    wheel = wheel_of(package, distributions)
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
    """Return the targets of links and pictures."""
    return re.findall(r'(?:\]\(|(?:src|srcset|href)=")([^)"]*)', markdown)


def test_no_link_of_the_long_description_is_relative(wheel: Path) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = description(wheel)
    assert "# ShIOEnv" in shown
    assert [target for target in targets(readme) if not target.startswith("https:")]
    assert [target for target in targets(shown) if not target.startswith("https:")] == []


def test_links_lead_to_the_files_of_that_version() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = native_build.long_description(readme, "https://forge.test/shioenv", "1.2.3")
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
    assert all((ROOT / target.partition("#")[0]).exists() for target in before)


def test_the_source_distribution_holds_nothing_that_was_compiled_here(distributions: Path) -> None:
    with tarfile.open(source_of("shioenv", distributions)) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for name in ("pyproject.toml", "hatch_build.py", "native_build.py", "LICENSE", "README.md"):
        assert name in names
    for name in ("around/supervisor.c", "inside/server.h", "committed/answers.so"):
        assert f"src/shioenv/native/{name}" in names
    for package in PACKAGES:
        with tarfile.open(source_of(package, distributions)) as archive:
            assert not [name for name in archive.getnames() if "/native/bin" in name]


def test_all_packages_have_one_version_and_one_license() -> None:
    (version,) = {declared(name)["project"]["version"] for name in PACKAGES}
    (text,) = {(ROOT / "packages" / name / "LICENSE").read_bytes() for name in PACKAGES}
    assert text == (ROOT / "LICENSE").read_bytes()
    for name in PACKAGES:
        project = declared(name)["project"]
        extras = project.get("optional-dependencies", {}).values()
        for one in map(Requirement, sum(extras, project.get("dependencies", []))):
            if one.name in PACKAGES and one.name != name:
                assert str(one.specifier) == f"=={version}", f"{name} asks for {one}"


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


COMMANDS = [
    (package, name)
    for package in GUESTS
    for name in declared(package)["project"].get("entry-points", {}).get("shioenv.commands", {})
]


ASKED = """
import contextlib, io, json, sys
from shioenv.cli.main import main
answers = {}
for command in sys.argv[1:]:
    sys.argv = ["shioenv", *command.split("."), "--help"]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main()
        except SystemExit as ended:
            status = ended.code
    answers[command] = status, out.getvalue(), err.getvalue()
print(json.dumps(answers))
"""
"""Calls many commands in one process: a start takes a fifth of a second."""


@pytest.fixture(scope="module")
def answers_of_the_core(installed: Path) -> dict[str, tuple[int, str, str]]:
    """Status, output and errors of each guest's commands, where only the core is installed."""
    names = [command for _, command in COMMANDS]
    said = run(installed / "python", "-c", ASKED, *names, cwd=installed)
    return {name: tuple(answer) for name, answer in json.loads(said).items()}


@pytest.mark.parametrize(("package", "command"), COMMANDS)
def test_the_core_alone_says_which_package_a_command_needs(
    package: str, command: str, answers_of_the_core: dict[str, tuple[int, str, str]]
) -> None:
    status, output, errors = answers_of_the_core[command]
    (line,) = errors.splitlines()
    assert f"needs {package}, which is not installed: " in line
    assert f"'shioenv[{package.removeprefix('shioenv-')}]'" in line
    assert (status, output) == (3, "")


LOADED = """
import sys
from importlib.metadata import distribution
for point in distribution(sys.argv[1]).entry_points:
    if point.group.startswith("shioenv."):
        point.load()
print(__import__(sys.argv[1].replace("-", "_")).__file__)
"""


@NIGHTLY
@pytest.mark.parametrize("package", GUESTS)
def test_a_guest_works_with_its_dependencies_alone(
    package: str, distributions: Path, tmp_path: Path
) -> None:
    """Its additions to the core can be loaded, and its commands are in the help."""
    programs = install(with_dependencies(package), distributions, tmp_path / "venv")
    where = run(programs / "python", "-c", LOADED, package, cwd=tmp_path)
    assert where.startswith(str(tmp_path))
    for command in (name for own, name in COMMANDS if own == package):
        *group, name = command.split(".")
        shown = run(programs / "shioenv", *group, "--help", cwd=tmp_path)
        assert re.search(rf"^│ {name} ", shown, re.MULTILINE), command


@NIGHTLY
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
def test_an_installation_of_all_packages_follows_the_pages(
    complete: Path, tmp_path: Path, page: str, commands: list[str]
) -> None:
    """Commands that need no extra, by the page, run without one."""
    (tmp_path / "words").write_text("ls -l\n")
    text = (ROOT / f"docs/how-to/{page}.md").read_text(encoding="utf-8")
    for command in commands:
        assert f"shioenv {command.split()[0]}" in text
        run(complete / "shioenv", *command.split(), cwd=tmp_path)


@pytest.mark.usefixtures("system")
def test_the_core_alone_makes_records(installed: Path, tmp_path: Path) -> None:
    document = json.loads(
        run(installed / "shioenv", "run", "--json", "echo $0; touch x", cwd=tmp_path)
    )
    assert document["output"] == "bash\n"
    assert document["context_patch"][0][:2] == ["a", "/fs/x"]
    run(installed / "shioenv", "generate", "ds", "--count", "2", "--budget", "2", cwd=tmp_path)
    run(installed / "shioenv", "dataset", "verify", "ds", cwd=tmp_path)
