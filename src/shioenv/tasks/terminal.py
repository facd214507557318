"""A shell that goes on from row to row, goes back, and forks: rows are replayed.

Nothing is kept running. A row is executed on the pristine system after all rows before it. So going
back is forgetting rows, and a fork is a copy of the list. What each had done when it was typed is
kept, so that who judges can hold it against what the repetition did.

Beside it stands, for each question that somebody else asks of the machine, a shell of its own.
Whoever judges what was typed must not ask the shell in which it was typed. Its functions, aliases,
traps and variables answer as their owner likes.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Final, Protocol

from shioenv.bash.words import quoted
from shioenv.behavior.rows import Row, RowKind
from shioenv.domain.behavior import Behavior
from shioenv.domain.context import Context
from shioenv.domain.names import name_bytes
from shioenv.domain.runner import Pristine, State
from shioenv.errors import TerminalError, UsageError
from shioenv.sandbox.base import LARGEST, Limits

ROWS: Final = 100
"""Rows whose processor time together is what so many are allowed."""


def for_rows(limits: Limits | None) -> Limits:
    """What a terminal's machine is bound by, where each row is bound by these limits (None:
    `Limits()`). Rows are run again for the next one: their processor time is bounded together, to
    that of `ROWS` rows; the real time of each is.
    """
    limits = limits or Limits()
    seconds = min(limits.cpu_seconds * ROWS, LARGEST["cpu_seconds"])
    return replace(limits, cpu_seconds=seconds)


class LookedAtMachine(Pristine, Protocol):
    """One that executes, whose pristine machine can be looked at: what `open_sandbox` gives."""

    @property
    def limits(self) -> Limits:
        """What every run is bound by."""
        ...

    @property
    def whole_seconds(self) -> float:
        """How long the newest rows took by themselves."""
        ...

    def type(
        self,
        rows: Iterable[Row],
        cwd: str,
        *,
        separate: bool = False,
        wall_seconds: float | None = None,
    ) -> Behavior:
        """As `SandboxRunner.type` says."""
        ...

    def since(self, before: Behavior, whole: Behavior, cwd: str) -> Behavior:
        """As `SandboxRunner.since` says."""
        ...


@dataclass(frozen=True, slots=True)
class _Typed:
    text: str
    behavior: Behavior
    beside: bool
    allowed: float
    whole: Behavior
    """Everything from the pristine state on, this row typed."""
    before: Behavior | None
    """Everything before it, all of it repeated; None where there was nothing."""

    @property
    def again(self) -> Row:
        return Row(RowKind.BESIDE_AGAIN if self.beside else RowKind.AGAIN, self.text)


class Terminal:
    """A shell in a start directory of a machine, once a history was typed there.

    `run` types a row. Each is read by itself: what is wrong with one (a quote that is not closed)
    does not reach into the next. Rows share all that a shell keeps: directory, variables,
    functions, files. After `exit` or `exec` nothing runs any more, as in any shell. What `exec`
    alone redirects is so for its own row only (ours: rows that were typed print nothing again). A
    row that runs out of time is taken back, with all that it did (ours: Ctrl-C, and nothing half
    done). `beside` runs a row in another shell.

    The machine's limit of real time is that of each row, and a row is as long as an input may be.
    All rows together have at most `LONGEST_STDIN` bytes. The machine is shared between forks and
    stays its owner's.
    """

    def __init__(self, machine: LookedAtMachine, cwd: str, history: Iterable[str] = ()) -> None:
        self.machine = machine
        self.start = State(cwd=cwd, history=tuple(history), pristine=machine)
        """Where it began."""
        self._rows: list[_Typed] = []
        self._spent = 0.0

    @property
    def rows(self) -> list[str]:
        """What was run and counts, in order."""
        return [row.text for row in self._rows]

    @property
    def behaviors(self) -> list[Behavior]:
        """What each row did."""
        return [row.behavior for row in self._rows]

    @property
    def ends_beside(self) -> bool:
        """Whether the last row was run beside the shell, or there is none."""
        return not self._rows or self._rows[-1].beside

    @property
    def printed(self) -> bytes:
        """The output of the last row that was typed; nothing where there is none."""
        typed = [row.behavior.output for row in self._rows if not row.beside]
        return typed[-1] if typed else b""

    def run(self, row: str, *, separate: bool = False) -> Behavior:
        """What a row does after the others; `separate` as `Executing.execute` takes it.

        Errors: those of the machine, and nothing was typed.
        """
        before = [*self._history, *(one.again for one in self._rows)]
        return self._run(Row(RowKind.TYPED, row), before, separate=separate, seconds=None)

    def beside(
        self, row: str, *, separate: bool = False, wall_seconds: float | None = None
    ) -> Behavior:
        """What a row does in a shell of its own, in the start directory. Of all that was typed it
        finds what became of the machine (files, network, host name), and nothing of the shell.

        Processes that typed rows left behind are ended first. What it does to the machine is there
        for the rows after it. `wall_seconds` stands for the limit of this name. Who types as root
        can still hinder that shell, as any process; what answers is never the typed shell. Errors:
        TerminalError where it was killed, those of the machine; nothing was run then.
        """
        last = max((n for n, one in enumerate(self._rows, 1) if not one.beside), default=0)
        before = [one.again for one in self._rows]
        if typed := [*self._history, *before[:last]]:
            before = [*typed, Row(RowKind.END), *before[last:]]
        return self._run(Row(RowKind.BESIDE, row), before, separate=separate, seconds=wall_seconds)

    def undo(self, count: int = 1) -> None:
        """Takes back so many rows. Errors: UsageError where there are fewer."""
        if not 0 <= count <= len(self._rows):
            raise UsageError(f"{count} rows cannot be taken back: there are {len(self._rows)}")
        del self._rows[len(self._rows) - count :]

    def fork(self) -> Terminal:
        """Another terminal in which the same was typed; from here on they go separate ways."""
        other = Terminal(self.machine, self.start.cwd, self.start.history)
        other._rows, other._spent = list(self._rows), self._spent
        return other

    def repeated(self) -> Behavior:
        """What all rows do together when they are run once more, from the pristine state on, the
        history before them included. The last of them prints, if it was typed.
        """
        rows = [*self._history, *(one.again for one in self._rows)]
        last = Row(RowKind.TYPED, ":" if self.ends_beside else rows.pop().text)
        return self.machine.type([*rows, last], self.start.cwd, wall_seconds=self._patience(None))

    def since_start(self, repeated: Behavior | None = None) -> Behavior:
        """What all rows did together, typed as `run` typed the last of them, of what `repeated`
        gave (None: asked now). Of the output it is that of the last row.
        """
        whole = repeated or self.repeated()
        before = self._alone(self._history)
        return whole if before is None else self.machine.since(before, whole, self.start.cwd)

    def repetitions(self, repeated: Behavior) -> Iterator[tuple[Behavior, Behavior]]:
        """For each row, everything from the pristine state on once it was typed, and the same once
        it was repeated for the row after it. For the last row it is what `repeated` gave.
        """
        for number, row in enumerate(self._rows, 1):
            again = self._rows[number].before if number < len(self._rows) else repeated
            assert again is not None
            yield row.whole, again

    def before(self) -> Context:
        """The context in which it began: what the patch of `since_start` applies to."""
        pristine = self.machine.context(self.start.cwd)
        before = self._alone(self._history)
        return Context(before.patch.apply(pristine.document)) if before else pristine

    @property
    def _history(self) -> list[Row]:
        return [Row(RowKind.AGAIN, text) for text in self.start.history]

    def _alone(self, rows: list[Row], seconds: float | None = None) -> Behavior | None:
        """What rows do that are all repeated; None where there are none."""
        return self.machine.type(rows, self.start.cwd, wall_seconds=seconds) if rows else None

    def _run(self, row: Row, rows: list[Row], *, separate: bool, seconds: float | None) -> Behavior:
        cwd, beside, patience = self.start.cwd, row.how is RowKind.BESIDE, self._patience(seconds)
        whole = self.machine.type([*rows, row], cwd, separate=separate, wall_seconds=patience)
        spent = self.machine.whole_seconds
        before = self._alone(rows, patience)
        behavior = whole if before is None else self.machine.since(before, whole, cwd)
        if beside and _was_killed(behavior):
            raise TerminalError(
                f"the shell that was to run {row.text!r:.60} was killed",
                hint="by what was typed before it: undo takes rows back",
            )
        if not behavior.timed_out:
            allowed = seconds or self.machine.limits.wall_seconds
            self._rows.append(_Typed(row.text, behavior, beside, allowed, whole, before))
            self._spent = spent
        return behavior

    def _patience(self, seconds: float | None) -> float:
        """Seconds that a run may take: a row's own, and what the rows before it needed, which are
        all run again. Half of that is added for a machine that is busier now. They are never more
        than all of them were allowed. Whole ones, so that the same rows are remembered by the
        machine.
        """
        own = seconds or self.machine.limits.wall_seconds
        before = min(ceil(1.5 * self._spent), ceil(sum(row.allowed for row in self._rows)))
        return min(own + before, LARGEST["wall_seconds"])


def _was_killed(behavior: Behavior) -> bool:
    if "sandboxes" in behavior.limits_hit:
        return True
    return behavior.died_by_signal is not None and not (behavior.timed_out or behavior.limits_hit)


def contents(terminal: Terminal, names: Iterable[str]) -> Mapping[str, bytes]:
    """What regular files hold after all rows, by their names in `fs`; those that can be read.

    Told by a shell beside: base64 passes any byte.
    """
    wanted = list(names)
    if not wanted:
        return {}
    paths = [name_bytes(name).decode("utf-8", "surrogateescape") for name in wanted]
    fits = [number for number, path in enumerate(paths) if _is_text(path)]
    row = "\n".join(
        f"echo {number} $(/usr/bin/base64 -w0 < {quoted(paths[number])})" for number in fits
    )
    told = terminal.fork().beside(f"exec 2> /dev/null\n{row}").output
    found = {}
    for line in told.decode("ascii", "replace").splitlines():
        number, _, text = line.partition(" ")
        if number.isdecimal() and int(number) < len(wanted):
            try:
                found[wanted[int(number)]] = b64decode(text, validate=True)
            except ValueError:
                continue
    return found


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
