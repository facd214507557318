"""Output of sort(1) and comm(1) of GNU coreutils 9.1."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from shioenv.domain.runner import State
from shioenv.errors import Abstained
from shioenv_model.bash.work import spend
from shioenv_model.memory.functions.order import ordering_of
from shioenv_model.rules.words import parse_options

_ORDERING = "bdfghMnr"
_LONG = {
    "ignore-leading-blanks": "b", "dictionary-order": "d", "ignore-case": "f", "stable": "s",
    "general-numeric-sort": "g", "human-numeric-sort": "h", "month-sort": "M", "numeric-sort": "n",
    "reverse": "r", "unique": "u", "key": "k", "field-separator": "t",
}  # fmt: skip
_KEY = re.compile(rf"[1-9]\d*(?:\.[1-9]\d*)?([{_ORDERING}]*)(?:,[1-9]\d*([{_ORDERING}]*))?")
_OLD_KEY = re.compile(rf"\+(\d+)([{_ORDERING}]*)")
_NO_NUMBER = re.compile(r"inf|nan", re.I)
_MOST = 1_000_000
"""Maximum number of bytes to compare (our choice)."""

Ordering: TypeAlias = Callable[[str], tuple[object, ...]]


def sorted_text(words: Sequence[str], state: State) -> bytes:
    """Return the output of `sort`. Errors: Abstained if no rule applies."""
    options, operands = parse_options(words, f"{_ORDERING}us", "kt", _LONG)
    letters = "".join(letter for letter, _ in options if letter in _ORDERING)
    flags = {letter for letter, _ in options}
    specs = [value for letter, value in options if letter == "k"]
    old = [match for match in map(_OLD_KEY.fullmatch, operands) if match]
    if specs and old:
        raise Abstained("keys of two kinds, whose order counts")
    specs += [f"{int(match[1]) + 1}{match[2]}" for match in old]
    names = [word for word in operands if not _OLD_KEY.fullmatch(word)]
    tabs = {value for letter, value in options if letter == "t"}
    if len(tabs) > 1 or any(len(tab) != 1 or not tab.isascii() for tab in tabs):
        raise Abstained("no single mark")
    keys = [_key(spec, letters, next(iter(tabs), None)) for spec in specs]
    if not keys and set(letters) - {"r"}:
        keys = [_key("1", letters, None)]
    lines = [line for text in _texts(names or ["-"], state) for line in _lines(text)]
    if any("." in spec for spec in specs) and not all(map(str.isascii, lines)):
        raise Abstained("characters of several bytes")
    if "g" in letters + "".join(specs) and any(map(_NO_NUMBER.search, lines)):
        raise Abstained("words that are numbers")
    try:
        if not keys or not flags & {"u", "s"}:
            lines.sort(reverse="r" in flags)
        for ordering, turned in reversed(keys):
            lines.sort(key=ordering, reverse=turned)
        if "u" in flags:
            kept: dict[tuple[object, ...], str] = {}
            for line in lines:
                kept.setdefault(tuple(ordering(line) for ordering, _ in keys) or (line,), line)
            lines = [*kept.values()]
    except ValueError:
        raise Abstained("a key that no function reads") from None
    return "".join(f"{line}\n" for line in lines).encode()


def _key(spec: str, letters: str, tab: str | None) -> tuple[Ordering, bool]:
    """Return the function that extracts a sort key, and whether the order is reversed.

    Errors: Abstained.
    """
    match = _KEY.fullmatch(spec)
    if match is None:
        raise Abstained("no key")
    own = f"{match[1]}{match[2] or ''}"
    options = own or letters
    if len(set(options) & set("dfghMn")) > 1 or ("b" in options and "." in spec):
        raise Abstained("several ways to compare")
    return partial(ordering_of, spec=spec if own else spec + letters, separator=tab), "r" in options


def _texts(names: Sequence[str], state: State) -> list[str]:
    """Read these files as text; `-` is standard input. Errors: Abstained."""
    texts = [state.stdin if name == "-" else state.read(name) for name in names]
    known = [text for text in texts if text is not None]
    if names.count("-") > 1 or len(known) < len(texts) or sum(map(len, known)) > _MOST:
        raise Abstained("an unknown text")
    spend(sum(map(len, known)) // 4)
    try:
        return [text.decode() for text in known]
    except UnicodeDecodeError:
        raise Abstained("no text") from None


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    return lines[:-1] if not lines[-1] else lines


def common_lines(words: Sequence[str], state: State) -> tuple[list[tuple[str, bool]], int]:
    """Return the output of `comm` and its exit status.

    The output is a list of pieces, each with whether it goes to standard error. Errors: Abstained
    if no rule applies.
    """
    given, names = parse_options(words, "123", names={"total": "t", "nocheck-order": "n"})
    options = {letter for letter, _ in given}
    if len(names) != 2:
        raise Abstained("no two files")
    lists = [_lines(text) for text in _texts(names, state)]
    pieces: list[tuple[str, bool]] = []
    places, counts, alone, unordered = [0, 0], [0, 0, 0], False, set[int]()
    while any(place < len(lines) for place, lines in zip(places, lists, strict=True)):
        one, other = (lines[place : place + 1] for place, lines in zip(places, lists, strict=True))
        column = 2 if one == other else 1 if not one or (other and other < one) else 0
        counts[column] += 1
        alone |= column < 2
        if str(column + 1) not in options:
            before = sum(str(each) not in options for each in (1, 2)[:column])
            pieces.append(("\t" * before + (other if column == 1 else one)[0] + "\n", False))
        for which in ((0,), (1,), (0, 1))[column]:
            lines = lists[which]
            places[which] += 1
            latest = min(places[which], len(lines) - 1)
            if "n" in options or not alone or which in unordered or not latest:
                continue
            if lines[latest - 1] > lines[latest]:
                unordered.add(which)
                pieces.append((f"comm: file {which + 1} is not in sorted order\n", True))
    if "t" in options:
        pieces.append(("\t".join(map(str, counts)) + "\ttotal\n", False))
    if unordered:
        pieces.append(("comm: input is not in sorted order\n", True))
    return pieces, int(bool(unordered))
