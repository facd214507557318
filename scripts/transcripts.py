"""Run the examples of a page again and write their output below them.

    .venv/bin/python scripts/transcripts.py [PAGE ...]

Examples are lines that begin with "$ " in fenced blocks of the language `console`, and blocks of
`python` with a block of `text` after them. All of a page run in order, in one directory that has
nothing but `examples`; the Python blocks share their names. The default page is README.md. Review
the difference before you commit it; `tests/docs/test_transcripts.py` checks the parts of README.md
that do not differ between machines.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"

PROGRESS = re.compile(r"\d+/\d+ [a-z]")
"""Progress lines of commands."""


@dataclass
class Part:
    """Lines of a page: literal, or the output of a command or a program."""

    kind: str
    """`plain`, `command` or `python`."""

    text: str = ""
    """The command, or the program."""

    lines: list[str] = field(default_factory=list)
    """The lines of the page for it."""

    language: str = ""
    """The language of the fenced block that contains plain lines; empty outside of a block."""


def parts(page: str) -> Iterator[Part]:
    """Split a page into parts, in order; all of their lines together are the page."""
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


@dataclass
class Fence:
    """A fenced block of a page."""

    language: str
    line: int
    """The number of the line after the opening fence."""
    lines: list[str]
    before: list[str]
    """The lines between the fenced block before it and this one."""


def fences(page: str) -> Iterator[Fence]:
    """Find the fenced blocks of a page, in order."""
    before: list[str] = []
    block: Fence | None = None
    for number, line in enumerate(page.splitlines(), 2):
        if block is None and line.startswith("```"):
            block = Fence(line.removeprefix("```").strip(), number, [], before)
        elif block is None:
            before.append(line)
        elif line.startswith("```"):
            yield block
            block, before = None, []
        else:
            block.lines.append(line)


MEASURED = ["time", "executions", "volatile", "executed", "shared"]
"""Lines of `generate` whose values differ between machines, or from run to run."""


def steady(lines: list[str]) -> list[str]:
    """Return the lines without the values that differ between machines."""
    kept = []
    for line in lines:
        word = line.partition(" ")[0]
        if word != "repeated":  # there where something had to be done again
            kept.append(word if word in MEASURED else line)
    return kept


def printed_lines(text: str) -> list[str]:
    """Return the lines of an output, without those of progress and without empty ones at the
    end.
    """
    lines = [line.rstrip() for line in text.splitlines() if not PROGRESS.match(line)]
    while lines and not lines[-1]:
        lines.pop()
    return lines


@dataclass(frozen=True)
class Done:
    """The result of a command or a program."""

    status: int
    """The exit status; 1 for a program that raised, 124 where the time ran out."""

    output: str
    """The output; of a command it includes standard error."""

    errors: str = ""
    """A program's standard error."""


class Session:
    """The environment of one page's parts: a directory, variables, and a Python interpreter.

    `clone` names the parts of the clone that the directory shows.
    """

    def __init__(
        self,
        directory: Path,
        clone: Sequence[str] = ("examples",),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = directory
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.environment = {**os.environ, "PATH": path, **(environment or {})}
        self._interpreter: Interpreter | None = None
        for name in clone:
            (directory / name).symlink_to(ROOT / name)

    def printed(self, part: Part) -> list[str]:
        """Return the output lines of a command or a program, without those of progress."""
        if part.kind == "command":
            return printed_lines(self.command(part.text).output)
        done = self.program(part.text)
        if done.status:
            raise RuntimeError(f"{part.text}\n{done.errors}")
        return printed_lines(done.output)

    def command(self, command: str, typed: str = "", seconds: float | None = None) -> Done:
        """Run a command in a new shell; `typed` is its standard input."""
        with subprocess.Popen(
            ["bash", "-c", command], cwd=self.directory, env=self.environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process:  # fmt: skip
            try:
                output, _ = process.communicate(typed, seconds)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                output, _ = process.communicate()
                return Done(124, output)
            except BaseException:  # Ctrl-C, which does not reach the other session
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                raise
        return Done(process.returncode, output)

    def program(self, program: str, typed: str = "", seconds: float | None = None) -> Done:
        """Run a program in the page's interpreter, which keeps its names for the next one."""
        if self._interpreter is None:
            self._interpreter = Interpreter(self.directory, self.environment)
        done = self._interpreter.run(program, typed, seconds)
        if done.status == 124:
            self.close()
        return done

    def close(self) -> None:
        """End the interpreter."""
        if self._interpreter is not None:
            self._interpreter.close()
            self._interpreter = None


_INTERPRETER = """
import io, json, sys, traceback
asked, answers = open(int(sys.argv[1])), open(int(sys.argv[2]), "w")
del sys.argv[1:]
names = {"__name__": "__main__"}
for line in asked:
    program, typed = json.loads(line)
    sys.stdin = io.StringIO(typed)
    status = 0
    try:
        exec(compile(program, "page", "exec"), names)
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    print(status, file=answers, flush=True)
"""


class Interpreter:
    """A Python process that executes one program after the other, all with the same names."""

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        asked, self._ask = os.pipe()
        self._answers, answers = os.pipe()
        self._printed = [tempfile.TemporaryFile() for _ in range(2)]  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, "-c", _INTERPRETER, str(asked), str(answers)],
            cwd=directory, env=environment, pass_fds=(asked, answers), start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=self._printed[0], stderr=self._printed[1],
        )  # fmt: skip
        os.close(asked)
        os.close(answers)

    def run(self, program: str, typed: str, seconds: float | None) -> Done:
        """Execute a program; `typed` is its standard input."""
        before = [os.fstat(file.fileno()).st_size for file in self._printed]
        os.write(self._ask, json.dumps([program, typed]).encode() + b"\n")
        ready, _, _ = select.select([self._answers], [], [], seconds)
        status = (os.read(self._answers, 64) or b"1") if ready else b"124"
        output, errors = (
            os.pread(file.fileno(), 1 << 24, start).decode(errors="replace")
            for file, start in zip(self._printed, before, strict=True)
        )
        return Done(int(status), output, errors)

    def close(self) -> None:
        """End the process, with every process that it started."""
        os.close(self._ask)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        os.close(self._answers)
        for file in self._printed:
            file.close()


def main() -> None:
    """Rewrite pages in place."""
    for page in [Path(name) for name in sys.argv[1:]] or [README]:
        lines: list[str] = []
        with tempfile.TemporaryDirectory() as directory:
            session = Session(Path(directory))
            for part in parts(page.read_text(encoding="utf-8")):
                if part.kind == "command":
                    lines.append(f"$ {part.text}")
                lines += part.lines if part.kind == "plain" else session.printed(part)
            session.close()
        page.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
