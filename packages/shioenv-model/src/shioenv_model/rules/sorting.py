"""Lines in order, and lines in common, by rule: sort(1) and comm(1) of GNU coreutils 9.1."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cmp_to_key
from heapq import merge
from itertools import groupby, pairwise
from typing import Any

from shioenv.domain.context import MONTHS
from shioenv.domain.runner import State
from shioenv.domain.work import spend
from shioenv.errors import Abstained

_ORDERING = "bdfghiMnrV"
_LONG = {
    "ignore-leading-blanks": "b", "dictionary-order": "d", "ignore-case": "f", "stable": "s",
    "general-numeric-sort": "g", "human-numeric-sort": "h", "ignore-nonprinting": "i",
    "month-sort": "M", "numeric-sort": "n", "reverse": "r", "version-sort": "V", "unique": "u",
    "key": "k", "field-separator": "t", "merge": "m", "zero-terminated": "z",
}  # fmt: skip
_KEY = re.compile(rf"(\d+)(?:\.(\d+))?([{_ORDERING}]*)(?:,(\d+)(?:\.(\d+))?([{_ORDERING}]*))?")
_OLD_KEY = re.compile(rf"\+(\d+)(?:\.(\d+))?([{_ORDERING}]*)")
_NUMBER = re.compile(rb"[ \t]*(-?)(\d*)(?:\.(\d*))?")
_SIZES = b"KMGTPEZYRQ"
_MONTHS = [name.upper().encode() for name in MONTHS]
_MOST = 1_000_000
"""Most bytes that are sorted (ours)."""

Compare = Callable[[bytes, bytes], int]


@dataclass(frozen=True)
class _Key:
    """A part of a line, and how that part is compared. Fields and characters count from 0."""

    options: str = ""
    field: int = 0
    character: int = 0
    last: int | None = None
    """The field in which the part ends, or behind which it ends where `end` is 0."""
    end: int = 0
    blanks: bool = False
    """Blanks where the part begins are none of it."""
    end_blanks: bool = False

    def part(self, line: bytes, tab: bytes) -> bytes:
        """The part of a line; `tab` is what ends fields, or nothing: then blanks begin them."""
        begin = _skipped(line, self.field, tab, behind=True)
        if self.blanks:
            begin = _behind_blanks(line, begin)
        begin = min(len(line), begin + self.character)
        if self.last is None:
            return line[begin:]
        stop = _skipped(line, self.last + (not self.end), tab, behind=bool(self.end))
        if self.end:
            stop = _behind_blanks(line, stop) if self.end_blanks else stop
            stop = min(len(line), stop + self.end)
        return line[begin:stop] if stop > begin else b""


def _skipped(line: bytes, fields: int, tab: bytes, *, behind: bool) -> int:
    """Where so many fields end; `behind`: past the tab that follows them."""
    place = 0
    for number in range(min(fields, len(line) + 1)):
        if place >= len(line):
            break
        if tab:
            found = line.find(tab, place)
            place = len(line) if found < 0 else found
            if place < len(line) and (behind or number + 1 < fields):
                place += 1
        else:
            place = _behind_blanks(line, place)
            while place < len(line) and line[place] not in b" \t":
                place += 1
    return place


def _behind_blanks(line: bytes, place: int) -> int:
    while place < len(line) and line[place] in b" \t":
        place += 1
    return place


@dataclass
class Sorting:
    """What the words of a `sort` ask for."""

    options: str = ""
    keys: list[_Key] = field(default_factory=list)
    tab: bytes = b""
    flags: set[str] = field(default_factory=set)
    files: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, words: Sequence[str]) -> Sorting:
        """What the words behind `sort` ask for. Errors: Abstained for what no rule tells."""
        made = cls()
        left = list(words[::-1])
        while left:
            word = left.pop()
            old = _OLD_KEY.fullmatch(word)
            if word == "--":
                made.files += left[::-1]
                break
            if old:
                made.keys.append(_of_old(old))
            elif word.startswith("--"):
                name, sign, value = word[2:].partition("=")
                letter = _LONG.get(name)
                if letter is None or (sign and letter not in "kt"):
                    raise Abstained("an option that is beyond it")
                made._take(letter, value if sign else None, left)
            elif word.startswith("-") and word != "-":
                made._cluster(word[1:], left)
            else:
                made.files.append(word)
        return made

    def _cluster(self, letters: str, left: list[str]) -> None:
        while letters:
            letter, letters = letters[0], letters[1:]
            if letter in "kt":
                self._take(letter, letters or None, left)
                return
            self._take(letter, None, left)

    def _take(self, letter: str, value: str | None, left: list[str]) -> None:
        if letter in _ORDERING:
            self.options += letter
        elif letter in "usmzcC":
            self.flags.add(letter)
        elif letter in "kt":
            if value is None and not left:
                raise Abstained("an option without its value")
            value = left.pop() if value is None else value
            if letter == "t":
                if len(os.fsencode(value)) != 1 or self.tab not in (b"", os.fsencode(value)):
                    raise Abstained("no single mark")
                self.tab = os.fsencode(value)
            else:
                self.keys.append(_of_key(value))
        else:
            raise Abstained("an option that is beyond it")

    def compare(self) -> Compare:
        """How two lines compare: below 0, 0 or above."""
        keys = [
            key if key.options or key.blanks or key.end_blanks else self._global(key)
            for key in self.keys
        ]
        if not keys and set(self.options) - {"r"}:
            keys = [self._global(_Key())]
        if any(_exclude_each_other(set(key.options)) for key in keys):
            raise Abstained("ways to compare that exclude each other")
        ways = [(key, _way(key.options), "r" in key.options) for key in keys]
        backwards = "r" in self.options

        def compared(one: bytes, other: bytes) -> int:
            for key, way, turned in ways:
                parts = way(key.part(one, self.tab)), way(key.part(other, self.tab))
                if parts[0] != parts[1]:
                    return -1 if (parts[0] < parts[1]) != turned else 1
            if ways and self.flags & {"u", "s"}:
                return 0
            return 0 if one == other else -1 if (one < other) != backwards else 1

        return compared

    def _global(self, key: _Key) -> _Key:
        blanks = "b" in self.options
        return _Key(self.options, key.field, key.character, key.last, key.end, blanks, blanks)


def _exclude_each_other(options: set[str]) -> bool:
    return len(options & set("ghMn")) + bool(options & set("diV")) > 1


def _of_key(text: str) -> _Key:
    match = _KEY.fullmatch(text)
    if match is None or not int(match[1]) or match[2] == "0" or match[4] == "0":
        raise Abstained("no key")
    options = (match[3] + (match[6] or "")).replace("b", "")
    return _Key(
        options, int(match[1]) - 1, int(match[2] or 1) - 1,
        int(match[4]) - 1 if match[4] else None, int(match[5] or 0),
        "b" in match[3], "b" in (match[6] or ""),
    )  # fmt: skip


def _of_old(match: re.Match[str]) -> _Key:
    blanks = "b" in match[3]
    return _Key(match[3].replace("b", ""), int(match[1]), int(match[2] or 0), blanks=blanks)


def _way(options: str) -> Callable[[bytes], Any]:
    """What of a part is compared."""
    for letter, value in (
        ("n", _number), ("h", _size), ("g", _general), ("M", _month), ("V", _version),
    ):  # fmt: skip
        if letter in options:
            return value
    folds, kept = "f" in options, None
    if "d" in options:
        kept = frozenset(b"0123456789 \tabcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
    elif "i" in options:
        kept = frozenset(range(32, 127))

    def text(part: bytes) -> bytes:
        part = bytes(each for each in part if each in kept) if kept else part
        return part.upper() if folds else part

    return text


def _digits(part: bytes) -> tuple[int, int, bytes, bytes]:
    """Sign, whole part and fraction of the number that a part begins with, and what follows it."""
    match = _NUMBER.match(part)
    assert match is not None
    whole, fraction = int(match[2] or 0), (match[3] or b"").rstrip(b"0")
    return (-1 if match[1] else 1), whole, fraction, part[match.end() :]


def _signed(sign: int, value: tuple[Any, ...]) -> tuple[Any, ...]:
    if not any(value):
        return (0,)
    return (1, *value) if sign > 0 else (-1, *map(_Turned, value))


class _Turned:
    """A value that is ordered backwards."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Turned) and self.value == other.value

    def __lt__(self, other: _Turned) -> bool:
        return bool(other.value < self.value)

    __hash__ = None  # type: ignore[assignment]


def _number(part: bytes) -> tuple[Any, ...]:
    if len(part) > 300:
        raise Abstained("a number of many digits")
    sign, whole, fraction, _ = _digits(part)
    return _signed(sign, (whole, fraction))


def _size(part: bytes) -> tuple[Any, ...]:
    sign, whole, fraction, rest = _digits(part)
    letter = rest[:1].replace(b"k", b"K")
    rank = _SIZES.find(letter) + 1 if letter and (whole or fraction) else 0
    return _signed(sign, (rank, whole, fraction))


def _general(part: bytes) -> tuple[Any, ...]:
    if re.match(rb"[ \t]*[-+]?(?:0[xX]|inf|nan)", part, re.I):
        raise Abstained("a number as nobody writes it")
    match = re.match(rb"[ \t]*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)", part)
    return (1, float(match[1])) if match else (0, 0.0)


def _month(part: bytes) -> int:
    name = part.lstrip(b" \t")[:3].upper()
    return _MONTHS.index(name) + 1 if name in _MONTHS else 0


def _version(part: bytes) -> tuple[Any, ...]:
    """Parts by turns of other characters and of digits (filevercmp)."""
    if part[:1] == b"." or b"~" in part or re.search(rb"\.[A-Za-z~][A-Za-z0-9~]*$", part):
        raise Abstained("a name with an ending")
    made: list[Any] = []
    for other, digits in re.findall(rb"(\D*)(\d*)", part):
        if not other and not digits:
            continue
        made.append((*map(_rank, other), 0))
        made.append(int(digits or 0))
    return (bool(part), *made)


def _rank(character: int) -> int:
    letter = chr(character).isascii() and chr(character).isalpha()
    return character if letter else character + 256


def sorted_text(words: Sequence[str], state: State) -> tuple[bytes, bytes, int]:
    """What `sort` writes to standard output and to standard error, and its exit code.

    Errors: Abstained for what no rule tells.
    """
    made = Sorting.of(words)
    end = b"\0" if "z" in made.flags else b"\n"
    names = made.files or ["-"]
    texts = [state.stdin if name == "-" else state.read(name) for name in names]
    if names.count("-") > 1 or any(text is None for text in texts):
        raise Abstained("a text that is not known")
    known = [text for text in texts if text is not None]
    spend(sum(map(len, known)) // 4)
    if sum(map(len, known)) > _MOST:
        raise Abstained("a long text")
    lists = [_lines(text, end) for text in known]
    compare = made.compare()
    if made.flags & {"c", "C"}:
        return _checked(made, names, lists, compare)
    key = cmp_to_key(compare)
    once = "u" in made.flags
    if "m" in made.flags:
        lines: Iterable[bytes] = merge(*lists, key=key)
    else:
        lines = sorted((line for some in lists for line in some), key=key)
    if once:
        lines = [next(same) for _, same in groupby(lines, key)]
    return b"".join(line + end for line in lines), b"", 0


def _lines(text: bytes, end: bytes) -> list[bytes]:
    lines = text.split(end)
    return lines[:-1] if not lines[-1] else lines


def _checked(
    made: Sorting, names: Sequence[str], lists: Sequence[list[bytes]], compare: Compare
) -> tuple[bytes, bytes, int]:
    if len(lists) > 1:
        raise Abstained("several files to check")
    least = 0 if "u" in made.flags else 1
    for number, (one, other) in enumerate(pairwise(lists[0]), 2):
        if compare(one, other) >= least:
            said = os.fsencode(f"sort: {names[0]}:{number}: disorder: ") + other + b"\n"
            return b"", b"" if "C" in made.flags else said, 1
    return b"", b"", 0


def common_lines(words: Sequence[str], state: State) -> tuple[bytes, bytes, bytes, int]:
    """What `comm` writes: both channels together, each by itself, and its exit code.

    Errors: Abstained for what no rule tells.
    """
    options: set[str] = set()
    names: list[str] = []
    for word in words:
        if word in ("--total", "--nocheck-order", "--check-order"):
            options.add(word)
        elif re.fullmatch("-[123]+", word):
            options |= set(word[1:])
        elif word.startswith("-") and word != "-":
            raise Abstained("an option that is beyond it")
        else:
            names.append(word)
    if len(names) != 2 or names == ["-", "-"] or "--check-order" in options:
        raise Abstained("no two files")
    texts = [state.stdin if name == "-" else state.read(name) for name in names]
    known = [text for text in texts if text is not None]
    if len(known) < 2 or sum(map(len, known)) > _MOST:
        raise Abstained("a text that is not known")
    spend(sum(map(len, known)))
    return _Common([_lines(text, b"\n") for text in known], options).told()


class _Common:
    """The lines of two texts, compared side by side."""

    def __init__(self, lists: Sequence[list[bytes]], options: set[str]) -> None:
        self._lists, self._options = lists, options
        self._places = [0, 0]
        self._warned = [False, False]
        self._alone = False
        self._said = self._output = self._errors = b""

    def told(self) -> tuple[bytes, bytes, bytes, int]:
        counts = [0, 0, 0]
        while True:
            one, other = (
                some[place] if place < len(some) else None
                for some, place in zip(self._lists, self._places, strict=True)
            )
            if one is None and other is None:
                break
            both = one == other
            first = other is None or (one is not None and one <= other)
            column = 2 if both else 0 if first else 1
            counts[column] += 1
            self._alone |= not both
            self._show(column, one if first else other)
            for which in (0, 1) if both else (0,) if first else (1,):
                self._step(which)
        if "--total" in self._options:
            self._print(b"%d\t%d\t%d\ttotal\n" % tuple(counts))
        if any(self._warned):
            self._complain(b"comm: input is not in sorted order\n")
        return self._said, self._output, self._errors, int(any(self._warned))

    def _show(self, column: int, line: bytes | None) -> None:
        if str(column + 1) in self._options or line is None:
            return
        before = sum(str(each) not in self._options for each in (1, 2)[:column])
        self._print(b"\t" * before + line + b"\n")

    def _step(self, which: int) -> None:
        """Goes to the next line of a text. What is not in order is told once."""
        lines, place = self._lists[which], self._places[which]
        self._places[which] = place + 1
        before, now = (place, place + 1) if place + 1 < len(lines) else (place - 1, place)
        if before < 0 or self._warned[which] or not self._alone:
            return
        if "--nocheck-order" not in self._options and lines[before] > lines[now]:
            self._warned[which] = True
            self._complain(b"comm: file %d is not in sorted order\n" % (which + 1))

    def _print(self, text: bytes) -> None:
        self._said += text
        self._output += text

    def _complain(self, text: bytes) -> None:
        self._said += text
        self._errors += text
