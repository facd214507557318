"""What an input is made of, whatever it names: its normal form, its utilities, one step or several.

Two inputs of one normal form differ in their numbers and names alone: who has seen one has seen the
kind of the other. The definition is that of the statistics of usage: utilities, options (letters of
a bundle sorted) and operators are kept, numbers become `N`, every other word `A`, runs of `A` one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from shioenv.bash.program import Simple, Verbatim
from shioenv.bash.read import Source, read
from shioenv.bash.scan import Refused
from shioenv.bash.walk import commands, pieces
from shioenv.bash.words import is_assignment, split_words, unquoted

_OBJECTS = ("address", "link", "route")
"""What `ip` is asked about, each a utility of its own."""
_LONG_VALUE = re.compile(r"^(--[a-zA-Z][^=]*)=.*", re.DOTALL)
_BUNDLE = re.compile(r"^-([A-Za-z]+)(\d*)$")
_NUMBER_FIRST = re.compile(r"^-\d+([A-Za-z]+)$")
_NUMBER = re.compile(r"^[+-]?\d+([.,-]\d*)*[a-zA-Z%]?$")
_RUNS = {"-exec", "-execdir", "-ok", "-okdir"}
_WITH_VALUE = {
    "xargs": frozenset(
        {
            "-I",
            "-n",
            "-P",
            "-d",
            "-L",
            "-s",
            "-a",
            "-E",
            "--max-args",
            "--max-procs",
            "--delimiter",
            "--arg-file",
            "--replace-str",
        }
    ),
    "env": frozenset({"-u", "--unset", "-C", "--chdir"}),
}


def normal(text: str) -> str | None:
    """The normal form of an input; None where it has none: loops, here-documents, brackets, what
    Bash refuses, nothing at all.
    """
    try:
        source = read(text)
    except Refused:
        return None
    if not all(_is_known(command) for command, _ in commands(source)):
        return None
    parts: list[str] = []
    for piece in pieces(source.program):
        if isinstance(piece, str):
            parts.append(piece)
        elif isinstance(piece.command, Simple):
            _normalised(_events(piece.command), parts)
        elif isinstance(piece.command, Verbatim):
            _normalised([("word", word) for word in _plain(split_words(piece.command.text))], parts)
    return " ".join(parts) or None


def utilities(text: str) -> tuple[str, ...]:
    """The programs and builtins that an input calls by name, each once, in the order they stand,
    those in substitutions and behind `find -exec`, `xargs`, `env` and `sudo` too. `ip` is told
    apart by its object (`ip-addr`).
    """
    found: dict[str, None] = {}
    try:
        every = commands(read(text))
    except Refused:
        return tuple(_called(_plain(split_words(text))))
    for command, _ in every:
        if isinstance(command, Simple):
            found.update(dict.fromkeys(_called(_plain(command.words))))
        elif isinstance(command, Verbatim):
            found[command.text[:2]] = None
    return tuple(found)


def is_single(text: str) -> bool:
    """Whether an input is one command without operator, redirection or substitution.

    What Bash refuses is single where it holds none of the operators' characters.
    """
    try:
        source = read(text)
    except Refused:
        return not re.search(r"[|;&<>`\n]|\$\(", text.strip())
    return is_one_command(source)


def is_one_command(source: Source) -> bool:
    """See `is_single`, of a text that was read."""
    if not source.program:
        return True
    (top, *more) = pieces(source.program)
    if more or source.substitutions or isinstance(top, str) or top.prefixed:
        return False
    command = top.command
    return isinstance(command, Verbatim) or (isinstance(command, Simple) and not command.redirects)


def _is_known(command: object) -> bool:
    """Whether the definition knows such a command."""
    if isinstance(command, Simple):
        return all(redirect.operator != "<<" for redirect in command.redirects)
    return isinstance(command, Verbatim) and command.text.startswith("[[")


def _events(command: Simple) -> Iterator[tuple[str, str]]:
    """`assignment`, `word` or `redirect`, and its text, in the order they are written."""
    texts = (*command.assignments, *command.words)
    kinds = ["assignment"] * len(command.assignments) + ["word"] * len(command.words)
    told = [*zip(command.places, kinds, texts, strict=True)]
    told += [(one.start, "redirect", one.operator) for one in command.redirects]
    for _, kind, text in sorted(told):
        yield kind, unquoted(text) if kind == "word" else text


def _normalised(events: Iterable[tuple[str, str]], parts: list[str]) -> None:
    first, utility = True, ""
    for kind, text in events:
        if kind == "assignment":
            parts.append("X=")
        elif kind == "redirect":
            parts.append(text)
        elif not (first and text == "sudo"):
            if first:
                utility = _base(text)
            word = utility if first else _normal_word(text, utility)
            first = False
            if word != "A" or not parts or parts[-1] != "A":
                parts.append(word)


def _normal_word(word: str, utility: str) -> str:
    if re.match(r"^--[a-zA-Z]", word):
        return _LONG_VALUE.sub(r"\1=V", word)
    bundle = _BUNDLE.match(word) or _NUMBER_FIRST.match(word)
    if bundle:
        letters = bundle[1] if utility == "find" else "".join(sorted(bundle[1]))
        return f"-{letters}" + (" N" if re.search(r"\d", word) else "")
    if re.match(r"^-\d+$", word):
        return "-N"
    if re.match(r"^-[A-Za-z].", word, re.DOTALL):
        return word[:2] + (" N" if re.match(r"^[\d,-]+$", word[2:]) else " A")
    if word.startswith("-") and len(word) > 1:
        return re.sub(r"\d+", "N", word[:3])
    return "N" if _NUMBER.match(word) else "A"


def _called(words: Sequence[str], depth: int = 0) -> Iterator[str]:
    """The utility that words call, and those it is told to call itself."""
    words = list(words)
    while words and (words[0] == "sudo" or (depth and is_assignment(words[0]))):
        words.pop(0)
    if not words or depth > 4:
        return
    name = _base(words[0])
    if name == "ip":
        words_of_ip = [word for word in words[1:] if not word.startswith("-")]
        asked = words_of_ip[0] if words_of_ip else ""
        known = [about for about in _OBJECTS if asked and about.startswith(asked)]
        known = ["address"] if asked == "addr" else known
        name = f"ip-{'addr' if known[0] == 'address' else known[0]}" if known else "ip"
    yield name
    for inner in _inner(name, words):
        yield from _called(inner, depth + 1)


def _inner(name: str, words: list[str]) -> Iterator[list[str]]:
    """The commands that a command is told to run, each as its words."""
    if name == "find":
        for place, word in enumerate(words):
            if word in _RUNS:
                rest = words[place + 1 :]
                ends = [end for end, text in enumerate(rest) if text in (";", "+")]
                yield rest[: ends[0]] if ends else rest
    elif name in _WITH_VALUE:
        place = 1
        while place < len(words) and (
            words[place].startswith("-") or (name == "env" and is_assignment(words[place]))
        ):
            place += 2 if words[place] in _WITH_VALUE[name] else 1
        if place < len(words):
            yield words[place:]


def _base(word: str) -> str:
    return word.rstrip("/").rpartition("/")[2].lstrip("\\") or word


def _plain(words: Sequence[str]) -> list[str]:
    return [unquoted(word) for word in words]
