"""Detect stopped processes (SIGSTOP), which neither respond nor notice that others ended."""

from __future__ import annotations

from pathlib import Path

LOOK_SECONDS = 1.0
"""Seconds between two checks of an unresponsive process."""

LASTING_LOOKS = 5
"""Consecutive checks that must find a process stopped before it counts as lost.

Checks are counted instead of seconds, because the checking process may be stopped as well, as with
Ctrl-Z. So if all processes are continued together, none counts as lost.
"""


def is_stopped(process: int) -> bool:
    """Whether a signal stopped the process. A process halted by a debugger does not count."""
    try:
        facts = Path(f"/proc/{process}/stat").read_bytes()
    except OSError:
        return False
    return facts.rpartition(b")")[2].split()[:1] == [b"T"]


class StopWatch:
    """Counts consecutive checks in which a process is stopped."""

    def __init__(self) -> None:
        self._looks = 0

    def is_lost(self, process: int) -> bool:
        """Check once more, and return whether the last `LASTING_LOOKS` checks found a stop."""
        self._looks = self._looks + 1 if is_stopped(process) else 0
        return self._looks >= LASTING_LOOKS
