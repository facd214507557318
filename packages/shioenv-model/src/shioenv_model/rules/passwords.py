"""Passwords that are set from a pipe: what `chpasswd` and `passwd` leave, told by rule."""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from datetime import date

from shioenv.domain.context import MONTHS
from shioenv.errors import Abstained
from shioenv_model.rules.accounts import accounts
from shioenv_model.rules.tree_changes import Effects, now_of, options_of

SHADOW = "/etc/shadow"
LOCK = "/etc/.pwd.lock"
"""An empty file that whoever writes accounts makes once (lckpwdf(3))."""

_METHOD = "$y$j9T$"
_SALT, _HASH = 22, 43
"""Characters of a password that is hashed by yescrypt (crypt(5))."""

_ASKED = "New password: Retype new password: "
_UNEQUAL = (
    f"{_ASKED}Sorry, passwords do not match.\n"
    "passwd: Authentication token manipulation error\npasswd: password unchanged\n"
)
_PLAIN = re.compile(r"[!-~]{1,100}", re.ASCII)


def chpasswd(made: Effects, words: Sequence[str]) -> bytes:
    """What `chpasswd` leaves of lines `user:password`. Errors: Abstained for any other line."""
    options_of(words, "")
    lines = made.state.stdin.decode("ascii", "surrogateescape").splitlines()
    pairs = [line.partition(":")[::2] for line in lines]
    if words or not pairs or not all(_PLAIN.fullmatch(password) for _, password in pairs):
        raise Abstained("lines that set no password")
    _set(made, dict(pairs))
    return b""


def passwd(made: Effects, words: Sequence[str]) -> bytes:
    """What `passwd` leaves of two lines that are typed into it by a pipe. Errors: Abstained."""
    _, users = options_of(words, "")
    typed = made.state.stdin.decode("ascii", "surrogateescape").splitlines()
    if len(users) > 1 or len(typed) != 2 or not all(map(_PLAIN.fullmatch, typed)):
        raise Abstained("no two passwords")
    user = users[0] if users else "root"
    if user not in accounts(made.state, SHADOW):
        raise Abstained("a user without a password")
    if typed[0] != typed[1]:
        made.errors, made.exit_code = _UNEQUAL.encode(), 10
        return b""
    _set(made, {user: typed[0]})
    made.errors = f"{_ASKED}passwd: password updated successfully\n".encode()
    return b""


def _set(made: Effects, passwords: Mapping[str, str]) -> None:
    """Gives users new passwords. Errors: Abstained for users who are not there.

    A salt is random, so what stands in the file is made up, of the right length.
    """
    before = made.state.read(SHADOW)
    if before is None or not passwords.keys() <= accounts(made.state, SHADOW).keys():
        raise Abstained("users without a password")
    lines = []
    for line in os.fsdecode(before).splitlines(keepends=True):
        user, _, *others = line.split(":")
        if user in passwords:
            hashed = _made_up(user, passwords[user])
            line = ":".join((user, hashed, today(made), *others[1:]))
        lines.append(line)
    made.write(SHADOW, os.fsencode("".join(lines)))
    lock(made)


def lock(made: Effects) -> None:
    """Makes the file that locks accounts, where it is not there."""
    if made.entry(LOCK) is None:
        made.put(LOCK, made.made("-", 0o600))
        made.contents[made.key(LOCK)] = b""


def today(made: Effects) -> str:
    """The day, as the files of accounts count days: from 1970 on (shadow(5))."""
    now = now_of(made, owner=False)
    day = date(now["year"], MONTHS.index(now["month"]) + 1, now["day"])
    return str((day - date(1970, 1, 1)).days)


def _made_up(user: str, password: str) -> str:
    digest = hashlib.sha512(f"{user}:{password}".encode()).digest()
    letters = base64.b64encode(digest, b"./").decode().rstrip("=")
    return f"{_METHOD}{letters[:_SALT]}${letters[_SALT : _SALT + _HASH]}"
