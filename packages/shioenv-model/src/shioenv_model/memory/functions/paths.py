"""Functions of file names."""

from __future__ import annotations

import posixpath

from shioenv_model.memory.functions.space import Flags, Given, Roles, as_lines


def path_names(given: Given, roles: Roles, flags: Flags) -> str:
    """Return the base name or the directory of each path (basename(1), dirname(1))."""
    made = []
    for each in given.operands:
        part = above(each) if flags["part"] == "directory" else last_part(each)
        if "suffix" in roles and part != roles["suffix"]:
            part = part.removesuffix(roles["suffix"])
        made.append(part)
    return as_lines(made)


def last_part(name: str) -> str:
    """Return the base name (basename(1)); a slash for a name of slashes."""
    return posixpath.basename(name.rstrip("/")) or name[:1]


def above(name: str) -> str:
    """Return the directory of a name (dirname(1))."""
    directory, slash, _ = name.rstrip("/").rpartition("/")
    return directory.rstrip("/") or ("/" if slash or name.startswith("/") else ".")
