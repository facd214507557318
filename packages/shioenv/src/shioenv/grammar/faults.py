"""Faults in grammar files: the place, the message, and a suggestion."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from shioenv.errors import GrammarError, nearest


class FaultKind(StrEnum):
    """The kinds of fault, each with its stable code (documented in docs/errors.md)."""

    SYNTAX = "SHIO-G10"
    HEADER = "SHIO-G11"
    UNDEFINED = "SHIO-G12"
    UNREACHABLE = "SHIO-G13"
    ENDLESS = "SHIO-G14"
    DUPLICATE = "SHIO-G15"
    TOO_LONG = "SHIO-G16"
    SEVERAL_ARGUMENTS = "SHIO-G17"
    EXAMPLE = "SHIO-G18"
    KIND = "SHIO-G19"


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """One fault in a file. Lines and columns count from 1."""

    path: str
    line: int
    column: int
    message: str
    kind: FaultKind = field(compare=False)

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}: {self.message} ({self.kind.value})"


class FaultyGrammarError(GrammarError):
    """All faults found in one or more grammar files, in the order of the files."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults: Sequence[Fault] = sorted(set(faults))
        count = len(self.faults)
        heading = f"{count} fault{'s' * (count != 1)} in the grammar"
        super().__init__("\n".join([heading, *map(str, self.faults)]))


def suggestion(word: str, known: Iterable[str], show: str = "{}") -> str:
    """Return `; did you mean X?` if a known word resembles `word`, else ""."""
    match = nearest(word, known)
    return f"; did you mean {show.format(match)}?" if match else ""
