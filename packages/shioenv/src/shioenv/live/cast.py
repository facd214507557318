"""What happened in a shell, as a recording that `asciinema play` plays.

The form is asciicast 2: a header, then a line for each event. `o` is what was shown, `i` is what
was typed. A marker (`m`) holds a behavior as JSON, in the form of `shioenv run --json`.
"""

from __future__ import annotations

import codecs
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from shioenv.domain.answers import behavior_json
from shioenv.domain.behavior import Behavior
from shioenv.files.documents import parse_json
from shioenv.files.durable import refuse_existing, storage_errors
from shioenv.files.regular import open_regular
from shioenv.live.shell import Closing


class Cast(Closing):
    """A recording that is written while things happen.

    Errors: OutputExistsError for a file that is there, DatasetStorageError here and later.
    """

    def __init__(self, file: Path, title: str, rows: int = 24, columns: int = 80) -> None:
        self._path, self._began = file, time.monotonic()
        self._decoders = {kind: codecs.getincrementaldecoder("utf-8")("replace") for kind in "io"}
        refuse_existing(file)
        with storage_errors(file):
            self._file = file.open("x", encoding="utf-8")
        header = {"version": 2, "width": columns, "height": rows, "title": title}
        self._write({**header, "timestamp": int(time.time())})

    def shown(self, data: bytes) -> None:
        """Bytes that the shell wrote."""
        self._event("o", data)

    def typed(self, data: bytes) -> None:
        """Bytes that somebody typed."""
        self._event("i", data)

    def did(self, line: str | None, behavior: Behavior) -> None:
        """What a line did (None: what was done up to a prompt)."""
        self.marked(marker(line, behavior))

    def marked(self, text: str) -> None:
        """A marker with a text."""
        self._write([self._now(), "m", text])

    def close(self) -> None:
        """Ends the recording; closing twice does nothing."""
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
    """The text of the marker for what a line did; see `Cast.did`."""
    return json.dumps({"line": line, **behavior_json(behavior)})


class CastEvent(NamedTuple):
    """An event of a recording."""

    seconds: float
    """Since its beginning."""
    kind: str
    """`o` for what was shown, `i` for what was typed, `m` for a marker."""
    text: str


def read_cast(file: Path) -> Iterator[CastEvent]:
    """The events of a recording. A line that is none, as where it was cut, is passed over.

    Errors: OSError as `open_regular` raises it.
    """
    with open_regular(file) as lines:
        for line in lines:
            try:
                seconds, kind, text = parse_json(line)
                yield CastEvent(float(seconds), str(kind), str(text))
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

RESET: Final = "\x1b[0m\x1b[r\x1b[?1049l\x1b[?25h\x1b[?2004l"
"""Puts a terminal back on which `Harmless` texts were shown."""


class Harmless:
    """Makes texts of a recording fit to be shown on somebody's terminal.

    Whoever was recorded may have written anything. What does more than move, colour and erase is
    left out: titles, the clipboard, other character sets, questions that a terminal answers. A
    sequence that is cut goes with the next text. Each ESC that is left begins a sequence that is
    harmless.
    """

    def __init__(self) -> None:
        self._kept = ""

    def of(self, text: str) -> str:
        """What is left of the next text."""
        text = self._kept + text
        cut = _UNFINISHED.search(text, max(0, len(text) - _LONGEST))
        self._kept = text[cut.start() :] if cut else ""
        text = text[: cut.start()] if cut else text
        return _SEQUENCE.sub(lambda one: one[0] if _HARMLESS.fullmatch(one[0]) else "", text)
