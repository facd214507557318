"""Directories, names and dates."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from shioenv.bash.patterns import matches
from shioenv.model.memory.functions.space import Flags, Given, Roles, as_lines


def list_directory(given: Given, roles: Roles, flags: Flags) -> str | None:
    """The names in the directory of the command (ls(1)). None where they are not known."""
    if given.names is None:
        return None
    shown = []
    for marked in given.names:
        name = marked.rstrip("/@*|=") if marked[-1:] in "/@*|=" else marked
        mark = marked[len(name) :]
        if name.startswith(".") and not flags["hidden"]:
            continue
        if flags["marked"] == "kinds" or (flags["marked"] and mark == "/"):
            name += mark
        shown.append(name)
    if flags["hidden"] == "all":
        shown = [f"{each}{'/' * bool(flags['marked'])}" for each in (".", "..")] + shown
    if flags["backwards"]:
        shown.reverse()
    return as_lines(shown) if flags["as"] == "lines" else _in_rows(shown)


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
        for path, kind in (("", "d"), *tree.entries):
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
