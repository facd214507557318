"""The end of a server, which waits for the last processes of its machines."""

from __future__ import annotations

import ctypes
import os
import time
from contextlib import suppress
from typing import Final

_PR_SET_CHILD_SUBREAPER: Final = 36

ENDING_SECONDS: Final = 5.0
"""Seconds for which a server waits for processes that the kernel is ending; ours."""


def adopt_orphans() -> None:
    """Make the processes whose parents end from now on children of this process.

    A machine ends with its supervisor, but the kernel takes a moment more for the first process of
    its namespaces.
    """
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def wait_for_children() -> None:
    """Wait until this process has no children, at most `ENDING_SECONDS`."""
    until = time.monotonic() + ENDING_SECONDS
    with suppress(ChildProcessError):
        while time.monotonic() < until:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(0.005)
