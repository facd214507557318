"""Measure which options occur in sampled inputs, or in inputs executed without a usage error.

An input covers an option if it contains any of the option's names. `refused` lines of grammars list
options that do not count, with the reason why no input with them runs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shioenv.dataset.manifest import read_manifest
from shioenv.dataset.record_reader import read_records
from shioenv.domain.inputs import Input, Segment
from shioenv.domain.record import Record
from shioenv.grammar.library import chosen_grammars, load_grammars, names_of_grammars
from shioenv.grammar.parse import InputParser
from shioenv.grammar.symbols import Grammar
from shioenv.synthesis.drawing import Drawing
from shioenv.synthesis.sample import grammars_for, sample
from shioenv.system.store import System

USAGE_ERROR = re.compile(
    r"invalid option|unrecognized option|unknown option|illegal option|unsupported option"
    r"|option requires an argument|requires an argument|unrecognized argument|unknown predicate"
    r"|missing argument to|ambiguous option|doesn't allow an argument|option .* is unknown"
    r"|Try '?[\w-]+ --help|: usage:|^[Uu]sage: ",
    re.MULTILINE,
)
"""Matches an error output if a program did not understand its options."""

ABOUT = frozenset({"--help", "--version", "-h", "-V", "-?", "--usage"})
"""Options that may print what looks like a usage error."""


@dataclass
class OptionCoverage:
    """Counts, by grammar and option, the inputs that have it."""

    grammars: Mapping[str, Grammar]
    inputs: int = 0
    seen: Counter[tuple[str, str]] = field(default_factory=Counter)
    curve: list[tuple[int, int]] = field(default_factory=list)
    """Points of a curve: a number of inputs, and the number of options that they contain."""

    def __post_init__(self) -> None:
        self._grammar = InputParser(self.grammars.values()).grammar
        self._lines = {
            name: {
                each: option.names[0]
                for option in grammar.options
                if not any(set(option.names) & set(line.options) for line in grammar.refusals)
                for each in option.names
            }
            for name, grammar in self.grammars.items()
        }

    @property
    def missing(self) -> dict[str, list[str]]:
        """The options that no input has, by grammar. Grammars with full coverage are omitted."""
        lacking = {
            name: sorted(set(lines.values()) - {line for of, line in self.seen if of == name})
            for name, lines in self._lines.items()
        }
        return {name: lines for name, lines in sorted(lacking.items()) if lines}

    @property
    def total(self) -> int:
        """The number of options of all grammars."""
        return sum(len(set(lines.values())) for lines in self._lines.values())

    def add_drawn(self, shell_input: Input) -> None:
        """Count the options of an input, executed or not."""
        self._add(found for segment in shell_input.segments for found in self._options(segment))

    def add_record(self, record: Record) -> None:
        """Count the options of an executed input.

        After a usage error, only options about the program itself (`--help`) count.
        """
        errors = record.output if record.stderr is None else record.stderr
        failed = USAGE_ERROR.search(errors[:4096]) is not None
        ran = [one.executed is not False for one in record.segments or ()]
        segments = Input.from_marked(record.input_args).segments
        self._add(
            found
            for place, segment in enumerate(segments)
            if all(ran[place : place + 1])
            for found in self._options(segment)
            if not failed or found[1] in ABOUT
        )

    def _add(self, found: Iterable[tuple[str, str]]) -> None:
        self.inputs += 1
        self.seen.update(set(found))
        if self.inputs & (self.inputs - 1) == 0:
            self.curve.append((self.inputs, len(self.seen)))

    def _options(self, segment: Segment) -> Iterator[tuple[str, str]]:
        """Yield the grammar and the first name of each option of a command."""
        texts = [argument.text for argument in segment.arguments]
        grammar = self._grammar(segment.command, texts)
        if grammar is None or grammar.name not in self._lines:
            return
        lines = self._lines[grammar.name]
        for argument in segment.arguments:
            text = argument.text
            if argument.joins_left and not text.startswith("-"):
                text = f"-{text}"
            word = re.split("[ =]", text, maxsplit=1)[0]
            for name in (text, word, f"{word}=", word[:2]):
                if name in lines:
                    yield grammar.name, lines[name]
                    break

    def to_json(self) -> dict[str, Any]:
        """Return the counts as a JSON object."""
        return {
            "inputs": self.inputs,
            "options": self.total,
            "seen": len(self.seen),
            "curve": [list(point) for point in [*self.curve, (self.inputs, len(self.seen))]],
            "missing": self.missing,
            "refused": {
                name: {option: line.reason for line in grammar.refusals for option in line.options}
                for name, grammar in sorted(self.grammars.items())
                if grammar.refusals
            },
        }

    def lines(self) -> Iterator[str]:
        """Yield a summary, the curve, and the missing options of each grammar."""
        share = len(self.seen) / max(1, self.total)
        seen = f"{len(self.seen):,} of {self.total:,} ({share:.1%})"
        yield f"options   {seen} in {self.inputs:,} inputs"
        points = (f"{inputs:,}: {seen:,}" for inputs, seen in self.curve[-8:])
        yield f"by inputs {', '.join(points)}"
        for name, options in self.missing.items():
            yield f"missing   {name} {len(options)}: {' '.join(options)}"
        for name, grammar in sorted(self.grammars.items()):
            for line in grammar.refusals:
                yield f"refused   {name} {', '.join(line.options)}: {line.reason}"


def coverage_of_samples(
    drawing: Drawing,
    system: System,
    count: int,
    report: Callable[[int, int], None] = lambda done, count: None,
) -> OptionCoverage:
    """Count the options of `count` drawn inputs. Errors: those of `sample`."""
    grammars = grammars_for(system, drawing)
    found = OptionCoverage({grammar.name: grammar for grammar in grammars})
    for number, one in enumerate(sample(drawing, system=system, grammars=grammars, count=count), 1):
        found.add_drawn(one.input)
        report(number, count)
    return found


def coverage_of_records(directory: str | Path) -> OptionCoverage:
    """Count the options in a dataset's records, for the shipped grammars that it was sampled from.

    Errors: those of `read_records`.
    """
    plan = read_manifest(directory).plan
    shipped = names_of_grammars()
    names = [name for name in plan.drawing.commands if name in shipped] or ["paper"]
    grammars = load_grammars(chosen_grammars(names))
    found = OptionCoverage({grammar.name: grammar for grammar in grammars})
    for record in read_records(directory, unfinished=True):
        found.add_record(record)
    return found
