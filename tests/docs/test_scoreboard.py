"""The scoreboard's page agrees with the results beside it, and each finding was reviewed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def scoreboard(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import conformance

    return conformance


@pytest.fixture
def rows(scoreboard: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(scoreboard.RESULTS.read_text())
    return found


def test_the_page_is_made_of_the_results(scoreboard: Any, rows: dict[str, Any]) -> None:
    judged = scoreboard.looked_at(scoreboard.JUDGED.read_text())
    assert scoreboard.PAGE.read_text() == scoreboard.page(rows, judged)
    changed = {**rows, "bashkit": {**rows["bashkit"], "right": 1, "share": 0.001}}
    assert scoreboard.PAGE.read_text() != scoreboard.page(changed, judged)


def test_the_page_names_a_model_older_than_the_shipped_one(
    scoreboard: Any, rows: dict[str, Any]
) -> None:
    model = rows["default model"]
    newer = {**rows, "default model": {**model, "version": "default 35f90dba08a9, 1 record"}}
    assert model["version"].startswith(scoreboard.MODEL_1)
    assert "default model 1" in scoreboard.page(rows, {})
    assert "default model 1" not in scoreboard.page(newer, {})


def test_every_row_was_asked_the_same(scoreboard: Any, rows: dict[str, Any]) -> None:
    assert list(rows) == list(scoreboard.ROWS)
    asked = {(row["drawn"], row["seed"], row["level"]) for row in rows.values()}
    assert asked == {(scoreboard.CASES, 0, "files")}
    assert len({row["system_digest"] for row in rows.values() if row["system"] == "debian-12"}) == 1


def test_counts_add_up(rows: dict[str, Any]) -> None:
    for row in rows.values():
        commands = row["commands"].values()
        for what in ("drawn", "steady", "right"):
            assert sum(one[what] for one in commands) == row[what]
        for name, count in row["differ"].items():
            assert sum(one["differ"][name] for one in commands) == count
        assert row["share"] == round(row["right"] / row["steady"], 4)


def test_every_finding_was_looked_at(scoreboard: Any, rows: dict[str, Any]) -> None:
    judged = scoreboard.looked_at(scoreboard.JUDGED.read_text())
    found = {
        (name, scoreboard.lines_of(one)) for name, row in rows.items() for one in row["commonest"]
    }
    assert judged.keys() == found
    for name, row in rows.items():
        if row["findings"] is None:  # counted, and not made minimal
            assert row["commonest"] == []
            continue
        assert len([key for key in found if key[0] == name]) == scoreboard.COMMONEST


def test_a_word_that_says_whose_it_is_has_to_be_known(scoreboard: Any) -> None:
    with pytest.raises(ValueError, match="'nobody'"):
        scoreboard.looked_at('[[bashkit]]\nlines = "w"\nwhose = "nobody"\nwhat = ""\n')
