"""What visitors did, in a file: a line of JSON for each line that was typed."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from shioenv.domain.answers import behavior_json
from shioenv.domain.behavior import Behavior
from shioenv.files.durable import storage_errors
from shioenv.live.shell import Closing


class LineLog(Closing):
    """A file that grows by one line for each typed line, each written at once and whole.

    Other programs may read the file meanwhile. Errors: DatasetStorageError.
    """

    def __init__(self, file: Path) -> None:
        """Opens the file. What is there stays."""
        self._path = file
        self._torn = False
        with storage_errors(file):
            self._file = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def write(self, line: str, behavior: Behavior | None, **told: Any) -> None:
        """Writes what a typed line did, and what else is `told` of it. None: it was not answered.

        The names of a behavior are those of `shioenv run --json`. `timestamp` is now.
        """
        now = datetime.now(UTC).isoformat(timespec="microseconds")
        document = {"timestamp": now, **told, "input": line}
        if behavior is not None:
            document |= behavior_json(behavior)
        with storage_errors(self._path):
            # what a full disk took a part of is a line of its own
            data = b"\n" * self._torn + json.dumps(document).encode() + b"\n"
            while data:
                data = data[os.write(self._file, data) :]
                self._torn = bool(data)

    def close(self) -> None:
        """Closes the file; closing twice does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
