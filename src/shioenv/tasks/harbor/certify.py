"""Certifies folders of Harbor: answers are judged by a folder's own files, seen from outside.

A folder's certificate stands beside its other files. Its digests are of those files.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from shioenv.behavior.observe import SandboxRunner
from shioenv.errors import SandboxError, TaskError
from shioenv.execution.lanes import Lane
from shioenv.files.durable import new_directory, refuse_existing
from shioenv.files.regular import LARGEST_LIST, read_regular
from shioenv.files.schema import fault
from shioenv.live.entered import Command, EnteredMachine, Running
from shioenv.recording.cache import sources_digest
from shioenv.system.store import System
from shioenv.tasks.attacks import ATTACKS, kinds
from shioenv.tasks.certificate import Certificate, digest_of
from shioenv.tasks.certify import CHANNEL, Court, Trial, certify_into
from shioenv.tasks.harbor import check
from shioenv.tasks.harbor.evidence import evidence_of, reached
from shioenv.tasks.harbor.export import (
    ANSWER,
    LIMITS,
    FolderRefused,
    left_by,
    name_of,
    solution_of,
)
from shioenv.tasks.make import sandbox_of
from shioenv.tasks.task import Task, decode

CERTIFICATE: Final = "certificate.json"
PROMPT: Final = "instruction.md"
GOAL: Final = "tests/goal.json"
TASK: Final = "tests/task.json"
SOLUTION: Final = "solution/solve.sh"
"""Files of a folder."""

ROW_SECONDS: Final = 2.0
"""Seconds for which a row of an attack is waited for."""

_JUDGE: Final = ("domain", "tasks/harbor", "tasks/task.py")


def certify_folders(directory: Path, out: Path, **options: Any) -> list[Task]:
    """The tasks of a directory's folders, each with a new certificate of its folder, in order.

    The folders whose certificates have no `faults` are copied into the new directory `out`, each
    with its certificate. Options and errors are those of `certify_into`; errors of `folders_of`.
    """

    def write(passed: Iterable[Task]) -> None:
        with new_directory(out) as temporary:
            for task in passed:
                folder = temporary / name_of(task)
                shutil.copytree(directory / name_of(task), folder)
                text = json.dumps(msgspec.to_builtins(task.certificate), indent=1)
                (folder / CERTIFICATE).write_text(f"{text}\n", encoding="utf-8")

    refuse_existing(out)
    return certify_into(out, folders_of(directory), write, court=court(directory), **options)


def recheck_folders(
    directory: Path, again: Callable[..., list[tuple[str, ...]]]
) -> tuple[list[Task], list[tuple[str, ...]]]:
    """The tasks of a directory's folders, and what is wrong with each folder's certificate now.

    `again` is `recheck_tasks` with its options. Errors: those of `recheck_tasks` and `folders_of`.
    """
    tasks = folders_of(directory)
    return tasks, again(tasks, court=court(directory))


def folders_of(directory: Path) -> list[Task]:
    """The task of each folder of a directory, with its folder's certificate where there is one.

    Errors: TaskError for a directory without a folder of ours, and for a folder that is not as
    `export_tasks` writes it.
    """
    tasks = []
    for folder in sorted(entry.parent.parent for entry in directory.glob(f"*/{TASK}")):
        task = decode(_text(folder / TASK), str(folder / TASK))
        if name_of(task) != folder.name:
            raise TaskError(f"{folder} is the folder of another task, {task.id!r}")
        file, certificate = folder / CERTIFICATE, None
        if file.exists():
            try:
                certificate = msgspec.json.decode(_text(file), type=Certificate)
            except (ValueError, RecursionError, msgspec.DecodeError) as error:
                raise TaskError(f"{file} is no certificate: {fault(error)}") from None
        tasks.append(replace(task, certificate=certificate))
    if not tasks:
        raise TaskError(
            f"{directory} holds no folder of a task",
            hint="shioenv tasks export FILE --harbor DIR writes such folders",
        )
    return tasks


def court(directory: Path) -> Court:
    """Where answers to a directory's folders are judged: by their files, seen from outside."""
    return Court(
        trial=partial(FolderTrial, directory=directory),
        digests=folder_digests,
        attacked=partial(_attacked, directory=directory),
    )


@cache
def folder_digests() -> tuple[str, str]:
    """The digests of the judge of folders and of its channel of evidence, as they are now."""
    return digest_of([sources_digest(_JUDGE), kinds()]), sources_digest(CHANNEL)


class FolderTrial(Trial):
    """Runs inputs as Harbor's oracle runs a solution, judged by a folder's goal.

    Whether an input does just what the goal says is found in a shell that stays, as for a task.
    """

    def __init__(self, task: Task, machine: SandboxRunner, *, directory: Path) -> None:
        super().__init__(task, machine)
        self._folder = directory / name_of(task)
        self._goal = _goal(self._folder)
        self._entered = _entered(machine.system)

    def tried(self, text: str) -> tuple[bool, bool]:
        """Whether an input passes the folder's check, and does just what the goal says."""
        _, exact = super().tried(text)
        return self.passes(text), exact

    def passes(self, text: str) -> bool:
        """Whether an input passes the folder's check."""
        if text == self.task.solution:
            program = _text(self._folder / SOLUTION)
        else:
            program = solution_of(self.task, text)
        try:
            evidence, answer = left_by(self._entered, program)
        except FolderRefused:  # it does not end
            return False
        return reached(self._goal, evidence, answer, self._entered.system)

    def digests(self, inputs: Iterable[str]) -> dict[str, str]:
        """Digests of goal, prompt, system, and of all other files with these inputs."""
        told = {GOAL, PROMPT, CERTIFICATE}
        others = {
            name: _digest(path)
            for path in sorted(self._folder.rglob("*"))
            if path.is_file() and (name := str(path.relative_to(self._folder))) not in told
        }
        return {
            "goal": _digest(self._folder / GOAL),
            "prompt": _digest(self._folder / PROMPT),
            "system": self.task.system_digest,
            "tests": digest_of([others, *inputs]),
        }


def _attacked(lane: Lane, task: tuple[int, Task], *, directory: Path) -> list[str]:
    """The kinds of attacks that are paid on a folder, in a lane of an executor."""
    return folder_forgeries(task[1], _entered(sandbox_of(lane).system), directory)


def folder_forgeries(task: Task, machine: EnteredMachine, directory: Path) -> list[str]:
    """The kinds of attacks that a folder pays; empty where no reward was forged.

    Each row is a command of its own, as Harbor's agents run them. Errors: those of sandboxes.
    """
    goal = _goal(directory / name_of(task))
    if task.goal.output is not None:
        task = replace(task, solution=f"{{\n{task.solution}\n}} > {ANSWER} 2>&1")
    paid = []
    for attack in ATTACKS:
        machine.renew()
        for row in (f"mkdir -p /logs/agent /logs/verifier {check.ARTIFACTS}", *attack.on(task)):
            asyncio.run(_typed(machine, row, task.cwd))
        try:
            evidence = evidence_of(machine.changes(), machine.system)
            answer = _answer(machine)
        except SandboxError:  # there is no evidence, and that pays nothing
            continue
        if reached(goal, evidence, answer, machine.system):
            paid.append(attack.kind)
    return paid


async def _typed(machine: EnteredMachine, row: str, cwd: str) -> str:
    with suppress(TimeoutError, SandboxError):
        running = Running(machine.start(Command(text=row, cwd=cwd)))
        finished = await asyncio.wait_for(running.finish(), ROW_SECONDS)
        return finished.output.decode("utf-8", "replace")
    return ""


def _answer(machine: EnteredMachine) -> str | None:
    """What an attack left as its answer; None for nothing."""
    return asyncio.run(_typed(machine, f"cat {ANSWER}", "/")) or None


_machines: dict[str, EnteredMachine] = {}


def _entered(system: System) -> EnteredMachine:
    """The machine of a system that this process has, which is closed when the process ends."""
    if system.digest not in _machines:
        machine = _machines[system.digest] = EnteredMachine(system, LIMITS)
        atexit.register(machine.close)
    return _machines[system.digest]


def _goal(folder: Path) -> dict[str, Any]:
    try:
        goal: dict[str, Any] = json.loads(_text(folder / GOAL))
    except ValueError as error:
        raise TaskError(f"{folder / GOAL} is no goal: {error}") from None
    return goal


def _text(file: Path) -> str:
    return _read(file).decode("utf-8", "surrogateescape")


def _digest(file: Path) -> str:
    return sha256(_read(file)).hexdigest()


def _read(file: Path) -> bytes:
    try:
        return read_regular(file, LARGEST_LIST)
    except OSError as error:
        raise TaskError(f"{file} cannot be read: {error.strerror}") from None
