"""docs/how-to/install.md names every extra, and the parts of it that `make setup` installs."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from shioenv.errors import MissingExtraError
from support.paths import ROOT


def declared(directory: Path) -> dict[str, Any]:
    return tomllib.loads((directory / "pyproject.toml").read_text(encoding="utf-8"))


PACKAGES = sorted(path.parent.name for path in ROOT.glob("packages/*/pyproject.toml"))
PROJECTS = {name: declared(ROOT / "packages" / name)["project"] for name in PACKAGES}
EXTRAS: dict[str, list[str]] = PROJECTS["shioenv"]["optional-dependencies"]
PAGE = (ROOT / "docs/how-to/install.md").read_text(encoding="utf-8")
ROWS: dict[str, str] = dict(re.findall(r"^\| `(\w+)` \|.*\| ([^|]+) \|$", PAGE, re.MULTILINE))
DEVELOPMENT = {
    canonicalize_name(Requirement(one).name) for one in declared(ROOT)["dependency-groups"]["dev"]
}


def libraries(requirements: list[str]) -> set[str]:
    """Return the third-party libraries of requirements, following extras of this project's
    packages."""
    found: set[str] = set()
    for one in map(Requirement, requirements):
        if one.name not in PROJECTS:
            found.add(canonicalize_name(one.name))
        for extra in one.extras if one.name in PROJECTS else ():
            found |= libraries(PROJECTS[one.name]["optional-dependencies"][extra])
    return found


def test_every_extra_has_a_row() -> None:
    assert set(ROWS) & set(EXTRAS) == set(EXTRAS)


@pytest.mark.parametrize("extra", sorted(EXTRAS))
def test_it_says_what_setup_installs(extra: str) -> None:
    wanted = libraries(EXTRAS[extra])
    missing = wanted - DEVELOPMENT
    said = ROWS[extra].partition(":")[0]
    assert said == ("installed" if not missing else "missing" if missing == wanted else "in part")


@pytest.mark.parametrize("package", [name for name in PACKAGES if name != "shioenv"])
def test_each_guest_is_an_extra_of_the_core_and_part_of_all(package: str) -> None:
    extra = package.removeprefix("shioenv-")
    (guest,) = map(Requirement, EXTRAS[extra])
    assert (guest.name, guest.extras) == (package, set())
    (everything,) = map(Requirement, EXTRAS["all"])
    assert extra in everything.extras


def test_extras_of_the_core_lead_to_extras_that_there_are() -> None:
    for requirements in EXTRAS.values():
        for one in map(Requirement, requirements):
            if one.name in PROJECTS:
                assert one.extras <= PROJECTS[one.name].get("optional-dependencies", {}).keys()


def test_pages_and_messages_name_extras_that_there_are() -> None:
    pages = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("packages/*/src/**/*.py")]
    pages += ROOT.glob("packages/*/README.md")
    named = {
        extra
        for page in pages
        for listed in re.findall(r"shioenv\[([a-z,-]+)\]", page.read_text(encoding="utf-8"))
        for extra in listed.split(",")
    }
    assert named
    assert named <= set(EXTRAS)


def test_errors_name_extras_that_there_are() -> None:
    """`MissingExtraError(feature, extra, library)` and `missing_guest(feature, extra)`."""
    calls = re.compile(r'(?:MissingExtraError|missing_guest)\(\s*f?"[^"]*",\s*"([\w-]+)"')
    named = {
        extra
        for path in ROOT.glob("packages/*/src/**/*.py")
        for extra in calls.findall(path.read_text(encoding="utf-8"))
    }
    assert len(named) > 3
    assert named <= set(EXTRAS)


@pytest.mark.parametrize(
    ("left", "begins"),
    [
        ("pipx_metadata.json", "pipx runpip shioenv install "),
        ("uv-receipt.toml", "uv pip install --python "),
        (None, "pip install "),
    ],
)
def test_hints_name_the_installer_in_use(
    left: str | None, begins: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is recognised by the file that an installer leaves in an environment."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    if left is not None:
        (tmp_path / left).touch()
    hint = MissingExtraError("a page", "report", "altair").hint or ""
    assert hint.startswith(begins)
    assert hint.endswith("'shioenv[report]'")
