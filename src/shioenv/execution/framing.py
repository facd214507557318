"""Messages between a generator and its workers: a length, a kind, a body."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator
from typing import Any

_HEAD = struct.Struct(">IB")

SETUP = 1
"""To a worker: everything about the run, pickled."""
TASK = 2
"""To a worker: a number and a sample, pickled."""
READY = 3
"""From a worker: its sandbox is open."""
RECORD = 4
"""From a worker: a line of JSON about the record, then the record."""
BROKEN = 5
"""From a worker: the sandbox broke; JSON with the number and the message."""
FAILED = 6
"""From a worker: it cannot go on; JSON with the number, the error and where it comes from."""


def send(file: int, kind: int, body: bytes = b"") -> None:
    """Writes one message to a pipe, all of it."""
    view = memoryview(_HEAD.pack(len(body), kind) + body)
    while view:
        view = view[os.write(file, view) :]


def send_json(file: int, kind: int, document: dict[str, Any], rest: bytes = b"") -> None:
    """Writes a message of a line of JSON and what follows it."""
    send(file, kind, json.dumps(document).encode() + b"\n" + rest)


def split_json(body: bytes) -> tuple[dict[str, Any], bytes]:
    """The line of JSON a message begins with, and what follows it."""
    line, _, rest = body.partition(b"\n")
    return json.loads(line), rest


class Frames:
    """Messages put together from what a pipe gives."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """The messages that are whole now, in order."""
        self._buffer += data
        while len(self._buffer) >= _HEAD.size:
            length, kind = _HEAD.unpack_from(self._buffer)
            end = _HEAD.size + length
            if len(self._buffer) < end:
                return
            body = bytes(self._buffer[_HEAD.size : end])
            del self._buffer[:end]
            yield kind, body
