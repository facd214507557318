"""Other spellings of a command: `tar xf` for `tar -xf`, and words that no program reads."""

from __future__ import annotations

import os
import re

from shioenv.bash.builtins import BUILTINS
from shioenv.domain.behavior import Behavior
from shioenv_model.composition.call import Call

_BUNDLE = re.compile(r"([ctxru][vzjJpkmhO]*)(?:(f)([vzjJpkmhO]*))?")
"""Letters of tar's options, of which the archive's alone takes a value."""

_SHORT = {"egrep": ("grep", "-E"), "fgrep": ("grep", "-F"), "rgrep": ("grep", "-r")}
"""Programs that are another one with an option (grep(1))."""

_SHOWN_AT_ONCE = ("--help", "--version")

_READS_ON = ("curl", "expr")
"""Programs that read the words behind `--help` all the same."""


def respelled(call: Call) -> str | None:
    """Return the command spelled in the usual way; None where it is.

    The first word of `tar` needs no dash.
    """
    name = "".join(call.words[:1])
    words = call.words[1 : len(call.words) - len(call.closed)]
    if name in _SHORT:
        return " ".join((*_SHORT[name], *words))
    bundle = _BUNDLE.fullmatch("".join(words[:1]))
    if name != "tar" or bundle is None or (bundle[2] and len(words) < 2):
        return None
    letters = "".join(bundle.group(1, 3, 2)) if bundle[2] else bundle[1]
    return " ".join(("tar", f"-{letters}", *words[1:]))


def asks_for_usage(call: Call) -> bool:
    """Whether `--help` or `--version` is the first word of a program, and others follow it."""
    words = call.words
    if len(words) < 3 or words[1] not in _SHOWN_AT_ONCE or call.closed:
        return False
    name = words[0]
    plain = not any(set("$`") & set(word) for word in words)
    return name not in _READS_ON and name not in BUILTINS and plain


def is_usage_of(name: str, behavior: Behavior) -> bool:
    """Whether a program printed its help or its version as GNU programs do."""
    return behavior.output.startswith((b"Usage:", os.fsencode(f"{name} (")))
