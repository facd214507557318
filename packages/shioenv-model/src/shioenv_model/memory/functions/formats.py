"""Format strings, with directives that print attributes of a file."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime

from shioenv.domain.context import FileEntry, instant
from shioenv.domain.readable import mode_of
from shioenv_model.memory.functions.language import (
    Directive,
    FormattedFile,
    Language,
    OptionMeaning,
    Plan,
    flag,
    missing_file_error,
    unchanged_plan,
)
from shioenv_model.memory.functions.space import ESCAPES
from shioenv_model.memory.rewrite import Taken

_PART = re.compile(r"%%|%([-#0 +']*\d*(?:\.\d+)?)((?:[HL][rd]|[ATCB][A-Za-z@+]|[A-Za-z]))")
_ESCAPES = {**ESCAPES, "e": "\x1b", '"': '"'}

_BLOCK = 4096
"""Block size of the machine's disk, in bytes."""

_IN_INODE = 60
"""Symbolic links shorter than this are stored in the inode and take no block (ext4)."""

_KINDS = {
    "d": "directory", "l": "symbolic link", "p": "fifo", "s": "socket",
    "c": "character special file", "b": "block special file",
}  # fmt: skip


def split_format(form: str) -> Iterator[tuple[str, str, str]]:
    """Split a format into parts: text before a directive, its flags and its name.

    The name is empty for the text at the end. A `%%` is text.
    """
    text, done = "", 0
    for match in _PART.finditer(form):
        text += form[done : match.start()]
        done = match.end()
        if match[2] is None:
            text += "%"
            continue
        yield text, match[1], match[2]
        text = ""
    yield text + form[done:], "", ""


def unescape_format(form: str) -> str:
    """Replace the escapes in a format, as printf does. Errors: ValueError."""

    def one(match: re.Match[str]) -> str:
        if match[1][0] in "01234567":
            return chr(int(match[1], 8))
        if match[1] == "c":
            raise ValueError(form)
        return _ESCAPES.get(match[1], match[0])

    return re.sub(r"\\([0-7]{1,3}|.)", one, form)


def format_file(form: str, file: FormattedFile, directives: Mapping[str, Directive]) -> str | None:
    """Format a file; None if the value of a directive is unknown.

    Errors: LookupError for an undefined directive.
    """
    made = []
    for text, flags, name in split_format(form):
        made.append(text)
        if not name:
            continue
        value = directives[name](file)
        if value is None:
            return None
        shown = _padded(value, flags)
        if shown is None:
            return None
        made.append(shown)
    return "".join(made)


def _padded(value: str, flags: str) -> str | None:
    match = re.fullmatch(r"([-#0 +']*)(\d*)(?:\.(\d+))?", flags)
    if match is None or set(match[1]) & set("#+'"):
        return None
    if match[3]:
        value = value[: int(match[3])]
    width = min(int(match[2] or 0), 1000)
    if "-" in match[1]:
        return value.ljust(width)
    return value.rjust(width, "0" if "0" in match[1] else " ")


def format_instant(when: datetime, style: str) -> str:
    """Format an instant by a format of date(1). Errors: ValueError for unknown directives."""
    style = style.replace("%s", str(int(when.timestamp()))).replace("%N", "000000000")
    if re.search(r"%[^aAbBcdDeFhHIjklmMpPRSTuUVwWxXyYzZnt%]", style):
        raise ValueError(style)
    return when.strftime(style)


def kibibytes(entry: FileEntry) -> int:
    """Return a file's disk usage in KiB."""
    inline = entry.perms[0] in "pscb" or (entry.perms[0] == "l" and entry.size < _IN_INODE)
    return 0 if inline else -(-entry.size // _BLOCK) * _BLOCK >> 10


def _kind(file: FormattedFile) -> str:
    if file.entry.perms[0] == "-":
        return "regular file" if file.entry.size else "regular empty file"
    return _KINDS[file.entry.perms[0]]


def _quoted_name(file: FormattedFile) -> str | None:
    if not re.fullmatch(r"[\w./+@%:,=-]+", file.path):
        return None
    target = file.entry.target
    return f"'{file.path}'" if target is None else f"'{file.path}' -> '{target}'"


def _depth(file: FormattedFile) -> str:
    inner = _inner(file)
    return str(inner.count("/") + bool(inner))


def _inner(file: FormattedFile) -> str:
    return file.path[len(file.root) :].lstrip("/")


def _above(file: FormattedFile) -> str:
    above, mark, _ = file.path.rstrip("/").rpartition("/")
    return above if mark else "."


def _dated(style: str) -> Directive:
    def date(file: FormattedFile) -> str | None:
        return instant(file.entry).strftime(style)

    return date


def _followed(file: FormattedFile) -> str:
    entry = file.followed or file.entry
    letter = entry.perms[0]
    return "N" if letter == "l" else "f" if letter == "-" else letter


ATTRIBUTES: Mapping[str, Directive] = {
    "size": lambda file: str(file.entry.size),
    "name": lambda file: file.path,
    "last name": lambda file: posixpath.basename(file.path.rstrip("/")) or file.path[:1],
    "rights in octal": lambda file: f"{mode_of(file.entry.perms):o}",
    "rights": lambda file: file.entry.perms,
    "owner": lambda file: file.entry.owner,
    "group": lambda file: file.entry.group,
    "links": lambda file: str(file.entry.links),
    "kind in words": _kind,
    "kind": lambda file: file.entry.perms[0].replace("-", "f"),
    "kind of what is linked": _followed,
    "quoted name": _quoted_name,
    "path below": _inner,
    "directory": _above,
    "depth": _depth,
    "root": lambda file: file.root,
    "target": lambda file: file.entry.target or "",
    "owner's number": lambda file: file.tree.users.get(file.entry.owner),
    "group's number": lambda file: file.tree.groups.get(file.entry.group),
    "blocks": lambda file: str(2 * kibibytes(file.entry)),
    "KiB": lambda file: str(kibibytes(file.entry)),
    "year": _dated("%Y"),
    "month": _dated("%m"),
    "day": _dated("%d"),
    "hour": _dated("%H"),
    "minute": _dated("%M"),
    "date": _dated("%Y-%m-%d"),
    "American date": _dated("%m/%d/%y"),
    "month's name": _dated("%b"),
    "weekday": _dated("%a"),
    "hour and minute": _dated("%H:%M"),
    "day of the year": _dated("%j"),
}  # fmt: skip
"""Attributes that directives may print, simple ones first."""

ROUGH: Mapping[str, Directive] = {
    "instant to the minute": _dated("%Y-%m-%d %H:%M:00.000000000 +0000"),
    "full date": _dated("%a %b %e %H:%M:00.0000000000 %Y"),
    "date and time": _dated("%Y-%m-%d+%H:%M:00.0000000000"),
    "time": _dated("%H:%M:00.0000000000"),
    "fractions of seconds": lambda file: f"{instant(file.entry).timestamp():.10f}",
    "seconds to the minute": lambda file: str(int(instant(file.entry).timestamp())),
}  # fmt: skip
"""Directives for instants whose seconds are unknown and assumed to be 0, as they are for most
files."""


def _formatted(*, lines: bool) -> Callable[[Plan, str], None]:
    """Return a change that makes a plan format each file, with a newline or with escapes."""

    def change(plan: Plan, word: str) -> None:
        plan["format"] = f"{word}\n" if lines else unescape_format(word)

    return change


def _run(taken: Taken, plan: Plan) -> Sequence[str] | None:
    """Format each file that a command names (stat(1))."""
    if taken.tree is None or "format" not in plan or not plan["operands"]:
        return None
    made: list[str] = []
    for each in plan["operands"]:
        entry = each.entry
        if entry is not None and plan.get("follow"):
            entry = taken.tree.find(each.word)
        if entry is None:
            made.append(missing_file_error(each, plan))
            continue
        shown = format_file(
            plan["format"],
            FormattedFile(each.word, each.word, entry, taken.tree),
            plan["directives"],
        )
        if shown is None:
            return None
        made.append(shown)
    return made


FORMATTED = Language(
    "format", (
        OptionMeaning("nothing", unchanged_plan),
        OptionMeaning("follow links", flag("follow")),
        OptionMeaning("nothing", unchanged_plan, valued=True),
        OptionMeaning("in lines", _formatted(lines=True), valued=True, format=True),
        OptionMeaning("as it is", _formatted(lines=False), valued=True, format=True),
    ), _run, directives=ATTRIBUTES, rough=ROUGH,
)  # fmt: skip
