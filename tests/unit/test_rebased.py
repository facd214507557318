"""Tasks transferred to another build are unchanged."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from shioenv.errors import TaskError
from shioenv_agents.tasks.certify import rebased, sealed
from shioenv_agents.tasks.task import read_tasks

EXAMPLES = "examples/agents/tasks.jsonl"


def test_a_changed_prompt_or_goal_is_not_taken_over() -> None:
    task = next(one for one in read_tasks(EXAMPLES) if one.certificate is not None)
    built = cast("Any", SimpleNamespace(name=task.system, digest="ab" * 32))
    assert rebased([task], built)[0].system_digest == built.digest
    for changed in (
        replace(task, prompt=f"{task.prompt} "),
        replace(task, goal=replace(task.goal, output="other")),
    ):
        with pytest.raises(TaskError, match="was changed after certification"):
            rebased([changed], built)


def test_an_edited_certificate_is_not_taken_over() -> None:
    task = next(one for one in read_tasks(EXAMPLES) if one.certificate is not None)
    assert task.certificate is not None
    built = cast("Any", SimpleNamespace(name=task.system, digest="ab" * 32))
    whole = sealed(task, task.certificate)
    assert rebased([replace(whole, id="other", solved_by={})], built)
    assert whole.certificate is not None
    for changed in (
        replace(whole, certificate=replace(whole.certificate, k=whole.certificate.k + 1)),
        replace(whole, commands=["true"]),
    ):
        with pytest.raises(TaskError, match="was changed after certification"):
            rebased([changed], built)
