"""Shared parts of the long checks: options, seeded inputs, progress, and the report."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shioenv.synthesis.drawing import Drawing
from shioenv.synthesis.sample import sample
from shioenv.synthesis.traces import Sample
from shioenv.system.store import System, find_system


@dataclass(frozen=True, slots=True)
class Drawn:
    """An input that the project's own synthesis wrote, to be run in `cwd`."""

    text: str
    cwd: str
    volatile: bool
    """A grammar in it, or an alternative that was taken, declares that two runs may differ."""
    commands: tuple[str, ...]
    """The grammars of its commands, in order."""
    sample: Sample
    """The source of all inputs."""


def parser(description: str | None, *, count: int) -> argparse.ArgumentParser:
    """Options that every long check has; `count` is the default number of inputs.

    `description` is the script's own docstring.
    """
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--count", type=int, default=count, help=f"inputs (default: {count:,})")
    made.add_argument("--seed", type=int, default=0, help="of everything drawn (default: 0)")
    made.add_argument("--system", help="a built system's name (default: the default system)")
    made.add_argument("--json", action="store_true", help="print one JSON object")
    return made


def drawn(*, system: str | System | None = None, seed: int = 0, count: int) -> Iterator[Drawn]:
    """The first `count` inputs that a dataset of the sampler `gcs` and this seed would have.

    Errors: those of `find_system` and `sample`.
    """
    built = system if isinstance(system, System) else find_system(system)
    stream = sample(Drawing(seed=seed), system=built, count=count)
    for one in stream:
        commands = tuple(part.grammar for part in one.trace)
        yield Drawn(one.input.text, one.cwd, one.volatile, commands, one)


class Progress:
    """Lines on standard error: how far something has come, at most one a second.

    On a terminal they overwrite each other; elsewhere there is one every ten seconds.
    """

    def __init__(self, what: str, total: int) -> None:
        self._what, self._total = what, total
        self._terminal = sys.stderr.isatty()
        self._done = 0
        self._next = time.monotonic() + self._pause

    @property
    def _pause(self) -> float:
        return 1.0 if self._terminal else 10.0

    def step(self, by: int = 1) -> None:
        """So many more are done."""
        self._done += by
        if time.monotonic() >= self._next or self._done == self._total:
            self._next = time.monotonic() + self._pause
            end = "\r" if self._terminal and self._done != self._total else "\n"
            line = f"{self._what}: {self._done:,} of {self._total:,}"
            print(line, end=end, file=sys.stderr, flush=True)


def print_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns as wide as their widest cell, numbers to the right."""
    cells = [[str(cell) for cell in row] for row in rows]
    numbers = [all(_is_number(row[i]) for row in cells) for i in range(len(headings))]
    widths = [max(map(len, column)) for column in zip(headings, *cells, strict=True)]
    for row in ([*headings], *cells):
        line = (
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(row, widths, numbers, strict=True)
        )
        print("  ".join(line).rstrip())


def _is_number(cell: str) -> bool:
    return cell.replace(",", "").replace(".", "", 1).rstrip(" %").isdecimal()


def report(
    facts: Mapping[str, Any],
    violations: Sequence[Mapping[str, Any]],
    *,
    as_json: bool,
    tables: Sequence[tuple[str, Sequence[str], Sequence[Sequence[object]]]] = (),
) -> int:
    """Prints the outcome and gives the exit status: 1 where anything was violated, else 0.

    `facts` are single figures by name, `tables` (title, headings, rows). As JSON all of it is one
    object, the violations under `violations`.
    """
    if as_json:
        named = {
            title: [dict(zip(headings, row, strict=True)) for row in rows]
            for title, headings, rows in tables
        }
        print(json.dumps({**facts, **named, "violations": list(violations)}, indent=1, default=str))
        return 1 if violations else 0
    for name, value in facts.items():
        print(f"{name}: {value}")
    for title, headings, rows in tables:
        print(f"\n{title}")
        print_table(headings, rows)
    print(f"\nviolations: {len(violations)}")
    for violation in violations:
        print("  " + "  ".join(f"{name}={value!r}" for name, value in violation.items()))
    return 1 if violations else 0
