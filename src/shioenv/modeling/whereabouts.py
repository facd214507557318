"""Commands that work on the directory they are called in without naming it."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace

from shioenv.domain.behavior import Behavior
from shioenv.domain.runner import State

_HERE = {
    "ls": re.compile(r"(?P<before>ls(?: -\S+)*)(?P<after>)"),
    "du": re.compile(r"(?P<before>du(?: -\S+)*)(?: \.)?(?P<after>)"),
    "find": re.compile(r"(?P<before>find)(?: \.)?(?P<after>(?: -.*)?)", re.DOTALL),
}
"""What they are called where they name no other directory, and where its name would stand."""


def printed_directory(text: str, state: State) -> Behavior | None:
    """What `pwd` says, by rule; None for other commands."""
    if text not in {"pwd", "pwd -L"}:
        return None
    said = state.before.document["cwd"].encode("utf-8", "surrogateescape") + b"\n"
    return Behavior(0, said, stdout=said, stderr=b"")


def unnamed(text: str, state: State, start: str) -> bool:
    """Whether the command works on the directory it is called in, another one than `start`, where
    it was often enough executed as it is, and does not name it.
    """
    here = state.before.document["cwd"]
    pattern = _HERE.get(text.partition(" ")[0])
    return pattern is not None and here not in {start, "/"} and bool(pattern.fullmatch(text))


def named(text: str, name: str) -> str:
    """An `unnamed` command with the name of its directory."""
    match = _HERE[text.partition(" ")[0]].fullmatch(text)
    assert match is not None
    return f"{match['before']} {shlex.quote(name)}{match['after']}"


def without_name(behavior: Behavior, name: str) -> Behavior:
    """What a command that was given the name says without it: `.` stands in its place."""
    escaped = re.escape(name.encode("utf-8", "surrogateescape"))
    place = re.compile(rb"(?m)(^|\t|'|\xe2\x80\x98)" + escaped + rb"(?=$|[/:'\n\xe2])")

    def dotted(text: bytes | None) -> bytes | None:
        return None if text is None else place.sub(rb"\1.", text)

    return replace(
        behavior,
        output=place.sub(rb"\1.", behavior.output),
        stdout=dotted(behavior.stdout),
        stderr=dotted(behavior.stderr),
    )
