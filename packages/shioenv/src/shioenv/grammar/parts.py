"""Building blocks of the kinds of value: regular expressions, and generators of matching texts."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeAlias

from shioenv.grammar.spelling import BLANK

Names: TypeAlias = Mapping[str, Sequence[str]]
"""Names that exist on a system, by token (`File`, `Username`, …); see `system.catalogue`."""

LONGEST = 512
"""Maximum length of a value; longer texts match no kind."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a kind: its language as a regular expression, and a generator."""

    pattern: str
    draw: Callable[[Random, Names], str]
    """Draws a text of the language, for a system with these names."""


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


def number(low: int, high: int) -> Part:
    """Create a number, drawn by `draw_number`. Any 1 to 20 digits are recognised."""
    return Part("[0-9]{1,20}", lambda random, names: str(draw_number(random, low, high)))


def known(token: str, otherwise: Sequence[str], language: str) -> Part:
    """Create a name that the system has for `token`, or one of `otherwise` if it has none."""

    def draw(random: Random, names: Names) -> str:
        values = names.get(token) or otherwise
        return values[int(random.random() * len(values))]

    return Part(language, draw)


def wide(language: str, part: Part) -> Part:
    """Create a part whose generator produces only a portion of its language."""
    return Part(f"(?:{language})", part.draw)


def items_of(part: Part, separator: str, most: int = 4) -> Part:
    """Create one to `most` items of a part, with separators.

    Each further item is drawn with probability 0.5. Lists of any length are recognised.
    """

    def draw(random: Random, names: Names) -> str:
        items = [part.draw(random, names)]
        while len(items) < most and random.random() < 0.5:
            items.append(part.draw(random, names))
        return separator.join(items)

    return Part(f"{part.pattern}(?:{re.escape(separator)}{part.pattern})*", draw)


def one_of(*parts: Part | str | tuple[Part | str, float]) -> Part:
    """Create a choice of parts. A text is literal; a pair is a part with its weight (default 1)."""
    pairs = [part if isinstance(part, tuple) else (part, 1.0) for part in parts]
    made, weights = [_part(part) for part, _ in pairs], [weight for _, weight in pairs]
    return Part(
        f"(?:{'|'.join(part.pattern for part in made)})",
        lambda random, names: random.choices(made, weights)[0].draw(random, names),
    )


def row(*parts: Part | str) -> Part:
    """Create a sequence of parts; a text is literal."""
    made = [_part(part) for part in parts]
    return Part(
        "".join(part.pattern for part in made),
        lambda random, names: "".join(part.draw(random, names) for part in made),
    )


def maybe(part: Part | str, share: float = 0.5) -> Part:
    """Create an optional part, drawn with probability `share`."""
    return one_of(("", 1 - share), (part, share))


def _part(part: Part | str) -> Part:
    if isinstance(part, Part):
        return part
    return Part(re.escape(part.replace(" ", BLANK)), lambda random, names: part)
