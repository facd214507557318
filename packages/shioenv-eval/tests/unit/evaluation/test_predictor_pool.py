"""An error in one question, or in several at once, costs no other answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from shioenv.domain.runner import State
from shioenv_eval.metrics import PredictorAnswer, Status
from shioenv_eval.predictor_pool import PredictorPool
from support.installed import install_predictor

PREDICTOR = """\
from shioenv.domain.behavior import Behavior
from shioenv_eval.metrics import PredictorAnswer, Status

class Unreadable:
    def __reduce__(self):
        return int, ("no number",)

class Mine:
    at_once, version, patch_level = 8, "1", "files"

    def __init__(self, setting):
        self.how = setting.text

    def run(self, text, state=None):
        if text == "unreadable":
            return Behavior(0, Unreadable())
        return Behavior(0, text.encode())

    def together(self, ask, questions):
        said = [ask(question) for question in questions]
        if self.how == "raises":
            raise RuntimeError("no")
        return {"few": said[1:], "many": said * 2, "other": ["x"] * len(said), "none": None,
                "tuple": tuple(said), "right": said}[self.how]
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_predictor(tmp_path, monkeypatch, "pooled:Mine", PREDICTOR)


def asked(how: str, *texts: str) -> list[PredictorAnswer]:
    tasks = [(number, (text, State(cwd="/"))) for number, text in enumerate(texts)]
    with PredictorPool(f"pooled:{how}", "debian-12", "/", 1) as pool:
        answers = dict(pool.said(tasks))
    return [answers[number] for number in range(len(texts))]


@pytest.mark.usefixtures("mine")
@pytest.mark.parametrize("how", ["right", "tuple", "few", "many", "other", "none", "raises"])
def test_what_goes_wrong_with_several_is_asked_one_by_one(how: str) -> None:
    said = asked(how, "a", "b", "c")
    assert [one.behavior and one.behavior.output for one in said] == [b"a", b"b", b"c"]


@pytest.mark.usefixtures("mine")
def test_an_answer_that_cannot_be_read_is_one_answer() -> None:
    said = asked("right", "a", "unreadable", "c")
    assert [one.status for one in said] == [Status.ANSWERED, Status.CRASHED, Status.ANSWERED]
