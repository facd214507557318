"""Uploaded files, stored under the digest of their content."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from shioenv.files.durable import replacing, storage_errors
from shioenv.sandbox.base import MEBIBYTE
from shioenv_serve.visit_log import PROTOCOL, STANDARD_INPUT

LARGEST: Final = 64 * MEBIBYTE
"""Maximum total bytes kept of one visitor's files; our choice. Later files are not kept."""

HELD: Final = 256 * MEBIBYTE
"""Maximum bytes of all visitors' files held in memory until they are written; our choice."""

_WRITING = threading.Lock()  # two channels may upload the same content at once

NO_ROOM: Final = "no room"
"""The reason reported for a file beyond the limit `LARGEST` or `HELD`."""

NOT_WHOLE: Final = "incomplete"

Told = Callable[[str, Path, str], object]
"""A callback for a stored file, with its name, the path of its content, and the SHA-256."""

Dropped = Callable[[str, str], object]
"""A callback for a file that is not kept, with its name and the reason."""


@dataclass(slots=True)
class Room:
    """A budget of bytes shared by several channels."""

    left: int


class Uploads:
    """A store of contents in a directory, each under its SHA-256, for one channel."""

    def __init__(
        self, directory: Path, told: Told, dropped: Dropped, visitors: Room, servers: Room
    ) -> None:
        """Create a store with the visitor's disk budget and the server's memory budget."""
        self._directory, self._told, self.dropped = directory, told, dropped
        self._visitors, self._servers = visitors, servers
        self._held = 0
        self._whole: list[tuple[str, bytes | bytearray]] = []
        self._writing = asyncio.Lock()

    def room(self, wanted: int) -> bool:
        """Whether that many more bytes may be kept; if so, they are charged."""
        if wanted > min(self._visitors.left, self._servers.left):
            return False
        self._visitors.left -= wanted
        self._servers.left -= wanted
        self._held += wanted
        return True

    def forget(self, count: int) -> None:
        """Release charged bytes from the memory budget."""
        self._held -= count
        self._servers.left += count

    def give_back(self, count: int) -> None:
        """Release charged bytes that turned out not to belong to a file."""
        self.forget(count)
        self._visitors.left += count

    def keep(self, name: str, content: bytes | bytearray) -> None:
        """Queue a complete content, whose bytes are charged, for the next `write`."""
        self._whole.append((name, content))

    async def write(self) -> None:
        """Write the queued contents, and report each. Errors: DatasetStorageError.

        A content that is already stored is not written again.
        """
        async with self._writing:
            while self._whole:
                name, content = self._whole[0]
                place = await asyncio.to_thread(self._written, content)
                del self._whole[0]
                self.forget(len(content))
                self._told(name, place, place.name)

    def _written(self, content: bytes | bytearray) -> Path:
        place = self._directory / hashlib.sha256(content).hexdigest()
        with _WRITING, storage_errors(place):
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)  # may hold malware
            if not place.exists():
                with replacing(place) as file:
                    file.write(content)
        return place

    def close(self) -> None:
        """Discard contents that are not written, and release their memory."""
        self._whole.clear()
        self.forget(self._held)


class Tap(Protocol):
    """A parser that extracts files from a channel's traffic."""

    def sent(self, data: bytes) -> None:
        """Process bytes from the visitor."""
        ...

    def answered(self, data: bytes) -> None:
        """Process bytes from the machine."""
        ...

    def ended(self) -> None:
        """Note the end of the visitor's input."""
        ...

    def close(self) -> None:
        """Report the incomplete files, once both directions have ended."""
        ...


def tap_of(command: str | None, uploads: Uploads) -> Tap:
    """Return the parser for the input of a command; None is a shell."""
    protocol = PROTOCOL.match(command or "")
    if protocol and protocol[1] == "sftp-server":
        return SftpServer(uploads)
    if protocol and protocol[1] == "scp" and re.search(r" -\w*t", command or ""):
        return ScpSink(uploads)
    return StandardInput(uploads)


class StandardInput:
    """Keep a command's whole input as one file, once it is complete."""

    def __init__(self, uploads: Uploads) -> None:
        self._uploads = uploads
        self._file: bytearray | None = bytearray()

    def sent(self, data: bytes) -> None:
        """Add to the file; see `Tap.sent`."""
        if self._file is None:
            return
        if self._uploads.room(len(data)):
            self._file += data
        else:
            self._drop(NO_ROOM)

    def answered(self, data: bytes) -> None:
        """Ignore the output; see `Tap.answered`."""

    def ended(self) -> None:
        """Keep the file; see `Tap.ended`."""
        if self._file:
            self._uploads.keep(STANDARD_INPUT, self._file)
        self._file = None

    def close(self) -> None:
        """Report an incomplete file; see `Tap.close`."""
        if self._file:
            self._drop(NOT_WHOLE)

    def _drop(self, reason: str) -> None:
        self._uploads.forget(len(self._file or b""))
        self._uploads.dropped(STANDARD_INPUT, reason)
        self._file = None


class ScpSink:
    """Parse the input of `scp -t`: a header line for each file, its bytes, and a NUL."""

    _LINE = re.compile(rb"C[0-7]{4} (\d{1,18}) ([^\n]*)\n")

    def __init__(self, uploads: Uploads) -> None:
        self._uploads = uploads
        self._line = bytearray()
        self._file: bytearray | None = None
        self._missing = 0
        self._name = ""
        self._over = False

    def sent(self, data: bytes) -> None:
        """Parse the input; see `Tap.sent`."""
        at = 0
        while at < len(data) and not self._over:
            if self._missing:
                piece = data[at : at + self._missing]
                self._add(piece)
                self._missing -= len(piece)
                at += len(piece)
                if not self._missing:
                    self._finish()
                continue
            end = data.find(b"\n", at)
            self._line += data[at : len(data) if end < 0 else end + 1]
            at = len(data) if end < 0 else end + 1
            if len(self._line) > 8192:
                self._over = True
                self._uploads.dropped("scp", "a line exceeds 8,192 bytes")
            if end >= 0:
                line, self._line = bytes(self._line).lstrip(b"\0"), bytearray()
                self._begin(line)

    def _begin(self, line: bytes) -> None:
        match = self._LINE.fullmatch(line)
        if match:
            self._missing, self._name = int(match[1]), os.fsdecode(match[2])
            self._file = bytearray()
            if self._missing > LARGEST:
                self._drop(NO_ROOM)
            if not self._missing:
                self._finish()

    def _add(self, piece: bytes) -> None:
        if self._file is not None:
            if self._uploads.room(len(piece)):
                self._file += piece
            else:
                self._drop(NO_ROOM)

    def _drop(self, reason: str) -> None:
        if self._file is not None:
            self._uploads.forget(len(self._file))
            self._uploads.dropped(self._name, reason)
        self._file = None

    def _finish(self) -> None:
        if self._file is not None:
            self._uploads.keep(self._name, self._file)
        self._file = None

    def answered(self, data: bytes) -> None:
        """Ignore the output; see `Tap.answered`."""

    def ended(self) -> None:
        """Do nothing: `close` reports an incomplete file. See `Tap.ended`."""

    def close(self) -> None:
        """Report an incomplete file; see `Tap.close`."""
        self._drop(NOT_WHOLE)


_OPEN, _CLOSE, _WRITE, _HANDLE = 3, 4, 6, 102
_WRITES = 2
LONGEST_READ: Final = 256 * 1024
"""Maximum bytes of a file in one answer, as in OpenSSH's server."""
_LONGEST_PACKET = LONGEST_READ + 1024

MOST_REQUESTS: Final = 65_536
"""Maximum unanswered requests of an SFTP session; our choice."""

MOST_OPEN: Final = 256
"""Maximum open files of an SFTP session; our choice. Further files are not kept."""

_OVERHEAD: Final = 256
"""Bytes charged for a request in memory, in addition to its content."""


class SftpServer:
    """Parse an SFTP version 3 session: which files were opened, and what was written to each.

    Requests and answers are matched by order, which `sftp-server` preserves. A client that guesses
    a handle may write before its open request is answered. So the requests after an open request
    are held until its answer. A file is kept only if it is written from its beginning, without a
    gap.
    """

    def __init__(self, uploads: Uploads) -> None:
        self._uploads = uploads
        self._asked, self._told = Packets(), Packets()
        self._unanswered: deque[bytes | None] = deque()
        """For each unanswered request, the name of the file that it opens for writing, or None."""
        self._opening = 0
        """The number of names in `_unanswered`."""
        self._held: deque[tuple[int, bytes]] = deque()
        """Requests after the first unanswered open request. Open requests are held without body."""
        self._open: dict[bytes, tuple[str, bytearray]] = {}
        self._over = False

    def sent(self, data: bytes) -> None:
        """Process requests; see `Tap.sent`."""
        for kind, body in self._asked.add(data):
            if not self._over:
                self._ask(kind, body)

    def answered(self, data: bytes) -> None:
        """Process answers; see `Tap.answered`."""
        for kind, body in self._told.add(data):
            name = self._unanswered.popleft() if self._unanswered else None
            if name is not None:
                handle = None
                if kind == _HANDLE:
                    with suppress(struct.error):
                        handle = Fields(body[4:]).bytes()
                self._settle(name, handle)

    def ended(self) -> None:
        """Do nothing, since answers may still arrive. See `Tap.ended`."""

    def close(self) -> None:
        """Finish the session; see `Tap.close`.

        `sftp-server` drops its answers when its input ends. An unanswered open request is assumed
        to have returned the handle that the client guessed.
        """
        while self._unanswered:
            name = self._unanswered.popleft()
            if name is not None:
                handle = self._guessed()
                if handle is None:
                    self._uploads.dropped(os.fsdecode(name), NOT_WHOLE)
                self._settle(name, handle)
        self._give_up(NOT_WHOLE)

    def _guessed(self) -> bytes | None:
        """Return the handle that the client used first after the first unanswered open request."""
        for kind, body in self._held:
            if kind == _OPEN:
                break
            with suppress(struct.error):
                handle = Fields(body[4:]).bytes()
                if handle not in self._open:
                    return handle
        return None

    def _settle(self, name: bytes, handle: bytes | None) -> None:
        """Process the answer to the first open request, and the requests held for it.

        `handle` is None if the file was not opened.
        """
        self._opening -= 1
        self._uploads.give_back(_OVERHEAD + len(name))
        if handle is not None:
            self._begin(handle, os.fsdecode(name))
        while self._held:
            kind, body = self._held.popleft()
            if kind == _OPEN:
                break
            self._uploads.give_back(_OVERHEAD + len(body))
            self._do(kind, body)

    def _ask(self, kind: int, body: bytes) -> None:
        """Process a request, or hold it if an earlier open request is unanswered."""
        name = _opened(body) if kind == _OPEN else None
        counted = body if name is None else name
        holds = name is not None or (self._opening > 0 and kind in {_CLOSE, _WRITE})
        full = len(self._unanswered) >= MOST_REQUESTS
        if full or (holds and not self._uploads.room(_OVERHEAD + len(counted))):
            reason = "too many unanswered requests" if full else NO_ROOM
            self._uploads.dropped("sftp", reason)
            self._give_up(reason)
            return
        self._unanswered.append(name)
        if name is not None:
            if self._opening:
                self._held.append((_OPEN, b""))
            self._opening += 1
        elif holds:
            self._held.append((kind, body))
        else:
            self._do(kind, body)

    def _begin(self, handle: bytes, name: str) -> None:
        if handle in self._open:
            self._drop(handle, NOT_WHOLE)
        if len(self._open) < MOST_OPEN:
            self._open[handle] = name, bytearray()
        else:
            self._uploads.dropped(name, "too many open files")

    def _do(self, kind: int, body: bytes) -> None:
        """Process a request; a malformed one has no effect."""
        if kind in {_CLOSE, _WRITE}:
            with suppress(struct.error):
                fields = Fields(body[4:])
                handle = fields.bytes()
                if handle not in self._open:
                    return
                if kind == _CLOSE:
                    self._uploads.keep(*self._open.pop(handle))
                else:
                    self._write(handle, fields.long(), fields.bytes())

    def _write(self, handle: bytes, offset: int, data: bytes) -> None:
        content = self._open[handle][1]
        if offset > len(content):
            self._drop(handle, "written with a gap")
        elif not self._uploads.room(max(0, offset + len(data) - len(content))):
            self._drop(handle, NO_ROOM)
        else:
            content[offset : offset + len(data)] = data

    def _drop(self, handle: bytes, reason: str) -> None:
        name, content = self._open.pop(handle)
        self._uploads.forget(len(content))
        self._uploads.dropped(name, reason)

    def _give_up(self, reason: str) -> None:
        """Stop parsing the session. Files that are open or being opened are not kept."""
        self._over = True
        for handle in list(self._open):
            self._drop(handle, reason)
        for name in self._unanswered:
            if name is not None:
                self._uploads.give_back(_OVERHEAD + len(name))
                self._uploads.dropped(os.fsdecode(name), reason)
        self._unanswered.clear()
        for kind, body in self._held:
            if kind != _OPEN:
                self._uploads.give_back(_OVERHEAD + len(body))
        self._held.clear()


def _opened(body: bytes) -> bytes | None:
    """Return the name of the file that a request opens for writing; None if it does not."""
    with suppress(struct.error):
        fields = Fields(body[4:])
        name = fields.bytes()
        return name if fields.number() & _WRITES else None
    return None


class Packets:
    """Split a stream into SFTP packets; nothing is read after an oversized packet."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self.over = False
        """Whether an invalid packet was read."""

    def add(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Add data, and yield kind and body of each complete packet; stop once `over` is set."""
        self._kept += data
        while len(self._kept) >= 5 and not self.over:
            (length,) = struct.unpack_from(">I", self._kept)
            if not 1 <= length <= _LONGEST_PACKET:
                self.over = True
            elif len(self._kept) < 4 + length:
                break
            else:
                kind, body = self._kept[4], bytes(self._kept[5 : 4 + length])
                del self._kept[: 4 + length]
                yield kind, body
        if self.over:
            self._kept.clear()


class Fields:
    """The fields after a packet's number, in order. Errors of all methods: struct.error."""

    def __init__(self, body: bytes) -> None:
        self._body, self._at = body, 0

    def number(self) -> int:
        """Return the next field, a 32-bit integer."""
        (number,) = struct.unpack_from(">I", self._body, self._at)
        self._at += 4
        return int(number)

    def long(self) -> int:
        """Return the next field, a 64-bit integer."""
        (number,) = struct.unpack_from(">Q", self._body, self._at)
        self._at += 8
        return int(number)

    def bytes(self) -> bytes:
        """Return the next field, a length followed by that many bytes."""
        end = self.number() + self._at
        if end > len(self._body):
            raise struct.error
        data, self._at = self._body[self._at : end], end
        return data

    def path(self) -> str:
        """Return the next field as a path."""
        path = self.bytes().decode("utf-8", "surrogateescape")
        if "\0" in path or len(path) > 4096:
            raise struct.error
        return path

    def mode(self) -> int | None:
        """Return the permission bits of the attributes that follow; None if there are none."""
        flags = self.number()
        self._at += 8 * bool(flags & 1) + 8 * bool(flags & 2)
        return self.number() & 0o7777 if flags & 4 else None
