"""Runs the commands of README.md again and writes what they print beneath them.

    .venv/bin/python scripts/transcripts.py

Lines that begin with "$ shioenv" in fenced blocks are run in order, in an empty directory; what
follows each, up to the next command or the end of its block, is replaced. Look at the difference
before you commit it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def printed(command: str, directory: str) -> str:
    """Everything that the command writes, progress left out."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command, shell=True, cwd=directory, env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    kept = (line for line in done.stdout.splitlines() if not re.match(r"\d+/\d+ records", line))
    return "\n".join(kept).rstrip("\n") + "\n"


def main() -> None:
    """Rewrites README.md in place."""
    inside, skipping = False, False
    lines: list[str] = []
    with tempfile.TemporaryDirectory() as directory:
        for line in README.read_text(encoding="utf-8").splitlines(keepends=True):
            if line.startswith("```"):
                inside, skipping = not inside, False
            if inside and line.startswith("$ shioenv"):
                lines += [line, printed(line[2:], directory)]
                skipping = True
            elif not (skipping and inside):
                lines.append(line)
    README.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
