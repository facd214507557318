"""Lines of imported files: reading, rejecting, finding duplicate inputs."""

from __future__ import annotations

import json
import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from shioenv.errors import ImportFileError
from shioenv.files.compressed import stream_lines, unpacking
from shioenv.files.durable import atomic_write, storage_errors
from shioenv.grammar.library import load_grammars
from shioenv.grammar.parse import InputParser
from shioenv.synthesis.stream import DigestSet

REJECTED = "rejected.ndjson"
"""The file in a dataset's directory that lists the rejected lines of an import, with reasons."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """A line that an import left out, with the reason."""

    line: int
    """The number of the line, from 1."""
    text: str
    """The first 500 characters of the line."""
    reason: str
    file: str | None = None
    """The name of the file if the import may read several; else None."""

    @classmethod
    def of(cls, line: int, content: bytes, reason: str, file: str | None = None) -> Rejection:
        """Return the rejection of a line with this content."""
        return cls(line, content[:2000].decode("utf-8", "replace")[:500], reason, file)

    def to_json(self) -> dict[str, Any]:
        """Return the rejection as JSON for programs."""
        return {name: value for name, value in asdict(self).items() if value is not None}


MOST_REJECTED = 1_000_000
"""Maximum number of lines that an import may leave out; with more it fails. The limit is for
hostile files, which may have a gigabyte of lines."""


def reasons(rejected: Iterable[Rejection]) -> dict[str, int]:
    """Return the number of rejected lines by reason, in descending order."""
    return dict(Counter(rejection.reason for rejection in rejected).most_common())


def summarize_reasons(rejected: Iterable[Rejection], most: int | None = None) -> str:
    """Return the `most` frequent reasons (None: all) as a part of a message."""
    counts = list(reasons(rejected).items())[:most]
    return ", ".join(f"{count} lines: {reason}" for reason, count in counts) or "the file is empty"


def write_rejections(directory: Path, rejected: Sequence[Rejection]) -> None:
    """Write the rejections next to the records; no file if nothing was rejected."""
    if rejected:
        texts = (json.dumps(rejection.to_json(), ensure_ascii=False) for rejection in rejected)
        content = "".join(f"{text}\n" for text in texts).encode("utf-8", "surrogatepass")
        with storage_errors(directory):
            atomic_write(directory / REJECTED, content)


def read_lines(
    path: str | Path, pass_on: Callable[[bytes], None] = lambda line: None
) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a text file without their ends, numbered from 1.

    The file may be compressed by gzip or Zstandard. A byte order mark at the beginning is removed.
    `pass_on` is called with the original bytes of each line, before it is yielded.

    Errors: ImportFileError if the file cannot be read, is not a regular file, or is not text. A
    file is no text if it begins like another kind of file. The same holds if over a tenth of its
    first mebibyte is control characters or not UTF-8.
    """
    size = foreign = 0
    try:
        with unpacking(Path(path)) as stream:
            _refuse_known(path, stream.peek(_HEAD))
            for number, line in enumerate(stream_lines(stream), 1):
                pass_on(line)
                if number == 1:
                    _refuse_one_line(path, line)
                if size <= _LOOKED_AT:
                    size += len(line)
                    foreign += _foreign(line)
                    if size > _LOOKED_AT:
                        _refuse_foreign(path, size, foreign)
                yield number, line.removeprefix(BOM_UTF8 if number == 1 else b"").rstrip(b"\r\n")
    except OSError as error:
        raise ImportFileError(f"{path} cannot be read: {error.strerror}") from None
    _refuse_foreign(path, size, foreign)


_HEAD = 512
PARQUET = re.compile(rb"PAR1[\x00-\x08\x0e-\x1f]")
"""The beginning of a Parquet file: its magic number, and a field of the structure after it."""
_ARCHIVE = re.compile(
    rb"PK[\x03\x05][\x04\x06]|!<arch>\n|.{257}ustar(?:\x0000|  \0)|\x7fELF|SQLite format 3\0"
    rb"|BZh[1-9](?:1AY&SY|\x17rE8P\x90)|\x1f\x8b\x08|\x28\xb5\x2f\xfd",
    re.DOTALL,
)
_MARKUP = re.compile(
    rb"%PDF-\d\.\d|<\?xml\s+version\s*=|<!doctype\s+html[\s>]"
    rb"|<html(?:\s[^<>\n]*)?>[ \t\r]*(?:[<\n]|\Z)",
    re.IGNORECASE,
)
"""Beginnings of files that are not lists of inputs, though some of their lines may look like
inputs.

The patterns match no valid input: `BZh=9`, `PAR1=x` and `<html.txt sort` are Bash.
"""
_LOOKED_AT = 1 << 20
"""Number of leading bytes that determine whether a file is text."""
_CONTROLS = bytes({*range(32), 127} - {*b"\b\t\n\v\f\r\x1b"})
_OTHERS = bytes({*range(256)} - {*_CONTROLS})
_TEXT = (
    "the file must have an input on each line, as UTF-8 text or JSON (iconv converts other "
    "encodings); shioenv dataset import also reads files of shioenv dataset export"
)


def _refuse_known(path: str | Path, begin: bytes) -> None:
    """Raise ImportFileError for a file that begins like another kind of file."""
    if begin.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):  # of UTF-32 as well
        raise ImportFileError(f"{path} is not a text file: it is UTF-16 or UTF-32", hint=_TEXT)
    begin = begin.removeprefix(BOM_UTF8)
    if any(sign.match(begin) for sign in (PARQUET, _ARCHIVE, _MARKUP)):
        raise ImportFileError(
            f"{path} is not a text file: it begins with {begin[:20]!r}", hint=_TEXT
        )


def _refuse_one_line(path: str | Path, line: bytes) -> None:
    """Raise ImportFileError for a file that seems to be one line because lines end in CR."""
    if not line.endswith(b"\n") and b"\r" in line.rstrip(b"\r"):
        raise ImportFileError(
            f"{path}: lines end in CR without LF",
            hint=f"tr '\\r' '\\n' < {path} > NEW converts them",
        )


def _foreign(line: bytes) -> int:
    """Return the number of bytes in a line that are control characters or not UTF-8."""
    controls = len(line.translate(None, _OTHERS))
    try:
        line.decode()
    except UnicodeDecodeError:
        return controls + len(line) - len(line.decode("utf-8", "ignore").encode())
    return controls


def _refuse_foreign(path: str | Path, size: int, foreign: int) -> None:
    if foreign > size / 10:
        raise ImportFileError(
            f"{path} is not a text file: of its first {size:,} bytes, {foreign:,} are control "
            "characters or not UTF-8",
            hint=_TEXT,
        )


class Distinct:
    """Finds duplicate inputs by digests, in 17 bytes for each input."""

    def __init__(self) -> None:
        self._seen = DigestSet()

    def refusal(self, content: bytes) -> str | None:
        """Return the reason why the input is refused; None at its first occurrence."""
        return None if self._seen.add_content(content) else "duplicate of an earlier input"


@cache
def shipped_parser() -> InputParser:
    """Return a parser of inputs with all shipped grammars, independent of a system."""
    return InputParser(load_grammars())
