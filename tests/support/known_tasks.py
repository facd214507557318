"""Fixed tasks for tests, independent of the system on which they were made."""

from __future__ import annotations

from pathlib import Path

from shioenv.system.store import System
from shioenv_agents.tasks.certify import rebased
from shioenv_agents.tasks.task import Task, read_tasks

RIGHT_ANSWERS = Path(__file__).parent / "right_answers"
"""Tasks, and answers to them written by people."""


def known_tasks(system: System) -> list[Task]:
    """Return the tasks of `RIGHT_ANSWERS`, as if they were made on this build of their system."""
    return rebased(read_tasks(RIGHT_ANSWERS / "tasks.jsonl"), system)
