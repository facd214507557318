"""Machines with their own thread, and the control channel of commands started from outside."""

from __future__ import annotations

import asyncio
import os
import socket

import pytest

from shioenv.errors import SandboxError
from shioenv.live.entered import parse_control_line, send_first
from shioenv.live.machine_thread import Seat
from shioenv.sandbox.base import Entered
from support.waiting import next_turn


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"group 12\n", ("group", 12)),
        (b"status 0", ("status", 0)),
        (b"status 12345678901", None),
        (b"status -1", None),
        (b" status 1", None),
        (b"status 1 of bash", None),
        (b"", None),
    ],
)
def test_a_line_of_the_talk_is_a_word_and_a_number(
    line: bytes, expected: tuple[str, int] | None
) -> None:
    assert parse_control_line(line) == expected


def test_words_that_cannot_be_sent_close_all_ends() -> None:
    ours, theirs = socket.socketpair()
    entered = Entered(ours.detach(), *os.pipe())
    theirs.close()
    with pytest.raises(SandboxError, match="cannot start the command"):
        send_first(entered, b"words")
    for end in (entered.talk, entered.output, entered.errors):
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(end)


class Closed:
    """A machine that counts how often it was closed."""

    closed = 0

    def close(self) -> None:
        self.closed += 1


def test_a_seats_machine_is_opened_once_and_closed_once() -> None:
    machine, opened = Closed(), []

    def open_it() -> Closed:
        opened.append(machine)
        return machine

    async def use() -> None:
        seat = Seat(open_it)
        for _ in range(2):
            assert await seat.do(lambda one: one is machine)
        await seat.close()
        await seat.close()
        with pytest.raises(SandboxError, match="the machine is closed"):
            await seat.do(lambda _: None)
        at = Seat.at(machine, lambda _: None)
        assert await at.do(lambda one: one.closed) == 1
        await at.close()
        await Seat(Closed).close()  # never opened

    asyncio.run(use())
    assert (len(opened), machine.closed) == (1, 2)


def test_a_close_interrupts_the_call_that_goes_on() -> None:
    machine = Closed()
    reading, writing = os.pipe()

    async def use() -> None:
        seat = Seat(lambda: machine, lambda _: os.write(writing, b"x"))
        await seat.do(lambda _: None)
        waiting = asyncio.ensure_future(seat.do(lambda _: os.read(reading, 1)))
        await next_turn()
        await seat.close()
        assert await waiting == b"x"

    asyncio.run(use())
    assert machine.closed == 1
