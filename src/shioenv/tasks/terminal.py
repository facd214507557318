"""A shell that goes on from row to row, goes back, and forks: rows are replayed.

Nothing is kept running. A row is executed on the pristine system after all rows before it, so that
going back is forgetting rows, and a fork is a copy of the list.

Beside it stands, for each question that somebody else asks of the machine, a shell of its own:
whoever judges what was typed must not ask the shell in which it was typed, whose functions,
aliases, traps and variables answer as their owner likes.
"""

from __future__ import annotations

import shlex
from base64 import b64decode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Final, Protocol

from shioenv.domain.behavior import Behavior
from shioenv.domain.context import Context
from shioenv.domain.inputs import started
from shioenv.domain.names import name_bytes
from shioenv.domain.runner import Pristine, State
from shioenv.errors import TerminalError, UsageError
from shioenv.sandbox.base import LARGEST, Limits, Request

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


class Machine(Pristine, Protocol):
    """One that executes, whose pristine machine can be looked at: what `open_sandbox` gives."""

    @property
    def limits(self) -> Limits:
        """What every run is bound by."""
        ...

    @property
    def whole_seconds(self) -> float:
        """How long the newest input took by itself, with its history."""
        ...

    def execute(
        self,
        shell_input: str,
        state: State | None = None,
        *,
        separate: bool = False,
        typed: bool = False,
        wall_seconds: float | None = None,
    ) -> Behavior:
        """As `SandboxRunner.execute` says."""
        ...


@dataclass(frozen=True, slots=True)
class _Row:
    text: str
    behavior: Behavior
    beside: bool
    allowed: float


class Terminal:
    """A shell in a start directory of a machine, once a history was typed there.

    `run` types a row. Each is read by itself: what is wrong with one (a quote that is not closed)
    does not reach into the next. Rows share all that a shell keeps: directory, variables,
    functions, files. After `exit` or `exec` nothing runs any more, as in any shell; what `exec`
    alone redirects is so for its own row only (ours: rows that were typed print nothing again). A
    row that runs out of time is taken back, with all that it did (ours: Ctrl-C, and nothing half
    done). `beside` runs a row in another shell.

    The machine's limit of real time is that of each row, and a row is as long as an input may be;
    all rows together have at most `LONGEST_STDIN` bytes. The machine is shared between forks and
    stays its owner's.
    """

    def __init__(self, machine: Machine, cwd: str, history: Iterable[str] = ()) -> None:
        self.machine = machine
        self.start = State(cwd=cwd, history=tuple(history), pristine=machine)
        """Where it began."""
        self._rows: list[_Row] = []
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
    def printed(self) -> bytes:
        """The output of the last row that was typed; nothing where there is none."""
        typed = [row.behavior.output for row in self._rows if not row.beside]
        return typed[-1] if typed else b""

    def run(self, row: str, *, separate: bool = False) -> Behavior:
        """What a row does after the others; `separate` as `Executing.execute` takes it.

        Errors: those of the machine, and nothing was typed.
        """
        history = (*self.start.history, *map(self._again, self._rows))
        return self._run(row, history, separate=separate, beside=False, seconds=None)

    def beside(
        self, row: str, *, separate: bool = False, wall_seconds: float | None = None
    ) -> Behavior:
        """What a row does in a shell of its own, in the start directory: of all that was typed it
        finds what became of the machine (files, network, host name), and nothing of the shell.

        Processes that typed rows left behind are ended first. What it does to the machine is there
        for the rows after it. `wall_seconds` stands for the limit of this name. Who types as root
        can still hinder that shell, as any process; what answers is never the typed shell. Errors:
        TerminalError where it was killed, those of the machine; nothing was run then.
        """
        last = max((n for n, one in enumerate(self._rows, 1) if not one.beside), default=0)
        history = [_beside(one.text) for one in self._rows[last:]]
        if typed := [*map(_by_itself, self.start.history), *map(self._again, self._rows[:last])]:
            history.insert(0, _ended("\n".join(typed)))
        return self._run(row, history, separate=separate, beside=True, seconds=wall_seconds)

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

    def since_start(self) -> Behavior:
        """What all rows did together, typed as `run` typed the last of them; of the output, that
        of the last row.
        """
        rows, last = self._rows, ":"
        if rows and not rows[-1].beside:
            rows, last = rows[:-1], rows[-1].text
        text = "\n".join([*map(self._again, rows), last])
        return self.machine.execute(text, self.start, typed=True, wall_seconds=self._patience(None))

    def before(self) -> Context:
        """The context in which it began: what the patch of `since_start` applies to."""
        state = replace(self.start, history=())
        for row in self.start.history:
            state = state.after(row, self.machine.execute(row, state, typed=True))
        return state.before

    def _run(
        self,
        row: str,
        history: Iterable[str],
        *,
        separate: bool,
        beside: bool,
        seconds: float | None,
    ) -> Behavior:
        Request(started(self.start.cwd, row)).argument()
        state = replace(self.start, history=tuple(history))
        behavior = self.machine.execute(
            f"( {_eval(row)} )" if beside else row,
            state,
            separate=separate,
            typed=True,
            wall_seconds=self._patience(seconds),
        )
        if beside and _was_killed(behavior):
            raise TerminalError(
                f"the shell that was to run {row!r:.60} was killed",
                hint="by what was typed before it: undo takes rows back",
            )
        if not behavior.timed_out:
            allowed = seconds or self.machine.limits.wall_seconds
            self._rows.append(_Row(row, behavior, beside, allowed))
            self._spent = self.machine.whole_seconds
        return behavior

    def _patience(self, seconds: float | None) -> float:
        """Seconds that a run may take: a row's own, and what those before it needed, which are all
        run again, and half of that for a machine that is busier now; never more than all of them
        were allowed. Whole ones, so that the same rows are remembered by the machine.
        """
        own = seconds or self.machine.limits.wall_seconds
        before = min(ceil(1.5 * self._spent), ceil(sum(row.allowed for row in self._rows)))
        return min(own + before, LARGEST["wall_seconds"])

    def _again(self, row: _Row) -> str:
        """A row as it is replayed in the shell in which rows are typed."""
        if not row.beside:
            return _by_itself(row.text)
        env = self.machine.context(self.start.cwd).document["env"]
        given = [f"{name}={value}" for name, value in env.items()]
        bash = ["/bin/bash", "--norc", "--noprofile", "-c", started(self.start.cwd, row.text)]
        command = shlex.join(["/usr/bin/env", "-i", *given, *bash])
        return f"{command} > /dev/null 2>&1 < /dev/null"


def _by_itself(row: str) -> str:
    """A row that has been typed, as it is replayed: what it printed is known, and would count."""
    return f"{_eval(row)} > /dev/null 2>&1"


def _eval(row: str) -> str:
    return f"eval {shlex.quote(row)}"


def _beside(row: str) -> str:
    """A row that was run beside, as it is replayed in another shell beside."""
    return f"( {_eval(row)} ) > /dev/null 2>&1"


def _ended(rows: str) -> str:
    """What was typed, in a shell that then ends with every process that it left behind."""
    return f"( {rows}\n) > /dev/null 2>&1 < /dev/null\nkill -9 -1 2> /dev/null; :"


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
        f"echo {number} $(/usr/bin/base64 -w0 < {shlex.quote(paths[number])})" for number in fits
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
