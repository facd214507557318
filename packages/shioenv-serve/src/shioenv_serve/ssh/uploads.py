"""Files that visitors bring, kept by the digest of their content."""

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

LARGEST: Final = 64 * MEBIBYTE
"""Bytes that are kept of one visitor's files together; ours. Later files are not kept."""

HELD: Final = 256 * MEBIBYTE
"""Bytes of all visitors' files that are held in memory at once, until they are written; ours."""

PROTOCOL: Final = re.compile(r"(?:\S*/)?(scp|sftp-server|rsync)(?= |$)")
"""Commands that talk with the visitor's program through both channels at once."""

_WRITING = threading.Lock()  # two channels may bring the same content at once

NO_ROOM: Final = "no room"
"""Why a file is not kept: the bound `LARGEST` or `HELD` is reached."""

NOT_WHOLE: Final = "did not come whole"

Told = Callable[[str, Path, str], object]
"""Is told of a file: its name, where its content is kept, the content's SHA-256."""

Dropped = Callable[[str, str], object]
"""Called for a file that is not kept, with its name and the reason."""


@dataclass(slots=True)
class Room:
    """Bytes that several channels may still use together."""

    left: int


class Uploads:
    """Keeps contents in a directory, each under its SHA-256, for one channel."""

    def __init__(
        self, directory: Path, told: Told, dropped: Dropped, visitors: Room, servers: Room
    ) -> None:
        """`visitors` is the room of the visitor's files, `servers` that of the server's memory."""
        self._directory, self._told, self.dropped = directory, told, dropped
        self._visitors, self._servers = visitors, servers
        self._held = 0
        self._whole: list[tuple[str, bytes | bytearray]] = []
        self._writing = asyncio.Lock()

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

    def give_back(self, count: int) -> None:
        """Uncount bytes that turned out to be no part of a file."""
        self.forget(count)
        self._visitors.left += count

    def keep(self, name: str, content: bytes | bytearray) -> None:
        """Takes a whole content, whose bytes are counted, for the next `write`."""
        self._whole.append((name, content))

    async def write(self) -> None:
        """Writes the contents that were taken, and tells of each. Errors: DatasetStorageError.

        A content that is there already is not written again.
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

    def close(self) -> None:
        """Report the files that have not come whole, once nothing more comes from either side."""
        ...


def tap_of(command: str | None, uploads: Uploads) -> Tap:
    """What looks for files in what a visitor sends to a command; None is a shell."""
    protocol = PROTOCOL.match(command or "")
    if protocol and protocol[1] == "sftp-server":
        return SftpServer(uploads)
    if protocol and protocol[1] == "scp" and re.search(r" -\w*t", command or ""):
        return ScpSink(uploads)
    return StandardInput(uploads)


class StandardInput:
    """Keeps what a command is sent, as one file, once it has come whole."""

    _NAME: Final = "standard input"

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
            self._drop(NO_ROOM)

    def answered(self, data: bytes) -> None:
        """See `Tap.answered`. That tells nothing here."""

    def ended(self) -> None:
        """See `Tap.ended`."""
        if self._file:
            self._uploads.keep(self._NAME, self._file)
        self._file = None

    def close(self) -> None:
        """See `Tap.close`."""
        if self._file:
            self._drop(NOT_WHOLE)

    def _drop(self, reason: str) -> None:
        self._uploads.forget(len(self._file or b""))
        self._uploads.dropped(self._NAME, reason)
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
                self._uploads.dropped("scp", "a line of more than 8,192 bytes")
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
        """See `Tap.answered`. That tells nothing here."""

    def ended(self) -> None:
        """See `Tap.ended`. Files that have not come whole are not kept."""

    def close(self) -> None:
        """See `Tap.close`."""
        self._drop(NOT_WHOLE)


_OPEN, _CLOSE, _WRITE, _HANDLE = 3, 4, 6, 102
_WRITES = 2
LONGEST_READ: Final = 256 * 1024
"""Bytes of a file that one answer holds at most, as with OpenSSH's server."""
_LONGEST_PACKET = LONGEST_READ + 1024

MOST_REQUESTS: Final = 65_536
"""Requests of a session of SFTP that may lack their answer at once; ours."""

MOST_OPEN: Final = 256
"""Files of a session of SFTP that may be open at once; ours. Further ones are not kept."""

_OVERHEAD: Final = 256
"""Bytes that are counted for a request in memory, beside its own."""


class SftpServer:
    """Reads a session of SFTP 3: which files were opened, and what was written to each.

    Requests and answers are matched by their order, as `sftp-server` keeps it. A client that
    guesses a handle may write before the answer to its opening has come. So the requests after an
    opening are held until its answer. A file that is not written from its beginning on, without a
    gap, is not kept.
    """

    def __init__(self, uploads: Uploads) -> None:
        self._uploads = uploads
        self._asked, self._told = Packets(), Packets()
        self._unanswered: deque[bytes | None] = deque()
        """For each request without an answer, the name of the file that it opens to write."""
        self._opening = 0
        """The names among them."""
        self._held: deque[tuple[int, bytes]] = deque()
        """What was sent after the first of these openings. Each further one is without a body."""
        self._open: dict[bytes, tuple[str, bytearray]] = {}
        self._over = False

    def sent(self, data: bytes) -> None:
        """See `Tap.sent`."""
        for kind, body in self._asked.add(data):
            if not self._over:
                self._ask(kind, body)

    def answered(self, data: bytes) -> None:
        """See `Tap.answered`."""
        for kind, body in self._told.add(data):
            name = self._unanswered.popleft() if self._unanswered else None
            if name is not None:
                handle = None
                if kind == _HANDLE:
                    with suppress(struct.error):
                        handle = Fields(body[4:]).bytes()
                self._settle(name, handle)

    def ended(self) -> None:
        """See `Tap.ended`. Answers may still come."""

    def close(self) -> None:
        """See `Tap.close`.

        `sftp-server` drops its answers where its input ends. An opening without an answer is taken
        to have given the handle that the client guessed.
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
        """The handle that the client used first after the first opening without an answer."""
        for kind, body in self._held:
            if kind == _OPEN:
                break
            with suppress(struct.error):
                handle = Fields(body[4:]).bytes()
                if handle not in self._open:
                    return handle
        return None

    def _settle(self, name: bytes, handle: bytes | None) -> None:
        """Take the answer to the first opening: a handle, or None. Follow what was held for it."""
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
        """Take a request: at once, or held where an opening before it has no answer."""
        name = _opened(body) if kind == _OPEN else None
        counted = body if name is None else name
        holds = name is not None or (self._opening > 0 and kind in {_CLOSE, _WRITE})
        full = len(self._unanswered) >= MOST_REQUESTS
        if full or (holds and not self._uploads.room(_OVERHEAD + len(counted))):
            reason = "too many requests without an answer" if full else NO_ROOM
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
        """Follow a request; a malformed one changes nothing."""
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
        """Follow the session no longer. The files that are open or being opened are not kept."""
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
    """The name of the file that a request opens to write; None where it does not."""
    with suppress(struct.error):
        fields = Fields(body[4:])
        name = fields.bytes()
        return name if fields.number() & _WRITES else None
    return None


class Packets:
    """Packets of SFTP in a stream; after one that is too long there are no more."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self.over = False
        """Whether something came that is no packet."""

    def add(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield the kind and body of each packet that the data end; stop where `over` is set."""
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
    """The fields behind a packet's number, in their order. Errors of all: struct.error."""

    def __init__(self, body: bytes) -> None:
        self._body, self._at = body, 0

    def number(self) -> int:
        """The next field, of 32 bits."""
        (number,) = struct.unpack_from(">I", self._body, self._at)
        self._at += 4
        return int(number)

    def long(self) -> int:
        """The next field, of 64 bits."""
        (number,) = struct.unpack_from(">Q", self._body, self._at)
        self._at += 8
        return int(number)

    def bytes(self) -> bytes:
        """The next field, a length and so many bytes."""
        end = self.number() + self._at
        if end > len(self._body):
            raise struct.error
        data, self._at = self._body[self._at : end], end
        return data

    def path(self) -> str:
        """The next field as a path."""
        path = self.bytes().decode("utf-8", "surrogateescape")
        if "\0" in path or len(path) > 4096:
            raise struct.error
        return path

    def mode(self) -> int | None:
        """The rights in the attributes that are next; None where there are none."""
        flags = self.number()
        self._at += 8 * bool(flags & 1) + 8 * bool(flags & 2)
        return self.number() & 0o7777 if flags & 4 else None
