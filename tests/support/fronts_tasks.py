"""Tasks for every front, and the answers of a scripted agent."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from shioenv.system.store import build_system
from shioenv_agents.tasks.prompt import compose_prompt
from shioenv_agents.tasks.task import Goal, Task

DIGEST = build_system().digest


def task(name: str, goal: Goal, prompt: str, solution: str) -> Task:
    return Task(
        id=name,
        prompt=prompt,
        cwd="/home/ubuntu",
        goal=goal,
        solution=solution,
        reduced=solution.split()[0],
        commands=[solution.split()[0]],
        irreducibility=1.0,
        n_arguments=1,
        record=0,
        system="debian-12",
        system_digest=DIGEST,
    )


TASKS = [
    task(
        "gone",
        Goal(patch=[["r", "/fs/documents~1notes.txt"]]),
        "Remove `documents/notes.txt`, and leave everything else unchanged.",
        "rm documents/notes.txt",
    ),
    task(
        "user",
        Goal(output="root\n"),
        "Print your user name.",
        "id -un",
    ),
]
BROKEN = replace(
    task(
        "broken",
        Goal(patch=[["=", "/fs/documents~1notes.txt/perms", "-rw-r--r--"]]),
        "Change the permissions of `documents/notes.txt` to 0644 (rw-r--r--).",
        "chmod 644 documents/notes.txt",
    ),
    history=["chmod 000 documents/notes.txt"],
)
"""A machine with a typed fault that is to be undone."""

EXPORTED = [
    TASKS[0],
    replace(
        TASKS[1],
        prompt=compose_prompt(
            user="root", cwd="/home/ubuntu", kind="", state=[], asked="your user name."
        ),
        reduced="id",
    ),
    BROKEN,
]
"""Tasks that Harbor supports: one about files, one about an output, one of a broken machine."""

REPLIES = {
    "gone": ["ls documents", "cd documents; f=notes.txt", "rm $f"],
    "user": ["pwd", "whoami"],
}


def sandboxes(process: int = os.getpid()) -> int:
    """Return the sandboxes among the children of a process, by default of this one."""
    found = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            name, _, rest = stat.read_text().partition("(")[2].rpartition(")")
            found += "shioenv" in name and int(rest.split()[1]) == process
    return found
