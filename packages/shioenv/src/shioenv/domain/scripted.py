"""A runner that answers from a script and remembers what it was asked: for tests and examples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from shioenv.domain.behavior import Behavior
from shioenv.domain.context import FIELDS, Context
from shioenv.domain.runner import Order, State
from shioenv.errors import Abstained


class ScriptedSystem(NamedTuple):
    """The name and the digest of the system that a script has none of."""

    name: str = "scripted"
    digest: str = "0" * 64


class Asked(NamedTuple):
    """One execution that was asked for."""

    text: str
    state: State | None
    separate: bool
    wall_seconds: float | None
    sandboxes: int | None = None
    order: Order = "as it comes"


class ScriptedRunner:
    """Answers each input by a table, else by a function; see `Runner` and `Executing`.

    The function is given the input without its `cd`, and gives a behavior or None. The runner
    abstains where the table has no answer and no function gives one. With separate channels all
    output is standard output. `asked` lists every execution. `closed` counts the calls of `close`.
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

    @property
    def texts(self) -> list[str]:
        """The inputs that were asked for, in order."""
        return [asked.text for asked in self.asked]

    def run(self, shell_input: str, state: State | None = None) -> Behavior:
        """The script's answer. Errors: Abstained."""
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
        """The script's answer, which `asked` notes with these settings. Errors: Abstained."""
        self.asked.append(Asked(shell_input, state, separate, wall_seconds, sandboxes, order))
        behavior = self.table.get(shell_input) or self.answer_to(self.asked[-1])
        if behavior is None:
            raise Abstained(
                f"the script has no answer to {shell_input!r:.80}",
                hint="give it a table that has one, or a function",
            )
        if separate and behavior.stdout is None:
            behavior = replace(behavior, stdout=behavior.output, stderr=b"")
        return behavior

    def answer_to(self, asked: Asked) -> Behavior | None:
        """The answer that the table does not have. A subclass may use more than the text for it."""
        return None if self._answer is None else self._answer(asked.text)

    def context(self, cwd: str | None = None) -> Context:
        """A context whose every object is empty, but for the working directory."""
        objects = {"env", "fs", "shell_options", "settings", "functions", "aliases", "limits"}
        document = {name: {} if name in objects else "" for name in FIELDS}
        document |= {"cwd": cwd or "/", "groups": [], "firewall": [], "network": {}}
        return Context(document)

    def close(self) -> None:
        """Counts the call, and does nothing else."""
        self.closed += 1
