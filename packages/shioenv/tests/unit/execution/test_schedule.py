"""The order of tasks, the number of their attempts, and the limit on running ahead."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shioenv.errors import GenerationError, HostError
from shioenv.execution.schedule import ATTEMPTS, Failure, Schedule


def test_tasks_are_drawn_when_there_is_room_and_each_is_given_once() -> None:
    drawn: list[int] = []

    def stream() -> Iterator[tuple[int, str]]:
        for number in range(3):
            drawn.append(number)
            yield number, f"task {number}"

    schedule = Schedule(stream())
    assert drawn == []
    assert schedule.left
    assert schedule.take() == (0, "task 0")
    assert drawn == [0]
    assert schedule.take() == (1, "task 1")
    schedule.done(0)
    schedule.done(1)
    assert not schedule.unfinished
    assert schedule.left
    assert schedule.take() == (2, "task 2")
    assert schedule.take() is None
    schedule.done(2)
    assert not schedule.left


def test_what_was_begun_goes_first_and_is_done_alone() -> None:
    schedule = Schedule(enumerate("abcd"))
    for _ in range(3):
        schedule.take()
    schedule.back(2)  # not begun
    assert not schedule.alone([2])
    assert schedule.take(beside=True) == (2, "c")
    schedule.again(1, "its worker died")
    assert schedule.alone([0, 1])
    assert schedule.take(beside=True) is None
    assert schedule.take() == (1, "b")
    schedule.done(1)
    assert schedule.take(beside=True) == (3, "d")
    assert schedule.retried == 1


def test_the_newest_is_not_far_ahead_of_the_oldest() -> None:
    schedule = Schedule((number, "") for number in range(0, 100, 10))
    schedule.window = 30
    assert [schedule.take() for _ in range(5)] == [(0, ""), (10, ""), (20, ""), (30, ""), None]
    schedule.done(10)
    assert schedule.take() is None
    schedule.done(0)
    assert schedule.take() == (40, "")
    schedule.again(20, "")
    assert schedule.take() == (20, "")  # it is the oldest


def test_what_was_drawn_before_a_stream_broke_is_given_first() -> None:
    def stream() -> Iterator[tuple[int, str]]:
        yield from enumerate("ab")
        raise GenerationError("no more")

    schedule = Schedule(stream(), batch=64)
    assert [schedule.take(), schedule.take()] == [(0, "a"), (1, "b")]
    with pytest.raises(GenerationError, match="no more"):
        schedule.take()


def test_what_fails_every_time_is_named() -> None:
    schedule = Schedule([(7, "echo x")], what="record")
    for _ in range(ATTEMPTS - 1):
        schedule.take()
        schedule.again(7, "it broke")
    with pytest.raises(GenerationError, match="record 7 failed in 5 attempts") as caught:
        schedule.again(7, "it broke at last")
    assert "it broke at last" in caught.value.message
    assert caught.value.hint == "its input: echo x"


def test_an_error_is_itself_elsewhere_and_a_bug_tells_where_it_happened() -> None:
    error = Failure.of(HostError("forbidden", hint="allow it")).error("record 1: ")
    assert isinstance(error, HostError)
    assert (error.message, error.hint) == ("record 1: forbidden", "allow it")
    try:
        raise KeyError("x")
    except KeyError as bug:
        told = Failure.of(bug).error()
    assert isinstance(told, GenerationError)
    assert "test_schedule.py" in told.message
