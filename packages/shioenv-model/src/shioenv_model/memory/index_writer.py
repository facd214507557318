"""Writing of an index from records or a packed model, and packing of an index for a model."""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
import zstandard

from shioenv_model.memory.index import (
    BEHAVIOR_ENDS,
    BEHAVIORS,
    COLUMNS,
    DICTIONARY,
    FORMS,
    FRAME_ENDS,
    FRAMES,
    HEAD,
    ROW,
    ROWS,
    Index,
    IndexHead,
    Rows,
    signature,
    text_bytes,
    text_hash,
)
from shioenv_model.memory.members import (
    array_member,
    arrays_member,
    json_member,
    raise_model_errors,
)
from shioenv_model.memory.rewrite import Kept, Taken

_LARGE = 128
"""Bytes from which a behavior is compressed (our choice)."""

_SAMPLES, _SAMPLE, _DICTIONARY_SIZE = 2_000, 4_096, 112 * 1024
"""Number of behaviors from which a dictionary is trained, bytes used of each, and its size in bytes
(our choice)."""

_FOUND = ("hash", "text")
"""The fields of a row that are computed from the texts."""

_ENCODER = msgspec.msgpack.Encoder()


def write_index(
    directory: Path,
    records: Iterable[tuple[str, str, Taken | None, Kept]],
    base: Index | None = None,
) -> None:
    """Write records into a directory as an index, after those of the index `base`.

    A record is a start directory, a text, the parsed command (None for several commands), and the
    recorded behavior. If records have the same start directory and text, the first is kept.
    """
    by_utility: dict[str, list[tuple[str, str, Taken | None, Kept]]] = {}
    seen: set[tuple[str, str]] = set()
    for record in records:
        if record[:2] not in seen and not (base and base.exact(*record[:2])):
            seen.add(record[:2])
            utility = record[2].form.utility if record[2] else ""
            by_utility.setdefault(utility, []).append(record)
    starts = {cwd: number for number, cwd in enumerate(base.starts if base else ())}
    behaviors: dict[bytes, int] = {}
    first_behavior = base.n_behaviors if base else 0
    texts = bytearray()
    parts: list[Rows] = []
    utilities: list[tuple[str, int, int]] = []
    number = 0
    for utility in sorted({*by_utility, *(base.utilities if base else ())}):
        first = number
        if base and utility in base.utilities:  # parsing them again takes minutes
            old, area = base.records_of(utility)
            old["text"] += len(texts) - int(old["text"][:1].sum())
            parts.append(old)
            texts += area
            number += len(old)
        added = by_utility.get(utility, [])
        rows = np.zeros(len(added), dtype=ROW)
        for row, (cwd, text, taken, kept) in zip(rows, added, strict=True):
            data = text.encode("utf-8", "surrogateescape")
            row["hash"] = text_hash(f"{cwd}\0{text}")
            row["text"], row["length"] = len(texts), len(data)
            row["behavior"] = first_behavior + behaviors.setdefault(_packed(kept), len(behaviors))
            row["start"] = starts.setdefault(cwd, len(starts))
            if taken is not None:
                (
                    row["options"], row["values"], row["operands"], row["classes"], row["words"]
                ) = signature(taken)  # fmt: skip
            texts += data
        parts.append(rows)
        number += len(rows)
        utilities.append((utility, first, number))
    directory.mkdir(parents=True, exist_ok=True)
    np.save(directory / ROWS, np.concatenate([np.zeros(0, dtype=ROW), *parts]))
    (directory / "texts.bin").write_bytes(texts)
    ends = np.cumsum([0, *map(len, behaviors)], dtype=np.int64)
    _write_frames(directory, b"".join(behaviors), ends, base)
    head = {"forms": FORMS, "starts": list(starts), "utilities": utilities}
    (directory / HEAD).write_text(json.dumps(head, ensure_ascii=False))


def _write_frames(directory: Path, behaviors: bytes, ends: Rows, base: Index | None = None) -> None:
    """Write behaviors that are given as a packed model stores them. Large ones are compressed.

    They come after those of the index `base`, and are compressed with its dictionary.
    """
    whole, sizes = memoryview(behaviors), np.diff(ends)
    dictionary = base.dictionary if base else _trained(whole, sizes, ends)
    compress = zstandard.ZstdCompressor(level=3, dict_data=dictionary).compress
    old = base.frame_sizes() if base else sizes[:0]
    with (directory / FRAMES).open("wb") as file:  # one at a time, since there are many
        file.write(base.frames() if base else b"")
        for number, (first, end) in enumerate(pairwise(ends.tolist())):
            part = whole[first:end]
            sizes[number] = file.write(compress(part) if end - first >= _LARGE else part)
    np.save(directory / FRAME_ENDS, np.cumsum([0, *old, *sizes], dtype=np.uint32))
    (directory / DICTIONARY).write_bytes(dictionary.as_bytes())


def _trained(whole: memoryview, sizes: Rows, ends: Rows) -> zstandard.ZstdCompressionDict:
    """Train a dictionary on some of the large behaviors. It is empty if they are too few."""
    large = np.flatnonzero(sizes >= _LARGE)
    places = large[np.linspace(0, len(large) - 1, min(len(large), _SAMPLES)).astype(int)]
    samples: list[bytes | bytearray | memoryview] = [
        bytes(whole[first : first + min(size, _SAMPLE)])
        for first, size in zip(ends[places].tolist(), sizes[places].tolist(), strict=True)
    ]
    try:
        return zstandard.train_dictionary(_DICTIONARY_SIZE, samples)
    except zstandard.ZstdError:
        return zstandard.ZstdCompressionDict(b"")


def packed_members(directory: Path) -> Iterator[tuple[str, bytes]]:
    """Yield names and contents of an index's files that a packed model stores in another form."""
    behaviors = list(Index(directory).behaviors())
    ends = io.BytesIO()
    np.save(ends, np.cumsum([0, *map(len, behaviors)], dtype=np.uint32))
    yield BEHAVIORS, b"".join(behaviors)
    yield BEHAVIOR_ENDS, ends.getvalue()
    yield COLUMNS, _columns_of(directory)


def unpack_index(directory: Path, behaviors: bytes) -> None:
    """Write an index's files from those of a packed model; `behaviors` is its file `BEHAVIORS`.

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
    columns, head = arrays_member(file), json_member(directory / HEAD, IndexHead)
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
    np.save(directory / ROWS, rows)  # outside the block: a full disk is not a damaged file
    file.unlink()


def _packed(kept: Kept) -> bytes:
    channels = None if kept.channels is None else tuple(map(text_bytes, kept.channels))
    return _ENCODER.encode(
        (
            kept.exit_code,
            text_bytes(kept.output),
            kept.patch,
            channels,
            kept.is_error,
            kept.volatile,
        )
    )
