"""What a command does, by a function found from records: the first of four ways that finds one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from shioenv_model.memory.explain import ENOUGH, Induction, parts
from shioenv_model.memory.interpret import Interpreted, Interpreter
from shioenv_model.memory.rewrite import Kept, Taken
from shioenv_model.memory.samples import Matching, WithOption
from shioenv_model.memory.tables import ShownTable, Tables

Examples: TypeAlias = Callable[[Taken, int], tuple[list[int], list[tuple[Taken, Kept]]]]
"""Gives the records of commands with just these options: numbers, and commands with what they did.

The record of the number that is given is left out.
"""


@dataclass(frozen=True, slots=True)
class Induced:
    """What a function says that a command does."""

    asked: Taken
    """The command, or its first part where functions were put together."""
    kept: Kept
    name: str
    """The function's name."""
    agreed: int
    """How many records the function explains."""
    number: int
    """One of these records."""


class Inducer:
    """Looks for a function: of files, of tables, of texts, of texts for each option alone."""

    def __init__(self, examples: Examples, with_option: WithOption, matching: Matching) -> None:
        self._examples = examples
        self._interpreter = Interpreter(with_option, matching)
        self._tables = Tables(matching)
        self._induction = Induction()

    def induce(self, ours: Taken, without: int) -> Induced | None:
        """What a command does by the first function that is found; None without one.

        The record `without` is left out.
        """
        meant: Interpreted | ShownTable | None = self._interpreter.interpret(ours, without)
        if meant is None:
            meant = self._tables.put_together(ours, without)
        if meant is not None:
            return Induced(ours, meant.kept, meant.name, meant.agreed, meant.number)
        numbers, examples = self._examples(ours, without)
        found, asked = self._induction.explain(ours, examples), ours
        if len(ours.form.options) > 1 and (found is None or found.agreed < ENOUGH):
            combined = self._induction.combine(ours, self._beside(without))
            # what each option means alone goes before what a few records with all options say
            if combined is not None and (
                found is None
                or self._induction.agreed(combined.function, ours, examples) >= found.agreed
            ):
                found, asked = combined, parts(ours)[0]
                numbers, examples = self._examples(asked, without)
        if found is None:
            return None
        kept = Kept(found.exit_code, found.output, "[]")
        return Induced(asked, kept, found.function.name, found.agreed, numbers[0])

    def _beside(self, without: int) -> Callable[[Taken], Sequence[tuple[Taken, Kept]]]:
        return lambda each: self._examples(each, without)[1]
