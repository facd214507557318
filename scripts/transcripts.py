"""Runs what a page shows again and writes what that prints beneath it.

    .venv/bin/python scripts/transcripts.py [PAGE ...]

What a page shows are lines that begin with "$ " in fenced blocks of the language `console`, and
blocks of `python` with a block of `text` after them. All of a page run in order, in one directory
that holds nothing but `examples`; the Python blocks share their names. Without a page it is
README.md. Look at the difference before you commit it; `tests/docs/test_transcripts.py` holds
README.md to what does not differ between machines.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import chdir, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"

PROGRESS = re.compile(r"\d+/\d+ [a-z]")
"""Lines that say how far a command has come."""


@dataclass
class Part:
    """Lines of a page: as they are, or what a command or a program prints."""

    kind: str
    """`plain`, `command` or `python`."""

    text: str = ""
    """The command, or the program."""

    lines: list[str] = field(default_factory=list)
    """What the page shows of it."""

    language: str = ""
    """Of the fenced block that plain lines stand in; empty outside of one."""


def parts(page: str) -> Iterator[Part]:
    """What a page consists of, in order; all of its lines together are the page."""
    part, language, program = Part("plain"), "", ""
    for line in page.splitlines():
        if line.startswith("```"):
            opening = "" if language else line.removeprefix("```") or "none"
            if not opening:
                program = "\n".join(part.lines) if language == "python" else ""
                yield part
                part = Part("plain", lines=[line])
            else:
                follows = opening == "text" and program and part.lines == ["```"]
                part.lines.append(line)
                yield part
                part = Part("python", program) if follows else Part("plain", language=opening)
            language = opening
        elif language == "console" and line.startswith("$ "):
            yield part
            part = Part("command", line.removeprefix("$ "))
        else:
            part.lines.append(line)
    yield part


class Session:
    """Where the parts of one page run."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.names: dict[str, Any] = {}
        (directory / "examples").symlink_to(ROOT / "examples")

    def printed(self, part: Part) -> list[str]:
        """The lines that a command or a program prints; those of progress are left out."""
        text = self._command(part.text) if part.kind == "command" else self._program(part.text)
        lines = [line.rstrip() for line in text.splitlines() if not PROGRESS.match(line)]
        while lines and not lines[-1]:
            lines.pop()
        return lines

    def _command(self, command: str) -> str:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            command, shell=True, cwd=self.directory, env={**os.environ, "PATH": path},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        return done.stdout

    def _program(self, program: str) -> str:
        with chdir(self.directory), redirect_stdout(io.StringIO()) as printed:
            exec(compile(program, "page", "exec"), self.names)
        return printed.getvalue()


def main() -> None:
    """Rewrites pages in place."""
    for page in map(Path, sys.argv[1:] or [README]):
        lines: list[str] = []
        with tempfile.TemporaryDirectory() as directory:
            session = Session(Path(directory))
            for part in parts(page.read_text(encoding="utf-8")):
                if part.kind == "command":
                    lines.append(f"$ {part.text}")
                lines += part.lines if part.kind == "plain" else session.printed(part)
        page.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
