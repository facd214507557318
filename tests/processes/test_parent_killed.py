"""Processes end with the one that started them, however that ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest


def alive(pid: int) -> bool:
    """Whether the process runs: one that ended and that nobody waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


KILLED = {
    "busy processors": """
        from shioenv.experiments.repeats import busy
        with busy():
            tell()
    """,
    "an executor": """
        from operator import is_not
        from shioenv.execution.job import NumberedJob
        from shioenv.execution.local import LocalExecutor
        with LocalExecutor(2) as executor:
            list(executor.map(NumberedJob(is_not), enumerate(range(4))))
            tell()
    """,
}


@pytest.mark.parametrize("what", KILLED)
def test_processes_end_with_one_that_is_killed(what: str) -> None:
    code = f"""
import os, pathlib, time
def tell():
    print(pathlib.Path(f"/proc/self/task/{{os.getpid()}}/children").read_text(), flush=True)
    time.sleep(600)
{textwrap.dedent(KILLED[what])}
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
            deadline = time.monotonic() + 60
            while any(map(alive, children)) and time.monotonic() < deadline:
                time.sleep(0.05)
            assert not any(map(alive, children))
        finally:
            for pid in filter(alive, children):
                os.kill(pid, signal.SIGKILL)
