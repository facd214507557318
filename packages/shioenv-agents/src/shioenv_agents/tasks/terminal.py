"""A shell whose rows can be undone, forked, and repeated.

Rows are run in a resident shell. To restore its state, a terminal runs its rows again: in a fork,
after `undo`, and if its shell was given to another terminal.

The behavior of each row when it was typed is kept. A judge, which checks a task, compares it with
the row's behavior when all rows are run again from the pristine system, in one run.

The judge examines the machine with commands in separate shells. It must not use the shell in which
rows were typed: an agent controls that shell's functions, aliases, traps and variables.

Commands can also be started in the machine from outside (`enter`), in parallel to the shell and to
each other, and can continue to run. Their effects depend on time and cannot be repeated. So after
such commands, a judge ends every process, and judges by the changes that the sandbox reads from
outside.
"""

from __future__ import annotations

import os
import posixpath
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Final, Protocol

from shioenv.behavior.line_behaviors import Lines
from shioenv.behavior.observe import LENT_SECONDS, SandboxRunner, open_sandbox
from shioenv.behavior.typed_rows import Row, RowKind
from shioenv.domain.behavior import Behavior
from shioenv.domain.context import Context
from shioenv.domain.patch import ContextPatch
from shioenv.domain.runner import Pristine, State
from shioenv.errors import SandboxError, ShellEndedError, TerminalError, UsageError
from shioenv.live.entered import START_SECONDS, close
from shioenv.live.machine_thread import Seat
from shioenv.sandbox.base import LARGEST, Entered, Limits, Request
from shioenv.system.store import System
from shioenv_agents.tasks.entered_machine import Command, end_group, start
from shioenv_agents.tasks.unrecorded import PROBE, SECONDS, unrecorded

ROWS: Final = 100
"""All rows of a terminal together may use this many times the processor time of one row."""


_PROCESSES: Final = 1 << 16
"""Limit in bytes on the listing of all processes."""

_ENDING_SECONDS: Final = 1.0
"""Seconds allowed for a command's processes to end after it reported its status."""

_LOOK_SECONDS: Final = 0.02
"""Seconds between two snapshots of the machine while waiting for these processes."""


def for_rows(limits: Limits | None) -> Limits:
    """Return the limits of a terminal's machine from those of each row (None: `Limits()`).

    All rows are run again for the next row. So their total processor time is limited to that of
    `ROWS` rows. Real time is limited for each row.
    """
    limits = limits or Limits()
    seconds = min(limits.cpu_seconds * ROWS, LARGEST["cpu_seconds"])
    return replace(limits, cpu_seconds=seconds)


def runner_seat(system: str | None = None, limits: Limits | None = None) -> Seat[SandboxRunner]:
    """Return a `Seat` (a machine with its own thread) whose sandbox can run typed rows.

    Errors: every use raises those of `open_sandbox`.
    """
    return Seat(lambda: open_sandbox(system, for_rows(limits)))


class LookedAtMachine(Pristine, Protocol):
    """A runner that executes rows and whose pristine machine can be read (`open_sandbox`)."""

    @property
    def system(self) -> System:
        """The system on which rows run."""
        ...

    @property
    def limits(self) -> Limits:
        """The limits of every run."""
        ...

    @property
    def keeps_shells(self) -> bool:
        """See `SandboxRunner.keeps_shells`."""
        ...

    def lend_shell(self, cwd: str) -> Lines:
        """See `SandboxRunner.lend_shell`."""
        ...

    @property
    def whole_seconds(self) -> float:
        """Seconds that the newest rows ran, without the time before the sandbox was free."""
        ...

    def type(
        self,
        rows: Iterable[Row],
        cwd: str,
        *,
        separate: bool = False,
        wall_seconds: float | None = None,
    ) -> Behavior:
        """See `SandboxRunner.type`."""
        ...

    def since(
        self, before: Behavior, whole: Behavior, cwd: str, *, of_moved: bool = False
    ) -> Behavior:
        """See `SandboxRunner.since`."""
        ...


@dataclass(frozen=True, slots=True)
class _Typed:
    text: str
    behavior: Behavior
    beside: bool
    allowed: float
    whole: Behavior
    """The behavior of all rows from the pristine state up to this row."""

    @property
    def again(self) -> Row:
        return Row(RowKind.BESIDE_AGAIN if self.beside else RowKind.AGAIN, self.text)


@dataclass(frozen=True, slots=True)
class _Seen:
    patch: ContextPatch
    digests: Mapping[str, str]
    processes: frozenset[bytes]
    """The IDs of all processes."""
    unrecorded: Mapping[str, bytes] | None

    def is_as(self, other: _Seen | None) -> bool:
        """Whether two snapshots of the machine are equal, as far as the machine can be read."""
        return self.unrecorded is not None and self == other

    def has_only_more_processes(self, other: _Seen) -> bool:
        """Whether this snapshot differs from another only in additional processes."""
        return self.processes > other.processes and replace(self, processes=other.processes).is_as(
            other
        )


class Terminal:
    """A shell in a start directory of a machine, after a history was typed there.

    `run` types a row. Each row is parsed separately, so an unclosed quote does not affect the next
    row. After `exit` or `exec` nothing runs any more. An `exec` with only redirections applies to
    its row only (our choice, because the output of repeated rows is discarded). A row that times
    out is undone completely (our choice: nothing stays half done). `beside` runs a row in another
    shell.

    Each row has the machine's limit of real time, and may be as long as an input. All rows together
    have at most `LONGEST_STDIN` bytes. Forks share `machine`, and the caller closes it.
    """

    def __init__(self, machine: LookedAtMachine, cwd: str, history: Iterable[str] = ()) -> None:
        self.machine = machine
        self.start = State(cwd=cwd, history=tuple(history), pristine=machine)
        """The state in which the terminal started."""
        self._rows: list[_Typed] = []
        self._spent = 0.0
        self._lines: Lines | None = None  # the shell of the history and all rows
        self.entered = False
        """Whether a command entered the machine: rows can no longer be repeated or undone."""
        self._found: _Seen | None = None  # the machine before the first command that entered

    @property
    def rows(self) -> list[str]:
        """The rows that were run and not undone, in order."""
        return [row.text for row in self._rows]

    @property
    def behaviors(self) -> list[Behavior]:
        """The behavior of each row, in order."""
        return [row.behavior for row in self._rows]

    @property
    def ends_beside(self) -> bool:
        """Whether the last row was run in a separate shell, or there are no rows."""
        return not self._rows or self._rows[-1].beside

    @property
    def printed(self) -> bytes:
        """The output of the last typed row; empty if none was typed."""
        typed = [row.behavior.output for row in self._rows if not row.beside]
        return typed[-1] if typed else b""

    def run(self, row: str, *, separate: bool = False) -> Behavior:
        """Type a row after the others, and return its behavior.

        `separate` gives each output channel a pipe, as in `Executing.execute`. Errors: those of the
        machine; the row then counts as not typed.
        """
        if self.machine.keeps_shells and not separate:
            return self._typed(row)
        before = [*self._history, *(one.again for one in self._rows)]
        return self._run(Row(RowKind.TYPED, row), before, separate=separate, seconds=None)

    def beside(
        self, row: str, *, separate: bool = False, wall_seconds: float | None = None
    ) -> Behavior:
        """Run a row in a separate shell, in the start directory, and return its behavior.

        The row finds the machine (files, network, host name) as the typed rows left it, but not
        their shell. Processes that typed rows left running are ended first. Later rows find what
        the row changed in the machine. `wall_seconds` overrides the limit of this name.

        In a sandbox with resident shells, no process of typed rows is an ancestor or descendant of
        the separate shell, or shares its memory. The supervisor starts that shell, and every
        process that could kill it has ended. Errors: those of the machine. TerminalError if the
        typed shell could not be ended, or if there are no resident shells and the separate shell
        was killed. After an error the row counts as not run.
        """
        self._refuse_entered("repeated")
        if self.machine.keeps_shells:
            return self._asked(row, separate=separate, seconds=wall_seconds)
        last = max((n for n, one in enumerate(self._rows, 1) if not one.beside), default=0)
        before = [one.again for one in self._rows]
        if typed := [*self._history, *before[:last]]:
            before = [*typed, Row(RowKind.END), *before[last:]]
        return self._run(Row(RowKind.BESIDE, row), before, separate=separate, seconds=wall_seconds)

    def open(self) -> None:
        """Type the history now rather than before the first row. Errors: those of `run`."""
        self._shell()

    def enter(self, command: Command) -> Entered:
        """Start a command in the machine, in parallel to the shell; see `EnteredMachine.start`.

        The command finds what the rows left, their processes included, and continues during later
        rows. From then on no row can be repeated, undone or forked, and `beside` is refused. A row
        that times out or ends its shell ends every process, and its changes stay. The next row gets
        a new shell in the same machine. None of this applies after commands with `reads`, or after
        commands that changed nothing and ended before the first row. Relative directories start at
        the start directory. Errors: those of `EnteredMachine.start`; SandboxError in a sandbox
        without resident shells.
        """
        cwd = posixpath.join(self.start.cwd, command.cwd)
        if not (self.entered or command.reads):
            self._found = self._seen()
        entered = start(replace(command, cwd=cwd), self.machine.system, self._enter)
        self.entered = self.entered or not command.reads
        return entered

    def end_group(self, group: int) -> None:
        """Kill a process group of a command. Errors: SandboxError."""
        end_group(group, self._enter)

    def undo(self, count: int = 1) -> None:
        """Undo the last `count` rows.

        Errors: UsageError if there are fewer; TerminalError if a command entered the machine.
        """
        self._refuse_entered("undone")
        if not 0 <= count <= len(self._rows):
            raise UsageError(f"cannot undo {count} rows: there are {len(self._rows)}")
        if count:
            del self._rows[len(self._rows) - count :]
            self._lines = None

    def fork(self) -> Terminal:
        """Return a new terminal with the same rows; later rows of the two are independent.

        Errors: TerminalError if a command entered the machine.
        """
        self._refuse_entered("repeated")
        other = Terminal(self.machine, self.start.cwd, self.start.history)
        other._rows, other._spent = list(self._rows), self._spent
        return other

    def rest(self) -> None:
        """Give the machine back; a later row runs all rows again."""
        if self._lines is not None:
            self._lines.close()

    def repeated(self) -> Behavior:
        """Return the behavior of the history and all rows, run once more from the pristine state.

        The output is that of the last row, if it was typed. Errors: those of the machine;
        TerminalError if a command entered it.
        """
        self._refuse_entered("repeated")
        rows = [*self._history, *(one.again for one in self._rows)]
        last = Row(RowKind.TYPED, ":" if self.ends_beside else rows.pop().text)
        return self.machine.type([*rows, last], self.start.cwd, wall_seconds=self._patience(None))

    def done(self) -> Behavior:
        """Return the combined behavior of all rows as typed, in the form of `since_start`.

        If a command entered the machine, every process is ended first, and all changes until then
        are included. Errors: those of the machine; TerminalError if the typed shell could not be
        ended.
        """
        before = self._alone(self._history)
        if self.entered:
            whole = self._settled()
            return whole if before is None else self._since(before, whole)
        if not self._rows:
            return replace(before, output=b"", patch=ContextPatch()) if before else Behavior(0, b"")
        whole = self._rows[-1].whole
        return whole if before is None else self._since(before, whole)

    def since_start(self, repeated: Behavior | None = None) -> Behavior:
        """Return the combined behavior of all rows after the history, with the last row's output.

        `repeated` is the result of `repeated()`; by default the rows are repeated now.
        """
        whole = repeated or self.repeated()
        before = self._alone(self._history)
        return whole if before is None else self._since(before, whole)

    def repetitions(self, repeated: Behavior) -> Iterator[tuple[Behavior, Behavior]]:
        """Yield two behaviors for each row, both from the pristine state up to the row.

        The first is from when the row was typed, the second from when it was repeated before the
        next row was typed. The second behavior of the last row is `repeated`.
        """
        rows = [*self._history, *(one.again for one in self._rows)]
        for number, row in enumerate(self._rows, len(self.start.history) + 1):
            again = repeated if number == len(rows) else self._alone(rows[:number])
            assert again is not None
            yield row.whole, again

    def before(self) -> Context:
        """Return the initial context, to which the patch of `since_start` applies."""
        pristine = self.machine.context(self.start.cwd)
        before = self._alone(self._history)
        return Context(before.patch.apply(pristine.document)) if before else pristine

    def unrecorded(self) -> Mapping[str, bytes] | None:
        """Return the rows' effects outside patches (`behavior.unrecorded`); None if unreadable.

        Programs of the pristine system read these from outside the shell. Errors: those of the
        machine; SandboxError in a sandbox without resident shells.
        """
        printed = self._shell().apart(PROBE, wall_seconds=SECONDS).output
        return unrecorded(printed, self.machine.system.declaration)

    def unrecorded_before(self) -> Mapping[str, bytes] | None:
        """Return `unrecorded` of the initial state, after the history was typed."""
        rows = [*self._history, Row(RowKind.BESIDE, PROBE)]
        asked = self.machine.type(rows, self.start.cwd, wall_seconds=SECONDS)
        return unrecorded(asked.output, self.machine.system.declaration)

    def _since(self, before: Behavior, whole: Behavior) -> Behavior:
        """Return the changes after the history, with digests of moved files too."""
        return self.machine.since(before, whole, self.start.cwd, of_moved=True)

    @property
    def _history(self) -> list[Row]:
        return [Row(RowKind.AGAIN, text) for text in self.start.history]

    def _alone(self, rows: list[Row], seconds: float | None = None) -> Behavior | None:
        """Return the behavior of repeated rows; None if there are no rows."""
        return self.machine.type(rows, self.start.cwd, wall_seconds=seconds) if rows else None

    def _typed(self, row: str) -> Behavior:
        """Type a row in the resident shell."""
        Request(row).argument()
        while True:
            lines = self._shell()
            try:
                with lines.turn():  # else the machine could be given away before the row
                    return self._typed_in(lines, row)
            except ShellEndedError:
                if self.entered or not lines.given_back:
                    raise

    def _typed_in(self, lines: Lines, row: str) -> Behavior:
        if self.entered and not self._rows and self._is_as_found():
            lines.close()
            self.entered = False
            lines = self._shell()
        if self.entered:
            return self._typed_beside_others(row, lines)
        if lines.ended:  # nothing runs after `exit`
            last = self._rows[-1].behavior if self._rows else Behavior(0, b"")
            behavior = replace(last, output=b"", patch=ContextPatch(), content_digests={})
        else:
            behavior = lines.run(row)
        if behavior.timed_out:
            self._lines = None
            return behavior
        allowed = self.machine.limits.wall_seconds
        self._rows.append(_Typed(row, behavior, False, allowed, lines.whole()))
        self._spent = lines.seconds
        return behavior

    def _typed_beside_others(self, row: str, lines: Lines) -> Behavior:
        """Type a row in an entered machine, in a new shell if the last one ended."""
        if lines.ended:
            lines.restart(idle_seconds=LENT_SECONDS)
        try:
            behavior = lines.run(row)
        except ShellEndedError:  # the shell ended after its last row, for example by a limit
            lines.restart(idle_seconds=LENT_SECONDS)
            behavior = lines.run(row)
        allowed = self.machine.limits.wall_seconds
        self._rows.append(_Typed(row, behavior, False, allowed, lines.whole()))
        return behavior

    def _settled(self) -> Behavior:
        """Return the behavior in an entered machine, after ending every process."""
        lines = self._shell()
        try:
            return lines.settle()
        except SandboxError as error:
            raise _not_ended(error) from error

    def _enter(self, text: str) -> Entered:
        lines = self._shell()
        return lines.enter(text, wall_seconds=START_SECONDS, idle_seconds=LENT_SECONDS)

    def _is_as_found(self) -> bool:
        """Whether the commands that entered left the machine as it was.

        A command reports its status shortly before its process has ended.
        """
        last, over = time.monotonic() + _ENDING_SECONDS, False
        while not (seen := self._seen()).is_as(self._found):
            if over or self._found is None or not seen.has_only_more_processes(self._found):
                return False
            time.sleep(_LOOK_SECONDS)
            over = time.monotonic() > last
        return True

    def _seen(self) -> _Seen:
        """Return a snapshot of the machine without its typed shell: changes and processes."""
        lines = self._shell()
        lines.look()
        whole, other = lines.whole(), self.unrecorded()
        entered = self._enter("cd /proc; for each in [0-9]*; do [ $each = $$ ] || echo $each; done")
        try:
            with os.fdopen(os.dup(entered.output), "rb") as output:
                processes = frozenset(output.read(_PROCESSES).split())
        finally:
            close(entered)
        return _Seen(whole.patch, dict(whole.content_digests), processes, other)

    def _refuse_entered(self, what: str) -> None:
        if self.entered:
            raise TerminalError(
                f"the rows cannot be {what}: a command entered the machine",
                hint="open another terminal and type the rows there",
            )

    def _asked(self, row: str, *, separate: bool, seconds: float | None) -> Behavior:
        """Run a row in a separate shell, after ending the resident shell and all that it left."""
        Request(row).argument()
        lines = self._shell(ends=True)
        self._lines = None  # no further row can be typed in that shell
        behavior = lines.beside(row, separate=separate, wall_seconds=seconds)
        if not behavior.timed_out:  # no other process exists that could have killed it
            allowed = seconds or self.machine.limits.wall_seconds
            self._rows.append(_Typed(row, behavior, True, allowed, lines.whole()))
        return behavior

    def _shell(self, *, ends: bool = False) -> Lines:
        """Return the resident shell, in which the history and all rows were run.

        With `ends` the shell is killed after the last typed row.
        """
        last = len(self.start.history)
        last += max((n for n, one in enumerate(self._rows, 1) if not one.beside), default=0)
        if self._lines is None or self._lines.given_back or self._lines.gone:
            self._refuse_entered("repeated")
            self.rest()
            rows = [*self._history, *(one.again for one in self._rows)]
            self._lines = None
            while self._lines is None:
                lines = self.machine.lend_shell(self.start.cwd)
                try:
                    with lines.turn():
                        _repeat(lines, rows, last if ends else None)
                    self._lines = lines
                except ShellEndedError:  # another thread may have got its machine first
                    if not lines.given_back:
                        raise
        if ends:
            _kill(self._lines)
        return self._lines

    def _run(self, row: Row, rows: list[Row], *, separate: bool, seconds: float | None) -> Behavior:
        cwd, beside, patience = self.start.cwd, row.how is RowKind.BESIDE, self._patience(seconds)
        whole = self.machine.type([*rows, row], cwd, separate=separate, wall_seconds=patience)
        spent = self.machine.whole_seconds
        before = self._alone(rows, patience)
        behavior = whole if before is None else self.machine.since(before, whole, cwd)
        if beside and _was_killed(behavior):
            raise _killed(row.text)
        if not behavior.timed_out:
            allowed = seconds or self.machine.limits.wall_seconds
            self._rows.append(_Typed(row.text, behavior, beside, allowed, whole))
            self._spent = spent
            self._lines = None
        return behavior

    def _patience(self, seconds: float | None) -> float:
        """Return the time limit in seconds of a run that repeats all rows before the new one.

        It is the new row's limit plus 1.5 times the time that the earlier rows needed: the machine
        may be busier now. The earlier rows never get more than their own limits. The added seconds
        are an integer, so that cached runs of the same rows are found.
        """
        own = seconds or self.machine.limits.wall_seconds
        before = min(ceil(1.5 * self._spent), ceil(sum(row.allowed for row in self._rows)))
        return min(own + before, LARGEST["wall_seconds"])


def _was_killed(behavior: Behavior) -> bool:
    if "sandboxes" in behavior.limits_hit:
        return True
    return behavior.died_by_signal is not None and not (behavior.timed_out or behavior.limits_hit)


def _killed(row: str) -> TerminalError:
    return TerminalError(
        f"the shell was killed before it ran {row!r:.60}",
        hint="an earlier row killed it: call undo to remove rows",
    )


def _repeat(lines: Lines, rows: list[Row], last: int | None) -> None:
    """Run rows again in a new shell, which is killed before the row with the index `last`."""
    for number, row in enumerate(rows):
        if number == last:
            _kill(lines)
        if row.how is RowKind.BESIDE_AGAIN:
            lines.beside(row.text)
        elif not lines.ended:
            lines.repeat(row.text)
    if not lines.ended and rows:
        lines.look()


def _kill(lines: Lines) -> None:
    try:
        lines.kill()
    except SandboxError as error:
        raise _not_ended(error) from error


def _not_ended(error: SandboxError) -> TerminalError:
    return TerminalError(
        f"the shell could not be ended: {error.message}",
        hint="an earlier row prevents it: call undo to remove rows",
    )
