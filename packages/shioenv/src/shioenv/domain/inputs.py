"""An input: its arguments, its segments, its sub-inputs, sessions of inputs.

A list of arguments must stay valid shell input whichever of its members are removed. So bundled
short options are kept apart and carry marks instead (Appendix A): `-l<ns>`, `<ns>a<ns>`, `<ns>T 32`
is `-laT 32`. The list still means something without its first or its second member.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from shioenv.errors import InputError

MARK = "<ns>"
_LITERAL = re.compile(r"<(\\*)ns>")
_ESCAPED = re.compile(r"<\\(\\*)ns>")


@dataclass(frozen=True, slots=True)
class Argument:
    """Finished text of one removable unit, with its no-space marks.

    `joins_left` says that the text continues a bundle of short options which its left neighbour
    began. `joins_right` says that a right neighbour may continue the bundle. The text may contain
    blanks: `-B 512K` is one argument. Errors: InputError for an empty text.
    """

    text: str
    joins_left: bool = False
    joins_right: bool = False

    def __post_init__(self) -> None:
        if not self.text:
            raise InputError("an argument has no text", hint="leave an empty argument out")

    @property
    def marked(self) -> str:
        r"""The text with its marks, as `input_args` shows it: `-l<ns>`, `<ns>T 32`.

        A literal `<ns>` inside the text is written `<\ns>` (and `<\ns>` as `<\\ns>`, and so on),
        so `parse` always gives this argument back.
        """
        text = _LITERAL.sub(r"<\\\1ns>", self.text) if "<" in self.text else self.text
        left, right = MARK * self.joins_left, MARK * self.joins_right
        return f"{left}{text}{right}"

    @classmethod
    def parse(cls, marked: str) -> Argument:
        """The argument that `marked` shows; InputError where nothing is left beside the marks."""
        joins_left = marked.startswith(MARK)
        text = marked[len(MARK) :] if joins_left else marked
        joins_right = text.endswith(MARK)
        text = text[: -len(MARK)] if joins_right else text
        if "<" in text:
            text = _ESCAPED.sub(r"<\1ns>", text)
        return cls(text, joins_left, joins_right)


def join(arguments: Iterable[Argument]) -> str:
    """The arguments as one line.

    Two neighbours that both mark their shared border are joined. An argument that continues a
    bundle whose beginning is gone gets its dash back: `<ns>a` after anything unmarked is ` -a`.
    Appendix A shows only the first half of the rule. The second half is ours, because sub-inputs
    need it. All others are separated by one blank.
    """
    parts: list[str] = []
    joinable = False
    for argument in arguments:
        if parts:
            if not argument.joins_left:
                parts.append(" ")
            elif not joinable:
                parts.append(" -")
        parts.append(argument.text)
        joinable = argument.joins_right
    return "".join(parts)


def render(command: str, arguments: Sequence[Argument]) -> str:
    """The command followed by its arguments as one line, joined by the rules of `join`.

    The command token never joins: a first argument that continues a bundle gets its dash back.
    """
    return join((Argument(command), *arguments))


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
"""A rare redirection, which is one token with its target: `3>&-`, `<&3`, `4>log`; not `<(ls)`."""


def is_operator(text: str) -> bool:
    """Whether a text is an operator, as the whole of a token without marks: `&&`, `>`, `3>&-`."""
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
    """One command of an input with its removable arguments, without operators and targets.

    `command` is "" where the segment has none (`> file` is a valid input).
    """

    command: str
    arguments: tuple[Argument, ...]


@dataclass(frozen=True, slots=True)
class Input:
    """One row of shell input: commands and arguments, composed by operators.

    A segment is what stands between two separators (`&& || | |& ; &`). Tokens are taken as they
    come: an input that bash will refuse is a valid Input, and bash's error is its behavior.
    """

    tokens: tuple[Token, ...]

    @classmethod
    def single(cls, command: str, arguments: Iterable[Argument] = ()) -> Input:
        """An input of one command."""
        tokens = (Token(argument, Role.ARGUMENT) for argument in arguments)
        return cls((Token(Argument(command), Role.COMMAND), *tokens))

    @classmethod
    def from_marked(cls, input_args: Sequence[str]) -> Input:
        r"""The input that has these `input_args`.

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
        """The line that bash is given, without the session's `cd`."""
        return join(token.argument for token in self.tokens)

    @property
    def input_args(self) -> list[str]:
        """Every token with its marks in order, operators and targets included."""
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
        """The sub-input s[O]: of the removable arguments only those with an index in `kept`.

        The order stays. Indices count the removable arguments of the whole input from 0. With
        `segment`, indices count those of that segment alone, and every other segment stays whole.
        Commands, operators and targets always stay. Errors: InputError for an index or a segment
        that does not exist.
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
        """The beginning of the input up to this segment's end, its redirections included.

        For the last segment that is the whole input. InputError for a segment that does not exist.
        """
        stop = self._span(segment)[1]
        last = segment == len(list(self.spans())) - 1
        return self if last else Input(self.tokens[:stop])

    def spans(self) -> Iterator[tuple[int, int]]:
        """The indices of the tokens where each segment starts and stops (excluded).

        Two separators right behind each other have no segment between them.
        """
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
        """The session's text as a record's `input` has it: `cd /home/ubuntu; ls -la`.

        Each further row stands on a line of its own.
        """
        return started(self.cwd, self.body)

    @property
    def body(self) -> str:
        """The rows, each on a line of its own, without the `cd`."""
        return "\n".join(row.text for row in self.rows)


def started(cwd: str, text: str) -> str:
    """A record's `input`, as the paper writes it.

    The shell starts in the directory, and the `cd` is not executed (D-27).
    """
    return f"cd {shlex.quote(cwd)}; {text}"


_START = re.compile(r"cd[ \t]+((?:'[^']*'|\"'\"|[^\s;'\"\\])+)[ \t]*;\s*(?=\S)")
"""A `cd` with one word as `shlex.quote` writes it, and something after it."""


def session_text(cwd: str, shell_input: Input) -> str:
    """A record's `input`, without a `cd` where the start directory is unknown ("")."""
    return started(cwd, shell_input.text) if cwd else shell_input.text


def without_start(text: str) -> tuple[str, str]:
    """The start directory that an input's leading `cd` names, and the input without that `cd`.

    Where `started` would not write that `cd` for the directory's name, the directory is "" and the
    input whole. An example is `cd ~; ls`, which goes elsewhere than `cd '~'; ls`.
    """
    match = _START.match(text)
    if match is not None:
        directory = "".join(shlex.split(match[1]))
        if directory and shlex.quote(directory) == match[1]:
            return directory, text[match.end() :]
    return "", text
