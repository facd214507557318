"""A Bash program as a tree of commands. Words are kept as written.

`start` and `end` are offsets in the parsed text, in characters. `line` counts from 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node of the syntax tree. Equality ignores the node's position in the text."""

    start: int = field(default=0, compare=False)
    end: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Redirect(Node):
    """One redirection. The text of a here-document lies after the node's end."""

    descriptor: int | str | None
    """The number before the operator, or the name in `{name}`; None if there is neither."""
    operator: str
    """The operator as written; `<<` for both kinds of here-documents."""
    target: str
    """The word after the operator as written, or the text of a here-document."""
    quoted: bool = False
    """Whether this is a here-document without expansions, because its delimiter is quoted."""
    ended: bool = True
    """Whether a here-document has a closing line. Otherwise Bash reads to the text's end."""


@dataclass(frozen=True, slots=True)
class Simple(Node):
    """A simple command: assignments, words and redirections, each in written order."""

    assignments: tuple[str, ...]
    """The assignments before the first word; an array's includes the parentheses."""
    words: tuple[str, ...]
    redirects: tuple[Redirect, ...]
    line: int
    """The line of the input on which the command begins, from 1."""
    places: tuple[int, ...] = field(default=(), compare=False)
    """Start offset of each assignment, then of each word; the end follows from its length."""


@dataclass(frozen=True, slots=True)
class Verbatim(Node):
    """A command that is one expression, `[[ … ]]` or `(( … ))`, kept as text."""

    text: str
    line: int
    parts: tuple[str, ...] = ()
    """The words and operators of a `[[ … ]]` in order, without the brackets."""


@dataclass(frozen=True, slots=True)
class Group(Node):
    """`{ …; }`, or `( … )`, which runs in a subshell."""

    body: Program
    subshell: bool
    line: int


@dataclass(frozen=True, slots=True)
class If(Node):
    """`if` and `elif`: each condition with its program; `otherwise` is empty without `else`."""

    branches: tuple[tuple[Program, Program], ...]
    otherwise: Program


@dataclass(frozen=True, slots=True)
class While(Node):
    """`while`, or `until` if `wanted` is false."""

    condition: Program
    body: Program
    wanted: bool


@dataclass(frozen=True, slots=True)
class For(Node):
    """`for name in words`, or `select`; `words` is None without `in`."""

    name: str
    words: tuple[str, ...] | None
    body: Program
    line: int
    menu: bool = False
    """Whether this is `select`."""
    places: tuple[int, ...] = field(default=(), compare=False)
    """Start offset of each word, in characters."""


@dataclass(frozen=True, slots=True)
class Counting(Node):
    """`for ((first; condition; step))`."""

    expressions: tuple[str, str, str]
    body: Program
    line: int


@dataclass(frozen=True, slots=True)
class Case(Node):
    """`case word in …`: the patterns, program and terminator (`;;`, `;&`, `;;&`) of each item."""

    word: str
    items: tuple[tuple[tuple[str, ...], Program, str], ...]
    line: int


@dataclass(frozen=True, slots=True)
class Function(Node):
    """A function definition; `text` is the whole definition."""

    name: str
    body: Command
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class Coprocess(Node):
    """`coproc`, with the name of the array of its file descriptors."""

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
    """Commands joined by pipes. A single command, without a pipe, runs in the shell itself."""

    stages: tuple[Command, ...]
    """The commands; empty for a bare `!` or `time`."""
    merged: tuple[bool, ...]
    """For each pipe, whether it is `|&`."""
    negated: bool
    timed: bool = False
    """Whether the pipeline is preceded by `time`."""


@dataclass(frozen=True, slots=True)
class Job:
    """Pipelines joined by `&&` and `||`, each with the operator before it; "" for the first."""

    pipelines: tuple[tuple[str, Pipeline], ...]
    background: bool
    end: int = 0
    """The last line that Bash reads before it runs this job; 0 for a job inside another command."""


Program: TypeAlias = tuple[Job, ...]


@dataclass(frozen=True, slots=True)
class Substitution(Node):
    """A command or process substitution: `$(…)`, `<(…)`, `>(…)` or `` `…` ``."""

    program: Program
    """The commands; empty for backquotes with a text that Bash would refuse at expansion."""
    shift: int = 0
    """Offset to add to positions in the program.

    Inside backquotes, positions refer to the text between them, after its backslashes were
    removed."""


@dataclass(frozen=True, slots=True)
class Source:
    """A parsed text."""

    text: str
    program: Program
    """The jobs; empty if the text contains no command."""
    substitutions: tuple[Substitution, ...]
    """The substitutions at any depth that Bash expands as commands, in order of their starts."""
    expansions: tuple[tuple[str, int], ...]
    """Variables and positional parameters expanded without modifiers (`$x`, `${x}`, `$1`, `$@`).

    Each is paired with the start offset of its expansion, in characters."""
