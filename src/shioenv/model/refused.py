"""Scripts that a program refuses, told by rule from the script alone (sed(1))."""

from __future__ import annotations

import os
import re

from shioenv.domain.behavior import Behavior
from shioenv.model.forms import Form
from shioenv.model.memory.functions.script import RefusedScriptError, read_script

EDITOR = "sed"
_PLAIN = frozenset({"-E", "-i", "-n", "-s", "-u", "-z"})
"""Options that leave it what a script is."""


def refused_script(form: Form) -> Behavior | None:
    """What `sed` says of a script that it refuses, before it reads a file.

    None for other commands, for scripts that it takes, and for those of which no rule tells.
    """
    if form.utility != EDITOR or form.guessed:
        return None
    scripts = [value for name, value in form.options if name == "-e"]
    if any(name not in _PLAIN and name != "-e" for name, _ in form.options) or len(scripts) > 1:
        return None
    script = (scripts or [*form.operands, None])[0]
    if script is None or "\n" in script:
        return None
    extended = any(name == "-E" for name, _ in form.options)
    try:
        read_script(script, "extended" if extended else "basic")
    except RefusedScriptError as refused:
        place = "-e expression #1, " if f"{refused}".startswith("char ") else ""
        said = os.fsencode(f"{EDITOR}: {place}{refused}\n")
        return Behavior(refused.code, said, stdout=b"", stderr=said)
    except (ValueError, OverflowError, re.error):
        pass
    return None
