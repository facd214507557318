"""An on-disk index of executed inputs, searchable by similarity without reading them all.

An index is a directory of files that are read in parts. It has a row of 41 bytes for each input,
the texts, and each distinct behavior once; large ones are compressed with a common dictionary.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, Any, Required, TypedDict

import msgspec
import numpy as np
import numpy.typing as npt
import zstandard

from shioenv.bash.normal import InputForms
from shioenv.errors import ModelError
from shioenv.files.regular import read_regular
from shioenv_model.memory.facts import CLASSES
from shioenv_model.memory.members import (
    LARGEST,
    StoredArray,
    StoredFile,
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
Columns = Mapping[str, Rows]
"""The fields of consecutive rows, each as a contiguous array."""

_TWO_ENDS = struct.Struct("<2I")
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
    values = text_hash(repr(sorted(map(repr, form.options)))) & 0xFFFF
    classes = [CLASSES.index(each.kind) + 1 for each in taken.operands[:SLOTS]]
    words = [text_hash(each.key or each.word) & 0xFFFF for each in taken.operands[:SLOTS]]
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


HEAD = "index.json"

ROWS = "rows.npy"
"""The file with the rows of an index."""

COLUMNS = "columns.npz"
"""The file that replaces `ROWS` in a packed model."""

FRAMES, FRAME_ENDS, DICTIONARY = "behaviors.zst", "frames.npy", "dictionary.bin"
"""The files of the compressed behaviors, of their offsets, and of their dictionary."""

BEHAVIORS, BEHAVIOR_ENDS = "behaviors.bin", "behaviors.npy"
"""The files of the behaviors and their ends, not compressed, in a packed model."""

PACKED = frozenset({BEHAVIORS, BEHAVIOR_ENDS, COLUMNS})
"""The files of an index that only a packed model has."""

LAYOUT = 2
"""The version of an index's files. Increment it when they change, since caches contain them."""

_COMPRESSED = zstandard.FRAME_HEADER
"""The first bytes of a compressed behavior. Other behaviors begin as a MessagePack array."""

_READ = 2
"""Number of utilities whose rows are kept in memory (our choice)."""

_Count = Annotated[int, msgspec.Meta(ge=0)]
_Path = Annotated[str, msgspec.Meta(pattern="^/")]


class IndexHead(TypedDict, total=False):
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
    return (Path(directory) / HEAD).exists()


def _texts(directory: Path) -> Iterator[str]:
    return Index(directory).texts()


class Index:
    """The executed inputs in a directory. Opening reads the head and checks the rows."""

    def __init__(self, directory: Path) -> None:
        """Open an index. Errors: ModelError if the directory has no index, or a damaged one."""
        self.directory = directory
        if not holds_index(directory):
            raise ModelError(f"{directory} is not a memory: {HEAD} is missing")
        head = json_member(directory / HEAD, IndexHead)
        if head.get("forms") != FORMS:
            raise ModelError(
                f"{directory} was made by a release that parses commands differently",
                hint="train it again on its material: shioenv train memory",
            )
        self._rows = StoredArray(directory / ROWS, ROW)
        self._texts = StoredFile(directory / "texts.bin")
        self._frames = StoredFile(directory / FRAMES)
        self._ends = StoredArray(directory / FRAME_ENDS, np.uint32)
        with raise_model_errors(directory / DICTIONARY):
            self.dictionary = zstandard.ZstdCompressionDict(read_regular(directory / DICTIONARY))
            """The dictionary with which large behaviors are compressed."""
            self._decompressor = zstandard.ZstdDecompressor(dict_data=self.dictionary)
        self.starts: list[str] = head["starts"]
        """The start directories of the records."""
        self.utilities: dict[str, tuple[int, int]] = {
            name: (first, end) for name, first, end in head["utilities"]
        }
        self._columns = lru_cache(maxsize=_READ)(self._read_columns)
        self._hashes = self._checked()

    def _checked(self) -> npt.NDArray[np.uint32]:
        """Check that the files are consistent. Return the hashes of all rows. Errors: ModelError.

        The hashes are kept in memory, since every query scans them.
        """
        with raise_model_errors(self.directory / FRAME_ENDS):
            last = 0
            for number, ends in enumerate(self._ends.parts()):
                steps = np.diff(ends.astype(np.int64), prepend=last)
                if (steps < 0).any() or (ends[0] and not number):
                    raise ValueError("its offsets do not start at 0, or they decrease")
                last = int(ends[-1])
            if not len(self._ends) or last != self._frames.size:
                raise ValueError(f"{FRAMES} has an unexpected length")
        hashes = np.zeros(len(self._rows), dtype=np.uint32)
        with raise_model_errors(self.directory / ROWS):
            first = ended = 0
            for rows in self._rows.parts():
                hashes[first : first + len(rows)] = rows["hash"]
                first += len(rows)
                ended = max(ended, int((rows["text"].astype(np.int64) + rows["length"]).max()))
                if (rows["behavior"] >= len(self._ends) - 1).any():
                    raise ValueError("a row refers to a missing behavior")
                if (rows["start"] >= len(self.starts)).any():
                    raise ValueError("a row refers to a missing directory")
            if ended != self._texts.size:
                raise ValueError("texts.bin does not have the length that its rows require")
        with raise_model_errors(self.directory / HEAD):
            if any(not first <= end <= len(self) for first, end in self.utilities.values()):
                raise ValueError("it refers to missing rows")
        return hashes

    def _read_columns(self, utility: str) -> tuple[int, Columns]:
        """Return the number of a utility's first row, and the columns of all its rows."""
        first, end = self.utilities.get(utility, (0, 0))
        rows = self._rows.read(first, end)
        return first, {name: np.ascontiguousarray(rows[name]) for name in ROW.names or ()}

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def training(self) -> InputForms:
        """The inputs of the records, as the `training` of a predictor that answers from them."""
        return InputForms(str(self.directory), partial(_texts, self.directory))

    def texts(self) -> Iterator[str]:
        """Yield the input of each record, without its start directory."""
        return (self.entry(number).text for number in range(len(self)))

    def exact(self, cwd: str, text: str) -> list[MemoryEntry]:
        """Return the records of exactly this input in this start directory."""
        found = np.flatnonzero(self._hashes == text_hash(f"{cwd}\0{text}"))
        entries = [self.entry(int(number)) for number in found]
        return [entry for entry in entries if (entry.cwd, entry.text) == (cwd, text)]

    def near(self, taken: Taken, count: int, without: int = -1) -> list[int]:
        """Return the numbers of the `count` nearest records of the same utility, nearest first.

        Only rows are compared. The record `without` is left out (-1: none). Records of the same
        text in other start directories are not left out.
        """
        first, rows = self._columns(taken.form.utility)
        if not len(rows["hash"]):
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
            far[rows["hash"] == self._hashes[without]] = np.inf
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
        first, rows = self._columns(taken.form.utility)
        bits, _, operands, classes, _ = signature(taken)
        same = rows["options"] == np.uint64(bits)
        if without >= 0:
            same &= rows["hash"] != self._hashes[without]
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
        first, rows = self._columns(utility)
        options = rows["options"]
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
        first, rows = self._columns(utility)
        begins = rows["text"].astype(np.int64)
        lengths = rows["length"].astype(np.int64)
        area = self._texts.read(*_area(begins, lengths))
        found = [match.start() for match in re.finditer(re.escape(text_bytes(part)), area)]
        places = np.array(found, dtype=np.int64) + _area(begins, lengths)[0]
        numbers = np.searchsorted(begins, places, "right") - 1
        wanted = re.compile(text_bytes(pattern))
        starts = begins - _area(begins, lengths)[0]
        matching = [
            number
            for number in dict.fromkeys(numbers.tolist())  # `np.unique` imports `numpy.ma`
            if wanted.search(area[starts[number] : starts[number] + lengths[number]])
        ]
        matching.sort(key=lambda number: lengths[number])
        return [number + first for number in matching]

    def entry(self, number: int) -> MemoryEntry:
        """Return the record with this number."""
        row = _ROW_BEGINS.unpack_from(self._rows.bytes_of(number))
        _, place, length, behavior, _, _, _, start = row
        text = self._texts.read(place, place + length).decode("utf-8", "surrogateescape")
        return MemoryEntry(number, self.starts[start], text, behavior)

    def behavior(self, number: int) -> Kept:
        """Return the recorded behavior with this number (`MemoryEntry.behavior`)."""
        try:
            content = self._behavior(number)
            code, output, patch, channels, is_error, volatile = _DECODER.decode(content)
            if patch != "[]":
                check_patch(patch)
        except Exception:  # faster than a `with` block: there are many reads
            with raise_model_errors(self.directory / FRAMES):
                raise
        split = None if channels is None else (_text(channels[0]), _text(channels[1]))
        return Kept(code, _text(output), patch, split, is_error, volatile)

    def _behavior(self, number: int) -> bytes:
        frame = self._frames.read(*_TWO_ENDS.unpack(self._ends.bytes_of(number, 2)))
        if frame[: len(_COMPRESSED)] != _COMPRESSED:
            return frame
        if not 0 <= zstandard.frame_content_size(frame) <= LARGEST:
            raise ValueError("a behavior is too large")
        return self._decompressor.decompress(frame)

    @property
    def n_behaviors(self) -> int:
        """The number of distinct behaviors."""
        return len(self._ends) - 1

    def records_of(self, utility: str) -> tuple[Rows, bytes]:
        """Return a copy of a utility's rows, and the texts of its records, which are contiguous."""
        rows = self._rows.read(*self.utilities[utility]).copy()
        return rows, self._texts.read(*_area(rows["text"], rows["length"]))

    def frames(self) -> bytes:
        """Return all behaviors as they are stored."""
        return self._frames.read(0, self._frames.size)

    def frame_sizes(self) -> Rows:
        """Return the size of each behavior as it is stored."""
        return np.diff(self._ends.read(0, len(self._ends)))

    def behaviors(self) -> Iterator[bytes]:
        """Yield the recorded behaviors as stored in a packed model. Errors: ModelError."""
        for number in range(self.n_behaviors):
            with raise_model_errors(self.directory / FRAMES):
                yield self._behavior(number)


_Code = Annotated[int, msgspec.Meta(ge=0, le=255)]
_DECODER = msgspec.msgpack.Decoder(tuple[_Code, bytes, str, tuple[bytes, bytes] | None, bool, bool])


def text_hash(text: str) -> int:
    """Return the hash of a text in a row: CRC-32."""
    return zlib.crc32(text.encode("utf-8", "surrogateescape"))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def text_bytes(text: str) -> bytes:
    """Encode a text, with lone surrogates for undecodable bytes."""
    return text.encode("utf-8", "surrogateescape")


def _area(begins: Rows, lengths: Rows) -> tuple[int, int]:
    """Return the start and the end of the texts of consecutive rows."""
    return (int(begins[0]), int(begins[-1]) + int(lengths[-1])) if len(begins) else (0, 0)


def sizes(directory: Path) -> Sequence[tuple[str, int]]:
    """Return the names of an index's files, each with its size in bytes."""
    return [(path.name, path.stat().st_size) for path in sorted(directory.iterdir())]
