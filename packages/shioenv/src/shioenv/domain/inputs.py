"""Shell inputs: their arguments, segments and sub-inputs, and sessions of inputs.

A list of arguments must remain valid shell input if any of its members are removed. So bundled
short options are separate arguments, and no-space marks join them (Appendix A). For example,
`-l<ns>`, `<ns>a<ns>`, `<ns>T 32` is written `-laT 32`, and without its first member `-aT 32`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from shioenv.errors import InputError
from shioenv.text import short_repr

MARK = "<ns>"
_LITERAL = re.compile(r"<(\\*)ns>")
_ESCAPED = re.compile(r"<\\(\\*)ns>")


@dataclass(frozen=True, slots=True)
class Argument:
    """The complete text of one removable argument, with its no-space marks.

    `joins_left`: the text continues a bundle of short options begun by its left neighbour.
    `joins_right`: a right neighbour may continue the bundle. The text may contain blanks: `-B 512K`
    is one argument. Errors: InputError for an empty text.
    """

    text: str
    joins_left: bool = False
    joins_right: bool = False

    def __post_init__(self) -> None:
        if not self.text:
            raise InputError("an argument is empty", hint="omit empty arguments")

    @property
    def marked(self) -> str:
        r"""The text with its marks, as in `input_args`: `-l<ns>`, `<ns>T 32`.

        So that `parse` restores the argument, a literal `<ns>` inside the text is written `<\ns>`
        (and `<\ns>` as `<\\ns>`, and so on).
        """
        text = _LITERAL.sub(r"<\\\1ns>", self.text) if "<" in self.text else self.text
        left, right = MARK * self.joins_left, MARK * self.joins_right
        return f"{left}{text}{right}"

    @classmethod
    def parse(cls, marked: str) -> Argument:
        """Parse an argument written like `marked`. Errors: InputError for marks without text."""
        joins_left = marked.startswith(MARK)
        text = marked[len(MARK) :] if joins_left else marked
        joins_right = text.endswith(MARK)
        text = text[: -len(MARK)] if joins_right else text
        if "<" in text:
            text = _ESCAPED.sub(r"<\1ns>", text)
        return cls(text, joins_left, joins_right)


def join(arguments: Iterable[Argument]) -> str:
    """Join arguments into one line.

    Two neighbours are joined without a blank if both have a mark at their common border. All others
    are separated by one blank. An argument that continues a bundle whose beginning was removed gets
    its dash back: `<ns>a` after an unmarked argument is ` -a`. This last rule is ours: Appendix A
    does not have it, but sub-inputs need it.
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
    """Join a command and its arguments into one line by the rules of `join`.

    The command is not part of a bundle: if the first argument continues one, it gets its dash back.
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
"""A rare redirection, written as one token with its target: `3>&-`, `<&3`, `4>log`; not `<(ls)`."""


def is_operator(text: str) -> bool:
    """Whether a whole token without marks is an operator: `&&`, `>`, `3>&-`."""
    return text in OPERATORS or (
        ("<" in text or ">" in text) and _WHOLE_REDIRECTION.fullmatch(text) is not None
    )


class Role(StrEnum):
    """The role of a token in an input. Only an `ARGUMENT` can be removed."""

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

    `command` is "" if the segment has none (`> file` is a valid input).
    """

    command: str
    arguments: tuple[Argument, ...]


@dataclass(frozen=True, slots=True)
class Input:
    """One row of shell input: commands and arguments, composed by operators.

    A segment is the part between two separators (`&& || | |& ; &`). Tokens are not checked. An
    input that bash refuses is a valid Input, and bash's error is its behavior.
    """

    tokens: tuple[Token, ...]

    def __repr__(self) -> str:
        return short_repr(self, {"text": self.text})

    @classmethod
    def single(cls, command: str, arguments: Iterable[Argument] = ()) -> Input:
        """Create an input of one command."""
        tokens = (Token(argument, Role.ARGUMENT) for argument in arguments)
        return cls((Token(Argument(command), Role.COMMAND), *tokens))

    @classmethod
    def from_marked(cls, input_args: Sequence[str]) -> Input:
        r"""Create the input with these `input_args`.

        An operator is recognised only as a whole token: `-exec ls {} \;` contains none. A rare
        redirection is one token with its target (`3>&-`). After any other redirection, the next
        token is the target. The first other token of a segment is its command. Errors: InputError
        for a token without text.
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
        """The line passed to bash, without the session's `cd`."""
        return join(token.argument for token in self.tokens)

    @property
    def input_args(self) -> list[str]:
        """Every token with its marks in order, operators and targets included."""
        return [token.argument.marked for token in self.tokens]

    @property
    def n_arguments(self) -> int:
        """The number of removable arguments in all segments."""
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
        """Return the sub-input s[O]: only the removable arguments with an index in `kept`.

        The order is unchanged. Indices count the removable arguments of the whole input from 0.
        With `segment`, indices count those of that segment only, and all other segments are
        unchanged. Commands, operators and targets are always kept. Errors: InputError for an index
        or a segment that does not exist.
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
        """Return the beginning of the input up to this segment's end, including its redirections.

        For the last segment this is the whole input. Errors: InputError for a segment that does not
        exist.
        """
        stop = self._span(segment)[1]
        last = segment == len(list(self.spans())) - 1
        return self if last else Input(self.tokens[:stop])

    def spans(self) -> Iterator[tuple[int, int]]:
        """Yield the token indices at which each segment starts and stops (exclusive).

        There is no segment between two adjacent separators.
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
    """A start directory, its history, and the inputs typed after it, one per row."""

    cwd: str
    rows: tuple[Input, ...]
    history: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The text as in a record's `input`: `cd /home/ubuntu; ls -la`.

        Each further row is on a separate line.
        """
        return published_input(self.cwd, self.body)

    @property
    def body(self) -> str:
        """The rows, one per line, without the `cd`."""
        return "\n".join(row.text for row in self.rows)


def published_input(cwd: str, text: str) -> str:
    """Return a record's `input` in the paper's form.

    It begins with a `cd` to the start directory, which is not executed: the shell starts there
    (D-27).
    """
    return f"cd {shlex.quote(cwd)}; {text}"


_START = re.compile(r"cd[ \t]+((?:'[^']*'|\"'\"|[^\s;'\"\\])+)[ \t]*;\s*(?=\S)")
"""A `cd` with one word in the form of `shlex.quote`, followed by further text."""


def session_text(cwd: str, shell_input: Input) -> str:
    """Return a record's `input`, without a `cd` if the start directory is unknown ("")."""
    return published_input(cwd, shell_input.text) if cwd else shell_input.text


def without_start(text: str) -> tuple[str, str]:
    """Split an input into the start directory of its leading `cd` and the rest.

    If `published_input` would write the `cd` differently, the directory is "" and the input is
    unchanged. An example is `cd ~; ls`, which would be written `cd '~'; ls`.
    """
    match = _START.match(text)
    if match is not None:
        directory = "".join(shlex.split(match[1]))
        if directory and shlex.quote(directory) == match[1]:
            return directory, text[match.end() :]
    return "", text
