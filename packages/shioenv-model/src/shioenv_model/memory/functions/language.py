"""Candidate meanings of options. One of them is inferred for each option.

A *language* describes one kind of command: listing files, walking trees, summing sizes. It has
candidate meanings, each of which changes one aspect of the command. The meaning of an option is
inferred from records with that option (`shioenv_model.memory.interpret`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from shioenv.domain.context import FileEntry
from shioenv.domain.patch import ContextPatch
from shioenv_model.memory.facts import Operand, Tree
from shioenv_model.memory.rewrite import Kept, Taken

Plan: TypeAlias = dict[str, Any]
"""The effects of a command's options, combined: values by name."""

Directive: TypeAlias = Callable[["FormattedFile"], str | None]
"""The value of a format directive for a file; None if it is unknown."""


@dataclass(frozen=True)
class FormattedFile:
    """A file as passed to a directive."""

    path: str
    """The path as printed."""
    root: str
    """The operand under which the file was found."""
    entry: FileEntry
    tree: Tree
    """The working directory of the command."""
    followed: FileEntry | None = None
    """The target's entry, if the file is a symbolic link."""

    @property
    def place(self) -> str:
        """The absolute path."""
        return self.tree.place(self.path)


@dataclass(frozen=True, eq=False)
class OptionMeaning:
    """One candidate meaning of an option."""

    name: str
    change: Callable[[Plan, str], None]
    """Apply the meaning to a plan. Errors: ValueError, LookupError for invalid values."""
    valued: bool = False
    format: bool = False
    """Whether the value is a format, whose directives have meanings too."""


@dataclass(frozen=True, eq=False)
class Language:
    """A kind of command, and the candidate meanings of its options."""

    name: str
    meanings: tuple[OptionMeaning, ...]
    """The candidate meanings, simple ones first."""
    run: Callable[[Taken, Plan], Sequence[str] | None]
    """Runs the plan and returns the parts of the output; None if the output is unknown."""
    begins: Mapping[str, Any] = field(default_factory=dict)
    """The plan of a command without options."""
    words: Mapping[str, OptionMeaning] = field(default_factory=dict)
    """Operands that are not files, with their meanings."""
    directives: Mapping[str, Directive] = field(default_factory=dict)
    """Candidate directives of formats."""
    rough: Mapping[str, Directive] = field(default_factory=dict)
    """Candidate directives whose values follow from the tree only for most files."""
    facts: Callable[[Taken, str], Iterable[tuple[str, FileEntry, str]]] | None = None
    """Extract facts about files that the tree lacks from the output of a command without options.

    Each fact has a path, an entry and the printed value. The parameters are the command and its
    output.
    """


class RefusedFile(str):
    """An error message about a file, on standard error."""


@dataclass(frozen=True)
class Refusal:
    """A command's error message for a missing file."""

    before: str
    """The message up to the file's name."""
    after: str
    exit_code: int


@dataclass(frozen=True)
class Interpretation:
    """A language, with the meaning of each option of a command."""

    language: Language
    meanings: tuple[tuple[str, OptionMeaning], ...]
    directives: Mapping[str, Directive] = field(default_factory=dict)
    refusal: Refusal | None = None
    facts: Mapping[tuple[str, FileEntry], str] = field(default_factory=dict)
    """Facts about files as printed in records, by each file's path and entry."""

    @property
    def name(self) -> str:
        """The interpretation's name in explanations."""
        said = ", ".join(f"{option} {meaning.name}" for option, meaning in self.meanings)
        return f"{self.language.name}({said})"

    def __call__(self, taken: Taken) -> Kept | None:
        """Predict the command's behavior; None if the interpretation does not apply."""
        meanings = dict(self.meanings)
        plan = Plan(
            operands=[], directives=self.directives, refusal=self.refusal, facts=self.facts,
            operations=[], **self.language.begins,
        )  # fmt: skip
        operands = {each.word: each for each in taken.operands}
        try:
            for name, value in taken.form.order:
                word = value or ""
                if name:
                    meanings[name].change(plan, word)
                elif word in self.language.words:
                    self.language.words[word].change(plan, "")
                else:
                    plan["operands"].append(operands[word])
                    if plan.get("closed"):  # operands may not follow an expression
                        return None
            parts = self.language.run(taken, plan)
        except (ValueError, LookupError, ArithmeticError):
            return None
        if parts is None:
            return None
        errors = [each for each in parts if isinstance(each, RefusedFile)]
        output, error = "".join(parts), "".join(errors)
        patch = ContextPatch(tuple(plan["operations"])).to_json()
        if not errors or self.refusal is None:
            return Kept(0, output, patch)
        said = "".join(each for each in parts if not isinstance(each, RefusedFile))
        channels = (said, error) if said else None
        return Kept(self.refusal.exit_code, output, patch, channels, is_error=not said)


def flag(name: str, value: Any = True) -> Callable[[Plan, str], None]:
    """Return a change that sets one value of a plan."""

    def change(plan: Plan, word: str) -> None:
        plan[name] = value

    return change


def set_to_value(name: str, of: Callable[[str], Any] = str) -> Callable[[Plan, str], None]:
    """Return a change that sets one value of a plan to an option's value."""

    def change(plan: Plan, word: str) -> None:
        plan[name] = of(word)

    return change


def unchanged_plan(plan: Plan, word: str) -> None:
    """Leave the plan unchanged."""


def missing_file_error(operand: Operand, plan: Plan) -> RefusedFile:
    """Return the error message for a missing file. Errors: ValueError if it is unknown."""
    refusal: Refusal | None = plan["refusal"]
    if refusal is None or operand.kind not in "mM":
        raise ValueError(operand.word)
    return RefusedFile(refusal.before + operand.word + refusal.after)
