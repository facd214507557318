"""Answer the rows of one session from passes of resident shells, each of which runs all rows.

A record rests on several runs of its row. Repetition runs the history again for each of them; a
pass runs every row of the session once. Rows that no resident shell carries are repeated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from shioenv.domain.behavior import Behavior
from shioenv.domain.runner import Executing, Order, State
from shioenv.recording.volatility import disagree

Pass: TypeAlias = list[Behavior | None]
"""The behavior of each row of a session; None for a row that has to be repeated."""


class SessionPasses:
    """An executing runner that answers one session's rows from passes, and runs everything else.

    The n-th run of a row is taken from the n-th pass with the same channels and the same order. The
    first row of a shell has no history, so it is run like every single input. If an earlier row did
    something else in the second pass, the later rows are volatile.
    """

    def __init__(
        self,
        runner: Executing,
        rows: Sequence[str],
        run_rows: Callable[..., Pass],
    ) -> None:
        """`run_rows` runs all rows in one shell, with `separate` and `order` as for `execute`."""
        self._runner, self._rows, self._run_rows = runner, tuple(rows), run_rows
        self._passes: dict[tuple[bool, Order], list[Pass]] = {}
        self._asked: Counter[tuple[int, bool, Order]] = Counter()
        self.repeated: set[int] = set()
        """The rows of which a run was repeated, from 0."""

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
        is_row = (
            number > 0
            and state is not None
            and not how
            and (*state.history, shell_input) == self._rows[: number + 1]
        )
        if is_row:
            behavior = self._passed(number, separate, order)
            if behavior is not None:
                return behavior
            self.repeated.add(number)
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
        """Do nothing: the runner belongs to the caller."""

    def _followed(self, shell_input: str, state: State, number: int) -> Behavior | None:
        """Run a row followed by further lines with its history, as one input.

        Only the output is that after the history. None if the passes do not know what the history
        printed.
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
        key = separate, order
        passes = self._passes.setdefault(key, [])
        if not passes and key != (False, "as it comes") and self._first(number) is None:
            return None
        count = self._asked[(number, *key)]
        self._asked[(number, *key)] += 1
        if key == (False, "as it comes") and not passes:
            passes += _compared([self._pass(separate, order) for _ in range(2)])
        while len(passes) <= count:
            passes.append(self._pass(separate, order))
        return passes[count][number]

    def _first(self, number: int) -> Behavior | None:
        """Return the behavior of a row in the first pass of all."""
        passes = self._passes.get((False, "as it comes"))
        return passes[0][number] if passes else None

    def _pass(self, separate: bool, order: Order) -> Pass:
        return self._run_rows(self._rows, separate=separate, order=order)


def _compared(passes: list[Pass]) -> list[Pass]:
    """Return two passes, with rows that only one of them has left out of both.

    The rows after one that did something else in the second pass are volatile in both.
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
