"""Run the rows of one session in machines, each of which runs all rows in one shell.

A record needs several runs of its row, and without machines, the history is run again for each of
them. A machine runs every row of the session once, and other inputs in copies of its shell. If no
machine can run a row, its history is repeated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeAlias

from shioenv.domain.behavior import Behavior
from shioenv.domain.runner import Executing, Order, State
from shioenv.recording.volatility import disagree

Pass: TypeAlias = list[Behavior | None]
"""The behavior of each row of a session in one machine; None if the row's history has to be
repeated."""

UNKNOWN = "a resident shell did not run it"
"""The reason for repeating a history if the machine gives none."""


class RowMachine(Protocol):
    """A session's machine: `shioenv.behavior.sessions.SessionMachine`."""

    @property
    def passed(self) -> list[Behavior]:
        """The behavior of each row that ran as a line of the resident shell."""
        ...

    @property
    def why(self) -> dict[int, str]:
        """Why the history of a row, or of an input in its place, has to be repeated."""
        ...

    def row(self, number: int) -> Behavior | None:
        """Return the behavior of a row; None if its history has to be repeated."""
        ...

    def run(
        self,
        number: int,
        text: str,
        *,
        separate: bool = False,
        order: Order = "as it comes",
        wall_seconds: float | None = None,
    ) -> Behavior | None:
        """Run an input in place of a row; None if the history has to be repeated."""
        ...

    def close(self) -> None:
        """End the machine."""
        ...


class SessionPasses:
    """An executing runner that runs one session's inputs in machines, and passes on all others.

    The n-th run of a row is taken from the n-th pass with the same channels and the same order. The
    first row of a shell has no history, so it is run like every single input. If a row behaved
    differently in the second pass, all later rows are volatile.

    With `forks` one machine stays open. It runs every input, except the second run of each row.
    """

    def __init__(
        self,
        runner: Executing,
        rows: Sequence[str],
        open_session: Callable[..., RowMachine],
        *,
        forks: bool = False,
    ) -> None:
        """`open_session` starts a machine, with `separate` and `order` as for `execute`."""
        self._runner, self._rows, self._open = runner, tuple(rows), open_session
        self._passes: dict[tuple[bool, Order], list[Pass]] = {}
        self._asked: Counter[tuple[int, bool, Order]] = Counter()
        self._forks = forks
        self._machine: RowMachine | None = None
        self._second: tuple[Pass, list[Behavior]] | None = None
        self.repeated: dict[int, str] = {}
        """Why the history was repeated for a row, by the row's number from 0."""

    @property
    def seconds(self) -> float:
        """See `Executing.seconds`."""
        return self._runner.seconds

    @property
    def waited(self) -> bool:
        """See `Executing.waited`."""
        return self._runner.waited

    def run(self, shell_input: str, state: State | None = None) -> Behavior:
        """See `Runner.run`."""
        return self.execute(shell_input, state)

    def execute(
        self,
        shell_input: str,
        state: State | None = None,
        *,
        separate: bool = False,
        order: Order = "as it comes",
        **how: Any,
    ) -> Behavior:
        """See `Executing.execute`."""
        number = len(state.history) if state else 0
        known = number > 0 and state is not None and state.history == self._rows[:number]
        if known and self._forks and how.keys() <= {"wall_seconds"}:
            behavior = self._forked(number, shell_input, separate=separate, order=order, **how)
        elif known and not how and self._rows[number : number + 1] == (shell_input,):
            behavior = self._passed(number, separate, order)
        else:
            known, behavior = False, None
        if behavior is not None:
            return behavior
        if known:
            self.repeated.setdefault(number, UNKNOWN)
        elif state is not None and not (how or separate or order != "as it comes"):
            joint = self._followed(shell_input, state, number)
            if joint is not None:
                return joint
        if separate:
            how["separate"] = True
        if order != "as it comes":
            how["order"] = order
        return self._runner.execute(shell_input, state, **how)

    def close(self) -> None:
        """End the machine that is open; the runner belongs to the caller."""
        if self._machine is not None:
            self._machine.close()

    def _forked(self, number: int, text: str, **how: Any) -> Behavior | None:
        """Run an input after rows, in a copy of the shell that ran them."""
        if self._machine is None:
            self._machine = self._open(self._rows)
        is_row = self._rows[number : number + 1] == (text,)
        if is_row and how == {"separate": False, "order": "as it comes"}:
            self._asked[(number, False, "as it comes")] += 1
            if self._asked[(number, False, "as it comes")] == 2 and self._second:
                again = self._second[0][number]
                if again is not None:
                    return self._settled(number, again)
        behavior = self._machine.run(number, text, **how)
        if behavior is None:
            self.repeated.setdefault(number, self._machine.why.get(number, UNKNOWN))
            return None
        return self._settled(number, behavior)

    def _settled(self, number: int, behavior: Behavior) -> Behavior | None:
        """Return a behavior after rows, as volatile if a second machine's rows behaved differently.

        None if one of the machines did not run these rows.
        """
        assert self._machine is not None
        if self._second is None:
            self._second = self._pass(False, "as it comes")
        first, other = self._machine.passed[:number], self._second[1][:number]
        if min(len(first), len(other)) < number:
            return None
        steady = not any(disagree(*pair, ordered=True) for pair in zip(first, other, strict=True))
        return behavior if steady else replace(behavior, volatile=True)

    def _followed(self, shell_input: str, state: State, number: int) -> Behavior | None:
        """Run a row followed by further lines with its history, as one input.

        The output is only what was printed after the history. None if the passes do not know what
        the history printed.
        """
        passes = self._passes.get((False, "as it comes"))
        row = "\n".join((*state.history, shell_input))
        known = "\n".join((*self._rows[: number + 1], ""))
        if not number or not passes or not row.startswith(known):
            return None
        printed = [behavior.output for behavior in passes[0][: number + 1] if behavior is not None]
        if len(printed) <= number:
            return None
        behavior = self._runner.execute(row, replace(state, history=()))
        above = b"".join(printed[:number])
        if not behavior.output.startswith(above):
            return None
        return replace(behavior, output=behavior.output[len(above) :])

    def _passed(self, number: int, separate: bool, order: Order) -> Behavior | None:
        """Return the behavior of a row's next run in passes; None to repeat its history."""
        key = separate, order
        passes = self._passes.setdefault(key, [])
        if not passes and key != (False, "as it comes") and self._first(number) is None:
            return None
        count = self._asked[(number, *key)]
        self._asked[(number, *key)] += 1
        if key == (False, "as it comes") and not passes:
            passes += _compared([self._pass(separate, order)[0] for _ in range(2)])
        while len(passes) <= count:
            passes.append(self._pass(separate, order)[0])
        return passes[count][number]

    def _first(self, number: int) -> Behavior | None:
        """Return the behavior of a row in the very first pass."""
        passes = self._passes.get((False, "as it comes"))
        return passes[0][number] if passes else None

    def _pass(self, separate: bool, order: Order) -> tuple[Pass, list[Behavior]]:
        """Run all rows; return their behaviors, and those as lines of a resident shell."""
        machine = self._open(self._rows, separate=separate, order=order)
        try:
            rows = [machine.row(number) for number in range(len(self._rows))]
            for number, why in machine.why.items():
                if number < len(rows) and rows[number] is None:
                    self.repeated.setdefault(number, why)
            return rows, machine.passed
        finally:
            machine.close()


def _compared(passes: list[Pass]) -> list[Pass]:
    """Return two passes, without rows that only one of them has.

    All rows after one that behaved differently in the second pass are volatile in both.
    """
    steady = True
    kept: list[Pass] = [[] for _ in passes]
    for first, other in zip(*passes, strict=True):
        if first is None or other is None:
            for each in kept:
                each.append(None)
            continue
        for each, behavior in zip(kept, (first, other), strict=True):
            each.append(behavior if steady else replace(behavior, volatile=True))
        steady = steady and not disagree(first, other, ordered=True)
    return kept
