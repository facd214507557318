"""What changed in a machine, read from outside, in the form that `check.py` reads."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from shioenv.behavior.capture import settled
from shioenv.sandbox.base import Execution, FileChange, FileStat
from shioenv.system.store import System
from shioenv_agents.tasks.harbor import check

Entry = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LeftMachine:
    """A machine as somebody left it, seen from outside."""

    system: System
    evidence: Mapping[str, Any]
    answer: str | None
    """What was written as the answer; None for nothing."""
    begun: tuple[FileChange, ...] = ()
    """What was changed before anybody began. It is no part of the evidence."""

    def reaches(self, goal: Mapping[str, Any]) -> bool:
        """Whether evidence and answer are as a folder's goal wants them."""
        missing, extra, _ = check.verdict(goal, self.evidence, self.answer, self._before)
        return not missing and not extra

    def _before(self, path: str) -> Entry | None:
        """What `check.entry` tells of a file before anybody began."""
        for change in settled(self.begun):
            if os.fsdecode(change.path) == path:
                return _entry(change, self.system)
        return pristine_entry(self.system, path)


def evidence_of(
    execution: Execution, system: System, ignored: Iterable[FileChange] = ()
) -> dict[str, Any]:
    """The evidence of a machine whose changes an execution tells.

    What is as `ignored` left it, did not change. `other` names what else than files changed: the
    host's name, or the network, of which any change counts that the kernel tells of.
    """
    was = {change.path: _entry(change, system) for change in settled(ignored)}
    entries: dict[str, Entry | None] = {}
    for change in settled(execution.changes):
        if change.path in was:
            if (now := _entry(change, system)) != was.pop(change.path):
                entries[os.fsdecode(change.path)] = now
        elif _is_changed(change):
            entries[os.fsdecode(change.path)] = _entry(change, system)
    for path in map(os.fsdecode, was):  # it is pristine again
        entries[path] = pristine_entry(system, path)
    other = []
    if execution.hostname not in (None, system.declaration.machine.hostname.encode()):
        other.append("the host's name")
    if execution.network is not None:
        other.append("the network")
    return {
        "kind": "changes",
        "entries": dict(sorted(entries.items())),
        "other": other,
        "truncated": execution.changes_truncated,
    }


def pristine_entry(system: System, path: str) -> Entry | None:
    """What `check.entry` tells of a file of the pristine system; None where there is none."""
    file = system.index.get(path)
    if file is None:
        return None
    told = FileStat(
        mode=file.mode,
        uid=file.uid,
        gid=file.gid,
        size=file.size,
        links=file.links,
        mtime_ns=0,
        inode=0,
        target=os.fsencode(file.target) or None,
    )
    return _told(told, _digest(system, path) if stat.S_ISREG(file.mode) else None)


def _is_changed(change: FileChange) -> bool:
    """Whether an entry would say something else now; a content that nobody read did not change."""
    before, after = change.before, change.after
    if before is None or after is None:
        return True
    if after.digest is not None and after.digest != before.digest:
        return True
    return _told(before, None) != _told(after, None)


def _entry(change: FileChange, system: System) -> Entry | None:
    """The file as it is now. A content that nobody read is the one from before."""
    if change.after is None:
        return None
    return _told(change.after, change.after.digest or _digest_of(change, system))


def _digest_of(change: FileChange, system: System) -> str | None:
    """The digest of the content before, where a regular file was there."""
    if change.before is None or not stat.S_ISREG(change.before.mode):
        return None
    return change.before.digest or _digest(system, os.fsdecode(change.path))


def _digest(system: System, path: str) -> str | None:
    content = system.content(path)
    return None if content is None else hashlib.sha256(content).hexdigest()


def _told(file: FileStat, digest: str | None) -> Entry:
    told: dict[str, Any] = {
        "mode": stat.filemode(file.mode),
        "uid": file.uid,
        "gid": file.gid,
    }
    if stat.S_ISLNK(file.mode):
        told["target"] = os.fsdecode(file.target or b"")
    elif stat.S_ISREG(file.mode):
        told |= {"size": file.size, "links": file.links, "sha256": digest}
    elif stat.S_ISCHR(file.mode) or stat.S_ISBLK(file.mode):
        told["device"] = file.rdev
    return told
