"""The types of text functions, and their shared helpers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TypeAlias

from shioenv_model.bash.work import spend

LONGEST = 100_000
"""Maximum number of characters of an input text."""

MOST_PRINTED = 4_000_000
"""Maximum number of characters of an output. The text between columns, for example, may be long."""

MOST_STEPS = 300_000
"""Maximum number of steps of one program run (our choice: a third of a second)."""

WIDEST = 1_000
"""Maximum number of columns and of skipped fields. Larger numbers may be hostile."""


@dataclass(frozen=True)
class Given:
    """The inputs of a command for a function."""

    text: str | None
    """The text that the command reads; None if it reads none."""
    words: Mapping[str, str]
    """Words by place: the name of the option before a word, or the number of an operand."""
    operands: tuple[str, ...] = ()
    """The names of the files that a command reads; for other commands, its operands."""
    texts: tuple[str, ...] = ()
    """The texts of a command that reads several, in the order of its operands. `text` is then their
    concatenation."""
    piped: bool = False
    """Whether the text is from a pipe, so that programs do not know its length in advance."""

    @cached_property
    def in_bytes(self) -> Given:
        """The same inputs, with one character per byte of the texts."""
        texts = tuple(map(as_bytes, self.texts))
        return replace(self, text=as_bytes(self.text or ""), texts=texts)


ESCAPES: Mapping[str, str] = {
    "n": "\n", "t": "\t", "r": "\r", "\\": "\\", "a": "\a", "b": "\b", "f": "\f", "v": "\v",
}  # fmt: skip
"""Characters for a letter after a backslash, in C and in most programs."""

Roles: TypeAlias = Mapping[str, str]
"""Words by role."""

Flags: TypeAlias = Mapping[str, str]

Result: TypeAlias = tuple[str, int]
"""The output and the exit code."""


@dataclass(frozen=True)
class Family:
    """Functions of one kind."""

    name: str
    run: Callable[[Given, Roles, Flags], Result | str | None]
    roles: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    """Required roles."""
    variants: Mapping[str, Sequence[str]] | None = None
    """The values of each flag, the default first."""
    means: Callable[[Flags], bool] | None = None
    """Whether a combination of flags is valid. If None, all are."""
    reads: bool = True
    """Whether the functions take an input text, not only the operands."""
    of_bytes: bool = False
    """Whether the functions treat each byte as a character."""
    several: bool = False
    """Whether the functions process several texts separately."""
    beside: Beside | None = None
    """How to combine options that each select one function of the family. If None,
    `Induction.combine` does it."""


@dataclass(frozen=True)
class Beside:
    """A family whose functions print the results of several functions of another family."""

    family: Family
    flag: str
    """A flag of both families. Values in this family are values of the other family joined by
    `and`."""

    def flags(self, values: Iterable[str]) -> Flags | None:
        """Return the flags of the function that prints these values; None if there is none."""
        shown = (self.family.variants or {})[self.flag]
        found = [each for each in shown if sorted(each.split(" and ")) == sorted(values)]
        return {self.flag: found[0]} if found else None


@dataclass(frozen=True)
class TextFunction:
    """One function: a family with a word for each role and a value for each flag."""

    family: Family
    places: tuple[tuple[str, str], ...]
    """Roles, each with the place of its word (`Given.words`)."""
    flags: Mapping[str, str]

    @property
    def name(self) -> str:
        """The function's name in explanations."""
        said = [f"{role} {place}" for role, place in self.places]
        said += [value for value in self.flags.values() if value]
        return f"{self.family.name}({', '.join(said)})"

    def steps(self, given: Given) -> int:
        """Return the input's cost in steps (`shioenv_model.bash.work`); matching is not counted."""
        return len(given.text or "") + sum(map(len, given.words.values()))

    def __call__(self, given: Given) -> Result | None:
        """Apply the function; return the output and the exit code, or None if it does not apply."""
        if self.family.reads and (given.text is None or len(given.text) > LONGEST):
            return None
        roles = {role: given.words[place] for role, place in self.places}
        if self.family.of_bytes:
            roles = {role: as_bytes(word) for role, word in roles.items()}
            given = given.in_bytes
        try:
            made = self.family.run(given, roles, self.flags)
        except (ValueError, LookupError, ArithmeticError, re.error):
            return None
        if made is None:
            return None
        text, code = (made, 0) if isinstance(made, str) else made
        return (bytes_as_text(text) if self.family.of_bytes else text), code


def is_text(text: str) -> bool:
    """Whether programs treat a string as text: it has no NUL, and its bytes are UTF-8."""
    return not re.search(r"[\0\ud800-\udfff]", text)


@lru_cache(maxsize=256)
def as_bytes(text: str) -> str:
    """Return the text with one character per byte."""
    return text.encode("utf-8", "surrogateescape").decode("latin-1")


def bytes_as_text(characters: str) -> str:
    """Return the inverse of `as_bytes`."""
    return characters.encode("latin-1").decode("utf-8", "surrogateescape")


# Variants of one family share most of their work: consecutive variants reuse these results for the
# same few texts.
remembered = lru_cache(maxsize=64)


@remembered
def split_lines(text: str) -> tuple[str, ...]:
    """Return the lines without line ends."""
    lines = text.split("\n")
    return tuple(lines[:-1] if lines[-1] == "" else lines)


def as_lines(lines: Sequence[str]) -> str:
    """Join lines into one text, with line ends."""
    return "".join(f"{line}\n" for line in lines)


@remembered
def whole_lines(text: str) -> tuple[str, ...]:
    """Return the lines with line ends."""
    return tuple(line for line in re.split(r"(?<=\n)", text) if line)


_UNITS = {"b": 512, "k": 1024, "K": 1024, "M": 1 << 20, "G": 1 << 30, "kB": 1000, "MB": 10**6}


def parse_number(word: str) -> int:
    """Parse a number with a coreutils unit. Errors: ValueError, KeyError for other words."""
    match = re.fullmatch(r"([+-]?\d+)([a-zA-Z]*)", word)
    if match is None:
        raise ValueError(word)
    return int(match[1]) * (_UNITS[match[2]] if match[2] else 1)


def width_of(word: str) -> int:
    """Parse a number of columns or fields, at most `WIDEST`. Errors: ValueError for other words."""
    number = parse_number(word)
    if not 0 <= number <= WIDEST:
        raise ValueError(word)
    return number


class Steps:
    """The step limit of one program run, which also stops infinite loops.

    Steps are those of `shioenv_model.bash.work`, and are counted there as well.
    """

    def __init__(self, most: int = MOST_STEPS) -> None:
        self._left = most

    def spend(self, steps: int) -> None:
        """Count steps before they are executed. Errors: ValueError if too few are left."""
        self._left -= steps
        if self._left < 0:
            raise ValueError("the program takes too many steps")
        spend(steps)


def check_length(length: int) -> None:
    """Raise ValueError if the output would exceed `MOST_PRINTED`."""
    if length > MOST_PRINTED:
        raise ValueError(length)
