"""Run the rows of one session in machines, each of which runs all rows in one shell.

A record needs several runs of its row, and without machines, the history is run again for each of
them. A machine runs every row of the session once, and other inputs in copies of its shell. If no
machine can run a row, its history is repeated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from shioenv.domain.behavior import Behavior
from shioenv.domain.runner import Executing, Order, State
from shioenv.recording.volatility import disagree, races

Pass: TypeAlias = list[Behavior | None]
"""The behavior of each row of a session in one machine; None if the row's history has to be
repeated."""

_PLAIN: tuple[bool, Order] = (False, "as it comes")
_EAGER: tuple[bool, Order] = (False, "eager")

UNKNOWN = "a resident shell did not run it"
"""The reason for repeating a history if the machine gives none."""


class _Wrapping:
    """An executing runner that wraps the caller's runner."""

    _runner: Executing
    _machine: Any = None
    """The machine that stays open: a `SessionMachine`, perhaps of a lane."""

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

    def execute(self, shell_input: str, state: State | None = None, **how: Any) -> Behavior:
        """See `Executing.execute`."""
        return self._runner.execute(shell_input, state, **how)

    def close(self) -> None:
        """End the machine that is open; the runner belongs to the caller."""
        if self._machine is not None:
            self._machine.close()


class SessionPasses(_Wrapping):
    """An executing runner that answers one session's inputs from machines, and runs all others.

    A pass runs all rows in one machine. The n-th run of a row is taken from the n-th pass with the
    same channels and order. One pass with one pipe and one with two are enough, unless a row of the
    latter wrote to both pipes or behaved differently. Then a further pass runs the rows up to the
    last such row. Rows after one that behaved differently in another pass are volatile.

    With `forks` one machine stays open. It runs every input except the second run of each row.
    """

    def __init__(
        self,
        runner: Executing,
        rows: Sequence[str],
        open_session: Callable[..., Any],
        *,
        forks: bool = False,
    ) -> None:
        """`open_session` starts a machine, with `separate` and `order` as for `execute`."""
        self._runner, self._rows, self._open = runner, tuple(rows), open_session
        self._passes: dict[tuple[bool, Order], list[Pass]] = {}
        self._asked: Counter[tuple[int, bool, Order]] = Counter()
        self._forks = forks
        self._second: tuple[Pass, list[Behavior]] | None = None
        self.repeated: dict[int, str] = {}
        """Why a run of a row was repeated, by the row's number from 0."""

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
        known = state is not None and state.history == self._rows[:number]
        if known and self._forks and number and how.keys() <= {"wall_seconds"}:
            behavior = self._forked(number, shell_input, separate=separate, order=order, **how)
        elif (
            known and not (how or self._forks) and self._rows[number : number + 1] == (shell_input,)
        ):
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
        """Return a behavior after `number` rows, as volatile if a second machine's rows differed.

        None if one of the machines did not run these rows.
        """
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
        """Return the behavior of a row's next run in passes; None if it has to be repeated."""
        if not self._passes:
            self._begin()
        key = separate, order
        passes = self._passes.setdefault(key, [])
        count = self._asked[(number, *key)]
        self._asked[(number, *key)] += 1
        if self._passes[_PLAIN][0][number] is None:
            return None
        while len(passes) <= count:
            passes.append(self._pass(*key)[0])
        if number >= len(passes[count]):
            passes[count] = self._pass(*key)[0]
        return passes[count][number]

    def _begin(self) -> None:
        """Run the first passes.

        Rows that one pass lacks are left out of all passes. Rows after a row that behaved
        differently in the second pass are volatile.
        """
        first, split = self._pass(*_PLAIN)[0], self._pass(True, "as it comes")[0]
        steady, unsure = True, 0
        for number, (one, other) in enumerate(zip(first, split, strict=True)):
            if one is None or other is None:
                first[number] = split[number] = None
                continue
            if not steady:
                first[number], split[number] = (
                    replace(each, volatile=True) for each in (one, other)
                )
            steady = steady and not disagree(one, other)
            if (other.stdout and other.stderr) or disagree(one, other, ordered=True):
                unsure = number + 1
        self._passes = {_PLAIN: [first], (True, "as it comes"): [split]}
        if unsure and races("\n".join(self._rows)):
            self._passes[_EAGER] = [self._pass(*_EAGER)[0]]
            self._passes[_PLAIN] += self._passes[_EAGER]
        elif unsure:
            self._passes[_PLAIN].append(self._pass(*_PLAIN, rows=unsure)[0])

    def _pass(
        self, separate: bool, order: Order, *, rows: int | None = None
    ) -> tuple[Pass, list[Behavior]]:
        """Run all rows, or the first ones.

        Return the behavior of each (None: to be repeated), and those of the rows that ran.
        """
        machine = self._open(self._rows, separate=separate, order=order)
        try:
            ran = [machine.row(number) for number in range(rows or len(self._rows))]
            for number, why in machine.why.items():
                if number < len(ran) and ran[number] is None:
                    self.repeated.setdefault(number, why)
            return ran, machine.passed
        finally:
            machine.close()


class JointRuns(_Wrapping):
    """An executing runner for any input; inputs made of one session's rows run in shell copies.

    Such an input begins with rows of the session and ends with a part of the next row. It runs in a
    copy of the shell that ran these rows. The n-th run of the first rows is taken from the n-th
    machine. Each machine runs all rows.
    """

    def __init__(
        self, runner: Executing, rows: Sequence[str], open_session: Callable[..., Any]
    ) -> None:
        """`open_session` starts a machine, with `joint` as for `SessionMachine`."""
        self._runner, self._rows = runner, tuple(rows)
        self._open = partial(open_session, self._rows, joint=True)
        self._joint: list[Pass] = []
        self._asked: Counter[int] = Counter()

    def execute(self, shell_input: str, state: State | None = None, **how: Any) -> Behavior:
        """See `Executing.execute`."""
        if state is not None and not state.history and how.keys() <= {"wall_seconds"}:
            number, rest = 0, shell_input
            while number < len(self._rows) and rest.startswith(f"{self._rows[number]}\n"):
                rest = rest[len(self._rows[number]) + 1 :]
                number += 1
            behavior = self._run(number, rest, how) if number < len(self._rows) else None
            if behavior is not None:
                return behavior
        return self._runner.execute(shell_input, state, **how)

    def _run(self, number: int, text: str, how: dict[str, Any]) -> Behavior | None:
        """Run a text after the first rows; None if it has to run by itself."""
        if self._machine is None:
            self._machine = self._open(nodes=True)
            self._joint.append(self._pass(self._machine))
        if self._rows[number] == text and not how:
            place = self._asked[number]
            self._asked[number] += 1
            if self._joint[0][number] is not None:
                while len(self._joint) <= place:
                    machine = self._open()
                    self._joint.append(self._pass(machine))
                    machine.close()
                behavior = self._joint[place][number]
                if behavior is not None:
                    return behavior
        return self._machine.run(number, text, **how) if number else None

    def _pass(self, machine: Any) -> Pass:
        """Run all rows, and return the joint behavior of each and the rows before."""
        last = len(self._rows) - 1
        machine.row(last)
        return [machine.joint(number) for number in range(last + 1)]
