"""Recordings of a shell's events in a form that `asciinema play` plays.

The format is asciicast 2: a header, then a line for each event. `o` is output, `i` is typed input.
A marker (`m`) holds a behavior as JSON, in the form of `shioenv run --json`.
"""

from __future__ import annotations

import codecs
import json
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from shioenv.domain.answer_json import behavior_json
from shioenv.domain.behavior import Behavior
from shioenv.files.documents import parse_json
from shioenv.files.durable import refuse_existing, storage_errors
from shioenv.files.regular import open_regular
from shioenv.live.shell import Closing


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


class AsciicastEvent(NamedTuple):
    """An event of a recording."""

    seconds: float
    """Seconds since the recording's beginning."""
    kind: str
    """`o` for output, `i` for typed input, `m` for a marker."""
    text: str


def read_asciicast(file: Path) -> Iterator[AsciicastEvent]:
    """Iterate over a recording's events. Malformed lines, such as a cut one, are skipped.

    Errors: OSError as `open_regular` raises it.
    """
    with open_regular(file) as lines:
        for line in lines:
            try:
                seconds, kind, text = parse_json(line)
                yield AsciicastEvent(float(seconds), str(kind), str(text))
            except (ValueError, TypeError, OverflowError):
                continue


_SEQUENCE: Final = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]P^_X].*?(?:\x1b\\|\x07|\Z)|[ -/]+[0-~]|[0-~])"
    r"|[\x80-\x9f]|[\x00-\x06\x0e-\x1f\x7f]",
    re.DOTALL,
)
_UNFINISHED: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[ -/]*|[\]P^_X][^\x07\x1b]*\x1b?)?\Z")
_HARMLESS: Final = re.compile(
    r"\x1b\[(?:[0-9;]*[A-HJKLMPSTXdfmr@]|\?(?:25|1049|2004)[hl])|\x1b[78M]"
)
_LONGEST: Final = 4096

_ELSEWHERE: Final = re.compile(r"\n|\x1b\[[0-9;]*[HJfdr]|\x1b\[\?1049[hl]|\x1b[78M]")
"""Matches text that ends the current line: a newline, or a jump to another line."""

RESET: Final = "\x1b[0m\x1b[r\x1b[?1049l\x1b[?25h\x1b[?2004l"
"""Resets a terminal after `Harmless` texts were shown on it."""


class Harmless:
    """Filters a recording's texts so that they are safe to show on a terminal.

    The recorded programs may have written anything. Escape sequences that do more than move, colour
    and erase are left out. Examples are titles, the clipboard, other character sets, and queries
    that a terminal answers. An incomplete sequence at the end is kept for the next text. Each ESC
    in the result begins a harmless sequence.
    """

    def __init__(self) -> None:
        self._kept = ""

    def of(self, text: str) -> str:
        """Return the harmless part of the next text."""
        text = self._kept + text
        cut = _UNFINISHED.search(text, max(0, len(text) - _LONGEST))
        self._kept = text[cut.start() :] if cut else ""
        text = text[: cut.start()] if cut else text
        return _SEQUENCE.sub(lambda one: one[0] if _HARMLESS.fullmatch(one[0]) else "", text)


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
