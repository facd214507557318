"""Turns and exclusive execution."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from shioenv.domain.behavior import Behavior
from shioenv.domain.runner import State
from shioenv.execution import lanes
from shioenv.execution.lanes import Lane, Lanes, Turns
from support.dataset_fakes import FakeRunner
from support.waiting import Clock, let_time_pass, wait_until


def test_short_executions_are_one_at_a_time(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(lanes, "WAITING_SECONDS", (60.0, 60.0))
    turns, inside, most = Turns(), 0, 0

    def execute() -> None:
        nonlocal inside, most
        for _ in range(5):
            task = turns.begin()
            for _ in range(4):
                with turns.turn(task):
                    inside += 1
                    most = max(most, inside)
                    let_time_pass(0.0005, "another one would enter meanwhile")
                    inside -= 1
            turns.end(task)

    together(execute, 4)
    assert most == 1


def test_a_task_that_does_not_wait_is_done_before_the_next_begins(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(lanes, "WAITING_SECONDS", (60.0, 60.0))
    turns, told = Turns(), []

    def execute() -> None:
        task = turns.begin()
        for _ in range(3):
            with turns.turn(task):
                told.append(task)
            let_time_pass(0.001, "the next one would begin meanwhile")
        turns.end(task)

    together(execute, 5)
    assert told == [task for task in range(1, 6) for _ in range(3)]


def test_the_next_begins_beside_one_that_waits() -> None:
    turns, released = Turns(), threading.Event()

    def waits() -> None:
        task = turns.begin()
        with turns.turn(task):
            assert released.wait(30)
        turns.end(task)

    def next_one() -> None:
        task = turns.begin()
        with turns.turn(task):
            released.set()
        turns.end(task)

    waiting = threading.Thread(target=waits)
    waiting.start()
    wait_until(lambda: turns._holder, "the first task's turn")
    next_one()  # returns only where it does not wait for the other
    waiting.join(30)
    assert not waiting.is_alive()
    assert turns._holder is None


def test_who_waited_goes_on_before_what_began_later(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """The first task waits and a second one begins. As soon as the first one can continue, the
    second one yields between two executions, and a third one does not begin.
    """
    monkeypatch.setattr(lanes, "WAITING_SECONDS", (0.05, 0.05))
    turns, told = Turns(), []
    slept, asks = threading.Event(), threading.Event()

    def first() -> None:
        task = turns.begin()
        with turns.turn(task):
            assert slept.wait(30)
        monkeypatch.setattr(lanes, "WAITING_SECONDS", (60.0, 60.0))
        asks.set()
        for _ in range(3):
            with turns.turn(task):
                told.append("first")
        turns.end(task)

    def second() -> None:
        task = turns.begin()
        with turns.turn(task):
            slept.set()
            assert asks.wait(30)
            wait_until(
                lambda: turns._waiting and turns._waiting[0][0] < task, "the first one to wait"
            )
        with turns.turn(task):
            told.append("second")
        turns.end(task)

    def third() -> None:
        assert asks.wait(30)
        turns.end(turns.begin())
        told.append("third")

    threads = [threading.Thread(target=first)]
    threads[0].start()
    wait_until(lambda: turns._holder == 1, "the first task's turn")
    for one in (second, third):
        threads.append(threading.Thread(target=one))
        threads[-1].start()
    for thread in threads:
        thread.join(60)
    assert told == ["first"] * 3 + ["second", "third"]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of `lanes`."""
    clock = Clock()
    monkeypatch.setattr(lanes, "time", clock)
    return clock


def test_patience_follows_what_executions_take(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "WAITING_SECONDS", (0.001, 0.006))
    turns = Turns()
    task = turns.begin()
    assert turns._waiting_seconds() == 0.001
    for _ in range(200):
        with turns.turn(task):
            clock.move(0.002)
    assert turns._waiting_seconds() == pytest.approx(0.004, rel=0.01)
    for _ in range(300):
        with turns.turn(task):
            clock.move(0.1)
    assert turns._waiting_seconds() == 0.006
    for _ in range(300):
        with turns.turn(task):
            pass
    assert turns._waiting_seconds() == 0.001


def test_nobody_executes_beside_one_that_is_alone(tmp_path: Path) -> None:
    door, room = tmp_path / "door", tmp_path / "room"
    door.touch()
    room.touch()
    others, wrong, alone = 0, 0, 0
    lock = threading.Lock()

    def among() -> None:
        nonlocal others
        gate = Lanes(str(door), str(room))
        for _ in range(50):
            with gate.among_others():
                with lock:
                    others += 1
                let_time_pass(0.0002, "the one that is alone would see it meanwhile")
                with lock:
                    others -= 1
        gate.close()

    def by_itself() -> None:
        nonlocal wrong, alone
        gate = Lanes(str(door), str(room))
        for _ in range(5):
            with gate.alone():
                alone += 1
                before = others
                let_time_pass(0.001, "others would execute meanwhile")
                wrong += before + others
        gate.close()

    threads = [threading.Thread(target=one) for one in (among, among, among, by_itself, by_itself)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (wrong, alone) == (0, 10)


@pytest.mark.parametrize("waited", [True, False])
def test_what_slept_until_its_time_was_over_is_repeated_beside_others(
    tmp_path: Path, waited: bool
) -> None:
    door, room = tmp_path / "door", tmp_path / "room"
    door.touch()
    room.touch()
    gate, other = (Lanes(str(door), str(room)) for _ in range(2))
    observer = FakeRunner(str(tmp_path))
    observer.waited = waited
    lane = Lane(lambda: observer, by_itself=gate.alone)
    ended = threading.Event()

    def repeat() -> None:
        lane.alone(lambda: Behavior(124, b"", timed_out=True))
        ended.set()

    repeating = threading.Thread(target=repeat)
    with other.among_others():
        repeating.start()
        assert ended.wait(30 if waited else 0.2) is waited
    repeating.join(30)
    assert ended.is_set()
    gate.close()
    other.close()


def together(action, times: int) -> None:  # type: ignore[no-untyped-def]
    threads = [threading.Thread(target=action) for _ in range(times)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)


def test_what_an_execution_took_is_told_apart(tmp_path: Path, clock: Clock) -> None:
    lane = Lane(lambda: Slow(str(tmp_path), clock))
    lane.open()
    lane.execute("echo a", State(cwd="/home"))
    effort = lane.effort
    assert (effort.ran, effort.own_seconds) == (1, 0.004)
    assert effort.sandbox_seconds == pytest.approx(0.006)


class Slow(FakeRunner):
    """Reports a fraction of the time that inputs take."""

    def __init__(self, scratch: str, clock: Clock) -> None:
        super().__init__(scratch)
        self._clock = clock

    def execute(self, shell_input: str, state: State | None = None, **how: Any) -> Behavior:
        behavior = super().execute(shell_input, state, **how)
        self._clock.move(0.01)
        self.seconds += 0.004
        return behavior
