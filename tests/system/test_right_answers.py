"""Right answers that people wrote are accepted: by hand, before the check's code was read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from shioenv.behavior.observe import SandboxRunner
from shioenv.tasks.episode import Episode
from shioenv.tasks.task import read_tasks

pytestmark = [pytest.mark.usefixtures("system"), pytest.mark.xdist_group("tasks")]

HERE = Path(__file__).parent / "right_answers"
LEAST = 0.97


def test_right_answers_are_accepted(observer: SandboxRunner) -> None:
    """One is refused: it joins a last line without a newline with the first line after it."""
    digest = observer.system.digest
    tasks = {
        task.id: replace(task, system_digest=digest) for task in read_tasks(HERE / "tasks.jsonl")
    }
    answers = [json.loads(line) for line in (HERE / "answers.jsonl").read_text().splitlines()]
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
