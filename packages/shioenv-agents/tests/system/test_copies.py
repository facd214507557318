"""Objects that hold an open machine refuse to be copied; all others can be copied and pickled."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import gymnasium
import pytest

import shioenv
from shioenv.errors import EpisodeError
from shioenv.live.model_shell import RepeatedShell
from shioenv.system.store import System
from shioenv_agents.fronts.trl import environments
from shioenv_agents.tasks.env import TaskEnv
from shioenv_agents.tasks.task import Task
from support.known_tasks import known_tasks

HOW: list[Callable[[Any], Any]] = [
    copy.copy,
    copy.deepcopy,
    lambda value: pickle.loads(pickle.dumps(value)),
]


@pytest.fixture(scope="module")
def tasks(system: System) -> list[Task]:
    return known_tasks(system)


def held(stack: ExitStack, tasks: list[Task]) -> Iterator[Any]:
    sandbox = stack.enter_context(shioenv.open_sandbox())
    yield sandbox
    yield sandbox._sandbox
    yield stack.enter_context(shioenv.open_shell())
    yield stack.enter_context(RepeatedShell(sandbox, "/home/ubuntu"))
    env = stack.enter_context(closing(TaskEnv(tasks)))
    env.reset(seed=1)
    env.step("true")
    yield env
    made = environments(tasks)()
    made.reset(tasks[0].id)
    yield made


def test_what_holds_a_machine_refuses_copies(tasks: list[Task]) -> None:
    with ExitStack() as stack:
        for one in held(stack, tasks):
            for duplicate in HOW:
                with pytest.raises(EpisodeError, match="cannot be copied"):
                    duplicate(one)


@pytest.mark.parametrize("duplicate", HOW, ids=["copy", "deepcopy", "pickle"])
def test_a_task_environment_can_be_copied_before_its_first_reset(
    tasks: list[Task], duplicate: Callable[[Any], Any]
) -> None:
    made = gymnasium.make("ShIOEnv-Task-v0", tasks=tasks).unwrapped
    with closing(made), closing(duplicate(made)) as other:
        assert other.reset(seed=3)[0] == made.reset(seed=3)[0]


@pytest.mark.parametrize("duplicate", HOW, ids=["copy", "deepcopy", "pickle"])
def test_the_factory_of_trl_goes_to_another_process(
    tasks: list[Task], duplicate: Callable[[Any], Any]
) -> None:
    environment = duplicate(duplicate(environments(tasks, max_turns=3))())
    environment.reset(tasks[0].id)
    assert environment.terminal("echo hi") == "hi\n"
