"""Words of single commands: options, operands, equivalent spellings (`tar -xf` for `tar xf`)."""

from __future__ import annotations

import os
import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from shioenv.bash.builtins import BUILTINS
from shioenv.bash.words import quoted
from shioenv.domain.behavior import Behavior
from shioenv.domain.runner import State
from shioenv.errors import Abstained
from shioenv.grammar.library import shipped_headers
from shioenv_model.bash.expand import Expander
from shioenv_model.composition.call import Call
from shioenv_model.composition.variables import Variables

NO_NAMES: Mapping[str, str] = MappingProxyType({})
"""The long options of a program that has none."""


def words_of(call: Call, state: State, names: Container[str]) -> list[str]:
    """Return the expanded words of a command that calls one of these programs.

    Errors: Abstained for any other command, for redirections, and for a name that is a shell
    function.
    """
    name = call.words[0] if call.words else ""
    if name not in names or call.closed or call.opens is not None or call.reads is not None:
        raise Abstained("another command")
    if name in state.before.document.get("functions", {}):
        raise Abstained("a function of the shell")
    expander = Expander(Variables(state))
    return [one for word in call.words for one in expander.fields(word)]


def parse_options(
    words: Sequence[str],
    flags: str,
    valued: str = "",
    names: Mapping[str, str] = NO_NAMES,
    *,
    permutes: bool = True,
) -> tuple[list[tuple[str, str]], list[str]]:
    """Parse options and operands; each option is a letter with its value, or "".

    `flags` and `valued` are the letters of options without and with a value; `names` maps long
    options to letters. Without `permutes`, everything after the first operand is an operand.
    Errors: Abstained for an unknown option, and for a missing value.
    """
    options: list[tuple[str, str]] = []
    operands: list[str] = []
    left = list(words[::-1])
    while left:
        word = left.pop()
        if word == "--":
            return options, [*operands, *left[::-1]]
        if word.startswith("--"):
            name, sign, value = word[2:].partition("=")
            letter = names.get(name, "")
            if not letter or (sign and letter not in valued):
                raise Abstained(f"the option {word!r:.20} is not supported")
            options.append((letter, value if sign or letter not in valued else _next(left)))
        elif word.startswith("-") and word != "-":
            letters = word[1:]
            while letters:
                letter, letters = letters[0], letters[1:]
                if letter in valued:
                    options.append((letter, letters or _next(left)))
                    break
                if letter not in flags:
                    raise Abstained(f"the option {word!r:.20} is not supported")
                options.append((letter, ""))
        else:
            operands.append(word)
            if not permutes:
                return options, [*operands, *left[::-1]]
    return options, operands


def _next(left: list[str]) -> str:
    if not left:
        raise Abstained("an option without its value")
    return left.pop()


def options_of(words: Sequence[str], letters: str) -> tuple[set[str], list[str]]:
    """Parse options without values: their letters, and the operands.

    Errors: see `parse_options`.
    """
    options, operands = parse_options(words, letters)
    return {letter for letter, _ in options}, operands


_BUNDLE = re.compile(r"([ctxru][vzjJpkmhO]*)(?:(f)([vzjJpkmhO]*))?")
"""Letters of tar's options; only `f`, the archive, takes a value."""

EQUIVALENT = {"egrep": ("grep", "-E"), "fgrep": ("grep", "-F"), "rgrep": ("grep", "-r")}
"""Programs that are equivalent to another one with an option (grep(1))."""

_BSD = re.compile(r"-[aefhjlmrsvwx]*u[aefhjlmrsvwx]+")
"""Options of `ps` that select a user such as `x`. Without such a user, `ps` ignores the dash
(ps(1))."""

_SHOWN_AT_ONCE = ("--help", "--version")

_READS_ON = ("curl", "expr")
"""Programs that do not ignore the words after `--help`."""

_ANYWHERE = re.compile(r"(?P<before>\S+(?: -\S+)*)(?: \.)?(?P<after>)")
_FIRST = re.compile(r"(?P<before>\S+)(?: \.)?(?P<after>(?: -.*)?)", re.DOTALL)
"""Commands that name no directory except `.`. A name is inserted between `before` and `after`:
after the options, or before options whose order matters (`_FIRST`)."""


def unnamed(text: str, state: State, start: str) -> bool:
    """Whether the command does not name the directory that it works on.

    False for the directories `start`, where there are enough records of such commands, and `/`.
    """
    here = state.before.document["cwd"]
    return here not in {start, "/"} and _nameless(text) is not None


def insert_directory(text: str, name: str) -> str:
    """Insert `name` as the directory of an `unnamed` command."""
    match = _nameless(text)
    assert match is not None
    return f"{match['before']} {quoted(name)}{match['after']}"


def _nameless(text: str) -> re.Match[str] | None:
    """Match a command that works on its working directory and names no directory."""
    header = shipped_headers().get(text.partition(" ")[0])
    if header is None or header.traits.implied != "." or not header.traits.operands:
        return None
    return (_FIRST if header.traits.ordered else _ANYWHERE).fullmatch(text)


def without_name(behavior: Behavior, name: str) -> Behavior:
    """Return the behavior of a command on the directory `name`, with `.` in its place."""
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


def respelled(call: Call) -> str | None:
    """Return the command in its usual spelling; None if it is already spelt so.

    The first word of `tar` needs no dash. `ps` reads `-aux` like `aux`, unless `x` is a user.
    """
    name = "".join(call.words[:1])
    words = call.words[1 : len(call.words) - len(call.closed)]
    if name == "ps" and _BSD.fullmatch("".join(words[:1])):  # a later word may be a value
        return " ".join((name, words[0][1:], *words[1:]))
    if name in EQUIVALENT:
        return " ".join((*EQUIVALENT[name], *words))
    bundle = _BUNDLE.fullmatch("".join(words[:1]))
    if name != "tar" or bundle is None or (bundle[2] and len(words) < 2):
        return None
    letters = "".join(bundle.group(1, 3, 2)) if bundle[2] else bundle[1]
    return " ".join(("tar", f"-{letters}", *words[1:]))


def asks_for_usage(call: Call) -> bool:
    """Whether a program's first word is `--help` or `--version`, and other words follow."""
    words = call.words
    if len(words) < 3 or words[1] not in _SHOWN_AT_ONCE or call.closed:
        return False
    name = words[0]
    plain = not any(set("$`") & set(word) for word in words)
    return name not in _READS_ON and name not in BUILTINS and plain


def is_usage_of(name: str, behavior: Behavior) -> bool:
    """Whether the output is a program's GNU-style help or version."""
    return behavior.output.startswith((b"Usage:", os.fsencode(f"{name} (")))
