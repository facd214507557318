r"""Text encoding of file names and shell values, which are bytes.

The encoding of names is reversible: undecodable bytes become `\xHH`, so a backslash is doubled.
Values of variables are rarely decoded, so their backslashes are not doubled, for readability.
"""

from __future__ import annotations

import re

_ESCAPE = re.compile(r"\\(?:x([0-9a-f]{2})|\\)")


def name_text(name: bytes) -> str:
    r"""Encode a file name as UTF-8. Undecodable bytes become `\xHH`, backslashes are doubled."""
    if name.isascii() and b"\\" not in name:
        return name.decode("ascii")
    return name.replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace")


def name_bytes(text: str) -> bytes:
    """Decode a file name encoded by `name_text`."""
    parts, end = [], 0
    for match in _ESCAPE.finditer(text):
        parts.append(text[end : match.start()].encode())
        parts.append(bytes([int(match[1], 16)]) if match[1] else b"\\")
        end = match.end()
    parts.append(text[end:].encode())
    return b"".join(parts)


def value_text(value: bytes) -> str:
    r"""Encode a shell value as UTF-8 text, with `\xHH` for undecodable bytes."""
    return value.decode("utf-8", "backslashreplace")


def file_key(path: bytes, start: bytes) -> str:
    """Return the name in a context's `fs` of the file with an absolute path.

    Inside the start directory the name is the path relative to that directory, `.` for the
    directory itself. Outside it is the absolute path.
    """
    inside = start.rstrip(b"/") + b"/"
    if path.startswith(inside):
        return name_text(path[len(inside) :]) or "."
    return "." if path == start else name_text(path)
