"""Stopped processes (SIGSTOP): their work is repeated, and none of them remains."""

from __future__ import annotations

import ctypes
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faults import descendants
from shioenv.behavior.observe import open_sandbox
from shioenv.execution.job import NumberedJob
from shioenv.execution.local import LocalExecutor
from shioenv.execution.process import WorkerProcess
from shioenv.execution.supervised import ended, supervised
from shioenv.sandbox.base import Limits
from shioenv.system import stopped
from shioenv.system.store import System
from shioenv_eval import predictor_pool
from support.needs import needs
from support.nightly import by_day
from support.waiting import let_time_pass, wait_until

PTRACE_ATTACH, PTRACE_DETACH = 16, 17


def state_of(process: int) -> str:
    """Return the letter of a process's state; Z for one that is gone."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def assert_gone(processes: list[int]) -> None:
    """Wait until all of them have ended; those that do not are killed."""
    try:
        wait_until(
            lambda: all(state_of(each) == "Z" for each in processes),
            lambda: f"the end of {[(each, state_of(each)) for each in processes]}",
        )
    finally:
        for each in processes:
            if state_of(each) != "Z":
                os.kill(each, signal.SIGKILL)


ROLES: dict[str, Callable[[str, list[bytes]], bool]] = {
    "supervisor": lambda name, words: name == "shioenv-sandbox",
    "init": lambda name, words: name == "init",
    "fork server": lambda name, words: name == "bash" and b"--norc" in words,
    "gateway": lambda name, words: name == "gateway",
}
"""Processes of a sandbox, by their names and arguments."""


def of_sandbox(role: str, process: int) -> int:
    """Wait for the process with this role below one that has a sandbox open.

    The wait is needed: the supervisor resets the network after it has answered.
    """

    def found() -> int | None:
        for each in descendants(process):
            with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
                name = Path(f"/proc/{each}/comm").read_text().strip()
                if ROLES[role](name, Path(f"/proc/{each}/cmdline").read_bytes().split(b"\0")):
                    return each
        return None

    return wait_until(found, f"a process with the role {role}")


# ---- a sandbox ----

INPUT = "echo before; sleep 20 > /dev/null & touch made; ip link set eth0 down; echo after"


@pytest.mark.parametrize("role", by_day([*ROLES], 4))
def test_a_stopped_process_of_a_sandbox_changes_no_answer(
    system: System, role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopped, "LOOK_SECONDS", 0.1)
    others = set(descendants(os.getpid()))
    with open_sandbox(system, Limits(wall_seconds=2)) as sandbox:
        right = sandbox.run(INPUT)
        os.kill(of_sandbox(role, os.getpid()), signal.SIGSTOP)
        assert sandbox.run(INPUT) == right
        assert sandbox.run(INPUT) == right
        os.kill(of_sandbox(role, os.getpid()), signal.SIGSTOP)
        rest = [each for each in descendants(os.getpid()) if each not in others]
    assert_gone(rest)


PROGRAM = """
import os, time
from shioenv.behavior.observe import open_sandbox
with open_sandbox() as sandbox:
    sandbox.run("true")
    print("open", flush=True)
    time.sleep(600)
"""


@pytest.mark.usefixtures("system")
@pytest.mark.parametrize("role", by_day([name for name in ROLES if name != "gateway"], 3))
@pytest.mark.parametrize("number", by_day([signal.SIGKILL, signal.SIGINT], 2))
def test_nothing_of_a_sandbox_outlives_its_owner(role: str, number: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"open\n"
        rest = descendants(owner.pid)
        os.kill(of_sandbox(role, owner.pid), signal.SIGSTOP)
        owner.send_signal(number)
        owner.wait()
    assert len(rest) > 3
    assert_gone(rest)


@contextmanager
def paused(process: int, seconds: float) -> Iterator[None]:
    """Stop all processes below one once a `sleep` runs there, and continue them after a while."""

    def pause() -> None:
        wait_until(lambda: sleepers_below(process), "a sleep")
        chosen = descendants(process)
        for number, wait in ((signal.SIGSTOP, seconds), (signal.SIGCONT, 0.0)):
            for each in chosen:
                with suppress(OSError):
                    os.kill(each, number)
            let_time_pass(wait, "the pause is longer than the input may take")

    thread = threading.Thread(target=pause)
    thread.start()
    yield
    thread.join()


def command_of(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


def test_a_pause_of_everything_takes_no_time_from_an_input(system: System) -> None:
    with open_sandbox(system, Limits(wall_seconds=2)) as sandbox:
        with paused(os.getpid(), 3):
            behavior = sandbox.run("sleep 0.4; seq 100000")
        assert behavior == sandbox.run("seq 100000")
        assert not behavior.timed_out


def sleepers_below(process: int) -> list[int]:
    return [each for each in descendants(process) if b"sleep\0" in command_of(each)]


@contextmanager
def starved(process: int, seconds: float) -> Iterator[None]:
    """Keep a process off the processor for a while, once a `sleep` runs below this one."""
    processor = min(os.sched_getaffinity(0))
    hogs = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(8)]
    for hog in hogs:
        os.kill(hog.pid, signal.SIGSTOP)
        os.sched_setaffinity(hog.pid, {processor})

    def starve() -> None:
        wait_until(lambda: sleepers_below(os.getpid()), "a sleep")
        os.sched_setaffinity(process, {processor})
        os.sched_setscheduler(process, os.SCHED_IDLE, os.sched_param(0))
        for hog in hogs:
            os.kill(hog.pid, signal.SIGCONT)
        let_time_pass(seconds, "the process lacks the processor for this long")
        for hog in hogs:
            hog.kill()
        with suppress(ProcessLookupError):  # a supervisor that lost its time is replaced
            os.sched_setscheduler(process, os.SCHED_OTHER, os.sched_param(0))

    thread = threading.Thread(target=starve)
    thread.start()
    try:
        yield
    finally:
        thread.join()
        for hog in hogs:
            hog.kill()
            hog.wait()


@needs("root")  # only root can change the priority of a supervisor
def test_a_busy_host_gives_an_input_no_time(system: System) -> None:
    with open_sandbox(system, Limits(wall_seconds=2)) as sandbox:
        sandbox.run("true")
        with starved(of_sandbox("supervisor", os.getpid()), 3):
            behavior = sandbox.run("sleep 4.5; echo done")
    assert behavior.timed_out


@pytest.mark.usefixtures("system")
def test_a_job_that_is_stopped_as_by_ctrl_z_goes_on() -> None:
    script = str(Path(sys.executable).with_name("shioenv"))
    with subprocess.Popen(
        [script, "run", "--timeout", "2", "sleep 0.4; seq 9999"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, process_group=0,
    ) as job:  # fmt: skip
        wait_until(lambda: sleepers_below(job.pid), "the job's sleep")
        os.killpg(job.pid, signal.SIGSTOP)
        wait_until(lambda: state_of(job.pid) == "T", "the job's stop")
        assert state_of(of_sandbox("supervisor", job.pid)) != "T"
        let_time_pass(3, "the stop is longer than --timeout")
        os.killpg(job.pid, signal.SIGCONT)
        output, errors = job.communicate()
    assert output == b"".join(b"%d\n" % number for number in range(1, 10000))
    assert errors == b"exit code 0\n"


# ---- workers ----


def twice(lane: object, task: tuple[int, tuple[int, Path]]) -> int:
    """Return twice the number, once the task's file exists."""
    number, gate = task[1]
    if number == 3:
        wait_until(gate.exists, "the gate")
    return 2 * number


def test_a_stopped_worker_is_replaced_and_its_tasks_are_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopped, "LOOK_SECONDS", 0.05)
    gate = tmp_path / "gate"
    others = set(descendants(os.getpid()))
    with LocalExecutor(1) as executor:
        answers = executor.map(NumberedJob(twice), ((n, (n, gate)) for n in range(9)))
        first = [next(answers) for _ in range(3)]
        (worker,) = set(descendants(os.getpid())) - others
        os.kill(worker, signal.SIGSTOP)
        gate.touch()
        assert sorted([*first, *answers]) == [(n, 2 * n) for n in range(9)]
        assert executor.restarts == 1
        (worker,) = set(descendants(os.getpid())) - others
        os.kill(worker, signal.SIGSTOP)
    assert state_of(worker) == "Z"


def test_a_stopped_worker_ends_with_its_owner() -> None:
    program = """
import os, time
from operator import is_not
from shioenv.execution.job import NumberedJob
from shioenv.execution.local import LocalExecutor
with LocalExecutor(1) as executor:
    list(executor.map(NumberedJob(is_not), enumerate(range(4))))
    print("done", flush=True)
    time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"done\n"
        workers = descendants(owner.pid)
        for each in workers:
            os.kill(each, signal.SIGSTOP)
        owner.kill()
    assert workers
    assert_gone(workers)


def test_a_worker_that_takes_no_message_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shioenv.execution.process._MESSAGE_SECONDS", 1)
    worker = WorkerProcess("time", ["unused"])  # fails: `time` has no `main`
    assert worker.end(60)[0] == 1
    worker = WorkerProcess("shioenv.execution.worker", ["/dev/null", "/dev/null"])
    (process,) = wait_until(
        lambda: [each for each in descendants(os.getpid()) if b"/dev/null" in command_of(each)],
        "the worker",
    )
    os.kill(process, signal.SIGSTOP)
    worker.send(bytes(1 << 24))
    assert worker.end(60)[0] == -signal.SIGKILL


# ---- outside programs ----


@pytest.mark.parametrize("which", ["outer", "inner", "program"])
@pytest.mark.parametrize("how", ["its owner is killed", "it is ended"])
def test_nothing_of_an_outside_program_stays(which: str, how: str) -> None:
    program = """
import time
from shioenv.execution.supervised import supervised
process = supervised(["sleep", "600"])
print(process.pid, flush=True)
time.sleep(600)
"""
    at = ["outer", "inner", "program"].index(which)
    if how == "it is ended":
        process = supervised(["sleep", "600"])
        chain = [process.pid, *descendants(process.pid)]
        os.kill(chain[at], signal.SIGSTOP)
        assert ended(process) == -signal.SIGKILL
    else:
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as owner:
            assert owner.stdout is not None
            first = int(owner.stdout.readline())
            chain = [first, *descendants(first)]
            os.kill(chain[at], signal.SIGSTOP)
            owner.kill()
    assert len(chain) == 3
    assert_gone(chain)


# ---- looks ----


def test_a_process_that_a_debugger_holds_is_not_stopped() -> None:
    with subprocess.Popen(["sleep", "600"]) as process:
        try:
            assert not stopped.is_stopped(process.pid)
            assert ctypes.CDLL(None).ptrace(PTRACE_ATTACH, process.pid, 0, 0) == 0
            wait_until(lambda: state_of(process.pid) == "t", "the debugger's hold")
            assert not stopped.is_stopped(process.pid)
            os.waitpid(process.pid, 0)
            ctypes.CDLL(None).ptrace(PTRACE_DETACH, process.pid, 0, signal.SIGSTOP)
            wait_until(lambda: stopped.is_stopped(process.pid), "the stop")
        finally:
            process.kill()
    assert not stopped.is_stopped(process.pid)


def test_only_a_stop_that_lasts_counts() -> None:
    watch = stopped.StopWatch()
    with subprocess.Popen(["sleep", "600"]) as process:
        try:
            for _ in range(2):
                os.kill(process.pid, signal.SIGSTOP)
                wait_until(lambda: stopped.is_stopped(process.pid), "the stop")
                assert not any(watch.is_lost(process.pid) for _ in range(stopped.LASTING_LOOKS - 1))
                os.kill(process.pid, signal.SIGCONT)
                wait_until(lambda: not stopped.is_stopped(process.pid), "the end of the stop")
                assert not watch.is_lost(process.pid)
            os.kill(process.pid, signal.SIGSTOP)
            wait_until(lambda: stopped.is_stopped(process.pid), "the stop")
            looks = [watch.is_lost(process.pid) for _ in range(stopped.LASTING_LOOKS)]
            assert looks == [False] * (stopped.LASTING_LOOKS - 1) + [True]
        finally:
            process.kill()


# ---- what is waited for ----


def busy(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def stop(seconds: float) -> None:
    """Have this process stopped for a while."""
    own = os.getpid()
    subprocess.run(["sh", "-c", f"kill -STOP {own}; sleep {seconds}; kill -CONT {own}"], check=True)


@pytest.mark.parametrize(("what", "more"), [(busy, False), (stop, True)])
def test_only_a_stop_gives_a_predictor_more_time(
    what: Callable[[float], None], more: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait(connections: list[object], patience: float) -> list[object]:
        what(patience + 0.5)
        return []

    monkeypatch.setattr(stopped, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(predictor_pool, "wait", wait)
    pool: Any = object.__new__(predictor_pool.PredictorPool)
    pool._workers = [SimpleNamespace(deadline=100.0)]
    assert pool._wait([], math.inf) == []
    assert (pool._workers[0].deadline > 100.0) == more


def test_a_kernel_that_does_not_say_who_waits_gives_nobody_more_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for text in (b"0 0 0\n", b"", b"none"):
        monkeypatch.setattr(Path, "read_bytes", lambda path, text=text: text)
        assert math.isnan(predictor_pool.active_seconds())
