"""Right answers by people are accepted; they were written before the check's code was read."""

from __future__ import annotations

import json

import pytest

from shioenv.behavior.observe import SandboxRunner
from shioenv_agents.tasks.episode import Episode
from support.known_tasks import RIGHT_ANSWERS, known_tasks

pytestmark = pytest.mark.usefixtures("system")

LEAST = 0.97


def test_right_answers_are_accepted(observer: SandboxRunner) -> None:
    """One is refused: it joins a last line without a newline with the first line after it."""
    tasks = {task.id: task for task in known_tasks(observer.system)}
    written = (RIGHT_ANSWERS / "answers.jsonl").read_text()
    answers = [json.loads(line) for line in written.splitlines()]
    assert len(answers) >= 100
    assert {answer["task"] for answer in answers} == set(tasks)
    refused = []
    for answer in answers:
        episode = Episode(tasks[answer["task"]], observer)
        for row in answer["rows"]:
            if not episode.over:
                episode.act(row)
        if not episode.verdict.passed:
            refused.append((answer, episode.verdict))
    assert len(refused) <= (1 - LEAST) * len(answers), refused
