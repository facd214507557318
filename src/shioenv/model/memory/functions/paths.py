"""Directories, names and dates."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from shioenv.bash.patterns import matches
from shioenv.domain.context import MONTHS, FileEntry
from shioenv.model.facts import rounded
from shioenv.model.memory.functions.space import Flags, Given, Roles, as_lines

Listed: TypeAlias = list[tuple[str, FileEntry | None]]
"""Names of files, each with what is known of it."""


def list_directory(given: Given, roles: Roles, flags: Flags) -> str | None:
    """The files in the directory of the command (ls(1)). None where they are not known."""
    if given.names is None:
        return None
    listed = _listed(given, flags)
    if listed is None:
        return None
    if flags["as"] == "details":
        return _with_total(listed, given.trees[0].now, flags)
    kinds = dict(zip(map(_unmarked, given.names), given.names, strict=True))
    shown = []
    for name, _ in listed:
        marked = kinds.get(name, f"{name}/")
        mark = marked[len(name) :]
        shown.append(
            name + mark * (flags["marked"] == "kinds" or (mark == "/" and flags["marked"] != ""))
        )
    return as_lines(shown) if flags["as"] == "lines" else _in_rows(shown)


def list_files(given: Given, roles: Roles, flags: Flags) -> str | None:
    """The files that the command names, in their order (`ls -l FILE`, ls(1)).

    None where one of them is not known.
    """
    if not given.files or None in given.files:
        return None
    named = zip(given.operands, given.files, strict=True)
    listed = _ordered(sorted(named, key=lambda each: each[0]), flags)
    if flags["as"] == "details":
        return _details(listed, given.now, flags)
    return as_lines([name for name, _ in listed])


def has_meaning(flags: Flags) -> bool:
    """Whether flags of `list_directory`, or of `list_files`, say something together."""
    details = flags["as"] == "details"
    return not flags.get("marked") if details else not (flags["without"] or flags["sizes"])


def _listed(given: Given, flags: Flags) -> Listed | None:
    """The files that are shown, in their order; None where an attribute is needed and not known."""
    names = [_unmarked(marked) for marked in given.names or ()]
    listed: Listed = [(name, None) for name in (".", "..", *names)]
    if flags["order"] or flags["as"] == "details":
        known = given.trees[0].listed if len(given.trees) == 1 else None
        if known is None:
            return None
        listed = list(known)
    hidden = flags["hidden"]
    listed = [
        (name, entry)
        for name, entry in listed
        if not name.startswith(".") or hidden == "all" or (hidden and name not in {".", ".."})
    ]
    return _ordered(listed, flags)


def _ordered(listed: Listed, flags: Flags) -> Listed:
    """The files in the order that is asked for; they stand sorted by name."""
    if flags["order"] == "size":
        listed.sort(key=lambda each: -each[1].size if each[1] else 0)
    elif flags["order"] == "time":
        listed.sort(key=lambda each: _instant(each[1]) if each[1] else datetime.min, reverse=True)
    return listed[::-1] if flags["backwards"] else listed


def _with_total(listed: Listed, now: FileEntry | None, flags: Flags) -> str | None:
    """What `_details` gives, behind the number of KiB that all files take."""
    details = _details(listed, now, flags)
    total = sum(_kibibytes(entry) for _, entry in listed if entry is not None)
    shown = rounded(total << 10, 1024) if flags["sizes"] == "people" else total
    return None if details is None else f"total {shown}\n{details}"


def _details(listed: Listed, now: FileEntry | None, flags: Flags) -> str | None:
    """A line for each file with its attributes."""
    files = [(name, entry) for name, entry in listed if entry is not None]
    if now is None or any(entry.perms[0] in "bc" for _, entry in files):
        return None
    instant = _instant(now)
    people = flags["sizes"] == "people"
    columns = [_column([entry.perms for _, entry in files])]
    columns.append(_column([str(entry.links) for _, entry in files], right=True))
    if flags["without"] != "owner":
        columns.append(_column([entry.owner for _, entry in files]))
    if flags["without"] != "group":
        columns.append(_column([entry.group for _, entry in files]))
    sizes = [rounded(entry.size, 1024) if people else str(entry.size) for _, entry in files]
    columns.append(_column(sizes, right=True))
    columns.append([_date(entry, instant) for _, entry in files])
    columns.append([
        name + (f" -> {entry.target}" if entry.target is not None else "") for name, entry in files
    ])  # fmt: skip
    return as_lines([" ".join(row) for row in zip(*columns, strict=True)])


_HALF_A_YEAR = timedelta(seconds=31556952 // 2)
"""Files that were changed in this time are shown with the time of day (ls(1), the manual)."""

_BLOCK = 4096
"""Bytes of a block of the machine's disk."""

_IN_INODE = 60
"""Links that are shorter than this take no block (ext4)."""


def _column(cells: Sequence[str], *, right: bool = False) -> list[str]:
    width = max(map(len, cells), default=0)
    return [cell.rjust(width) if right else cell.ljust(width) for cell in cells]


def _date(entry: FileEntry, now: datetime) -> str:
    recent = timedelta(0) <= now - _instant(entry) < _HALF_A_YEAR
    return f"{entry.month} {entry.day:2} {entry.time if recent else f' {entry.year}'}"


def _kibibytes(entry: FileEntry) -> int:
    inline = entry.perms[0] in "ps" or (entry.perms[0] == "l" and entry.size < _IN_INODE)
    return 0 if inline else -(-entry.size // _BLOCK) * _BLOCK >> 10


def _instant(entry: FileEntry) -> datetime:
    hour, minute = map(int, entry.time.split(":"))
    return datetime(entry.year, MONTHS.index(entry.month) + 1, entry.day, hour, minute)


def _unmarked(marked: str) -> str:
    return marked.rstrip("/@*|=") if marked[-1:] in "/@*|=" else marked


def walk_tree(given: Given, roles: Roles, flags: Flags) -> str | None:
    """The paths in trees whose last name, kind, whole path and depth are asked for (find(1)).

    None where a tree is not known, or flags and roles do not go together.
    """
    if not given.trees or (flags["depth"] == "") == ("depth" in roles):
        return None
    if (flags["case"] or flags["negated"]) and "name" not in roles:
        return None
    kinds = {"-" if each == "f" else each for each in roles.get("kind", "").split(",")}
    depth = int(roles.get("depth", "0"))
    name = _folded(roles.get("name", "*"), flags)
    shown: list[str] = []
    for root, tree in zip(given.operands or (".",), given.trees, strict=True):
        if tree.entries is None:
            return None
        kinds_of = [(path, entry.perms[0]) for path, entry in tree.entries]
        for path, kind in (("", "d"), *kinds_of):
            whole = f"{root.rstrip('/')}/{path}" if path else root
            last = posixpath.basename(path or root.rstrip("/")) or "/"
            deep = path.count("/") + bool(path)
            if "kind" in roles and kind not in kinds:
                continue
            if (flags["depth"] == "at most" and deep > depth) or (
                flags["depth"] == "at least" and deep < depth
            ):
                continue
            if matches(name, _folded(last, flags)) == bool(flags["negated"]):
                continue
            if "path" in roles and not matches(roles["path"], whole):
                continue
            shown.append(whole)
    return "".join(f"{each}\0" for each in shown) if flags["ended"] else as_lines(shown)


def _folded(text: str, flags: Flags) -> str:
    return text.lower() if flags["case"] else text


STYLES = {
    "": "%a %b %e %H:%M:%S UTC %Y", "mail": "%a, %d %b %Y %H:%M:%S +0000", "day": "%Y-%m-%d",
    "seconds": "%Y-%m-%dT%H:%M:%S+00:00", "blank": "%Y-%m-%d %H:%M:%S+00:00",
}  # fmt: skip


def write_date(given: Given, roles: Roles, flags: Flags) -> str | None:
    """An instant of UTC, written out (date(1)). None for other words and formats."""
    word = roles["when"].strip()
    if match := re.fullmatch(r"@(-?\d{1,11})", word):
        instant = datetime.fromtimestamp(0, UTC) + timedelta(seconds=int(match[1]))
    elif re.fullmatch(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d)?)?", word):
        instant = datetime.fromisoformat(word).replace(tzinfo=UTC)
    else:
        return None
    style = STYLES[flags["as"]]
    if given.operands:
        if len(given.operands) > 1 or not given.operands[0].startswith("+"):
            return None
        style = given.operands[0][1:].replace("%s", str(int(instant.timestamp())))
        if re.search(r"%[^aAbBdDeFHIjklmMpRSTuwyYnt%]", style):
            return None
    return instant.strftime(style) + "\n"


_WIDTH = 80


def _in_rows(names: Sequence[str]) -> str:
    """The names with commas between them, in lines as wide as a terminal (`ls -m`)."""
    made, column = "", 0
    for name in names:
        if made and column + len(name) + 2 < _WIDTH:
            made, column = f"{made}, ", column + 2
        elif made:
            made, column = f"{made},\n", 0
        made, column = made + name, column + len(name)
    return f"{made}\n" if names else ""


def name_of(given: Given, roles: Roles, flags: Flags) -> str:
    """The last part of each path, or all but the last part (basename(1), dirname(1))."""
    made = []
    for each in given.operands:
        whole = each.rstrip("/") or "/" * bool(each)
        part = posixpath.basename(whole) or whole
        if flags["part"] == "directory":
            part = posixpath.dirname(whole).rstrip("/") or ("/" if whole.startswith("/") else ".")
        if "suffix" in roles and part != roles["suffix"]:
            part = part.removesuffix(roles["suffix"])
        made.append(part)
    return as_lines(made)
