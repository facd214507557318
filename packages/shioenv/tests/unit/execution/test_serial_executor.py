"""Tasks executed in this process, with one sandbox that is reopened after it broke."""

from __future__ import annotations

from pathlib import Path

import pytest

from shioenv.domain.runner import State
from shioenv.errors import GenerationError, InputError
from shioenv.execution.job import NumberedJob
from shioenv.execution.lanes import Lane
from shioenv.execution.local import SerialExecutor
from shioenv.sandbox.base import Limits
from support.dataset_fakes import HOME, FakeRunner


class Openings:
    """Opens fakes, and keeps them."""

    def __init__(self) -> None:
        self.opened: list[FakeRunner] = []

    def __call__(self, system: str, limits: Limits) -> FakeRunner:
        self.opened.append(FakeRunner(system))
        return self.opened[-1]


def run(lane: Lane, task: tuple[int, str]) -> int:
    return lane.run(task[1], State(cwd=HOME)).exit_code


def test_one_sandbox_does_all_tasks_in_order_and_is_closed(tmp_path: Path) -> None:
    openings = Openings()
    job = NumberedJob(run, system=str(tmp_path))
    with SerialExecutor(openings) as executor:
        found = list(executor.map(job, [(5, "echo a"), (2, "echo b")]))
    assert [number for number, _ in found] == [5, 2]
    assert [one.closed for one in openings.opened] == [True]


def test_a_task_whose_sandbox_broke_is_begun_again_in_a_new_one(tmp_path: Path) -> None:
    openings = Openings()
    job = NumberedJob(run, system=str(tmp_path))
    executor = SerialExecutor(openings)
    found = list(executor.map(job, [(0, "echo a"), (1, "echo broken"), (2, "echo c")]))
    assert [number for number, _ in found] == [0, 1, 2]
    assert [one.closed for one in openings.opened] == [True, True]
    assert executor.retried == 1
    with pytest.raises(GenerationError, match="input 3 failed"):
        list(
            executor.map(NumberedJob(run, str(tmp_path), what="input"), [(3, "echo always-broken")])
        )


def untouched(lane: Lane, task: tuple[int, str]) -> str:
    return task[1]


def test_nothing_is_opened_for_what_needs_no_sandbox() -> None:
    openings = Openings()
    found = list(SerialExecutor(openings).map(NumberedJob(untouched), [(1, "a")]))
    assert found == [(1, "a")]
    assert openings.opened == []


def test_what_it_took_is_counted(tmp_path: Path) -> None:
    lane = Lane(lambda: FakeRunner(str(tmp_path)))
    run(lane, (0, "echo a"))
    with pytest.raises(InputError):
        run(Lane(refused), (0, "echo a"))
    assert lane.effort.ran == 1
    lane.close()
    lane.close()


def refused() -> FakeRunner:
    raise InputError("no")
