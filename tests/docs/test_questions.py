"""Forty questions of newcomers have an answer, below the heading where the list looks for it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from support.headings import headings
from support.paths import ROOT

QUESTIONS: list[dict[str, Any]] = tomllib.loads(
    Path(__file__).with_name("questions.toml").read_text(encoding="utf-8")
)["question"]
TUTORIALS = sorted((ROOT / "docs" / "tutorial").glob("*.md"))


def below(page: str, anchor: str) -> str:
    """Return the text from a heading to the next one."""
    text = re.sub(
        r"^```.*?^```", lambda fence: fence[0].replace("\n#", "\n "), page, flags=re.M | re.S
    )
    for section in re.split(r"^(?=#+ )", text, flags=re.MULTILINE):
        if anchor in headings(section.partition("\n")[0]):
            return section
    raise AssertionError(f"no heading {anchor}")


def test_there_are_forty_questions_of_every_kind_of_user() -> None:
    assert len({each["asks"] for each in QUESTIONS}) == len(QUESTIONS) == 40
    assert len({each["who"] for each in QUESTIONS}) >= 8


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda each: each["asks"])
def test_the_place_answers_the_question(question: dict[str, Any]) -> None:
    page = (ROOT / question["page"]).read_text(encoding="utf-8")
    assert question["answer"] in below(page, question["anchor"])


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_every_tutorial_begins_with_its_time(page: Path) -> None:
    assert "Time: " in page.read_text(encoding="utf-8").partition("\n## ")[0]
