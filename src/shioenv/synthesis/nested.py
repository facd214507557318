"""Commands that other commands run: `find -exec`, `xargs`.

They are drawn by their own grammars; what stands for a file in them gives way to the names that the
running command puts there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random

from shioenv.domain.inputs import Input, Role
from shioenv.synthesis.compose import command_tokens
from shioenv.synthesis.usage import form

NESTED_HORIZON = 5
"""Arguments of a command that another one runs, at most (ours)."""

_READING = frozenset(
    {"cat", "comm", "cp", "cut", "file", "fold", "grep", "gzip", "head", "nl", "od", "paste"}
    | {"rev", "shred", "sort", "split", "tail", "tar", "tee", "truncate", "uniq", "wc"}
)
"""Commands that open what they name: on a fifo they would wait for ever."""

_CONTENT = "reading"
"""The definition of `find` before which only regular files are left."""

_BATCHED = frozenset({"cat", "du", "echo", "grep", "head", "ls", "rm", "sort", "tail", "wc"})
"""Commands that do without a name, where `xargs` has none to give."""

_FIRST = frozenset({"chgrp", "chmod", "chown", "grep"})
"""Commands whose first operand names no file."""

_LAST = frozenset({"cp", "ln", "mv"})
"""Commands whose last operand says where to."""

_RUNNING = frozenset({"find", "xargs", "env"})

_NAMES = frozenset(
    {"absolute path", "file name", "glob", "name", "relative path", "special path", "tilde"}
)
"""Forms of operands that name a file."""


def may_run(name: str, part: str, program: str) -> bool:
    """Whether a command may run a program there: none that waits, or lacks what it needs."""
    if program in _RUNNING:
        return False
    if name == "xargs":
        return program in _BATCHED
    return name == "find" and (program not in _READING or part.endswith(_CONTENT))


def run_by(name: str, words: Sequence[str], random: Random) -> str | None:
    """The text of a command as another one runs it, its end included; None where it cannot be.

    `find` puts its file where `{}` stands, `xargs` its items behind everything.
    """
    tokens = command_tokens(words)
    if any(token.role not in {Role.COMMAND, Role.ARGUMENT} for token in tokens):
        return None
    places = [
        place
        for place, token in enumerate(tokens)
        if token.role is Role.ARGUMENT
        and not token.argument.joins_left
        and not token.argument.text.startswith("-")
    ]
    command = words[0]
    files = [
        place
        for number, place in enumerate(places)
        if not (number == 0 and command in _FIRST)
        and not (place == places[-1] and len(places) > 1 and command in _LAST)
        and (command == "echo" or form(tokens[place].argument.text.strip("'\"")) in _NAMES)
    ]
    if any(" " in tokens[place].argument.text.strip("'\"") for place in files):
        return None
    kept = [token for place, token in enumerate(tokens) if place not in files]
    text = Input(tuple(kept)).text
    if re.search(r"[*?~$`{}]", text) or "--" in text.split():
        return None
    if name == "xargs":
        forced = command != "rm" or re.search(r" -[a-zA-Z]*f| --force", text)
        return text if forced else None  # with no name to remove, rm complains
    if command in _LAST and len(places) > 1:
        last = tokens[places[-1]].argument.text
        text = Input(tuple(kept[:-1])).text
        return f"{text} {{}} {last} \\;"
    return f"{text} {{}} +" if random.random() < PLUS else f"{text} {{}} \\;"


PLUS = 0.2
"""Share of commands of `find` that end with `+` (ours)."""
