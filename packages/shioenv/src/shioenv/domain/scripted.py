"""A runner with scripted answers that records its calls, for tests and examples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from shioenv.domain.behavior import Behavior
from shioenv.domain.context import FIELDS, Context
from shioenv.domain.runner import Order, State
from shioenv.errors import Abstained
from shioenv.text import short_repr


class ScriptedSystem(NamedTuple):
    """A placeholder system for scripted runners: a name and a digest."""

    name: str = "scripted"
    digest: str = "0" * 64


class Asked(NamedTuple):
    """The arguments of one execution."""

    text: str
    state: State | None
    separate: bool
    wall_seconds: float | None
    sandboxes: int | None = None
    order: Order = "as it comes"


class ScriptedRunner:
    """Answers each input from a table, else from a function; see `Runner` and `Executing`.

    The function takes the input without its `cd`, and returns a behavior or None. The runner
    abstains if neither has an answer. With separate channels all output is standard output. `asked`
    lists every execution. `closed` counts the calls of `close`.
    """

    system = ScriptedSystem()
    seconds = 0.0
    waited = False

    def __init__(
        self,
        answer: Callable[[str], Behavior | None] | None = None,
        table: Mapping[str, Behavior] | None = None,
    ) -> None:
        self.table = dict(table or {})
        self.asked: list[Asked] = []
        self.closed = 0
        self._answer = answer

    def __repr__(self) -> str:
        return short_repr(self, {"table": self.table, "asked": len(self.asked)})

    @property
    def texts(self) -> list[str]:
        """The executed inputs, in order."""
        return [asked.text for asked in self.asked]

    def run(self, shell_input: str, state: State | None = None) -> Behavior:
        """Return the scripted answer. Errors: Abstained."""
        return self.execute(shell_input, state)

    def execute(
        self,
        shell_input: str,
        state: State | None = None,
        *,
        separate: bool = False,
        wall_seconds: float | None = None,
        sandboxes: int | None = None,
        order: Order = "as it comes",
    ) -> Behavior:
        """Return the scripted answer and add the arguments to `asked`. Errors: Abstained."""
        self.asked.append(Asked(shell_input, state, separate, wall_seconds, sandboxes, order))
        behavior = self.table.get(shell_input) or self.answer_to(self.asked[-1])
        if behavior is None:
            raise Abstained(
                f"the script has no answer to {shell_input!r:.80}",
                hint="add one to its table, or use a function",
            )
        if separate and behavior.stdout is None:
            behavior = replace(behavior, stdout=behavior.output, stderr=b"")
        return behavior

    def answer_to(self, asked: Asked) -> Behavior | None:
        """Return an answer that the table lacks. A subclass may use more than the text."""
        return None if self._answer is None else self._answer(asked.text)

    def context(self, cwd: str | None = None) -> Context:
        """Return a context in which all objects are empty, except the working directory."""
        objects = {"env", "fs", "shell_options", "settings", "functions", "aliases", "limits"}
        document = {name: {} if name in objects else "" for name in FIELDS}
        document |= {"cwd": cwd or "/", "groups": [], "firewall": [], "network": {}}
        return Context(document)

    def close(self) -> None:
        """Count the call; there is nothing to free."""
        self.closed += 1
