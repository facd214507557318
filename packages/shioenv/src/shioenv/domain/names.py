r"""How file names and shell values, which are bytes, are written as text.

The text of a name is reversible: undecodable bytes become `\xHH`, so a backslash becomes two.
Values of variables are read by people far more often than reversed, so their backslashes stay
single.
"""

from __future__ import annotations

import hashlib
import re

_ESCAPE = re.compile(r"\\(?:x([0-9a-f]{2})|\\)")


def name_text(name: bytes) -> str:
    r"""A file name as text: UTF-8, undecodable bytes as `\xHH`, a backslash as two. Reversible."""
    if name.isascii() and b"\\" not in name:
        return name.decode("ascii")
    return name.replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace")


def name_bytes(text: str) -> bytes:
    """The file name that `name_text` wrote as `text`."""
    parts, end = [], 0
    for match in _ESCAPE.finditer(text):
        parts.append(text[end : match.start()].encode())
        parts.append(bytes([int(match[1], 16)]) if match[1] else b"\\")
        end = match.end()
    parts.append(text[end:].encode())
    return b"".join(parts)


def value_text(value: bytes) -> str:
    r"""A shell value as text: UTF-8, undecodable bytes as `\xHH`, backslashes as they are."""
    return value.decode("utf-8", "backslashreplace")


def file_key(path: bytes, start: bytes) -> str:
    """The name of a file in a context's `fs`, by the file's absolute path.

    Inside the start directory the name is the path relative to that directory, `.` for the
    directory itself. Outside it is the absolute path.
    """
    inside = start.rstrip(b"/") + b"/"
    if path.startswith(inside):
        return name_text(path[len(inside) :]) or "."
    return "." if path == start else name_text(path)


def place_in_directory(name: bytes) -> int:
    """A name's place in the listing of its pristine directory: the smallest number comes first.

    The order is ours. The sandbox makes files in the order of the first 8 bytes of their names'
    SHA-256, little end first (`native/around/tree.c`). A file system in memory lists the last one
    first.
    """
    return -int.from_bytes(hashlib.sha256(name).digest()[:8], "little")
