"""A task: the prompt for an agent, the start state, and the required final state.

Tasks are stored as JSON Lines, one task per line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct, field

from shioenv.domain.context import keys
from shioenv.domain.patch import ContextPatch, Operation
from shioenv.errors import PatchError, TaskError
from shioenv.files.documents import fault
from shioenv.files.durable import new_file
from shioenv.files.regular import LARGEST_LIST, read_regular
from shioenv.text import short_repr
from shioenv_agents.tasks.certificate import Certificate

SCHEMA_VERSION: Final = 1

IDS: Final = re.compile(r"(?!\.\.?\Z)[\w.-]{1,100}", re.ASCII)
"""Valid task names, which become part of a folder's name."""


class GoalKind(StrEnum):
    """The subject of a goal."""

    STATE = "state"
    """The state of the machine."""
    OUTPUT = "output"
    """The output; the machine remains unchanged."""
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class Fact:
    """One parsed operation of a goal's patch."""

    operation: Operation
    area: str
    """The area of the context: `fs` for files, `env` for exported variables, and so on."""
    names: tuple[str, ...]
    """The keys below the area. In `fs`: a file's name, and at most one of its attributes."""
    moved_to: str | None = None
    """The new name of a file that is moved."""

    @classmethod
    def of(cls, operation: Operation) -> Fact:
        """Parse an operation."""
        area, *names = keys(operation[1]) or [""]
        moved_to = keys(operation[2])[-1] if operation[0] == "m" else None
        return cls(operation, area, tuple(names), moved_to)

    @property
    def code(self) -> str:
        """The operation's code in the patch: `a`, `=`, `r` or `m`."""
        return str(self.operation[0])

    @property
    def place(self) -> str:
        """The JSON Pointer of the changed value."""
        return str(self.operation[1])

    @property
    def value(self) -> Any:
        """The final value; None for an operation that removes or moves."""
        return self.operation[2] if self.code in "a=" else None

    def before(self, document: Mapping[str, Any]) -> Any:
        """Return the value at this place in a context; None if there is none."""
        found: Any = document
        for name in (self.area, *self.names):
            if not isinstance(found, Mapping) or name not in found:
                return None
            found = found[name]
        return found

    @property
    def file(self) -> str | None:
        """The file's name in `fs`; None for a fact outside the file system."""
        return self.names[0] if self.area == "fs" and self.names else None

    @property
    def attribute(self) -> str | None:
        """The attribute of the file; None for a fact about the whole file."""
        return self.names[1] if self.area == "fs" and len(self.names) == 2 else None

    @property
    def of_whole_file(self) -> bool:
        """Whether a file is made, replaced, removed or moved."""
        return self.area == "fs" and len(self.names) == 1


class Goal(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """The required final state."""

    patch: list[list[Any]] = field(default_factory=list)
    """The operations of a context patch, relative to the context at the task's start."""
    digests: dict[str, str] = field(default_factory=dict)
    """SHA-256 (hex) of regular files that are new, changed or moved, by their names in `fs`.

    If the task has a history, some moved files have no digest.
    """
    output: str | None = None
    """The required output of the last line; None accepts any output."""

    @property
    def kind(self) -> GoalKind:
        """The subject of the goal."""
        if self.output is None:
            return GoalKind.STATE
        return GoalKind.BOTH if self.patch or self.digests else GoalKind.OUTPUT

    @cached_property
    def facts(self) -> tuple[Fact, ...]:
        """The parsed operations of the patch. Errors: PatchError if it is invalid."""
        return tuple(map(Fact.of, ContextPatch.from_json(self.patch).operations))

    @property
    def made(self) -> list[str]:
        """The names in `fs` of the files that are new."""
        return [one.names[0] for one in self.facts if one.of_whole_file and one.code == "a"]

    @property
    def moved(self) -> frozenset[str]:
        """The new names of the files that are moved."""
        return frozenset(one.moved_to for one in self.facts if one.moved_to is not None)

    @property
    def attributes(self) -> dict[str, dict[str, Any]]:
        """The changed attributes with their final values, by file. Moved files are left out."""
        changed: dict[str, dict[str, Any]] = {}
        for one in self.facts:
            if one.attribute is not None and one.moved_to is None:
                changed.setdefault(one.names[0], {})[one.attribute] = one.value
        return changed


class Task(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One assignment on a machine, which a recorded input solves."""

    id: str
    """Name of the task in its file, one of `IDS`."""
    prompt: str
    """The text for the agent, in English."""
    cwd: str
    """The start directory, absolute."""
    history: list[str] = field(default_factory=list)
    """The inputs that lead from the pristine machine to the start state, oldest first."""
    goal: Goal
    solution: str
    """The recorded input, without the leading `cd` that older records have (D-27)."""
    reduced: str
    """The solution with one argument removed; it does not reach the goal."""
    commands: list[str]
    """The commands of the solution, in order."""
    irreducibility: Annotated[float, Meta(ge=0, le=1)]
    """The solution's irreducibility, as recorded."""
    necessary: Annotated[float, Meta(ge=0, le=1)] | None = None
    """The fraction of the solution's arguments whose omission alone changes the behavior.

    None means unknown.
    """
    n_arguments: Annotated[int, Meta(ge=1)]
    """Number of the solution's arguments."""
    record: int
    """The record's number in its dataset."""
    system: str
    """The name of the task's system."""
    system_digest: str
    """The digest of the task's system."""
    certificate: Certificate | None = None
    """The results of `shioenv tasks certify`; None if it was not run."""
    solved_by: dict[str, bool] = field(default_factory=dict)
    """For each agent that tried the task, whether it reached the goal."""
    schema_version: int = SCHEMA_VERSION

    def __repr__(self) -> str:
        return short_repr(self, {"id": self.id, "prompt": self.prompt, "solution": self.solution})

    @property
    def kind(self) -> GoalKind:
        """The subject of the task's goal."""
        return self.goal.kind

    @property
    def patch(self) -> ContextPatch:
        """The goal's patch."""
        return ContextPatch.from_json(self.goal.patch)


_TASK = msgspec.json.Decoder(Task)


def encode(task: Task) -> bytes:
    """Encode the task as one line of minified JSON, UTF-8; equal tasks give equal bytes."""
    document = msgspec.to_builtins(task)
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return f"{text}\n".encode()


def decode(line: bytes | str, place: str = "a line") -> Task:
    """Decode a line of `encode`. Errors: TaskError, which names the `place` of the line."""
    try:
        task = _TASK.decode(line)
        task.goal.facts  # noqa: B018 - an invalid patch fails here, not in an episode
    except (ValueError, RecursionError, msgspec.DecodeError) as error:
        raise TaskError(f"{place} is not a task: {fault(error)}") from None
    except PatchError as error:
        raise TaskError(f"{place} is not a task: {error.message}") from None
    if task.schema_version != SCHEMA_VERSION:
        raise TaskError(
            f"{place} has schema version {task.schema_version}, and this release reads version "
            f"{SCHEMA_VERSION}",
            hint="read it with the release that wrote it",
        )
    if not IDS.fullmatch(task.id):
        raise TaskError(
            f"{place} is not a task: {task.id!r:.60} is not a valid id",
            hint="use 1 to 100 letters, digits, dots, underscores and dashes, but not . or ..",
        )
    if not task.cwd.startswith("/"):
        raise TaskError(
            f"{place} is not a task: the start directory {task.cwd!r:.60} is not absolute"
        )
    return task


LENGTHS: Final = ("one line", "several lines", "broken machine")
"""The categories of tasks. Each makes up a third of a set."""


def length_of(task: Task) -> str:
    """Return the length of a task, one of `LENGTHS`."""
    if task.history:
        return LENGTHS[2]
    return LENGTHS[1] if "\n" in task.solution else LENGTHS[0]


def bare(task: Task) -> Task:
    """Return the task as it was made, without later results."""
    return msgspec.structs.replace(task, certificate=None, solved_by={})


def read_tasks(path: str | Path) -> list[Task]:
    """Return the tasks of a file, in order.

    Errors: TaskError if the file cannot be read or holds no task, or a line is no task.
    """
    try:
        lines = read_regular(path, LARGEST_LIST).splitlines()
    except OSError as error:
        raise TaskError(f"{path} cannot be read: {error.strerror}", named=error) from None
    tasks = [decode(line, f"{path}:{number}") for number, line in enumerate(lines, 1) if line]
    if not tasks:
        raise TaskError(
            f"{path} contains no tasks", hint="make tasks: shioenv tasks make DIR --out FILE"
        )
    return tasks


def write_tasks(tasks: Iterable[Task], path: str | Path) -> None:
    """Write tasks into a new file, a line each. Errors: OutputExistsError, DatasetStorageError."""
    with new_file(Path(path)) as temporary:
        temporary.write_bytes(b"".join(map(encode, tasks)))
