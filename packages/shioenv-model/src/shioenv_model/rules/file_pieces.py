"""Files that are made of pieces of other contents: what `dd` and `split` leave."""

from __future__ import annotations

import itertools
import re
import string
from collections.abc import Iterator, Sequence

from shioenv.domain.work import COPIED, spend
from shioenv.errors import Abstained
from shioenv_model.rules.tree_changes import Effects

LARGEST = 16 * 1024 * 1024
"""Most bytes of a file that is made; ours."""

_UNITS = {"": 1, "b": 512, "K": 1024, "k": 1024, "M": 1 << 20, "kB": 1000, "MB": 1_000_000}


def dd(made: Effects, words: Sequence[str]) -> bytes:
    """What `dd` makes of a file, or of zeros; without `of` it is printed. Errors: Abstained.

    The time that was taken, which `dd` tells without `status=none`, is made up.
    """
    given = dict(word.partition("=")[::2] for word in words)
    if len(given) < len(words) or not given.keys() <= {"if", "of", "bs", "count", "skip", "status"}:
        raise Abstained("an operand that is beyond it")
    if given.get("status", "none") != "none":
        raise Abstained("a status that is beyond it")
    block = _size(given.get("bs", "512"))
    count = _size(given["count"]) if "count" in given else None
    skip = _size(given.get("skip", "0"))
    if not block:
        raise Abstained("blocks of no size")
    content = _input(made, given.get("if"), None if count is None else (skip + count) * block)
    end = None if count is None else (skip + count) * block
    copied = content[skip * block : end]
    spend(len(copied) // COPIED)
    if "status" not in given:
        blocks = f"{len(copied) // block}+{int(len(copied) % block > 0)} records"
        told = f"{blocks} in\n{blocks} out\n{_counted(len(copied))} copied, 0.0005 s, 20 MB/s\n"
        made.errors, made.volatile = told.encode(), True
    if "of" not in given:
        return copied
    made.write(given["of"], copied)
    return b""


def _counted(number: int) -> str:
    """Bytes, as `dd` counts them: `3072 bytes (3.1 kB, 3.0 KiB)`."""
    if number < 1000:
        return f"{number} byte{'s' * (number != 1)}"
    binary = f", {_rounded(number, 1024)}" if number >= 1024 else ""
    return f"{number} bytes ({_rounded(number, 1000)}{binary})"


def _rounded(number: int, base: int) -> str:
    units = ("B", "kB", "MB", "GB") if base == 1000 else ("B", "KiB", "MiB", "GiB")
    scaled, unit = float(number), 0
    while scaled >= base:
        scaled, unit = scaled / base, unit + 1
    digits = 1 if unit and scaled < 9.95 else 0
    return f"{scaled:.{digits}f} {units[unit]}"


def _input(made: Effects, path: str | None, most: int | None) -> bytes:
    if path is None:
        return made.state.stdin
    if path == "/dev/zero":
        if most is None or most > LARGEST:
            raise Abstained("more zeros than are written")
        return bytes(most)
    if path == "/dev/null":
        return b""
    content = made.state.read(path)
    entry = made.state.entry(made.state.resolve(path))
    if content is None or entry is None or not entry.perms.startswith("-"):
        raise Abstained("a content that nobody knows")
    return content


def _size(word: str) -> int:
    match = re.fullmatch(r"(\d{1,9})([a-zA-Z]*)", word)
    if match is None or match[2] not in _UNITS:
        raise Abstained("a number that is beyond it")
    return int(match[1]) * _UNITS[match[2]]


def split(made: Effects, words: Sequence[str]) -> bytes:
    """The files that `split` makes by lines or bytes. Errors: Abstained."""
    lines, size, digits, length = 1000, 0, False, 2
    operands: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        match = re.fullmatch(r"-([lba])(.*)|-(\d+)", word)
        if match is None and word in ("-d", "--numeric-suffixes"):
            digits = True
        elif match is None:
            if word.startswith("-") and word != "-":
                raise Abstained("an option that is beyond it")
            operands.append(word)
        elif match[3]:
            lines = int(match[3])
        else:
            value = _size(match[2] or (left.pop(0) if left else ""))
            if match[1] == "l":
                lines = value
            elif match[1] == "b":
                size = value
            else:
                length = value
    source, prefix = (*operands, *("-", "x")[len(operands) :])[:2]
    if len(operands) > 2 or not (lines and 0 < length < 9):
        raise Abstained("operands that are beyond it")
    content = _input(made, None if source == "-" else source, None)
    spend(len(content) // COPIED)
    letters = string.digits if digits else string.ascii_lowercase
    names = itertools.product(letters, repeat=length)
    for piece in _by_bytes(content, size) if size else _by_lines(content, lines):
        name = next(names, None)
        # GNU's names grow before the last letter is used up
        if name is None or name[0] == letters[-1]:
            raise Abstained("more pieces than names")
        made.write(prefix + "".join(name), piece)
    return b""


def _by_bytes(content: bytes, size: int) -> Iterator[bytes]:
    return (content[start : start + size] for start in range(0, len(content), size))


def _by_lines(content: bytes, count: int) -> Iterator[bytes]:
    lines = [line for line in re.split(rb"(?<=\n)", content) if line]
    return (b"".join(lines[at : at + count]) for at in range(0, len(lines), count))
