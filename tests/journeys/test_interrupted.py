"""Ctrl-C, at any moment of a command: the exit status is 130 and no traceback is printed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from faults import descendants
from shioenv.dataset.questions import question_of
from shioenv.domain.behavior import Behavior
from shioenv.system.declare import read_text
from shioenv.system.store import System
from shioenv_agents.tasks.task import write_tasks
from shioenv_eval.suite import Head, Suite, SuiteCase, write_suite
from support.known_tasks import known_tasks
from support.nightly import by_day
from support.waiting import wait_until
from visiting import name_of

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
"""Runs the console script and interrupts it at a given audit event: an import, or a file opened, or
code compiled or executed. Events count once the script has imported its handling of interrupts."""

COMMANDS = {
    "help": ["--help"],
    "sample": ["sample", "--count", "1", "--command", "ls"],
    "run": ["run", "true"],
}


def ran(moment: int, words: list[str]) -> tuple[int, str]:
    """Return the exit status and standard error."""
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


# ---- Ctrl-C while a command works ----

SLOW = "sleep 20; echo done"
"""An input that still runs when Ctrl-C comes."""


def wait_for_end(processes: list[int]) -> None:
    """Wait until all of them are gone or are zombies."""
    wait_until(
        lambda: all(state_of(each) in ("", "Z") for each in processes),
        lambda: f"the end of {[(each, name_of(each)) for each in processes]}",
    )


def state_of(process: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    return ""


def is_sandboxed(process: int) -> bool:
    """Whether a sandbox is open below a process."""
    return any(name_of(each) == "shioenv-sandbox" for each in descendants(process))


def is_building(process: int) -> bool:
    """Whether the fake mmdebstrap runs below a process, with a child process."""
    return any(name_of(each) == "sleep" for each in descendants(process))


WORK = {
    "run": (["run", "--timeout", "60", SLOW], "interrupted"),
    "score": (["score", "--timeout", "60", SLOW], "interrupted"),
    "experiment": (["experiment", "policies", "--out", "made", "--count", "300"], "stopped; "),
    "determinism": (["experiment", "determinism", "--out", "made", "--count", "300"], "stopped; "),
    "evaluate": (
        ["evaluate", "--suite", "slow.suite", "--predictor", "sandbox", "--out", "made"],
        "stopped; ",
    ),
    "conform": (
        ["conform", "--against-system", "debian-12", "--command", "ls", "--count", "500"],
        "stopped; ",
    ),
    "conform export": (["conform", "export", "made", "--count", "500"], "stopped; "),
    "train material": (["train", "material", "small", "--out", "made"], "stopped; "),
    "tasks verify": (["tasks", "verify", "tasks.jsonl"], "interrupted"),
    "tasks certify": (["tasks", "certify", "tasks.jsonl", "--out", "made.jsonl"], "interrupted"),
    "tasks evaluate": (["tasks", "evaluate", "tasks.jsonl"], "interrupted"),
    "tasks set": (["tasks", "set", "made", "--count", "30", "--without-harbor"], "stopped; "),
    "suite record": (["suite", "record", "slow.txt", "--out", "made"], "stopped; "),
    "dataset import": (["dataset", "import", "slow.txt", "--out", "made"], "stopped; "),
    "grammar check": (["grammar", "check", "--run"], "interrupted"),
    "system build": (["system", "build", "own.toml"], "interrupted"),
}
"""Commands that take long, each with the beginning of its last line of standard error after
Ctrl-C."""


@pytest.fixture
def place(tmp_path: Path, system: System, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a directory with the input files of the commands of `WORK`."""
    head = Head("slow", system.name, system.digest, "/home/ubuntu", 5, 61.0, {}, "d" * 64)
    behavior = Behavior(0, b"done\n")
    cases = [
        SuiteCase(question_of({"input": f"{SLOW} {n}", "id": str(n)}, n, "slow"), (behavior,), {})
        for n in range(4)
    ]
    write_suite(Suite(head, tuple(cases)), tmp_path / "slow.suite")
    (tmp_path / "slow.txt").write_text("".join(f"{SLOW} {n}\n" for n in range(4)))
    write_tasks(known_tasks(system), tmp_path / "tasks.jsonl")
    text = read_text("debian-12").replace('name = "debian-12"', 'name = "own"')
    (tmp_path / "own.toml").write_text(text)
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "mmdebstrap").write_text("#!/bin/sh\nsleep 600\n")
    (programs / "mmdebstrap").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    return tmp_path


@pytest.mark.parametrize("name", by_day([*WORK], 5))
def test_ctrl_c_ends_work_with_one_line_and_leaves_no_process(
    place: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words, last = WORK[name]
    begun = is_sandboxed
    if name == "system build":
        monkeypatch.setenv("SHIOENV_CACHE", str(place / "cache"))
        begun = is_building
    with subprocess.Popen(
        [SCRIPT, *words], cwd=place, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    ) as process:  # fmt: skip

        def has_begun() -> bool:
            assert process.poll() is None, process.communicate()
            return begun(process.pid)

        wait_until(has_begun, "the work")
        left = descendants(process.pid)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "Traceback" not in said
    assert said.splitlines()[-1].startswith(last)
    assert said.count("stopped") + said.count("interrupted") == 1
    wait_for_end(left)
