"""Tasks that tests are given, whatever system they were made on."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from shioenv.system.store import System
from shioenv.tasks.task import Task, read_tasks

RIGHT_ANSWERS = Path(__file__).parent / "system/right_answers"
"""Tasks, and answers to them that people wrote."""


def known_tasks(system: System) -> list[Task]:
    """The tasks of `RIGHT_ANSWERS`, as if they were made on this build of their system."""
    known = read_tasks(RIGHT_ANSWERS / "tasks.jsonl")
    return [replace(task, system_digest=system.digest) for task in known]
