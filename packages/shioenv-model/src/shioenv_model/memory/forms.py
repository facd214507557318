"""A simple command in canonical form: its utility, options with one name each, and operands.

The grammars define which words are options, which options take values, and which names mean the
same option. Words are expanded by Bash's rules. Two spellings of one command have the same form.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

from shioenv.bash.words import is_assignment, n_assignments, unquoted
from shioenv.domain.inputs import Argument
from shioenv.domain.runner import State
from shioenv.errors import Abstained
from shioenv.grammar.arguments import ArgumentSplitter
from shioenv.grammar.library import COMMANDS, checked_grammar, names_of_grammars
from shioenv.grammar.notation import FaultyGrammarError
from shioenv.grammar.parse import InputParser
from shioenv.grammar.symbols import Grammar, Header, OptionSpec
from shioenv_model.bash.expand import Expander
from shioenv_model.bash.work import spend
from shioenv_model.composition.variables import Variables

UNKNOWN, UNKNOWN_LONG = "-?", "--?"
"""Names for an option that the program lacks: a one-letter option, and a long one."""

ASSIGNMENT = "="
"""The name under which an assignment before the command is listed among the options."""

_EMPTY = "''"
"""The representation of an empty word, because an argument is never empty."""

_NUMBER_OPTION = re.compile(r"-(\d+)")
_MOST_WORDS = 4_000
"""Maximum number of words of a form (our choice). Each word is looked up, and input may be
hostile."""


@dataclass(frozen=True, slots=True)
class Form:
    """A parsed simple command."""

    utility: str
    """The program's or builtin's base name; `ip` includes its object (`ip-addr`)."""
    command: str
    """The program or builtin as written."""
    options: tuple[tuple[str, str | None], ...]
    """Names and values in the order written. Each option has its first name in the grammar."""
    operands: tuple[str, ...]
    """The other words, expanded and without quotes."""
    filters: bool
    """Whether the program can read from a pipe."""
    matched: bool = False
    """Whether a word contains a pattern or a variable."""
    guessed: bool = False
    """Whether the expansion of a word is unknown."""
    order: tuple[tuple[str, str | None], ...] = field(default=(), compare=False)
    """Options and operands in the order written; an operand is a value with an empty name."""
    words: tuple[str, ...] = field(default=(), compare=False)
    """The words after the command, expanded."""
    roles: tuple[str, ...] = field(default=(), compare=False)
    """The roles of the operands from the grammar's header; empty without a grammar."""


class Forms:
    """Parses commands by the shipped grammars, each loaded on first use."""

    def __init__(self) -> None:
        self._names = frozenset(names_of_grammars())
        self._known = cache(self._load)

    def form(self, written: Sequence[str], state: State) -> Form | None:
        """Return the form of one simple command without redirections, in a state.

        `written` has its assignments and words as written. Return None if they contain no command.
        """
        spend(sum(map(len, written)))
        begin = n_assignments(written)
        options: list[tuple[str, str | None]] = [(ASSIGNMENT, each) for each in written[:begin]]
        if begin >= len(written) or is_assignment(written[begin]) or written[0].startswith("#"):
            return None
        expander = Expander(Variables(state))
        command = unquoted(written[begin])
        words: list[str] = []
        matched = guessed = False
        for word in written[begin + 1 :]:
            if not _is_plain(word):
                matched = matched or not _is_quoted(word)
                expanded = _expanded(word, expander)
                guessed |= expanded is None
                words += [unquoted(word)] if expanded is None else expanded
            else:
                words.append(word)
            if len(words) > _MOST_WORDS:
                break
        words = [word or _EMPTY for word in words[:_MOST_WORDS]]
        name = command.rstrip("/").rpartition("/")[2] or command
        known = self._known(name)
        if known is None:
            operands = [word for word in words if not word.startswith("-") or word == "-"]
            plain = [(word, None) for word in words if word.startswith("-") and word != "-"]
            mixed = (("", word) if word in operands else (word, None) for word in words)
            return Form(
                name, command, (*options, *plain), tuple(operands), False, matched, guessed,
                (*options, *mixed), tuple(words),
            )  # fmt: skip
        header, filters, splitter = known.of(name, words)
        operands = []
        order: list[tuple[str, str | None]] = list(options)
        ended = False
        for argument in splitter.arguments(words):
            ended = ended or (bool(operands) and not splitter.permutes)
            if argument.text == "--" and not ended:
                ended = splitter.dashes_end_options
            elif not ended and (argument.joins_left or _is_option(argument.text)):
                options.append(_option(argument, splitter))
                order.append(options[-1])
            else:
                operands.append("" if argument.text == _EMPTY else argument.text)
                order.append(("", operands[-1]))
        return Form(
            header.command,
            command,
            tuple(options),
            tuple(operands),
            filters,
            matched,
            guessed,
            tuple(order),
            tuple("" if word == _EMPTY else word for word in words),
            tuple(_roles(header, options, len(operands))),
        )

    def _load(self, name: str) -> _Known | None:
        names = [each for each in self._names if each == name or each.startswith(f"{name}-")]
        found = []
        for each in sorted(names):
            try:
                grammar = checked_grammar(each, COMMANDS, whole=False)
            except FaultyGrammarError:
                continue
            if name in grammar.command_tokens or f"{name} " in grammar.command_tokens:
                found.append(grammar)
        return _Known(found) if found else None


class _Known:
    """The grammars of one command. If there are several, the first words select one.

    A single grammar is not kept: its productions would fill much of a model's memory.
    """

    def __init__(self, grammars: Sequence[Grammar]) -> None:
        self._parts = {
            each.name: (each.header, each.pipe is not None, ArgumentSplitter(each))
            for each in grammars
        }
        self._first = grammars[0].name
        self._parser = InputParser(grammars) if len(grammars) > 1 else None

    def of(self, name: str, words: list[str]) -> tuple[Header, bool, ArgumentSplitter]:
        """Return the header, whether the command reads a pipe, and the splitter."""
        grammar = self._parser.grammar(name, words) if self._parser else None
        return self._parts[grammar.name if grammar else self._first]


def _roles(header: Header, options: Sequence[tuple[str, str | None]], count: int) -> Sequence[str]:
    """Return the roles of `count` operands for these options."""
    traits = header.traits.with_options(name for name, _ in options)
    return traits.roles_of(count) if traits.operands else ()


_SPECIAL = frozenset("\\'\"$`*?[{~<>(")


def _is_plain(word: str) -> bool:
    return not _SPECIAL.intersection(word)


def _is_quoted(word: str) -> bool:
    return len(word) > 1 and word[0] == word[-1] == "'" and "'" not in word[1:-1]


def _expanded(word: str, expander: Expander) -> list[str] | None:
    """Expand a word; None if the expansion is unknown."""
    if _is_quoted(word):
        return [word[1:-1]]
    try:
        return expander.fields(word)
    except (Abstained, ValueError, IndexError, RecursionError):
        return None


def _is_option(text: str) -> bool:
    return len(text) > 1 and text[0] == "-"


def _option(argument: Argument, splitter: ArgumentSplitter) -> tuple[str, str | None]:
    """Return an option's canonical name and its value."""
    text = f"-{argument.text}" if argument.joins_left else argument.text
    head, _, value = text.partition(" ")
    number = _NUMBER_OPTION.fullmatch(text)
    if number and number[1][0] not in splitter.shorts:
        return "-#", number[1]
    if head.startswith("--"):
        name, sign, _ = head[2:].partition("=")
        spec = splitter.long(name)
        given = text.partition("=")[2] if sign else value
        if spec is None:
            return UNKNOWN_LONG, head
        return _named(spec, head), given if sign or " " in text else None
    if head[1:] in splitter.words:
        return _named(splitter.words[head[1:]], head), value if " " in text else None
    spec = splitter.shorts.get(head[1:2])
    if spec is None or spec.value == "none" or len(head) == 2:  # `-f1` in a production is `-f 1`
        literal = head in splitter.literals or head in splitter.runs
        if literal or splitter.templated(text.split(" "), 0):
            return head, value if " " in text else None
    if spec is None:
        return UNKNOWN, text[1:]
    rest = text[2:]
    if not rest:
        return _named(spec, head), None
    value = rest if rest == " " else rest.removeprefix(" ")  # `-d' '` is not `-d ''`
    return _named(spec, head), "" if value == _EMPTY else value


def _named(spec: OptionSpec, written: str) -> str:
    return spec.names[0] if spec.names else written
