"""Functions put together of what each option means: the space in which meanings are looked for.

A language is what one kind of command does: listing files, walking trees, summing sizes up. A
language has meanings. Each changes one thing of what is done. Which option has which meaning is
nowhere written: it is found from records with that option (`shioenv_model.memory.interpret`).
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
"""What is to be done, put together of meanings: values by name."""

Directive: TypeAlias = Callable[["FormattedFile"], str | None]
"""What a directive of a format stands for; None where nobody knows it of a file."""


@dataclass(frozen=True)
class FormattedFile:
    """A file as a directive finds it."""

    path: str
    """The path as it is shown."""
    root: str
    """The operand that led to the file."""
    entry: FileEntry
    tree: Tree
    """The working directory of the command."""
    followed: FileEntry | None = None
    """Where the file is a link, what the link leads to."""

    @property
    def place(self) -> str:
        """The absolute path."""
        return self.tree.place(self.path)


@dataclass(frozen=True, eq=False)
class OptionMeaning:
    """One thing that an option may mean."""

    name: str
    change: Callable[[Plan, str], None]
    """Changes the plan, by the option's value. Errors: ValueError, LookupError for other values."""
    valued: bool = False
    format: bool = False
    """The value is a format, whose directives have meanings of their own."""


@dataclass(frozen=True, eq=False)
class Language:
    """What one kind of command does, and what its options may mean."""

    name: str
    meanings: tuple[OptionMeaning, ...]
    """Simple meanings first."""
    run: Callable[[Taken, Plan], Sequence[str] | None]
    """The parts of what is printed; None where nobody knows."""
    begins: Mapping[str, Any] = field(default_factory=dict)
    """What a command without options does already, as a plan says it."""
    words: Mapping[str, OptionMeaning] = field(default_factory=dict)
    """Operands that are no files, with what they mean."""
    directives: Mapping[str, Directive] = field(default_factory=dict)
    """What directives of formats may stand for."""
    rough: Mapping[str, Directive] = field(default_factory=dict)
    """What directives may stand for that the tree tells for most files only."""
    facts: Callable[[Taken, str], Iterable[tuple[str, FileEntry, str]]] | None = None
    """What a command without options shows of files that the tree does not tell.

    These are places, entries and what is shown, of a command and its output.
    """


class RefusedFile(str):
    """A message about a file, on standard error."""


@dataclass(frozen=True)
class Refusal:
    """What a command says of a file that is missing."""

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
    """What records show of files, by place and entry."""

    @property
    def name(self) -> str:
        """The interpretation's name where an answer is explained."""
        said = ", ".join(f"{option} {meaning.name}" for option, meaning in self.meanings)
        return f"{self.language.name}({said})"

    def __call__(self, taken: Taken) -> Kept | None:
        """What the command does; None where the interpretation does not apply."""
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
                    if plan.get("closed"):  # no operand may stand behind an expression
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
    """A change that sets one thing of a plan."""

    def change(plan: Plan, word: str) -> None:
        plan[name] = value

    return change


def valued(name: str, of: Callable[[str], Any] = str) -> Callable[[Plan, str], None]:
    """A change that sets one thing of a plan to an option's value."""

    def change(plan: Plan, word: str) -> None:
        plan[name] = of(word)

    return change


def nothing(plan: Plan, word: str) -> None:
    """A change that changes nothing."""


def refused(operand: Operand, plan: Plan) -> RefusedFile:
    """What is said of a file that is missing. Errors: ValueError where nobody knows."""
    refusal: Refusal | None = plan["refusal"]
    if refusal is None or operand.kind not in "mM":
        raise ValueError(operand.word)
    return RefusedFile(refusal.before + operand.word + refusal.after)
