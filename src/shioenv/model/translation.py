"""What a memory of one machine says, said of another one: its names, addresses and instants.

No table says what is called how. What stands at the same place of the same file of both machines
is the same thing, and an instant is the same that is as long after the machine was started.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from shioenv.domain.context import OF_DATE
from shioenv.model.instants import Shift
from shioenv.system.world import World

_COMPARED = ("/etc/", "/proc/")
_BY_NUMBER = ("/etc/passwd", "/etc/group")
"""Files whose lines say what has a number: passwd(5), group(5)."""

_FIELDS, _WORDS = re.compile(r"[:,]"), re.compile(r"[\s=()]+")
_SHORTEST = 3
"""Letters of a name at least: shorter words stand for too much else."""


class Translation:
    """From a machine that inputs were executed on to another one."""

    def __init__(self, theirs: World, ours: World) -> None:
        self._shift = shift(theirs, ours)
        self.names = _names(theirs, ours)
        """What is called otherwise there, as it is called here: users, groups, addresses."""
        hosts = [str(each.state().before.document.get("hostname", "")) for each in (theirs, ours)]
        self._host, self._our_host = hosts
        if hosts[0] != hosts[1] and len(hosts[0]) >= _SHORTEST:
            self.names.setdefault(*hosts)
        self._networks = {
            old.rpartition(".")[0]: new.rpartition(".")[0]
            for old, new in self.names.items()
            if _ADDRESS.fullmatch(old) and _ADDRESS.fullmatch(new)
        }

    def words(self, text: str) -> dict[str, str]:
        """What of a text is another on our machine, each with what stands for it."""
        found = dict(self._shift.words(text)) if self._shift else {}
        if self._host in text and self._host != self._our_host:
            # a name that is a user's as well is the machine's where it stands behind these
            behind = [(f"{old} ", f"{new} ") for old, new in found.items()]
            for old, new in (*behind, ("Linux ",) * 2, ("HOSTNAME=",) * 2):
                found[old + self._host] = new + self._our_host
            if text == f"{self._host}\n":
                found[self._host] = self._our_host
        for match in _TOKEN.finditer(text):
            token, blanks = match.groups()
            said = self.named(token)
            if said != token:
                width = len(token) + len(blanks) - 1  # of a column, with one blank behind it
                found.setdefault(match[0], f"{said:{width}} " if blanks else said)
        return found

    def back(self, path: str) -> str:
        """A path as it was called on their machine."""
        return "/".join(self._backwards.get(each, each) for each in path.split("/"))

    @cached_property
    def _backwards(self) -> dict[str, str]:
        return {new: old for old, new in self.names.items()}

    def dates(self, entry: Mapping[str, Any]) -> Mapping[str, Any]:
        """When a file is changed on our machine that was changed then on theirs: the four
        attributes of its time.
        """
        kept = {name: entry[name] for name in OF_DATE}
        return self._shift.dates(kept) if self._shift else kept

    def named(self, token: str) -> str:
        """A word, or a path each of whose names is said in our way."""
        if token in self.names:
            return self.names[token]
        if _ADDRESS.fullmatch(token):
            network, _, last = token.rpartition(".")
            return f"{self._networks.get(network, network)}.{last}"
        if "@" in token:
            user, _, host = token.rpartition("@")
            host = self._our_host if host == self._host else self.named(host)
            return f"{self.named(user)}@{host}"
        if "/" in token:
            return "/".join(self.names.get(each, each) for each in token.split("/"))
        return token


_ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}")
_BOOT = re.compile(rb"(?m)^btime (\d+)$")
_TOKEN = re.compile(r"([\w.\-/~@+]*[\w/~@+])( {2,}|)")


def _names(theirs: World, ours: World) -> dict[str, str]:
    """Words of the one machine's files, each with the word that stands in its place in the
    other's, most often.
    """
    votes: dict[str, Counter[str]] = {}
    for path, content in theirs.contents.items():
        other = ours.contents.get(path)
        if other is None or not path.startswith(_COMPARED):
            continue
        lines = [each.decode(errors="replace").splitlines() for each in (content, other)]
        for old, new in _aligned(path, *lines):
            for mine, your in _parts(old, new):
                votes.setdefault(mine, Counter())[your] += 1
    votes.setdefault(theirs.start, Counter())[ours.start] += 1
    chosen = {old: max(new, key=lambda each: (new[each], each)) for old, new in votes.items()}
    return {
        old: new
        for old, new in chosen.items()
        if old != new and len(old) >= _SHORTEST and new and not old.isdigit()
    }


def _aligned(path: str, old: list[str], new: list[str]) -> Iterator[tuple[str, str]]:
    """Lines that are of the same thing: of users and groups those of the same number, elsewhere
    those at the same place of files of as many lines.
    """
    if path in _BY_NUMBER:
        numbered = {line.split(":")[2]: line for line in new if line.count(":") > 2}
        for line in old:
            number = line.split(":")[2] if line.count(":") > 2 else ""
            if number in numbered:
                yield line, numbered[number]
    elif len(old) == len(new):
        yield from zip(old, new, strict=True)


def _parts(old: str, new: str) -> Iterator[tuple[str, str]]:
    """The fields and the words that stand at the same places of two lines."""
    fields = _FIELDS.split(old), _FIELDS.split(new)
    if len(fields[0]) != len(fields[1]):
        return
    for mine, your in zip(*fields, strict=True):
        yield mine.strip(), your.strip()
        words = _WORDS.split(mine.strip()), _WORDS.split(your.strip())
        if 1 < len(words[0]) == len(words[1]):
            yield from zip(*words, strict=True)


def shift(theirs: World, ours: World) -> Shift | None:
    """From the one machine's start to the other's; None where one does not tell when that was."""
    told = (each.read("/proc/stat") or b"" for each in (theirs, ours))
    found = [int(match[1]) for match in map(_BOOT.search, told) if match]
    if len(found) < 2:
        return None
    return Shift(datetime.fromtimestamp(found[0], UTC), datetime.fromtimestamp(found[1], UTC))
