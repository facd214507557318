"""Measured figures of the pages name one build of the default system, or say why not."""

from __future__ import annotations

import importlib.util
import json
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

_SPEC = importlib.util.spec_from_file_location("measurements", ROOT / "scripts/measurements.py")
assert _SPEC
assert _SPEC.loader
measurements = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(measurements)

MEASURED = tomllib.loads((DOCS / "measurements.toml").read_text())
REPRODUCTION = ROOT / "packages/shioenv-paper/src/shioenv_paper/reproduction.json"
FROM_DATA = {"leaderboard.md", "conformance.md"}
"""Pages made from files that name the build themselves."""


def stale(measured: dict[str, list[dict[str, str]]], build: str) -> list[str]:
    """Return what is wrong with the builds that are named, given the present one."""
    wrong = []
    for each in measured["measured"]:
        where = f"{each['page']}, {each['figures']}: build {each['build']}"
        if each["build"] != build and not each.get("kept"):
            wrong.append(f"{where}: measure again on {build}, or say in `kept` why not")
        if each["build"] == build and each.get("kept"):
            wrong.append(f"{where}: `kept` is no longer needed")
    return wrong


def test_figures_are_of_the_present_build_or_say_why_not() -> None:
    build = json.loads(REPRODUCTION.read_text())["system_digest"][:12]
    assert not stale(MEASURED, build)


def test_a_figure_of_another_build_is_found() -> None:
    new = {"page": "p.md", "figures": "all", "build": "1" * 12}
    old = {"page": "p.md", "figures": "all", "build": "0" * 12}
    assert stale({"measured": [new]}, "1" * 12) == []
    assert len(stale({"measured": [old]}, "1" * 12)) == 1
    assert stale({"measured": [old | {"kept": "why"}]}, "1" * 12) == []
    assert len(stale({"measured": [new | {"kept": "why"}]}, "1" * 12)) == 1


def test_pages_have_the_sections_of_the_file() -> None:
    for page in {each["page"] for each in MEASURED["measured"]}:
        text = (DOCS / page).read_text()
        assert text == measurements.with_section(text, page, MEASURED), f"{page}: run `make docs`"


def test_every_page_of_results_is_in_the_file() -> None:
    named = {each["page"] for each in MEASURED["measured"]}
    results = {
        f"experiments/{page.name}"
        for page in (DOCS / "experiments").glob("*.md")
        if page.name not in FROM_DATA
    }
    assert results <= named


def test_no_page_names_a_build_elsewhere() -> None:
    """Texts that name a build by hand would keep it when the figures change."""
    builds = {each["build"][:8] for each in MEASURED["measured"]}
    found = []
    for page in {each["page"] for each in MEASURED["measured"]}:
        text = measurements.SECTION.sub("", (DOCS / page).read_text())
        text = re.sub(r"^\|.*$", "", text, flags=re.MULTILINE)  # tables made from results
        found += [(page, build) for build in builds if build in text]
    assert not found
