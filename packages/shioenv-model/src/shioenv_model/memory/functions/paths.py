"""Names of files taken apart."""

from __future__ import annotations

from shioenv_model.composition.programs import above, last_part
from shioenv_model.memory.functions.space import Flags, Given, Roles, as_lines


def name_of(given: Given, roles: Roles, flags: Flags) -> str:
    """The last part of each path, or all but the last part (basename(1), dirname(1))."""
    made = []
    for each in given.operands:
        part = above(each) if flags["part"] == "directory" else last_part(each)
        if "suffix" in roles and part != roles["suffix"]:
            part = part.removesuffix(roles["suffix"])
        made.append(part)
    return as_lines(made)
