"""Lines of files that records are made of: read, told apart, and those that are left out."""

from __future__ import annotations

import hashlib
import json
import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE, BOM_UTF32_BE
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from shioenv.errors import ImportFileError
from shioenv.files.compressed import lines, unpacking
from shioenv.files.durable import atomic_write, storage_errors
from shioenv.grammar.library import load_grammars
from shioenv.grammar.parse import InputParser

REJECTED = "rejected.ndjson"
"""In a dataset's directory: what an import could not take, with line and reason."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """A line that is not in the dataset, and why."""

    line: int
    """From 1."""
    text: str
    """Its beginning."""
    reason: str
    file: str | None = None
    """Where several were imported."""

    @classmethod
    def of(cls, line: int, content: bytes, reason: str, file: str | None = None) -> Rejection:
        """The rejection of a line that holds this."""
        return cls(line, content[:2000].decode("utf-8", "replace")[:500], reason, file)

    def to_json(self) -> dict[str, Any]:
        """The rejection for programs."""
        return {name: value for name, value in asdict(self).items() if value is not None}


MOST_REJECTED = 1_000_000
"""Lines of a list that are left out at most: of a hostile file, all of its gigabyte of lines."""


def reasons(rejected: Iterable[Rejection]) -> dict[str, int]:
    """How many lines were rejected for what, the most frequent first."""
    return dict(Counter(rejection.reason for rejection in rejected).most_common())


def told(rejected: Iterable[Rejection], most: int | None = None) -> str:
    """The most frequent reasons for a message."""
    counts = list(reasons(rejected).items())[:most]
    return ", ".join(f"{count} lines: {reason}" for reason, count in counts) or "it is empty"


def write_rejections(directory: Path, rejected: Sequence[Rejection]) -> None:
    """Keeps what was rejected beside the records; nothing where there is none."""
    if rejected:
        texts = (json.dumps(rejection.to_json(), ensure_ascii=False) for rejection in rejected)
        content = "".join(f"{text}\n" for text in texts).encode("utf-8", "surrogatepass")
        with storage_errors(directory):
            atomic_write(directory / REJECTED, content)


def read_lines(
    path: str | Path, pass_on: Callable[[bytes], None] = lambda line: None
) -> Iterator[tuple[int, bytes]]:
    """The lines of a text without their ends, numbered from 1; of one that gzip or Zstandard
    compressed as well. A mark of the byte order before the first is left out.

    `pass_on` is given each of them whole, before anything is done with it. Errors: ImportFileError
    where the file cannot be read, is no file, or is no text. The first bytes tell, else a share of
    more than a tenth that is no UTF-8 or control characters.
    """
    size = foreign = 0
    try:
        with unpacking(Path(path)) as stream:
            _refuse_known(path, stream.peek(_HEAD))
            for number, line in enumerate(lines(stream), 1):
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
"""What a Parquet file begins with: its name, and a field of the structure behind it."""
_BEGINNINGS = {
    PARQUET.pattern: "a Parquet file",
    rb"ARROW1\0\0": "an Arrow file",
    rb"\x1f\x8b\x08": "compressed twice",
    rb"\x28\xb5\x2f\xfd": "compressed twice",
    rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)": "compressed by bzip2",
    rb"\xfd7zXZ\0": "compressed by xz",
    rb"7z\xbc\xaf\x27\x1c": "a 7z archive",
    rb"PK(?:\x03\x04|\x05\x06)": "a ZIP archive",
    rb"!<arch>\n": "an archive",
    rb".{257}ustar(?:\x0000|  \0)": "a tar archive",
    rb"\x7fELF[\x01\x02][\x01\x02]\x01": "a program",
    rb"%PDF-\d\.\d": "a PDF file",
    rb"SQLite format 3\0": "a database",
    rb"(?i:<\?xml\s+version\s*=)": "XML",
    rb"(?i:<!doctype\s+html[\s>])": "HTML",
    rb"(?i:<html(?:\s[^<>\n]*)?>[ \t\r]*(?:[<\n]|\Z))": "HTML",
}
"""What some files begin with that are not lists of inputs, though lines of them may look so. No
input begins so: `BZh=9`, `PAR1=x` and `<html.txt sort` are Bash.
"""
_KNOWN = [(re.compile(sign, re.DOTALL), kind) for sign, kind in _BEGINNINGS.items()]
_OF_TWO_BYTES = {
    rb"\xff\xfe\0\0|(?:[\t\n\r -~]\0\0\0){2}": "UTF-32LE",
    rb"\0\0\xfe\xff|(?:\0\0\0[\t\n\r -~]){2}": "UTF-32BE",
    rb"\xff\xfe|(?:[\t\n\r -~]\0){3}": "UTF-16LE",
    rb"\xfe\xff|(?:\0[\t\n\r -~]){3}": "UTF-16BE",
}
"""How a text begins that is in another encoding of Unicode: with its mark, or with ASCII."""
_LOOKED_AT = 1 << 20
"""Bytes of a file by which is told whether it is text."""
_CONTROLS = bytes({*range(32), 127} - {*b"\b\t\n\v\f\r\x1b"})
_OTHERS = bytes({*range(256)} - {*_CONTROLS})
_TEXT = (
    "a text has an input on each line, as text or as JSON; shioenv dataset import also reads "
    "exports of shioenv dataset export"
)
_MARKS = (BOM_UTF16_LE, BOM_UTF16_BE, BOM_UTF32_BE)


def _refuse_known(path: str | Path, begin: bytes) -> None:
    """ImportFileError for what begins as other files do."""
    for sign, encoding in _OF_TWO_BYTES.items():
        if re.match(sign, begin):
            family = encoding[:6] if begin.startswith(_MARKS) else encoding
            raise ImportFileError(
                f"{path} is no text in UTF-8: it is {encoding}",
                hint=f"iconv -f {family} -t UTF-8 {path} > NEW makes UTF-8 of it",
            )
    begin = begin.removeprefix(BOM_UTF8)
    kind = next((kind for sign, kind in _KNOWN if sign.match(begin)), None)
    if kind is not None:
        raise ImportFileError(f"{path} is no text: it is {kind}", hint=_TEXT)


def _refuse_one_line(path: str | Path, line: bytes) -> None:
    """ImportFileError for a file that is one line because CR alone ends each of its lines."""
    if not line.endswith(b"\n") and b"\r" in line.rstrip(b"\r"):
        raise ImportFileError(
            f"{path}: CR alone ends its lines",
            hint=f"tr '\\r' '\\n' < {path} > NEW makes lines of them",
        )


def _foreign(line: bytes) -> int:
    """Bytes of a line that no text has."""
    controls = len(line.translate(None, _OTHERS))
    try:
        line.decode()
    except UnicodeDecodeError:
        return controls + len(line) - len(line.decode("utf-8", "ignore").encode())
    return controls


def _refuse_foreign(path: str | Path, size: int, foreign: int) -> None:
    if foreign > size / 10:
        raise ImportFileError(
            f"{path} is no text: of its first {size:,} bytes {foreign:,} are control characters or "
            "no UTF-8",
            hint=_TEXT,
        )


class Distinct:
    """Tells inputs apart that were there before, by what of a digest suffices."""

    def __init__(self) -> None:
        self._seen: set[bytes] = set()

    def refusal(self, content: bytes) -> str | None:
        """Why the input is not taken; None where it is there for the first time."""
        key = hashlib.sha256(content).digest()[:16]
        if key in self._seen:
            return "the same input as an earlier one"
        self._seen.add(key)
        return None


@cache
def shipped_parser() -> InputParser:
    """Takes inputs apart by all shipped grammars, for no system in particular."""
    return InputParser(load_grammars())
