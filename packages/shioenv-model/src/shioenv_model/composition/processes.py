"""What `ps` shows where it is the first stage of a pipeline, told from what it shows alone.

Alone, `ps` takes the place of its shell. In a pipeline the shell waits for it and for the other
stages, whose processes have the next numbers.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Sequence

_TITLES = frozenset({"CMD", "COMMAND"})
_STATES = {"shell": "Ss", "own": "R", "other": "S"}
SHELL = ("bash", "--norc", "--noprofile", "-c")
"""How the shell was called that runs an input, without the input."""


def with_stages(
    listing: bytes, own: Sequence[str], text: str, others: Sequence[Sequence[str]]
) -> bytes:
    """The listing with the shell, which runs `text`, and with the words of the other stages.

    `listing` is what the words `own` list alone. It stays as it is where it does not end with the
    line of `own`, or has no column of commands at its end.
    """
    *lines, last, end = os.fsdecode(listing).split("\n") if listing.count(b"\n") > 1 else ("", "")
    title = lines[0].split()[-1:] if lines else []
    command = next((one for one in (" ".join(own), own[0]) if last.endswith(f" {one}")), None)
    number = re.search(r"\bPID\b", lines[0]) if lines else None
    if end or number is None or command is None or not _TITLES & {*title}:
        return listing
    found = re.search(r"\d+\Z", last[: number.end()])
    if found is None:
        return listing
    named = command == own[0] != " ".join(own) or (title == ["CMD"] and len(own) == 1)
    first = int(found[0])
    rows = [("shell", (*SHELL, text)), ("own", own), *(("other", words) for words in others)]
    made = []
    for place, (kind, words) in enumerate(rows):
        row = _put(last, lines[0], "PID", str(first + place))
        if place:
            row = _put(row, lines[0], "PPID", str(first))
        at = lines[0].find("STAT")
        if at >= 0:
            row = row[:at] + _STATES[kind].ljust(4) + row[at + 4 :]
        shown = posixpath.basename(words[0]) if named else " ".join(words)
        made.append(row.removesuffix(command) + shown)
    return os.fsencode("\n".join((*lines, *made, "")))


def _put(row: str, header: str, title: str, value: str) -> str:
    """The row with another number in a column, whose numbers end where its title does."""
    column = re.search(rf"\b{title}\b", header)
    if column is None:
        return row
    old = re.search(r" *\d+\Z", row[: column.end()])
    if old is None:
        return row
    return row[: old.start()] + value.rjust(len(old[0])) + row[column.end() :]
