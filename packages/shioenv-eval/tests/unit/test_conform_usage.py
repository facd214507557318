"""Errors for programs that `conform` cannot run."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from shioenv.cli.main import app


def printed(*words: str) -> tuple[int, str]:
    """Return the exit status, and all output without frames and line ends."""
    done = CliRunner().invoke(app, list(words))
    return done.exit_code, " ".join(done.output.replace("│", " ").split())


@pytest.mark.usefixtures("system")
def test_a_program_that_is_not_there_ends_with_2(tmp_path: Path) -> None:
    missing = str(tmp_path / "no")
    for against in (missing, f"command:{missing} --quick", "no-such-program"):
        status, said = printed("conform", "--against", against)
        assert status == 2, against
        assert "not found" in said or "neither a predictor nor a program" in said


@pytest.mark.usefixtures("system")
def test_a_program_that_may_not_be_executed(tmp_path: Path) -> None:
    (tmp_path / "my shell").write_text("")
    status, said = printed("conform", "--against", f"'{tmp_path}/my shell'")
    assert status == 2
    assert f"chmod +x '{tmp_path}/my shell'" in said
