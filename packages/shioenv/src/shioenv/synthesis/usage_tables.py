"""Usage tables: counts of commands, their combinations, options and operands in real inputs.

The package contains one such table, `usage.json`; its `about` names the source of the counts.
`shioenv grammar usage` creates another table from any inputs. A table contains only names of
commands and options, operators, and the forms of words.
"""

from __future__ import annotations

import json
import re
from bisect import bisect
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from shioenv.errors import UsageError
from shioenv.grammar.spelling import SUBSTITUTION, VARIABLE, received_form

Item = TypeVar("Item")

ABOUT_ITSELF = frozenset({"--help", "--version"})
"""Options with which a command describes itself and ignores its operands."""

SHIPPED = Path(__file__).parent / "usage.json"

COUNTS = ("commands", "utilities", "shapes", "follows", "targets", "substitutions")
"""The parts of a table that are counts by name."""

OF_COMMAND = (
    "option_sets", "options", "n_options", "pairs", "spellings", "operands", "piped", "styles",
    "nested",
)  # fmt: skip
"""The parts of one command's usage that are counts by name. The counts of `operands`, `piped` and
`styles` are indexed by option set, or by option, and then by name."""

INDEXED = frozenset({"operands", "piped", "styles"})


@dataclass(frozen=True, slots=True)
class Weights(Generic[Item]):
    """Items for weighted random draws."""

    items: tuple[Item, ...]
    cumulative: tuple[float, ...]

    @classmethod
    def of(cls, weights: Mapping[Item, float]) -> Weights[Item]:
        """Build weights from a mapping, without items of weight 0."""
        kept = {item: weight for item, weight in weights.items() if weight > 0}
        return cls(tuple(kept), tuple(accumulate(kept.values())))

    def __bool__(self) -> bool:
        return bool(self.items)

    def draw(self, random: Random) -> Item:
        """Draw one item. IndexError if there are none."""
        return self.items[bisect(self.cumulative, random.random() * self.cumulative[-1])]


@dataclass(frozen=True, slots=True)
class CommandUsage:
    """The usage of one command, as counts.

    - `option_sets`: sets of options, each sorted and joined by blanks. "" is the empty set. "*"
      represents all sets that are too rare to list; for these, single options are drawn.
    - `options`: single options. `n_options`: the number of distinct options of the command.
      `pairs`: two distinct options used together, joined by a blank.
    - `spellings`: "short", "cluster" and "long".
    - `operands`: by option set, the forms of the command's operands, joined by " + ". The set "*"
      represents sets without counts.
    - `piped`: the same as `operands`, for a command to the right of a `|`.
    - `styles`: by option, how its value is written: "separate", "joined" or "=".
    - `nested`: the commands that this one runs (`find -exec`, `xargs`), by grammar.
    """

    option_sets: Mapping[str, float] = field(default_factory=dict)
    options: Mapping[str, float] = field(default_factory=dict)
    n_options: Mapping[str, float] = field(default_factory=dict)
    pairs: Mapping[str, float] = field(default_factory=dict)
    spellings: Mapping[str, float] = field(default_factory=dict)
    operands: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    piped: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    styles: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    nested: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Usage:
    """A usage table: counts over inputs.

    - `utilities`: commands, by grammar.
    - `commands`: inputs, by their number of commands.
    - `shapes`: inputs with an operator, as grammars and operators (`du | sort`, `echo >`).
    - `follows`: pairs of successive commands with the operator between them (`du | sort`).
    - `targets`: redirections, with the form of their target (`> file name`).
    - `substitutions`: programs in a `$( )` or `<( )` that is an operand (`ls $( find`).
    - `by_command`: how each command is used, by grammar.
    """

    about: str
    commands: Mapping[str, float]
    utilities: Mapping[str, float]
    shapes: Mapping[str, float]
    follows: Mapping[str, float]
    targets: Mapping[str, float]
    by_command: Mapping[str, CommandUsage]
    substitutions: Mapping[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        """Return the table as JSON values, for `usage_from`."""
        return {
            "about": self.about,
            **{name: dict(getattr(self, name)) for name in COUNTS},
            "by_command": {
                command: {
                    name: {
                        key: dict(value) if isinstance(value, Mapping) else value
                        for key, value in getattr(usage, name).items()
                    }
                    for name in OF_COMMAND
                    if getattr(usage, name)
                }
                for command, usage in self.by_command.items()
            },
        }


@cache
def shipped_usage() -> Usage:
    """Load the table in the package."""
    return usage_from(json.loads(SHIPPED.read_text(encoding="utf-8")), str(SHIPPED))


def usage_from(document: object, source: str) -> Usage:
    """Parse a table from JSON; error messages call the document `source`. Errors: UsageError."""
    if not isinstance(document, dict):
        raise UsageError(f"{source}: a table of usage must be an object")
    unknown = document.keys() - {"about", "by_command", *COUNTS}
    if unknown:
        raise UsageError(
            f"{source}: unknown keys of a table of usage: {', '.join(sorted(unknown))}"
        )
    by_command = document.get("by_command", {})
    if not isinstance(by_command, dict):
        raise UsageError(f"{source}: by_command is not an object")
    commands = {}
    for command, parts in by_command.items():
        if not isinstance(parts, dict) or parts.keys() - set(OF_COMMAND):
            raise UsageError(f"{source}: {command} has other keys than {', '.join(OF_COMMAND)}")
        made: dict[str, Any] = {}
        for name, part in parts.items():
            if name in INDEXED:
                deep = _object(part, source).items()
                made[name] = {key: counts_from(inner, source) for key, inner in deep}
            else:
                made[name] = counts_from(part, source)
        commands[command] = CommandUsage(**made)
    counts = {name: counts_from(document.get(name, {}), source) for name in COUNTS}
    return Usage(about=str(document.get("about", "")), by_command=commands, **counts)


def _object(value: object, source: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f"{source}: {value!r} is not an object")
    return value


def counts_from(value: object, source: str) -> Mapping[str, float]:
    """Parse counts by name, finite and at least 0, from JSON. Errors: UsageError."""
    counts = _object(value, source)
    for name, count in counts.items():
        number = isinstance(count, int | float) and not isinstance(count, bool)
        if not number or not 0 <= count < float("inf"):
            raise UsageError(
                f"{source}: the count of {name!r} is {count!r}, not a number of at least 0"
            )
    return MappingProxyType(dict(counts))


def form(word: str) -> str:
    """Return the form of an operand: "name", "file name", "absolute path", "glob", "text" etc."""
    text = received_form(word)
    if SUBSTITUTION in text:
        return "substitution"
    if VARIABLE in text:
        return "variable"
    quoted = "" if text == word else ", quoted"
    if text in {".", "..", "/", "-", "./", "../"}:
        return "special path"
    if quoted and "\x01" in text:
        return "text"
    if re.fullmatch(r"[-+]?[0-9]+", text):
        return "number"
    if re.search(r"[*?]|\[.+\]", text):
        return "pattern" if quoted else "glob"
    if text.startswith("~"):
        return "tilde"
    if "/" in text:
        return ("absolute path" if text.startswith("/") else "relative path") + quoted
    return ("file name" if re.fullmatch(r"[\w.-]*\w\.\w{1,4}", text) else "name") + quoted
