"""Root in a machine cannot forge the evidence that is collected from outside."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Iterator
from contextlib import suppress

import pytest

from shioenv.errors import SandboxError
from shioenv.sandbox.base import MEBIBYTE, Limits
from shioenv.system.store import System
from shioenv_agents.tasks.entered_machine import Command, EnteredMachine, Running
from shioenv_agents.tasks.harbor.check import EVIDENCE
from shioenv_agents.tasks.harbor.evidence import LeftMachine, evidence_of
from support.forgeries import FORGERIES, GOAL

pytestmark = pytest.mark.xdist_group("forged")
LIMITS = Limits(
    wall_seconds=20.0,
    cpu_seconds=30.0,
    memory_bytes=128 * MEBIBYTE,
    disk_bytes=8 * MEBIBYTE,
    disk_inodes=2000,
)
SECONDS = 2.0
"""Seconds to wait for a forgery."""


@pytest.fixture(scope="module")
def machine(system: System) -> Iterator[EnteredMachine]:
    with EnteredMachine(system, LIMITS) as opened:
        yield opened


def passes(machine: EnteredMachine, text: str, goal: dict[str, object]) -> bool:
    """Whether a machine in which a text was run gets the reward. Texts that never end are
    abandoned."""
    machine.renew()

    async def run(text: str) -> None:
        running = Running(machine.start(Command(text=text, cwd="/home/ubuntu")))
        with suppress(TimeoutError):
            await asyncio.wait_for(running.finish(), SECONDS)

    asyncio.run(run("mkdir -p /logs/agent /logs/verifier /logs/artifacts"))
    asyncio.run(run(text))
    try:
        evidence = evidence_of(machine.changes(), machine.system)
    except SandboxError:  # there is no evidence, and that pays nothing
        return False
    told = json.loads(json.dumps(evidence))
    return LeftMachine(machine.system, told, None).reaches(goal)


@pytest.fixture(scope="module")
def goal(machine: EnteredMachine) -> dict[str, object]:
    machine.renew()
    finished = Running(machine.start(Command(text=f"echo x > {GOAL}"))).finish()
    asyncio.run(finished)
    entries = evidence_of(machine.changes(), machine.system)["entries"]
    assert list(entries) == [GOAL]
    return {"entries": entries, "output": None}


def test_who_reaches_the_goal_is_paid(machine: EnteredMachine, goal: dict[str, object]) -> None:
    assert passes(machine, f"cat /etc/passwd; echo x > {GOAL}", goal)
    assert passes(machine, f"touch /t; printf 'x\\n' > /t; mv /t {GOAL}", goal)


@pytest.mark.parametrize("name", FORGERIES)
def test_who_forges_is_not_paid(
    machine: EnteredMachine, goal: dict[str, object], name: str
) -> None:
    state = json.dumps({"kind": "changes", "entries": goal["entries"], "other": []})
    text = FORGERIES[name].format(state=shlex.quote(state), file=f"/logs/artifacts/{EVIDENCE}")
    assert not passes(machine, text, goal)
    assert passes(machine, f"echo x > {GOAL}", goal)  # nor is the next machine spoilt
