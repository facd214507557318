"""A Bash program as a tree: what there is to be walked. Words stay as they are written.

`start` and `end` are places in the text that was read, in characters; `line` counts from 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Something that stands in a text. Two that say the same are equal, wherever they stand."""

    start: int = field(default=0, compare=False)
    end: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Redirect(Node):
    """One redirection; a here-document's text stands behind its end."""

    descriptor: int | str | None
    """The number before the operator, or the name in `{name}`; None where there is neither."""
    operator: str
    """As it is written; `<<` for both kinds of here-documents."""
    target: str
    """The word after it as it is written; of a here-document its text."""
    quoted: bool = False
    """A here-document in which nothing is expanded."""
    ended: bool = True
    """Whether a here-document has a line that ends it; Bash reads one that has none to the end."""


@dataclass(frozen=True, slots=True)
class Simple(Node):
    """A simple command: assignments, words and redirections, each in the order they are written."""

    assignments: tuple[str, ...]
    """Those before the first word; an array's with all that stands in its parentheses."""
    words: tuple[str, ...]
    redirects: tuple[Redirect, ...]
    line: int
    """On which line of the input it begins, from 1."""
    places: tuple[int, ...] = field(default=(), compare=False)
    """Where each assignment and each word begins; it ends behind as many characters as it has."""


@dataclass(frozen=True, slots=True)
class Verbatim(Node):
    """A command that is one expression: `[[ … ]]` and `(( … ))`, its whole text."""

    text: str
    line: int


@dataclass(frozen=True, slots=True)
class Group(Node):
    """`{ …; }`, or `( … )` in a shell of its own."""

    body: Program
    subshell: bool
    line: int


@dataclass(frozen=True, slots=True)
class If(Node):
    """Conditions, each with what follows from it; what else."""

    branches: tuple[tuple[Program, Program], ...]
    otherwise: Program


@dataclass(frozen=True, slots=True)
class While(Node):
    """`while`, or `until` where `wanted` is false."""

    condition: Program
    body: Program
    wanted: bool


@dataclass(frozen=True, slots=True)
class For(Node):
    """`for name in words`, or `select`; None where there is no `in`."""

    name: str
    words: tuple[str, ...] | None
    body: Program
    line: int
    menu: bool = False
    """Whether it is `select`."""
    places: tuple[int, ...] = field(default=(), compare=False)
    """Where each word begins."""


@dataclass(frozen=True, slots=True)
class Counting(Node):
    """`for ((first; condition; step))`."""

    expressions: tuple[str, str, str]
    body: Program
    line: int


@dataclass(frozen=True, slots=True)
class Case(Node):
    """`case word in …`: patterns, what follows, and how it ends (`;;`, `;&`, `;;&`)."""

    word: str
    items: tuple[tuple[tuple[str, ...], Program, str], ...]
    line: int


@dataclass(frozen=True, slots=True)
class Function(Node):
    """A definition; `text` is all of it."""

    name: str
    body: Command
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class Coprocess(Node):
    """`coproc`, with the name of its descriptors' array."""

    name: str
    body: Command
    line: int


@dataclass(frozen=True, slots=True)
class Redirected(Node):
    """A compound command with redirections."""

    command: Command
    redirects: tuple[Redirect, ...]


Command: TypeAlias = (
    Simple
    | Verbatim
    | Group
    | If
    | While
    | For
    | Counting
    | Case
    | Function
    | Coprocess
    | Redirected
)


@dataclass(frozen=True, slots=True)
class Pipeline(Node):
    """Commands between pipes; the single one of a pipeline without a pipe runs in the shell."""

    stages: tuple[Command, ...]
    """None of them where `!` or `time` stands alone."""
    merged: tuple[bool, ...]
    """For each pipe whether it is `|&`."""
    negated: bool
    timed: bool = False
    """Whether `time` stands before it."""


@dataclass(frozen=True, slots=True)
class Job:
    """Pipelines joined by `&&` and `||`, each with the operator before it; "" before the first."""

    pipelines: tuple[tuple[str, Pipeline], ...]
    background: bool
    end: int = 0
    """On which line ends what Bash reads at once with it; 0 inside of other commands."""


Program: TypeAlias = tuple[Job, ...]


@dataclass(frozen=True, slots=True)
class Substitution(Node):
    """`$(…)`, `<(…)`, `>(…)` or `` `…` ``."""

    program: Program
    """Empty for backquotes whose text Bash would refuse when it expands them."""
    shift: int = 0
    """What is added to the places in the program: those in backquotes count from the text between,
    of which backslashes are taken out first."""
