"""Where commands, words and variables stand in an input's text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shioenv.bash.builtins import DECLARING, FILLING
from shioenv.bash.program import For, Function, Simple
from shioenv.bash.read import read
from shioenv.bash.scan import Refused
from shioenv.bash.walk import commands, redirects_of
from shioenv.bash.words import split_words


@dataclass(frozen=True, slots=True)
class PlacedWord:
    """A word of a command, the target of a redirection, or a word that `for` goes through."""

    text: str
    """As it is written, quotes included."""
    start: int
    """Places in the text, in characters."""
    end: int
    sign: str = ""
    """The operator of the redirection whose target the word is; "" for other words."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where commands, words and variables stand in a text.

    Of a text that Bash refuses: the whole text as one command, its words, and `sudo` among them.
    """

    commands: tuple[str, ...]
    """The text of every simple command, however deep, without its redirections."""
    words: tuple[PlacedWord, ...]
    """In the order they begin, names of commands included.

    A word that is one substitution and nothing else is left out for the words in it. Targets of
    here-documents and here-strings are left out too."""
    uses: tuple[tuple[str, int], ...]
    """Variables that are expanded unedited, each with where its expansion begins.

    `${x:-y}` is left out: it names another value."""
    sets: frozenset[str]
    """Variables that are given a value somewhere; a function sets `@`, `*` and `1` to `9`."""
    sudo: tuple[tuple[int, int], ...]
    """Where `sudo` with its options stands before a command: start and end, in characters."""
    parsed: bool
    """Whether Bash reads the text."""


def read_places(text: str) -> Places:
    """Where commands, words and variables stand in a text."""
    try:
        source = read(text)
    except Refused:
        words = tuple(_split(text))
        return Places((text,), words, (), frozenset(), tuple(_sudo(words)), parsed=False)
    found: list[str] = []
    words_found: list[PlacedWord] = []
    sets: set[str] = set()
    sudo: list[tuple[int, int]] = []
    whole = {(one.start, one.end) for one in source.substitutions}
    for command, shift in commands(source):
        for redirect in redirects_of(command):
            if redirect.operator not in ("<<", "<<<"):
                start = redirect.end - len(redirect.target) + shift
                words_found.append(
                    PlacedWord(redirect.target, start, redirect.end + shift, redirect.operator)
                )
        if isinstance(command, For):
            sets.add(command.name)
            words_found += _words(command.words or (), command.places, shift)
        elif isinstance(command, Function):
            sets.update(("@", "*", *"123456789"))
        elif isinstance(command, Simple):
            sets.update(_ASSIGNED.split(word)[0] for word in command.assignments)
            if command.words:
                count = len(command.assignments)
                every = list(_words(command.words, command.places[count:], shift))
                words_found += every
                found.append(" ".join((*command.assignments, *command.words)))
                sudo += _sudo(every)
                if command.words[0] in _SETTING:
                    sets.update(_ASSIGNED.split(word)[0] for word in command.words[1:])
                if (name := _printed_into(command.words)) is not None:
                    sets.add(_ASSIGNED.split(name)[0])
    return Places(
        tuple(found),
        tuple(
            word
            for word in sorted(words_found, key=lambda word: word.start)
            if (word.start, word.end) not in whole
        ),
        source.expansions,
        frozenset(sets),
        tuple(sudo),
        parsed=True,
    )


def _printed_into(words: tuple[str, ...]) -> str | None:
    """The variable that `printf -v` fills; None where there is none."""
    if words[0] != "printf" or len(words) < 2 or not words[1].startswith("-v"):
        return None
    return words[1][2:] or (words[2] if len(words) > 2 else None)


_ASSIGNED = re.compile(r"[\[+=]")
_SETTING = DECLARING | FILLING | {"unset"}
_WITH_VALUE = re.compile(
    r"-[^-CDghpRrTtUu]*[CDghpRrTtUu]|--(?:ch(?:dir|root)|close-from|command-timeout|group|host"
    r"|other-user|prompt|role|type|user)"
)
"""An option of `sudo` whose value is the next word."""
_BEFORE = frozenset({"-exec", "-execdir", "-ok", "-okdir", "xargs", "env", "nohup", "time"})


def _sudo(words: tuple[PlacedWord, ...] | list[PlacedWord]) -> Iterator[tuple[int, int]]:
    """Where `sudo` stands to run a command: as the first word, or behind what runs commands."""
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
    """The place behind `sudo`, which stands at `start`, and its options."""
    after = start + 1
    while after < len(words) and words[after].startswith("-"):
        if words[after] == "--":
            return after + 1
        after += 2 if _WITH_VALUE.fullmatch(words[after]) else 1
    return after


def _words(texts: tuple[str, ...], places: tuple[int, ...], shift: int) -> Iterator[PlacedWord]:
    for text, place in zip(texts, places, strict=True):
        yield PlacedWord(text, place + shift, place + shift + len(text))


def _split(text: str) -> Iterator[PlacedWord]:
    place = 0
    for written in split_words(text):
        place = text.index(written, place)
        yield PlacedWord(written, place, place + len(written))
        place += len(written)
