"""A shell that goes on from row to row, goes back, and forks: rows are replayed.

Nothing is kept running. A row is executed on the pristine system after all rows before it, so that
going back is forgetting rows, and a fork is a copy of the list.
"""

from __future__ import annotations

import shlex
from base64 import b64decode
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Protocol

from shioenv.domain.behavior import Behavior
from shioenv.domain.context import Context
from shioenv.domain.names import name_bytes
from shioenv.domain.runner import Executing, Pristine, State
from shioenv.errors import UsageError


class Machine(Executing, Pristine, Protocol):
    """One that executes, whose pristine machine can be looked at: what `open_sandbox` gives."""


class Terminal:
    """A shell in a start directory of a machine, once a history was typed there.

    `run` types a row. Each is read by itself: what is wrong with one (a quote that is not closed)
    does not reach into the next. Rows share all that a shell keeps: directory, variables,
    functions, files. After `exit` or `exec` nothing runs any more, as in any shell; what `exec`
    alone redirects is so for its own row only (ours: rows that were typed print nothing again). A
    row that runs out of time is taken back, with all that it did (ours: Ctrl-C, and nothing half
    done).

    The machine is shared between forks and stays its owner's.
    """

    def __init__(self, machine: Machine, cwd: str, history: Iterable[str] = ()) -> None:
        self.machine = machine
        self.start = State(cwd=cwd, history=tuple(history), pristine=machine)
        """Where it began."""
        self._rows: list[tuple[str, Behavior]] = []

    @property
    def rows(self) -> list[str]:
        """What was typed and counts, in order."""
        return [text for text, _ in self._rows]

    @property
    def behaviors(self) -> list[Behavior]:
        """What each row did."""
        return [behavior for _, behavior in self._rows]

    @property
    def printed(self) -> bytes:
        """The output of the last row that counts; nothing where there is none."""
        return self._rows[-1][1].output if self._rows else b""

    def run(self, row: str, *, separate: bool = False) -> Behavior:
        """What a row does after the others; `separate` as `Executing.execute` takes it.

        Errors: those of the machine, and nothing was typed.
        """
        history = (*self.start.history, *map(_by_itself, self.rows))
        state = replace(self.start, history=history)
        behavior = self.machine.execute(row, state, separate=separate)
        if not behavior.timed_out:
            self._rows.append((row, behavior))
        return behavior

    def undo(self, count: int = 1) -> None:
        """Takes back so many rows. Errors: UsageError where there are fewer."""
        if not 0 <= count <= len(self._rows):
            raise UsageError(f"{count} rows cannot be taken back: there are {len(self._rows)}")
        del self._rows[len(self._rows) - count :]

    def fork(self) -> Terminal:
        """Another terminal in which the same was typed; from here on they go separate ways."""
        other = Terminal(self.machine, self.start.cwd, self.start.history)
        other._rows = list(self._rows)
        return other

    def since_start(self) -> Behavior:
        """What all rows did together, typed as `run` typed the last of them; of the output, that
        of the last row.
        """
        *typed, last = self.rows or [":"]
        return self.machine.run("\n".join([*map(_by_itself, typed), last]), self.start)

    def before(self) -> Context:
        """The context in which it began: what the patch of `since_start` applies to."""
        state = replace(self.start, history=())
        for row in self.start.history:
            state = state.after(row, self.machine.run(row, state))
        return state.before


def _by_itself(row: str) -> str:
    """A row that has been typed, as it is replayed: what it printed is known, and would count."""
    return f"eval {shlex.quote(row)} > /dev/null 2>&1"


def contents(terminal: Terminal, names: Iterable[str]) -> Mapping[str, bytes]:
    """What regular files hold after all rows, by their names in `fs`; those that can be read.

    Told by a row of a fork: base64 passes any byte.
    """
    wanted = list(names)
    if not wanted:
        return {}
    paths = [name_bytes(name).decode("utf-8", "surrogateescape") for name in wanted]
    fits = [number for number, path in enumerate(paths) if _is_text(path)]
    start = shlex.quote(terminal.start.cwd)
    row = "\n".join(
        f"echo {number} $(\\cd {start} && /usr/bin/base64 -w0 < {shlex.quote(paths[number])})"
        for number in fits
    )
    told = terminal.fork().run(f"exec 2> /dev/null\n{row}").output
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
