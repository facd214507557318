"""Building blocks of the kinds of value: regular expressions, and generators of matching texts."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol, TypeAlias

from shioenv.grammar.spelling import BLANK

Names: TypeAlias = Mapping[str, Sequence[str]]
"""Names that exist on a system, by token (`File`, `Username`, …); see `system.catalogue`."""

LONGEST = 512
"""Maximum length of a value; longer texts match no kind."""


class Part(Protocol):
    """A part of a kind: its language as a regular expression, and a generator."""

    @property
    def pattern(self) -> str:
        """The regular expression of the part's language."""
        ...

    def draw(self, random: Random, names: Names) -> str:
        """Draw a text of the language."""
        ...


@dataclass(frozen=True, slots=True)
class FixedText:
    """A literal text."""

    text: str

    @property
    def pattern(self) -> str:
        """See `Part`."""
        return re.escape(self.text.replace(" ", BLANK))

    def draw(self, random: Random, names: Names) -> str:
        """See `Part`."""
        return self.text


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of several parts, drawn by weight."""

    parts: tuple[Part, ...]
    weights: tuple[float, ...]

    @property
    def pattern(self) -> str:
        """See `Part`."""
        return f"(?:{'|'.join(part.pattern for part in self.parts)})"

    def draw(self, random: Random, names: Names) -> str:
        """See `Part`."""
        return random.choices(self.parts, self.weights)[0].draw(random, names)


@dataclass(frozen=True, slots=True)
class PartsInRow:
    """A sequence of parts."""

    parts: tuple[Part, ...]

    @property
    def pattern(self) -> str:
        """See `Part`."""
        return "".join(part.pattern for part in self.parts)

    def draw(self, random: Random, names: Names) -> str:
        """See `Part`."""
        return "".join(part.draw(random, names) for part in self.parts)


@dataclass(frozen=True, slots=True)
class List:
    """One to `most` items of a part, with separators.

    Each further item is drawn with probability 0.5. Lists of any length are recognised.
    """

    part: Part
    separator: str
    most: int = 4

    @property
    def pattern(self) -> str:
        """See `Part`."""
        item = self.part.pattern
        return f"{item}(?:{re.escape(self.separator)}{item})*"

    def draw(self, random: Random, names: Names) -> str:
        """See `Part`."""
        items = [self.part.draw(random, names)]
        while len(items) < self.most and random.random() < 0.5:
            items.append(self.part.draw(random, names))
        return self.separator.join(items)


@dataclass(frozen=True, slots=True)
class Number:
    """A number, drawn from `low` to `high` by `draw_number`. Any 1 to 20 digits are recognised."""

    low: int
    high: int

    @property
    def pattern(self) -> str:
        """See `Part`."""
        return "[0-9]{1,20}"

    def draw(self, random: Random, names: Names) -> str:
        """See `Part`."""
        return str(draw_number(random, self.low, self.high))


@dataclass(frozen=True, slots=True)
class Known:
    """A system's name for a token such as `Word`, or one of `otherwise` if the system has none."""

    token: str
    otherwise: tuple[str, ...]
    language: str

    @property
    def pattern(self) -> str:
        """See `Part`."""
        return self.language

    def draw(self, random: Random, names: Names) -> str:
        """See `Part`."""
        values = names.get(self.token) or self.otherwise
        return values[int(random.random() * len(values))]


@dataclass(frozen=True, slots=True)
class Wide:
    """A part whose generator produces only a portion of its language."""

    language: str
    part: Part

    @property
    def pattern(self) -> str:
        """See `Part`."""
        return f"(?:{self.language})"

    def draw(self, random: Random, names: Names) -> str:
        """See `Part`."""
        return self.part.draw(random, names)


def draw_number(random: Random, low: int, high: int) -> int:
    """Draw a number from `low` to `high`, inclusive.

    One number in ten is a bound. Among the others, all orders of magnitude above `low` are equally
    likely. Four in five numbers above 20 are round: their digits are 0 except the first, and
    perhaps a 5 after it.
    """
    if low >= high:
        return low
    if random.random() < 0.1:
        return low if random.random() < 0.5 else high
    span = high - low
    number = low + int(math.exp(random.random() * math.log(span + 1))) - 1
    if number > 20 and random.random() < 0.8:
        unit = 10 ** (len(str(number)) - 1)
        number = number // unit * unit + (unit // 2 if random.random() < 0.3 else 0)
    return min(max(number, low), high)


def one_of(*parts: Part | str | tuple[Part | str, float]) -> OneOf:
    """Create a choice of parts. A text is literal; a pair is a part with its weight (default 1)."""
    pairs = [part if isinstance(part, tuple) else (part, 1.0) for part in parts]
    return OneOf(tuple(_part(part) for part, _ in pairs), tuple(weight for _, weight in pairs))


def row(*parts: Part | str) -> PartsInRow:
    """Create a sequence of parts; a text is literal."""
    return PartsInRow(tuple(_part(part) for part in parts))


def maybe(part: Part | str, share: float = 0.5) -> OneOf:
    """Create an optional part, drawn with probability `share`."""
    return one_of(("", 1 - share), (part, share))


def _part(part: Part | str) -> Part:
    return FixedText(part) if isinstance(part, str) else part
