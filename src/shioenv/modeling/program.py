"""A Bash program as a tree: what there is to be walked. Words stay as they are written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Redirect:
    """One redirection."""

    descriptor: int | None
    """The number before the operator; None where there is none."""
    operator: str
    """As it is written; `<<` for both kinds of here-documents."""
    target: str
    """The word after it as it is written; of a here-document its text."""
    quoted: bool = False
    """A here-document in which nothing is expanded."""


@dataclass(frozen=True, slots=True)
class Simple:
    """A simple command: assignments, words and redirections in the order they are written."""

    assignments: tuple[str, ...]
    words: tuple[str, ...]
    redirects: tuple[Redirect, ...]
    line: int
    """On which line of the input it begins, from 1."""


@dataclass(frozen=True, slots=True)
class Verbatim:
    """A command that is one expression: `[[ … ]]` and `(( … ))`, its whole text."""

    text: str
    line: int


@dataclass(frozen=True, slots=True)
class Group:
    """`{ …; }`, or `( … )` in a shell of its own."""

    body: Program
    subshell: bool
    line: int


@dataclass(frozen=True, slots=True)
class If:
    """Conditions, each with what follows from it; what else."""

    branches: tuple[tuple[Program, Program], ...]
    otherwise: Program


@dataclass(frozen=True, slots=True)
class While:
    """`while`, or `until` where `wanted` is false."""

    condition: Program
    body: Program
    wanted: bool


@dataclass(frozen=True, slots=True)
class For:
    """`for name in words`; None where there is no `in`."""

    name: str
    words: tuple[str, ...] | None
    body: Program
    line: int


@dataclass(frozen=True, slots=True)
class Counting:
    """`for ((first; condition; step))`."""

    expressions: tuple[str, str, str]
    body: Program
    line: int


@dataclass(frozen=True, slots=True)
class Case:
    """`case word in …`: patterns, what follows, and how it ends (`;;`, `;&`, `;;&`)."""

    word: str
    items: tuple[tuple[tuple[str, ...], Program, str], ...]
    line: int


@dataclass(frozen=True, slots=True)
class Function:
    """A definition; `text` is all of it."""

    name: str
    body: Command
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class Redirected:
    """A compound command with redirections."""

    command: Command
    redirects: tuple[Redirect, ...]


Command: TypeAlias = (
    Simple | Verbatim | Group | If | While | For | Counting | Case | Function | Redirected
)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Commands between pipes; the single one of a pipeline without a pipe runs in the shell."""

    stages: tuple[Command, ...]
    merged: tuple[bool, ...]
    """For each pipe whether it is `|&`."""
    negated: bool


@dataclass(frozen=True, slots=True)
class Job:
    """Pipelines joined by `&&` and `||`, each with the operator before it; "" before the first."""

    pipelines: tuple[tuple[str, Pipeline], ...]
    background: bool
    end: int = 0
    """On which line ends what Bash reads at once with it; 0 inside of other commands."""


Program: TypeAlias = tuple[Job, ...]
