"""The page of tables: ours with intervals and levels, the paper's beside them with a warning."""

from __future__ import annotations

from shioenv.domain.predictor import PatchLevel
from shioenv_eval.evaluate import Evaluation
from shioenv_eval.evaluation_page import PAPER, markdown
from shioenv_eval.metrics import PredictorAnswer
from shioenv_eval.results import judge_predictor
from support.evaluation_fakes import case, did, suite_of


def test_ours_and_the_papers_stand_in_tables_of_their_own() -> None:
    suite = suite_of(case(did("x\n"), text="ls"), case(did("y\n"), text="ls | wc"))
    said = [PredictorAnswer(behavior=did("x\n")), PredictorAnswer(behavior=did("z\n"))]
    one = judge_predictor(suite, said, "mine:a|b", "7", PatchLevel.FILES)
    page = markdown(Evaluation(suite, (one,), {"other": "it lacks node"}))
    assert "| `mine:a\\|b` (files) | 1.000 [1.00, 1.00] |" in page
    assert "| `mine:a\\|b` (files) | 0.000 [0.00, 0.00] |" in page
    assert "| `other` | it lacks node |" in page
    assert "they were measured on different inputs" in page
    assert "| CodeT5, GCS, R* >= 0.5 | 0.510 | 0.735 | 0.648 |" in page
    assert page.count("## The paper") == len(PAPER)
