"""An on-disk index of executed inputs, searchable by similarity without reading them all.

An index is a directory of files that are read in parts. It has a row of 41 bytes for each input,
the texts, and each distinct behavior once; large ones are compressed with a common dictionary.
"""

from __future__ import annotations

import io
import json
import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise
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

FRAMES, FRAME_ENDS, DICTIONARY = "behaviors.zst", "frames.npy", "dictionary.bin"
"""The files with the compressed behaviors, with the offsets of these, and with their dictionary."""

BEHAVIORS, BEHAVIOR_ENDS = "behaviors.bin", "behaviors.npy"
"""The files that replace those of the compressed behaviors in a packed model."""

PACKED = frozenset({BEHAVIORS, BEHAVIOR_ENDS, COLUMNS})
"""The files of an index that only a packed model has."""

LAYOUT = 2
"""The version of an index's files. Increment it when they change, since caches contain them."""

_LARGE = 256
"""Bytes from which a behavior is compressed (our choice)."""

_COMPRESSED = zstandard.FRAME_HEADER
"""The first bytes of a compressed behavior; others begin as an array of MessagePack."""

_SAMPLES, _SAMPLE, _DICTIONARY_SIZE = 2_000, 4_096, 112 * 1024
"""Number of behaviors from which a dictionary is trained, bytes used of each, and its size in bytes
(our choice)."""

_READ = 6
"""Number of utilities whose rows are kept in memory (our choice)."""

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
        self._rows = StoredArray(directory / ROWS, ROW)
        self._texts = StoredFile(directory / "texts.bin")
        self._frames = StoredFile(directory / FRAMES)
        self._ends = StoredArray(directory / FRAME_ENDS, np.uint32)
        with raise_model_errors(directory / DICTIONARY):
            self._decompressor = _decompressor(read_regular(directory / DICTIONARY))
        self._starts: list[str] = head["starts"]
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
                if (rows["start"] >= len(self._starts)).any():
                    raise ValueError("a row refers to a missing directory")
            if ended != self._texts.size:
                raise ValueError("texts.bin does not have the length that its rows require")
        with raise_model_errors(self.directory / _HEAD):
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
        found = np.flatnonzero(self._hashes == _hash(f"{cwd}\0{text}"))
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

        Records with the same number of operands come first. If some have other classes of operands,
        at most half of the result has the command's classes. If there are more than `count`, they
        are sampled at even distances. `without` is left out as in `near`.
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
        if not len(begins):
            return []
        area = self._texts.read(int(begins[0]), int(begins[-1] + lengths[-1]))
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
        row = _ROW_BEGINS.unpack_from(self._rows.bytes_of(number))
        _, place, length, behavior, _, _, _, start = row
        text = self._texts.read(place, place + length).decode("utf-8", "surrogateescape")
        return MemoryEntry(number, self._starts[start], text, behavior)

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

    def behaviors(self) -> Iterator[bytes]:
        """Yield the recorded behaviors as stored in a packed model. Errors: ModelError."""
        for number in range(len(self._ends) - 1):
            with raise_model_errors(self.directory / FRAMES):
                yield self._behavior(number)


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
    (directory / "texts.bin").write_bytes(texts)
    ends = np.cumsum([0, *map(len, behaviors)], dtype=np.int64)
    _write_frames(directory, b"".join(behaviors), ends)
    head = {"forms": FORMS, "starts": list(starts), "utilities": utilities}
    (directory / _HEAD).write_text(json.dumps(head, ensure_ascii=False))


def _write_frames(directory: Path, behaviors: bytes, ends: Rows) -> None:
    """Write behaviors, which a packed model stores in this form. Large ones are compressed."""
    whole, sizes = memoryview(behaviors), np.diff(ends)
    large = np.flatnonzero(sizes >= _LARGE)
    places = large[np.linspace(0, len(large) - 1, min(len(large), _SAMPLES)).astype(int)]
    samples: list[bytes | bytearray | memoryview] = [
        bytes(whole[first : first + min(size, _SAMPLE)])
        for first, size in zip(ends[places].tolist(), sizes[places].tolist(), strict=True)
    ]
    try:
        dictionary = zstandard.train_dictionary(_DICTIONARY_SIZE, samples)
    except zstandard.ZstdError:  # too few behaviors
        dictionary = zstandard.ZstdCompressionDict(b"")
    compress = zstandard.ZstdCompressor(level=3, dict_data=dictionary).compress
    with (directory / FRAMES).open("wb") as file:  # one at a time, since there are many
        for number, (first, end) in enumerate(pairwise(ends.tolist())):
            part = whole[first:end]
            sizes[number] = file.write(compress(part) if end - first >= _LARGE else part)
    np.save(directory / FRAME_ENDS, np.concatenate([[0], np.cumsum(sizes)]).astype(np.uint32))
    (directory / DICTIONARY).write_bytes(dictionary.as_bytes())


def packed_members(directory: Path) -> Iterator[tuple[str, bytes]]:
    """Yield names and contents of an index's files that a packed model stores in another form."""
    behaviors = list(Index(directory).behaviors())
    ends = io.BytesIO()
    np.save(ends, np.cumsum([0, *map(len, behaviors)], dtype=np.uint32))
    yield BEHAVIORS, b"".join(behaviors)
    yield BEHAVIOR_ENDS, ends.getvalue()
    yield COLUMNS, _columns_of(directory)


def unpack_index(directory: Path, behaviors: bytes) -> None:
    """Write an index's files from those of a packed model, of which `behaviors` is `BEHAVIORS`.

    Errors: ModelError if the files are inconsistent.
    """
    file = directory / BEHAVIOR_ENDS
    ends = array_member(file, np.uint32).astype(np.int64)
    with raise_model_errors(file):
        if not len(ends) or ends[0] or (np.diff(ends) < 0).any() or ends[-1] != len(behaviors):
            raise ValueError(f"its offsets do not fit {BEHAVIORS}")
    _write_frames(directory, behaviors, ends)
    file.unlink()
    _unpack_rows(directory)


def _columns_of(directory: Path) -> bytes:
    """Return the rows of an index, column by column, which halves their compressed size.

    Fields that follow from the texts are left out; `unpack_index` restores them.
    """
    rows, made = array_member(directory / ROWS, ROW), io.BytesIO()
    columns = {name: rows[name].T for name in ROW.names or () if name not in _FOUND}
    np.savez(made, allow_pickle=False, **columns)
    return made.getvalue()


def _unpack_rows(directory: Path) -> None:
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
    np.save(directory / ROWS, rows)  # not in the block: a full disk is no damage
    file.unlink()


def _packed(kept: Kept) -> bytes:
    channels = None if kept.channels is None else tuple(map(_bytes, kept.channels))
    return _ENCODER.encode(
        (kept.exit_code, _bytes(kept.output), kept.patch, channels, kept.is_error, kept.volatile)
    )


def _decompressor(dictionary: bytes) -> zstandard.ZstdDecompressor:
    return zstandard.ZstdDecompressor(dict_data=zstandard.ZstdCompressionDict(dictionary))


def _hash(text: str) -> int:
    return zlib.crc32(text.encode("utf-8", "surrogateescape"))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def sizes(directory: Path) -> Sequence[tuple[str, int]]:
    """Return the names of an index's files, each with its size in bytes."""
    return [(path.name, path.stat().st_size) for path in sorted(directory.iterdir())]
