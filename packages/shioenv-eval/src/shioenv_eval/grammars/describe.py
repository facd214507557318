"""Description of an input: the role of each argument, and whether the grammar derives it."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from itertools import combinations, zip_longest
from typing import Any

from shioenv.bash.builtins import DECLARING
from shioenv.bash.words import is_assignment, n_assignments, split_words, substitutions
from shioenv.domain.inputs import REDIRECTIONS, SEPARATORS, Argument, Role, Token, join
from shioenv.errors import UnboundTokenError
from shioenv.grammar.arguments import ArgumentSplitter, ends_command
from shioenv.grammar.bind import bind
from shioenv.grammar.library import OwnGrammars, grammars_of_system, load_grammars
from shioenv.grammar.parse import (
    NESTED_DEPTH,
    InputParser,
    command_place,
)
from shioenv.grammar.symbols import Grammar
from shioenv.synthesis.usage_tables import COUNTS, INDEXED, OF_COMMAND, CommandUsage, Usage, form
from shioenv.system.catalogue import catalogue
from shioenv.system.store import System
from shioenv_eval.grammars.recognise import Recogniser

_ASSIGNING = DECLARING | {"alias"}
"""Builtins whose operands may set a variable."""


class ArgumentKind(StrEnum):
    """The function of an argument in its command."""

    OPTION = "option"
    CLUSTER = "cluster"
    OPERAND = "operand"
    DASHES = "dashes"
    ASSIGNMENT = "assignment"


@dataclass(frozen=True, slots=True)
class DescribedArgument:
    """One removable argument.

    `text` includes its no-space marks. `option` is the option's name as written (`-n`, also of a
    flag in a cluster), None for other kinds. `value` is the option's value, None without a value.
    `derivable`: the command's grammar can derive this argument. `cause` is the reason if it cannot:
    "unknown option", "missing value", "unexpected value", "value" or "operand". `cause` is None if
    it can, or if the command has no grammar. `spelling` is the form of an option: "short",
    "cluster" or "long". With a value, " separate", " joined" or " =" follows. `spelling` is None
    for other kinds. `value_kind` is the kind of an option's value, or None.
    """

    text: str
    kind: ArgumentKind
    option: str | None
    value: str | None
    derivable: bool
    spelling: str | None = None
    value_kind: str | None = None
    cause: str | None = None


@dataclass(frozen=True, slots=True)
class DescribedSegment:
    """One command of an input.

    `operator` joins the segment to the one before (None for the first). `assignments` precede the
    command. `redirections` are pairs of operator and target (None for an operator without one:
    `2>&1`). `grammar` is the name of the command's grammar, or None. `derivable`: the grammar
    derives the whole command, with its options in any order. `digits`: the grammar has options that
    are digits (`-1`). `nested` are the commands run by this one (`find -exec`, `xargs`).
    `substituted` are the commands in its arguments' `$( )` and `<( )`. Nested and substituted
    commands are described by their own grammars, at most two levels deep.
    """

    operator: str | None
    assignments: tuple[str, ...]
    command: str
    grammar: str | None
    arguments: tuple[DescribedArgument, ...]
    redirections: tuple[tuple[str, str | None], ...]
    derivable: bool
    digits: bool = False
    nested: tuple[DescribedSegment, ...] = ()
    substituted: tuple[DescribedSegment, ...] = ()


@dataclass(frozen=True, slots=True)
class Description:
    """An input with its segments; `parsed` is False if Bash would reject it."""

    text: str
    parsed: bool
    segments: tuple[DescribedSegment, ...]


class Describer:
    """Describes inputs by one set of grammars; reuse it for many inputs.

    A nonterminal with a kind accepts any value of that kind. An unbound grammar accepts any word
    for a system token.
    """

    def __init__(self, grammars: Iterable[Grammar]) -> None:
        self._parser = InputParser(grammars)
        self._recogniser = cache(Recogniser)

    def describe(self, text: str) -> Description:
        """Describe any text. A text that Bash refuses is treated as one command with its words."""
        shell_input, parsed = self._parser.take_apart(text)
        segments = tuple(self._segments(shell_input.tokens))
        return Description(text, parsed, segments)

    def _segments(
        self, tokens: Sequence[Token], depth: int = NESTED_DEPTH
    ) -> Iterator[DescribedSegment]:
        operator: str | None = None
        current: list[Token] = []
        for token in tokens:
            if token.role is Role.OPERATOR and token.argument.text in SEPARATORS:
                if current:
                    yield self._segment(operator, current, depth)
                operator, current = token.argument.text, []
            else:
                current.append(token)
        if current:
            yield self._segment(operator, current, depth)

    def _segment(
        self, operator: str | None, tokens: Sequence[Token], depth: int
    ) -> DescribedSegment:
        written = next((token.argument.text for token in tokens if token.role is Role.COMMAND), "")
        before = split_words(written)
        n = n_assignments(before)
        command = " ".join(before[n:]) if n else written
        arguments = [token.argument for token in tokens if token.role is Role.ARGUMENT]
        words = [word for argument in arguments for word in split_words(argument.text)]
        grammar = self._parser.grammar(command, words)
        place = None if grammar is None else command_place(grammar, arguments)
        described: tuple[DescribedArgument, ...] = ()
        nested: tuple[DescribedSegment, ...] = ()
        derivable = False
        if grammar is None:
            described = tuple(self._arguments(command, None, arguments, place))
        else:
            name = command.rpartition("/")[2] if command.startswith("/") else command
            marked = [name, *(argument.marked for argument in arguments)]
            derivable = self._recogniser(grammar).derives_in_some_order(marked)
            described = tuple(self._arguments(command, grammar, arguments, place))
            if depth:
                described, nested = self._with_nested(
                    grammar, arguments, described, place, depth - 1
                )
        return DescribedSegment(
            operator=operator,
            assignments=tuple(before[:n]),
            command=command,
            grammar=None if grammar is None else grammar.name,
            arguments=described,
            redirections=tuple(_redirections(tokens)),
            derivable=derivable,
            digits=grammar is not None and _has_digits(grammar),
            nested=nested,
            substituted=tuple(self._substituted(grammar, arguments[:place], depth))
            if depth
            else (),
        )

    def _substituted(
        self, grammar: Grammar | None, arguments: Sequence[Argument], depth: int
    ) -> Iterator[DescribedSegment]:
        """Describe the commands in the substitutions of a command's own arguments."""
        runs = frozenset[str]() if grammar is None else self._parser.splitter(grammar).runs
        for argument in arguments:
            if argument.text.partition(" ")[0] not in runs:
                for text in filter(str.strip, substitutions(argument.text)):
                    yield from self._segments(self._parser.parse(text).tokens, depth - 1)

    def _with_nested(
        self,
        grammar: Grammar,
        arguments: Sequence[Argument],
        own: tuple[DescribedArgument, ...],
        place: int | None,
        depth: int,
    ) -> tuple[tuple[DescribedArgument, ...], tuple[DescribedSegment, ...]]:
        """Describe nested commands and return the arguments and these commands."""
        splitter = self._parser.splitter(grammar)
        described, nested = list(own), []
        for index, argument in enumerate(own):
            if argument.option in splitter.runs and argument.value is not None:
                words = split_words(argument.value)
                if len(words) < 2 or not ends_command(words):
                    continue
                segment = self._nested(words[:-1], depth)
                nested.append(segment)
                known = argument.derivable or _derived(segment)
                described[index] = replace(
                    argument, derivable=known, cause=None if known else argument.cause
                )
            elif index == place:
                segment = self._nested(split_words(join(arguments[index:])), depth)
                nested.append(segment)
                if _derived(segment):
                    described[index:] = [
                        replace(word, derivable=True, cause=None) for word in own[index:]
                    ]
                break
        return tuple(described), tuple(nested)

    def _nested(self, words: list[str], depth: int) -> DescribedSegment:
        command = Token(Argument(words[0]), Role.COMMAND)
        arguments = self._parser.arguments(words[0], words[1:], depth)
        tokens = [command, *(Token(argument, Role.ARGUMENT) for argument in arguments)]
        return self._segment(None, tokens, depth)

    def _arguments(
        self,
        command: str,
        grammar: Grammar | None,
        arguments: Sequence[Argument],
        place: int | None,
    ) -> Iterator[DescribedArgument]:
        """Describe each argument; the arguments from `place` on are a nested command."""
        splitter = None if grammar is None else self._parser.splitter(grammar)
        assigning = command in _ASSIGNING
        if grammar is not None:
            assigning = "assignment" in grammar.header.traits.roles
        options_end = False
        for index, argument in enumerate(arguments):
            text = argument.text
            option: str | None = None
            value: str | None = None
            spelling: str | None = None
            if place is not None and index >= place:
                kind = ArgumentKind.OPERAND
            elif argument.joins_left or argument.joins_right:
                kind, option = ArgumentKind.CLUSTER, f"-{text.lstrip('-')[:1]}"
                rest = text.lstrip("-")[1:]
                value = rest.strip() or None
                spelling = "cluster" + _attached(rest)
            elif text == "--" and not options_end:
                kind = ArgumentKind.DASHES
                options_end = splitter is None or splitter.dashes_end_options
            elif options_end or text == "-" or not text.startswith("-"):
                assigns = assigning and is_assignment(text)
                kind = ArgumentKind.ASSIGNMENT if assigns else ArgumentKind.OPERAND
                permutes = splitter is None or splitter.permutes
                options_end = options_end or not (permutes or assigns)
            else:
                kind = ArgumentKind.OPTION
                option, value = _option(splitter, text)
                form = "long" if option.startswith("--") else "short"
                spelling = form + _attached(text[len(option) :])
            derivable, cause, value_kind = False, None, None
            if grammar is not None:
                recogniser = self._recogniser(grammar)
                derivable = recogniser.derives_argument(argument.marked)
                if option is not None and value is not None:
                    value_kind = recogniser.kind_of_value(option, value)
                if not derivable:
                    cause = recogniser.cause(option, value)
            yield DescribedArgument(
                argument.marked, kind, option, value, derivable, spelling, value_kind, cause
            )


@cache
def _has_digits(grammar: Grammar) -> bool:
    return any(letter.isdigit() for spec in grammar.options for letter in spec.shorts)


def _derived(segment: DescribedSegment) -> bool:
    return segment.grammar is not None and all(word.derivable for word in segment.arguments)


def _attached(rest: str) -> str:
    """Return how a value follows its option's name, as in `spelling`; "" without a value."""
    if not rest:
        return ""
    return " separate" if rest[0] == " " else " =" if rest[0] == "=" else " joined"


def _option(splitter: ArgumentSplitter | None, text: str) -> tuple[str, str | None]:
    """Split an option into name and value: `-n 5`, `-n5`, `--lines=5`, `--lines 5`, `-exec …`."""
    first = next(iter(split_words(text)), text)
    blank, rest = text[len(first) :][:1], text[len(first) + 1 :]
    if first.startswith("--"):
        name, sign, attached = first.partition("=")
        value = f"{attached}{blank}{rest}" if sign else rest
        return name, value if sign or blank else None
    if blank:
        return first, rest
    if splitter is not None and len(first) > 2:
        spec = splitter.shorts.get(first[1])
        whole = first[1:] in splitter.words or first in splitter.templates
        if spec is not None and spec.value != "none" and not whole:
            return first[:2], first[2:]
    return first, None


def _redirections(tokens: Sequence[Token]) -> Iterator[tuple[str, str | None]]:
    for token, following in zip_longest(tokens, tokens[1:]):
        if token.role is Role.OPERATOR:
            has_target = token.argument.text in REDIRECTIONS and following is not None
            yield token.argument.text, following.argument.text if has_target else None


def option_set(segment: DescribedSegment) -> str:
    """Return the options of a command, each once, sorted and joined by blanks."""
    return " ".join(sorted(set(option_names(segment))))


def option_names(segment: DescribedSegment) -> Iterator[str]:
    """Yield the options of a command in order, named as in a usage table: `-5` is `-NUM`."""
    for argument in segment.arguments:
        if argument.option is not None:
            known = _NUMBER.fullmatch(argument.text) and argument.spelling == "short"
            single = known and len(argument.text) == 2 and segment.digits
            yield "-NUM" if known and not single else argument.option


_NUMBER = re.compile(r"-[0-9]+[a-zA-Z]?")


def shape(description: Description) -> str:
    """Return an input's grammars and operators: `du | sort >`; "" if a grammar is unknown."""
    parts: list[str] = []
    for segment in description.segments:
        if segment.grammar is None:
            return ""
        if segment.operator is not None:
            parts.append(segment.operator)
        parts.append(segment.grammar)
        parts += [operator for operator, _ in segment.redirections]
    return " ".join(parts)


def count_usage(descriptions: Iterable[Description], about: str) -> Usage:
    """Count the usage of commands and options in inputs; `substitutions` are not counted.

    Commands without a grammar are omitted, and so are the shapes of their inputs.
    """
    counts: dict[str, Counter[str]] = {name: Counter() for name in COUNTS}
    commands: dict[str, dict[str, Any]] = defaultdict(
        lambda: {
            name: defaultdict(Counter) if name in INDEXED else Counter() for name in OF_COMMAND
        }
    )
    for description in descriptions:
        segments = description.segments
        counts["commands"][str(len(segments))] += 1
        if (whole := shape(description)) and " " in whole:
            counts["shapes"][whole] += 1
        for index, segment in enumerate(segments):
            before = segments[index - 1].grammar if index else None
            if segment.grammar is None:
                continue
            counts["utilities"][segment.grammar] += 1
            if before is not None:
                counts["follows"][f"{before} {segment.operator} {segment.grammar}"] += 1
            for operator, target in segment.redirections:
                if target is not None:
                    counts["targets"][f"{operator} {form(target)}"] += 1
            _count_command(commands[segment.grammar], segment)
    made = {
        name: CommandUsage(**{part: dict(counted) for part, counted in parts.items()})
        for name, parts in sorted(commands.items())
    }
    return Usage(about=about, by_command=made, **{name: dict(counts[name]) for name in COUNTS})


def _count_command(parts: dict[str, Any], segment: DescribedSegment) -> None:
    names = list(option_names(segment))
    options = option_set(segment)
    parts["option_sets"][options] += 1
    parts["n_options"][str(len(set(names)))] += 1
    parts["options"].update(set(names))
    parts["pairs"].update(map(" ".join, combinations(options.split(), 2)))
    for argument in segment.arguments:
        if argument.option is not None:
            spelling, _, style = (argument.spelling or "short").partition(" ")
            parts["spellings"][spelling] += 1
            if style:
                parts["styles"][argument.option][style] += 1
    parts["nested"].update(one.grammar for one in segment.nested if one.grammar is not None)
    place = "piped" if segment.operator == "|" else "operands"
    parts[place][options][" + ".join(map(form, operand_texts(segment.arguments)))] += 1


def operand_texts(arguments: Iterable[DescribedArgument]) -> Iterator[str]:
    """Yield the texts of the operands (including assignments) among arguments."""
    for argument in arguments:
        if argument.kind in {ArgumentKind.OPERAND, ArgumentKind.ASSIGNMENT}:
            yield argument.text


def grammars_on(system: System, own: OwnGrammars | None = None) -> tuple[Grammar, ...]:
    """Load shipped and user-supplied grammars and bind them in the system's start directory.

    The first start directory of the built system is used. A grammar that allows no input there
    stays unbound. Without `own`, grammars of the system's own programs are added.
    """
    own = own or grammars_of_system(system.name)
    values = catalogue(system, system.declaration.session.start_directories[0])
    loaded = load_grammars(host_clock=system.host_clock, own=own)
    grammars = {grammar.name: grammar for grammar in loaded}
    for name, grammar in grammars.items():
        with suppress(UnboundTokenError):
            grammars[name] = bind(grammar, values)
    return tuple(grammars.values())
