"""The example hook asks about commands that would remove files, and lets others pass."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.paths import ROOT

GATE = ROOT / "examples" / "agents" / "gate.py"


@pytest.mark.parametrize(
    ("command", "reason"),
    [("rm notes", "removes 1 files"), ("cat notes > copy", ""), ("shioenv-not-there", "")],
)
def test_it_asks_where_files_would_be_removed(tmp_path: Path, command: str, reason: str) -> None:
    (tmp_path / "notes").write_text("x")
    event = {"tool_name": "Bash", "tool_input": {"command": command}, "cwd": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, str(GATE)],
        input=json.dumps(event),
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
    )
    assert (tmp_path / "notes").read_text() == "x"
    if not reason:
        assert done.stdout == ""
        return
    answer = json.loads(done.stdout)["hookSpecificOutput"]
    assert answer["permissionDecision"] == "ask"
    assert reason in answer["permissionDecisionReason"]
