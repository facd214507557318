"""A machine with a thread of its own is gone once it was closed, whenever that was."""

from __future__ import annotations

import asyncio
import os

import pytest
from fronts_tasks import sandboxes

from shioenv.fronts.seat import runner_seat

pytestmark = pytest.mark.usefixtures("system")


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_machine_that_is_being_opened_is_closed(cancelled: bool) -> None:
    async def run() -> int:
        seat = runner_seat()
        opening = asyncio.create_task(seat.do(lambda machine: os.getpid()))
        await asyncio.sleep(0)  # it is in its thread now
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
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)
        await seat.close()
        assert sandboxes() == opened - 1
        return sandboxes()

    before = sandboxes()
    assert asyncio.run(run()) == before
