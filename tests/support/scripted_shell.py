"""A shell that answers from a table, or prints the words of its line."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shioenv.domain.behavior import Behavior
from shioenv.domain.runner import ScriptedCall, ScriptedRunner


class ScriptedShell(ScriptedRunner):
    """Prints the table's output for a line, else each distinct word of it, fifty times each."""

    def __init__(
        self, table: Mapping[str, Behavior] | None = None, fails: BaseException | None = None
    ) -> None:
        super().__init__(table=table)
        self.fails = fails

    def answer_to(self, asked: ScriptedCall) -> Behavior | None:
        if self.fails is not None:
            raise self.fails
        words = dict.fromkeys(asked.text.split())
        return Behavior(0, "".join(f"{word * 50}\n" for word in words).encode())


class Opener:
    """Opens scripted shells and keeps them; picklable as long as none was opened."""

    def __init__(self, make: Callable[[], ScriptedShell] = ScriptedShell) -> None:
        self.make = make
        self.opened: list[ScriptedShell] = []

    def __call__(self) -> ScriptedShell:
        self.opened.append(self.make())
        return self.opened[-1]
