"""Questions in a group are asked again one by one where the group fails."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shioenv.domain.runner import State
from shioenv_eval.predictor_pool import Bounds, PredictorPool
from support.installed import install_predictor

PREDICTOR = """\
import os, signal
from shioenv.domain.behavior import Behavior

class Grouped:
    at_once = 4

    def __init__(self, setting):
        self.version, self.log = "1", setting.text

    def run(self, text, state=None):
        with open(self.log, "a") as log:
            log.write(text + "\\n")
        if text == "die":
            os._exit(7)
        while text == "hang":
            signal.pause()
        return Behavior(0, text.encode())

    def together(self, ask, questions):
        with open(self.log, "a") as log:
            log.write(" ".join(["together", *(text for text, _ in questions)]) + "\\n")
        return [ask(question) for question in questions]
"""


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the log of questions to the predictor `grouped`."""
    install_predictor(tmp_path, monkeypatch, "grouped:Grouped", PREDICTOR)
    path = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{path}")
    return tmp_path / "log"


def said(log: Path, *texts: str, seconds: float = 30.0) -> dict[str, tuple[str, bytes | None]]:
    tasks = [(number, (text, State(cwd="/"))) for number, text in enumerate(texts)]
    with PredictorPool(f"grouped:{log}", "no-such-system", "/", 1, Bounds(seconds)) as pool:
        assert pool.ready.at_once == 4
        answers = dict(pool.said(tasks))
    assert sorted(answers) == list(range(len(texts)))
    return {
        text: (answers[number].status.value, getattr(answers[number].behavior, "output", None))
        for number, text in enumerate(texts)
    }


def test_a_group_is_asked_at_once(asked: Path) -> None:
    assert said(asked, "a", "b", "c", "d", "e") == {
        text: ("answered", text.encode()) for text in "abcde"
    }
    assert asked.read_text().split("\n") == ["together a b c d", "a", "b", "c", "d", "e", ""]


def test_of_a_lost_group_only_the_deadly_question_has_no_answer(asked: Path) -> None:
    found = said(asked, "a", "die", "b", "c", "d")
    assert found.pop("die") == ("crashed", None)
    assert found == {text: ("answered", text.encode()) for text in "abcd"}
    lines = asked.read_text().split("\n")
    assert lines[:3] == ["together a die b c", "a", "die"]
    assert sorted(lines[3:-1]) == sorted(["a", "die", "b", "c", "d"])


def test_of_a_late_group_only_the_late_question_has_no_answer(asked: Path) -> None:
    """Under any load: the seconds allowed for an answer are many times the usual."""
    found = said(asked, "a", "hang", "b", seconds=3.0)
    assert found.pop("hang") == ("timed_out", None)
    assert found == {text: ("answered", text.encode()) for text in "ab"}
    lines = asked.read_text().split("\n")
    assert lines[:3] == ["together a hang b", "a", "hang"]
    assert sorted(lines[3:-1]) == sorted(["a", "hang", "b"])
