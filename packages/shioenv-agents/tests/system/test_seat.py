"""A machine with a dedicated thread is gone once it was closed, at any moment."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from pathlib import Path

import pytest

from shioenv.live.machine_thread import Seat
from shioenv.sandbox.base import MEBIBYTE, Entered, Limits
from shioenv.system.store import System
from shioenv_agents.tasks.entered_machine import (
    Command,
    CommandTimeoutError,
    EnteredMachine,
    finished,
    group_of,
    started,
)
from shioenv_agents.tasks.terminal import runner_seat
from support.fronts_tasks import sandboxes
from support.waiting import next_turn

pytestmark = pytest.mark.usefixtures("system")


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_machine_that_is_being_opened_is_closed(cancelled: bool) -> None:
    async def run() -> int:
        seat = runner_seat()
        opening = asyncio.create_task(seat.do(lambda machine: os.getpid()))
        await next_turn()  # it is in its thread now
        if cancelled:
            opening.cancel()
        await seat.close()
        await asyncio.gather(opening, return_exceptions=True)
        await seat.close()
        return sandboxes()

    before = sandboxes()
    assert asyncio.run(run()) == before


def test_a_close_that_is_cancelled_closes_all_the_same() -> None:
    async def run() -> int:
        seat = runner_seat()
        await seat.do(lambda machine: machine.limits)
        opened = sandboxes()
        closing = asyncio.create_task(seat.close())
        await next_turn()
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)
        await seat.close()
        assert sandboxes() == opened - 1
        return sandboxes()

    before = sandboxes()
    assert asyncio.run(run()) == before


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


class Slow(EnteredMachine):
    """A machine whose starts end when the test sets an event."""

    def __init__(self, system: System, over: threading.Event) -> None:
        super().__init__(system, Limits(wall_seconds=30.0, memory_bytes=512 * MEBIBYTE))
        self.begun, self._over = threading.Event(), over

    def start(self, command: Command) -> Entered:
        entered = super().start(command)
        self.begun.set()
        self._over.wait(60)
        return entered


def test_a_command_whose_caller_is_cancelled_is_ended_and_leaves_nothing_open(
    system: System,
) -> None:
    over = threading.Event()

    async def run() -> tuple[int, int, bytes]:
        seat: Seat[EnteredMachine] = Seat(lambda: machine)
        before = descriptors()
        left = asyncio.create_task(started(seat, Command(text="sleep 1000")))
        await asyncio.to_thread(machine.begun.wait, 60)
        left.cancel()
        await next_turn()
        over.set()
        await asyncio.gather(left, return_exceptions=True)
        assert left.cancelled()
        after = descriptors()
        there = await (await started(seat, Command(text="pgrep -cx sleep"))).finish()
        await seat.close()
        return before, after, there.output

    machine = Slow(system, over)
    before, after, there = asyncio.run(run())
    assert after == before
    assert there == b"0\n"


def test_a_command_that_runs_out_of_time_at_once_is_ended(system: System) -> None:
    async def run() -> int:
        seat = Seat(lambda: EnteredMachine(system, Limits(memory_bytes=512 * MEBIBYTE)))
        try:
            with pytest.raises(CommandTimeoutError):
                await finished(seat, Command(text="sleep 1000"), seconds=0)
            text = "while pgrep -x sleep > /dev/null; do :; done"
            return (await finished(seat, Command(text=text), seconds=60)).exit_code
        finally:
            await seat.close()

    assert asyncio.run(run()) == 0


def test_reading_a_group_leaves_the_status_to_be_read() -> None:
    talk, other = socket.socketpair()
    with talk, other:
        other.sendall(b"group 12\nstatus 3\n")
        assert group_of(Entered(talk.fileno(), -1, -1)) == 12
        assert talk.recv(100) == b"status 3\n"
