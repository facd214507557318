"""The utilities that an input calls, for tables that count answers by utility."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, lru_cache

from shioenv.bash.normal import base_name
from shioenv.bash.program import Simple, Verbatim
from shioenv.bash.read import read
from shioenv.bash.scan import Refused
from shioenv.bash.walk import commands
from shioenv.bash.words import is_assignment, split_words, unquoted
from shioenv.grammar.arguments import ArgumentSplitter, ends_command
from shioenv.grammar.library import load_grammar, shipped_headers
from shioenv_eval.places import sudo_end

_OBJECTS = ("address", "link", "route")
"""Objects of `ip`, each counted as a separate utility."""

_ASKING = frozenset({"-ok", "-okdir"})
"""Options of `find` that run commands, but are not in its grammar because they are interactive."""

_DEEPEST = 4
"""Maximum nesting depth of commands that run other commands."""


@lru_cache(maxsize=10_000)
def utilities(text: str) -> tuple[str, ...]:
    """Return the distinct programs and builtins that an input calls by name, in order.

    Utilities in substitutions are included. Utilities run by `sudo` are included too, or by a
    command whose grammar declares it (`find -exec`, `xargs`). `ip` is distinguished by its object
    (`ip-addr`).
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
