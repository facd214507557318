"""Requests for the output of an input, in plain English.

An input is parsed into commands with options and operands, which `output_templates` describes. If
a template does not support an option, there is no request.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Final

from shioenv.bash.read import read
from shioenv.bash.scan import Refused
from shioenv.bash.words import plain_words
from shioenv.domain.inputs import Input, Role
from shioenv.grammar.arguments import ArgumentSplitter
from shioenv.grammar.library import load_grammar
from shioenv_agents.tasks.output_templates import TEMPLATES, DescribedRequest, found_paths, listed

_BARE: Final = re.compile(r"[$`\\~{}*?\[\]<>|&;()#!^]")
"""Characters that the shell interprets outside single quotes."""

_QUOTED: Final = re.compile(r"'[^']*'")


def describe_output(shell_input: Input) -> str | None:
    """Return a description of the input's output, as the end of `Print …`.

    None if the templates do not cover all of it. The input is one command, or several joined by
    pipes, without redirections.
    """
    if set(shell_input.operators) - {"|"}:
        return None
    steps: list[str] = []
    for number, (start, stop) in enumerate(shell_input.spans()):
        tokens = shell_input.tokens[start:stop]
        if any(token.role not in (Role.COMMAND, Role.ARGUMENT) for token in tokens):
            return None
        words = _words(Input(tokens).text)
        found = _steps(words, number > 0) if words else None
        if found is None:
            return None
        steps += found
    if not steps:
        return None
    return f"{_RESULT}{'; '.join(steps)}." if len(steps) > 1 else f"{steps[0]}."


_RESULT: Final = "the result of these steps: take "


def _words(text: str) -> list[str] | None:
    """Return the words of a command without shell expansions; None for any other.

    None also for a text that Bash rejects.
    """
    if _BARE.search(_QUOTED.sub("", text)):
        return None
    try:
        read(text)
    except Refused:
        return None
    return plain_words(text)


def _steps(words: Sequence[str], piped: bool) -> list[str] | None:
    """Return the steps of a command; None if it cannot be described.

    Unless the command is `piped`, the first step is a noun, to which the others are applied.
    """
    if words[0] == "find":
        found = None if piped else found_paths(words[1:])
        return None if found is None else [found]
    template = TEMPLATES.get(words[0])
    if template is None:
        return None
    taken = _taken(words[0], words[1:])
    if taken is None or not set(template.letters).issuperset(taken[0]):
        return None
    options, operands = taken
    asked = DescribedRequest(options, operands, piped)
    files = operands[template.patterns :]
    if not template.filters:
        step = None if piped and not template.reads_pipes else template.describe(asked)
        return None if step is None else [step]
    if piped == bool(files) or "-" in files or len(operands) < template.patterns:
        return None
    step = template.describe(asked)
    if step is None:
        return None
    lines = [] if piped else [f"the lines of {listed(files, ', then those of ')}"]
    return [*lines, step] if step else lines


_BLANK, _EMPTY = "\x01", "\x02"
"""Placeholders in words that a grammar parses.

The first represents a space inside a word, which does not separate a name from its value. The
second represents an empty word.
"""


@cache
def _splitter(name: str) -> ArgumentSplitter:
    return ArgumentSplitter(load_grammar(name))


def _taken(name: str, words: Sequence[str]) -> tuple[dict[str, str], list[str]] | None:
    """Parse words into options by short name, and operands, by the command's grammar.

    None for an option that the grammar lacks, or that is given twice with different values.
    """
    splitter = _splitter(name)
    options: dict[str, str] = {}
    operands: list[str] = []
    ended = False
    hidden = [word.replace(" ", _BLANK) or _EMPTY for word in words]
    for argument in splitter.arguments(hidden):
        text = argument.text
        if argument.joins_left or (text.startswith("-") and text != "-" and not ended):
            if text == "--":
                ended = True
                continue
            option = _option(splitter, text if text[0] == "-" else f"-{text}")
            if option is None or options.get(option[0], _shown(option[1])) != _shown(option[1]):
                return None
            options[option[0]] = _shown(option[1])
        else:
            operands.append(_shown(text))
            ended = ended or not splitter.permutes
    return options, operands


def _shown(text: str) -> str:
    return text.replace(_BLANK, " ").replace(_EMPTY, "")


def _option(splitter: ArgumentSplitter, text: str) -> tuple[str, str] | None:
    """Return the short name of an option, and its value ("" without one).

    None for an option without a short name. None also for a missing or a superfluous value.
    """
    if text.startswith("--"):
        name, sign, value = text[2:].replace(" ", "=", 1).partition("=")
        spec, given = splitter.long(name), bool(sign)
    else:
        spec, value = splitter.shorts.get(text[1]), text[2:].removeprefix(" ")
        given = len(text) > 2
    if spec is None or not spec.shorts or (given, spec.value) in _IMPOSSIBLE:
        return None
    return spec.shorts[0], value


_IMPOSSIBLE = frozenset({(True, "none"), (False, "required")})
"""Invalid pairs: whether a value is given, and whether the option takes one."""
