"""File modes: conversion between `ls -l` strings, numbers, and operands of `chmod` and `umask`."""

from __future__ import annotations

import re
import stat

_CLAUSE = re.compile(r"([ugoa]*)((?:[-+=](?:[rwxXst]+|[ugo])?)+)")
_ACTION = re.compile(r"([-+=])([rwxXst]+|[ugo])?")
_SHIFTS = {"u": 6, "g": 3, "o": 0}
_BITS = {"r": 4, "w": 2, "x": 1}


def mode_of(perms: str) -> int:
    """Return the permission bits of ten characters such as `drwxr-xr-x`."""
    bits = 0
    for place, letter in enumerate(perms[1:10]):
        bits |= (letter not in "-ST") << 8 - place
        if letter in "sStT":
            bits |= (stat.S_ISUID, stat.S_ISGID, stat.S_ISVTX)[place // 3]
    return bits


def format_mode(kind: str, mode: int) -> str:
    """Return the ten characters of a file of this kind (`-`, `d`, `l`, …) with these bits."""
    return kind + stat.filemode(mode)[1:]


def changed_mode(text: str, mode: int, umask: int, *, directory: bool) -> int | None:
    """Apply `chmod TEXT` to permission bits; None if the text is not a mode.

    A directory keeps its set-ID bits if the mode is a number of at most four digits.
    """
    if re.fullmatch("[0-7]{1,4}", text):
        kept = mode & 0o6000 if directory else 0
        return int(text, 8) | kept
    for clause in text.split(","):
        match = _CLAUSE.fullmatch(clause)
        if match is None:
            return None
        who, actions = match.groups()
        for operator, letters in _ACTION.findall(actions):
            mode = _acted(mode, who, operator, letters, umask, directory=directory)
    return mode


def _acted(mode: int, who: str, operator: str, letters: str, umask: int, *, directory: bool) -> int:
    users = "ugo" if not who or "a" in who else who
    value = mask = 0
    for user in users:
        shift = _SHIFTS[user]
        if letters in ("u", "g", "o") and letters:
            value |= (mode >> _SHIFTS[letters] & 7) << shift
        else:
            for letter in letters:
                value |= _BITS.get(letter, 0) << shift
        mask |= 7 << shift
        mask |= {"u": stat.S_ISUID, "g": stat.S_ISGID, "o": 0}[user]
    if "X" in letters and (directory or mode & 0o111):
        for user in users:
            value |= 1 << _SHIFTS[user]
    if "s" in letters:
        value |= stat.S_ISUID * ("u" in users) | stat.S_ISGID * ("g" in users)
    if "t" in letters:
        value |= stat.S_ISVTX * (not who or "o" in users)
    if not who:
        value &= ~umask
    if operator == "+":
        return mode | value
    if operator == "-":
        return mode & ~value
    if not who:
        mask |= stat.S_ISVTX
    if directory:
        mask &= ~0o6000
    return mode & ~mask | value
