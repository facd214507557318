"""Copies of a sandbox's files: taken while no process of the client runs, and checked when used.

The machine's own `tar` packs and unpacks the files. Root inside can replace it, so its work is
compared with the changes that the machine's supervisor reads from outside.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, TypeAlias

from starlette.exceptions import HTTPException

from shioenv.errors import SandboxError
from shioenv.sandbox.base import Execution, FileChange, Limits
from shioenv.system.store import System
from shioenv_agents.tasks.entered_machine import EnteredMachine, Finished

if TYPE_CHECKING:
    from shioenv_agents.e2b.sandboxes import ClientSandbox

ENDING_SECONDS: Final = 1.0
"""Seconds for which a snapshot waits for commands that are ending (our choice)."""

_LOOK_SECONDS: Final = 0.02
_NAMED: Final = 5
"""Maximum running commands that a refusal names."""

_LAUNCHER: Final = "bash --norc --noprofile -c"
_OVERHEAD: Final = 8192
"""Bytes of an archive for each file, in addition to its contents: headers and long names."""

_OPTIONS: Final = ("--numeric-owner", "--acls", "--xattrs", "--xattrs-include=*", "-P")
_PACK: Final = (
    *("/usr/bin/tar", "-c", "-S", "--format=posix", *_OPTIONS),
    *("--no-recursion", "--null", "--verbatim-files-from", "-T", "-"),
)
_UNPACK: Final = (
    "/usr/bin/head -c \"$1\" | /usr/bin/perl -0 -ne 'chomp; unlink or rmdir'; shift\n"
    'exec /usr/bin/tar -x -p --same-owner "$@"'
)
"""Removes the files that the first bytes of the input name, and unpacks the rest of the input."""

_ENDED: Final = (FileNotFoundError, ProcessLookupError)

Facts: TypeAlias = Mapping[bytes, tuple[object, ...] | None]
"""The facts of each changed file, ending with time and digest; None for a removed file."""


class SandboxMachine(EnteredMachine):
    """A machine whose processes can be listed from outside."""

    def __init__(self, system: System, limits: Limits, *, idle_seconds: float) -> None:
        super().__init__(system, limits, idle_seconds=idle_seconds)
        self._own: set[tuple[int, bytes]] = set()
        with suppress(SandboxError):  # a kernel that cannot list children allows no snapshots
            self._own |= {*self._processes()}

    def _processes(self) -> Iterator[tuple[int, bytes]]:
        """Yield number and start of each process. Errors: SandboxError.

        Orphans move to the machine's first process, which is therefore looked at last. A process
        that ended meanwhile is yielded too, because it may have started others.
        """
        supervisor = self._sandbox.supervisor_pid
        top = _children(supervisor) if supervisor else []
        if not top:
            raise SandboxError("the machine's processes cannot be listed")
        for each in (*top[1:], top[0]):
            waiting = _children(each)
            while waiting:
                process = waiting.pop()
                fields: list[bytes] = []
                with suppress(*_ENDED):
                    fields = Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()
                yield process, fields[19] if fields else b"ended"
                waiting += _children(process)

    def running(self) -> list[str]:
        """Return the client's processes by command line or name, those of the launcher last.

        Errors: SandboxError.
        """
        names = []
        for process, started in self._processes():
            if (process, started) in self._own:
                continue
            words = name = b""
            with suppress(*_ENDED):
                name = Path(f"/proc/{process}/comm").read_bytes()
                words = Path(f"/proc/{process}/cmdline").read_bytes()
            text = words.replace(b"\0", b" ") or name
            names.append(text.decode("utf-8", "replace").strip()[:80] or "a process")
        return sorted(names, key=lambda name: name.startswith(_LAUNCHER))

    def still(self) -> tuple[list[str], Execution | None]:
        """Return the client's processes, and the changes if none runs. Errors: SandboxError."""
        running = self.running()
        return running, None if running else self.changes()


def _children(process: int) -> list[int]:
    """Return the children of a process, which has none once it has ended. Errors: SandboxError."""
    found: list[int] = []
    try:
        with suppress(*_ENDED):
            for thread in Path(f"/proc/{process}/task").iterdir():
                with suppress(*_ENDED):
                    found += map(int, (thread / "children").read_bytes().split())
    except OSError as error:
        raise SandboxError(f"the machine's processes cannot be listed: {error}") from None
    return found


@dataclass(eq=False, slots=True)
class Snapshot:
    """The files of a sandbox at some time. They have no name on the host's disk."""

    owner: str
    source: str
    """The id of the sandbox."""
    system: System
    name: str
    facts: Facts
    removed: int
    """Bytes at the start of `file` that name the files to be removed; the archive follows."""
    file: IO[bytes]
    id: str = field(default_factory=lambda: f"s{secrets.token_hex(16)}")

    async def unpack(self, sandbox: ClientSandbox) -> None:
        """Give a new sandbox exactly the files of this snapshot. Errors: SandboxError."""
        # Opened again: the position is separate, and the snapshot may be deleted meanwhile.
        with open(f"/proc/self/fd/{self.file.fileno()}", "rb") as given:  # noqa: PTH123
            words = ("/bin/bash", "-c", _UNPACK, "unpack", str(self.removed), *_OPTIONS)
            _check(await sandbox.finish(*words, given=given))
        copied = facts_of((await _still(sandbox)).changes)
        for path in sorted(self.facts.keys() | copied.keys()):
            if not _is_same(self.facts.get(path, ()), copied.get(path, ())):
                raise SandboxError(f"the copy of {os.fsdecode(path)!r:.200} differs")


async def take_snapshot(sandbox: ClientSandbox, name: str = "") -> Snapshot:
    """Copy the files of a sandbox. Errors: SandboxError.

    HTTPException 409 if a process of the client runs, or changed a file meanwhile; 507 for files
    that are too many or too long.
    """
    changes = (await _still(sandbox)).changes
    facts = facts_of(changes)
    removed = _removed(changes)
    file = tempfile.TemporaryFile()  # noqa: SIM115 - it is the snapshot's
    try:
        file.write(removed)
        with tempfile.TemporaryFile() as given:
            given.write(b"".join(path + b"\0" for path, each in facts.items() if each))
            given.seek(0)
            most = sandbox.limits.disk_bytes + _OVERHEAD * len(facts)
            done = await sandbox.finish(*_PACK, given=given, into=file, most=most)
        if not done.whole:
            raise HTTPException(507, f"the snapshot exceeds {most:,} bytes")
        _check(done)
        if facts_of((await _still(sandbox)).changes) != facts:
            raise HTTPException(409, "files of the sandbox were changed during the snapshot")
        file.flush()
    except BaseException:
        file.close()
        raise
    return Snapshot(sandbox.owner, sandbox.id, sandbox.system, name, facts, len(removed), file)


async def _still(sandbox: ClientSandbox) -> Execution:
    """Return the changes of a sandbox in which no process of the client runs.

    Errors: SandboxError, HTTPException.
    """
    end = time.monotonic() + ENDING_SECONDS
    while True:
        running, execution = await sandbox.seat.do(SandboxMachine.still)
        if execution is not None:
            break
        if time.monotonic() >= end:
            named = "; ".join(running[:_NAMED])
            raise HTTPException(409, f"end the running processes before this: {named}")
        await asyncio.sleep(_LOOK_SECONDS)
    if execution.changes_truncated:
        raise HTTPException(507, "the sandbox has more changed files than can be copied")
    return execution


def _check(done: Finished) -> None:
    if done.exit_code:
        text = done.errors.decode("utf-8", "replace").strip() or f"exit code {done.exit_code}"
        raise SandboxError(f"the machine's tar failed: {text:.300}")


def _removed(changes: Sequence[FileChange]) -> bytes:
    """Return the files that a copy has to remove first, a directory after its contents."""
    paths = [
        each.path
        for each in changes
        if each.before is not None
        and (each.after is None or stat.S_IFMT(each.before.mode) != stat.S_IFMT(each.after.mode))
    ]
    return b"".join(path + b"\0" for path in sorted(paths, reverse=True))


def facts_of(changes: Sequence[FileChange]) -> Facts:
    """Return what a copy must have in common with its source.

    Sockets are left out, because no process listens on them. A directory's size and number of
    links depend on the file system.
    """
    firsts: dict[int, bytes] = {}
    facts: dict[bytes, tuple[object, ...] | None] = {}
    for each in sorted(changes, key=lambda each: each.path):
        after = each.after
        if after is None:
            facts[each.path] = None
        elif not stat.S_ISSOCK(after.mode):
            first = firsts.setdefault(after.inode, each.path)
            is_directory = stat.S_ISDIR(after.mode)
            file = () if is_directory else (after.size, after.links, first, after.target)
            common = (after.mode, after.uid, after.gid, after.rdev)
            facts[each.path] = (*common, *file, after.mtime_ns, after.digest)
    return facts


def _is_same(source: tuple[object, ...] | None, copy: tuple[object, ...] | None) -> bool:
    """Whether the facts agree. The source has no digest of contents that were not changed.

    Times are not compared: the machine's programs see them on its own clock, and so does `tar`.
    """
    if not source or not copy:
        return source == copy
    return source[:-2] == copy[:-2] and source[-1] in (None, copy[-1])
