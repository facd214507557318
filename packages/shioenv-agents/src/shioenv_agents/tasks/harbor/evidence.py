"""Changes of a machine, observed from outside, in the format that `check.py` reads."""

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
    """The final state of a machine, observed from outside."""

    system: System
    evidence: Mapping[str, Any]
    answer: str | None
    """The text written as the answer; None if there is none."""
    begun: tuple[FileChange, ...] = ()
    """Changes made before the attempt, which are not part of the evidence."""

    def reaches(self, goal: Mapping[str, Any]) -> bool:
        """Whether evidence and answer match a folder's goal."""
        missing, extra, _ = check.verdict(goal, self.evidence, self.answer, self._before)
        return not missing and not extra

    def _before(self, path: str) -> Entry | None:
        """Return the `check.entry` of a file before the attempt."""
        for change in settled(self.begun):
            if os.fsdecode(change.path) == path:
                return _entry(change, self.system)
        return pristine_entry(self.system, path)


def evidence_of(
    execution: Execution, system: System, ignored: Iterable[FileChange] = ()
) -> dict[str, Any]:
    """Return the evidence of a machine from the changes of an execution.

    A file counts as unchanged if its entry is the one that it had after the changes in `ignored`.
    The key `other` names changes besides files: the host name, or any change of the network that
    the kernel reports.
    """
    was = {change.path: _entry(change, system) for change in settled(ignored)}
    entries: dict[str, Entry | None] = {}
    for change in settled(execution.changes):
        if change.path in was:
            if (now := _entry(change, system)) != was.pop(change.path):
                entries[os.fsdecode(change.path)] = now
        elif _is_changed(change):
            entries[os.fsdecode(change.path)] = _entry(change, system)
    for path in map(os.fsdecode, was):  # no longer changed
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
    """Return the `check.entry` of a pristine system's file; None if it does not exist."""
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
    """Whether a file's entry differs; a content that was not read counts as unchanged."""
    before, after = change.before, change.after
    if before is None or after is None:
        return True
    if after.digest is not None and after.digest != before.digest:
        return True
    return _told(before, None) != _told(after, None)


def _entry(change: FileChange, system: System) -> Entry | None:
    """Return the file's present entry. A content that was not read is the previous one."""
    if change.after is None:
        return None
    return _told(change.after, change.after.digest or _digest_of(change, system))


def _digest_of(change: FileChange, system: System) -> str | None:
    """Return the digest of the previous content if the file was a regular file."""
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
