"""Candidate meanings of the options of ls(1): the `Language` of file listings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from shioenv.domain.context import OF_DATE, FileEntry, instant
from shioenv_model.bash.patterns import matches
from shioenv_model.bash.work import spend
from shioenv_model.memory.facts import Tree, format_bytes
from shioenv_model.memory.functions.formats import format_instant, kibibytes
from shioenv_model.memory.functions.language import (
    Language,
    OptionMeaning,
    Plan,
    flag,
    missing_file_error,
    set_to_value,
    unchanged_plan,
)
from shioenv_model.memory.rewrite import Taken

_WIDTH = 80
"""Default width in columns if the output is not a terminal."""

_TAB = 8

_HALF_A_YEAR = timedelta(seconds=31556952 // 2)
"""Files modified within this period are listed with the time of day (manual of ls(1))."""

_DEEPEST = 40
"""Maximum depth of nested directories that are listed (our choice)."""


@dataclass(frozen=True)
class ListedFile:
    """A file in a listing."""

    name: str
    entry: FileEntry
    leads: FileEntry | None = None
    """The target's entry, if the file is a symbolic link."""


def ordered(files: Sequence[ListedFile], plan: Plan) -> list[ListedFile]:
    """Sort the files by the plan's order."""
    order = plan.get("order", "")
    found = list(files)
    if order == "none":
        return found
    found.sort(key=lambda each: each.name)
    if order == "size":
        found.sort(key=lambda each: -each.entry.size)
    elif order == "time":
        found = _latest_first(found)
    elif order == "extension":
        found.sort(key=lambda each: _extension(each.name))
    elif order == "version":
        found.sort(key=lambda each: _version(each.name))
    if plan.get("backwards"):
        found.reverse()
    if plan.get("directories first"):
        found.sort(key=lambda each: (each.leads or each.entry).perms[0] != "d")
    return found


def _latest_first(files: Sequence[ListedFile]) -> list[ListedFile]:
    return sorted(files, key=lambda each: -instant(each.entry).timestamp())


def _extension(name: str) -> str:
    place = name.rfind(".")
    return name[place:] if place >= 0 else ""


_SUFFIX = re.compile(r"(\.[A-Za-z~][A-Za-z0-9~]*)*$")


def _rank(character: str) -> int:
    if character == "~":
        return -2
    return ord(character) if character.isascii() and character.isalpha() else ord(character) + 256


def _chunks(text: str) -> tuple[tuple[tuple[int, ...], int], ...]:
    """Split a text into alternating non-digits and numbers."""
    return tuple(
        ((*map(_rank, match[1]), -1), int(match[2] or 0))
        for match in re.finditer(r"(\D*)(\d*)", text)
    )


def _version(name: str) -> tuple[object, ...]:
    """Return the sort key of a name for version order (`ls -v`, gnulib's filevercmp)."""
    dots = 0 if name == "." else 1 if name == ".." else 2 if name.startswith(".") else 3
    prefix = name[: _SUFFIX.search(name).start()]  # type: ignore[union-attr]
    return dots, _chunks(prefix), _chunks(name)


def _mark(entry: FileEntry, marks: str) -> str:
    kind = entry.perms[0]
    if marks == "directories":
        return "/" if kind == "d" else ""
    if kind == "-":
        return "*" if marks == "kinds" and set("xst") & set(entry.perms) else ""
    return {"d": "/", "l": "@", "p": "|", "s": "="}.get(kind, "")


_ESCAPED = {"\n": "\\n", "\t": "\\t", "\\": "\\\\", "\r": "\\r"}


def _quoted(name: str, style: str) -> str:
    if style == "c":
        return '"' + "".join({'"': '\\"', **_ESCAPED}.get(each, each) for each in name) + '"'
    if style == "escape":
        return "".join({" ": "\\ ", **_ESCAPED}.get(each, each) for each in name)
    return name


def _text(file: ListedFile, plan: Plan, *, details: bool) -> str:
    """Return the printed name, with its type suffix, and the target of a link."""
    marks, quoting = plan.get("marks", ""), plan.get("quoting", "")
    name = _quoted(file.name, quoting)
    if details and file.entry.target is not None:
        mark = _mark(file.leads, marks) if file.leads and marks == "kinds" else ""
        return f"{name} -> {_quoted(file.entry.target, quoting)}{mark}"
    return name + (_mark(file.entry, marks) if marks else "")


def format_listing(
    files: Sequence[ListedFile], plan: Plan, now: FileEntry | None, tree: Tree
) -> str | None:
    """Format files as the plan requires; None if a value to be printed is unknown."""
    form = plan.get("form", "lines")
    if form == "details":
        return _details(files, plan, now, tree)
    names = [_text(each, plan, details=False) for each in files]
    if plan.get("blocks"):
        cells = _blocks(files, plan)
        width = max(map(len, cells), default=0) if form != "commas" else 0
        names = [f"{cell:>{width}} {name}" for cell, name in zip(cells, names, strict=True)]
    if form == "commas":
        return in_rows(names, plan.get("width", _WIDTH))
    if form in ("columns", "across"):
        return _in_columns(names, plan.get("width", _WIDTH), across=form == "across")
    return "".join(f"{name}{plan.get('end', chr(10))}" for name in names)


def _blocks(files: Sequence[ListedFile], plan: Plan) -> list[str]:
    return [_kibibytes(kibibytes(each.entry), plan) for each in files]


def _kibibytes(number: int, plan: Plan) -> str:
    return format_bytes(number << 10, plan["people"]) if plan.get("people") else str(number)


def _column(cells: Sequence[str], *, right: bool = False) -> list[str]:
    width = max(map(len, cells), default=0)
    return [cell.rjust(width) if right else cell.ljust(width) for cell in cells]


def _details(
    files: Sequence[ListedFile], plan: Plan, now: FileEntry | None, tree: Tree
) -> str | None:
    """Format a line with attributes for each file."""
    if now is None or any(each.entry.perms[0] in "bc" for each in files):
        return None
    entries = [each.entry for each in files]
    owners = [each.owner for each in entries]
    groups = [each.group for each in entries]
    if plan.get("numbers"):
        owners = [tree.users[each] for each in owners]
        groups = [tree.groups[each] for each in groups]
    columns = [_column(_blocks(files, plan), right=True)] if plan.get("blocks") else []
    columns.append(_column([each.perms for each in entries]))
    columns.append(_column([str(each.links) for each in entries], right=True))
    if not plan.get("no owner"):
        columns.append(_column(owners, right=bool(plan.get("numbers"))))
    if not plan.get("no group"):
        columns.append(_column(groups, right=bool(plan.get("numbers"))))
    if plan.get("author"):
        columns.append(_column(owners))
    people = plan.get("people")
    sizes = [format_bytes(each.size, people) if people else str(each.size) for each in entries]
    columns.append(_column(sizes, right=True))
    columns.append(_column([_date(each, instant(now), plan) for each in entries]))
    columns.append([_text(each, plan, details=True) for each in files])
    end = plan.get("end", "\n")
    return "".join(" ".join(row) + end for row in zip(*columns, strict=True))


def _date(entry: FileEntry, now: datetime, plan: Plan) -> str:
    when = instant(entry)
    recent, old = plan.get("dates", ("%b %e %H:%M", "%b %e  %Y"))
    return format_instant(when, recent if timedelta(0) <= now - when < _HALF_A_YEAR else old)


def in_rows(names: Sequence[str], width: int = _WIDTH) -> str:
    """Join the names with commas, in lines of the terminal's width (`ls -m`)."""
    made, column = "", 0
    for name in names:
        if made and column + len(name) + 2 < width:
            made, column = f"{made}, ", column + 2
        elif made:
            made, column = f"{made},\n", 0
        made, column = made + name, column + len(name)
    return f"{made}\n" if names else ""


def _in_columns(names: Sequence[str], width: int, *, across: bool) -> str:
    """Lay out the names in as many columns as fit, sorted down or across (`ls -C`, `ls -x`)."""
    count = len(names)
    spend(count * min(width // 3, count))
    for columns in range(max(1, min(width // 3, count)), 0, -1):
        rows = -(-count // columns)
        widths = [0] * columns
        for number, name in enumerate(names):
            at = number % columns if across else number // rows
            widths[at] = max(widths[at], len(name) + 2 * (at < columns - 1))
        if sum(widths) < width or columns == 1:
            break
    rows = -(-count // columns) if count else 0
    made = []
    for row in range(rows):
        step = range(row * columns, min(count, (row + 1) * columns))
        places = step if across else range(row, count, rows)
        line, column = "", 0
        for number, place in enumerate(places):
            start = sum(widths[:number])
            line, column = _indented(line, column, start)
            line, column = line + names[place], column + len(names[place])
        made.append(f"{line}\n")
    return "".join(made)


def _indented(line: str, column: int, to: int) -> tuple[str, int]:
    while column < to:
        if to // _TAB > (column + 1) // _TAB:
            line, column = f"{line}\t", column + _TAB - column % _TAB
        else:
            line, column = f"{line} ", column + 1
    return line, column


def _is_shown(name: str, plan: Plan) -> bool:
    hidden = plan.get("hidden", "")
    if any(matches(pattern, name) for pattern in plan.get("ignored", ())):
        return False
    if name.startswith("."):
        return hidden == "all" or (hidden == "almost" and name not in (".", ".."))
    return bool(hidden) or not any(matches(pattern, name) for pattern in plan.get("hides", ()))


def _inside(tree: Tree, plan: Plan) -> list[ListedFile]:
    """Return the listed files of a directory. Errors: ValueError if one is unknown."""
    known = tree.listed
    if known is None:
        raise ValueError("a directory is not known")
    spend(len(known))
    found = [_shown(name, entry, tree, plan) for name, entry in known if _is_shown(name, plan)]
    if plan.get("order") == "none":
        places = {path: place for place, (path, _) in enumerate(tree.entries or ())}
        found.sort(key=lambda each: places.get(each.name, -1))
    return ordered(found, plan)


def _shown(name: str, entry: FileEntry, tree: Tree, plan: Plan) -> ListedFile:
    leads = tree.find(name) if entry.target is not None else None
    if plan.get("read") and tree.now is not None:  # the command itself sets the access times
        entry = replace(entry, **{each: getattr(tree.now, each) for each in OF_DATE})
    return ListedFile(name, leads or entry if plan.get("follow") else entry, leads)


def _directory(name: str, tree: Tree, plan: Plan, now: FileEntry | None) -> Iterator[str]:
    """Yield the listing of a directory and, if recursive, of its subdirectories."""
    files = _inside(tree, plan)
    text = format_listing(files, plan, now, tree)
    if text is None:
        raise ValueError(name)
    head = f"{name}:\n" if plan["headed"] else ""
    if plan.get("form") == "details" or plan.get("blocks"):
        total = _kibibytes(sum(kibibytes(each.entry) for each in files), plan)
        head += f"total {total}{plan.get('end', chr(10))}"
    yield head + text
    if not plan.get("recursive") or name.count("/") > _DEEPEST:
        return
    for each in files:
        if each.entry.perms[0] == "d" and each.name not in (".", ".."):
            inner = f"{name.rstrip('/')}/{each.name}"
            yield from _directory(inner, tree.at(each.name), plan, now)


def _run(taken: Taken, plan: Plan) -> Sequence[str] | None:
    if taken.tree is None:
        return None
    here = taken.tree
    files: list[ListedFile] = []
    directories: list[ListedFile] = []
    refusals: list[str] = []
    stays = plan.get("itself") or plan.get("form") == "details" or plan.get("marks") == "kinds"
    for each in plan["operands"]:
        if each.entry is None:
            refusals.append(missing_file_error(each, plan))
            continue
        file = _shown(each.word, each.entry, here, plan)
        leads = file.leads if not stays or plan.get("follow") else None
        is_directory = (leads or file.entry).perms[0] == "d" and not plan.get("itself")
        (directories if is_directory else files).append(file)
    if not plan["operands"]:
        entry = here.find(".")
        if entry is None:
            return None
        (files if plan.get("itself") else directories).append(ListedFile(".", entry))
    now = here.now
    parts: list[str] = []
    if files:
        text = format_listing(ordered(files, plan), plan, now, here)
        if text is None:
            return None
        parts.append(text)
    many = len(directories) + len(files) + len(refusals) > 1 or plan.get("recursive")
    plan = {**plan, "headed": bool(many)}
    for file in ordered(directories, plan):
        parts += _directory(file.name, here.at(file.name), plan, now)
    return [*refusals, "\n".join(parts)]


def _form(name: str, *, unless_details: bool = False) -> Callable[[Plan, str], None]:
    def change(plan: Plan, word: str) -> None:
        if not (unless_details and plan.get("form") == "details"):
            plan["form"] = name

    return change


def _all(*changes: Callable[[Plan, str], None]) -> Callable[[Plan, str], None]:
    def change(plan: Plan, word: str) -> None:
        for each in changes:
            each(plan, word)

    return change


_STYLES: Mapping[str, tuple[str, str]] = {
    "full-iso": ("%Y-%m-%d %H:%M:%S.000000000 +0000",) * 2,
    "long-iso": ("%Y-%m-%d %H:%M",) * 2,
    "iso": ("%m-%d %H:%M", "%Y-%m-%d "),
    "locale": ("%b %e %H:%M", "%b %e  %Y"),
}  # fmt: skip


def _dates(plan: Plan, word: str) -> None:
    if not word.startswith("+"):
        plan["dates"] = _STYLES[word.removeprefix("posix-")]
        return
    old, _, recent = word[1:].partition("\n")
    plan["dates"] = recent or old, old


def _pattern(name: str) -> Callable[[Plan, str], None]:
    def change(plan: Plan, word: str) -> None:
        plan.setdefault(name, []).append(word)

    return change


def _without_colour(plan: Plan, word: str) -> None:
    if word not in ("never", "no", "none", "auto", "tty", "if-tty"):
        raise ValueError(word)


def _chosen(name: str, values: Mapping[str, str]) -> Callable[[Plan, str], None]:
    """Return a function that looks up a word in `values` and stores the result as `plan[name]`."""

    def change(plan: Plan, word: str) -> None:
        plan[name] = values[word]

    return change


def _columns(word: str) -> int:
    """Return the terminal width, at most 10,000 columns; 0 means no limit."""
    return min(int(word) or 10_000, 10_000)


_DETAILS = _form("details")
_FORMS = {
    "long": "details", "verbose": "details", "commas": "commas", "single-column": "lines",
    "across": "across", "horizontal": "across", "vertical": "columns",
}  # fmt: skip
_ORDERS = {
    "none": "none", "time": "time", "size": "size", "extension": "extension", "version": "version",
}  # fmt: skip
_MARKS = {"none": "", "slash": "directories", "file-type": "types", "classify": "kinds"}
_QUOTING = {"literal": "", "c": "c", "escape": "escape"}

LISTING = Language("listing", (
    OptionMeaning("nothing", unchanged_plan),
    OptionMeaning("all", flag("hidden", "all")),
    OptionMeaning("almost all", flag("hidden", "almost")),
    OptionMeaning("details", _DETAILS),
    OptionMeaning("lines", _form("lines", unless_details=True)),
    OptionMeaning("itself", flag("itself")),
    OptionMeaning("backwards", flag("backwards")),
    OptionMeaning("by time", flag("order", "time")),
    OptionMeaning("by size", flag("order", "size")),
    OptionMeaning("sizes for people", flag("people", 1024)),
    OptionMeaning("sizes for people, by 1000", flag("people", 1000)),
    OptionMeaning("marked", flag("marks", "kinds")),
    OptionMeaning("directories marked", flag("marks", "directories")),
    OptionMeaning("kinds marked", flag("marks", "types")),
    OptionMeaning("with commas", _form("commas")),
    OptionMeaning("in columns", _form("columns")),
    OptionMeaning("in columns, across", _form("across")),
    OptionMeaning("all that is inside", flag("recursive")),
    OptionMeaning("blocks", flag("blocks")),
    OptionMeaning("no group", flag("no group")),
    OptionMeaning("details without owner", _all(_DETAILS, flag("no owner"))),
    OptionMeaning("details without group", _all(_DETAILS, flag("no group"))),
    OptionMeaning("details with numbers", _all(_DETAILS, flag("numbers"))),
    OptionMeaning("details with full dates", _all(_DETAILS, flag("dates", _STYLES["full-iso"]))),
    OptionMeaning("by extension", flag("order", "extension")),
    OptionMeaning("by version", flag("order", "version")),
    OptionMeaning("in no order", flag("order", "none")),
    OptionMeaning("all in no order", _all(flag("order", "none"), flag("hidden", "all"))),
    OptionMeaning("directories first", flag("directories first")),
    OptionMeaning("what links lead to", flag("follow")),
    OptionMeaning("quoted", flag("quoting", "c")),
    OptionMeaning("escaped", flag("quoting", "escape")),
    OptionMeaning("with authors", flag("author")),
    OptionMeaning("as last read", flag("read")),
    OptionMeaning("without backups", lambda plan, word: _pattern("ignored")(plan, "*~")),
    OptionMeaning("ended by NUL", _all(_form("lines", unless_details=True), flag("end", "\0"))),
    OptionMeaning("nothing", unchanged_plan, valued=True),
    OptionMeaning("dates as this", _dates, valued=True),
    OptionMeaning("without these", _pattern("ignored"), valued=True),
    OptionMeaning("these hidden", _pattern("hides"), valued=True),
    OptionMeaning("in this order", _chosen("order", _ORDERS), valued=True),
    OptionMeaning("in this form", _chosen("form", _FORMS), valued=True),
    OptionMeaning("marked so", _chosen("marks", _MARKS), valued=True),
    OptionMeaning("quoted so", _chosen("quoting", _QUOTING), valued=True),
    OptionMeaning("so wide", set_to_value("width", _columns), valued=True),
    OptionMeaning("without colour", _without_colour, valued=True),
), _run)  # fmt: skip

IN_COLUMNS = replace(
    LISTING, name="listing in columns", begins={"form": "columns", "quoting": "escape"}
)
"""The `Language` of `ls -C -b` (dir(1))."""

IN_DETAIL = replace(
    LISTING, name="detailed listing", begins={"form": "details", "quoting": "escape"}
)
"""The `Language` of `ls -l -b` (vdir(1))."""
