"""The leaderboard: each row whose answers are kept has the figures of these answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shioenv_eval.suite import FROZEN, read_suite
from support.paths import ROOT


@pytest.fixture
def leaderboard(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import leaderboard

    return leaderboard


def test_kept_answers_have_the_figures_of_their_row(leaderboard: Any) -> None:
    rows = leaderboard.rows()
    kept = [one for one in rows if one["answers"] is not None]
    assert kept
    assert {one["suite"] for one in kept} <= set(FROZEN)
    for one in kept:
        made = leaderboard.judged(one["suite"], leaderboard.ANSWERS / one["answers"])
        assert one == one | made, one["name"]
    names = {one["answers"] for one in kept}
    assert names == {path.name for path in leaderboard.ANSWERS.iterdir()}


def test_the_page_shows_the_rows(leaderboard: Any) -> None:
    assert leaderboard.PAGE.read_text("utf-8") == leaderboard.page(leaderboard.rows())


def test_anybody_can_add_a_row(
    leaderboard: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ROWS", "PAGE", "ANSWERS"):
        monkeypatch.setattr(leaderboard, name, tmp_path / name)
    case = read_suite("sessions-200").cases[0]
    asked = {"input": case.question.input, "history": list(case.question.history)}
    answers = tmp_path / "answers.jsonl"
    line = {**asked, "output": case.gold[0].text, "exit_code": 0}
    answers.write_text('{"version": "7", "patch_level": "files"}\n' + json.dumps(line) + "\n")
    words = ["add", str(answers), "--suite", "sessions-200", "--name", "My shell", "--by", "me"]
    for more in ([], ["--without-answers"]):
        monkeypatch.setattr("sys.argv", ["leaderboard.py", *words, *more])
        leaderboard.main()
    kept, bare = leaderboard.rows()
    assert (kept["name"], kept["version"], kept["patch_level"]) == ("My shell", "7", "files")
    assert kept["figures"] == bare["figures"]
    assert kept["figures"]["all"]["em_output"] == 1 / 200
    assert (kept["answers"], bare["answers"]) == ("my-shell-sessions-200.jsonl.gz", None)
    assert "My shell 7 (files)" in (tmp_path / "PAGE").read_text("utf-8")
