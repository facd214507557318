"""What process 1 of a preview is told to do, as a line of JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Self

LONGEST = 4 << 20
"""Bytes of a plan, and of what process 1 tells, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewPlan:
    """A command, and what stands around it. Names of files hold undecodable bytes as surrogates."""

    command: tuple[str, ...]
    start: str
    """The directory that the command starts in."""
    directories: tuple[str, ...]
    """Directories to layer where the whole root cannot be; the last one has to be layered."""
    hidden: tuple[str, ...]
    """Paths in whose place the command finds nothing."""
    sockets: tuple[str, ...]
    """Files of the sockets that the caller's network namespace has."""
    whole: bool
    """Whether to try and layer the whole root."""
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
    """Whether the keeper runs in a user namespace that maps the caller alone, as id 0."""
    uid: int
    gid: int
    parent: int
    """The number of the process that asks."""

    def to_line(self) -> bytes:
        """The plan as a line of JSON."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Self:
        """The plan that `to_line` gave."""
        document: dict[str, Any] = json.loads(line)
        lists = {name: tuple(value) for name, value in document.items() if isinstance(value, list)}
        return cls(**document | lists)
