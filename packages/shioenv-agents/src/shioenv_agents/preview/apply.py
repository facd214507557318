"""Apply a preview's changes to the real files: all of them, or none.

Each file is replaced by one atomic exchange. The replaced file is compared with the file that the
preview saw. If another process has changed it since, it is put back. Paths are walked from an open
directory without following links, and never into another file system.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Final, NoReturn

from shioenv.domain.readable import readable_name
from shioenv.errors import UsageError
from shioenv.sandbox.base import FileChange, FileStat
from shioenv_agents.preview import kernel

UNDO: Final = ".shioenv-undo"
"""The directory with replaced and removed files, in the previewed directory."""

CLOCK_NS: Final = 20_000_000
"""Maximum lag of a file's change time behind the clock; Linux ticks every 1 to 10 ms."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_KEPT_BITS = 0o777
_UNREPORTED = ("system.posix_acl_access", "system.posix_acl_default", "security.capability")

Opener = Callable[[bytes], int]
"""A function that opens a regular file of the layer by its absolute path."""
LinkReader = Callable[[bytes], bytes]
"""A function that returns the target of a symbolic link of the layer."""


@dataclass(frozen=True, slots=True)
class _Step:
    """One change, by its path in the previewed directory."""

    name: bytes
    change: FileChange

    @property
    def kind(self) -> int:
        """The type of the file, before or after."""
        side = self.change.after or self.change.before
        assert side is not None
        return stat.S_IFMT(side.mode)


class Application:
    """The changes of one preview, applied to the directory that was opened before the preview."""

    def __init__(self, root: int, path: str, started_ns: int) -> None:
        """`root` is a descriptor of the directory at `path`; `started_ns` is the preview's start.

        The caller closes the descriptor.
        """
        self._root, self._path = root, os.fsencode(path)
        self._device = os.fstat(root).st_dev
        self._started_ns = started_ns - CLOCK_NS
        self._done: list[tuple[_Step, str | None]] = []

    def apply(self, changes: Iterable[FileChange], opened: Opener, link: LinkReader) -> str:
        """Apply all changes, and return the undo directory's path; empty if nothing changed.

        Errors: UsageError with the first reason why a change cannot be applied. Then none is
        applied.
        """
        steps = [*self._steps(changes)]
        for step in steps:
            self._check(step)
        if not steps:
            return ""
        with ExitStack() as stack:
            name, undo = self._undo_directory(stack)
            staged = [
                self._stage(undo, number, step, opened, link) for number, step in enumerate(steps)
            ]
            try:
                for number in _order(steps):
                    self._commit(undo, staged[number], steps[number])
                self._write_list(undo)
            except BaseException:
                self._roll_back(undo)
                raise
        return os.fsdecode(os.path.join(self._path, name))  # noqa: PTH118 - bytes

    def _steps(self, changes: Iterable[FileChange]) -> Iterator[_Step]:
        """Yield the changes to apply. Errors: UsageError if one cannot be applied."""
        for change in changes:
            before, after = change.before, change.after
            if _is_directory(before) and _is_directory(after) and _rights(before) == _rights(after):
                continue  # only the directory's times and size may differ
            inner = _below(change.path, self._path)
            if inner is None:
                _refuse(change.path, "is outside the previewed directory")
            if inner == b"" or inner.split(b"/")[0] == os.fsencode(UNDO):
                _refuse(change.path, "is reserved for saved old versions")
            yield _Step(inner, change)

    def _check(self, step: _Step) -> None:
        """Refuse a change that cannot be applied, or whose file has changed since."""
        before, after = step.change.before, step.change.after
        sides = [side for side in (before, after) if side is not None]
        kinds = {stat.S_IFMT(side.mode) for side in sides}
        if len(kinds) > 1:
            _refuse(step.name, "would change its type")
        if not kinds <= {stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK}:
            _refuse(step.name, "is neither a file, a directory nor a link")
        if after is not None and stat.S_IMODE(after.mode) & ~_KEPT_BITS:
            _refuse(step.name, "has a set-user-id, set-group-id or sticky bit")
        if after is not None and stat.S_ISREG(after.mode) and after.links > 1:
            _refuse(step.name, "has several names (hard links)")
        if after is not None and os.geteuid() != 0:
            owners = {(os.geteuid(), os.getegid()), *((s.uid, s.gid) for s in (before,) if s)}
            if (after.uid, after.gid) not in owners:
                _refuse(step.name, "has another owner")
        if before is None:
            return
        with self._parent(step.name) as (parent, last):
            self._compare(step, parent, last)

    def _compare(self, step: _Step, parent: int, last: bytes) -> None:
        """Refuse the change if the file is not the one that the preview saw."""
        before = step.change.before
        assert before is not None
        try:
            found = os.stat(last, dir_fd=parent, follow_symlinks=False)
        except OSError as error:
            _refuse(step.name, f"has changed: {error.strerror}")
        expected = (before.mode, before.uid, before.gid)
        if (found.st_mode, found.st_uid, found.st_gid) != expected:
            _refuse(step.name, "has changed: its rights")
        if found.st_dev != self._device:
            _refuse(step.name, "is on another file system")
        if stat.S_ISDIR(found.st_mode):
            return  # a directory's times change with the files in it
        if (found.st_size, found.st_mtime_ns) != (before.size, before.mtime_ns):
            _refuse(step.name, "has changed")
        if found.st_nlink > 1:
            _refuse(step.name, "has several names (hard links)")
        if found.st_ctime_ns > self._started_ns and not self._is_ours(step):
            _refuse(step.name, "changed while the command ran, or just before")
        if stat.S_ISREG(found.st_mode):
            self._compare_content(step, parent, last, found)

    def _compare_content(
        self, step: _Step, parent: int, last: bytes, found: os.stat_result
    ) -> None:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            file = os.open(last, flags, dir_fd=parent)
        except OSError as error:
            _refuse(step.name, f"cannot be read: {error.strerror}")
        with os.fdopen(file, "rb") as content:
            if not os.path.samestat(os.fstat(file), found):
                _refuse(step.name, "has changed")
            if set(os.listxattr(file)) & {*_UNREPORTED} or any(
                name.startswith("user.") for name in os.listxattr(file)
            ):
                _refuse(step.name, "has extended attributes, which a preview does not report")
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        before = step.change.before
        assert before is not None  # a removed file has no digest: its times decide
        if before.digest is not None and digest != before.digest:
            _refuse(step.name, "has changed: its content")

    def _is_ours(self, step: _Step) -> bool:
        """Whether this application moved the file, which changes its change time."""
        return any(done.name == step.name for done, _ in self._done)

    @contextmanager
    def _parent(self, name: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield a descriptor of a file's directory, reached without links, and the last name."""
        *directories, last = name.split(b"/")
        if not self._is_in_place(self._root, b""):
            _refuse(name, "is in a directory that was moved")
        here = os.dup(self._root)
        try:
            for each in directories:
                try:
                    inner = os.open(each, _DIRECTORY, dir_fd=here)
                except OSError as error:
                    _refuse(name, f"is in a directory that changed: {error.strerror}")
                os.close(here)
                here = inner
                if os.fstat(here).st_dev != self._device:
                    _refuse(name, "is on another file system")
            if not self._is_in_place(here, b"/".join(directories)):
                _refuse(name, "is in a directory that was moved")
            yield here, last
        finally:
            os.close(here)

    def _is_in_place(self, directory: int, inner: bytes) -> bool:
        """Whether an open directory is still at its path below the root directory."""
        path = os.path.join(self._path, inner) if inner else self._path  # noqa: PTH118 - bytes
        return os.readlink(f"/proc/self/fd/{directory}".encode()) == path  # noqa: PTH115 - bytes

    def _undo_directory(self, stack: ExitStack) -> tuple[bytes, int]:
        """Make a new undo directory; return its name and a descriptor."""
        with suppress(FileExistsError):
            os.mkdir(UNDO, 0o700, dir_fd=self._root)
        try:
            outer = os.open(UNDO, _DIRECTORY, dir_fd=self._root)
        except OSError as error:
            _refuse(os.fsencode(UNDO), f"is not a directory: {error.strerror}")
        stack.callback(os.close, outer)
        status = os.fstat(outer)
        if status.st_dev != self._device or status.st_uid != os.geteuid() or status.st_mode & 0o022:
            _refuse(
                os.fsencode(UNDO), "must belong to this user, and be writable only by this user"
            )
        with suppress(FileExistsError):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            ignored = os.open(".gitignore", flags, 0o600, dir_fd=outer)
            os.write(ignored, b"*\n")
            os.close(ignored)
        name = secrets.token_hex(8)
        os.mkdir(name, 0o700, dir_fd=outer)
        undo = os.open(name, _DIRECTORY, dir_fd=outer)
        stack.callback(os.close, undo)
        return f"{UNDO}/{name}".encode(), undo

    def _stage(self, undo: int, number: int, step: _Step, opened: Opener, link: LinkReader) -> str:
        """Write a file's new version into the undo directory; return its name there."""
        name, after = str(number), step.change.after
        if after is None or step.kind == stat.S_IFDIR:
            return name
        if step.kind == stat.S_IFLNK:
            os.symlink(link(step.change.path), os.fsencode(name), dir_fd=undo)
            os.chown(name, after.uid, after.gid, dir_fd=undo, follow_symlinks=False)
            return name
        file = os.open(
            name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=undo
        )
        digest = hashlib.sha256()
        with os.fdopen(file, "wb") as written, os.fdopen(opened(step.change.path), "rb") as given:
            while data := given.read(1 << 20):
                digest.update(data)
                written.write(data)
            written.flush()
            if digest.hexdigest() != after.digest:
                _refuse(step.name, "changed after the preview")
            os.fchown(file, after.uid, after.gid)
            os.fchmod(file, stat.S_IMODE(after.mode))
            os.utime(file, ns=(after.mtime_ns, after.mtime_ns))
            os.fsync(file)
        return name

    def _commit(self, undo: int, staged: str, step: _Step) -> None:
        """Apply one change. Errors: UsageError, with this change undone."""
        before, after = step.change.before, step.change.after
        with self._parent(step.name) as (parent, last):
            try:
                if step.kind == stat.S_IFDIR:
                    self._commit_directory(step, parent, last)
                elif before is None:
                    kernel.rename(undo, os.fsencode(staged), parent, last, kernel.RENAME_NOREPLACE)
                    self._done.append((step, None))
                else:
                    exchange = kernel.RENAME_NOREPLACE if after is None else kernel.RENAME_EXCHANGE
                    one, other = (parent, last), (undo, os.fsencode(staged))
                    kernel.rename(*one, *other, exchange)
                    self._done.append((step, staged))
                    self._compare(step, undo, os.fsencode(staged))
            except OSError as error:
                _refuse(step.name, f"cannot be changed: {error.strerror or error}")

    def _commit_directory(self, step: _Step, parent: int, last: bytes) -> None:
        before, after = step.change.before, step.change.after
        if after is None:
            self._compare(step, parent, last)
            os.rmdir(last, dir_fd=parent)
            self._done.append((step, None))
            return
        if before is None:
            os.mkdir(last, 0o700, dir_fd=parent)
            self._done.append((step, None))
        else:
            self._compare(step, parent, last)
            self._done.append((step, None))
        _set_rights(parent, last, after)

    def _roll_back(self, undo: int) -> None:
        """Undo the applied changes, as far as others did not change them meanwhile."""
        for step, staged in reversed(self._done):
            before, after = step.change.before, step.change.after
            with suppress(OSError, UsageError), self._parent(step.name) as (parent, last):
                if step.kind == stat.S_IFDIR:
                    if before is None:
                        os.rmdir(last, dir_fd=parent)
                    else:
                        if after is None:
                            os.mkdir(last, 0o700, dir_fd=parent)
                        _set_rights(parent, last, before)
                elif before is None:
                    name = os.fsencode(f"rejected-{secrets.token_hex(4)}")
                    kernel.rename(parent, last, undo, name, kernel.RENAME_NOREPLACE)
                else:
                    assert staged is not None
                    how = kernel.RENAME_NOREPLACE if after is None else kernel.RENAME_EXCHANGE
                    kernel.rename(undo, os.fsencode(staged), parent, last, how)

    def _write_list(self, undo: int) -> None:
        """Write `changes.json`: each changed name, and its old version in the undo directory."""
        rows = [
            {"name": os.fsdecode(step.name), "old": staged, "added": step.change.before is None}
            for step, staged in self._done
        ]
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        file = os.open("changes.json", flags, 0o600, dir_fd=undo)
        with os.fdopen(file, "w", encoding="utf-8", errors="surrogateescape") as written:
            json.dump(rows, written, indent=1)


def _order(steps: list[_Step]) -> list[int]:
    """Return the order of changes: new directories, files, removed directories inside out."""

    def rank(number: int) -> tuple[int, int]:
        step = steps[number]
        depth = step.name.count(b"/")
        if step.kind != stat.S_IFDIR:
            return 1, depth
        return (2, -depth) if step.change.after is None else (0, depth)

    return sorted(range(len(steps)), key=rank)


def _is_directory(side: FileStat | None) -> bool:
    return side is not None and stat.S_ISDIR(side.mode)


def _rights(side: FileStat | None) -> tuple[int, int, int] | None:
    return None if side is None else (side.mode, side.uid, side.gid)


def _set_rights(parent: int, last: bytes, side: FileStat) -> None:
    directory = os.open(last, _DIRECTORY, dir_fd=parent)
    try:
        os.fchown(directory, side.uid, side.gid)
        os.fchmod(directory, stat.S_IMODE(side.mode))
    finally:
        os.close(directory)


def _below(path: bytes, directory: bytes) -> bytes | None:
    """Return a path relative to a directory that contains it; None for one outside."""
    if path == directory:
        return b""
    prefix = directory.rstrip(b"/") + b"/"
    return path[len(prefix) :] if path.startswith(prefix) else None


def _refuse(name: bytes, reason: str) -> NoReturn:
    shown = readable_name(
        os.fsdecode(name).encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    )
    raise UsageError(f"nothing was applied: {shown} {reason}", hint="preview the command again")
