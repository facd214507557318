"""Numbers of protocols: what kept executions and certificates depend on, instead of a version.

A number is raised by hand whenever code that the protocol covers changes. A digest of that code is
kept beside each number by `scripts/check_protocols.py`, and a test compares both.
"""

from __future__ import annotations

from typing import Final

EXECUTION: Final = 1
"""How an input becomes a behavior. Kept executions of another number are not used."""

CHANNEL: Final = 1
"""By what a judge sees what an agent did. A certificate of another number is no longer valid."""

JUDGE: Final = 1
"""How the runs of an agent are judged. A certificate of another number is no longer valid."""

HARBOR_JUDGE: Final = 1
"""How a task that was exported to Harbor is judged, as `JUDGE`."""

COVERED: Final = {
    "EXECUTION": ("bash", "behavior", "domain", "guests.py", "native", "sandbox", "system"),
    "CHANNEL": ("bash", "behavior", "live", "native", "sandbox", "system"),
    "JUDGE": ("domain", "tasks/check.py", "tasks/episode.py", "tasks/task.py"),
    "HARBOR_JUDGE": ("domain", "tasks/harbor", "tasks/task.py"),
}
"""Files of this package, and directories with all files in them, whose code a number covers."""
