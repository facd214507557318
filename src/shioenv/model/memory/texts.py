"""Functions from a text and some words to a text: what commands that print can be explained by.

None of them knows a command. Each family has roles, which words of a command may play, and
variants; which family, which word in which role and which variant a command means is found from
what it was seen to do (`shioenv.model.memory.explain`).
"""

from __future__ import annotations

import math
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache
from itertools import compress, groupby, permutations, product, zip_longest
from operator import not_
from typing import TypeAlias

from shioenv.domain.work import spend
from shioenv.model.facts import Tree
from shioenv.modeling.patterns import CLASSES, matches

MOST_WORK = 3e7
"""Steps of matching that are done for one text at most, as they are reckoned beforehand: a pattern
may be hostile."""

LONGEST = 100_000
"""Characters of a text that is worked on."""

MOST_PRINTED = 4_000_000
"""Characters that are made of a text at most: what stands between its columns may be long."""

WIDEST = 1_000
"""Columns, and fields that are skipped: a number may be hostile."""

MOST_PLACES = 3
"""Words of a command that play a role: with more there are thousands of ways to cast them."""


@dataclass(frozen=True)
class Given:
    """What a function is given: the text that a command reads (None: it reads none), its words by
    where they stand (an option's name, or the number of an operand), its operands in a row.
    """

    text: str | None
    words: Mapping[str, str]
    operands: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    """Where it reads several: each of them, in the order of its operands; `text` is all of them,
    one after the other."""
    names: tuple[str, ...] | None = None
    """What is in the directory that it names, or in its own where it names none, sorted, each with
    the mark of its kind (`/`, `@`, `*`, `|`, `=`)."""
    trees: tuple[Tree, ...] = ()
    """All that is in the directories that it names, or in its own where it names none."""

    @cached_property
    def in_bytes(self) -> Given:
        """The same with a character for each byte of its texts."""
        texts = tuple(map(_as_bytes, self.texts))
        return replace(self, text=_as_bytes(self.text or ""), texts=texts)


Roles: TypeAlias = Mapping[str, str]
"""Words by the role that they play."""

Flags: TypeAlias = Mapping[str, str]

Result: TypeAlias = tuple[str, int]
"""What is printed, and the exit code."""


@dataclass(frozen=True)
class Family:
    """Functions of one kind."""

    name: str
    run: Callable[[Given, Roles, Flags], Result | str | None]
    roles: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    """Roles without which there is nothing to do."""
    variants: Mapping[str, Sequence[str]] | None = None
    reads: bool = True
    """It works on a text, not on the operands alone."""
    of_bytes: bool = False
    """Its characters are bytes."""
    several: bool = False
    """It works on several texts, each by itself."""


@dataclass(frozen=True)
class Function:
    """One function: a family with a word for each role and a value for each flag."""

    family: Family
    places: tuple[tuple[str, str], ...]
    """Roles, each with where its word stands."""
    flags: Mapping[str, str]

    @property
    def name(self) -> str:
        """What it is called where an answer is explained."""
        said = [f"{role} {place}" for role, place in self.places]
        said += [value for value in self.flags.values() if value]
        return f"{self.family.name}({', '.join(said)})"

    def steps(self, given: Given) -> int:
        """How much work it is to make something of this, without matching
        (`shioenv.domain.work`).
        """
        return len(given.text or "") + sum(map(len, given.words.values()))

    def __call__(self, given: Given) -> Result | None:
        """What it makes of this; None where it makes nothing of it."""
        if self.family.reads and (given.text is None or len(given.text) > LONGEST):
            return None
        roles = {role: given.words[place] for role, place in self.places}
        if self.family.of_bytes:
            roles = {role: _as_bytes(word) for role, word in roles.items()}
            given = given.in_bytes
        try:
            made = self.family.run(given, roles, self.flags)
        except (ValueError, LookupError, ArithmeticError, re.error):
            return None
        if made is None:
            return None
        text, code = (made, 0) if isinstance(made, str) else made
        return (_as_text(text) if self.family.of_bytes else text), code


@lru_cache(maxsize=256)
def _as_bytes(text: str) -> str:
    """The text with a character for each byte."""
    return text.encode("utf-8", "surrogateescape").decode("latin-1")


def _as_text(characters: str) -> str:
    return characters.encode("latin-1").decode("utf-8", "surrogateescape")


def functions(places: Sequence[str], *, reads: bool, several: bool = False) -> tuple[Function, ...]:
    """Every function in which each of these words plays a role; simple ones first. `several` texts
    are read by those that take each by itself, and by all others one after the other.
    """
    return _functions(tuple(places), reads, several)


@lru_cache(maxsize=32)
def _functions(places: tuple[str, ...], reads: bool, several: bool) -> tuple[Function, ...]:
    return tuple(_made(places, reads=reads, several=several))


def _made(places: tuple[str, ...], *, reads: bool, several: bool) -> Iterator[Function]:
    if len(places) > MOST_PLACES:
        return
    for family in FAMILIES:
        if family.reads != reads or len(places) > len(family.roles):
            continue
        if family.several and not several:
            continue
        for roles in permutations(family.roles, len(places)):
            if not set(family.needs) <= set(roles):
                continue
            cast = tuple(zip(roles, places, strict=True))
            kinds = family.variants or {}
            for values in product(*kinds.values()):
                yield Function(family, cast, dict(zip(kinds, values, strict=True)))


# Lines ------------------------------------------------------------------------------------------


# Variants of one family share most of their work: what is remembered here is asked for again at
# once by the next ones, of the same few texts.
_remembered = lru_cache(maxsize=64)


@_remembered
def _lines(text: str) -> tuple[str, ...]:
    """The lines without their ends."""
    lines = text.split("\n")
    return tuple(lines[:-1] if lines[-1] == "" else lines)


def _joined(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


@_remembered
def _kept(text: str) -> tuple[str, ...]:
    """The lines with their ends."""
    return tuple(line for line in re.split(r"(?<=\n)", text) if line)


_UNITS = {"b": 512, "k": 1024, "K": 1024, "M": 1 << 20, "G": 1 << 30, "kB": 1000, "MB": 10**6}


def _number(word: str) -> int:
    match = re.fullmatch(r"([+-]?\d+)([a-zA-Z]*)", word)
    if match is None:
        raise ValueError(word)
    return int(match[1]) * (_UNITS[match[2]] if match[2] else 1)


def _width(word: str) -> int:
    """A number of columns or fields. Errors: ValueError for what is none."""
    number = _number(word)
    if not 0 <= number <= WIDEST:
        raise ValueError(word)
    return number


def _fits(length: int) -> None:
    """Raises ValueError where more would be printed than `MOST_PRINTED`."""
    if length > MOST_PRINTED:
        raise ValueError(length)


def _same(given: Given, roles: Roles, flags: Flags) -> str:
    return given.text or ""


def _part(given: Given, roles: Roles, flags: Flags) -> str:
    text = given.text or ""
    word = roles.get("count", "10")
    count = _number(word)
    pieces: Sequence[str] = text if flags["of"] == "bytes" else _kept(text)
    if flags["which"] == "first":
        kept = pieces[:count] if not word.startswith("-") else pieces[: len(pieces) + count]
    elif word.startswith("+"):
        kept = pieces[max(count - 1, 0) :]
    else:
        count = abs(count)
        kept = pieces[len(pieces) - count :] if count < len(pieces) else pieces
        kept = kept if count else ""
    return "".join(kept)


def _reversed(given: Given, roles: Roles, flags: Flags) -> str:
    text = given.text or ""
    if flags["of"] == "lines":
        return "".join(_kept(text)[::-1])
    turned = (line.removesuffix("\n")[::-1] + "\n" * line.endswith("\n") for line in _kept(text))
    return "".join(turned)


# Matching ---------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _pattern(source: str, syntax: str, folds: bool, whole: str) -> re.Pattern[str]:
    made = re.escape(source) if syntax == "fixed" else _translated(source, syntax)
    if whole == "words":
        made = rf"(?<!\w)(?:{made})(?!\w)"
    elif whole == "lines":
        made = rf"\A(?:{made})\Z"
    return re.compile(made, re.IGNORECASE if folds else 0)


def _translated(source: str, syntax: str) -> str:
    """A POSIX regular expression as Python writes it. Errors: ValueError for one that is broken."""
    special = frozenset("(){}|+?")
    made: list[str] = []
    if len(re.findall(r"\(", source)) > _MOST_GROUPS:
        raise ValueError("too many groups")
    index = 0
    while index < len(source):
        character = source[index]
        if character == "[":
            bracket, index = _bracket(source, index)
            made.append(bracket)
            continue
        index += 1
        if character == "\\":
            follows = source[index : index + 1]
            if not follows:
                raise ValueError("a backslash at the end")
            index += 1
            if follows in "<>":
                made.append(r"\b")
            elif follows in "wWsSbB" or follows.isdigit():
                made.append(f"\\{follows}")
            elif syntax == "basic" and follows in special:
                made.append(follows)
            else:
                made.append(re.escape(follows))
        elif syntax == "basic" and character in special:
            made.append(re.escape(character))
        elif character == "*" and (not made or made[-1] in ("(", "|", "^")):
            made.append(r"\*")
        elif character == "$":
            made.append(r"\Z")
        elif character == "^" and syntax == "basic" and made and made[-1] not in ("(", "|"):
            made.append(r"\^")
        elif character in special or character in ".*^":
            made.append(character)
        else:
            made.append(re.escape(character))
    return "".join(made)


def _bracket(source: str, start: int) -> tuple[str, int]:
    index = start + 1
    members = "^" if source[index : index + 1] == "^" else ""
    index += len(members)
    first = True
    while index < len(source):
        if source[index] == "]" and not first:
            return f"[{members}]", index + 1
        first = False
        named = re.compile(r"\[:(\w+):\]").match(source, index)
        if named:
            members += CLASSES[named[1]]
            index = named.end()
            continue
        is_range = (
            source[index] == "-"
            and members not in ("", "^")
            and source[index + 1 : index + 2] not in "]-"
        )
        members += "-" if is_range else re.escape(source[index])
        index += 1
    raise ValueError("a bracket is not closed")


@_remembered
def _reckoned(text: str, pattern: str) -> float:
    """The steps at most in which a pattern is matched against the lines of a text; more than any
    number where a group is repeated, or too much is optional.
    """
    if re.search(r"(?<!\\)\)[*+?{]", pattern) or len(re.findall(r"[?{]", pattern)) > _OPTIONAL:
        return math.inf
    # a search from every place, and one more walk of the line for each repetition
    power = 1 + min(len(re.findall(r"[*+{]", pattern)), 6)
    return sum(float(len(line) + 1) ** power for line in _lines(text))


_MOST_GROUPS = 40
"""Groups of a pattern at most: Python's stack ends where they are in each other."""

_MATCHED = 50
"""Steps of matching that take as long as one of other work."""

_COMPILED = 5
"""Steps that a character of a pattern takes."""

_OPTIONAL = 9
"""Marks of what may be missing, at most: each doubles the work; five stand in what makes words."""


def _matching_named(given: Given, roles: Roles, flags: Flags) -> Result | None:
    """The same of several texts, each line behind the name of its own."""
    made = []
    for name, text in zip(given.operands, given.texts, strict=True):
        found = _matching(replace(given, text=text, texts=()), roles, flags)
        if found is None:
            return None
        _fits(len(found[0]) * (1 + len(name)))
        made.append(("".join(f"{name}:{line}\n" for line in _lines(found[0])), found[1]))
    return "".join(text for text, _ in made), min(code for _, code in made)


def _matching(given: Given, roles: Roles, flags: Flags) -> Result | None:
    source, text = roles["pattern"], given.text or ""
    if "\n" in source or re.search(r"[\0\ud800-\udfff]", text):
        return None  # several patterns; a text that is none
    spend(_COMPILED * len(source))
    folds = bool(flags["case"])
    found = _pattern(source, flags["syntax"], folds, flags["whole"])
    if flags["syntax"] != "fixed":
        spend(int(min(_reckoned(text, found.pattern), MOST_WORK)) // _MATCHED)
    hits = _hits(text, found, flags["syntax"] == "fixed")
    if hits is None:
        return None
    if flags["shown"] == "only" and "|" in source:
        return None  # the longest of several is meant, wherever it stands
    if flags["negated"]:
        hits = tuple(map(not_, hits))
    code = 0 if any(hits) else 1
    if flags["shown"] == "count":
        return f"{sum(hits)}\n", code
    if flags["shown"] == "nothing":
        return "", code
    if flags["shown"] == "numbered":
        numbered = compress(enumerate(_lines(text), 1), hits)
        return "".join(f"{number}:{line}\n" for number, line in numbered), code
    kept = list(compress(_lines(text), hits))
    if flags["shown"] == "only":
        if flags["negated"]:
            return None
        parts = [match[0] for line in kept for match in found.finditer(line) if match[0]]
        return _joined(parts), code
    return _joined(kept), code


@_remembered
def _hits(text: str, pattern: re.Pattern[str], fixed: bool) -> tuple[bool, ...] | None:
    """Which lines of a text a pattern is found in; None where that might take too long."""
    if not fixed and _reckoned(text, pattern.pattern) > MOST_WORK:
        return None
    return tuple(pattern.search(line) is not None for line in _lines(text))


def _parts(given: Given, roles: Roles, flags: Flags) -> str:
    """A part of each of several texts, under its name."""
    made = [
        f"==> {name} <==\n{_part(replace(given, text=text, texts=()), roles, flags)}"
        for name, text in zip(given.operands, given.texts, strict=True)
    ]
    return "\n".join(made)


# Order ------------------------------------------------------------------------------------------


_MONTHS = {
    name: number
    for number, name in enumerate(
        ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"), 1
    )
}


def _upper(text: str) -> str:
    return text.translate(_TO_UPPER)


_TO_UPPER = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}


def _value(text: str, by: str) -> tuple[object, ...]:
    if by == "number":
        match = re.match(r"[ \t]*(-?\d*(?:\.\d*)?)", text)
        digits = match[1] if match else ""
        return (float(digits) if re.search(r"\d", digits) else 0.0,)
    if by == "size":
        match = re.match(r"[ \t]*(-?)(\d*(?:\.\d*)?)([KMGTPEZY]?)", text.replace("k", "K"))
        if match is None or not re.search(r"\d", match[2]):
            return (0, 0.0)
        rank = " KMGTPEZY".index(match[3] or " ")
        number = float(match[2])
        if not number:
            return (0, 0.0)
        return (-1 - rank, -number) if match[1] else (1 + rank, number)
    if by == "any number":
        if match := re.match(r"[ \t]*([-+]?0[xX][0-9a-fA-F]+)", text):
            return 1, float(int(match[1], 16))
        match = re.match(r"[ \t]*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)", text)
        return (1, float(match[1])) if match else (0, 0.0)
    if by == "month":
        return (_MONTHS.get(text.strip()[:3].upper(), 0),)
    if by == "folded":
        return (_upper(text),)
    if by == "letters":
        return (re.sub(r"[^A-Za-z0-9 \t]", "", text),)
    return (text,)


_BY = {"n": "number", "h": "size", "g": "any number", "M": "month", "f": "folded", "d": "letters"}


def _key(line: str, spec: str, separator: str | None, by: str) -> tuple[str, str]:
    """The part of a line that a key names, and how it is compared."""
    match = re.fullmatch(
        r"(\d+)(?:\.(\d+))?([bdfghiMnRrV]*)(?:,(\d+)(?:\.(\d+))?([bdfghiMnRrV]*))?", spec
    )
    if match is None:
        raise ValueError(spec)
    options = match[3] + (match[6] or "")
    start = _end_of(line, _width(match[1]) - 1, separator, joint=True)
    if match[5]:
        raise ValueError(spec)
    stop = _end_of(line, _width(match[4]), separator, joint=False) if match[4] else len(line)
    text = line[start:stop] if stop > start else ""
    if match[2] and int(match[2]) > 1:
        text = text[int(match[2]) - 1 :]
    if "b" in options:
        text = text.lstrip(" \t")
    for letter, meant in _BY.items():
        if letter in options:
            by = meant
    return text, by


def _end_of(line: str, fields: int, separator: str | None, *, joint: bool) -> int:
    """Where so many fields of a line end, with the separator behind them or without."""
    if separator is None:  # blanks before a word belong to its field
        found = re.match(rf"(?:[ \t]*[^ \t]*){{0,{fields}}}", line)
        return found.end() if found else 0
    pieces = line.split(separator)
    if fields > len(pieces) or (joint and fields == len(pieces)):
        return len(line)
    return len(separator.join(pieces[:fields])) + (len(separator) if joint and fields else 0)


def _ordered(given: Given, roles: Roles, flags: Flags) -> str:
    lines: Sequence[str] = _lines(given.text or "")
    spec, separator = roles.get("key"), roles.get("separator")
    backwards = bool(flags["backwards"])
    own = spec is not None and bool(re.search(r"[bdfghiMnRrV]", spec))
    turned = (own and "r" in (spec or "")) if own else backwards
    values = _values(given.text or "", spec, separator, "" if own else flags["by"])
    if flags["once"]:
        seen: dict[tuple[object, ...], str] = {}
        for line in lines:
            seen.setdefault(values[line], line)
        return _joined(sorted(seen.values(), key=values.__getitem__, reverse=turned))
    # equals are ordered by the whole line; sorting keeps the order of equals, backwards too
    lines = sorted(lines, reverse=backwards)
    return _joined(sorted(lines, key=values.__getitem__, reverse=turned))


@_remembered
def _values(
    text: str, spec: str | None, separator: str | None, by: str
) -> Mapping[str, tuple[object, ...]]:
    """What each line of a text is ordered by."""
    if spec is None:
        return {line: _value(line, by) for line in _lines(text)}
    return {line: _value(*_key(line, spec, separator, by)) for line in _lines(text)}


def _runs(given: Given, roles: Roles, flags: Flags) -> str:
    cast = tuple(map(roles.get, ("fields", "characters", "width")))
    made: list[str] = []
    for same in _same_lines(given.text or "", cast, bool(flags["case"])):
        if flags["which"] == "repeated" and len(same) == 1:
            continue
        if flags["which"] == "single" and len(same) > 1:
            continue
        shown = same if flags["which"] == "every repeated" and len(same) > 1 else same[:1]
        if flags["which"] == "every repeated" and len(same) == 1:
            continue
        made += [f"{len(same):7} {line}" if flags["counted"] else line for line in shown]
    return _joined(made)


@_remembered
def _same_lines(
    text: str, cast: tuple[str | None, ...], folds: bool
) -> tuple[tuple[str, ...], ...]:
    """The lines of a text in runs of equal ones, as far as is compared."""
    fields, characters, width = cast

    def value(line: str) -> str:
        if fields is not None:
            line = re.sub(rf"^(?:[ \t]*[^ \t]*){{0,{_width(fields)}}}", "", line)
        if characters is not None:
            line = line[_number(characters) :]
        if width is not None:
            line = line[: _number(width)]
        return _upper(line) if folds else line

    return tuple(tuple(run) for _, run in groupby(_lines(text), value))


# Columns ----------------------------------------------------------------------------------------


def _ranges(spec: str) -> list[tuple[int, int]]:
    found = []
    for each in spec.replace(" ", ",").split(","):
        match = re.fullmatch(r"(\d*)(-?)(\d*)", each)
        if match is None or not (match[1] or match[3]):
            raise ValueError(spec)
        first = int(match[1] or 1)
        last = int(match[3]) if match[3] else 10**9 if match[2] else first
        if not first or last < first:
            raise ValueError(spec)
        found.append((first, last))
    return found


def _columns(given: Given, roles: Roles, flags: Flags) -> str | None:
    wanted = _ranges(roles["list"])
    separator = roles.get("separator", "\t" if flags["of"] == "fields" else "")
    if flags["of"] == "fields" and len(separator) != 1:
        return None

    if len(wanted) * len(given.text or "") > MOST_WORK / 10:
        return None

    lines = _lines(given.text or "")
    _fits(len(given.text or "") * (1 + len(roles.get("joint", ""))))
    widest = max(map(len, lines), default=0) + 1
    chosen = [
        any(first <= number <= last for first, last in wanted) != bool(flags["others"])
        for number in range(1, widest + 1)
    ]
    made = []
    for line in lines:
        if flags["of"] == "fields":
            fields = line.split(separator)
            if len(fields) == 1:
                made += [line] if not flags["marked"] else []
                continue
            joint = roles.get("joint", separator)
            made.append(joint.join(compress(fields, chosen)))
        else:
            made.append("".join(compress(line, chosen)))
    return _joined(made)


def _wrapped(given: Given, roles: Roles, flags: Flags) -> str:
    width = _width(roles.get("width", "80"))
    if width < 1:
        raise ValueError(width)
    made: list[str] = []
    line, column = "", 0
    for character in given.text or "":
        if character == "\n":
            made.append(f"{line}\n")
            line, column = "", 0
            continue
        if column and _column(column, character) > width:
            blank = max(line.rfind(" "), line.rfind("\t")) + 1 if flags["at"] else 0
            made.append(f"{line[:blank] if blank else line}\n")
            line = line[blank:] if blank else ""
            column = 0
            for each in line:
                column = _column(column, each)
        line += character
        column = _column(column, character)
    return "".join(made) + line


def _column(column: int, character: str) -> int:
    """The column behind a character."""
    if character in "\b\r":
        return max(column - 1, 0) if character == "\b" else 0
    return column + 8 - column % 8 if character == "\t" else column + 1


def _tabs(given: Given, roles: Roles, flags: Flags) -> str:
    size = _width(roles.get("width", "8"))
    if size < 1 or flags["which"] != "spaces":
        raise ValueError(size)
    _fits(len(given.text or "") + size * (given.text or "").count("\t"))
    return "".join(line.expandtabs(size) for line in _kept(given.text or ""))


def _numbered(given: Given, roles: Roles, flags: Flags) -> str:
    width, joint = _width(roles.get("width", "6")), roles.get("joint", "\t")
    number, step = _number(roles.get("first", "1")), _number(roles.get("step", "1"))
    style = roles.get("style", "rn")
    which = {"a": "all", "t": "filled", "n": "none"}.get(roles.get("which", ""), flags["which"])
    if style not in ("rn", "ln", "rz") or width < 1:
        raise ValueError(style)
    made = []
    widest = max(width, len(str(abs(number))), len(str(abs(step)))) + len(joint)
    _fits(widest * len(_kept(given.text or "")))
    sign = {"rn": ">", "ln": "<", "rz": "0>"}[style]
    for line in _kept(given.text or ""):
        if which == "all" or (which == "filled" and line != "\n"):
            made.append(f"{number:{sign}{width}}{joint}{line}")
            number += step
        else:
            made.append(" " * (width + len(joint)) * bool(flags["indented"]) + line)
    text = "".join(made)
    return f"{text}\n" if text and not text.endswith("\n") and flags["ended"] else text


# Characters -------------------------------------------------------------------------------------


_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_FACTOR = 100
"""How much more work a character of a set is than one that is printed."""
_BYTES = [chr(number) for number in range(256)]


@lru_cache(maxsize=256)
def _set(word: str) -> str:
    """The characters of a set, in order."""
    items: list[str] = []
    index = 0
    while index < len(word):
        _fits(_FACTOR * len(items))
        named = re.compile(r"\[:(\w+):\]").match(word, index)
        if named:
            inside = re.compile(f"[{CLASSES[named[1]]}]")
            items += filter(inside.match, _BYTES)
            index = named.end()
            continue
        octal = re.compile(r"\\([0-7]{1,3})").match(word, index)
        if octal:
            one, index = chr(int(octal[1], 8)), octal.end()
        elif word[index] == "\\" and index + 1 < len(word):
            one, index = _ESCAPES.get(word[index + 1], word[index + 1]), index + 2
        else:
            one, index = word[index], index + 1
        if word[index : index + 1] == "-" and index + 1 < len(word):
            last = word[index + 1]
            index += 2
            if last == "\\":
                last, index = _ESCAPES.get(word[index], word[index]), index + 1
            if last < one:
                raise ValueError(word)
            items += [chr(each) for each in range(ord(one), ord(last) + 1)]
        else:
            items.append(one)
    return "".join(items)


def _exchanged(given: Given, roles: Roles, flags: Flags) -> str | None:
    text = given.text or ""
    first = _set(roles["these"])
    if flags["others"]:
        first = "".join(each for each in _BYTES if each not in first)
    if not first:
        raise ValueError("an empty set")
    if flags["how"] == "deleted":
        gone = frozenset(first)
        made = "".join(each for each in text if each not in gone)
        return _squeezed(made, _set(roles["by"])) if "by" in roles else made
    if "by" not in roles:
        return _squeezed(text, first) if flags["how"] == "squeezed" else None
    by = _set(roles["by"])
    if not by:
        raise ValueError("an empty set")
    if flags["how"] == "cut":
        first = first[: len(by)]
    by = by[: len(first)] + by[-1] * (len(first) - len(by))
    table: dict[int, str] = {}
    for old, new in zip(first, by, strict=True):
        table[ord(old)] = new
    made = text.translate(table)
    return _squeezed(made, by) if flags["how"] == "squeezed" else made


def _squeezed(text: str, characters: str) -> str:
    members = re.escape("".join(dict.fromkeys(characters)))
    return re.sub(rf"([{members}])\1+", r"\1", text) if members else text


def _side_by_side(given: Given, roles: Roles, flags: Flags) -> str:
    """The lines of several texts in one, the first of each first."""
    marks = list(_set(roles["by"])) if "by" in roles else ["\t"]
    marks = marks or [""]
    made = []
    for lines in zip_longest(*map(_lines, given.texts), fillvalue=""):
        line = lines[0]
        for number, each in enumerate(lines[1:]):
            line += marks[number % len(marks)] + each
        made.append(line)
    return _joined(made)


def _joined_lines(given: Given, roles: Roles, flags: Flags) -> str:
    marks = list(_set(roles["by"])) if "by" in roles else ["\t"]
    marks = marks or [""]
    lines = _lines(given.text or "")
    made = list(lines[:1])
    for number, line in enumerate(lines[1:]):
        made += [marks[number % len(marks)], line]
    return "".join(made) + "\n"


def _shown(given: Given, roles: Roles, flags: Flags) -> str:
    made = []
    blank = False
    for line in _kept(given.text or ""):
        if flags["blank"] and blank and line == "\n":
            continue
        blank = line == "\n"
        end = "\n" if line.endswith("\n") else ""
        text = line.removesuffix("\n")
        if flags["as"] == "tabs":
            text = text.replace("\t", "^I")
        elif flags["as"] == "ends":
            text = f"{text[:-1]}^M" if text.endswith("\r") and end else text
        elif flags["as"]:
            text = "".join(_visible(each, tabs=flags["as"] != "visible") for each in text)
        made.append(text + "$" * bool(end and flags["as"] in ("ends", "all")) + end)
    return "".join(made)


def _visible(character: str, *, tabs: bool) -> str:
    code = ord(character)
    if character == "\t":
        return "^I" if tabs else character
    if code >= 128:
        return f"M-{_visible(chr(code - 128), tabs=True)}"
    return f"^{chr(code ^ 64)}" if code < 32 or code == 127 else character


# Figures ----------------------------------------------------------------------------------------


def _figures(text: str) -> dict[str, int]:
    return {
        "lines": text.count("\n"),
        "words": len(text.split()),
        "bytes": len(text.encode("utf-8", "surrogateescape")),
        "characters": len(text),
        "longest": max((len(line.expandtabs(8)) for line in _lines(text)), default=0),
    }


def _counted(given: Given, roles: Roles, flags: Flags) -> str:
    counts = _figures(given.text or "")
    name = "".join(f" {each}" for each in given.operands)
    return f"{counts[flags['what']]}{name}\n"


def _counts(given: Given, roles: Roles, flags: Flags) -> str:
    """Figures of several texts, each before its name, and their sum."""
    kinds = flags["what"].split(" and ")
    figures = [_figures(text) for text in given.texts]
    width = len(str(sum(each["bytes"] for each in figures)))
    figures.append({kind: sum(each[kind] for each in figures) for kind in figures[0]})
    made = []
    for name, each in zip((*given.operands, "total"), figures, strict=True):
        made.append(" ".join(f"{each[kind]:{width}}" for kind in kinds) + f" {name}\n")
    return "".join(made)


_TYPES = {"x1": (1, 2, "x"), "x2": (2, 4, "x"), "o1": (1, 3, "o"), "o2": (2, 6, "o"),
          "u1": (1, 3, "u"), "u2": (2, 5, "u"), "d1": (1, 4, "d"), "d2": (2, 6, "d"),
          "x4": (4, 8, "x"), "x8": (8, 16, "x"), "c": (1, 3, "c"),
          "x": (4, 8, "x")}  # fmt: skip
_DUMPED = {"\0": "\\0", "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r",
           "\t": "\\t", "\v": "\\v"}  # fmt: skip


def _dumped(given: Given, roles: Roles, flags: Flags) -> str:
    """Each byte, or each few of them, as a number or a letter, sixteen in a row."""
    text = given.text or ""
    start = _number(roles["skip"]) if "skip" in roles else 0
    end = start + _number(roles["count"]) if "count" in roles else len(text)
    if start < 0 or start > len(text):
        raise ValueError(start)
    address = _ADDRESSES[roles.get("address", "o")]
    data = text[start:end]
    made = [
        "*" if row is None else address.format(start + place) + row
        for place, row in _rows(data, roles.get("type", flags["as"]))
    ]
    if address:
        made.append(address.format(start + len(data)))
    return _joined(made)


_ADDRESSES = {"o": "{:07o}", "d": "{:07d}", "x": "{:06x}", "n": ""}


@_remembered
def _rows(data: str, shown_as: str) -> tuple[tuple[int, str | None], ...]:
    """Sixteen bytes each with where they begin; None for those that are like the ones before."""
    size, width, kind = _TYPES[shown_as]
    made: list[tuple[int, str | None]] = []
    before = ""
    for place in range(0, len(data), 16):
        row = data[place : place + 16]
        if row == before and len(row) == 16 and place + 16 < len(data):
            if made[-1][1] is not None:
                made.append((place, None))
            continue
        before = row
        units = [row[index : index + size] for index in range(0, len(row), size)]
        shown = "".join(f" {_unit(each, width, kind):>{width}}" for each in units)
        made.append((place, shown))
    return tuple(made)


def _unit(data: str, width: int, kind: str) -> str:
    if kind == "c":
        shown = _DUMPED.get(data, data)
        return shown if " " <= data <= "~" or data in _DUMPED else f"{ord(data):03o}"
    number = int.from_bytes(data.encode("latin-1"), "little", signed=kind == "d")
    return str(number) if kind in "ud" else f"{number:0{width}{kind}}"


# Words ------------------------------------------------------------------------------------------


_ESCAPED = re.compile(r"\\(?:0([0-7]{0,3})|x([0-9a-fA-F]{1,2})|([abcefnrtv\\]))")


def _said(given: Given, roles: Roles, flags: Flags) -> str:
    words = list(given.operands)
    if flags["each"]:
        return "".join(f"{each}\n" for each in words)
    said = " ".join(words)
    if flags["escapes"]:
        if "\\c" in said.replace("\\\\", ""):
            return _ESCAPED.sub(_unescaped, said[: said.index("\\c")])
        said = _as_text(_as_bytes(_ESCAPED.sub(_unescaped, said)))  # bytes may make a character
    return said + ("\n" if flags["end"] else "")


def _unescaped(match: re.Match[str]) -> str:
    octal, hexadecimal, letter = match.groups()
    if letter is not None:
        return "\x1b" if letter == "e" else _ESCAPES[letter]
    code = int(octal or "0", 8) & 0xFF if hexadecimal is None else int(hexadecimal, 16)
    return chr(code) if code < 128 else chr(0xDC00 + code)


def _listed(given: Given, roles: Roles, flags: Flags) -> str | None:
    if given.names is None:
        return None
    shown = []
    for marked in given.names:
        name = marked.rstrip("/@*|=") if marked[-1:] in "/@*|=" else marked
        mark = marked[len(name) :]
        if name.startswith(".") and not flags["hidden"]:
            continue
        if flags["marked"] == "kinds" or (flags["marked"] and mark == "/"):
            name += mark
        shown.append(name)
    if flags["hidden"] == "all":
        shown = [f"{each}{'/' * bool(flags['marked'])}" for each in (".", "..")] + shown
    if flags["backwards"]:
        shown.reverse()
    return _joined(shown) if flags["as"] == "lines" else _in_rows(shown)


def _walked(given: Given, roles: Roles, flags: Flags) -> str | None:
    """The paths in trees whose last name, kind, whole path and depth are those asked for."""
    if not given.trees or (flags["depth"] == "") == ("depth" in roles):
        return None
    if (flags["case"] or flags["negated"]) and "name" not in roles:
        return None
    kinds = {"-" if each == "f" else each for each in roles.get("kind", "").split(",")}
    depth = int(roles.get("depth", "0"))
    name = _folded(roles.get("name", "*"), flags)
    shown: list[str] = []
    for root, tree in zip(given.operands or (".",), given.trees, strict=True):
        if tree.entries is None:
            return None
        for path, kind in (("", "d"), *tree.entries):
            whole = f"{root.rstrip('/')}/{path}" if path else root
            last = posixpath.basename(path or root.rstrip("/")) or "/"
            deep = path.count("/") + bool(path)
            if "kind" in roles and kind not in kinds:
                continue
            if (flags["depth"] == "at most" and deep > depth) or (
                flags["depth"] == "at least" and deep < depth
            ):
                continue
            if matches(name, _folded(last, flags)) == bool(flags["negated"]):
                continue
            if "path" in roles and not matches(roles["path"], whole):
                continue
            shown.append(whole)
    return "".join(f"{each}\0" for each in shown) if flags["ended"] else _joined(shown)


def _folded(text: str, flags: Flags) -> str:
    return text.lower() if flags["case"] else text


_STYLES = {
    "": "%a %b %e %H:%M:%S UTC %Y", "mail": "%a, %d %b %Y %H:%M:%S +0000", "day": "%Y-%m-%d",
    "seconds": "%Y-%m-%dT%H:%M:%S+00:00", "blank": "%Y-%m-%d %H:%M:%S+00:00",
}  # fmt: skip


def _dated(given: Given, roles: Roles, flags: Flags) -> str | None:
    """An instant of UTC, written out."""
    word = roles["when"].strip()
    if match := re.fullmatch(r"@(-?\d{1,11})", word):
        instant = datetime.fromtimestamp(0, UTC) + timedelta(seconds=int(match[1]))
    elif re.fullmatch(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d)?)?", word):
        instant = datetime.fromisoformat(word).replace(tzinfo=UTC)
    else:
        return None
    style = _STYLES[flags["as"]]
    if given.operands:
        if len(given.operands) > 1 or not given.operands[0].startswith("+"):
            return None
        style = given.operands[0][1:].replace("%s", str(int(instant.timestamp())))
        if re.search(r"%[^aAbBdDeFHIjklmMpRSTuwyYnt%]", style):
            return None
    return instant.strftime(style) + "\n"


_WIDTH = 80


def _in_rows(names: Sequence[str]) -> str:
    """The names behind each other, in lines as wide as a terminal."""
    made, column = "", 0
    for name in names:
        if made and column + len(name) + 2 < _WIDTH:
            made, column = f"{made}, ", column + 2
        elif made:
            made, column = f"{made},\n", 0
        made, column = made + name, column + len(name)
    return f"{made}\n" if names else ""


def _named(given: Given, roles: Roles, flags: Flags) -> str:
    made = []
    for each in given.operands:
        whole = each.rstrip("/") or "/" * bool(each)
        part = posixpath.basename(whole) or whole
        if flags["part"] == "directory":
            part = posixpath.dirname(whole).rstrip("/") or ("/" if whole.startswith("/") else ".")
        if "suffix" in roles and part != roles["suffix"]:
            part = part.removesuffix(roles["suffix"])
        made.append(part)
    return _joined(made)


FAMILIES: tuple[Family, ...] = (
    Family("the text", _same),
    Family("part", _part, ("count",), variants={
        "which": ("first", "last"), "of": ("lines", "bytes"),
    }, of_bytes=True),
    Family("backwards", _reversed, variants={"of": ("lines", "characters")}),
    Family("count", _counted, variants={
        "what": ("lines", "words", "bytes", "characters", "longest"),
    }),
    Family("order", _ordered, ("key", "separator"), variants={
        "by": ("", "number", "size", "any number", "folded", "letters", "month"),
        "backwards": ("", "backwards"), "once": ("", "once"),
    }, of_bytes=True),
    Family("runs", _runs, ("fields", "characters", "width"), variants={
        "which": ("", "repeated", "single", "every repeated"),
        "counted": ("", "counted"), "case": ("", "any case"),
    }, of_bytes=True),
    Family("columns", _columns, ("list", "separator", "joint"), ("list",), variants={
        "of": ("fields", "bytes"), "marked": ("", "marked"), "others": ("", "others"),
    }, of_bytes=True),
    Family("lines", _matching, ("pattern",), ("pattern",), variants={
        "syntax": ("basic", "extended", "fixed"), "case": ("", "any case"),
        "negated": ("", "without"), "whole": ("", "words", "lines"),
        "shown": ("", "count", "numbered", "only", "nothing"),
    }),
    Family("part of each", _parts, ("count",), variants={
        "which": ("first", "last"), "of": ("lines", "bytes"),
    }, of_bytes=True, several=True),
    Family("counts of each", _counts, variants={
        "what": ("lines", "words", "bytes", "lines and words and bytes", "characters"),
    }, several=True),
    Family("side by side", _side_by_side, ("by",), several=True),
    Family("lines of each", _matching_named, ("pattern",), ("pattern",), variants={
        "syntax": ("basic", "extended", "fixed"), "case": ("", "any case"),
        "negated": ("", "without"), "whole": ("", "words", "lines"),
        "shown": ("", "count", "numbered", "only"),
    }, several=True),
    Family("exchanged", _exchanged, ("these", "by"), ("these",), variants={
        "how": ("", "deleted", "squeezed", "cut"), "others": ("", "others"),
    }, of_bytes=True),
    Family("wrapped", _wrapped, ("width",), variants={"at": ("", "blanks")}, of_bytes=True),
    Family("tabs", _tabs, ("width",), variants={"which": ("spaces",)}, of_bytes=True),
    Family("numbered", _numbered, ("width", "joint", "style", "which", "first", "step"), variants={
        "which": ("filled", "all", "none"), "indented": ("indented", ""), "ended": ("", "ended"),
    }),
    Family("joined", _joined_lines, ("by",)),
    Family("shown", _shown, variants={
        "as": ("", "ends", "tabs", "visible", "visible and tabs", "all"), "blank": ("", "one"),
    }, of_bytes=True),
    Family("dumped", _dumped, ("address", "type", "count", "skip"), variants={
        "as": ("o2", "x2", "c", "x1", "o1", "u2", "d2", "x4"),
    }, of_bytes=True),
    Family("directory", _listed, variants={
        "hidden": ("", "almost", "all"), "marked": ("", "directories", "kinds"),
        "as": ("lines", "rows"), "backwards": ("", "backwards"),
    }, reads=False),
    Family("tree", _walked, ("name", "kind", "depth", "path"), variants={
        "depth": ("", "at most", "at least"), "case": ("", "any case"),
        "negated": ("", "without"), "ended": ("", "NUL"),
    }, reads=False),
    Family("date", _dated, ("when",), ("when",), variants={"as": tuple(_STYLES)}, reads=False),
    Family("words", _said, variants={
        "each": ("", "each"), "end": ("end", ""), "escapes": ("", "escapes"),
    }, reads=False),
    Family("name", _named, ("suffix",), variants={"part": ("last", "directory")}, reads=False),
)  # fmt: skip
"""Every family; those that explain much with little come first."""
