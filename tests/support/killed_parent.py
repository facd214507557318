"""A process that is killed, and the end of its children."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

from support.waiting import wait_until


def alive(pid: int) -> bool:
    """Whether the process runs. A zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def assert_children_end(program: str) -> None:
    """Run a Python program, kill it where it calls `tell()`, and wait for its children's end."""
    code = f"""
import os, pathlib, time
def tell():
    print(pathlib.Path(f"/proc/self/task/{{os.getpid()}}/children").read_text(), flush=True)
    time.sleep(600)
{textwrap.dedent(program)}
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        children = [int(pid) for pid in parent.stdout.readline().split()]
        try:
            assert children
            assert all(map(alive, children))
            parent.kill()
            wait_until(lambda: not any(map(alive, children)), "the end of its children")
        finally:
            for pid in filter(alive, children):
                os.kill(pid, signal.SIGKILL)
