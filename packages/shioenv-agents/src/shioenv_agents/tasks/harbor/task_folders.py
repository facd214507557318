"""Export tasks as Harbor folders (schema 1.4), each proved by execution before it is written."""

from __future__ import annotations

import asyncio
import io
import json
import os
import posixpath
import re
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from shioenv.domain.names import name_bytes
from shioenv.errors import TaskError, UsageError
from shioenv.files.durable import new_directory
from shioenv.sandbox.base import FileChange, Limits
from shioenv.system.store import System, find_system
from shioenv_agents.tasks.entered_machine import Command, EnteredMachine, Finished, Running
from shioenv_agents.tasks.goal_check import DATES, date_of, is_now, refuse_other
from shioenv_agents.tasks.harbor import check
from shioenv_agents.tasks.harbor.evidence import LeftMachine, evidence_of
from shioenv_agents.tasks.prompt import in_file
from shioenv_agents.tasks.task import GoalKind, Task, bare, encode

IMAGE: Final = "shioenv"
"""The image repository of ShIOEnv's systems: `shioenv/NAME:DIGEST`."""

DIGITS: Final = 12
"""Digits of a system's digest in the tag of its image."""

LABEL: Final = "shioenv.system"
"""The Dockerfile label that names the system of a pushed image: `NAME:DIGEST`."""

ANSWER: Final = f"{check.ARTIFACTS}/{check.ANSWER}"

SHELL: Final = ("/bin/bash", "-c")
"""The program that runs the text of a `RUN` in a Dockerfile."""

HOOK: Final = ": shioenv-collect"
"""The beginning of the hook's command that collects evidence: a null command of the shell."""

AGENT_SECONDS: Final = 300.0
"""The agent's time limit in seconds; our choice, because a task is one line or a few."""

PROOF_SECONDS: Final = 60.0

SETTINGS: Final = "task.toml"
PROMPT: Final = "instruction.md"
DOCKERFILE: Final = "environment/Dockerfile"
SOLUTION: Final = "solution/solve.sh"
TEST: Final = "tests/test.sh"
CHECK: Final = "tests/check.py"
TASK: Final = "tests/task.json"
GOAL: Final = "tests/goal.json"
"""The paths of a folder's files."""

Report = Callable[[int, int], None]

_SCHEMA = "1.4"
_REFERENCE = re.compile(r"\w[\w.:/@-]*", re.ASCII)
LIMITS: Final = Limits(wall_seconds=PROOF_SECONDS)
_NO_VARIABLES: Final[Mapping[str, str]] = MappingProxyType({})
_OTHER: Final[Mapping[str, str]] = MappingProxyType(
    {
        "COLUMNS": "160",
        "DEBIAN_FRONTEND": "noninteractive",
        "LINES": "40",
        "TERM": "tmux-256color",
        "TMUX": "/tmp/tmux-0/default,1,0",
    }
)
"""Variables of Harbor's oracle and of shells in an agent's terminal.

A goal must not depend on them, because the oracle or such a shell may do the task.
"""
_NO_CHANGE = {"kind": "changes", "entries": {}, "other": [], "truncated": False}


@dataclass(frozen=True, slots=True)
class ExportedTasks:
    """The result of exporting tasks."""

    written: tuple[str, ...] = ()
    """The names of the folders."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """The reason why a task could not be exported, by task id."""

    @property
    def reasons(self) -> Mapping[str, int]:
        """The number of tasks refused for each reason, the most frequent first."""
        return dict(Counter(self.refused.values()).most_common())


def export_tasks(
    tasks: Iterable[Task],
    directory: Path,
    *,
    image: str | None = None,
    report: Report = lambda done, total: None,
) -> ExportedTasks:
    """Write a folder for each task that Harbor can judge, into a new directory.

    The goal is the final state of the machine after the solution, read from outside. A task is
    refused if files cannot express it (`refusal`), or if it is not proved in this form. It is
    proved if the solution passes again, doing nothing fails, and so does the solution without one
    argument. `image` is the reference of the system's pushed image. Errors: OutputExistsError,
    DatasetStorageError, those of sandboxes. UsageError if `image` is no image reference, or the
    tasks need several systems, which one image cannot hold. TaskError if two tasks share an id, if
    a task was made on another system, or if no task is left to write.
    """
    tasks = list(tasks)
    if twice := [name for name, count in Counter(one.id for one in tasks).items() if count > 1]:
        raise TaskError(
            f"several tasks have the id {twice[0]!r}", hint="give each task a unique id"
        )
    names = {one.system for one in tasks}
    if image is not None:
        _refuse_image(image, names)
    systems = {name: find_system(name) for name in names}
    for one in tasks:
        refuse_other(one, systems[one.system])
    written, refused = [], {}
    with new_directory(directory) as temporary, ExitStack() as opened:
        machines = {
            name: opened.enter_context(EnteredMachine(system, LIMITS))
            for name, system in systems.items()
        }
        for done, task in enumerate(tasks, 1):
            try:
                made = folder_of(task, machines[task.system], image)
            except FolderRefused as error:
                refused[task.id] = str(error)
            else:
                write(made, temporary / name_of(task))
                written.append(name_of(task))
            report(done, len(tasks))
        if not written:
            raise TaskError(
                "no task can be exported to Harbor: "
                + ", ".join(f"{why} ({n})" for why, n in Counter(refused.values()).most_common())
            )
    return ExportedTasks(tuple(written), refused)


def name_of(task: Task) -> str:
    """Return the name of a task's folder."""
    return f"shioenv-{task.id}"


def tag_of(task: Task) -> str:
    """Return the image of a task's system under its local name, without a registry."""
    return f"{IMAGE}/{_build_of(task)}"


class FolderRefused(Exception):  # noqa: N818 - it describes an outcome, not a fault
    """A task cannot be exported, or is not proved."""


def refusal(task: Task, system: System) -> str | None:
    """Return why changed files of the image cannot express a goal; None if they can."""
    instant = system.declaration.instant
    for fact in task.goal.facts:
        if fact.area == "hostname":
            return "it is about the host name"
        if fact.area in _NETWORK:
            return "it is about the network"
        if fact.file is None:
            return "it is about the state of the shell"
        path = _path(task, fact.moved_to or fact.file)
        if check.is_below(path, (*check.HARNESS, *check.CONTAINER)):
            return "it changes a file that belongs to Harbor or the container"
        if fact.attribute in DATES and not _has_others(task, fact.file):
            return "it is about file times"
        if fact.code == "a" and fact.of_whole_file and not is_now(date_of(fact.value), instant):
            return "it is about file times"
    if task.kind is not GoalKind.STATE and in_file(task.prompt, ANSWER) is None:
        return "its prompt requests an output in an unknown wording"
    return None


def folder_of(task: Task, machine: EnteredMachine, image: str | None) -> Mapping[str, str]:
    """Return the files of a task's folder, by path.

    Files in `solution` and `tests` that end in `.sh` are executable. Errors: `FolderRefused`; those
    of sandboxes.
    """
    why = refusal(task, machine.system)
    if why is not None:
        raise FolderRefused(why)
    goal = _proved_goal(task, machine)
    return {**static_files(task, image), GOAL: json.dumps(goal, indent=1, ensure_ascii=True) + "\n"}


def static_files(task: Task, image: str | None) -> dict[str, str]:
    """Return the files of a task's folder, by path, except for the goal, which needs a machine."""
    return {
        SETTINGS: _settings(task, image),
        PROMPT: _instruction(task),
        DOCKERFILE: _dockerfile(task, image),
        SOLUTION: solution_of(task, task.solution),
        TEST: _TEST,
        CHECK: _checker(),
        TASK: encode(bare(task)).decode("utf-8", "surrogatepass"),
    }


def content_of(text: str) -> bytes:
    """Encode the text of a folder's file, as returned by `folder_of`."""
    return text.encode("utf-8", "surrogateescape")


def write(files: Mapping[str, str], folder: Path) -> None:
    """Write the files of a folder. Errors: OSError."""
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content_of(text))
        if name.endswith(".sh"):
            file.chmod(0o755)


def solution_of(task: Task, line: str) -> str:
    """Return the program that runs a line in the start directory and stores its output."""
    body = line if task.goal.output is None else f"{{\n{line}\n}} > {ANSWER} 2>&1"
    return f"#!/bin/bash\ncd {shlex.quote(task.cwd)} || exit\n{body}\n"


# ---- the proof


def _proved_goal(task: Task, machine: EnteredMachine) -> dict[str, Any]:
    """Return the goal in the format of `check.py`."""
    done = left_by(task, machine, task.solution)
    if done.evidence["other"] or done.evidence["truncated"]:
        raise FolderRefused("its solution changes more than files")
    goal: dict[str, Any] = {"entries": done.evidence["entries"], "output": task.goal.output}
    named = {_path(task, name) for name in _names(task)}
    if not named <= set(goal["entries"]):
        raise FolderRefused("its solution has another effect on a persistent machine")
    if not done.reaches(goal):
        raise FolderRefused("its solution prints something else on a persistent machine")
    if not left_by(task, machine, task.solution, _OTHER).reaches(goal):
        raise FolderRefused("its solution has another effect with other variables")
    if replace(done, evidence=_NO_CHANGE, answer=None).reaches(goal):
        raise FolderRefused("doing nothing passes")
    if left_by(task, machine, task.reduced).reaches(goal):
        raise FolderRefused("a part of its solution passes")
    return goal


def left_by(
    task: Task,
    machine: EnteredMachine,
    line: str,
    env: Mapping[str, str] = _NO_VARIABLES,
    program: str | None = None,
) -> LeftMachine:
    """Run a line as a solution of a task, and return the final state of the machine.

    The line is run as Harbor's oracle runs a solution. `program` is the complete program to run, if
    it is not that of `solution_of`. Errors: FolderRefused for a program that does not end; those of
    sandboxes.
    """
    before = begun(task, machine)
    asyncio.run(_finished(machine, _PREPARE, program or solution_of(task, line)))
    asyncio.run(_finished(machine, _SOLVE, env=env))
    evidence = evidence_of(machine.changes(), machine.system, before)
    answer = asyncio.run(_finished(machine, f"cat {ANSWER}"))
    evidence["entries"] = {
        path: now
        for path, now in evidence["entries"].items()
        if not check.is_below(path, check.HARNESS)
    }
    text = answer.output.decode("utf-8", "replace") if answer.exit_code == 0 else None
    return LeftMachine(machine.system, evidence, text, before)


def begun(task: Task, machine: EnteredMachine) -> tuple[FileChange, ...]:
    """Bring the machine into the state of a task's image, and return the changes this makes.

    Errors: FolderRefused for a history that does not end, or fails; those of sandboxes.
    """
    machine.renew()
    if not task.history:
        return ()
    for row in task.history:
        if asyncio.run(_finished(machine, row, cwd=task.cwd)).exit_code:
            raise FolderRefused("its history fails on a persistent machine")
    return machine.changes().changes


async def _finished(
    machine: EnteredMachine,
    text: str,
    given: str | None = None,
    env: Mapping[str, str] = _NO_VARIABLES,
    cwd: str = "/",
) -> Finished:
    command = Command(text=text, cwd=cwd, env=env, fed=given is not None)
    running = Running(machine.start(command))
    fed = None if given is None else io.BytesIO(os.fsencode(given))
    try:
        return await asyncio.wait_for(running.finish(fed), PROOF_SECONDS)
    except TimeoutError:
        raise FolderRefused("its solution does not end") from None


_PREPARE = f"mkdir -p /solution /logs/agent {check.ARTIFACTS} && cat > /{SOLUTION}"
_SOLVE = f"bash /{SOLUTION} > /logs/agent/oracle.txt 2>&1"


# ---- the texts

_NETWORK: Final = ("network", "firewall")


def _path(task: Task, name: str) -> str:
    return posixpath.normpath(posixpath.join(task.cwd, os.fsdecode(name_bytes(name))))


def _names(task: Task) -> set[str]:
    """Return the names in `fs` of the files in a goal."""
    named = {fact.file for fact in task.goal.facts if fact.file is not None}
    return named | task.goal.moved | set(task.goal.digests)


def _has_others(task: Task, name: str) -> bool:
    """Whether a goal contains more about a file than its times."""
    return name in task.goal.digests or any(
        fact.file == name and fact.attribute not in DATES for fact in task.goal.facts
    )


def _instruction(task: Task) -> str:
    prompt = task.prompt if task.goal.output is None else in_file(task.prompt, ANSWER)
    return f"{prompt}\n"


def _refuse_image(image: str, systems: Collection[str]) -> None:
    """Raise UsageError for an image that no Dockerfile can name, or that cannot serve all tasks."""
    if not _REFERENCE.fullmatch(image):
        raise UsageError(
            f"--image {image!r} is not an image reference",
            hint="use REPOSITORY:TAG or REPOSITORY@sha256:DIGEST",
        )
    if len(systems) > 1:
        raise UsageError(
            f"--image {image!r} is one image, but the tasks belong to {len(systems)} systems: "
            f"{', '.join(sorted(systems))}",
            hint="export the tasks of each system to a separate directory",
        )


def _build_of(task: Task) -> str:
    return f"{task.system}:{task.system_digest[:DIGITS]}"


def _dockerfile(task: Task, image: str | None) -> str:
    if image is None:
        begin = _LOCAL.format(tag=tag_of(task))
    else:
        begin = _PUSHED.format(image=image, label=LABEL, build=_build_of(task))
    return f"{begin}WORKDIR {task.cwd}\n{_broken(task)}"


def _broken(task: Task) -> str:
    """Return Dockerfile lines that type a task's history, each row in a separate shell."""
    return "".join(f"RUN {json.dumps([*SHELL, row])}\n" for row in task.history)


def _checker() -> str:
    return Path(check.__file__).read_text(encoding="utf-8")


def _collecting() -> str:
    """Return the hook's command. Unless it is intercepted, Python in the machine runs it."""
    file = f"{check.ARTIFACTS}/{check.EVIDENCE}"
    return f"{HOOK}\npython3 -I -c {shlex.quote(_checker())} collect {file}"


def _settings(task: Task, image: str | None) -> str:
    return _SETTINGS.format(
        schema=_SCHEMA,
        name=_toml(f"shioenv/{task.id}"),
        keywords=json.dumps(["shell", task.kind.value, *dict.fromkeys(task.commands)]),
        system=_toml(task.system),
        digest=_toml(task.system_digest),
        record=task.record,
        irreducibility=task.irreducibility,
        image="" if image is None or task.history else f"docker_image = {_toml(image)}\n",
        cwd=_toml(task.cwd),
        seconds=AGENT_SECONDS,
        command=_toml(_collecting()),
    )


def _toml(text: str) -> str:
    """Format a TOML basic string."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


_TEST = f"""\
#!/bin/bash
exec /usr/bin/python3 -I /{CHECK} /{GOAL} {check.ARTIFACTS} /logs/verifier
"""

_LOCAL = """\
# shioenv_agents.fronts.harbor:Environment opens the system of this name. Docker needs it once:
#   tar --numeric-owner -C ROOTFS -c . | docker import - {tag}
# where ROOTFS holds the system's files with their owners.
FROM {tag}
"""

_PUSHED = """\
# shioenv_agents.fronts.harbor:Environment opens the system that the label names.
FROM {image}
LABEL {label}={build}
"""

_SETTINGS = """\
schema_version = "{schema}"

[task]
name = {name}
description = ""
keywords = {keywords}

[metadata]
category = "shell"

[metadata.shioenv]
system = {system}
system_digest = {digest}
record = {record}
irreducibility = {irreducibility}

[environment]
{image}network_mode = "no-network"
workdir = {cwd}

[agent]
timeout_sec = {seconds}

[verifier]
environment_mode = "separate"
timeout_sec = 60.0

[[verifier.collect]]
user = "root"
timeout_sec = 60.0
command = {command}
"""
