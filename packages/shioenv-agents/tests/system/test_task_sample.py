"""The sample of certified tasks in `examples/agents`: whole, of each length, and still right."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import Final

import pytest
from msgspec.structs import replace

from shioenv.behavior.observe import SandboxRunner
from shioenv_agents.tasks.agents import SCRIPTS
from shioenv_agents.tasks.certify import faults_now
from shioenv_agents.tasks.make import reworded
from shioenv_agents.tasks.task import LENGTHS, Task, length_of, read_tasks
from support.paths import ROOT

pytestmark = pytest.mark.usefixtures("system")

TASKS: Final = read_tasks(ROOT / "examples/agents/tasks.jsonl")
CHANGED: Final = {
    "the judge was changed after certification",
    "changed after certification: system",
}
"""Faults that the sample may have as the code changes: it is certified anew for each release."""


def test_each_task_has_a_sound_certificate() -> None:
    assert len(TASKS) == len({task.id for task in TASKS}) == 50
    assert Counter(map(length_of, TASKS)).keys() == {*LENGTHS}
    for task in TASKS:
        assert task.certificate is not None
        assert task.certificate.faults == ()
        assert task.certificate.prompt == hashlib.sha256(task.prompt.encode()).hexdigest()
        assert task.certificate.judged_by.tasks == 50
        assert [*task.solved_by] == [*SCRIPTS]


@pytest.mark.parametrize("task", TASKS[::7], ids=lambda task: task.id)
def test_prompts_are_in_the_present_wording(task: Task, observer: SandboxRunner) -> None:
    """Otherwise the sample is due: certify it with `--rebase`, and let the scripts try it again."""
    now = replace(task, system_digest=observer.system.digest)
    assert reworded(now, observer).prompt == task.prompt


@pytest.mark.parametrize("task", TASKS[::10], ids=lambda task: task.id)
def test_what_a_certificate_says_is_found_again(task: Task, observer: SandboxRunner) -> None:
    now = replace(task, system_digest=observer.system.digest)
    assert {*faults_now(now, observer)} <= CHANGED


def test_a_prompt_that_was_changed_would_be_found(observer: SandboxRunner) -> None:
    now = replace(TASKS[0], system_digest=observer.system.digest, prompt=f"{TASKS[0].prompt} ")
    assert "changed after certification: prompt" in faults_now(now, observer)
