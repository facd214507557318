"""The normal form of an input, which abstracts from names and numbers.

Two inputs have the same normal form if they differ only in numbers and names. The definition is the
one used in usage statistics. Utilities, options (letters of a bundle sorted) and operators are
kept. A number becomes `N`, every other word `A`, and a run of `A` becomes a single `A`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property

from shioenv.bash.builtins import KEYWORDS, WITH_ARRAYS
from shioenv.bash.program import Simple, Source, Verbatim
from shioenv.bash.read import read
from shioenv.bash.scan import Refused
from shioenv.bash.walk import commands, pieces
from shioenv.bash.words import split_words, unquoted

_LONG_VALUE = re.compile(r"^(--[a-zA-Z][^=]*)=.*", re.DOTALL)
_BUNDLE = re.compile(r"^-([A-Za-z]+)(\d*)$")
_NUMBER_FIRST = re.compile(r"^-\d+([A-Za-z]+)$")
_NUMBER = re.compile(r"^[+-]?\d+([.,-]\d*)*[a-zA-Z%]?$")


_TOKEN = re.compile(
    r"""[ \t]*(?:((?:[\w./+,:@%~*?\[\]^=-]|'[^'\n]*'|"[^"$`\\!\n]*")+)|(\|\|?|&&|;))(?![&>])"""
)
"""A word without special characters except quotes, or an operator between commands."""


def normal(text: str) -> str | None:
    """Return the normal form of an input; None if it is undefined.

    It is undefined for inputs with a compound command (also `(( … ))`) or a here-document. The same
    holds for empty inputs and for inputs that Bash refuses. Inputs of plain words and operators
    between commands are the most frequent. These skip the parser, and so take a tenth of the time.
    """
    plain = _plain_pieces(text)
    if not plain:
        return _normal_of_program(text)
    parts: list[str] = []
    for piece in plain:
        if isinstance(piece, str):
            parts.append(piece)
        else:
            _normalised([("word", word) for word in _plain(piece)], parts)
    return " ".join(parts) or None


def _plain_pieces(text: str) -> list[str | list[str]]:
    """Return each command's words, and the operators between; [] if the text is not plain."""
    words: list[str] = []
    told: list[str | list[str]] = [words]
    place = 0
    text = text.rstrip(" \t")
    while place < len(text):
        token = _TOKEN.match(text, place)
        if token is None:
            return []
        place = token.end()
        word, operator = token.groups()
        if word is None:
            if not words:
                return []
            words = []
            told += [operator, words]
        else:
            may_assign = not words or words[0] in WITH_ARRAYS
            begins_otherwise = not words and (word in KEYWORDS or "=" in word)
            if begins_otherwise or (may_assign and "[" in word[1:]):  # `a[` may be a subscript
                return []
            words.append(word)
    return told if words else []


def _normal_of_program(text: str) -> str | None:
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


def is_single(text: str) -> bool:
    """Whether an input is one command without operator, redirection or substitution.

    A text that Bash refuses is single if it has no operator character, newline or substitution.
    """
    try:
        source = read(text)
    except Refused:
        return not re.search(r"[|;&<>`\n]|\$\(", text.strip())
    return is_one_command(source)


def is_one_command(source: Source) -> bool:
    """Whether a parsed text is one command, by the definition of `is_single`."""
    if not source.program:
        return True
    (top, *more) = pieces(source.program)
    if more or source.substitutions or isinstance(top, str) or top.prefixed:
        return False
    command = top.command
    return isinstance(command, Verbatim) or (isinstance(command, Simple) and not command.redirects)


def _is_known(command: object) -> bool:
    """Whether the normal form is defined for such a command."""
    if isinstance(command, Simple):
        return all(redirect.operator != "<<" for redirect in command.redirects)
    return isinstance(command, Verbatim) and command.text.startswith("[[")


def _events(command: Simple) -> Iterator[tuple[str, str]]:
    """Yield the kind (`assignment`, `word`, `redirect`) and text of each part, in written order."""
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
                utility = base_name(text)
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


def base_name(word: str) -> str:
    """Return the name of the program that a command's first word names, without its directory."""
    return word.rstrip("/").rpartition("/")[2].lstrip("\\") or word


def _plain(words: Sequence[str]) -> list[str]:
    return [unquoted(word) for word in words]


class InputForms:
    """The texts and normal forms of training inputs, loaded on first use.

    - `data`: the name of the training data, for display.
    - `read`: a function that returns the inputs. It is pickled with the object. Errors: every
      method raises those of `read`.
    """

    def __init__(self, data: str, read: Callable[[], Iterable[str]]) -> None:
        self.data, self._read = data, read

    @cached_property
    def _known(self) -> tuple[int, frozenset[str], frozenset[str | None]]:
        texts, forms, count = set(), set(), 0
        for text in self._read():
            texts.add(" ".join(text.split()))
            forms.add(normal(text))
            count += 1
        return count, frozenset(texts), frozenset(forms - {None})

    def __len__(self) -> int:
        return self._known[0]

    def has_text(self, text: str) -> bool:
        """Whether this input is a training input; differences in white space are ignored."""
        return " ".join(text.split()) in self._known[1]

    def has_form(self, form: str | None) -> bool:
        """Whether one of the inputs has this normal form."""
        return form in self._known[2]
