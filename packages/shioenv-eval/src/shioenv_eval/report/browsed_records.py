"""Select the records that readers of a report can browse: always the same, bounded in size.

All text is made printable here. The page inserts it as text, never as markup.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import UNSET

from shioenv.domain.inputs import Input, Role, join
from shioenv.domain.patch import ContextPatch
from shioenv.domain.readable import changes
from shioenv.domain.record import Effect, Record, ScoredSegment
from shioenv.errors import InputError
from shioenv.text import visible
from shioenv_eval.report.markup import script_json
from shioenv_eval.report.statistics import FLAGS, command_of, rows_of

RECORDS = 2000
"""Maximum number of records in the page."""
STRATA = 1000
"""Maximum number of (command, exit code) pairs. One record of each pair is selected first."""
BYTES = 4_500_000
"""Maximum size in bytes of all samples in the page, as JSON."""
INPUT_CHARACTERS = 2000
OUTPUT_CHARACTERS = 3000
OPERATIONS = 40
DETAIL_CHARACTERS = 200

SAID_BY_FLAGS = ("wall_seconds", "output_bytes")
"""Limits that have a flag in `FLAGS`: they are not listed a second time."""

MATTERS, SOMETIMES, IDLE, UNKNOWN = "m", "s", "i", "u"
"""The influence of an argument on the behavior.

`MATTERS`: removing it alone changes the behavior. `SOMETIMES`: it only changes the behavior if
removed with others. `IDLE`: removing it changes nothing. `UNKNOWN`: not measured.
"""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The records of a dataset that the page holds."""

    texts: tuple[str, ...]
    """Each record as JSON that is safe inside `<script>`."""
    every_pair: bool
    """Whether each pair of command and exit code of the dataset is represented."""


class Samples:
    """Selects records from a stream.

    The first record of each pair of command and exit code comes first. Then come the records whose
    numbers have the smallest hashes: a uniform sample that is the same on every run.
    """

    def __init__(self) -> None:
        self._passed = 0
        self._room = True
        self._strata: dict[tuple[str, int], dict[str, Any]] = {}
        self._uniform: list[tuple[int, int, dict[str, Any]]] = []

    def add(self, record: Record) -> None:
        """Consider one record for the selection."""
        self._passed += 1
        pair = (command_of(record), record.exit_code)
        if pair not in self._strata:
            if len(self._strata) < STRATA:
                self._strata[pair] = browsed_record(record)
                return
            self._room = False
        digest = hashlib.blake2b(str(self._passed).encode(), digest_size=8).digest()
        rank = -int.from_bytes(digest)
        if len(self._uniform) == RECORDS and rank <= self._uniform[0][0]:
            return
        heapq.heappush(self._uniform, (rank, self._passed, browsed_record(record)))
        if len(self._uniform) > RECORDS:
            heapq.heappop(self._uniform)

    def chosen(self) -> Chosen:
        """Return the selected records, at most `RECORDS` and `BYTES`, ordered by record number."""
        uniform = sorted(self._uniform, key=lambda item: item[:2], reverse=True)
        kept: list[tuple[int, str]] = []
        size = 0
        for shown in (*self._strata.values(), *(item[2] for item in uniform)):
            text = script_json(shown)
            if len(kept) == RECORDS or size + len(text) > BYTES:
                break
            kept.append((shown["n"], text))
            size += len(text) + 2
        every_pair = self._room and len(kept) >= len(self._strata)
        return Chosen(tuple(text for _, text in sorted(kept)), every_pair)


def browsed_record(record: Record) -> dict[str, Any]:
    """Return a record in the browser's format, which has short keys."""
    output = record.output[:OUTPUT_CHARACTERS]
    operations = ContextPatch.from_json(record.context_patch).operations
    return {
        "n": record.session_id,
        "c": visible(command_of(record))[:DETAIL_CHARACTERS],
        "x": record.exit_code,
        "s": record.irreducibility,
        "k": record.necessary,
        "e": record.exact,
        "d": record.standard_error,
        "a": record.n_arguments,
        "r": record.n_executions,
        "f": _flags(record),
        "i": _pieces(record),
        "o": visible(output),
        "b": len(record.output_bytes),
        "m": len(record.output) - len(output),
        "p": changes(operations[:OPERATIONS], record.cwd, longest=DETAIL_CHARACTERS),
        "q": max(0, len(operations) - OPERATIONS),
    }


def _flags(record: Record) -> list[str]:
    flags = [name for name in FLAGS if getattr(record, name)]
    reached = [f"{name} reached" for name in record.limits_hit if name not in SAID_BY_FLAGS]
    return [flag.replace("_", " ") for flag in flags + reached]


def _pieces(record: Record) -> list[list[str]]:
    """Split the input into pieces `[text, role]`.

    Roles are `d` for the `cd`, `c` for commands, `o` for operators and `t` for targets. Arguments
    have one of `MATTERS`, `SOMETIMES`, `IDLE` and `UNKNOWN`; all else has "".
    """
    pieces = list(_tokens(record))
    if "".join(text for text, _ in pieces) != record.input or len(record.input) > INPUT_CHARACTERS:
        rest = "…" if len(record.input) > INPUT_CHARACTERS else ""
        pieces = [(record.input[:INPUT_CHARACTERS] + rest, "")]
    return [[visible(text), role] for text, role in pieces]


def _tokens(record: Record) -> Iterator[tuple[str, str]]:
    levels = iter([level for segment in record.segments for level in argument_levels(segment)])
    roles = {Role.COMMAND: "c", Role.OPERATOR: "o", Role.TARGET: "t"}
    rows = _rows(record.input_args)
    texts = [row.text for row in rows]
    whole = "\n".join(texts)
    if not record.input.endswith(whole):
        return
    yield record.input[: len(record.input) - len(whole)], "d"
    for number, row in enumerate(rows):
        if number:
            yield "\n", ""
        arguments = [token.argument for token in row.tokens]
        end = 0
        for index, token in enumerate(row.tokens):
            text = join(arguments[: index + 1])[end:]
            end += len(text)
            if text.startswith(" ") and index:
                yield " ", ""
                text = text[1:]
            role = roles.get(token.role)
            yield text, next(levels, UNKNOWN) if role is None else role


def _rows(input_args: Sequence[str]) -> list[Input]:
    """Return the rows of a session; empty if its tokens are not an input."""
    try:
        return rows_of(input_args)
    except InputError:
        return []


def argument_levels(segment: ScoredSegment) -> list[str]:
    """Return the influence of each argument of a segment on the behavior, as far as it is recorded.

    If the segment has the effects of single arguments, they determine the influence. Otherwise a
    score of 0 means that no argument matters, and 1 that each does; for other scores the influence
    is unknown.
    """
    if not 0 <= segment.n_arguments <= INPUT_CHARACTERS:
        return []
    told = {0: IDLE, 1: MATTERS}.get(segment.irreducibility, UNKNOWN)  # type: ignore[call-overload]
    effects = segment.arguments
    if effects is not UNSET and len(effects) == segment.n_arguments:
        return [_level(effect, told) for effect in effects]
    return [told] * segment.n_arguments


def _level(effect: Effect, told: str) -> str:
    if effect.leave_one_out:
        return MATTERS
    if effect.contribution is not None and effect.contribution > 0:
        return SOMETIMES
    return told if effect.leave_one_out is None else IDLE
