"""Files that visitors bring, kept by the digest of their content."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from shioenv.files.durable import replacing, storage_errors
from shioenv.sandbox.base import MEBIBYTE

LARGEST: Final = 64 * MEBIBYTE
"""Bytes that are kept of one visitor's files together; ours. Later files are not kept."""

HELD: Final = 256 * MEBIBYTE
"""Bytes of all visitors' files that are held in memory at once, until they are written; ours."""

PROTOCOL: Final = re.compile(r"(?:\S*/)?(scp|sftp-server|rsync)(?= |$)")
"""Commands that talk with the visitor's program through both channels at once."""

_WRITING = threading.Lock()  # two channels may bring the same content at once

Told = Callable[[str, Path, str], object]
"""Is told of a file: its name, where its content is kept, the content's SHA-256."""


@dataclass(slots=True)
class Room:
    """Bytes that several channels may still use together."""

    left: int


class Uploads:
    """Keeps contents in a directory, each under its SHA-256, for one channel."""

    def __init__(self, directory: Path, told: Told, visitors: Room, servers: Room) -> None:
        """`visitors` is the room of the visitor's files, `servers` that of the server's memory."""
        self._directory, self._told = directory, told
        self._visitors, self._servers = visitors, servers
        self._held = 0
        self._whole: list[tuple[str, bytes | bytearray]] = []

    def room(self, wanted: int) -> bool:
        """Whether so many bytes more may be kept; they are then counted."""
        if wanted > min(self._visitors.left, self._servers.left):
            return False
        self._visitors.left -= wanted
        self._servers.left -= wanted
        self._held += wanted
        return True

    def forget(self, count: int) -> None:
        """Takes notice that so many counted bytes are in memory no longer."""
        self._held -= count
        self._servers.left += count

    def keep(self, name: str, content: bytes | bytearray) -> None:
        """Takes a whole content, whose bytes are counted, for the next `write`."""
        self._whole.append((name, content))

    async def write(self) -> None:
        """Writes the contents that were taken, and tells of each. Errors: DatasetStorageError.

        A content that is there already is not written again.
        """
        while self._whole:
            name, content = self._whole[0]
            place = await asyncio.to_thread(self._written, content)
            del self._whole[0]
            self.forget(len(content))
            self._told(name, place, place.name)

    def _written(self, content: bytes | bytearray) -> Path:
        place = self._directory / hashlib.sha256(content).hexdigest()
        with _WRITING, storage_errors(place):
            self._directory.mkdir(parents=True, exist_ok=True)
            if not place.exists():
                with replacing(place) as file:
                    file.write(content)
        return place

    def close(self) -> None:
        """Forgets what is not written: files that did not come whole."""
        self._whole.clear()
        self.forget(self._held)


class Tap(Protocol):
    """Looks for files in what goes by."""

    def sent(self, data: bytes) -> None:
        """Takes what the visitor sent."""
        ...

    def answered(self, data: bytes) -> None:
        """Takes what the machine answered."""
        ...

    def ended(self) -> None:
        """Takes notice that the visitor sends no more."""
        ...


def tap_of(command: str | None, uploads: Uploads) -> Tap:
    """What looks for files in what a visitor sends to a command; None is a shell."""
    protocol = PROTOCOL.match(command or "")
    if protocol and protocol[1] == "sftp-server":
        return SftpServer(uploads)
    if protocol and re.search(r" -\w*t", command or ""):
        return ScpSink(uploads)
    return StandardInput(uploads)


class StandardInput:
    """Keeps what a command is sent, as one file, once it has come whole."""

    def __init__(self, uploads: Uploads) -> None:
        self._uploads = uploads
        self._file: bytearray | None = bytearray()

    def sent(self, data: bytes) -> None:
        """See `Tap.sent`."""
        if self._file is None:
            return
        if self._uploads.room(len(data)):
            self._file += data
        else:
            self._uploads.forget(len(self._file))
            self._file = None

    def answered(self, data: bytes) -> None:
        """See `Tap.answered`. That tells nothing here."""

    def ended(self) -> None:
        """See `Tap.ended`."""
        if self._file:
            self._uploads.keep("standard input", self._file)
        self._file = None


class ScpSink:
    """Reads what `scp -t` is sent: a line for each file, its bytes, and a NUL."""

    _LINE = re.compile(rb"C[0-7]{4} (\d{1,18}) ([^\n]*)\n")

    def __init__(self, uploads: Uploads) -> None:
        self._uploads = uploads
        self._line = bytearray()
        self._file: bytearray | None = None
        self._missing = 0
        self._name = ""
        self._over = False

    def sent(self, data: bytes) -> None:
        """See `Tap.sent`."""
        at = 0
        while at < len(data) and not self._over:
            if self._missing:
                piece = data[at : at + self._missing]
                if self._file is not None:
                    self._add(self._file, piece)
                self._missing -= len(piece)
                at += len(piece)
                if not self._missing:
                    self._finish()
                continue
            end = data.find(b"\n", at)
            self._line += data[at : len(data) if end < 0 else end + 1]
            at = len(data) if end < 0 else end + 1
            self._over = len(self._line) > 8192
            if end >= 0:
                line, self._line = bytes(self._line).lstrip(b"\0"), bytearray()
                self._begin(line)

    def _begin(self, line: bytes) -> None:
        match = self._LINE.fullmatch(line)
        if match:
            self._missing, self._name = int(match[1]), os.fsdecode(match[2])
            self._file = bytearray() if self._missing <= LARGEST else None
            if not self._missing:
                self._finish()

    def _add(self, file: bytearray, piece: bytes) -> None:
        if self._uploads.room(len(piece)):
            file += piece
        else:
            self._uploads.forget(len(file))
            self._file = None

    def _finish(self) -> None:
        if self._file is not None:
            self._uploads.keep(self._name, self._file)
        self._file = None

    def answered(self, data: bytes) -> None:
        """See `Tap.answered`. That tells nothing here."""

    def ended(self) -> None:
        """See `Tap.ended`. Files that have not come whole are not kept."""


_OPEN, _CLOSE, _WRITE, _HANDLE = 3, 4, 6, 102
_WRITES = 2
_LONGEST_PACKET = 256 * 1024 + 1024


class SftpServer:
    """Reads a session of SFTP 3: which files were opened, and what was written to each.

    A file that is not written from its beginning on, without a gap, is not kept.
    """

    def __init__(self, uploads: Uploads) -> None:
        self._uploads = uploads
        self._asked, self._told = _Packets(), _Packets()
        self._opening: dict[int, str] = {}
        self._open: dict[bytes, tuple[str, bytearray]] = {}

    def sent(self, data: bytes) -> None:
        """See `Tap.sent`."""
        for kind, body in self._asked.add(data):
            try:
                self._ask(kind, body)
            except (struct.error, IndexError):
                continue

    def answered(self, data: bytes) -> None:
        """See `Tap.answered`."""
        for kind, body in self._told.add(data):
            if kind != _HANDLE or len(body) < 8:
                continue
            (number,) = struct.unpack_from(">I", body)
            name = self._opening.pop(number, None)
            if name is not None and len(self._open) < 64:
                self._open[_text(body, 4)[0]] = name, bytearray()

    def ended(self) -> None:
        """See `Tap.ended`. Files that are still open are not kept."""

    def _ask(self, kind: int, body: bytes) -> None:
        (number,) = struct.unpack_from(">I", body)
        if kind not in {_OPEN, _CLOSE, _WRITE}:
            return
        text, at = _text(body, 4)
        if kind == _OPEN:
            (flags,) = struct.unpack_from(">I", body, at)
            if flags & _WRITES and len(self._opening) < 64:
                self._opening[number] = os.fsdecode(text)
        elif kind == _CLOSE and text in self._open:
            name, content = self._open.pop(text)
            self._uploads.keep(name, content)
        elif kind == _WRITE and text in self._open:
            (offset,) = struct.unpack_from(">Q", body, at)
            data, _ = _text(body, at + 8)
            content = self._open[text][1]
            more = max(0, offset + len(data) - len(content))
            if offset > len(content) or not self._uploads.room(more):
                del self._open[text]
                self._uploads.forget(len(content))
            else:
                content[offset : offset + len(data)] = data


class _Packets:
    """Packets of a stream; after one that is too long there are no more."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self._over = False

    def add(self, data: bytes) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        if self._over:
            return found
        self._kept += data
        while len(self._kept) >= 5:
            (length,) = struct.unpack_from(">I", self._kept)
            if not 1 <= length <= _LONGEST_PACKET:
                self._over = True
                self._kept.clear()
                break
            if len(self._kept) < 4 + length:
                break
            found.append((self._kept[4], bytes(self._kept[5 : 4 + length])))
            del self._kept[: 4 + length]
        return found


def _text(body: bytes, at: int) -> tuple[bytes, int]:
    (length,) = struct.unpack_from(">I", body, at)
    end = at + 4 + length
    if end > len(body):
        raise IndexError("a text that goes past its packet")
    return body[at + 4 : end], end
