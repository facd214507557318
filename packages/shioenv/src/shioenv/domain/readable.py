"""File names, modes, results and context patches as people write and read them.

A patch names values by JSON Pointers, and files by the encoding of `shioenv.domain.names`.
"""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from shioenv.domain.context import FIELDS, keys
from shioenv.domain.names import name_bytes
from shioenv.errors import PatchError
from shioenv.text import printable

if TYPE_CHECKING:
    from shioenv.domain.behavior import Behavior
    from shioenv.domain.patch import Operation

LONGEST_DETAIL = 120
"""The length in characters to which `changes` cuts details by default."""

_VERBS = {"a": "added", "=": "changed", "r": "removed", "m": "moved"}
_LISTED = ("perms", "links", "owner", "group", "size", "month", "day", "time", "year")
_SPECIAL = re.compile(r"""[\s"'\\$`&|;<>()*?\[\]{}!]|\A[~#]|\A\Z""")
_ESCAPES = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\x1b": "\\e", "\\": "\\\\", "'": "\\'"}


class Change(NamedTuple):
    """A change that a patch makes, in readable form; `str()` gives a line of text."""

    verb: str
    """`added`, `changed`, `removed` or `moved`."""
    name: str
    """A file name (`notes.txt`, `/tmp/x`), or the place of another value (`env PWD`)."""
    detail: str
    """The new value; for a file, its entry in the format of `ls -l`. May be empty."""

    def __str__(self) -> str:
        gap = " " if self.verb == "moved" else "  "
        return f"{self.verb:7} {self.name}{gap}{self.detail}".rstrip()


def file_name(pointer: str) -> str:
    r"""Return the name of the file to which a JSON Pointer of a context patch belongs.

    `/fs/~1tmp~1.x` and `/fs/~1tmp~1.x/perms` give `/tmp/.x`. Names in the start directory are
    relative to it. Bytes that are not UTF-8 become surrogates, as in names from `os.listdir`.
    Errors: PatchError if the pointer does not address a file.
    """
    area, *names = keys(pointer) or [""]
    if area != "fs" or not names:
        raise PatchError(f"not the JSON Pointer of a file: {pointer!r:.80}", hint="/fs/NAME")
    return _bytes(names[0]).decode("utf-8", "surrogateescape")


def readable_name(name: str, start: str = "") -> str:
    """Format a file name of a context for people, as a Bash word that is safe on a terminal.

    The word is quoted if it contains spaces or special characters, and escaped if it contains
    unprintable ones. If the start directory is `/`, relative names become absolute. A relative name
    that equals a key of a context, such as `env`, gets the prefix `./`.
    """
    if start == "/" and not name.startswith("/"):
        name = "/" if name == "." else f"/{name}"
    return _quoted(_bytes(f"./{name}" if name in FIELDS else name))


def outcome(behavior: Behavior) -> str:
    """Describe in one line how an execution ended: exit code, signal, limits."""
    facts = [f"exit code {behavior.exit_code}"]
    if behavior.timed_out:
        facts.append("timed out")
    if behavior.died_by_signal:
        facts.append(f"ended by signal {behavior.died_by_signal}")
    reached = [name for name in behavior.limits_hit if name != "wall_seconds"]
    if reached:
        facts.append(f"limits reached: {', '.join(reached)}")
    if behavior.patch_truncated:
        facts.append("patch truncated")
    return ", ".join(facts)


def changes(
    operations: Sequence[Operation], start: str = "", *, longest: int = LONGEST_DETAIL
) -> list[Change]:
    """Return the operations of a context patch in readable form.

    Consecutive changes of one file's attributes are merged. `start` is the start directory; see
    `readable_name`. Details longer than `longest` characters are cut.
    """
    merged: list[Change] = []
    for operation in operations:
        change = _change(operation, start)
        if change.verb == "changed" and change.detail and merged and merged[-1][:2] == change[:2]:
            merged[-1] = change._replace(detail=f"{merged[-1].detail}, {change.detail}")
        else:
            merged.append(change)
    return [
        one if len(one.detail) <= longest else one._replace(detail=f"{one.detail[: longest - 1]}…")
        for one in merged
    ]


def _change(operation: Operation, start: str) -> Change:
    code, path = operation[0], keys(operation[1])
    name = _place(path, start)
    if code == "m":
        return Change(_VERBS[code], name, f"to {_place(keys(operation[2]), start)}")
    if path[:1] == ["fs"] and len(path) > 2:
        attribute = _quoted_text("/".join(path[2:]))
        value = f"no {attribute}" if code == "r" else f"{attribute} {_value(operation[2])}"
        return Change("changed", name, value)
    return Change(_VERBS[code], name, "" if code == "r" else _value(operation[2]))


def _place(path: Sequence[str], start: str) -> str:
    if path[:1] == ["fs"] and len(path) > 1:
        return readable_name(path[1], start)
    return " ".join(map(_quoted_text, path)) or "everything"


def _value(value: Any) -> str:
    """Format a value on one line: a file's entry as `ls -l` does, a text as a Bash word."""
    if isinstance(value, str):
        return _quoted_text(value)
    if not isinstance(value, dict) or not isinstance(value.get("perms"), str):
        return printable(json.dumps(value, ensure_ascii=False))
    listed = " ".join(_value(value[name]) for name in _LISTED if name in value)
    target = value.get("target")
    return f"{listed} -> {readable_name(target)}" if isinstance(target, str) else listed


def _bytes(name: str) -> bytes:
    """Return a name's bytes. A surrogate is kept as an escape; no recorded name contains one."""
    return name_bytes(name.encode("utf-8", "backslashreplace").decode())


def _quoted_text(text: str) -> str:
    return _quoted(text.encode("utf-8", "surrogatepass"))


def _quoted(word: bytes) -> str:
    """Quote a Bash word if necessary; unprintable characters and invalid bytes are escaped."""
    text = word.decode("utf-8", "surrogateescape")
    if text.isprintable():
        if not _SPECIAL.search(text):
            return text
        if "'" not in text:
            return f"'{text}'"
        if not {'"', "\\", "$", "`", "!"} & {*text}:
            return f'"{text}"'
    return "$'" + "".join(map(_escape, text)) + "'"


def _escape(character: str) -> str:
    """Escape a character for `$'…'`; a surrogate is a byte that is not UTF-8."""
    code = ord(character)
    if character in _ESCAPES or character.isprintable():
        return _ESCAPES.get(character, character)
    if 0xDC80 <= code <= 0xDCFF or code < 0x80:
        return f"\\x{code & 0xFF:02x}"
    return f"\\u{code:04x}" if code < 1 << 16 else f"\\U{code:08x}"


def mode_of(perms: str) -> int:
    """Return the permission bits of ten characters such as `drwxr-xr-x`."""
    bits = 0
    for place, letter in enumerate(perms[1:10]):
        bits |= (letter not in "-ST") << 8 - place
        if letter in "sStT":
            bits |= (stat.S_ISUID, stat.S_ISGID, stat.S_ISVTX)[place // 3]
    return bits


def format_mode(kind: str, mode: int) -> str:
    """Return the ten characters of a file of this kind (`-`, `d`, `l`, …) with these bits."""
    return kind + stat.filemode(mode)[1:]
