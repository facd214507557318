"""Parsing of programs for composition, and Bash's errors for text with invalid syntax."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

from shioenv.bash.program import (
    Command,
    Coprocess,
    For,
    Function,
    Program,
    Redirected,
    Simple,
    Source,
)
from shioenv.bash.read import Reader, read
from shioenv.bash.scan import Refused
from shioenv.bash.walk import pipelines, redirects_of
from shioenv.domain.runner import State
from shioenv.errors import Abstained
from shioenv_model.bash.work import spend

REFUSED = 0.95
"""Lower bound of the accuracy of answers for texts with invalid syntax (measured on mutated
inputs)."""

_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_FUNCTION = re.compile(r"[\w.:+@%,/!?=~^*#\[\]{}-]+")


def read_program(text: str, *, extended: bool = False) -> Program:
    """Parse a text; the program is empty if there is no command.

    `extended`: words may contain extended patterns, as in `@(a|b)`.

    Errors: Abstained for invalid syntax, with its place, and for unsupported constructs.
    """
    return read_source(text, extended=extended).program


def read_source(text: str, *, extended: bool = False) -> Source:
    """Parse a text into its source, including the program. Errors: see `read_program`."""
    spend(len(text))
    return _source(text, extended=extended)


@lru_cache(maxsize=512)
def _source(text: str, *, extended: bool = False) -> Source:
    source = read(text, extended=extended)
    for pipeline in pipelines(source.program):
        if pipeline.timed or not pipeline.stages:
            raise _beyond("time, or ! alone,")
        for stage in pipeline.stages:
            _refuse_beyond(stage)
    return source


@dataclass(frozen=True, slots=True)
class Broken:
    """A text with invalid syntax. Bash runs the lines before the error."""

    program: Program
    """The lines before the command with the error."""
    said: str
    line: int
    shown: str
    """The line with the error, if Bash shows it."""

    def message(self, place: str, above: int = 0) -> bytes:
        """Return Bash's error; `place` precedes the line number, to which `above` is added."""
        place = f"{place}line {self.line + above}: "
        return os.fsencode(f"{place}{self.said}\n" + (self.shown and f"{place}{self.shown}\n"))


def broken(refused: Refused, text: str) -> Broken | None:
    """Return the parts of a text with invalid syntax; None if no rule applies."""
    lines = text.split("\n")
    for end in range(text.count("\n", 0, refused.place), -1, -1):
        head, rest = "\n".join(lines[:end]), "\n".join(lines[end:])
        try:
            program = read_program(head)
            read_program(rest)
        except Refused as wrong:
            if wrong.text != rest:
                continue
            found = syntax_error(wrong, rest)
            if found is None:
                return None
            said, line = found
            near, below = "near" in said, rest.splitlines()[line - 1 :]
            if near and not below:
                return None
            shown = f"`{below[0]}'" if near else ""
            return Broken(program, said, line + end, shown)
        except Abstained:
            return None
    return None


def _refuse_beyond(command: Command) -> None:
    if isinstance(command, Coprocess):
        raise _beyond("coproc")
    if isinstance(command, For) and not _NAME.fullmatch(command.name):
        raise _beyond(f"a loop over {command.name!r}")
    if isinstance(command, Function) and not _FUNCTION.fullmatch(command.name):
        raise _beyond("this definition of a function")
    for redirect in redirects_of(command):
        if isinstance(redirect.descriptor, str):
            raise _beyond("a descriptor in a variable")
        if redirect.operator == "<<" and not redirect.ended:
            raise _beyond("a here-document that never ends")
    if isinstance(command, Redirected):
        _refuse_beyond(command.command)
    elif isinstance(command, Function):
        _refuse_beyond(command.body)


def _beyond(what: str) -> Abstained:
    return Abstained(
        f"{what} cannot be composed from answers to single commands",
        hint="use a runner that answers whole inputs",
    )


def known_functions(state: State) -> dict[str, Function]:
    """Return the shell's functions in a state, by name.

    Functions from earlier inputs keep the line numbers of those inputs; functions from files have
    the line numbers of their files.
    """
    typed = defined(state.history)
    functions: dict[str, Function] = {}
    document = state.before.document
    for name, body in document.get("functions", {}).items():
        with suppress(Abstained, RecursionError):
            program = _source(f"{name} () {body}").program
            command = program[0].pipelines[0][1].stages[0]
            if isinstance(command, Function):
                functions[name] = typed.get(name, command)
    return {**typed, **functions}


@lru_cache(maxsize=64)
def defined(history: tuple[str, ...]) -> Mapping[str, Function]:
    """Return the functions defined by earlier inputs, by name; the last definition wins.

    Functions defined inside another command are not included.
    """
    found: dict[str, Function] = {}
    for text in history:
        try:
            program = _source(text).program
        except (Abstained, RecursionError):
            continue
        alone = (pipeline.stages for job in program for _, pipeline in job.pipelines)
        for command in [stages[0] for stages in alone if len(stages) == 1]:
            if isinstance(command, Function):
                found[command.name] = command
            elif isinstance(command, Simple) and command.words[:1] == ("unset",):
                for name in command.words[1:]:
                    found.pop(name, None)
    return found


_UNCLOSED = re.compile(r"a (\S+) is never closed")
_SUBSCRIPT = re.compile(r"\w\[[^]\s]*[() ]")
"""A subscript that this parser may divide into words."""
_CASE = re.compile(r"\bcase\s+\S+\s+in(?:\s+[^\s(]+)?$")
"""The beginning of a `case` that ends after `in`, or in its first pattern."""
_DEFINES = re.compile(r"[\w-]+\s*\(")
"""The beginning of a function, up to its parenthesis."""
_CLOSING = {"${": "}", "$(": ")"}
_CONDITION = re.compile(r"\]\] is missing|an expression is missing|no operand$|no operator$")


def syntax_error(refused: Refused, text: str) -> tuple[str, int] | None:
    """Return Bash's message, without its prefix, and the line number; None if unknown.

    The text must begin with the command that cannot be parsed: the lines before that command are
    left out.
    """
    line = text.rstrip(" \t\n")
    if not line or refused.text != text:
        return None
    unclosed = _UNCLOSED.fullmatch(refused.why)
    if unclosed:
        mark = _CLOSING.get(unclosed[1], unclosed[1])
        if mark not in {'"', "'", "`", "}", ")"} or "\n" in line:
            return None
        said = f"unexpected EOF while looking for matching `{mark}'"
        return said, 2 if unclosed[1] == "$(" else 1
    if _CONDITION.search(refused.why) or "[[" in line or "((" in line or _SUBSCRIPT.search(line):
        return None
    place = refused.place
    if refused.why == "( after a word":
        place += 1
    token = _token(text, place)
    if token is None:
        return None
    if not token:
        begun = _CASE.search(line) or _DEFINES.fullmatch(line)
        if refused.why != (") is missing" if begun else "a word is missing"):
            return "syntax error: unexpected end of file", line.count("\n") + 2
        token = "newline"
    return f"syntax error near unexpected token `{token}'", text.count("\n", 0, place) + 1


def _token(text: str, place: int) -> str | None:
    """Return the token at an offset; empty at the end, None if it cannot be parsed."""
    reader = Reader(text, place)
    try:
        token = reader.peek()
        return reader.text[reader.place : reader.word_end(reader.place)] or token
    except Refused:
        return None
