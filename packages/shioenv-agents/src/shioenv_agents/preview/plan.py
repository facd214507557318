"""The instructions for process 1 of a preview, as a line of JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Self

LONGEST = 4 << 20
"""Maximum bytes of a plan, and of process 1's report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewPlan:
    """A command and its environment. Undecodable bytes in file names are surrogates."""

    command: tuple[str, ...]
    start: str
    """The start directory of the command."""
    directories: tuple[str, ...]
    """Directories to overlay if the whole root cannot be overlaid; the last one is mandatory."""
    hidden: tuple[str, ...]
    """Paths that are hidden from the command."""
    sockets: tuple[str, ...]
    """Socket files in the caller's network namespace."""
    whole: bool
    """Whether to try to overlay the whole root."""
    network: bool
    """Whether the command has the host's network."""
    processes: int
    disk_bytes: int
    disk_inodes: int
    background_seconds: float
    scan_seconds: float
    open_files: tuple[int, int]
    """The soft and the hard limit of the caller's open files."""
    own_id: bool
    """Whether the keeper runs in a user namespace that maps only the caller, as id 0."""
    uid: int
    gid: int
    parent: int
    """The caller's process id."""

    def to_line(self) -> bytes:
        """Encode the plan as a line of JSON."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Self:
        """Decode a line of `to_line`."""
        document: dict[str, Any] = json.loads(line)
        lists = {name: tuple(value) for name, value in document.items() if isinstance(value, list)}
        return cls(**document | lists)
