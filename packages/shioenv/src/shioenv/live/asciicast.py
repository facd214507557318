"""Recordings of a shell's events in a form that `asciinema play` plays.

The format is asciicast 2: a header, then a line for each event. `o` is output, `i` is typed input.
A marker (`m`) holds a behavior as JSON, in the form of `shioenv run --json`.
"""

from __future__ import annotations

import codecs
import json
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from shioenv.domain.answer_json import behavior_json
from shioenv.domain.behavior import Behavior
from shioenv.files.durable import refuse_existing, storage_errors
from shioenv.sandbox.base import Closing


class AsciicastWriter(Closing):
    """A recording that is written as events happen.

    Errors: OutputExistsError for an existing file; DatasetStorageError if writing fails.
    """

    def __init__(self, file: Path, title: str, rows: int = 24, columns: int = 80) -> None:
        self._path, self._began = file, time.monotonic()
        self._decoders = {kind: codecs.getincrementaldecoder("utf-8")("replace") for kind in "io"}
        refuse_existing(file)
        with storage_errors(file):
            self._file = file.open("x", encoding="utf-8")
        header = {"version": 2, "width": columns, "height": rows, "title": title}
        self._write({**header, "timestamp": int(time.time())})

    def write_output(self, data: bytes) -> None:
        """Record bytes that the shell wrote."""
        self._event("o", data)

    def write_input(self, data: bytes) -> None:
        """Record bytes that were typed."""
        self._event("i", data)

    def write_behavior(self, line: str | None, behavior: Behavior) -> None:
        """Record a line's behavior. `line` is None if it is unknown, as on a terminal."""
        self.write_marker(marker(line, behavior))

    def write_marker(self, text: str) -> None:
        """Record a marker with a text."""
        self._write([self._now(), "m", text])

    def close(self) -> None:
        """End the recording; closing twice does nothing."""
        self._file.close()

    def _now(self) -> float:
        return round(time.monotonic() - self._began, 6)

    def _event(self, kind: str, data: bytes) -> None:
        text = self._decoders[kind].decode(data)
        if text:
            self._write([self._now(), kind, text])

    def _write(self, event: object) -> None:
        with storage_errors(self._path):
            self._file.write(json.dumps(event) + "\n")
            self._file.flush()


def marker(line: str | None, behavior: Behavior) -> str:
    """Return the text of the marker for a line's behavior; see `AsciicastWriter.write_behavior`."""
    return json.dumps({"line": line, **behavior_json(behavior)})


_LONGEST: Final = 4096

_ELSEWHERE: Final = re.compile(r"\n|\x1b\[[0-9;]*[HJfdr]|\x1b\[\?1049[hl]|\x1b[78M]")
"""Matches text that ends the current line: a newline, or a jump to another line."""


class CurrentLine:
    """The terminal line on which the output ends, such as a prompt followed by typed text."""

    def __init__(self) -> None:
        self._text = ""

    def follow(self, text: str) -> None:
        """Note further output."""
        text = self._text + text
        end = max((found.end() for found in _ELSEWHERE.finditer(text)), default=0)
        self._text = text[end:][-_LONGEST:]

    def above(self, lines: Sequence[str]) -> str:
        """Return output that inserts dimmed lines above the current line; "" for no lines."""
        if not lines:
            return ""
        inserted = "\r\n".join(lines)
        return f"\r\x1b[2K\x1b[2m{inserted}\x1b[0m\r\n{self._text}"
