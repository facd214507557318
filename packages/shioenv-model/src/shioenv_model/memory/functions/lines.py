"""Functions of lines: select lines, fields and columns, and lay lines out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import compress, zip_longest

from shioenv_model.memory.functions.characters import set_of
from shioenv_model.memory.functions.match import MOST_WORK
from shioenv_model.memory.functions.space import (
    Flags,
    Given,
    Roles,
    as_lines,
    check_length,
    parse_number,
    split_lines,
    whole_lines,
    width_of,
)


def same_text(given: Given, roles: Roles, flags: Flags) -> str:
    """Return the text itself (cat(1))."""
    return given.text or ""


def part_of(given: Given, roles: Roles, flags: Flags) -> str:
    """Return the first or the last lines or bytes of the text (head(1), tail(1))."""
    text = given.text or ""
    word = roles.get("count", "10")
    count = parse_number(word)
    pieces: Sequence[str] = text if flags["of"] == "bytes" else whole_lines(text)
    if flags["which"] == "first":
        kept = pieces[: max(len(pieces) + count, 0) if word.startswith("-") else count]
    elif word.startswith("+"):
        kept = pieces[max(count - 1, 0) :]
    else:
        count = abs(count)
        kept = pieces[len(pieces) - count :] if count < len(pieces) else pieces
        kept = kept if count else ""
    return "".join(kept)


def reverse(given: Given, roles: Roles, flags: Flags) -> str:
    """Reverse the order of the lines, or of each line's characters (tac(1), rev(1))."""
    text = given.text or ""
    if flags["of"] == "lines":
        return "".join(whole_lines(text)[::-1])
    turned = (
        line.removesuffix("\n")[::-1] + "\n" * line.endswith("\n") for line in whole_lines(text)
    )
    return "".join(turned)


def parts_of_each(given: Given, roles: Roles, flags: Flags) -> str:
    """Return a part of each of several texts, under a header with its name (head(1), tail(1))."""
    made = [
        f"==> {name} <==\n{part_of(replace(given, text=text, texts=()), roles, flags)}"
        for name, text in zip(given.operands, given.texts, strict=True)
    ]
    return "\n".join(made)


def wrap(given: Given, roles: Roles, flags: Flags) -> str:
    """Break lines that are wider than a screen (fold(1))."""
    width = width_of(roles.get("width", "80"))
    if width < 1:
        raise ValueError(width)
    made: list[str] = []
    line, column = "", 0
    for character in given.text or "":
        if character == "\n":
            made.append(f"{line}\n")
            line, column = "", 0
            continue
        if column and _column(column, character) > width:
            blank = max(line.rfind(" "), line.rfind("\t")) + 1 if flags["at"] else 0
            made.append(f"{line[:blank] if blank else line}\n")
            line = line[blank:] if blank else ""
            column = 0
            for each in line:
                column = _column(column, each)
        line += character
        column = _column(column, character)
    return "".join(made) + line


def _column(column: int, character: str) -> int:
    """Return the column after a character that starts in `column`."""
    if character in "\b\r":
        return max(column - 1, 0) if character == "\b" else 0
    return column + 8 - column % 8 if character == "\t" else column + 1


def tabs_to_blanks(given: Given, roles: Roles, flags: Flags) -> str:
    """Expand tabs to blanks (expand(1))."""
    size = width_of(roles.get("width", "8"))
    if size < 1 or flags["which"] != "spaces":
        raise ValueError(size)
    check_length(len(given.text or "") + size * (given.text or "").count("\t"))
    return "".join(line.expandtabs(size) for line in whole_lines(given.text or ""))


def number_lines(given: Given, roles: Roles, flags: Flags) -> str:
    """Prefix lines with their numbers (nl(1), cat(1))."""
    width, joint = width_of(roles.get("width", "6")), roles.get("joint", "\t")
    number, step = parse_number(roles.get("first", "1")), parse_number(roles.get("step", "1"))
    style = roles.get("style", "rn")
    which = {"a": "all", "t": "filled", "n": "none"}.get(roles.get("which", ""), flags["which"])
    if style not in ("rn", "ln", "rz") or width < 1:
        raise ValueError(style)
    made = []
    widest = max(width, len(str(abs(number))), len(str(abs(step)))) + len(joint)
    check_length(widest * len(whole_lines(given.text or "")))
    sign = {"rn": ">", "ln": "<", "rz": "0>"}[style]
    for line in whole_lines(given.text or ""):
        if which == "all" or (which == "filled" and line != "\n"):
            made.append(f"{number:{sign}{width}}{joint}{line}")
            number += step
        else:
            made.append(" " * (width + len(joint)) * bool(flags["indented"]) + line)
    text = "".join(made)
    return f"{text}\n" if text and not text.endswith("\n") and flags["ended"] else text


def side_by_side(given: Given, roles: Roles, flags: Flags) -> str:
    """Join corresponding lines of several texts with delimiters (paste(1))."""
    marks = list(set_of(roles["by"])) if "by" in roles else ["\t"]
    marks = marks or [""]
    made = []
    for lines in zip_longest(*map(split_lines, given.texts), fillvalue=""):
        line = lines[0]
        for number, each in enumerate(lines[1:]):
            line += marks[number % len(marks)] + each
        made.append(line)
    return as_lines(made)


def join_lines(given: Given, roles: Roles, flags: Flags) -> str:
    """Join all lines into one line with delimiters (paste(1))."""
    marks = list(set_of(roles["by"])) if "by" in roles else ["\t"]
    marks = marks or [""]
    lines = split_lines(given.text or "")
    made = list(lines[:1])
    for number, line in enumerate(lines[1:]):
        made += [marks[number % len(marks)], line]
    return "".join(made) + "\n"


def show_invisible(given: Given, roles: Roles, flags: Flags) -> str:
    """Return the text with visible notation for invisible characters (cat(1))."""
    made = []
    blank = False
    for line in whole_lines(given.text or ""):
        if flags["blank"] and blank and line == "\n":
            continue
        blank = line == "\n"
        end = "\n" if line.endswith("\n") else ""
        text = line.removesuffix("\n")
        if flags["as"] == "tabs":
            text = text.replace("\t", "^I")
        elif flags["as"] == "ends":
            text = f"{text[:-1]}^M" if text.endswith("\r") and end else text
        elif flags["as"]:
            text = "".join(_visible(each, tabs=flags["as"] != "visible") for each in text)
        made.append(text + "$" * bool(end and flags["as"] in ("ends", "all")) + end)
    return "".join(made)


def _visible(character: str, *, tabs: bool) -> str:
    code = ord(character)
    if character == "\t":
        return "^I" if tabs else character
    if code >= 128:
        return f"M-{_visible(chr(code - 128), tabs=True)}"
    return f"^{chr(code ^ 64)}" if code < 32 or code == 127 else character


def _ranges(spec: str) -> list[tuple[int, int]]:
    found = []
    for each in spec.replace(" ", ",").split(","):
        match = re.fullmatch(r"(\d*)(-?)(\d*)", each)
        if match is None or not (match[1] or match[3]):
            raise ValueError(spec)
        first = int(match[1] or 1)
        last = int(match[3]) if match[3] else 10**9 if match[2] else first
        if not first or last < first:
            raise ValueError(spec)
        found.append((first, last))
    return found


def cut_columns(given: Given, roles: Roles, flags: Flags) -> str | None:
    """Select fields or bytes of each line by a list (cut(1))."""
    wanted = _ranges(roles["list"])
    separator = roles.get("separator", "\t" if flags["of"] == "fields" else "")
    if flags["of"] == "fields" and len(separator) != 1:
        return None

    if len(wanted) * len(given.text or "") > MOST_WORK / 10:
        return None

    lines = split_lines(given.text or "")
    check_length(len(given.text or "") * (1 + len(roles.get("joint", ""))))
    widest = max(map(len, lines), default=0) + 1
    chosen = [
        any(first <= number <= last for first, last in wanted) != bool(flags["others"])
        for number in range(1, widest + 1)
    ]
    made = []
    for line in lines:
        if flags["of"] == "fields":
            fields = line.split(separator)
            if len(fields) == 1:
                made += [line] if not flags["marked"] else []
                continue
            joint = roles.get("joint", separator)
            made.append(joint.join(compress(fields, chosen)))
        else:
            made.append("".join(compress(line, chosen)))
    return as_lines(made)
