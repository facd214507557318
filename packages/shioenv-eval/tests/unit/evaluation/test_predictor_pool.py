"""An error in one question, or in several at once, costs no other answer."""

from __future__ import annotations

from collections.abc import Iterator

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
        pass

    def run(self, text, state=None):
        if text.endswith("unreadable"):
            return Behavior(0, Unreadable())
        return Behavior(0, text.encode())

    def together(self, ask, questions):
        said = [ask(question) for question in questions]
        how = questions[0][0].partition(" ")[0]
        if how == "raises":
            raise RuntimeError("no")
        return {"few": said[1:], "many": said * 2, "other": ["x"] * len(said), "none": None,
                "tuple": tuple(said), "right": said}[how]
"""


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PredictorPool]:
    """Make one pool: its process takes half a second to start."""
    with pytest.MonkeyPatch.context() as patch:
        install_predictor(tmp_path_factory.mktemp("mine"), patch, "pooled:Mine", PREDICTOR)
        with PredictorPool("pooled", "debian-12", "/", 1) as made:
            yield made


def asked(pool: PredictorPool, how: str, *texts: str) -> list[PredictorAnswer]:
    """Ask several at once; `how` names the error in the reply to them."""
    tasks = [(number, (f"{how} {text}", State(cwd="/"))) for number, text in enumerate(texts)]
    answers = dict(pool.said(tasks))
    return [answers[number] for number in range(len(texts))]


@pytest.mark.parametrize("how", ["right", "tuple", "few", "many", "other", "none", "raises"])
def test_what_goes_wrong_with_several_is_asked_one_by_one(pool: PredictorPool, how: str) -> None:
    said = asked(pool, how, "a", "b", "c")
    outputs = [one.behavior and one.behavior.output.decode() for one in said]
    assert outputs == [f"{how} a", f"{how} b", f"{how} c"]


def test_an_answer_that_cannot_be_read_is_one_answer(pool: PredictorPool) -> None:
    said = asked(pool, "right", "a", "unreadable", "c")
    assert [one.status for one in said] == [Status.ANSWERED, Status.CRASHED, Status.ANSWERED]
