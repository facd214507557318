"""What happened in a shell, as a recording that `asciinema play` plays.

The form is asciicast 2: a header, then a line for each event. `o` is what was shown, `i` is what
was typed. A marker (`m`) holds a behavior as JSON, in the form of `shioenv run --json`.
"""

from __future__ import annotations

import codecs
import json
import time
from pathlib import Path

from shioenv.domain.answers import behavior_json
from shioenv.domain.behavior import Behavior
from shioenv.files.durable import refuse_existing, storage_errors
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
        told = {"line": line, **behavior_json(behavior)}
        self._write([self._now(), "m", json.dumps(told)])

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
