"""What words of an input name: files, directories, users, hosts; told by the grammars."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib.resources import files
from typing import Any

from shioenv.bash.places import Places
from shioenv.bash.words import split_words
from shioenv.files.documents import parse_toml
from shioenv.grammar.describe import DescribedSegment, Describer, Kind
from shioenv.grammar.library import load_grammars
from shioenv.grammar.spelling import plain

OF_KIND = frozenset(
    {"path", "owner", "user", "users", "group", "host", "url", "interface", "pid", "glob"}
)
"""Kinds of the grammars that are roles of options' values."""


@cache
def tables() -> Mapping[str, Mapping[str, Any]]:
    """The tables of `operands.toml`."""
    path = files("shioenv.evaluation").joinpath("adapting/operands.toml")
    return parse_toml(path.read_bytes())


@cache
def _describer() -> Describer:
    return Describer(load_grammars())


def roles_of(places: Places) -> dict[str, str]:
    """The role of each word of an input, by its text as it is written; the first that is told."""
    found: dict[str, str] = {}
    for word in places.words:
        if word.sign:
            found.setdefault(word.text, "file" if word.sign.startswith("<") else "new")
    for command in places.commands:
        with suppress(RecursionError):  # thousands of operands: they stay as they are
            for segment in _describer().describe(command).segments:
                for text, role in _of_segment(segment):
                    found.setdefault(text, role)
    return found


def _of_segment(segment: DescribedSegment) -> Iterator[tuple[str, str]]:
    name = segment.grammar or plain(segment.command).rpartition("/")[2]
    options = {argument.option for argument in segment.arguments if argument.option}
    made = set(tables()["new"].get(name, ()))
    creating = not options.isdisjoint(tables()["creating"].get(name, ()))
    directories = name == "find" and any(
        (each.option, each.value) == ("-type", "d") for each in segment.arguments
    )
    for argument in segment.arguments:
        if argument.option is not None and argument.value is not None:
            role = argument.value_kind if argument.value_kind in OF_KIND else None
            if argument.option in made or (creating and argument.option in ("-f", "--file")):
                role = "new"
            if argument.option in tables()["directory"].get(name, ()):
                role = "directory"
            if role == "glob" and name == "find":
                named = argument.option in ("-name", "-iname")
                role = ("directory glob" if directories else "glob") if named else None
            if role is not None:
                yield argument.value, role
    if segment.grammar not in ("xargs", "env"):  # theirs are the command that they run
        yield from _operands(name, segment, options)
    for nested in segment.nested:
        yield from _of_segment(nested)


def _operands(name: str, segment: DescribedSegment, options: set[str]) -> Iterator[tuple[str, str]]:
    arguments = [word.text for word in segment.arguments if word.kind is Kind.OPERAND]
    operands = [split_words(text)[-1] for text in arguments]  # `dev eth0` is one argument
    roles = list(tables()["operands"].get(name, ("text",)))
    if len(roles) > 1 and not options.isdisjoint(tables()["given"].get(name, ())):
        roles = roles[1:]
    if not options.isdisjoint(tables()["recursive"].get(name, ())):
        roles = ["tree" if role == "path" else role for role in roles]
    if name == "mkdir" and not options.isdisjoint(("-p", "--parents")):
        roles = ["made"]
    if name == "dd":
        pairs = [text.partition("=") for text in operands]
        yield from ((value, "new" if key == "of" else "file") for key, _, value in pairs
                    if key in ("if", "of"))  # fmt: skip
    creates = False
    if name == "tar" and operands[:1] == [segment.arguments[0].text] and _is_letters(operands[0]):
        creates = "c" in operands[0]
        operands = operands[1:]
    for index, text in enumerate(operands):
        role = roles[min(index, len(roles) - 1)]
        if index and index == len(operands) - 1:
            role = tables()["last"].get(name, role)
        if creates and not index:
            role = "new"
        if role != "text":
            yield text, role


def _is_letters(word: str) -> bool:
    """Whether it is tar's first operand in the old style: `xvf`."""
    return word.isalpha() and set(word) <= set("cxtruAdvfzjJkpmhO") and word[:1] in "cxtruAvz"
