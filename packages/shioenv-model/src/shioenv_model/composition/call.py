"""A single command within an input, as passed to a runner."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from shioenv.bash.program import Redirect
from shioenv.bash.words import quoted, split_words

Options: TypeAlias = tuple[tuple[str, str | None], ...]
"""Options of a command by name, each with its value."""

_READS = re.compile(r"(.*\S) < (\S+)", re.DOTALL)


@dataclass(frozen=True)
class Call:
    """A command for a runner, with its redirections separate from its words.

    Runners that parse commands use the fields; runners that execute use the `text`.
    """

    written: str
    """Assignments and words, unexpanded."""
    reads: str | None = None
    """The word after `<`: the file that the command reads."""
    closed: tuple[str, ...] = ()
    """Redirections that close a descriptor, unexpanded."""
    opens: Redirect | None = None
    """The redirection, if opening its file is the command's only effect (`: > file`)."""
    parts: tuple[str, ...] | None = None
    """The assignments and words of `written`, if they are known separately."""
    from_file: bool = False
    """Whether the state's standard input is the content of a file after `<`."""

    @classmethod
    def of(cls, words: Sequence[str]) -> Call:
        """Build the command that calls a program; its name is the first word."""
        parts = tuple(quoted(word, command=not place) for place, word in enumerate(words))
        return cls(" ".join(parts), parts=parts)

    @classmethod
    def parse(cls, text: str) -> Call:
        """Parse a command's text. A final `< file` becomes `reads`."""
        match = _READS.fullmatch(text) if " < " in text else None
        return cls(match[1], match[2]) if match else cls(text)

    @cached_property
    def text(self) -> str:
        """The command's source text."""
        parts = [self.bare]
        if self.opens is not None:
            parts.append(as_text(self.opens, self.opens.target))
        if self.reads is not None:
            parts.append(f"< {self.reads}")
        return " ".join(parts)

    @cached_property
    def bare(self) -> str:
        """The source text without the redirections `reads` and `opens`."""
        return " ".join((self.written, *self.closed))

    @cached_property
    def words(self) -> tuple[str, ...]:
        """Assignments, words and closing redirections, each unexpanded, with its quotes."""
        if self.parts is not None:
            return (*self.parts, *self.closed)
        return tuple(split_words(self.bare))

    @property
    def reads_what_it_opens(self) -> bool:
        """Whether standard input is redirected from a file, or closed."""
        return self.reads is not None or any(each in ("<&-", "0<&-") for each in self.closed)


def option_words(option: tuple[str, str | None]) -> list[str]:
    """Format an option as words: its name and, if present, its value."""
    name, value = option
    if value is None:
        return [name]
    return [f"{name}={value}"] if name.startswith("--") else [name, value]


def as_text(redirect: Redirect, word: str) -> str:
    """Format a redirection with this word as its target."""
    number = "" if redirect.descriptor is None else str(redirect.descriptor)
    space = "" if redirect.operator.endswith("&") and redirect.operator[0] in "<>" else " "
    return f"{number}{redirect.operator}{space}{word}"
