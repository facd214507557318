"""What the processes of a preview use while they run, and which limit they reach."""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress

from shioenv.sandbox.base import Limits

LOOK_SECONDS = 0.05
"""Seconds between two looks at what the processes use."""

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")


class Watch:
    """Looks at the processes of a pid namespace from outside, where none of them can interfere."""

    def __init__(self, limits: Limits, proc: int, segments: int) -> None:
        """`proc` is a descriptor of the namespace's /proc, `segments` of its list of segments."""
        self._limits, self._proc, self._segments = limits, proc, segments
        self._end = time.monotonic() + limits.wall_seconds

    def reached(self, *, timed: bool) -> str | None:
        """The limit that is reached now, by its name in `Limits`; None where none is.

        `timed` says whether the time counts.
        """
        if timed and time.monotonic() >= self._end:
            return "wall_seconds"
        ticks = pages = threads = 0
        for name in filter(str.isdecimal, os.listdir(self._proc)):  # noqa: PTH208 - a descriptor
            numbers = self._numbers(name)
            if numbers is None:
                continue
            ticks += sum(numbers[11:15])
            if name != "1":
                threads += numbers[17]
                pages += numbers[21]
        if ticks / _TICKS > self._limits.cpu_seconds:
            return "cpu_seconds"
        if pages * _PAGE + self._segment_bytes() > self._limits.memory_bytes:
            return "memory_bytes"
        return "processes" if threads > self._limits.processes else None

    def _numbers(self, name: str) -> list[int] | None:
        """The fields of /proc/PID/stat by their place behind the process's name, the state as 0."""
        text = self._read(f"{name}/stat")
        fields = text.rpartition(b")")[2].split()
        return [0, *map(int, fields[1:])] if len(fields) > 21 else None

    def _segment_bytes(self) -> int:
        """Bytes of System V segments in memory, attached or not."""
        os.lseek(self._segments, 0, os.SEEK_SET)
        rows = os.read(self._segments, 1 << 20).splitlines()[1:]
        return sum(int(row.split()[14]) for row in rows if re.match(rb"\s*-?\d", row))

    def _read(self, path: str) -> bytes:
        with suppress(OSError):  # the process has ended
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._proc)
            with os.fdopen(file, "rb") as opened:
                return opened.read(4096)
        return b""
