"""Commands that work on the directory they are called in without naming it."""

from __future__ import annotations

import re
from dataclasses import replace

from shioenv.bash.words import quoted
from shioenv.domain.behavior import Behavior
from shioenv.domain.runner import State
from shioenv.grammar.library import shipped_headers

_ANYWHERE = re.compile(r"(?P<before>\S+(?: -\S+)*)(?: \.)?(?P<after>)")
_FIRST = re.compile(r"(?P<before>\S+)(?: \.)?(?P<after>(?: -.*)?)", re.DOTALL)
"""A command that names no directory but `.`. A name would stand between `before` and `after`:
behind the options, or before options whose order means something (`_FIRST`).
"""


def unnamed(text: str, state: State, start: str) -> bool:
    """Whether the command does not name the directory that it works on.

    False where that directory is `start` or `/`. In `start` such commands were executed often
    enough as they are.
    """
    here = state.before.document["cwd"]
    return here not in {start, "/"} and _nameless(text) is not None


def named(text: str, name: str) -> str:
    """An `unnamed` command with `name` for its directory."""
    match = _nameless(text)
    assert match is not None
    return f"{match['before']} {quoted(name)}{match['after']}"


def _nameless(text: str) -> re.Match[str] | None:
    """The match of a command that works on its working directory and names no directory."""
    header = shipped_headers().get(text.partition(" ")[0])
    if header is None or header.traits.implied != "." or not header.traits.operands:
        return None
    return (_FIRST if header.traits.ordered else _ANYWHERE).fullmatch(text)


def without_name(behavior: Behavior, name: str) -> Behavior:
    """The behavior of a command that was given `name`, with `.` in place of the name."""
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
