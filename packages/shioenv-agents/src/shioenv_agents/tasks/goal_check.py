"""Judge whether a goal is reached, and what fraction of it.

Exact equality of patches is too strict: an agent that looks around first ends in another directory,
at another time. `Judge.judge` defines the comparison.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

from shioenv.behavior.capture import SHELL_FIELDS
from shioenv.behavior.observe import SandboxRunner
from shioenv.domain.behavior import Behavior
from shioenv.domain.context import MONTHS, escape, keys, pointer
from shioenv.domain.names import name_bytes
from shioenv.domain.patch import ContextPatch, Operation
from shioenv.domain.runner import Pristine
from shioenv.errors import PatchError, TaskError
from shioenv.system.store import System
from shioenv_agents.tasks.task import Task
from shioenv_agents.tasks.terminal import Terminal

DATES: Final = ("year", "month", "day", "time")
"""The attributes that hold a file's modification time."""

OWN: Final = frozenset({"cwd", "umask", "groups", *SHELL_FIELDS})
"""Areas of a context that end with the shell; only facts in the goal count for these."""

REASON: Final = "the lines had another effect when they were repeated"
"""The reason why a terminal that has reached the goal does not pass."""

UNREADABLE: Final = "state outside patches: it could not be read"
"""The reason why a terminal does not pass if a process prevents this state from being read."""

SESSION: Final = timedelta(hours=1)
"""The duration after the system's instant that counts as the session's own time."""


Facts: TypeAlias = Mapping[str, Any]
"""Single values by their JSON Pointers in a context."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on an attempt at a goal."""

    passed: bool
    """Whether everything holds, and nothing else was changed."""
    progress: float
    """The fraction of the goal's operations that hold, 0 to 1.

    Each file's content counts as an operation, and so does the output.
    """
    missing: tuple[str, ...]
    """Parts of the goal that do not hold: JSON Pointers, `content of NAME`, `output`."""
    extra: tuple[str, ...]
    """Changes that are not in the goal, in the same form.

    Names in `UNRECORDED`, `UNREADABLE` and `REASON` may follow.
    """


class Judge:
    """Judge terminals by the goal of one task, whose start state is read once.

    Errors: TaskError for a task of another system, those of the machine.
    """

    def __init__(self, task: Task, machine: SandboxRunner) -> None:
        refuse_other(task, machine.system)
        self.task = task
        self._machine = machine
        self._instant = machine.system.declaration.instant
        self._pristine = machine.context(task.cwd).document
        self._before = Terminal(machine, task.cwd, task.history).before().document
        self._goal = task.patch
        self._unrecorded: Mapping[str, bytes] | None = None
        self._unasked = OWN - {_area(operation) for operation in self._goal.operations}

    def judge(self, terminal: Terminal) -> Verdict:
        """Return the verdict on a terminal that began in the task's start state.

        - Everything outside the shell (files, network, host name) must match the goal, and
          otherwise be unchanged.
        - For the shell (working directory, variables, functions, options), only facts in the goal
          count.
        - File times do not count, except times that lie outside the session, and times that are the
          only change of a file. Times of directories never count. If the goal is about times, those
          of all other files must be unchanged.
        - Regular files must hold the goal's content.
        - The output of the last row is compared line by line. Runs of whitespace count as one
          space. Blank lines at the end are ignored.
        - The rows must reach the goal again when they are repeated. If the output counts, the last
          row must print it again. Otherwise the task is not passed: the verdict is the one on the
          repetition, and `extra` ends with `REASON`.
        - If a command entered the machine (`Terminal.enter`), nothing is repeated. Instead every
          process is ended, and the state observed by the sandbox must match the goal.
        - If the goal is reached, state that patches do not record (`UNRECORDED`) must be unchanged.
        - If the machine keeps no shell, `UNRECORDED` state is not compared. Then each row was typed
          after repetitions of the earlier rows, and must have the same effect on the machine when
          it is repeated.

        Errors: those of the machine.
        """
        typed = self.verdict(terminal.done(), terminal.printed)
        if typed.passed and self._machine.keeps_shells:
            typed = replace(typed, extra=self._beyond_patches(terminal))
            typed = replace(typed, passed=not typed.extra)
        if not typed.passed or terminal.entered:
            return typed
        repeated = terminal.repeated()
        printed = terminal.printed if terminal.ends_beside else repeated.output
        again = self.verdict(terminal.since_start(repeated), printed)
        if not again.passed:
            return replace(again, extra=(*again.extra, REASON))
        if self._machine.keeps_shells or not self._otherwise(terminal, repeated):
            return typed
        return replace(typed, passed=False, extra=(REASON,))

    def _beyond_patches(self, terminal: Terminal) -> tuple[str, ...]:
        """Return the names of state outside patches that changed since the start."""
        if self._unrecorded is None:
            self._unrecorded = terminal.unrecorded_before()
        before, now = self._unrecorded, terminal.unrecorded()
        if before is None or now is None:
            return (UNREADABLE,)
        return tuple(name for name in before if before[name] != now[name])

    def _otherwise(self, terminal: Terminal, repeated: Behavior) -> bool:
        """Whether a row had another effect on the machine when it was repeated.

        Temporary files exist neither at the start nor at the end, and may have other names in the
        repetition. Their numbers are compared, by directory, permissions and owner.
        """
        lasting = _names(self._pristine) | _names(repeated.patch.apply(self._pristine))
        return not all(
            self._alike(typed, again, lasting) for typed, again in terminal.repetitions(repeated)
        )

    def _alike(self, one: Behavior, other: Behavior, lasting: Collection[str]) -> bool:
        """Whether two behaviors have the same effect on the machine, as far as verdicts need it."""
        if one.patch_truncated or other.patch_truncated:
            return False
        named = _touched(self._pristine, one.patch, other.patch)
        start = _facts(named)
        mine, others = (
            self._settled(_facts(done.patch.apply(named)), start) for done in (one, other)
        )
        for name in {*mine, *others}:
            area, *parts = keys(name)
            counts = area not in OWN and (area != "fs" or parts[0] in lasting)
            if counts and not _equal(mine.get(name), others.get(name)):
                return False
        if _passing(mine, lasting) != _passing(others, lasting):
            return False
        return all(
            one.content_digests.get(name) == other.content_digests.get(name)
            for name in {*one.content_digests, *other.content_digests}
            if name in lasting
        )

    def verdict(self, done: Behavior, printed: bytes) -> Verdict:
        """Return the verdict on a behavior since the start, and on the output of the last row."""
        operations = [one for one in done.patch.operations if _area(one) not in self._unasked]
        patch = ContextPatch(tuple(operations))
        goal, named = self.task.goal, _touched(self._before, self._goal, patch)
        start = _facts(named)
        try:
            wanted = self._settled(_facts(self._goal.apply(named)), start)
            reached = self._settled(_facts(patch.apply(named)), start)
        except PatchError:  # the end of a huge patch was truncated
            return Verdict(False, 0.0, ("everything: there are too many changes",), ())
        held, missing = 0, []
        for operation in self._goal.operations:
            places = _places(operation)
            inside = _Inside(places)
            names = [name for name in {**wanted, **reached, **start} if inside(name)]
            if all(_equal(wanted.get(name), reached.get(name)) for name in names):
                held += 1
            else:
                missing.append(places[-1])
        for name, digest in goal.digests.items():
            if self._digest(name, done) == digest:
                held += 1
            else:
                missing.append(f"content of {name}")
        if goal.output is not None:
            if _printed(printed) == _lines(goal.output):
                held += 1
            else:
                missing.append("output")
        extra = list(self._extra(start, wanted, reached, done))
        if done.patch_truncated:
            extra.append("more changes than a patch can hold")
        total = held + len(missing)
        return Verdict(
            passed=not missing and not extra,
            progress=held / total if total else 0.0,
            missing=tuple(missing),
            extra=tuple(extra),
        )

    def _extra(self, start: Facts, wanted: Facts, reached: Facts, done: Behavior) -> Iterator[str]:
        inside = _Inside(place for one in self._goal.operations for place in _places(one))
        of_times = any(keys(one[1])[-1] in DATES for one in self._goal.operations)
        for name in sorted({*start, *reached}):
            value = reached.get(name)
            if _equal(value, start.get(name)) or _equal(value, wanted.get(name)):
                continue
            area, *parts = keys(name)
            is_date = area == "fs" and parts[-1:] == ["date"]
            if not (area in OWN or inside(name) or (is_date and not of_times)):
                yield name
        for name in sorted(set(done.content_digests) - set(self.task.goal.digests)):
            if not inside(pointer("fs", name, "size")):
                yield f"content of {name}"

    def _settled(self, facts: dict[str, Any], start: Facts) -> dict[str, Any]:
        """Replace every file time of the session by "now", and return the facts."""
        for name, value in facts.items():
            if (
                isinstance(value, _Date)
                and value != start.get(name)
                and is_now(value.parts, self._instant)
            ):
                facts[name] = "now"
        return facts

    def _digest(self, name: str, done: Behavior) -> str | None:
        """Return the digest of a file's content at the end; None if it is unknown."""
        known = done.content_digests.get(name)
        if known is not None:
            return known
        for operation in done.patch.operations:
            if operation[0] == "m" and operation[2] == pointer("fs", name):
                name = keys(operation[1])[1]
        return None if self.task.history else digest_in(self._machine, self.task.cwd, name)


def refuse_other(task: Task, system: System) -> None:
    """Raise TaskError if a task was made on another system, or on another build of it."""
    if task.system_digest != system.digest:
        raise TaskError(
            f"task {task.id} was made on the build {task.system_digest:.12}… of {task.system}, and "
            f"this is the build {system.digest:.12}… of {system.name}",
            hint="adopt the tasks: shioenv tasks certify FILE --rebase --out OTHER"
            if task.system == system.name
            else f"--system {task.system}",
        )


def date_of(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return a file's modification time: the values of its `DATES`."""
    return tuple(entry.get(key) for key in DATES)


def is_directory(entry: Mapping[str, Any]) -> bool:
    """Whether an entry of `fs` is a directory, whose times never count."""
    return str(entry.get("perms", "")).startswith("d")


def is_now(parts: tuple[Any, ...], instant: datetime) -> bool:
    """Whether a file time (values of `DATES`) lies in a session that begins at the instant."""
    year, month, day, clock = parts
    try:
        hour, minute = map(int, clock.split(":"))
        moment = datetime(year, MONTHS.index(month) + 1, day, hour, minute)
    except (ValueError, TypeError, AttributeError, OverflowError):
        return False
    begin = instant.astimezone(UTC).replace(tzinfo=None, second=0, microsecond=0)
    return begin - timedelta(minutes=1) <= moment <= begin + SESSION


def digest_in(machine: Pristine, cwd: str, name: str) -> str | None:
    """Return the SHA-256 (hex) of a pristine file, by its name in `fs` as seen from `cwd`.

    None if the file does not exist, or cannot be read.
    """
    path = posixpath.normpath(posixpath.join(cwd, os.fsdecode(name_bytes(name))))
    content = machine.read(path)
    return None if content is None else hashlib.sha256(content).hexdigest()


def _passing(facts: Facts, lasting: Collection[str]) -> Counter[tuple[Any, ...]]:
    """Count temporary files by directory, permissions and owner.

    All directories with temporary names count as one directory.
    """
    found = Counter[tuple[Any, ...]]()
    for name, perms in facts.items():
        area, *parts = keys(name)
        if area == "fs" and parts[-1] == "perms" and parts[0] not in lasting:
            parent = posixpath.dirname(parts[0])
            known = parent if not parent or parent in lasting else "…"
            owner = tuple(facts.get(pointer("fs", parts[0], each)) for each in ("owner", "group"))
            found[known, perms, *owner] += 1
    return found


@dataclass(frozen=True, slots=True)
class _Date:
    parts: tuple[Any, ...]


class _Inside:
    """A predicate: whether a pointer lies at or below one of the given places."""

    def __init__(self, places: Iterable[str]) -> None:
        self._places = frozenset(map(_dated, places))

    def __call__(self, name: str) -> bool:
        while name:
            if name in self._places:
                return True
            name = name.rpartition("/")[0]
        return False


def _dated(place: str) -> str:
    """Return the pointer of a fact; the four values of a file time count as one fact."""
    area, *parts = keys(place) or [""]
    if area == "fs" and len(parts) == 2 and parts[1] in DATES:
        return pointer("fs", parts[0], "date")
    return place


def _places(operation: Operation) -> tuple[str, ...]:
    return operation[1:3] if operation[0] == "m" else operation[1:2]


def _area(operation: Operation) -> str:
    return keys(operation[1])[0]


def _touched(document: Mapping[str, Any], *patches: ContextPatch) -> dict[str, Any]:
    """Return the document with only the areas and files that the patches name."""
    named = [
        keys(place)
        for patch in patches
        for operation in patch.operations
        for place in _places(operation)
    ]
    files = document["fs"]
    names = sorted({parts[1] for parts in named if parts[0] == "fs" and len(parts) > 1})
    areas = {parts[0]: document[parts[0]] for parts in named if parts[0] in document}
    return {**areas, "fs": {name: files[name] for name in names if name in files}}


def _facts(document: Mapping[str, Any]) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for area, value in document.items():
        if area != "fs":
            _flatten(value, pointer(area), facts)
            continue
        for name, entry in value.items():
            place = pointer("fs", name)
            for key, item in entry.items():
                if key not in DATES:
                    facts[f"{place}/{key}"] = item
            if not is_directory(entry):
                facts[f"{place}/date"] = _Date(date_of(entry))
    return facts


def _flatten(value: Any, place: str, facts: dict[str, Any]) -> None:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            _flatten(inner, f"{place}/{escape(key)}", facts)
    else:
        facts[place] = value


def _equal(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)


def _names(document: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(document["fs"])


def _printed(output: bytes) -> list[str]:
    return _lines(output.decode("utf-8", "replace"))


def _lines(text: str) -> list[str]:
    return "\n".join(" ".join(line.split()) for line in text.split("\n")).rstrip().split("\n")
