"""Requests that run several rows (inputs) in one run: in one shell, or in several.

The shell gets the rows from `native/inside/rows.c`, which calls bash's own functions. It runs rows
without commands such as `eval`, which an earlier row could redefine. With
`Limits.without_shell_state`, rows run in an unmodified bash without preloaded code. There `eval`
runs each row, although an earlier row can redefine `eval`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from shioenv.bash.words import quoted
from shioenv.errors import InputError
from shioenv.sandbox.base import LONGEST_INPUT, LONGEST_STDIN, Request


class RowKind(StrEnum):
    """The kind of a row: `ROW_*` of `native/inside/rows.h`."""

    TYPED = "t"
    """The row is run in the shell."""
    AGAIN = "a"
    """The row is run in the shell once more. Its output is already known, and discarded."""
    BESIDE = "b"
    """The row is run in a newly executed bash, in the start directory."""
    BESIDE_AGAIN = "c"
    """The row is run like `BESIDE` once more. Its output is discarded."""
    END = "e"
    """The shell of the rows so far ends, with every process that they left running."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row with its kind."""

    how: RowKind
    text: str = ""


_READ: Final = ". /dev/stdin"
_BASH: Final = ("/bin/bash", "--norc", "--noprofile", "-c")
_ENTER: Final = (
    'cd -P -- "$1" && own=$PWD && cd -- "$1" || exit; shift; '
    '[[ $PWD = "$own" ]] || set -- PWD="$PWD" "$@"; exec /usr/bin/env -i "$@"'
)
"""Script that enters the directory in its first argument, and executes the other arguments there.

The environment is only what these arguments set. `PWD` is added if a symbolic link leads to the
directory, as in `native/inside/directory.c`. If the directory is gone, `cd` reports it, and the
exit status is 1.
"""
_READ_ON: Final = 'eval "exec < /dev/null; $(< /dev/stdin)"'


def request_of(
    rows: Iterable[Row],
    cwd: str,
    env: Mapping[str, str] | None = None,
    *,
    separate: bool = False,
    wall_seconds: float | None = None,
) -> Request:
    """Return the request that runs rows in a start directory, with empty standard input for them.

    If `env` is given, an unmodified bash with this environment runs them. Errors: InputError for
    a row longer than an input may be, and for rows with more than `LONGEST_STDIN` bytes together.
    """
    rows = list(rows)
    for row in rows:
        Request(row.text).argument()
    if env is None:
        text, stdin = _READ, _packed(rows)
    else:
        text, stdin = _written(rows, cwd, env), b""
        if len(os.fsencode(text)) > LONGEST_INPUT:
            text, stdin = _READ_ON, os.fsencode(text)
    if len(stdin) > LONGEST_STDIN:
        raise InputError(
            f"the typed rows have {len(stdin)} bytes; at most {LONGEST_STDIN} can be replayed"
        )
    return Request(
        text,
        cwd=cwd,
        separate=separate,
        wall_seconds=wall_seconds,
        stdin=stdin,
        rows=env is None,
    )


def _packed(rows: Iterable[Row]) -> bytes:
    """Return the rows as bytes, each with its kind before it and a NUL after it."""
    return b"".join(os.fsencode(f"{row.how}{row.text}\0") for row in rows)


def _written(rows: Sequence[Row], cwd: str, env: Mapping[str, str]) -> str:
    """Return the rows as one input for an unmodified bash; at most one of them ends a shell."""
    ends = [number for number, row in enumerate(rows) if row.how is RowKind.END]
    if ends:
        typed = "\n".join(_line(row, cwd, env) for row in rows[: ends[-1]])
        rows = rows[ends[-1] + 1 :]
        ended = f"( {typed}\n) > /dev/null 2>&1 < /dev/null\nkill -9 -1 2> /dev/null; :"
        return "\n".join([ended, *(_line(row, cwd, env) for row in rows)])
    return "\n".join(_line(row, cwd, env) for row in rows)


def _line(row: Row, cwd: str, env: Mapping[str, str]) -> str:
    if row.how is RowKind.TYPED:
        return row.text
    if row.how is RowKind.AGAIN:
        return f"eval {quoted(row.text)} > /dev/null 2>&1"
    given = [f"{name}={value}" for name, value in env.items()]
    enter = ["/usr/bin/env", "-i", *_BASH, _ENTER, "bash", cwd]
    option_like = row.text.startswith(("-", "+"))
    words = [*enter, *given, *_BASH, *(["--"] if option_like else []), row.text]
    command = " ".join(map(quoted, words)) + " < /dev/null"
    return command if row.how is RowKind.BESIDE else f"{command} > /dev/null 2>&1"
