"""Detection of dangerous and endless inputs, which are set aside before execution."""

from __future__ import annotations

import re
from collections.abc import Sequence

from shioenv.bash.words import split_words
from shioenv.grammar.spelling import received_form
from shioenv.grammar.traits import Traits
from shioenv_eval.adapting.roles import traits_of
from shioenv_eval.places import Places

_OFF = frozenset({"shutdown", "reboot", "halt", "poweroff", "init", "telinit"})
_DISKS = re.compile(r"(?:of=)?/dev/(?:[shv]d[a-z]|nvme|mmcblk|mem|kmem|disk)\w*")
_FORMATS = re.compile(r"mkfs(?:\.\w+)?|mkswap|wipefs|fdisk|sfdisk|parted")
_BOMB = re.compile(r"(?<!\S)(\S{1,64}?)\s*\(\)\s*\{\s*\1\s*\|\s*\1\s*&\s*\}")
_ROOTS = frozenset({"/", "/*", "/.", "~/*", "/usr", "/etc", "/bin", "/lib", "/var", "/home"})
_RECURSIVE = re.compile(r"-[A-Za-z]*R[A-Za-z]*|--recursive")
_FOREVER = re.compile(
    r"\bwhile\s+(?:true|:|\[\s*1\s*\]|\(\(\s*1\s*\)\))\s*(?:;|\n|do\b)|\buntil\s+false\b|"
    r"\bfor\s*\(\(\s*;\s*;\s*\)\)"
)
_SOURCES = frozenset({"/dev/zero", "/dev/urandom", "/dev/random", "/dev/full"})
_LIMITED = re.compile(r"\|\s*(?:head\b|sed\s+(?:-n\s+)?['\"]?\d*[pq]?;?\d*q|dd\b.*count=)")
_FOLLOWS = re.compile(r"-[A-Za-z]*[fF]|--follow(?:=.*)?|--retry")
_LOOKING = ("file", "test")
"""Commands that do not read a device to its end, though they open files or have no grammar."""
_BOUNDS = re.compile(r"-[A-Za-z]*[cnN]\d*$|--(?:bytes|lines|read-bytes|length)|count=")
_LONGEST_SLEEP = 5.0
"""Maximum time in seconds that an input may sleep."""
_UNITS = {"s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def unfit(text: str, places: Places) -> str | None:
    """Return the reason why an input must not be run; None if there is none.

    The reason begins with `dangerous: ` if the input would destroy the system. It begins with
    `endless: ` if the input does not end by itself, or only after more than 5 seconds.
    """
    if _BOMB.search(text):
        return "dangerous: a fork bomb"
    for word in places.words:
        if word.sign and word.sign.startswith((">", "&>")) and _DISKS.fullmatch(word.text):
            return "dangerous: it writes to a disk"
    for command in places.commands:
        words = [received_form(word) for word in split_words(command)]
        if words and (reason := _reason(words, text)) is not None:
            return reason
    return "endless: a loop" if _FOREVER.search(text) and "break" not in text else None


def _reason(words: Sequence[str], text: str) -> str | None:
    name = words[0].rpartition("/")[2]
    rest = words[1:]
    if name in _OFF or (name == "systemctl" and not _OFF.isdisjoint(rest)):
        return "dangerous: it shuts the machine down"
    if _FORMATS.fullmatch(name) or (name == "dd" and any(map(_is_disk_target, rest))):
        return "dangerous: it writes to a disk"
    traits = traits_of(name)
    if traits is not None and _takes_away(traits) and not _ROOTS.isdisjoint(rest):
        return "dangerous: it removes the system"
    if _removes_root(name, rest):
        return "dangerous: it removes the system"
    told = traits is not None and traits.changes in ("mode", "owner")
    if told and any(map(_RECURSIVE.fullmatch, rest)):
        return None if _ROOTS.isdisjoint(rest) else "dangerous: it changes the whole system"
    return _endless(name, rest, text)


def _is_disk_target(word: str) -> bool:
    return word.startswith("of=") and _DISKS.fullmatch(word) is not None


def _removes_root(name: str, rest: Sequence[str]) -> bool:
    """Whether a command is a `find` over the whole system that removes everything it finds."""
    removes = "-delete" in rest or "rm" in rest
    chosen = any(word.startswith(("-name", "-iname", "-path", "-regex", "-user")) for word in rest)
    return name == "find" and removes and not chosen and bool(rest) and rest[0] in _ROOTS


def _endless(name: str, rest: Sequence[str], text: str) -> str | None:
    limited = _LIMITED.search(text) is not None
    counted = any(re.match(r"-[A-Za-z]*[cw]|--count|--deadline|-[hV]$", word) for word in rest)
    if name == "ping" and rest and not counted and not limited:
        return "endless: ping without a count"
    if name == "yes" and not limited:
        return "endless: yes"
    if name == "watch" or (name in ("top", "htop") and "-n" not in " ".join(rest)):
        return f"endless: {name}"
    if name == "tail" and any(map(_FOLLOWS.fullmatch, rest)) and "--pid" not in " ".join(rest):
        return "endless: tail follows a file"
    if name == "dmesg" and not {"-w", "--follow", "-W"}.isdisjoint(rest):
        return "endless: dmesg follows the log"
    if name == "free" and "-s" in rest and "-c" not in rest:
        return "endless: free repeats"
    if name in ("nc", "ncat") and any(re.match(r"-[a-z]*l", word) for word in rest):
        return "endless: it waits for a connection"
    if name == "sleep" and sum(map(_seconds, rest)) > _LONGEST_SLEEP:
        return "endless: it sleeps for more than 5 seconds"
    read = [word.removeprefix("if=") for word in rest]
    if _reads(name) and not limited and not _SOURCES.isdisjoint(read):
        return None if any(map(_BOUNDS.match, rest)) else "endless: it reads a device"
    return None


def _takes_away(traits: Traits) -> bool:
    """Whether a command moves its operands, or removes more than empty directories."""
    return traits.changes == "name" or (traits.removes and "directory" not in traits.roles)


def _reads(name: str) -> bool:
    """Whether a program reads the devices that its operands name.

    True for programs without a grammar, and if the grammar's header declares that the program opens
    its paths, or declares no paths. False for programs in `_LOOKING`.
    """
    traits = traits_of(name)
    return name not in _LOOKING and (traits is None or traits.opens or not traits.paths)


def _seconds(word: str) -> float:
    match = re.fullmatch(r"([0-9]+\.?[0-9]*|\.[0-9]+)([smhd]?)", word)
    return float(match[1]) * _UNITS[match[2]] if match else 0.0
