"""Shells complete subcommands, and names of systems, commands and samplers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from shioenv.cli import shared


def complete(line: str, tmp_path: Path) -> list[str]:
    """Return bash's completions for this line."""
    words = line.split(" ")
    environment = {
        **os.environ,
        "_SHIOENV_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
        "SHIOENV_CACHE": str(tmp_path),
    }
    code = "from shioenv.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("shioenv ", "generate"),
        ("shioenv sc", "score"),
        ("shioenv run ls --system deb", "debian-12"),
        ("shioenv system build ub", "ubuntu-24.04"),
        ("shioenv sample --sampler ucs-", "ucs-universal"),
        ("shioenv sample --command gr", "grep"),
        ("shioenv grammar show d", "df"),
    ],
)
def test_names_are_completed(line: str, offered: str, tmp_path: Path) -> None:
    assert offered in complete(line, tmp_path)


def test_completed_names_begin_with_what_was_typed() -> None:
    assert shared.complete_samplers("u") == ["ucs", "ucs-universal"]
    assert all(name.startswith("c") for name in shared.complete_commands("c"))
    assert "debian-12" in shared.complete_systems("")
