"""Fields and columns cut out of lines."""

from __future__ import annotations

import re
from itertools import compress

from shioenv_model.memory.functions.match import MOST_WORK
from shioenv_model.memory.functions.space import (
    Flags,
    Given,
    Roles,
    as_lines,
    check_length,
    lines_of,
)


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
    """Of each line the fields, or bytes, that a list names (cut(1))."""
    wanted = _ranges(roles["list"])
    separator = roles.get("separator", "\t" if flags["of"] == "fields" else "")
    if flags["of"] == "fields" and len(separator) != 1:
        return None

    if len(wanted) * len(given.text or "") > MOST_WORK / 10:
        return None

    lines = lines_of(given.text or "")
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
