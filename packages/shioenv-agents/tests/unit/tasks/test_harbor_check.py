"""The checker of Harbor's folders: accepted changes, and rejected tricks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shioenv_agents.tasks.harbor import check
from shioenv_agents.tasks.prompt import compose_prompt, in_file

FILE = {"mode": "-rw-r--r--", "uid": 0, "gid": 0, "size": 1, "links": 1, "sha256": "a"}
GOAL = {"entries": {"/made": FILE, "/gone": None}, "output": None}
DONE = {"/made": FILE, "/gone": None}


def verdict(entries: dict[str, Any], **more: Any) -> tuple[list[str], list[str], float]:
    evidence = {"kind": "changes", "entries": entries, **more}
    before = {"/gone": FILE}.get
    return check.verdict(GOAL, evidence, None, before)


def test_the_goal_alone_passes() -> None:
    assert verdict(DONE) == ([], [], 1.0)
    assert verdict({}) == (["/made", "/gone"], [], 0.0)
    assert verdict({"/made": FILE}) == (["/gone"], [], 0.5)


@pytest.mark.parametrize("field", FILE)
def test_every_fact_of_a_file_counts(field: str) -> None:
    assert verdict({**DONE, "/made": {**FILE, field: "other"}})[0] == ["/made"]


def test_what_is_extra_is_named() -> None:
    assert verdict({**DONE, "/x": FILE})[1] == ["/x"]
    assert verdict(DONE, other=["the network"])[1] == ["the network"]
    assert verdict(DONE, truncated=True)[1] == ["more changes than can be listed"]


def test_what_the_harness_makes_is_not_extra() -> None:
    for path in (
        "/logs/agent/x", "/tests", "/tmp/tmux-0/default", "/tmp/.hb-transfer-1.tar.gz",
        "/harbor/skills/x", "/runtime", "/runtime/skills/x/SKILL.md", "/tmp/.runtime-tmux-paste-1",
    ):  # fmt: skip
        assert verdict({**DONE, path: FILE}) == ([], [], 1.0)
    for path in ("/logsx", "/runtimes", "/tmp/tmuxx", "/etc/hosts", "/run/x"):
        assert verdict({**DONE, path: FILE})[1] == [path]


@pytest.mark.parametrize(
    ("answer", "passes"),
    [("a  b\nc\n\n", True), ("a b\nc", True), ("a b c", False), ("", False), (None, False)],
)
def test_an_answer_is_compared_line_by_line(answer: str | None, passes: bool) -> None:
    goal = {"entries": {}, "output": "a b\nc\n"}
    evidence = {"kind": "changes", "entries": {}}
    missing, extra, progress = check.verdict(goal, evidence, answer)
    assert (not missing, extra, progress) == (passes, [], float(passes))


def judged(tmp_path: Path, evidence: str | None) -> tuple[dict[str, float], str]:
    (tmp_path / "goal.json").write_text(json.dumps(GOAL))
    if evidence is not None:
        (tmp_path / check.EVIDENCE).write_text(evidence)
    goal = str(tmp_path / "goal.json")
    command = [sys.executable, "-I", check.__file__, goal, str(tmp_path), str(tmp_path)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads((tmp_path / "reward.json").read_text()), said


@pytest.mark.parametrize(
    "evidence",
    [
        None, "", "[]", "null", "{}", '{"kind": "changes"}', '{"kind": "changes", "entries": []}',
        '{"kind": "changes", "entries": {"/made": 1, "/gone": 2}}', "[" * 100_000,
    ],
    ids=range(9),
)  # fmt: skip
def test_evidence_that_is_none_pays_nothing(tmp_path: Path, evidence: str | None) -> None:
    assert judged(tmp_path, evidence)[0] == {"reward": 0, "progress": 0.0}


def test_the_program_writes_a_reward(tmp_path: Path) -> None:
    reward, said = judged(tmp_path, json.dumps({"kind": "changes", "entries": DONE}))
    assert reward == {"reward": 1, "progress": 1.0}
    assert json.loads(said) == {"missing": [], "extra": []}


PRINTED = "the number of lines of `a`."


@pytest.mark.parametrize("state", [[], ["`b` no longer exists"]])
def test_a_prompt_is_told_in_the_words_of_a_file(state: list[str]) -> None:
    prompt = compose_prompt(user="root", cwd="/", kind="Print it.", state=state, asked=PRINTED)
    other = in_file(prompt, "/answer")
    assert other is not None
    assert f"`/answer` {PRINTED}" in other
    assert "last command" not in other
    assert "Leave the machine unchanged." not in other
    assert other.splitlines()[0] == prompt.splitlines()[0]
    assert other.splitlines()[-1] == prompt.splitlines()[-1]


def test_a_prompt_in_other_words_is_not_told() -> None:
    prompt = compose_prompt(
        user="root", cwd="/", kind="Made.", state=["`b` no longer exists"], asked=None
    )
    assert in_file(prompt, "/answer") is None
    assert in_file("Print the number of lines.", "/answer") is None
