"""Standard input of commands: files given as `-`, and inputs that are answered line by line."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from shioenv.cli.printing import print_json
from shioenv.cli.shared import Printout

LONGEST_LINE: Final = 64 * 1024 * 1024
"""Maximum length in bytes of a line with an input. A line with a record may have megabytes."""

_EXAMPLE = 'a line is an input as text, or JSON: {"input": "pwd", "cwd": "/tmp", "history": ["ls"]}'


def given(file: Path) -> Path:
    """Return the file; for `-`, save standard input to a file that can be read repeatedly.

    Errors: UsageError if standard input is closed, cannot be read, or has more than `LARGEST_LIST`
    bytes.
    """
    if str(file) != "-":
        return file
    from tempfile import TemporaryFile

    from shioenv.errors import UsageError
    from shioenv.files.regular import LARGEST_LIST

    with _reading(), TemporaryFile() as kept:
        while content := sys.stdin.buffer.read(1 << 20):
            kept.write(content)
            if kept.tell() > LARGEST_LIST:
                raise UsageError(
                    f"standard input has more than {LARGEST_LIST:,} bytes",
                    hint="split the list, or give the name of a file",
                )
        kept.flush()
        os.dup2(kept.fileno(), 0)
    return Path("/dev/stdin")


@contextmanager
def _reading() -> Iterator[None]:
    """Convert an OSError from reading standard input to a UsageError."""
    from shioenv.errors import UsageError

    try:
        yield
    except OSError as error:
        if error.errno == errno.EBADF:
            hint = "give the name of a file, or redirect one: < FILE"
            raise UsageError("standard input is closed", hint=hint) from None
        raise UsageError(f"cannot read standard input: {error.strerror}") from None


def given_lines(file: Path) -> list[str]:
    """Return the non-empty lines of a file; `-` is standard input."""
    from shioenv.errors import UsageError

    try:
        content = given(file).read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from error
    return [line for line in content.decode("utf-8-sig", "surrogateescape").split("\n") if line]


@dataclass(frozen=True, slots=True)
class GivenInput:
    """An input on a line of standard input, with its initial state."""

    input: str
    cwd: str | None = None
    """The start directory, or None for the default one."""
    history: tuple[str, ...] = ()
    """The inputs typed before in the same shell."""


def answer_lines(answer: Callable[[GivenInput], dict[str, Any]]) -> Printout:
    """Print the answer to each line of standard input as a line of JSON, in order.

    For a line without an answer, an object with `error`, `code` and `line` (the line's number) is
    printed. The object of a line includes its `history` and `id`. Return an empty printout, with
    status 1 if a line got no answer. Errors: UsageError if standard input is closed or cannot be
    read.
    """
    from shioenv.errors import Abstained, ShioenvError

    status, number = 0, 0
    while content := _read_line():
        number += 1
        document: dict[str, Any] = {}
        try:
            line = _parse(content, document, first=number == 1)
            document |= answer(line)
        except ShioenvError as error:
            status = 1
            document |= {"line": number, "error": error.message, "code": error.code}
            if error.hint:
                document["hint"] = error.hint
            if isinstance(error, Abstained):
                document["abstained"] = True
        print_json(document)
    return Printout(None, status=status)


def _read_line() -> bytes:
    """Read a line with its end, or the first `LONGEST_LINE` + 1 bytes of a longer one."""
    with _reading():
        content = part = sys.stdin.buffer.readline(LONGEST_LINE + 1)
        while len(part) > LONGEST_LINE and not part.endswith(b"\n"):
            part = sys.stdin.buffer.readline(LONGEST_LINE + 1)
    return content


def _parse(content: bytes, document: dict[str, Any], *, first: bool) -> GivenInput:
    """Parse a line, and store its `input`, `history` and `id` in `document`. Errors: InputError."""
    from shioenv.errors import InputError
    from shioenv.sandbox.base import Request

    if len(content.rstrip(b"\r\n")) > LONGEST_LINE:
        raise InputError(f"the line has more than {LONGEST_LINE:,} bytes")
    text = content.decode("utf-8", "surrogateescape")
    text = text.removeprefix("\ufeff" if first else "").removesuffix("\n").removesuffix("\r")
    found = _object(text) if text.startswith(("{", '["')) else None
    line = GivenInput(text) if found is None else _described(found, document)
    document["input"] = line.input
    if line.history:
        document["history"] = list(line.history)
    Request("\n".join([*line.history, line.input])).argument()
    return line


def _object(text: str) -> dict[str, Any] | None:
    """Parse the JSON object of a line; None for an input of Bash such as `{ ls; }`."""
    from shioenv.errors import InputError
    from shioenv.files.documents import parse_json

    try:
        text.encode()
        document = parse_json(text, finite=True)
        if not isinstance(document, dict):
            raise ValueError("expected an object, got a list")
        return document
    except UnicodeEncodeError:
        fault = "it is not UTF-8"
    except ValueError as error:
        fault = str(error)
    if text.startswith(('{"', '["')):
        raise InputError(f"expected a JSON object with `input`: {fault}: {text:.60}", hint=_EXAMPLE)
    return None


def _described(found: dict[str, Any], document: dict[str, Any]) -> GivenInput:
    """Return the input that a JSON object describes. Errors: InputError."""
    from shioenv.domain.inputs import published_input
    from shioenv.errors import InputError, nearest

    if "id" in found:
        document["id"] = found["id"]
    text, cwd, history = found.get("input"), found.get("cwd"), found.get("history") or []
    for name in found.keys() - {"input", "cwd", "history", "id"}:
        meant = nearest(name, {"input", "cwd", "history"}, cutoff=0.8)
        if meant not in (None, *found):
            raise InputError(f"unknown member {name!r:.40}; did you mean {meant}?", hint=_EXAMPLE)
        if found[name] is not None and name in {"input_b64", "cwd_b64", "history_b64"}:
            raise InputError(f"{name} is not supported", hint="give the input as plain text")
    if not isinstance(text, str):
        raise InputError(f"expected text as `input`, got {text!r:.60}", hint=_EXAMPLE)
    if not isinstance(cwd, str | None):
        raise InputError(f"expected text as `cwd`, got {cwd!r:.60}", hint=_EXAMPLE)
    if not isinstance(history, list) or not all(isinstance(each, str) for each in history):
        raise InputError(f"expected a list of texts as `history`, got {history!r:.60}")
    try:
        "".join([text, cwd or "", *history]).encode()
    except UnicodeEncodeError:
        raise InputError("invalid Unicode: a JSON escape names a lone surrogate") from None
    if cwd and "schema_version" in found:  # a record: its input begins with the start directory
        text = text.removeprefix(published_input(cwd, ""))
    return GivenInput(text, cwd or None, tuple(history))
