"""What README.md shows of commands is what they print, but for what depends on the machine."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("transcripts", ROOT / "scripts" / "transcripts.py")
assert SPEC is not None
assert SPEC.loader is not None
transcripts = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(transcripts)

SHOWN = [
    (command, lines)
    for command, lines in transcripts.blocks(transcripts.README.read_text(encoding="utf-8"))
    if command
]

MEASURED = ["time", "executions", "volatile", "executed", "shared"]
"""Lines of `generate` with what another machine, or the same one another time, does otherwise."""


def steady(lines: list[str]) -> list[str]:
    """The lines without what differs between machines."""
    kept = []
    for line in lines:
        word = line.partition(" ")[0]
        if word != "repeated":  # there where something had to be done again
            measured = word in MEASURED or re.fullmatch(r"\d+ executed again, .*", line)
            kept.append(word if measured else line)
    return kept


@pytest.mark.usefixtures("system")
@pytest.mark.timeout(900)
def test_commands_print_what_the_page_shows(tmp_path: Path) -> None:
    assert len(SHOWN) >= 8
    for command, lines in SHOWN:
        assert steady(transcripts.printed(command, str(tmp_path))) == steady(lines), command
