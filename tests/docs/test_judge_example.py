"""The predictor of the how-to can be run, and its output is the page's."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from shioenv.dataset.questions import question_of
from shioenv.domain.behavior import Behavior
from shioenv.domain.patch import ContextPatch
from shioenv_eval.evaluate import evaluate
from shioenv_eval.suite import Head, Suite, SuiteCase

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "judge.md"
ENTRY = {
    "perms": "-rw-r--r--", "links": 1, "owner": "root", "group": "root", "size": 0,
    "month": "Oct", "day": 16, "year": 2025, "time": "19:43",
}  # fmt: skip
DOES = {
    "pwd": Behavior(0, b"/home/ubuntu\n"),
    "echo 'a  b' c": Behavior(0, b"a  b c\n"),
    "touch new": Behavior(0, b"", ContextPatch((("a", "/fs/new", ENTRY),))),
    "echo $HOME": Behavior(0, b"/root\n"),
    "ls": Behavior(0, b"x\n"),
}


def test_the_predictor_of_the_page_runs(tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert sum(bool(line.strip()) for line in program.splitlines()) <= 32
    path = tmp_path / "echo.py"
    path.write_text(program)
    cases = tuple(
        SuiteCase(question_of({"input": text}, number, "page"), (behavior,))
        for number, (text, behavior) in enumerate(DOES.items())
    )
    head = Head("page", "debian-12", "0" * 64, "/home/ubuntu", 5, 61.0, {})
    name = f"command:{sys.executable} {path}"
    done = evaluate(Suite(head, cases), [name], workers=1)
    assert not done.unable
    (judged,) = done.predictors
    assert judged.version == "echo 1"
    assert [mark.em_exit for mark in judged.marks] == [1, 1, 1, 0, 0]
    assert done.document["predictors"][name]["all"]["abstained"][0] == 0.4
