"""A Bash program as a tree of commands. Words stay as they are written.

`start` and `end` are places in the text that was read, in characters. `line` counts from 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A part of a text. Nodes that say the same are equal, wherever they stand."""

    start: int = field(default=0, compare=False)
    end: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Redirect(Node):
    """One redirection. The text of a here-document stands behind the node's end."""

    descriptor: int | str | None
    """The number before the operator, or the name in `{name}`; None where there is neither."""
    operator: str
    """As it is written; `<<` for both kinds of here-documents."""
    target: str
    """The word after the operator as it is written; of a here-document its text."""
    quoted: bool = False
    """Whether this is a here-document in which nothing is expanded: its delimiter is quoted."""
    ended: bool = True
    """Whether a here-document has a line that ends it. Without, Bash reads to the text's end."""


@dataclass(frozen=True, slots=True)
class Simple(Node):
    """A simple command: assignments, words and redirections, each in the order they are written."""

    assignments: tuple[str, ...]
    """The assignments before the first word; that of an array with its parentheses."""
    words: tuple[str, ...]
    redirects: tuple[Redirect, ...]
    line: int
    """The line of the input on which the command begins, from 1."""
    places: tuple[int, ...] = field(default=(), compare=False)
    """Where each assignment and then each word begins, in characters; its length says its end."""


@dataclass(frozen=True, slots=True)
class Verbatim(Node):
    """A command that is one expression: `[[ … ]]` and `(( … ))`, its whole text."""

    text: str
    line: int
    parts: tuple[str, ...] = ()
    """Of a `[[ … ]]`: its words and operators in order, brackets left out."""


@dataclass(frozen=True, slots=True)
class Group(Node):
    """`{ …; }`, or `( … )` in a shell of its own."""

    body: Program
    subshell: bool
    line: int


@dataclass(frozen=True, slots=True)
class If(Node):
    """`if` and `elif`: conditions, each with its program; `otherwise` is empty without `else`."""

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
    """`for name in words`, or `select`; `words` is None where there is no `in`."""

    name: str
    words: tuple[str, ...] | None
    body: Program
    line: int
    menu: bool = False
    """Whether it is `select`."""
    places: tuple[int, ...] = field(default=(), compare=False)
    """Where each word begins, in characters."""


@dataclass(frozen=True, slots=True)
class Counting(Node):
    """`for ((first; condition; step))`."""

    expressions: tuple[str, str, str]
    body: Program
    line: int


@dataclass(frozen=True, slots=True)
class Case(Node):
    """`case word in …`: each item's patterns, its program and its end (`;;`, `;&`, `;;&`)."""

    word: str
    items: tuple[tuple[tuple[str, ...], Program, str], ...]
    line: int


@dataclass(frozen=True, slots=True)
class Function(Node):
    """The definition of a function; `text` is the whole definition."""

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
    """Commands between pipes. Without a pipe, the single command runs in the shell itself."""

    stages: tuple[Command, ...]
    """Empty where `!` or `time` stands alone."""
    merged: tuple[bool, ...]
    """For each pipe whether it is `|&`."""
    negated: bool
    timed: bool = False
    """Whether `time` stands before the pipeline."""


@dataclass(frozen=True, slots=True)
class Job:
    """Pipelines joined by `&&` and `||`, each with the operator before it; "" before the first."""

    pipelines: tuple[tuple[str, Pipeline], ...]
    background: bool
    end: int = 0
    """The last line of what Bash reads at once with this job; 0 inside of other commands."""


Program: TypeAlias = tuple[Job, ...]


@dataclass(frozen=True, slots=True)
class Substitution(Node):
    """`$(…)`, `<(…)`, `>(…)` or `` `…` ``."""

    program: Program
    """Empty for backquotes whose text Bash would refuse when it expands them."""
    shift: int = 0
    """What to add to the places in the program.

    Within backquotes, places count in the text between them, after its backslashes were removed."""


@dataclass(frozen=True, slots=True)
class Source:
    """A text that was read."""

    text: str
    program: Program
    """Empty where the text holds no command."""
    substitutions: tuple[Substitution, ...]
    """The substitutions at any depth that Bash expands as commands, in the order they begin."""
    expansions: tuple[tuple[str, int], ...]
    """Variables and positional parameters that are expanded unedited (`$x`, `${x}`, `$1`, `$@`).

    Each stands with the place where its expansion begins, in characters."""
