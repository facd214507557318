"""An on-disk index of executed inputs, searchable by similarity without reading them all.

An index is a directory of memory-mapped arrays. It stores a row of 41 bytes for each input, all
texts, and every distinct behavior once.
"""

from __future__ import annotations

import io
import json
import mmap
import os
import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, Required, TypedDict

import msgspec
import numpy as np
import numpy.typing as npt

from shioenv.bash.normal import InputForms
from shioenv.errors import ModelError
from shioenv.files.regular import open_regular
from shioenv_model.memory.facts import CLASSES
from shioenv_model.memory.members import (
    array_member,
    arrays_member,
    json_member,
    raise_model_errors,
)
from shioenv_model.memory.rewrite import Kept, Taken
from shioenv_model.memory.world import check_patch

SLOTS = 5
"""Number of operands whose class and hash are stored in a row."""

ROW = np.dtype(
    [
        ("hash", "<u4"),
        ("text", "<u4"),
        ("length", "<u2"),
        ("behavior", "<u4"),
        ("options", "<u8"),
        ("values", "<u2"),
        ("operands", "u1"),
        ("start", "u1"),
        ("classes", "u1", (SLOTS,)),
        ("words", "<u2", (SLOTS,)),
    ]
)

Rows = npt.NDArray[Any]

_ROW_BEGINS = struct.Struct("<IIHIQHBB")
"""The bytes of a row before the classes of operands."""

_WEIGHTS = (1.0, 0.3, 1.5, 1.2, 0.1)
"""Weights of the first search (our choice): option, values, operand count, class, word."""


def _ones(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Count the bits set in each number."""
    pairs, fours, eights = (
        np.uint64(0x0101010101010101 * each) for each in (0b01010101, 0b00110011, 0b00001111)
    )
    counts = numbers - (numbers >> np.uint64(1) & pairs)
    counts = (counts & fours) + (counts >> np.uint64(2) & fours)
    counts = counts + (counts >> np.uint64(4)) & eights
    ones: npt.NDArray[np.uint64] = counts * np.uint64(0x0101010101010101) >> np.uint64(56)
    return ones


def _packed_bits(flags: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint8]:
    """Pack each row of flags into a number, one bit per flag."""
    packed = np.zeros(len(flags), dtype=np.uint8)
    for place in range(SLOTS):
        packed |= flags[:, place].view(np.uint8) << place
    return packed


def _of_operands() -> npt.NDArray[np.float64]:
    """Return the distance of operands, indexed by bit masks of differing classes and words."""
    numbers = np.arange(1 << SLOTS)[:, None] >> np.arange(SLOTS) & 1
    _, _, _, kind, word = _WEIGHTS
    other_class, other_word = numbers[:, None, :] == 1, numbers[None, :, :] == 1
    weights: npt.NDArray[np.float64] = (np.where(other_class, kind, word) * other_word).sum(axis=2)
    return weights


_OF_OPERANDS = _of_operands()


@dataclass(frozen=True, slots=True)
class MemoryEntry:
    """An input in an index. `behavior` is the number of its behavior (`Index.behavior`)."""

    number: int
    cwd: str
    text: str
    behavior: int


def signature(taken: Taken) -> tuple[int, int, int, list[int], list[int]]:
    """Return the five parts of a row that describe a command.

    These are the options as bits, a hash of options and values, the number of operands, and classes
    and hashes of the first `SLOTS` operands.
    """
    form = taken.form
    bits = 0
    for name, _ in form.options:
        bits |= option_bit(name)
    values = _hash(repr(sorted(map(repr, form.options)))) & 0xFFFF
    classes = [CLASSES.index(each.kind) + 1 for each in taken.operands[:SLOTS]]
    words = [_hash(each.key or each.word) & 0xFFFF for each in taken.operands[:SLOTS]]
    rest = [0] * (SLOTS - len(classes))
    return bits, values, min(len(taken.operands), 255), classes + rest, words + rest


def option_bit(name: str) -> int:
    """Return the bit, of 64, for an option. Several options may share one."""
    return 1 << zlib.crc32(name.encode("utf-8", "surrogateescape")) % 64


_MOST_BESIDE = 4
"""A record is an example of an option only if it has at most this many options (our choice)."""


def _spread(places: npt.NDArray[np.intp], count: int) -> npt.NDArray[np.intp]:
    """Sample at most `count` of the places, at even distances."""
    if len(places) <= count:
        return places
    return places[np.linspace(0, len(places) - 1, count).round().astype(np.intp)]


_HEAD = "index.json"

ROWS = "rows.npy"
"""The file with the rows of an index."""

COLUMNS = "columns.npz"
"""The file that replaces `ROWS` in a packed model."""

_FOUND = ("hash", "text")
"""The fields of a row that are computed from the texts."""


_Count = Annotated[int, msgspec.Meta(ge=0)]
_Path = Annotated[str, msgspec.Meta(pattern="^/")]


class _Head(TypedDict, total=False):
    """The head of an index, as written by `write_index`."""

    forms: int
    starts: Required[list[_Path]]
    utilities: Required[list[tuple[str, _Count, _Count]]]


FORMS = 2
"""The version of command parsing (`shioenv_model.memory.forms`).

Increment it when parsing changes, since rows contain its results.
"""


def holds_index(directory: str | Path) -> bool:
    """Whether a directory contains an index."""
    return (Path(directory) / _HEAD).exists()


def _texts(directory: Path) -> Iterator[str]:
    return Index(directory).texts()


class Index:
    """The executed inputs in a directory. Opening reads the head and checks the rows."""

    def __init__(self, directory: Path) -> None:
        """Open an index. Errors: ModelError if the directory has no index, or a damaged one."""
        self.directory = directory
        if not holds_index(directory):
            raise ModelError(f"{directory} is not a memory: {_HEAD} is missing")
        head = json_member(directory / _HEAD, _Head)
        if head.get("forms") != FORMS:
            raise ModelError(
                f"{directory} was made by a release that parses commands differently",
                hint="train it again on its material: shioenv train memory",
            )
        self.rows: Rows = array_member(directory / ROWS, ROW)
        self._bytes = np.asarray(self.rows).view(np.uint8).data
        self._places: Rows = array_member(directory / "behaviors.npy", np.uint32)
        self._texts = _mapped(directory / "texts.bin")
        self._behaviors = _mapped(directory / "behaviors.bin")
        self._starts: list[str] = head["starts"]
        self.utilities: dict[str, tuple[int, int]] = {
            name: (first, end) for name, first, end in head["utilities"]
        }
        self._check()

    def _check(self) -> None:
        """Check that the files are consistent. Errors: ModelError."""
        rows, places = self.rows, self._places
        with raise_model_errors(self.directory / "behaviors.npy"):
            if not len(places) or places[0] or (np.diff(places.astype(np.int64)) < 0).any():
                raise ValueError("its offsets do not start at 0, or they decrease")
            if places[-1] != len(self._behaviors):
                raise ValueError("behaviors.bin has an unexpected length")
        with raise_model_errors(self.directory / ROWS):
            ends = rows["text"].astype(np.int64) + rows["length"]
            if ends.max(initial=0) != len(self._texts):
                raise ValueError("texts.bin does not have the length that its rows require")
            if (rows["behavior"] >= len(places) - 1).any():
                raise ValueError("a row refers to a missing behavior")
            if (rows["start"] >= len(self._starts)).any():
                raise ValueError("a row refers to a missing directory")
        with raise_model_errors(self.directory / _HEAD):
            if any(not first <= end <= len(rows) for first, end in self.utilities.values()):
                raise ValueError("it refers to missing rows")

    @cached_property
    def _hashes(self) -> npt.NDArray[np.uint32]:
        """The hashes of all rows in one contiguous array, since every query scans them."""
        return np.ascontiguousarray(self.rows["hash"])

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def training(self) -> InputForms:
        """The inputs of the records, as the `training` of a predictor that answers from them."""
        return InputForms(str(self.directory), partial(_texts, self.directory))

    def texts(self) -> Iterator[str]:
        """Yield the input of each record, without its start directory."""
        return (self.entry(number).text for number in range(len(self)))

    def exact(self, cwd: str, text: str) -> list[MemoryEntry]:
        """Return the records of exactly this input in this start directory."""
        found = np.flatnonzero(self._hashes == _hash(f"{cwd}\0{text}"))
        entries = [self.entry(int(number)) for number in found]
        return [entry for entry in entries if (entry.cwd, entry.text) == (cwd, text)]

    def near(self, taken: Taken, count: int, without: int = -1) -> list[int]:
        """Return the numbers of the `count` nearest records of the same utility, nearest first.

        Only rows are compared. The record `without` is left out (-1: none). Records of the same
        text in other start directories are not left out.
        """
        first, end = self.utilities.get(taken.form.utility, (0, 0))
        rows = self.rows[first:end]
        if not len(rows):
            return []
        bits, values, operands, classes, words = signature(taken)
        option, value, counted, _, _ = _WEIGHTS
        far = option * _ones(rows["options"] ^ np.uint64(bits)).astype(np.float32)
        far += value * (rows["values"] != values)
        far += counted * np.abs(rows["operands"].astype(np.int16) - operands)
        other_class = rows["classes"] != np.array(classes, dtype=np.uint8)
        other_word = rows["words"] != np.array(words, dtype=np.uint16)
        far += _OF_OPERANDS[_packed_bits(other_class), _packed_bits(other_word)]
        if without >= 0:
            far[rows["hash"] == self.rows["hash"][without]] = np.inf
        best = np.argpartition(far, min(count, len(far) - 1))[:count] if count < len(far) else None
        numbers = np.arange(len(far)) if best is None else best
        numbers = numbers[np.isfinite(far[numbers])]
        return [int(number) + first for number in numbers[np.argsort(far[numbers], kind="stable")]]

    def alike(self, taken: Taken, count: int, without: int = -1) -> list[int]:
        """Return the numbers of at most `count` records of the same utility with the same options.

        Records with the same number of operands come first. If the classes of their operands vary,
        up to half of the result is first chosen among records with the same classes as the
        command. Groups that are too large are sampled at even distances. `without` is left out as
        in `near`.
        """
        first, end = self.utilities.get(taken.form.utility, (0, 0))
        rows = self.rows[first:end]
        bits, _, operands, classes, _ = signature(taken)
        same = rows["options"] == np.uint64(bits)
        if without >= 0:
            same &= rows["hash"] != self.rows["hash"][without]
        as_many = rows["operands"] == operands
        of_classes = as_many & (rows["classes"] == np.array(classes, dtype=np.uint8)).all(axis=1)
        half = count // 2 if (same & as_many & ~of_classes).any() else 0
        found: list[int] = []
        for chosen, most in ((of_classes, half), (as_many, count), (~as_many, count)):
            places = np.flatnonzero(same & chosen)
            left = min(most - len(found), len(places))
            steps = np.linspace(0, len(places) - 1, left) if left else np.zeros(0)
            taken_now = [int(places[round(step)]) for step in steps]
            same[taken_now] = False
            found += [place + first for place in taken_now]
        return found

    def with_option(self, utility: str, name: str, count: int, *, alone: bool) -> list[int]:
        """Return the numbers of at most `count` records with an option, at even distances.

        `alone`: records with only that option; otherwise records with further options, fewest
        first. An empty name selects records without options.
        """
        first, end = self.utilities.get(utility, (0, 0))
        options = self.rows["options"][first:end]
        bit = np.uint64(option_bit(name) if name else 0)
        if alone:
            return [int(each) + first for each in _spread(np.flatnonzero(options == bit), count)]
        has = np.flatnonzero((options & bit) != 0)
        more = _ones(options[has])
        found: list[int] = []
        for number in range(2, _MOST_BESIDE + 1):
            left = (count - len(found) + 1) // 2 if number < _MOST_BESIDE else count - len(found)
            found += [int(each) + first for each in _spread(has[more == number], left)]
        return found

    def holding(self, utility: str, part: str, pattern: str) -> list[int]:
        """Return the numbers of a utility's records whose texts match a pattern, short texts first.

        `part` is a substring of every match.
        """
        first, end = self.utilities.get(utility, (0, 0))
        rows = self.rows[first:end]
        if not len(rows):
            return []
        begins = rows["text"].astype(np.int64)
        lengths = rows["length"].astype(np.int64)
        area = bytes(self._texts[begins[0] : begins[-1] + lengths[-1]])
        found = [match.start() for match in re.finditer(re.escape(_bytes(part)), area)]
        places = np.array(found, dtype=np.int64) + begins[0]
        numbers = np.unique(np.searchsorted(begins, places, "right") - 1)
        wanted = re.compile(_bytes(pattern))
        starts = begins - begins[0]
        matching = [
            number
            for number in numbers.tolist()
            if wanted.search(area[starts[number] : starts[number] + lengths[number]])
        ]
        matching.sort(key=lambda number: lengths[number])
        return [number + first for number in matching]

    def entry(self, number: int) -> MemoryEntry:
        """Return the record with this number."""
        row = _ROW_BEGINS.unpack_from(self._bytes, number * ROW.itemsize)
        _, place, length, behavior, _, _, _, start = row
        text = self._texts[place : place + length].decode("utf-8", "surrogateescape")
        return MemoryEntry(number, self._starts[start], text, behavior)

    def behavior(self, number: int) -> Kept:
        """Return the recorded behavior with this number (`MemoryEntry.behavior`)."""
        first, end = int(self._places[number]), int(self._places[number + 1])
        try:
            code, output, patch, channels, is_error, volatile = _DECODER.decode(
                self._behaviors[first:end]
            )
            if patch != "[]":
                check_patch(patch)
        except Exception:  # faster than a `with` block: there are many reads
            with raise_model_errors(self.directory / "behaviors.bin"):
                raise
        split = None if channels is None else (_text(channels[0]), _text(channels[1]))
        return Kept(code, _text(output), patch, split, is_error, volatile)


_ENCODER = msgspec.msgpack.Encoder()
_Code = Annotated[int, msgspec.Meta(ge=0, le=255)]
_DECODER = msgspec.msgpack.Decoder(tuple[_Code, bytes, str, tuple[bytes, bytes] | None, bool, bool])


def write_index(directory: Path, records: Iterable[tuple[str, str, Taken | None, Kept]]) -> None:
    """Write records into a directory as an index.

    A record is a start directory, a text, the parsed command (None for several commands), and the
    recorded behavior. If records have the same start directory and text, the first is kept.
    """
    by_utility: dict[str, list[tuple[str, str, Taken | None, Kept]]] = {}
    seen: set[tuple[str, str]] = set()
    for record in records:
        if record[:2] not in seen:
            seen.add(record[:2])
            utility = record[2].form.utility if record[2] else ""
            by_utility.setdefault(utility, []).append(record)
    starts: dict[str, int] = {}
    behaviors: dict[bytes, int] = {}
    texts = bytearray()
    rows = np.zeros(sum(map(len, by_utility.values())), dtype=ROW)
    utilities: list[tuple[str, int, int]] = []
    number = 0
    for utility in sorted(by_utility):
        utilities.append((utility, number, number + len(by_utility[utility])))
        for cwd, text, taken, kept in by_utility[utility]:
            data = text.encode("utf-8", "surrogateescape")
            packed = _packed(kept)
            row = rows[number]
            row["hash"] = _hash(f"{cwd}\0{text}")
            row["text"], row["length"] = len(texts), len(data)
            row["behavior"] = behaviors.setdefault(packed, len(behaviors))
            row["start"] = starts.setdefault(cwd, len(starts))
            if taken is not None:
                (
                    row["options"], row["values"], row["operands"], row["classes"], row["words"]
                ) = signature(taken)  # fmt: skip
            texts += data
            number += 1
    directory.mkdir(parents=True, exist_ok=True)
    np.save(directory / ROWS, rows)
    places = np.cumsum([0, *map(len, behaviors)], dtype=np.uint32)
    np.save(directory / "behaviors.npy", places)
    (directory / "texts.bin").write_bytes(texts)
    (directory / "behaviors.bin").write_bytes(b"".join(behaviors))
    head = {"forms": FORMS, "starts": list(starts), "utilities": utilities}
    (directory / _HEAD).write_text(json.dumps(head, ensure_ascii=False))


def columns_of(directory: Path) -> bytes:
    """Return the rows of an index, column by column, which halves their compressed size.

    Fields that follow from the texts are left out; `write_rows` restores them.
    """
    rows, made = array_member(directory / ROWS, ROW), io.BytesIO()
    columns = {name: rows[name].T for name in ROW.names or () if name not in _FOUND}
    np.savez(made, allow_pickle=False, **columns)
    return made.getvalue()


def write_rows(directory: Path) -> None:
    """Write the rows of an index from its columns (`columns_of`), and remove the columns.

    Errors: ModelError if columns, texts and head are inconsistent.
    """
    file = directory / COLUMNS
    columns, head = arrays_member(file), json_member(directory / _HEAD, _Head)
    with raise_model_errors(file):
        rows = np.zeros(len(columns["length"]), dtype=ROW)
        for name in set(ROW.names or ()).difference(_FOUND):
            rows[name] = columns[name].T
        ends = np.cumsum(rows["length"], dtype=np.int64)
        texts = (directory / "texts.bin").read_bytes()
        if ends[-1:].sum() != len(texts):
            raise ValueError("texts.bin has an unexpected length")
        rows["text"] = ends - rows["length"]
        begun = [
            zlib.crc32(f"{cwd}\0".encode("utf-8", "surrogateescape")) for cwd in head["starts"]
        ]
        begins = zip(rows["start"].tolist(), rows["text"].tolist(), ends.tolist(), strict=True)
        rows["hash"] = [zlib.crc32(texts[first:end], begun[start]) for start, first, end in begins]
    np.save(directory / ROWS, rows)  # after the block: a full disk does not mean a damaged index
    file.unlink()


def _packed(kept: Kept) -> bytes:
    channels = None if kept.channels is None else tuple(map(_bytes, kept.channels))
    return _ENCODER.encode(
        (kept.exit_code, _bytes(kept.output), kept.patch, channels, kept.is_error, kept.volatile)
    )


def _mapped(path: Path) -> mmap.mmap | bytes:
    with raise_model_errors(path), open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""


def _hash(text: str) -> int:
    return zlib.crc32(text.encode("utf-8", "surrogateescape"))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def sizes(directory: Path) -> Sequence[tuple[str, int]]:
    """Return the names of an index's files, each with its size in bytes."""
    return [(path.name, path.stat().st_size) for path in sorted(directory.iterdir())]
