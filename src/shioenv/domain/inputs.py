"""An input, its segments and its sub-inputs; a session of inputs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from shioenv.domain.argument import Argument, join
from shioenv.errors import InputError

SEPARATORS = frozenset({"&&", "||", "|", "|&", ";", "&"})
"""Operators after which a new command starts."""

REDIRECTIONS = frozenset({">", ">>", ">|", "<", "<<<", "<>", "1>", "1>>", "2>", "2>>", "&>", "&>>"})
"""Operators that are followed by a target."""

DUPLICATIONS = frozenset({"2>&1", "1>&2", ">&2"})
"""Redirections that are complete by themselves."""

OPERATORS = SEPARATORS | REDIRECTIONS | DUPLICATIONS

_WHOLE_REDIRECTION = re.compile(
    r"(\d+|\{\w+\})?(&>>|&>|<<<|<>|<&|>&|>>|>\||<|>)(?![\s(]).+", re.ASCII | re.DOTALL
)
"""A rare redirection that is one token, target included: `3>&-`, `<&3`, `4>log`; not `<(ls)`."""


def is_operator(text: str) -> bool:
    """Whether the text of a whole token without marks is an operator: `&&`, `>`, `3>&-`."""
    return text in OPERATORS or (
        ("<" in text or ">" in text) and _WHOLE_REDIRECTION.fullmatch(text) is not None
    )


class Role(StrEnum):
    """What a token does in an input. Only an `ARGUMENT` is ever removed."""

    COMMAND = "command"
    ARGUMENT = "argument"
    OPERATOR = "operator"
    TARGET = "target"


@dataclass(frozen=True, slots=True)
class Token:
    """One token of an input: its text with marks, and its role."""

    argument: Argument
    role: Role


@dataclass(frozen=True, slots=True)
class Segment:
    """One command of an input with its removable arguments (operators and targets left out).

    `command` is "" where the segment has none (`> file` is a valid input).
    """

    command: str
    arguments: tuple[Argument, ...]


@dataclass(frozen=True, slots=True)
class Input:
    """One row of shell input: commands and arguments, composed by operators.

    A segment is what stands between two separators (`&& || | ;`). Tokens are taken as they come:
    an input that bash will refuse is a valid Input, its error is its behavior.
    """

    tokens: tuple[Token, ...]

    @classmethod
    def single(cls, command: str, arguments: Iterable[Argument] = ()) -> Input:
        """An input of one command."""
        tokens = (Token(argument, Role.ARGUMENT) for argument in arguments)
        return cls((Token(Argument(command), Role.COMMAND), *tokens))

    @classmethod
    def from_marked(cls, input_args: Sequence[str]) -> Input:
        r"""The input whose `input_args` these are.

        An operator is recognised only as a whole token: `-exec ls {} \;` holds none. A rare
        redirection is one token with its target (`3>&-`). The token after another redirection is
        its target. The first other token of a segment is its command. Errors: InputError for a
        token without text.
        """
        tokens = []
        wants_command, wants_target = True, False
        for marked in input_args:
            argument = Argument.parse(marked)
            plain = not (argument.joins_left or argument.joins_right)
            if plain and not wants_target and is_operator(argument.text):
                role = Role.OPERATOR
                wants_command = wants_command or argument.text in SEPARATORS
                wants_target = argument.text in REDIRECTIONS
            elif wants_target:
                role, wants_target = Role.TARGET, False
            elif wants_command:
                role, wants_command = Role.COMMAND, False
            else:
                role = Role.ARGUMENT
            tokens.append(Token(argument, role))
        return cls(tuple(tokens))

    @property
    def text(self) -> str:
        """The line bash is given, without the session's `cd`."""
        return join(token.argument for token in self.tokens)

    @property
    def input_args(self) -> list[str]:
        """Every token with its marks, the command first (operators and targets included)."""
        return [token.argument.marked for token in self.tokens]

    @property
    def n_arguments(self) -> int:
        """How many arguments can be removed, over all segments."""
        return sum(token.role is Role.ARGUMENT for token in self.tokens)

    @property
    def operators(self) -> tuple[str, ...]:
        """The operators in order."""
        return tuple(t.argument.text for t in self.tokens if t.role is Role.OPERATOR)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The commands in order, each with its removable arguments."""
        segments = []
        for start, stop in self.spans():
            tokens = self.tokens[start:stop]
            command = next((t.argument.text for t in tokens if t.role is Role.COMMAND), "")
            arguments = tuple(t.argument for t in tokens if t.role is Role.ARGUMENT)
            segments.append(Segment(command, arguments))
        return tuple(segments)

    def keep(self, kept: Iterable[int], segment: int | None = None) -> Input:
        """The sub-input s[O]: only the removable arguments with an index in `kept`, order kept.

        Indices count the removable arguments of the whole input from 0, or those of `segment` alone
        (then every other segment stays whole). Commands, operators and targets always stay.
        Errors: InputError for an index or a segment that does not exist.
        """
        wanted = frozenset(kept)
        start, stop = (0, len(self.tokens)) if segment is None else self._span(segment)
        tokens = list(self.tokens[:start])
        index = 0
        for token in self.tokens[start:stop]:
            if token.role is Role.ARGUMENT:
                if index in wanted:
                    tokens.append(token)
                index += 1
            else:
                tokens.append(token)
        if wanted and not (min(wanted) >= 0 and max(wanted) < index):
            raise InputError(
                f"cannot keep arguments {sorted(wanted)} of {index}",
                hint="indices run from 0 to one less than the number of removable arguments",
            )
        return Input((*tokens, *self.tokens[stop:]))

    def through(self, segment: int) -> Input:
        """The prefix that ends with this segment, its redirections included.

        The last segment's prefix is the whole input. InputError for a segment that does not exist.
        """
        stop = self._span(segment)[1]
        last = segment == len(list(self.spans())) - 1
        return self if last else Input(self.tokens[:stop])

    def spans(self) -> Iterator[tuple[int, int]]:
        """Where each segment starts and stops; empty ones (between two separators) are none."""
        start = 0
        for index, token in enumerate(self.tokens):
            if token.role is Role.OPERATOR and token.argument.text in SEPARATORS:
                if index > start:
                    yield start, index
                start = index + 1
        if len(self.tokens) > start:
            yield start, len(self.tokens)

    def _span(self, segment: int) -> tuple[int, int]:
        spans = list(self.spans())
        if not 0 <= segment < len(spans):
            raise InputError(f"no segment {segment}: the input has {len(spans)}")
        return spans[segment]


@dataclass(frozen=True, slots=True)
class Session:
    """A start directory and the inputs typed in it, one row each, after those of its history."""

    cwd: str
    rows: tuple[Input, ...]
    history: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """What a record calls its input: `cd /home/ubuntu; ls -la`, further rows on own lines."""
        return started(self.cwd, self.body)

    @property
    def body(self) -> str:
        """The same without the `cd`: the rows, each on a line of its own."""
        return "\n".join(row.text for row in self.rows)


def started(cwd: str, text: str) -> str:
    """What is executed for an input in a start directory, and what a record calls it (E16)."""
    return f"cd {shlex.quote(cwd)}; {text}"


_START = re.compile(r"cd[ \t]+((?:'[^']*'|\"'\"|[^\s;'\"\\])+)[ \t]*;\s*(?=\S)")
"""A `cd` with one word as `shlex.quote` writes it, and something after it."""


def session_text(cwd: str, shell_input: Input) -> str:
    """What a record calls its input; without the `cd` where it is unknown where the input ran."""
    return started(cwd, shell_input.text) if cwd else shell_input.text


def without_start(text: str) -> tuple[str, str]:
    """The start directory that an input's leading `cd` names, and the input without it.

    The directory is "" and the input whole where the directory's name alone could not put the `cd`
    before it again. So `cd ~; ls` goes elsewhere than `cd '~'; ls`.
    """
    match = _START.match(text)
    if match is not None:
        directory = "".join(shlex.split(match[1]))
        if directory and shlex.quote(directory) == match[1]:
            return directory, text[match.end() :]
    return "", text
