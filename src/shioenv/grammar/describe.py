"""An input taken apart and explained: what each argument is, and whether the grammar derives it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from itertools import zip_longest

from shioenv.domain.argument import Argument
from shioenv.domain.inputs import REDIRECTIONS, SEPARATORS, Role, Token
from shioenv.grammar.arguments import ArgumentSplitter
from shioenv.grammar.parse import InputParser, is_assignment, n_assignments
from shioenv.grammar.recognise import Recogniser
from shioenv.grammar.symbols import Grammar
from shioenv.grammar.words import split_words

_ASSIGNING = frozenset({"alias", "declare", "env", "export", "local", "readonly", "typeset"})
"""Commands whose operands may set a variable."""


class Kind(StrEnum):
    """What an argument does in its command."""

    OPTION = "option"
    CLUSTER = "cluster"
    OPERAND = "operand"
    DASHES = "dashes"
    ASSIGNMENT = "assignment"


@dataclass(frozen=True, slots=True)
class DescribedArgument:
    """One removable argument.

    `text` carries its no-space marks. `option` is the option's name as written (`-n`, also of a
    flag in a cluster), None for other kinds; `value` its value, None where it has none. `derivable`
    says whether the command's grammar can write this argument.
    """

    text: str
    kind: Kind
    option: str | None
    value: str | None
    derivable: bool


@dataclass(frozen=True, slots=True)
class DescribedSegment:
    """One command of an input.

    `operator` is what joins it to the one before (None for the first), `assignments` stand before
    the command, `redirections` are pairs of operator and target (None where it has none: `2>&1`).
    `grammar` names the grammar that knows the command, None where none does. `derivable` says that
    the grammar derives the whole command, its options in any order.
    """

    operator: str | None
    assignments: tuple[str, ...]
    command: str
    grammar: str | None
    arguments: tuple[DescribedArgument, ...]
    redirections: tuple[tuple[str, str | None], ...]
    derivable: bool


@dataclass(frozen=True, slots=True)
class Description:
    """An input with its segments; `parsed` says whether the Bash parser could read all of it."""

    text: str
    parsed: bool
    segments: tuple[DescribedSegment, ...]


class Describer:
    """Describes inputs by one set of grammars; reuse it for many inputs.

    Grammars that are not bound to a system accept any name where a system token stands.
    """

    def __init__(self, grammars: Iterable[Grammar]) -> None:
        self._parser = InputParser(grammars)
        self._recogniser = cache(Recogniser)

    def describe(self, text: str) -> Description:
        """The description of any text: what no parser takes apart is one command with words."""
        shell_input, parsed = self._parser.take_apart(text)
        segments = tuple(self._segments(shell_input.tokens))
        return Description(text, parsed, segments)

    def _segments(self, tokens: Sequence[Token]) -> Iterator[DescribedSegment]:
        operator: str | None = None
        current: list[Token] = []
        for token in tokens:
            if token.role is Role.OPERATOR and token.argument.text in SEPARATORS:
                if current:
                    yield self._segment(operator, current)
                operator, current = token.argument.text, []
            else:
                current.append(token)
        if current:
            yield self._segment(operator, current)

    def _segment(self, operator: str | None, tokens: Sequence[Token]) -> DescribedSegment:
        written = next((token.argument.text for token in tokens if token.role is Role.COMMAND), "")
        before = split_words(written)
        n = n_assignments(before)
        command = " ".join(before[n:]) if n else written
        arguments = [token.argument for token in tokens if token.role is Role.ARGUMENT]
        words = [word for argument in arguments for word in split_words(argument.text)]
        grammar = self._parser.grammar(command, words)
        derivable = False
        if grammar is not None:
            name = command.rpartition("/")[2] if command.startswith("/") else command
            marked = [name, *(argument.marked for argument in arguments)]
            derivable = self._recogniser(grammar).derives_in_some_order(marked)
        return DescribedSegment(
            operator=operator,
            assignments=tuple(before[:n]),
            command=command,
            grammar=None if grammar is None else grammar.name,
            arguments=tuple(self._arguments(command, grammar, arguments)),
            redirections=tuple(_redirections(tokens)),
            derivable=derivable,
        )

    def _arguments(
        self, command: str, grammar: Grammar | None, arguments: Sequence[Argument]
    ) -> Iterator[DescribedArgument]:
        splitter = None if grammar is None else self._parser.splitter(grammar)
        options_end = False
        for argument in arguments:
            text = argument.text
            option: str | None = None
            value: str | None = None
            if argument.joins_left or argument.joins_right:
                kind, option = Kind.CLUSTER, f"-{text.lstrip('-')[:1]}"
                value = text.lstrip("-")[1:].strip() or None
            elif text == "--" and not options_end:
                kind = Kind.DASHES
                options_end = splitter is None or splitter.dashes_end_options
            elif options_end or text == "-" or not text.startswith("-"):
                assigns = command in _ASSIGNING and is_assignment(text)
                kind = Kind.ASSIGNMENT if assigns else Kind.OPERAND
                permutes = splitter is None or splitter.permutes
                options_end = options_end or not (permutes or assigns)
            else:
                kind = Kind.OPTION
                option, value = _option(splitter, text)
            derivable = False
            if grammar is not None:
                derivable = self._recogniser(grammar).derives_argument(argument.marked)
            yield DescribedArgument(argument.marked, kind, option, value, derivable)


def _option(splitter: ArgumentSplitter | None, text: str) -> tuple[str, str | None]:
    """The name and the value of an option: `-n 5`, `-n5`, `--lines=5`, `--lines 5`, `-exec …`."""
    first, blank, rest = text.partition(" ")
    if first.startswith("--"):
        name, sign, attached = first.partition("=")
        value = f"{attached}{blank}{rest}" if sign else rest
        return name, value if sign or blank else None
    if blank:
        return first, rest
    if splitter is not None and len(first) > 2:
        spec = splitter.shorts.get(first[1])
        whole = first[1:] in splitter.words or first in {*splitter.literals, *splitter.templates}
        if spec is not None and spec.value != "none" and not whole:
            return first[:2], first[2:]
    return first, None


def _redirections(tokens: Sequence[Token]) -> Iterator[tuple[str, str | None]]:
    for token, following in zip_longest(tokens, tokens[1:]):
        if token.role is Role.OPERATOR:
            has_target = token.argument.text in REDIRECTIONS and following is not None
            yield token.argument.text, following.argument.text if has_target else None
