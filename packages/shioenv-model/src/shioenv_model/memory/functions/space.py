"""The space of functions from a text and some words to a text, and what the functions share."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TypeAlias

from shioenv_model.bash.work import spend

LONGEST = 100_000
"""Most characters of a text that is worked on."""

MOST_PRINTED = 4_000_000
"""Most characters that are made of a text: the text between its columns may be long."""

MOST_STEPS = 300_000
"""Most steps of one run of a program (ours: a third of a second)."""

WIDEST = 1_000
"""Most columns, and most fields that are skipped: a number may be hostile."""


@dataclass(frozen=True)
class Given:
    """What a function is given of a command."""

    text: str | None
    """The text that the command reads; None: it reads none."""
    words: Mapping[str, str]
    """Words by their place: the name of the option before a word, or the number of an operand."""
    operands: tuple[str, ...] = ()
    """Of a command that reads, the names of its files; of any other, its operands."""
    texts: tuple[str, ...] = ()
    """Each text of a command that reads several, in the order of its operands.

    `text` is then all of them, one after the other.
    """
    piped: bool = False
    """The text comes out of a pipe, which tells no program how long the text is."""

    @cached_property
    def in_bytes(self) -> Given:
        """The same command with a character for each byte of its texts."""
        texts = tuple(map(as_bytes, self.texts))
        return replace(self, text=as_bytes(self.text or ""), texts=texts)


ESCAPES: Mapping[str, str] = {
    "n": "\n", "t": "\t", "r": "\r", "\\": "\\", "a": "\a", "b": "\b", "f": "\f", "v": "\v",
}  # fmt: skip
"""What a letter behind a backslash stands for in C, and in most programs."""

Roles: TypeAlias = Mapping[str, str]
"""Words by the role that they play."""

Flags: TypeAlias = Mapping[str, str]

Result: TypeAlias = tuple[str, int]
"""What is printed, and the exit code."""


@dataclass(frozen=True)
class Family:
    """Functions of one kind."""

    name: str
    run: Callable[[Given, Roles, Flags], Result | str | None]
    roles: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    """Roles that must be played."""
    variants: Mapping[str, Sequence[str]] | None = None
    """The values of each flag, the usual value first."""
    means: Callable[[Flags], bool] | None = None
    """Whether flags say something together; None: all do."""
    reads: bool = True
    """The functions work on a text, not on the operands alone."""
    of_bytes: bool = False
    """The functions take each byte as a character."""
    several: bool = False
    """The functions work on several texts, each by itself."""
    beside: Beside | None = None
    """What options do together that ask for one of these functions each; None: see `combine`."""


@dataclass(frozen=True)
class Beside:
    """Functions that show what several functions of another family show each."""

    family: Family
    flag: str
    """Its values are those of the other family's flag of this name, with `and` between them."""

    def flags(self, values: Iterable[str]) -> Flags | None:
        """The flags that show these values; None where no function of the family does."""
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
        """The function's name where an answer is explained."""
        said = [f"{role} {place}" for role, place in self.places]
        said += [value for value in self.flags.values() if value]
        return f"{self.family.name}({', '.join(said)})"

    def steps(self, given: Given) -> int:
        """How much work the function is on this, without matching (`shioenv_model.bash.work`)."""
        return len(given.text or "") + sum(map(len, given.words.values()))

    def __call__(self, given: Given) -> Result | None:
        """What the function prints of this, and the exit code; None where it does not apply."""
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
        return (as_text(text) if self.family.of_bytes else text), code


def is_text(text: str) -> bool:
    """Whether programs take it for a text: it has no NUL, and its bytes are UTF-8."""
    return not re.search(r"[\0\ud800-\udfff]", text)


@lru_cache(maxsize=256)
def as_bytes(text: str) -> str:
    """The text with a character for each byte."""
    return text.encode("utf-8", "surrogateescape").decode("latin-1")


def as_text(characters: str) -> str:
    """What `as_bytes` made, as text again."""
    return characters.encode("latin-1").decode("utf-8", "surrogateescape")


# Variants of one family share most of their work. The next variants ask at once for what is
# remembered here, of the same few texts.
remembered = lru_cache(maxsize=64)


@remembered
def lines_of(text: str) -> tuple[str, ...]:
    """The lines without their ends."""
    lines = text.split("\n")
    return tuple(lines[:-1] if lines[-1] == "" else lines)


def as_lines(lines: Sequence[str]) -> str:
    """The lines with their ends, as one text."""
    return "".join(f"{line}\n" for line in lines)


@remembered
def whole_lines(text: str) -> tuple[str, ...]:
    """The lines with their ends."""
    return tuple(line for line in re.split(r"(?<=\n)", text) if line)


_UNITS = {"b": 512, "k": 1024, "K": 1024, "M": 1 << 20, "G": 1 << 30, "kB": 1000, "MB": 10**6}


def number_of(word: str) -> int:
    """A number with a unit, as coreutils take it. Errors: ValueError, KeyError for other words."""
    match = re.fullmatch(r"([+-]?\d+)([a-zA-Z]*)", word)
    if match is None:
        raise ValueError(word)
    return int(match[1]) * (_UNITS[match[2]] if match[2] else 1)


def width_of(word: str) -> int:
    """A number of columns or fields, at most `WIDEST`. Errors: ValueError for other words."""
    number = number_of(word)
    if not 0 <= number <= WIDEST:
        raise ValueError(word)
    return number


class Steps:
    """The steps that one run of a program may take, so that a program that never ends does end.

    Steps are those of `shioenv_model.bash.work`, and are counted there as well.
    """

    def __init__(self, most: int = MOST_STEPS) -> None:
        self._left = most

    def spend(self, steps: int) -> None:
        """Counts so many steps before they are done. Errors: ValueError where too few are left."""
        self._left -= steps
        if self._left < 0:
            raise ValueError("the program takes too many steps")
        spend(steps)


def check_length(length: int) -> None:
    """Raises ValueError where more would be printed than `MOST_PRINTED`."""
    if length > MOST_PRINTED:
        raise ValueError(length)
