"""docs/how-to/install.md names every extra, and what of it `make setup` installs."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from shioenv.errors import MissingExtraError

ROOT = Path(__file__).parents[2]
DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS: dict[str, list[str]] = DECLARED["project"]["optional-dependencies"]
PAGE = (ROOT / "docs/how-to/install.md").read_text(encoding="utf-8")
ROWS: dict[str, str] = dict(re.findall(r"^\| `(\w+)` \|.*\| ([^|]+) \|$", PAGE, re.MULTILINE))


def names(requirements: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(one).name) for one in requirements}


def test_every_extra_has_a_row() -> None:
    assert set(ROWS) & set(EXTRAS) == set(EXTRAS)


@pytest.mark.parametrize("extra", sorted(EXTRAS))
def test_it_says_what_setup_installs(extra: str) -> None:
    wanted = names(EXTRAS[extra])
    missing = wanted - names(DECLARED["dependency-groups"]["dev"])
    said = ROWS[extra].partition(":")[0]
    assert said == ("missing" if missing == wanted else "in part" if missing else "there")


def test_pages_and_messages_name_extras_that_there_are() -> None:
    pages = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "src/shioenv").rglob("*.py")]
    named = {
        extra
        for page in pages
        for listed in re.findall(r"shioenv\[([a-z,-]+)\]", page.read_text(encoding="utf-8"))
        for extra in listed.split(",")
    }
    assert named
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
    """By the file that an installer leaves in an environment of its own."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    if left is not None:
        (tmp_path / left).touch()
    hint = MissingExtraError("a page", "report", "altair").hint or ""
    assert hint.startswith(begins)
    assert hint.endswith("'shioenv[report]'")
