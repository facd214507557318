"""Tests of one group run in one worker, so that their shared fixtures are made once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TESTS = """
import os, pytest
from pathlib import Path

@pytest.mark.xdist_group("one")
@pytest.mark.parametrize("number", range(6))
def test_worker(number):
    with Path(__file__).with_name("workers").open("a") as file:
        file.write(os.environ["PYTEST_XDIST_WORKER"] + "\\n")
"""


def test_a_group_stays_together(tmp_path: Path) -> None:
    """xdist 3.8 names the group in a way that pytest 9.2 silently ignores."""
    (tmp_path / "test_group.py").write_text(TESTS)
    words = ("-p", "no:cacheprovider", "-n", "2", "--dist", "loadgroup", "--rootdir", ".", ".")
    command = [sys.executable, "-m", "pytest", *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    workers = (tmp_path / "workers").read_text().split()
    assert len(workers) == 6
    assert len(set(workers)) == 1
