"""Findings are minimal: nothing can be left out of them. A small run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.nightly import NIGHTLY

SCRIPT = Path(__file__).parents[2] / "soak" / "minimal.py"

pytestmark = pytest.mark.usefixtures("system")


@NIGHTLY
def test_nothing_can_be_left_out_of_a_finding() -> None:
    words = [sys.executable, str(SCRIPT), "--count", "30", "--command", "wc", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=240)
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    assert (done.returncode, found["violations"]) == (0, []), done.stdout
    assert found["minimal"] == found["drawn"] >= 3
    assert found["tried"] >= 3
