"""Tests wait by one helper, and `make check` refuses a fixed sleep."""

from __future__ import annotations

import subprocess
import sys

import pytest

from support.paths import ROOT
from support.waiting import wait_until


def test_the_first_true_value_is_returned() -> None:
    looks = iter(([], None, [3], [4]))
    assert wait_until(lambda: next(looks), "a number") == [3]


def test_a_wait_in_vain_names_what_was_awaited() -> None:
    with pytest.raises(AssertionError, match="waited 0 seconds in vain for a number"):
        wait_until(lambda: False, "a number", seconds=0)
    looks = [1]
    with pytest.raises(AssertionError, match=r"for the end of \[1\]"):
        wait_until(lambda: not looks, lambda: f"the end of {looks}", seconds=0)


SLEEPS = {
    "time": "import time\n\ntime.sleep(1)\n",
    "its name": "from time import sleep\n\nsleep(1)\n",
    "asyncio": "import asyncio\n\nasyncio.run(asyncio.sleep(0.1))\n",
    "a timer": "import threading\n\nthreading.Timer(1, print).start()\n",
}


def is_refused(path: str, text: str) -> bool:
    """Whether `make check` refuses the text, in a file of this path, for its sleep."""
    command = [sys.executable, "-m", "ruff", "check", "--stdin-filename", path, "-"]
    done = subprocess.run(
        command, cwd=ROOT, input=text, capture_output=True, text=True, check=False
    )
    assert not done.stderr, done.stderr
    return "TID251" in done.stdout


@pytest.mark.parametrize("text", SLEEPS.values(), ids=SLEEPS)
@pytest.mark.parametrize(
    "path", ["packages/shioenv/tests/unit/test_x.py", "tests/support/x.py", "conftest.py"]
)
def test_a_sleep_in_a_test_is_refused(path: str, text: str) -> None:
    assert is_refused(path, text)


def test_elsewhere_sleeps_are_allowed() -> None:
    assert not is_refused("packages/shioenv/src/shioenv/x.py", SLEEPS["time"])
    assert not is_refused("soak/x.py", SLEEPS["time"])
