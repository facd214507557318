"""Positions of commands, words and variables in an input's text."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

from shioenv.bash.builtins import DECLARING, FILLING
from shioenv.bash.normal import base_name
from shioenv.bash.program import Coprocess, Counting, For, Function, Simple, Verbatim
from shioenv.bash.read import read
from shioenv.bash.scan import Refused
from shioenv.bash.walk import commands, redirects_of
from shioenv.bash.words import is_assignment, split_words, unquoted
from shioenv.grammar.arguments import ArgumentSplitter, ends_command
from shioenv.grammar.library import load_grammar, shipped_headers


@dataclass(frozen=True, slots=True)
class PlacedWord:
    """A word of a command, the target of a redirection, or an item of a `for` loop."""

    text: str
    """The word as written, including quotes."""
    start: int
    """Position in the text: start and end, in characters."""
    end: int
    sign: str = ""
    """The operator of the redirection whose target the word is; "" for other words."""
    names_variable: bool = False
    """Whether a command takes the word as the name of a variable to set."""


@dataclass(frozen=True, slots=True)
class Places:
    """Positions of commands, words and variables in a text.

    If Bash rejects the text, the whole text counts as one command. Only its words and `sudo` among
    them are then known.
    """

    commands: tuple[str, ...]
    """The text of every simple command at any depth, without its redirections."""
    words: tuple[PlacedWord, ...]
    """All words in order of position, including command names.

    A word that is just one substitution is replaced by the words in it. Targets of here-documents
    and here-strings are left out.
    """
    uses: tuple[tuple[str, int], ...]
    """Variables that are expanded unmodified, each with the position of the expansion.

    `${x:-y}` is left out, since it may give another value. The position in here-documents is -1.
    """
    sets: frozenset[str]
    """Variables that are set somewhere, including by arithmetic and by `${x:=y}`.

    A function sets `@`, `*` and `1` to `9`.
    """
    sudo: tuple[tuple[int, int], ...]
    """Positions of `sudo` with its options before a command: start and end, in characters."""
    parsed: bool
    """Whether Bash can parse the text."""


def read_places(text: str) -> Places:
    """Return the positions of commands, words and variables in a text."""
    try:
        source = read(text)
    except Refused:
        words = tuple(_split(text))
        return Places((text,), words, (), frozenset(), tuple(_sudo(words)), parsed=False)
    found: list[str] = []
    words_found: list[PlacedWord] = []
    sets = set(_assigned_by_expansions(text))
    uses = list(source.expansions)
    sudo: list[tuple[int, int]] = []
    whole = {(one.start, one.end) for one in source.substitutions}
    for command, shift in commands(source):
        for redirect in redirects_of(command):
            if isinstance(redirect.descriptor, str):
                sets.add(redirect.descriptor)
            if redirect.operator not in ("<<", "<<<"):
                start = redirect.end - len(redirect.target) + shift
                words_found.append(
                    PlacedWord(redirect.target, start, redirect.end + shift, redirect.operator)
                )
            if redirect.operator == "<<" and not redirect.quoted:
                uses += ((name, -1) for name in _expanded(redirect.target))
        if isinstance(command, For):
            sets.add(command.name)
            words_found += _words(command.words or (), command.places, shift)
        elif isinstance(command, Counting):
            sets.update(_assigned(";".join(command.expressions)))
        elif isinstance(command, Verbatim):
            sets.update(_assigned(command.text) if command.text.startswith("((") else ())
        elif isinstance(command, Coprocess):
            sets.update((command.name, f"{command.name}_PID"))
        elif isinstance(command, Function):
            sets.update(("@", "*", *"123456789"))
        elif isinstance(command, Simple):
            sets.update(_ASSIGNED.split(word)[0] for word in command.assignments)
            if command.words:
                count = len(command.assignments)
                setting = _Setting(command.words)
                sets.update(setting.variables)
                every = list(_words(command.words, command.places[count:], shift, setting.places))
                words_found += every
                found.append(" ".join((*command.assignments, *command.words)))
                sudo += _sudo(every)
    return Places(
        tuple(found),
        tuple(
            word
            for word in sorted(words_found, key=lambda word: word.start)
            if (word.start, word.end) not in whole
        ),
        tuple(uses),
        frozenset(sets),
        tuple(sudo),
        parsed=True,
    )


class _Setting:
    """The variables that a simple command sets, with the indices of the words that name them."""

    def __init__(self, words: Sequence[str]) -> None:
        self.variables: set[str] = set()
        self.places: set[int] = set()
        texts = [unquoted(word) for word in words]
        first = 0
        while texts[first] in ("builtin", "command") and first + 1 < len(texts):
            first += 1
            while texts[first].startswith("-") and first + 1 < len(texts):
                first += 1
        option = _NAMED_BY_OPTION.get(texts[first])
        for place, text in enumerate(texts[first + 1 :], first + 1):
            if texts[first] == "let":
                self.variables.update(_assigned(text))
            elif texts[first] in _SETTING or (
                option and texts[place - 1] == option and (place == first + 2 or option == "-p")
            ):
                self.variables.add(_ASSIGNED.split(text)[0])
                if _NAME.fullmatch(text):
                    self.places.add(place)
            elif option and place == first + 1 and text.startswith(option):
                self.variables.add(_ASSIGNED.split(text[len(option) :])[0])


def _expanded(document: str) -> Iterator[str]:
    """Yield the variables that are expanded unmodified in a here-document."""
    for match in _EXPANDED.finditer(document):
        if name := match[1] or match[2]:
            yield name


def _assigned(arithmetic: str) -> Iterator[str]:
    """Yield the variables that an arithmetic expression assigns."""
    for match in _ASSIGNING.finditer(arithmetic):
        yield match[1] or match[2]


def _assigned_by_expansions(text: str) -> Iterator[str]:
    """Yield the variables that expansions in a text assign: `$((x = 1))`, `${x:=y}`."""
    for match in _ARITHMETIC.finditer(text):
        yield from _assigned(match[1])
    yield from (match[1] for match in _DEFAULTING.finditer(text))


_NAMED_BY_OPTION = {"printf": "-v", "wait": "-p"}
"""Builtins that set a variable, with the option whose value is the variable's name."""
_NAME = re.compile(r"[A-Za-z_]\w*(?:\[[^\]]*\])?", re.ASCII)
_ASSIGNING = re.compile(
    r"(?<![\w$])([A-Za-z_]\w*)(?:\[[^\]]*\])?\s*(?:\+\+|--|(?:[-+*/%&^|]|<<|>>)?=(?!=))"
    r"|(?:\+\+|--)\s*([A-Za-z_]\w*)",
    re.ASCII,
)
_ARITHMETIC = re.compile(r"\$\(\((.*?)\)\)", re.DOTALL)
_DEFAULTING = re.compile(r"\$\{([A-Za-z_]\w*)(?:\[[^\]]*\])?:?=", re.ASCII)
_EXPANDED = re.compile(r"\\.|\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})", re.ASCII | re.DOTALL)
_ASSIGNED = re.compile(r"[\[+=]")
_SETTING = DECLARING | FILLING | {"unset"}
_WITH_VALUE = re.compile(
    r"-[^-CDghpRrTtUu]*[CDghpRrTtUu]|--(?:ch(?:dir|root)|close-from|command-timeout|group|host"
    r"|other-user|prompt|role|type|user)"
)
"""A `sudo` option whose value is the next word."""
_BEFORE = frozenset({"-exec", "-execdir", "-ok", "-okdir", "xargs", "env", "nohup", "time"})


def _sudo(words: tuple[PlacedWord, ...] | list[PlacedWord]) -> Iterator[tuple[int, int]]:
    """Yield the spans of `sudo` as a command: at the start or after a word that runs commands."""
    runs = bool(words) and words[0].text in _BEFORE
    for index, word in enumerate(words):
        before = words[index - 1].text if index else ""
        if word.text != "sudo" or not (
            not index or before in _BEFORE or (runs and before.startswith("-")) or before == "sudo"
        ):
            continue
        after = sudo_end([each.text for each in words], index)
        yield word.start, words[after].start if after < len(words) else words[-1].end


def sudo_end(words: Sequence[str], start: int) -> int:
    """Return the index of the first word after the `sudo` at `start` and its options."""
    after = start + 1
    while after < len(words) and words[after].startswith("-"):
        if words[after] == "--":
            return after + 1
        after += 2 if _WITH_VALUE.fullmatch(words[after]) else 1
    return after


def _words(
    texts: tuple[str, ...], places: tuple[int, ...], shift: int, names: Collection[int] = ()
) -> Iterator[PlacedWord]:
    for number, (text, place) in enumerate(zip(texts, places, strict=True)):
        start, end = place + shift, place + shift + len(text)
        yield PlacedWord(text, start, end, names_variable=number in names)


def _split(text: str) -> Iterator[PlacedWord]:
    place = 0
    for written in split_words(text):
        place = text.index(written, place)
        yield PlacedWord(written, place, place + len(written))
        place += len(written)


_OBJECTS = ("address", "link", "route")
"""Objects of `ip`, each counted as a separate utility."""

_ASKING = frozenset({"-ok", "-okdir"})
"""Options of `find` that run commands, but are not in its grammar because they are interactive."""

_DEEPEST = 4
"""Maximum nesting depth of commands that run other commands."""


@lru_cache(maxsize=10_000)
def utilities(text: str) -> tuple[str, ...]:
    """Return the distinct programs and builtins that an input calls by name, in order.

    Utilities in substitutions are included. So are utilities that are run by `sudo`, or by a
    command whose grammar declares that it runs others (`find -exec`, `xargs`). `ip` is
    distinguished by its object (`ip-addr`).
    """
    found: dict[str, None] = {}
    try:
        every = commands(read(text))
    except Refused:
        return tuple(_called([*map(unquoted, split_words(text))]))
    for command, _ in every:
        if isinstance(command, Simple):
            found.update(dict.fromkeys(_called([*map(unquoted, command.words)])))
        elif isinstance(command, Verbatim):
            found[command.text[:2]] = None
    return tuple(found)


def _called(words: Sequence[str], depth: int = 0) -> Iterator[str]:
    """Yield the utility that a command's words call, and the utilities that it runs."""
    words = list(words)
    is_run = depth > 0 or words[:1] == ["sudo"]
    while words and (words[0] == "sudo" or (is_run and is_assignment(words[0]))):
        del words[: sudo_end(words, 0) if words[0] == "sudo" else 1]
    if not words or depth > _DEEPEST:
        return
    name = base_name(words[0])
    if name == "ip":
        words_of_ip = [word for word in words[1:] if not word.startswith("-")]
        asked = words_of_ip[0] if words_of_ip else ""
        known = [about for about in _OBJECTS if asked and about.startswith(asked)]
        known = ["address"] if asked == "addr" else known
        name = f"ip-{'addr' if known[0] == 'address' else known[0]}" if known else "ip"
    yield name
    for inner in _inner(name, words):
        yield from _called(inner, depth + 1)


@cache
def _splitter(name: str) -> ArgumentSplitter | None:
    """Return the splitter of a command's arguments; None if the command has no shipped grammar."""
    return ArgumentSplitter(load_grammar(name)) if name in shipped_headers() else None


def _inner(name: str, words: list[str]) -> Iterator[list[str]]:
    """Yield the commands that a command runs, each as its words."""
    splitter = _splitter(name)
    if splitter is None:
        return
    for place, word in enumerate(words):
        if word in splitter.runs or (splitter.runs and word in _ASKING):
            after = range(place + 1, len(words))
            end = next((at for at in after if ends_command(words[place + 1 : at + 1])), len(words))
            yield words[place + 1 : end]
    before = shipped_headers()[name].runs
    if before is not None:
        place = 1
        while place < len(words) and (words[place].startswith("-") or is_assignment(words[place])):
            following = words[place + 1] if place + 1 < len(words) else None
            dashed = words[place].startswith("-")
            place += splitter.option(words[place], following)[1] if dashed else 1
        if place + before < len(words):
            yield words[place + before :]
