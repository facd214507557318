"""Division of a command's expanded words into options and operands, for the rules."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from types import MappingProxyType

from shioenv.domain.runner import State
from shioenv.errors import Abstained
from shioenv_model.bash.expand import Expander
from shioenv_model.composition.call import Call
from shioenv_model.composition.variables import Variables

NO_NAMES: Mapping[str, str] = MappingProxyType({})
"""The long options of a program that has none."""


def words_of(call: Call, state: State, names: Container[str]) -> list[str]:
    """Return the expanded words of a command that calls one of these programs.

    Errors: Abstained for any other command, for redirections, and for a name that is a shell
    function.
    """
    name = call.words[0] if call.words else ""
    if name not in names or call.closed or call.opens is not None or call.reads is not None:
        raise Abstained("another command")
    if name in state.before.document.get("functions", {}):
        raise Abstained("a function of the shell")
    expander = Expander(Variables(state))
    return [one for word in call.words for one in expander.fields(word)]


def parse_options(
    words: Sequence[str],
    flags: str,
    valued: str = "",
    names: Mapping[str, str] = NO_NAMES,
    *,
    permutes: bool = True,
) -> tuple[list[tuple[str, str]], list[str]]:
    """Parse options and operands; each option is a letter with its value, or "".

    `flags` and `valued` are the letters of options without and with a value; `names` maps long
    options to letters. Without `permutes`, everything after the first operand is an operand.
    Errors: Abstained for an unknown option, and for a missing value.
    """
    options: list[tuple[str, str]] = []
    operands: list[str] = []
    left = list(words[::-1])
    while left:
        word = left.pop()
        if word == "--":
            return options, [*operands, *left[::-1]]
        if word.startswith("--"):
            name, sign, value = word[2:].partition("=")
            letter = names.get(name, "")
            if not letter or (sign and letter not in valued):
                raise Abstained(f"the option {word!r:.20} is not supported")
            options.append((letter, value if sign or letter not in valued else _next(left)))
        elif word.startswith("-") and word != "-":
            letters = word[1:]
            while letters:
                letter, letters = letters[0], letters[1:]
                if letter in valued:
                    options.append((letter, letters or _next(left)))
                    break
                if letter not in flags:
                    raise Abstained(f"the option {word!r:.20} is not supported")
                options.append((letter, ""))
        else:
            operands.append(word)
            if not permutes:
                return options, [*operands, *left[::-1]]
    return options, operands


def _next(left: list[str]) -> str:
    if not left:
        raise Abstained("an option without its value")
    return left.pop()


def options_of(words: Sequence[str], letters: str) -> tuple[set[str], list[str]]:
    """Parse options without values: their letters, and the operands.

    Errors: see `parse_options`.
    """
    options, operands = parse_options(words, letters)
    return {letter for letter, _ in options}, operands
