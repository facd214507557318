"""Runs the commands of a page again and writes what they print beneath them.

    .venv/bin/python scripts/transcripts.py [PAGE ...]

Lines that begin with "$ shioenv" in fenced blocks are run in order, in an empty directory; what
follows each, up to the next command or the end of its block, is replaced. Without a page it is
README.md. Look at the difference before you commit it; `tests/docs/test_transcripts.py` holds
README.md to what does not differ between machines.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"

PROGRESS = re.compile(r"\d+/\d+ [a-z]")
"""Lines that say how far a command has come."""


def printed(command: str, directory: str) -> list[str]:
    """The lines that the command writes, progress left out."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command, shell=True, cwd=directory, env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if not PROGRESS.match(line)]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def blocks(page: str) -> Iterator[tuple[str, list[str]]]:
    """What a page consists of: a command with the lines that it shows of it, or "" with others."""
    command, lines, inside = "", [], False
    for line in page.splitlines():
        if line.startswith("```"):
            inside = not inside
            yield command, lines
            command, lines = "", []
        if inside and line.startswith("$ shioenv"):
            yield command, lines
            command, lines = line.removeprefix("$ "), []
        else:
            lines.append(line)
    yield command, lines


def main() -> None:
    """Rewrites pages in place."""
    for page in map(Path, sys.argv[1:] or [README]):
        lines: list[str] = []
        with tempfile.TemporaryDirectory() as directory:
            for command, shown in blocks(page.read_text(encoding="utf-8")):
                lines += [f"$ {command}", *printed(command, directory)] if command else shown
        page.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
