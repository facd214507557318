"""The page of an evaluation: one file, every answer beside the gold with what differs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from shioenv.domain.predictor import PatchLevel
from shioenv.errors import SuiteError, UsageError
from shioenv_eval.evaluate import Evaluation, evaluate
from shioenv_eval.evaluation_page import calibration, evaluation_html, heat_map, write_page
from shioenv_eval.metrics import PredictorAnswer, Status
from shioenv_eval.results import judge_predictor
from shioenv_eval.suite import read_suite, write_suite
from support.evaluation_fakes import added, case, did, suite_of

HOSTILE = "</script><b>x</b>"


def shown(html: str) -> list[dict[str, Any]]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    assert found is not None
    cases: list[dict[str, Any]] = json.loads(found[1])["cases"]
    return cases


def evaluation(*said: PredictorAnswer, level: PatchLevel = PatchLevel.FULL) -> Evaluation:
    suite = suite_of(
        case(did("one\ntwo\n", added("a")), text="ls"),
        case(did("1\n"), did("2\n"), text=f"echo '{HOSTILE}' | cat"),
    )
    return Evaluation(suite, (judge_predictor(suite, said, f"mine:{HOSTILE}", "1", level),))


def test_every_answer_stands_beside_the_gold() -> None:
    answers = (
        PredictorAnswer(behavior=did("one\ntoo\n", added("b"), exit_code=1)),
        PredictorAnswer(behavior=did("2\n")),
    )
    html = evaluation_html(evaluation(*answers))
    first, second = shown(html)
    (answer,) = first["a"]
    assert answer["o"] == [["=", "one"], ["-", "two"], ["+", "too"]]
    assert [row[0] for row in answer["p"]] == ["-", "+"]
    assert answer["r"] == [0, 0, 0, 0, 0]
    assert answer["e"] == [0, 1]
    (answer,) = second["a"]
    assert answer["o"] == [["=", "2"]], "the nearest gold run"
    assert second["v"] == ["output"]
    assert second["t"] == f"echo '{HOSTILE}' | cat"


def test_at_the_level_of_files_patches_say_no_more() -> None:
    answers = (
        PredictorAnswer(behavior=did("", added("a", owner="x"))),
        PredictorAnswer(Status.CRASHED, why="it died"),
    )
    first, second = shown(evaluation_html(evaluation(*answers, level=PatchLevel.FILES)))
    assert first["a"][0]["p"] == [["=", "added a"]]
    assert second["a"][0]["k"] == "crashed"
    assert second["a"][0]["o"] == [["-", "1"]]


def test_nothing_an_input_says_becomes_markup_and_nothing_is_loaded() -> None:
    html = evaluation_html(
        evaluation(
            PredictorAnswer(behavior=did(HOSTILE)), PredictorAnswer(Status.ABSTAINED, why=HOSTILE)
        )
    )
    assert "<b>x</b>" not in html
    assert html.count("</script>") == 2
    assert not re.search(r"(src|href)=\"(?!#|data:)", html)
    assert "style=" not in html, "the policy would not admit it"


def test_long_outputs_are_cut_and_that_is_said() -> None:
    suite = suite_of(case(did("".join(f"{n}\n" for n in range(500)))))
    one = judge_predictor(suite, [PredictorAnswer(behavior=did("x\n"))], "mine")
    (only,) = shown(evaluation_html(Evaluation(suite, (one,))))
    rows = only["a"][0]["o"]
    assert len(rows) == 121
    assert rows[-1] == ["…", "and 381 more lines"]


def test_a_heat_map_counts_an_input_for_each_of_its_utilities() -> None:
    done = evaluation(
        PredictorAnswer(behavior=did("one\ntwo\n", added("a"))),
        PredictorAnswer(behavior=did("3\n")),
    )
    assert {row["utility"]: (row["n"], row["shares"]) for row in heat_map(done)} == {
        "ls": (1, [1.0]), "echo": (1, [1.0]), "cat": (1, [1.0]),
    }  # fmt: skip


def test_the_surest_answers_are_told_by_themselves() -> None:
    suite = suite_of(*(case(did("x\n"), text=f"ls {n}") for n in range(4)))
    said = [
        PredictorAnswer(behavior=did("x\n"), confidence=0.9),
        PredictorAnswer(behavior=did("y\n"), confidence=0.4),
        PredictorAnswer(behavior=did("x\n"), confidence=0.8),
        PredictorAnswer(Status.ABSTAINED),
    ]
    rows = {row["part"]: row for row in calibration(judge_predictor(suite, said, "mine"))}
    assert (rows[0.5]["n"], rows[0.5]["right"], rows[0.5]["said"]) == (2, 1.0, pytest.approx(0.85))
    assert (rows[1.0]["right"], rows[1.0]["said"]) == (0.5, pytest.approx(2.1 / 4))
    sure = [PredictorAnswer(behavior=did("x\n"), confidence=1.0)] * 4
    assert calibration(judge_predictor(suite, sure, "mine")) == []


def test_a_page_is_written_of_what_was_kept(tmp_path: Path) -> None:
    write_suite(suite_of(case(did(""), text="true")), tmp_path / "suite")
    evaluate(read_suite(tmp_path / "suite"), ["trivial"], tmp_path / "out", workers=1)
    write_page(tmp_path / "out")
    assert "1 predictor by 1 inputs" in (tmp_path / "out" / "report.html").read_text()
    with pytest.raises(UsageError):
        write_page(tmp_path / "out", tmp_path)
    with pytest.raises(SuiteError):
        write_page(tmp_path)


def test_predictors_of_different_levels_share_a_page() -> None:
    suite = suite_of(case(did("x\n", added("a"))))
    said = [PredictorAnswer(behavior=did("x\n", added("a", owner="alice")))]
    both = (
        judge_predictor(suite, said, "whole"),
        judge_predictor(suite, said, "files", level=PatchLevel.FILES),
    )
    html = evaluation_html(Evaluation(suite, both, {"third": "it lacks node"}))
    assert "whole \u2212 files" in html
    assert "third" in html
