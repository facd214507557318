"""The language of disk usage (du(1))."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from shioenv.domain.context import FileEntry, instant
from shioenv_model.bash.patterns import matches
from shioenv_model.bash.work import spend
from shioenv_model.memory.facts import Operand, Tree, format_bytes
from shioenv_model.memory.functions.formats import kibibytes
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

_UNITS = {
    "": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "KB": 10**3, "MB": 10**6,
    "GB": 10**9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "k": 1 << 10, "kB": 10**3,
}  # fmt: skip


def _size(word: str) -> int:
    match = re.fullmatch(r"(\d{1,12})([A-Za-z]*)", word)
    if match is None or not int(match[1]):
        raise ValueError(word)
    return int(match[1]) * _UNITS[match[2]]


def _unit(plan: Plan, word: str) -> None:
    """Set the unit of sizes. If it is given without a number, it is printed after the sizes."""
    plan["people"] = None
    if word in _UNITS and word:
        plan["unit"], plan["suffix"] = _UNITS[word], word
    else:
        plan["unit"], plan["suffix"] = _size(word), ""


def _least(plan: Plan, word: str) -> None:
    sign = -1 if word.startswith("-") else 1
    plan["least"] = sign * _size(word.lstrip("-"))


@dataclass
class _Sum:
    """The disk usage of a directory and its contents, so far."""

    path: str
    size: int
    own: int
    """The usage without subdirectories."""
    newest: datetime


def _run(taken: Taken, plan: Plan) -> Sequence[str] | None:
    here = taken.tree
    if here is None:
        return None
    printed: list[str] = []
    total = 0
    seen: set[str] = set()
    for operand in plan["operands"] or [Operand(".", "d", tree=here)]:
        entry = operand.entry or (here.find(".") if operand.word == "." else None)
        if entry is None:
            printed.append(missing_file_error(operand, plan))
            continue
        if entry.target is not None and plan.get("follow operands"):
            entry = here.find(operand.word)
            if entry is None:
                return None
        place = here.place(operand.word)
        if any(place == each or place.startswith(f"{each.rstrip('/')}/") for each in seen):
            continue
        seen.add(place)
        made = _of_operand(operand.word, entry, here, plan)
        if made is None:
            return None
        lines, size = made
        printed += lines
        total += size
    if plan.get("total"):
        printed.append(_line(total, None, "total", plan))
    return printed


def _of_operand(word: str, root: FileEntry, here: Tree, plan: Plan) -> tuple[list[str], int] | None:
    """Return the lines and the total of an operand; None if its tree is unknown."""
    below = here.at(word).entries if root.perms[0] == "d" else ()
    if below is None or any(each.links > 1 and each.perms[0] != "d" for _, each in below):
        return None
    spend(len(below))
    lines: list[str] = []
    deepest = 0 if plan.get("summary") else plan.get("deepest", 1 << 30)

    def closed(last: _Sum) -> None:
        inner = last.path
        deep = inner.count("/") + bool(inner)
        size = last.own if plan.get("apart") else last.size
        if deep <= deepest and _is_enough(size, plan):
            path = f"{word.rstrip('/')}/{inner}" if inner else word
            lines.append(_line(size, last.newest, path, plan))

    place = here.place(word)
    taken = _taken(place, root, plan)
    if root.perms[0] != "d":
        closed(_Sum("", taken, taken, instant(root)))
        return lines, taken
    ignored = plan.get("ignored", ())
    open_ = [_Sum("", taken, taken, instant(root))]
    left_out: tuple[str, ...] = ()

    def close() -> None:
        last = open_.pop()
        closed(last)
        open_[-1].size += last.size
        open_[-1].newest = max(open_[-1].newest, last.newest)

    for path, entry in below:
        while open_[-1].path and not path.startswith(f"{open_[-1].path}/"):
            close()
        if left_out and path.startswith(left_out):
            continue
        whole = f"{word.rstrip('/')}/{path}"
        if any(matches(each, path.rpartition("/")[2]) or matches(each, whole) for each in ignored):
            left_out += (f"{path}/",)
            continue
        size = _taken(f"{place.rstrip('/')}/{path}", entry, plan)
        if entry.perms[0] == "d":
            open_.append(_Sum(path, size, size, instant(entry)))
            continue
        open_[-1].size += size
        open_[-1].own += size
        open_[-1].newest = max(open_[-1].newest, instant(entry))
        deep = path.count("/") + 1
        if plan.get("all") and deep <= deepest and _is_enough(size, plan):
            lines.append(_line(size, instant(entry), whole, plan))
    while len(open_) > 1:
        close()
    closed(open_[0])
    return lines, open_[0].size


def _taken(place: str, entry: FileEntry, plan: Plan) -> int:
    if plan.get("files"):
        return 1
    if plan.get("apparent"):
        return entry.size
    facts: Mapping[tuple[str, FileEntry], str] = plan["facts"]
    known = facts.get((place, entry))
    return (kibibytes(entry) if known is None else int(known)) << 10


def _facts(taken: Taken, output: str) -> Iterator[tuple[str, FileEntry, str]]:
    """Yield each file's path and entry, with the KiB that the command prints without options."""
    named = {each.word: each for each in taken.operands}
    for line in output.splitlines():
        size, _, path = line.partition("\t")
        operand = named.get(path)
        if size.isdigit() and operand and operand.entry and operand.entry.perms[0] == "-":
            yield operand.path, operand.entry, size


def _is_enough(size: int, plan: Plan) -> bool:
    least = plan.get("least", 0)
    return bool(size >= least if least >= 0 else size <= -least)


def _line(size: int, newest: datetime | None, path: str, plan: Plan) -> str:
    if plan.get("files"):
        shown = str(size)
    elif plan.get("people"):
        shown = format_bytes(size, plan["people"])
    else:
        shown = f"{-(-size // plan.get('unit', 1024))}{plan.get('suffix', '')}"
    when = f"\t{newest:%Y-%m-%d %H:%M}" if plan.get("dated") and newest else ""
    return f"{shown}{when}\t{path}{plan.get('end', chr(10))}"


def _in_units(unit: int) -> Callable[[Plan, str], None]:
    def change(plan: Plan, word: str) -> None:
        plan["people"], plan["unit"], plan["suffix"] = None, unit, ""

    return change


def _in_bytes(plan: Plan, word: str) -> None:
    _in_units(1)(plan, word)
    plan["apparent"] = True


USAGE = Language("usage", (
    OptionMeaning("nothing", unchanged_plan),
    OptionMeaning("sizes for people", flag("people", 1024)),
    OptionMeaning("summary", flag("summary")),
    OptionMeaning("all files", flag("all")),
    OptionMeaning("with the total", flag("total")),
    OptionMeaning("in bytes", _in_bytes),
    OptionMeaning("in KiB", _in_units(1 << 10)),
    OptionMeaning("in MiB", _in_units(1 << 20)),
    OptionMeaning("what files hold", flag("apparent")),
    OptionMeaning("sizes for people, by 1000", flag("people", 1000)),
    OptionMeaning("without what is inside", flag("apart")),
    OptionMeaning("what operands lead to", flag("follow operands")),
    OptionMeaning("dated", flag("dated")),
    OptionMeaning("ended by NUL", flag("end", "\0")),
    OptionMeaning("number of files", flag("files")),
    OptionMeaning("nothing", unchanged_plan, valued=True),
    OptionMeaning("at most so deep", set_to_value("deepest", int), valued=True),
    OptionMeaning("in this unit", _unit, valued=True),
    OptionMeaning("at least so large", _least, valued=True),
    OptionMeaning(
        "without these", lambda plan, word: plan.setdefault("ignored", []).append(word), valued=True
    ),
), _run, facts=_facts)  # fmt: skip
