"""Faults planted into the machine's answers are found, in a small run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.nightly import NIGHTLY

SCRIPT = Path(__file__).parents[2] / "soak" / "planted.py"

pytestmark = pytest.mark.usefixtures("system")


@NIGHTLY
def test_what_is_planted_is_found() -> None:
    words = [sys.executable, str(SCRIPT), "--count", "120", "--command", "mkdir", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=240)
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    assert (done.returncode, found["violations"]) == (0, []), done.stdout
    planted = {row["fault"]: row["findings"] for row in found["planted"]}
    assert len(planted) == 30
    assert planted["mkdir -m does not set the mode"]
    assert planted["mkdir -v prints nothing"]
