"""Traps: commands that the shell runs at its end, after a failure, or before each command."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from shioenv.bash.words import quoted
from shioenv.domain.behavior import Behavior
from shioenv.domain.context import pointer
from shioenv.domain.patch import ContextPatch
from shioenv.errors import Abstained
from shioenv_model.composition.environment import Environment

EVENTS = ("EXIT", "DEBUG", "ERR", "RETURN")
"""The traps that are not signals."""
SIGNALS = {
    "HUP": 1, "INT": 2, "QUIT": 3, "ILL": 4, "TRAP": 5, "ABRT": 6, "BUS": 7, "FPE": 8, "KILL": 9,
    "USR1": 10, "SEGV": 11, "USR2": 12, "PIPE": 13, "ALRM": 14, "TERM": 15, "STKFLT": 16,
    "CHLD": 17, "CONT": 18, "STOP": 19, "TSTP": 20, "TTIN": 21, "TTOU": 22, "URG": 23, "XCPU": 24,
    "XFSZ": 25, "VTALRM": 26, "PROF": 27, "WINCH": 28, "IO": 29, "PWR": 30, "SYS": 31,
}  # fmt: skip
"""The numbers of signals on x86-64."""
_NAMES = {str(number): name for name, number in SIGNALS.items()}
_ORDER = ("EXIT", *(f"SIG{name}" for name in SIGNALS), "DEBUG", "ERR", "RETURN")
"""The order of `trap -p`."""


def full_name(word: str) -> str | None:
    """Return a signal's name as in `trap -p`; None for an unknown one."""
    bare = word.upper().removeprefix("SIG")
    if word == "0" or bare in EVENTS:
        return "EXIT" if word == "0" else bare
    name = _NAMES.get(word, bare)
    return f"SIG{name}" if name in SIGNALS else None


def trap(here: Environment, values: list[str]) -> None:
    """Run `trap`: set, remove or print traps. Errors: Abstained for the list of signals."""
    words = values[1:]
    prints = False
    here.status = 0
    while words and re.fullmatch(r"-[lp]+|--", words[0]):
        option = words.pop(0)
        if "l" in option:
            raise Abstained("trap -l")
        prints |= "p" in option
        if option == "--":
            break
    else:
        if words and re.fullmatch(r"-[A-Za-z]+", words[0]):
            here.usage("trap", words[0], "trap [-lp] [[arg] signal_spec ...]")
            return
    if prints or not words:
        _print(here, words)
        return
    action: str | None
    if len(words) == 1 or words[0].isdecimal():
        action = None
        if len(words) == 1 and full_name(words[0]) is None:
            here.report(b"trap: usage: trap [-lp] [[arg] signal_spec ...]\n")
            here.status = 2
            return
    else:
        action = words.pop(0)
    for word in words:
        name = full_name(word)
        if name is None:
            here.complain(f"trap: {word}: invalid signal specification")
            here.status = 1
        elif name not in ("SIGKILL", "SIGSTOP"):
            _set(here, name, None if action == "-" else action)


def _set(here: Environment, name: str, action: str | None) -> None:
    old = here.own.traps.pop(name, None)
    here.own.inherited = {}
    if action is not None:
        here.own.traps[name] = action
    path = pointer("settings", f"trap {name}")
    known = f"trap {name}" in here.state.before.document["settings"]
    if old == action or (action is None and not known):
        return
    patch = ("r", path) if action is None else ("=" if known else "a", path, action)
    text = f"trap {quoted('-' if action is None else action)} {name}"
    here.advance(text, Behavior(0, b"", ContextPatch((patch,))))


def _print(here: Environment, words: Sequence[str]) -> None:
    shown = {**here.own.inherited, **here.own.traps}
    names = []
    for word in words:
        name = full_name(word)
        if name is None:
            here.complain(f"trap: {word}: invalid signal specification")
            here.status = 1
        else:
            names.append(name)
    for name in names if words else _ORDER:
        if name in shown:
            text = shown[name].replace("'", "'\\''")
            here.write(here.streams.fds[1], os.fsencode(f"trap -- '{text}' {name}\n"))
