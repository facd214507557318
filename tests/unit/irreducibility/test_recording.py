"""Records made of sessions: what makes one volatile."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import pytest

from shioenv.domain.behavior import Behavior
from shioenv.domain.inputs import Input, Session
from shioenv.domain.patch import ContextPatch
from shioenv.irreducibility.recording import record_session

MOMENT = datetime(2031, 3, 7, 9, 5, tzinfo=UTC).timestamp()


class Says:
    """Answers every text with the same output."""

    def __init__(self, output: str) -> None:
        self.output = output.encode()

    def run(self, shell_input: str, *, cwd: str | None = None, separate: bool = False) -> Behavior:
        return Behavior(exit_code=0, output=self.output, patch=ContextPatch(()))


def is_volatile(output: str) -> bool:
    record, _ = record_session(
        Session("/home", (Input.single("ls", []),)),
        Says(output),
        session_id=0,
        system="s",
        sampler="gcs",
        budget=4,
        rng=random.Random(0),
        clock=lambda: MOMENT,
    )
    return record.volatile


@pytest.mark.parametrize(
    "output",
    [
        "-rw-r--r-- 1 root root 0 Mar  7 09:05 new\n",
        "2031-03-07 09:05 new\n",
        "07 Mar 2031\n",
        "20310307\n",
        f"{int(MOMENT)}\n",
        "Fri Mar  7 09:05:00 UTC 2031\n",
    ],
)
def test_an_output_that_shows_its_own_day_is_volatile(output: str) -> None:
    assert is_volatile(output)


@pytest.mark.parametrize(
    "output", ["", "Mar  7  2025 old\n", "Mar  7 2025\n", "2025-03-07\n", "Mar 17 09:00\n"]
)
def test_other_dates_are_not(output: str) -> None:
    assert not is_volatile(output)
