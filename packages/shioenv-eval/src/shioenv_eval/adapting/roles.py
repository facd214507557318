"""The roles of an input's words (a file, a user, a host), derived from the grammars."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from types import MappingProxyType

from shioenv.bash.words import split_words
from shioenv.grammar.kinds import KINDS
from shioenv.grammar.library import load_grammars, shipped_headers
from shioenv.grammar.spelling import received_form
from shioenv.grammar.traits import PATHS, RoleChange, Traits, read_operands
from shioenv_eval.grammars.describe import ArgumentKind, DescribedSegment, Describer
from shioenv_eval.places import Places

OF_KIND = frozenset(
    {"path", "owner", "user", "users", "group", "host", "url", "interface", "pid", "glob"}
)
"""Kinds of option values that are also roles."""

OF_OPERANDS = frozenset(PATHS) | (OF_KIND - {"glob"})
"""Roles of operands that refer to something on the system."""

_WRITTEN = frozenset({"output", "target"})
"""Roles of files that are created if missing: only their directory must exist."""

_PATTERN = RoleChange(("-e", "-f", "--regexp", "--file"), "pattern", "")
_WITHOUT_GRAMMAR: Mapping[str, str] = MappingProxyType(
    {
        "egrep": "pattern path*", "fgrep": "pattern path*", "gunzip": "file*", "unzip": "file*",
        "zcat": "file*",
    }
)  # fmt: skip
"""Operand roles of programs without a grammar, in the notation of grammar headers."""


@cache
def traits_of(name: str) -> Traits | None:
    """Return a program's traits, by grammar name or program name; None for an unknown program."""
    if name in _WITHOUT_GRAMMAR:
        operands = read_operands(_WITHOUT_GRAMMAR[name], KINDS)
        assert not isinstance(operands, str)
        return Traits(operands, (_PATTERN,), opens=True)
    header = shipped_headers().get(name)
    return None if header is None else header.traits


@cache
def _describer() -> Describer:
    return Describer(load_grammars())


def roles_of(places: Places) -> dict[str, str]:
    """Return the role of each word of an input that has one, keyed by the word as written.

    If a word occurs several times, its first role counts. Redirections come first, then the
    commands in order.
    """
    found: dict[str, str] = {}
    for word in places.words:
        if word.sign:
            found.setdefault(word.text, "file" if word.sign.startswith("<") else "new")
    for command in places.commands:
        with suppress(RecursionError):  # thousands of operands: these words get no role
            for segment in _describer().describe(command).segments:
                for text, role in _of_segment(segment):
                    found.setdefault(text, "new" if role in _WRITTEN else role)
    return found


def _of_segment(segment: DescribedSegment) -> Iterator[tuple[str, str]]:
    name = segment.grammar or received_form(segment.command).rpartition("/")[2]
    traits = traits_of(name) or Traits()
    options = {argument.option for argument in segment.arguments if argument.option}
    creating = name == "tar" and not options.isdisjoint(("-c", "--create", "-r", "-u"))
    directories = name == "find" and any(
        (each.option, each.value) == ("-type", "d") for each in segment.arguments
    )
    for argument in segment.arguments:
        if argument.option is not None and argument.value is not None:
            role = argument.value_kind if argument.value_kind in OF_KIND else None
            role = traits.role_of_value(argument.option) or role
            if creating and argument.option in ("-f", "--file"):
                role = "new"
            if role == "glob" and name == "find":
                named = argument.option in ("-name", "-iname")
                role = ("directory glob" if directories else "glob") if named else None
            if role is not None:
                yield argument.value, role
    yield from _operands(name, traits.with_options(options), segment)
    for nested in segment.nested:
        yield from _of_segment(nested)


def _operands(name: str, traits: Traits, segment: DescribedSegment) -> Iterator[tuple[str, str]]:
    arguments = [word.text for word in segment.arguments if word.kind is ArgumentKind.OPERAND]
    operands = [split_words(text)[-1] for text in arguments]  # `dev eth0` is one argument
    named = {operand.name: operand.role for operand in traits.operands if operand.name}
    for text in operands if named else ():
        key, _, value = text.partition("=")
        if key in named:
            yield value, named[key]
    creates = False
    if name == "tar" and operands[:1] == [segment.arguments[0].text] and _is_letters(operands[0]):
        creates = "c" in operands[0]
        operands = operands[1:]
    for index, (text, role) in enumerate(
        zip(operands, traits.roles_of(len(operands)), strict=True)
    ):
        if creates and not index:
            yield text, "new"
        elif role in OF_OPERANDS:
            yield text, role


def _is_letters(word: str) -> bool:
    """Whether a word is tar's first operand in the traditional style, such as `xvf`."""
    return word.isalpha() and set(word) <= set("cxtruAdvfzjJkpmhO") and word[:1] in "cxtruAvz"
