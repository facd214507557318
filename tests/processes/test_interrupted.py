"""Ctrl-C, at any moment of a command: the exit status is 130 and nobody sees a traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(sys.executable).with_name("shioenv")

PROGRAM = """
import os, runpy, signal, sys

script, moment, *words = sys.argv[1:]
seen = 0

def happened(event, what):
    global seen
    if event in ("import", "open", "compile", "exec") and "shioenv.cli.interrupts" in imported:
        seen += 1
        if seen == int(moment):
            os.kill(os.getpid(), signal.SIGINT)
    elif event == "import" and what[0] == "shioenv.cli.interrupts":
        imported.add(what[0])

imported = set()
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.addaudithook(happened)
sys.argv = [script, *words]
try:
    runpy.run_path(script, run_name="__main__")
finally:
    seen, moment = -seen, 0
    print("moments", -seen, file=sys.stderr)
"""
"""Runs the console script and interrupts it when so many files, modules and code have been opened,
imported and executed since it was called and began to load what an interrupt does."""

COMMANDS = {
    "help": ["--help"],
    "sample": ["sample", "--count", "1", "--command", "ls"],
    "run": ["run", "true"],
}


def ran(moment: int, words: list[str]) -> tuple[int, str]:
    """The exit status and what was said on standard error."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(SCRIPT), str(moment), *words],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stderr


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.usefixtures("system")
def test_an_interrupt_is_no_traceback(name: str) -> None:
    _, said = ran(-1, COMMANDS[name])
    moments = int(said.rpartition("moments ")[2])
    for moment in (1, *range(2, moments, moments // 3), moments):
        status, said = ran(moment, COMMANDS[name])
        assert "Traceback" not in said, (moment, said)
        assert (status, "interrupted" in said) == (130, True), (moment, said)
