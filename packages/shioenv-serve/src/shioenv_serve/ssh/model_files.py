"""Files of a shell answered by a model: SFTP version 3, and the older protocol of `scp`.

Nothing is executed. Reading and listing use the state of the shell. Each change by a visitor is a
line of the shell: an upload is `cat > NAME`, with the content as standard input.
"""

from __future__ import annotations

import posixpath
import re
import shlex
import stat
import struct
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from shioenv.bash.words import quoted
from shioenv.domain.context import FileEntry, instant
from shioenv.domain.readable import mode_of
from shioenv.errors import Abstained
from shioenv.live.machine_thread import Seat
from shioenv.live.model_shell import ModelShell
from shioenv_serve.ssh.machines import Account
from shioenv_serve.ssh.uploads import (
    LARGEST,
    LONGEST_READ,
    NO_ROOM,
    NOT_WHOLE,
    Fields,
    Packets,
    Uploads,
)

HANDLES: Final = 64
"""Maximum open files and directories of a session; our choice."""

_OK, _EOF, _NO_FILE, _DENIED, _FAILURE, _BAD, _UNSUPPORTED = 0, 1, 2, 3, 4, 5, 8
_SAID: Final = {
    _OK: "Success", _EOF: "End of file", _NO_FILE: "No such file", _DENIED: "Permission denied",
    _FAILURE: "Failure", _BAD: "Bad message", _UNSUPPORTED: "Operation unsupported",
}  # fmt: skip
_STATUS, _HANDLE, _DATA, _NAME, _ATTRS, _VERSION = 101, 102, 103, 104, 105, 2
_WRITES, _TRUNCATES, _EXCLUSIVE = 2, 16, 32
_KINDS: Final = {
    "d": stat.S_IFDIR, "l": stat.S_IFLNK, "-": stat.S_IFREG, "c": stat.S_IFCHR, "b": stat.S_IFBLK,
    "p": stat.S_IFIFO, "s": stat.S_IFSOCK,
}  # fmt: skip


class StatusError(Exception):
    """An operation that failed with an SFTP status."""

    def __init__(self, status: int) -> None:
        super().__init__(_SAID[status])
        self.status = status


class ModelFiles:
    """The files in a shell's state. All methods must run in the shell's thread.

    Errors of all methods: StatusError.
    """

    def __init__(self, shell: ModelShell, accounts: Mapping[str, Account]) -> None:
        self._shell, self._accounts = shell, accounts

    def resolve(self, path: str) -> str:
        """Return the absolute path, with symbolic links resolved."""
        return self._shell.state.resolve(path)

    def find(self, path: str, *, follow: bool = True) -> FileEntry | None:
        """Return the file at a path; None if it does not exist."""
        state = self._shell.state
        if follow:
            return state.entry(path)
        above, name = posixpath.split(path.rstrip("/") or "/")
        return state.entry_at(posixpath.join(state.resolve(above or "."), name).rstrip("/") or "/")

    def entry(self, path: str, *, follow: bool = True) -> FileEntry:
        """Return the file at a path, which must exist."""
        found = self.find(path, follow=follow)
        if found is None:
            raise StatusError(_NO_FILE)
        return found

    def is_directory(self, path: str) -> bool:
        """Whether a path leads to a directory."""
        found = self.find(path)
        return found is not None and found.perms.startswith("d")

    def names(self, path: str) -> list[str]:
        """Return the names in a directory."""
        if not self.is_directory(path):
            raise StatusError(_NO_FILE)
        return [".", "..", *self._shell.state.names(path)]

    def read(self, path: str) -> bytes:
        """Return the content of a file. Unknown content is an error."""
        self.entry(path)
        content = self._shell.state.read(path)
        if content is None:
            raise StatusError(_FAILURE)
        return content

    def may_write(self, path: str) -> None:
        """Check that a file could be written."""
        if self.is_directory(path):
            raise StatusError(_FAILURE)
        if not self.is_directory(posixpath.dirname(path.rstrip("/")) or "."):
            raise StatusError(_NO_FILE)

    def write(self, path: str, content: bytes) -> None:
        """Write a file by running a line in the shell."""
        self.run(f"cat > {quoted(path)}", content)

    def run(self, line: str, given: bytes = b"") -> None:
        """Run a line in the shell; a non-zero exit code is an error."""
        self._shell.state = replace(self._shell.state, stdin=given)
        try:
            behavior = self._shell.run(line)
        except Abstained:
            self._shell.state = replace(self._shell.state, stdin=b"")
            raise StatusError(_FAILURE) from None
        if behavior.exit_code:
            missing = b"No such file" in behavior.output
            denied = b"ermission denied" in behavior.output
            raise StatusError(_NO_FILE if missing else _DENIED if denied else _FAILURE)

    def attributes(self, entry: FileEntry) -> bytes:
        """Return an entry's attributes in SFTP's format."""
        owner = self._accounts.get(entry.owner)
        uid, gid = (owner.uid, owner.gid) if owner else (0, 0)
        seconds = int(instant(entry).timestamp())
        return struct.pack(
            ">IQIIIII", 15, entry.size, uid, gid, file_mode(entry.perms), seconds, seconds
        )


def file_mode(perms: str) -> int:
    """Return the mode for permissions as printed by `ls`, including the file type bits."""
    return _KINDS.get(perms[:1], 0) | mode_of(perms)


def format_entry(entry: FileEntry, name: str) -> str:
    """Format a file as `ls -l` does."""
    return (
        f"{entry.perms} {entry.links:>4} {entry.owner:<8} {entry.group:<8} {entry.size:>8} "
        f"{entry.month} {entry.day:>2} {entry.time} {name}"
    )


class SftpAnswers:
    """Answer an SFTP version 3 session. All methods must run in the shell's thread."""

    def __init__(self, files: ModelFiles, uploads: Uploads) -> None:
        """Begin a session; `uploads` keeps complete files."""
        self._files, self._uploads = files, uploads
        self._packets = Packets()
        self._next = 0
        self._reading: dict[bytes, bytes] = {}
        self._writing: dict[bytes, tuple[str, bytearray]] = {}
        self._cut: set[bytes] = set()
        """Handles of files that exceeded the budget."""
        self._listing: dict[bytes, tuple[str, list[str]]] = {}

    @property
    def over(self) -> bool:
        """Whether the visitor sent an invalid packet."""
        return self._packets.over

    def answer(self, data: bytes) -> bytes:
        """Return the answer to the received bytes."""
        return b"".join(_packet(*self._said(*one)) for one in self._packets.add(data))

    def close(self) -> None:
        """Report the files that were not closed; they are not kept."""
        for handle, (path, _) in self._writing.items():
            if handle not in self._cut:
                self._uploads.dropped(path, NOT_WHOLE)

    def _said(self, kind: int, body: bytes) -> tuple[int, bytes]:
        if kind == 1:
            return _VERSION, struct.pack(">I", 3)
        if len(body) < 4:
            self._packets.over = True
            return _STATUS, _status(b"\0\0\0\0", _BAD)
        number, asked = body[:4], Fields(body[4:])
        try:
            done = self._HANDLERS[kind](self, asked) if kind in self._HANDLERS else _UNSUPPORTED
        except StatusError as error:
            done = error.status
        except (struct.error, UnicodeDecodeError):
            done = _BAD
        if isinstance(done, int):
            return _STATUS, _status(number, done)
        return done[0], number + done[1]

    def _opened(self) -> bytes:
        if len(self._reading) + len(self._writing) + len(self._listing) >= HANDLES:
            raise StatusError(_FAILURE)
        self._next += 1
        return struct.pack(">I", self._next)

    def _open(self, asked: Fields) -> tuple[int, bytes]:
        path, flags = asked.path(), asked.number()
        handle = self._opened()
        if not flags & _WRITES:
            self._reading[handle] = self._files.read(path)
            return _HANDLE, _text(handle)
        self._files.may_write(path)
        content = bytearray()
        if self._files.find(path) is not None:
            if flags & _EXCLUSIVE:
                raise StatusError(_FAILURE)
            if not flags & _TRUNCATES:
                content += self._files.read(path)
        if not self._uploads.room(len(content)):
            self._uploads.dropped(path, NO_ROOM)
            raise StatusError(_FAILURE)
        self._writing[handle] = path, content
        return _HANDLE, _text(handle)

    def _close(self, asked: Fields) -> int:
        handle = asked.bytes()
        if handle in self._writing:
            path, content = self._writing.pop(handle)
            if handle in self._cut:
                self._uploads.forget(len(content))
            else:
                self._uploads.keep(path, content)
            self._files.write(path, bytes(content))
            return _OK
        known = self._reading.pop(handle, None), self._listing.pop(handle, None)
        return _FAILURE if known == (None, None) else _OK

    def _read(self, asked: Fields) -> tuple[int, bytes] | int:
        handle, offset, length = asked.bytes(), asked.long(), asked.number()
        content = self._reading.get(handle)
        if content is None:
            return _FAILURE
        piece = content[offset : offset + min(length, LONGEST_READ)]
        return (_DATA, _text(piece)) if piece else _EOF

    def _write(self, asked: Fields) -> int:
        handle, offset, data = asked.bytes(), asked.long(), asked.bytes()
        if handle not in self._writing:
            return _FAILURE
        path, content = self._writing[handle]
        more = max(0, offset + len(data) - len(content))
        if more > LARGEST or not self._uploads.room(more):
            if handle not in self._cut:
                self._cut.add(handle)
                self._uploads.dropped(path, NO_ROOM)
            return _FAILURE
        content += bytes(max(0, offset - len(content)))
        content[offset : offset + len(data)] = data
        return _OK

    def _stat(self, asked: Fields) -> tuple[int, bytes]:
        return _ATTRS, self._files.attributes(self._files.entry(asked.path()))

    def _lstat(self, asked: Fields) -> tuple[int, bytes]:
        return _ATTRS, self._files.attributes(self._files.entry(asked.path(), follow=False))

    def _fstat(self, asked: Fields) -> tuple[int, bytes]:
        handle = asked.bytes()
        if handle in self._writing:
            size = len(self._writing[handle][1])
        elif handle in self._reading:
            size = len(self._reading[handle])
        else:
            raise StatusError(_FAILURE)
        return _ATTRS, struct.pack(">IQ", 1, size)

    def _setstat(self, asked: Fields) -> int:
        path = asked.path()
        self._files.entry(path)
        if mode := asked.mode():
            self._files.run(f"chmod {mode:o} {quoted(path)}")
        return _OK

    def _fsetstat(self, asked: Fields) -> int:
        handle = asked.bytes()
        return _OK if handle in self._writing or handle in self._reading else _FAILURE

    def _opendir(self, asked: Fields) -> tuple[int, bytes]:
        path, handle = asked.path(), self._opened()
        self._listing[handle] = path, self._files.names(path)
        return _HANDLE, _text(handle)

    def _readdir(self, asked: Fields) -> tuple[int, bytes] | int:
        handle = asked.bytes()
        if handle not in self._listing:
            return _FAILURE
        path, names = self._listing[handle]
        now, names[:] = names[:100], names[100:]
        told = []
        for name in now:
            place = posixpath.join(path, name)
            if entry := self._files.find(place, follow=name in {".", ".."}):
                row = _text(name) + _text(format_entry(entry, name)) + self._files.attributes(entry)
                told.append(row)
        return (_NAME, struct.pack(">I", len(told)) + b"".join(told)) if told else _EOF

    def _realpath(self, asked: Fields) -> tuple[int, bytes]:
        path = self._files.resolve(asked.path() or ".")
        return _NAME, struct.pack(">I", 1) + _text(path) * 2 + struct.pack(">I", 0)

    def _readlink(self, asked: Fields) -> tuple[int, bytes]:
        target = self._files.entry(asked.path(), follow=False).target
        if target is None:
            raise StatusError(_FAILURE)
        return _NAME, struct.pack(">I", 1) + _text(target) * 2 + struct.pack(">I", 0)

    def _remove(self, asked: Fields) -> int:
        self._files.run(f"rm -- {quoted(asked.path())}")
        return _OK

    def _mkdir(self, asked: Fields) -> int:
        self._files.run(f"mkdir -- {quoted(asked.path())}")
        return _OK

    def _rmdir(self, asked: Fields) -> int:
        self._files.run(f"rmdir -- {quoted(asked.path())}")
        return _OK

    def _rename(self, asked: Fields) -> int:
        old, new = asked.path(), asked.path()
        if self._files.find(new, follow=False) is not None:
            return _FAILURE
        self._files.run(f"mv -- {quoted(old)} {quoted(new)}")
        return _OK

    def _symlink(self, asked: Fields) -> int:
        target, link = asked.path(), asked.path()  # in OpenSSH's order
        self._files.run(f"ln -s -- {quoted(target)} {quoted(link)}")
        return _OK

    _HANDLERS: Final[Mapping[int, Callable[..., tuple[int, bytes] | int]]] = {
        3: _open, 4: _close, 5: _read, 6: _write, 7: _lstat, 8: _fstat, 9: _setstat, 10: _fsetstat,
        11: _opendir, 12: _readdir, 13: _remove, 14: _mkdir, 15: _rmdir, 16: _realpath, 17: _stat,
        18: _rename, 19: _readlink, 20: _symlink,
    }  # fmt: skip


Reader = Callable[[], Awaitable[bytes]]
"""A callable that returns the visitor's next bytes; empty at the end."""

Writer = Callable[[bytes], Awaitable[object]]


class ScpAnswers:
    """Answer `scp -t` and `scp -f`, the older protocol of `scp`, from any thread."""

    def __init__(
        self, seat: Seat[ModelShell], files: ModelFiles, uploads: Uploads, read: Reader, say: Writer
    ) -> None:
        """Begin a session; `uploads` keeps complete files."""
        self._seat, self._files, self._uploads = seat, files, uploads
        self._read, self._say = read, say
        self._kept = bytearray()

    async def answer(self, command: str) -> int:
        """Answer a command, and return its exit code."""
        try:
            flags, operands = _options(command)
        except ValueError:
            return 1
        if "t" in flags:
            return await self._sink(operands[0] if operands else ".")
        if "f" in flags:
            return await self._source(operands)
        return 1

    async def _sink(self, target: str) -> int:
        """Receive files until the visitor's input ends."""
        places, failed = [target], 0
        await self._say(b"\0")
        while line := await self._line():
            kind, row = line[:1], line[1:].split(" ", 2)
            if kind in "CD" and len(row) == 3 and row[1].isdecimal():
                place = await self._placed(places[-1], row[2])
                if kind == "C":
                    wrong = await self._take(place, int(row[1]))
                else:
                    wrong = await self._done(partial(_make, place))
                    places.append(place)
            elif kind == "E" and len(places) > 1:
                places.pop()
                wrong = ""
            else:
                wrong = "" if kind == "T" else "protocol error"
            failed = failed or bool(wrong)
            await self._say(f"\1scp: {wrong}\n".encode() if wrong else b"\0")
            if wrong == "protocol error":
                break
        return int(failed)

    async def _take(self, place: str, size: int) -> str:
        """Receive a file, and return the error message; empty on success."""
        keeps = size <= LARGEST and self._uploads.room(size)
        if not keeps:
            self._uploads.dropped(place, NO_ROOM)
        await self._say(b"\0")
        content = bytearray()
        while size:
            piece = await self._some(size)
            if not piece:
                if keeps:
                    self._uploads.dropped(place, NOT_WHOLE)
                return "lost connection"
            size -= len(piece)
            if keeps:
                content += piece
        await self._some(1)  # the NUL after the content
        if not keeps:
            return f"{place}: No space left on device"
        self._uploads.keep(posixpath.basename(place), content)
        await self._uploads.write()
        return await self._done(lambda files: files.write(place, bytes(content)))

    async def _source(self, paths: list[str]) -> int:
        """Send files."""
        failed = 0
        if await self._some(1) != b"\0":
            return 1
        for path in paths:
            try:
                content, mode = await self._seat.do(partial(self._known, path))
            except StatusError as error:
                failed = 1
                await self._say(f"\1scp: {path}: {error}\n".encode())
                continue
            head = f"C{mode:04o} {len(content)} {posixpath.basename(path)}\n"
            for piece in (head.encode(), content + b"\0"):
                await self._say(piece)
                if await self._some(1) != b"\0":
                    return 1
        return failed

    def _known(self, path: str, _: ModelShell) -> tuple[bytes, int]:
        if self._files.is_directory(path):
            raise StatusError(_FAILURE)
        content = self._files.read(path)
        return content, mode_of(self._files.entry(path).perms)

    async def _placed(self, target: str, name: str) -> str:
        """Return the destination of a name: inside the target if that is a directory."""
        inside = await self._seat.do(lambda _: self._files.is_directory(target))
        return posixpath.join(target, posixpath.basename(name)) if inside else target

    async def _done(self, action: Callable[[ModelFiles], None]) -> str:
        """Run an action in the shell's thread, and return the error message; empty on success."""
        try:
            await self._seat.do(lambda _: action(self._files))
        except StatusError as error:
            return str(error)
        return ""

    async def _line(self) -> str:
        """Return the next line without its newline; empty at the end, and for an oversized line."""
        while b"\n" not in self._kept and len(self._kept) <= 8192:
            data = await self._read()
            if not data:
                return ""
            self._kept += data
        line, found, rest = bytes(self._kept).partition(b"\n")
        self._kept[:] = rest
        return line.decode("utf-8", "surrogateescape") if found else ""

    async def _some(self, most: int) -> bytes:
        """Return the next bytes; empty at the end."""
        if not self._kept:
            self._kept += await self._read()
        some = bytes(self._kept[:most])
        del self._kept[:most]
        return some


def _make(place: str, files: ModelFiles) -> None:
    if not files.is_directory(place):
        files.run(f"mkdir -- {quoted(place)}")


def _options(command: str) -> tuple[str, list[str]]:
    """Return the option letters and the operands of a command. Errors: ValueError."""
    words = shlex.split(command)[1:]
    flags = [word for word in words if re.fullmatch(r"-[a-z]+", word)]
    return "".join(flags), [word for word in words if word not in flags and word != "--"]


def _text(text: str | bytes) -> bytes:
    data = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
    return struct.pack(">I", len(data)) + data


def _status(number: bytes, status: int) -> bytes:
    return number + struct.pack(">I", status) + _text(_SAID[status]) + _text("")


def _packet(kind: int, body: bytes) -> bytes:
    return struct.pack(">IB", len(body) + 1, kind) + body
