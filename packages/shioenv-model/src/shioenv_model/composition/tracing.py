"""The lines that the shell prints before each command under `set -x`."""

from __future__ import annotations

import os
import re
from dataclasses import replace

from shioenv.bash.builtins import DECLARING
from shioenv.bash.program import Simple
from shioenv.bash.words import quoted
from shioenv.errors import Abstained
from shioenv_model.bash.arrays import quote_value
from shioenv_model.composition.environment import Environment

_META = re.compile(r"[ \t\n'\"\\|&;()<>!{}*\[\]?^$`]|^[~#]|[=:]~")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*(?:\[[^]]*\])?\+?=)(.*)", re.ASCII | re.DOTALL)


def trace(here: Environment, line: str) -> None:
    """Print a line after `PS4`; its first character is repeated for the depth of substitutions."""
    prompt = here.variable("PS4")
    if prompt is None:
        prompt = "+ "
    status = here.status
    prompt = here.expander.document(prompt)
    here.status = status
    here.report(os.fsencode(f"{prompt[:1] * here.place.depth}{prompt}{line}\n"))


def traced_word(word: str) -> str:
    """Quote an expanded word as `set -x` shows it."""
    if _META.search(word):
        return "'" + word.replace("'", "'\\''") + "'" if word != "'" else "\\'"
    return (quote_value(word) if not word.isprintable() else word) or "''"


def trace_simple(here: Environment, command: Simple, name: str) -> Simple:
    """Trace a command; return it with its words expanded. Errors: Abstained for arrays."""
    assignments = [_expanded(here, word) for word in command.assignments]
    declares = name in DECLARING and name not in here.own.functions
    words: list[str] = []
    shown: list[str] = []
    further: list[str] = []
    for word in command.words:
        match = _ASSIGNMENT.fullmatch(word) if declares else None
        if match is not None:
            if match[2].startswith("("):
                raise Abstained("set -x of an array's declaration")
            value = here.expander.text(match[2], assigned=True)
            words.append(match[1] + quoted(value))
            shown.append(match[1] + value)
            further.append(match[1] + (traced_word(value) if value else ""))
        else:
            fields = here.expander.fields(word)
            words += [word] if fields == [word] else map(quoted, fields)
            shown += fields
    if words:
        trace(here, " ".join(map(traced_word, shown)))
    for line in further if name in ("export", "readonly") else ():
        trace(here, line)
    return replace(command, assignments=tuple(assignments), words=tuple(words))


def _expanded(here: Environment, word: str) -> str:
    """Trace an assignment; return it with its value expanded."""
    match = _ASSIGNMENT.fullmatch(word)
    if match is None or match[2].startswith("("):
        trace(here, word)
        return word
    value = here.expander.text(match[2], assigned=True)
    trace(here, match[1] + (traced_word(value) if value else ""))
    return match[1] + quoted(value)
