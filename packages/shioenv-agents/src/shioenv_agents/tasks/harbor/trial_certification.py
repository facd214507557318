"""Certify Harbor folders: a folder's own files judge answers, outside the machine.

A folder contains its certificate next to its other files. The certificate holds their digests.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from shioenv.behavior.observe import SandboxRunner
from shioenv.errors import SandboxError, TaskError
from shioenv.files.documents import fault, parse_json
from shioenv.files.durable import new_directory, refuse_existing, sha256_of
from shioenv.files.regular import LARGEST, read_regular
from shioenv.system.store import System
from shioenv_agents.tasks.attacks import ATTACKS, kinds
from shioenv_agents.tasks.certificate import HARBOR_JUDGE, Certificate, digest_of
from shioenv_agents.tasks.certify import JudgeKind, Trial, certify_into, channel_digest
from shioenv_agents.tasks.entered_machine import Command, EnteredMachine, Running
from shioenv_agents.tasks.harbor import check
from shioenv_agents.tasks.harbor.evidence import LeftMachine, evidence_of
from shioenv_agents.tasks.harbor.task_folders import (
    ANSWER,
    DOCKERFILE,
    GOAL,
    LABEL,
    LIMITS,
    PROMPT,
    SOLUTION,
    TASK,
    FolderRefused,
    begun,
    content_of,
    left_by,
    name_of,
    static_files,
)
from shioenv_agents.tasks.task import Task, decode

CERTIFICATE: Final = "certificate.json"
"""The file of a folder that the export does not write."""

ENTRIES: Final = 100
"""Maximum files and directories of a folder; the export writes 11."""

BYTES: Final = LARGEST
"""Maximum total bytes of a folder's files."""

ROW_SECONDS: Final = 2.0
"""Seconds to wait for a row of an attack."""

_PUSHED = re.compile(rf"^FROM (\S+)\nLABEL {re.escape(LABEL)}=", re.MULTILINE)


def certify_folders(directory: Path, out: Path, **options: Any) -> list[Task]:
    """Certify a directory's folders, and return their tasks with the new certificates, in order.

    Folders without `faults` are copied into the new directory `out`, each with its certificate.
    Options are those of `certify_into`. Errors: those of `certify_into` and `folders_of`.
    """

    def write(passed: Iterable[Task]) -> None:
        with new_directory(out) as temporary:
            for task in passed:
                folder = temporary / name_of(task)
                shutil.copytree(directory / name_of(task), folder, symlinks=True)
                text = json.dumps(msgspec.to_builtins(task.certificate), indent=1)
                (folder / CERTIFICATE).write_text(f"{text}\n", encoding="utf-8")

    refuse_existing(out)
    return certify_into(
        out, folders_of(directory), write, judge_kind=judge_kind(directory), **options
    )


def recheck_folders(
    directory: Path, again: Callable[..., list[tuple[str, ...]]]
) -> tuple[list[Task], list[tuple[str, ...]]]:
    """Return the tasks of a directory's folders, and the faults of each folder's certificate now.

    `again` is `recheck_tasks` with its options. Errors: those of `recheck_tasks` and `folders_of`.
    """
    tasks = folders_of(directory)
    return tasks, again(tasks, judge_kind=judge_kind(directory))


def folders_of(directory: Path) -> list[Task]:
    """Return the task of each folder of a directory, with the folder's certificate, if any.

    Errors: TaskError for a directory without exported folders. TaskError for a folder that holds
    another task, anything but regular files and directories, or too much (`ENTRIES`, `BYTES`).
    """
    tasks = []
    for folder in sorted(entry.parent.parent for entry in directory.glob(f"*/{TASK}")):
        _files(folder)
        task = decode(_text(folder / TASK), str(folder / TASK))
        if name_of(task) != folder.name:
            raise TaskError(
                f"{folder} contains the task {task.id!r}",
                hint=f"rename the folder to {name_of(task)}",
            )
        file, certificate = folder / CERTIFICATE, None
        if file.exists():
            try:
                certificate = msgspec.json.decode(_text(file), type=Certificate)
            except (ValueError, RecursionError, msgspec.DecodeError) as error:
                raise TaskError(f"{file} is not a certificate: {fault(error)}") from None
        tasks.append(replace(task, certificate=certificate))
    if not tasks:
        raise TaskError(
            f"{directory} contains no folder of a task",
            hint="create some: shioenv tasks export FILE --out DIR",
        )
    return tasks


def judge_kind(directory: Path) -> JudgeKind:
    """Return the judge for a directory's folders; it applies their files outside the machine."""
    return JudgeKind(
        trial=partial(FolderTrial, directory=directory),
        digests=folder_digests,
        attacked=partial(_attacked, directory=directory),
    )


@cache
def folder_digests() -> tuple[str, str]:
    """Return the present digests of the judge of folders and of its evidence channel."""
    return digest_of(["harbor", HARBOR_JUDGE, kinds()]), channel_digest()


def altered_files(task: Task, folder: Path) -> list[str]:
    """Return the names of a folder's files that differ from those of `export_tasks`.

    Missing and additional files are included, and so is a goal that is not valid. The comparison
    assumes the image in the folder's Dockerfile. Errors: TaskError.
    """
    found = _files(folder)
    wanted = static_files(task, _image(found.get(DOCKERFILE)))
    names = {
        name
        for name in {*found, *wanted} - {GOAL, CERTIFICATE}
        if name not in found or name not in wanted or _read(found[name]) != content_of(wanted[name])
    }
    if _goal(folder) is None:
        names.add(GOAL)
    return sorted(name.encode("utf-8", "replace").decode() for name in names)


class FolderTrial(Trial):
    """Run inputs as Harbor's oracle runs a solution, judged by a folder's goal.

    A persistent shell determines whether an input's effect is exactly the goal, as for a task.
    """

    def __init__(self, task: Task, machine: SandboxRunner, *, directory: Path) -> None:
        super().__init__(task, machine)
        self._folder = directory / name_of(task)
        self._goal = _goal(self._folder)
        self._entered = _entered(machine.system)

    def tried(self, text: str) -> tuple[bool, bool]:
        """Return whether an input passes the folder's check, and whether its effect is exact."""
        _, exact = self.typed(text)
        return self.passes(text), exact

    def passes(self, text: str) -> bool:
        """Whether an input passes the folder's check."""
        if self._goal is None:
            return False
        own = _text(self._folder / SOLUTION) if text == self.task.solution else None
        try:
            return left_by(self.task, self._entered, text, program=own).reaches(self._goal)
        except FolderRefused:  # it does not end
            return False

    def digests(self, inputs: Iterable[str]) -> dict[str, str]:
        """Return digests: of goal, prompt, system, and one of all other files and these inputs."""
        digests = {name: sha256_of(path) for name, path in _files(self._folder).items()}
        digests.pop(CERTIFICATE, None)
        return {
            "goal": digests.pop(GOAL, ""),
            "prompt": digests.pop(PROMPT, ""),
            "system": self.task.system_digest,
            "tests": digest_of([digests, *inputs]),
        }

    def altered(self) -> list[str]:
        """Return the folder's files that differ from the exported ones."""
        return altered_files(self.task, self._folder)


def _attacked(task: Task, machine: SandboxRunner, *, directory: Path) -> list[str]:
    return folder_forgeries(task, _entered(machine.system), directory)


def folder_forgeries(task: Task, machine: EnteredMachine, directory: Path) -> list[str]:
    """Return the kinds of attacks that pass on a folder; empty if no reward was forged.

    Each row is a separate command, as Harbor's agents run them. Errors: those of sandboxes.
    """
    goal = _goal(directory / name_of(task))
    if goal is None:  # nothing can pass
        return []
    if task.goal.output is not None:
        task = replace(task, solution=f"{{\n{task.solution}\n}} > {ANSWER} 2>&1")
    paid = []
    for attack in ATTACKS:
        before = begun(task, machine)
        for row in (f"mkdir -p /logs/agent /logs/verifier {check.ARTIFACTS}", *attack.on(task)):
            asyncio.run(_typed(machine, row, task.cwd))
        try:
            evidence = evidence_of(machine.changes(), machine.system, before)
            left = LeftMachine(machine.system, evidence, _answer(machine), before)
        except SandboxError:  # without evidence, nothing passes
            continue
        if left.reaches(goal):
            paid.append(attack.kind)
    return paid


async def _typed(machine: EnteredMachine, row: str, cwd: str) -> str:
    with suppress(TimeoutError, SandboxError):
        running = Running(machine.start(Command(text=row, cwd=cwd)))
        finished = await asyncio.wait_for(running.finish(), ROW_SECONDS)
        return finished.output.decode("utf-8", "replace")
    return ""


def _answer(machine: EnteredMachine) -> str | None:
    """Return the answer that an attack wrote; None if it wrote none."""
    return asyncio.run(_typed(machine, f"cat {ANSWER}", "/")) or None


_machines: dict[str, EnteredMachine] = {}


def _entered(system: System) -> EnteredMachine:
    """Return this process's machine of a system, which is closed when the process ends."""
    if system.digest not in _machines:
        machine = _machines[system.digest] = EnteredMachine(system, LIMITS)
        atexit.register(machine.close)
    return _machines[system.digest]


class _Goal(msgspec.Struct, forbid_unknown_fields=True):
    entries: dict[str, dict[str, Any] | None]
    output: str | None


def _goal(folder: Path) -> dict[str, Any] | None:
    """Return the goal of a folder; None if the file is missing or invalid."""
    try:
        goal: dict[str, Any] = parse_json(_text(folder / GOAL))
        msgspec.convert(goal, _Goal)
    except (TaskError, ValueError):
        return None
    return goal


def _image(dockerfile: Path | None) -> str | None:
    """Return the pushed image in a folder's Dockerfile; None if there is none."""
    named = _PUSHED.search(_text(dockerfile)) if dockerfile else None
    return named[1] if named else None


def _files(folder: Path) -> dict[str, Path]:
    """Return the files of a folder by their names in it, sorted, without following links.

    Errors: TaskError for anything but regular files and directories, and beyond `ENTRIES` or
    `BYTES`.
    """
    files: dict[str, Path] = {}
    count = size = 0
    left = [folder]
    try:
        while left:
            path = left.pop()
            status = path.lstat()
            if stat.S_ISREG(status.st_mode):
                files[str(path.relative_to(folder))] = path
                size += status.st_size
            elif stat.S_ISDIR(status.st_mode):
                with os.scandir(path) as entries:
                    left += [path / entry.name for entry in islice(entries, ENTRIES + 1)]
            else:
                raise TaskError(
                    f"{path} is neither a regular file nor a directory",
                    hint="remove it from the task's folder",
                )
            count += 1
            if count + len(left) > ENTRIES + 1 or size > BYTES:
                raise TaskError(
                    f"{folder} contains more than {ENTRIES:,} files and directories, or more "
                    f"than {BYTES:,} bytes",
                    hint="remove files that do not belong to the task",
                )
    except OSError as error:
        raise TaskError(f"{error.filename} cannot be read: {error.strerror}", named=error) from None
    return dict(sorted(files.items()))


def _text(file: Path) -> str:
    return _read(file).decode("utf-8", "surrogateescape")


def _read(file: Path) -> bytes:
    try:
        return read_regular(file, BYTES)
    except OSError as error:
        raise TaskError(f"{file} cannot be read: {error.strerror}", named=error) from None
