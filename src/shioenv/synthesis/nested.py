"""Commands that other commands run: `find -exec`, `xargs`, `env`, `$( )`, `<( )`.

They are drawn by their own grammars; what stands for a file in them gives way to the names that
`find` and `xargs` put there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from random import Random

from shioenv.domain.inputs import Input, Role
from shioenv.synthesis.compose import command_tokens
from shioenv.synthesis.usage import ABOUT_ITSELF, form

NESTED_HORIZON = 5
"""Arguments of a command that another one runs, at most (ours)."""

NESTED_ATTEMPTS = 4
"""Programs drawn for one place, until one may be run there."""

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

_BUILTINS = frozenset({"cd", "export", "ulimit"})
"""Commands that only a shell has."""

_NAMES = frozenset(
    {"absolute path", "file name", "glob", "name", "relative path", "special path", "tilde"}
)
"""Forms of operands that name a file."""


def may_run(
    name: str, part: str, program: str, before: Sequence[str] = (), fifos: Sequence[str] = ()
) -> bool:
    """Whether a command may run a program there: none that waits, or lacks what it needs.

    `before` are the words before it, the command's own among them, `fifos` what nobody writes to:
    `find` may run what reads where it looks at regular files, and by name or for none of these.
    """
    if program in _BUILTINS or (program in _RUNNING and name != "env"):
        return False
    if name == "xargs":
        return program in _BATCHED
    if name == "env":
        return program != "env"
    if name != "find":
        return False
    safe = any(map(_excludes, before)) or not any(_leads_to(word, fifos) for word in before[1:])
    regular = "-type f" in before and safe
    return program not in _READING or part.endswith(_CONTENT) or regular


def _excludes(word: str) -> bool:
    """Whether a test asks for an ending, which no fifo has."""
    return re.match(r"-i?name .*\.\w+['\"]?\Z", word) is not None


def _leads_to(word: str, paths: Sequence[str]) -> bool:
    """Whether a search from a word finds one of these paths, as far as a word tells."""
    if word.startswith(("-", "!", "\\", "(")):
        return False
    return not re.match(r"[a-z]", word) or any(
        path == word or path.startswith(f"{word.rstrip('/')}/") for path in paths
    )


def run_by(name: str, words: Sequence[str], random: Random) -> str | None:
    """The text of a command as another one runs it, its end included; None where it cannot be.

    `find` puts its file where `{}` stands, `xargs` its items behind everything; `env` puts nothing.
    """
    tokens = command_tokens(words)
    if any(token.role not in {Role.COMMAND, Role.ARGUMENT} for token in tokens):
        return None
    if not ABOUT_ITSELF.isdisjoint(words):
        return None
    if name == "env":
        return Input(tokens).text
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
        and (command == "echo" or _is_name(tokens[place].argument.text))
    ]
    if any(" " in tokens[place].argument.text.strip("'\"") for place in files):
        return None
    kept = [token for place, token in enumerate(tokens) if place not in files]
    text = Input(tuple(kept)).text
    if re.search(r"[*?~$`{}]", text) or {"-", "--"} & set(text.split()):
        return None
    if name == "xargs":
        forced = command != "rm" or re.search(r" -[a-zA-Z]*f| --force", text)
        return text if forced else None  # with no name to remove, rm complains
    if command in _LAST and len(places) > 1:
        last = tokens[places[-1]].argument.text
        text = Input(tuple(kept[:-1])).text
        return f"{text} {{}} {last} \\;"
    return f"{text} {{}} +" if random.random() < PLUS else f"{text} {{}} \\;"


def _is_name(text: str) -> bool:
    """Whether an operand has the form of a file's name."""
    return form(text.strip("'\"")).removesuffix(", quoted") in _NAMES


PLUS = 0.2
"""Share of commands of `find` that end with `+` (ours)."""


# Substitutions ----------------------------------------------------------------------------------

SUBSTITUTED = 0.06
"""Share of file operands, where they may, that are a substitution: of what people write 2% is."""

STREAMED = 0.25
"""The same of the operands of `comm` and `paste` (ours)."""

LISTING = {"find": 3.0, "ls": 2.0, "cat": 1.0}
"""Commands in `$( )` that tell names, by weight (ours; a table says nothing of them)."""

STREAMING = {"sort": 5.0, "cut": 2.0, "head": 1.0, "ls": 1.0, "grep": 1.0}
"""Commands in `<( )`, by weight (ours)."""

_LOOKING = frozenset({"cat", "du", "echo", "file", "head", "ls", "stat", "tail", "wc"})
"""Commands that take any number of names and change nothing."""

_STREAMS = frozenset({"comm", "paste"})


def substitution(name: str, random: Random) -> tuple[str, Mapping[str, float]] | None:
    """What opens a substitution as an operand of a command, and the programs in it by weight; None
    where the operand is a name.
    """
    if name in _LOOKING and random.random() < SUBSTITUTED:
        return "$(", LISTING
    if name in _STREAMS and random.random() < STREAMED:
        return "<(", STREAMING
    return None


def substituted(mark: str, words: Sequence[str]) -> str | None:
    """The text of a command in a substitution; None where it cannot be there.

    One that does more than tell names or a stream, or would read standard input, is left out.
    """
    tokens = command_tokens(words)
    operands = [
        token
        for token in tokens
        if token.role is Role.ARGUMENT and not token.argument.text.startswith("-")
    ]
    text = Input(tokens).text
    plain = all(token.role in {Role.COMMAND, Role.ARGUMENT} for token in tokens)
    changes = re.search(
        r" -(?:exec|ok|delete|fprint|fls|help|version|o\b)|--(?:help|version)", text
    )
    named = operands or words[0] in {"find", "ls"}
    return f"{mark}{text})" if plain and not changes and named else None
