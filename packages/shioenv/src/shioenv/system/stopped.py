"""Stopped processes (SIGSTOP), which neither answer nor notice that others ended."""

from __future__ import annotations

import math
import time
from pathlib import Path

LOOK_SECONDS = 1.0
"""Seconds between two looks at a process that is silent."""

LASTING_LOOKS = 5
"""Looks in a row that find a process stopped, until it counts as lost (ours).

Looks are counted rather than seconds: a process that looks makes no looks while it is stopped too,
as with Ctrl-Z. So nothing is lost where all go on at once.
"""


def is_stopped(process: int) -> bool:
    """Whether a signal stopped the process. One that a debugger holds is not stopped."""
    try:
        facts = Path(f"/proc/{process}/stat").read_bytes()
    except OSError:
        return False
    return facts.rpartition(b")")[2].split()[:1] == [b"T"]


def active_seconds() -> float:
    """Seconds that this process ran so far, and this thread waited for a processor.

    A process that is stopped does neither, so time that is missing here distinguishes a stop from
    a busy host. NaN where the kernel does not report how long threads wait.
    """
    try:
        facts = Path("/proc/thread-self/schedstat").read_bytes().split()
        waited, turns = int(facts[1]), int(facts[2])
    except (OSError, ValueError, IndexError):
        return math.nan
    return time.process_time() + waited / 1e9 if turns else math.nan


class StopWatch:
    """Looks again and again whether one process is stopped."""

    def __init__(self) -> None:
        self._looks = 0

    def is_lost(self, process: int) -> bool:
        """Look once more; whether the process was stopped in so many looks in a row."""
        self._looks = self._looks + 1 if is_stopped(process) else 0
        return self._looks >= LASTING_LOOKS
