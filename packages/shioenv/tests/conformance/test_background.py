"""Jobs that outlive their shell get the same grace period for every target of their output."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from shioenv.behavior.observe import SandboxRunner, open_sandbox
from shioenv.behavior.typed_rows import Row, RowKind
from shioenv.domain.behavior import Behavior
from shioenv.domain.inputs import Input, Session
from shioenv.irreducibility.scoring import Scoring
from shioenv.live.resident import ResidentShell
from shioenv.recording.session import SessionRecorder
from shioenv.sandbox.base import GIBIBYTE, LIMITS, Execution, Limits, Request
from shioenv.sandbox.namespaces.backend import NamespaceSandbox
from shioenv.system.store import System

PATIENT = Limits(background_seconds=20.0, wall_seconds=60.0)
"""Limits so long that a job ends before them under any load: the run ends with the job."""

ELSEWHERE = "> /dev/null 2>&1"
FINISHING = {
    "at once": f"touch late {ELSEWHERE} &",
    "after a while": f"(sleep 0.03; touch late) {ELSEWHERE} &",
    "to a file": "(sleep 0.03; touch late) > log 2>&1 &",
    "closed": "(sleep 0.03; touch late) >&- 2>&- &",
    "nohup": f"nohup sh -c 'sleep 0.03; touch late' {ELSEWHERE} &",
    "disowned": f"(sleep 0.03; touch late) {ELSEWHERE} & disown",
    "a session of its own": f"setsid sh -c 'sleep 0.03; touch late' {ELSEWHERE} < /dev/null &",
    "orphaned": f"( (sleep 0.03; touch late) {ELSEWHERE} & )",
    "orphaned while it runs": f"(sleep 0.02; (sleep 0.03; touch late) & ) {ELSEWHERE} &",
    "a program": f"sh -c '(sleep 0.03; touch late) &' {ELSEWHERE}",
    "forked twice": "perl -e 'exit if fork; exit if fork; open STDOUT, q(>/dev/null); "
    "open STDERR, q(>/dev/null); select undef, undef, undef, 0.03; open F, q(>late)'",
    "a sibling of its shell": "perl -e 'syscall(56, 0x8011, 0, 0, 0, 0) and exit; "
    "close STDOUT; close STDERR; select undef, undef, undef, 0.03; open F, q(>late)'",
    "threads whose first one ended": "python3 -c 'if 1:\n"
    "  import os, threading, time, ctypes\n"
    "  if os.fork(): os._exit(0)\n"
    "  [os.close(n) for n in (1, 2)]\n"
    '  def late(): time.sleep(0.05); open("late", "w")\n'
    "  threading.Thread(target=late).start()\n"
    "  ctypes.CDLL(None).syscall(60, 0)'",
    "a coprocess": "coproc (sleep 0.03; touch late) 2> /dev/null",
    "a process substitution": f": > >(cat {ELSEWHERE}; sleep 0.03; touch late) 2> /dev/null",
    "deaf to signals": f"(trap '' HUP INT TERM; sleep 0.03; touch late) {ELSEWHERE} &",
    "stopped and continued": f"(kill -STOP $BASHPID; touch late) {ELSEWHERE} & p=$!; "
    f"(until [[ $(ps -o stat= -p $p) == T* ]]; do :; done; kill -CONT $p) {ELSEWHERE} & disown -a",
    "a shell that was replaced": f"(sleep 0.03; touch late) {ELSEWHERE} & exec true",
    "a shell that was killed": f"(sleep 0.03; touch late) {ELSEWHERE} & kill -9 $$",
}
STAYING = {
    "asleep": f"sleep 300 {ELSEWHERE} &",
    "with the output": "sleep 300 &",
    "deaf to signals": f"(trap '' HUP INT TERM; while :; do sleep 1; done) {ELSEWHERE} &",
    "busy": f"(while :; do :; done) {ELSEWHERE} &",
    "stopped": f"sleep 300 {ELSEWHERE} & kill -STOP $!",
    "orphaned": f"( setsid sleep 300 {ELSEWHERE} & )",
    "a coprocess": f"coproc sleep 300 {ELSEWHERE}",
    "in a process substitution": f": > >(exec sleep 300 {ELSEWHERE})",
}


@pytest.fixture(scope="module")
def patient(system: System) -> Iterator[NamespaceSandbox]:
    with NamespaceSandbox(system, PATIENT) as opened:
        yield opened


@pytest.fixture(scope="module")
def runner(system: System) -> Iterator[SandboxRunner]:
    with open_sandbox(system, PATIENT) as opened:
        yield opened


@pytest.fixture(scope="module")
def hasty(system: System) -> Iterator[NamespaceSandbox]:
    with NamespaceSandbox(system, Limits(background_seconds=0.02, wall_seconds=60.0)) as opened:
        yield opened


def made(execution: Execution) -> bool:
    """Whether the job finished."""
    return any(change.path.endswith(b"/late") for change in execution.changes)


@pytest.mark.parametrize("how", FINISHING)
def test_a_job_that_ends_in_time_does_all_of_its_work(patient: NamespaceSandbox, how: str) -> None:
    execution = patient.run(Request(FINISHING[how]))
    assert made(execution), execution
    assert execution.limits_hit == ()


@pytest.mark.parametrize("how", STAYING)
def test_a_job_that_is_cut_off_is_said(hasty: NamespaceSandbox, how: str) -> None:
    execution = hasty.run(Request(STAYING[how]))
    assert execution.limits_hit == ("background_seconds",)
    assert hasty.run(Request("ps -e -o comm= | grep -c sleep")).output == b"0\n"


LATE = FINISHING["after a while"]


@pytest.mark.parametrize(
    "request_",
    [
        Request(LATE, stdin=b"some"),
        Request(LATE, stdin=b"never read" * 20_000),
        Request(LATE, separate=True),
        Request(f"trap '' HUP; {LATE}", tty=True),
        Request(LATE, order="eager"),
        Request(LATE, order="lazy"),
    ],
    ids=["input", "input left", "two channels", "terminal", "eager", "lazy"],
)
def test_however_the_input_is_run(patient: NamespaceSandbox, request_: Request) -> None:
    execution = patient.run(request_)
    assert made(execution), execution
    assert execution.limits_hit == ()


def test_a_fresh_shell_leaves_the_same(patient: NamespaceSandbox) -> None:
    assert made(patient.run_fresh(Request(LATE)))


def added(behavior: Behavior) -> bool:
    """Whether the job finished."""
    return ["a", "/fs/late"] in [list(operation[:2]) for operation in behavior.patch.operations]


def test_behind_a_history_and_in_one(runner: SandboxRunner) -> None:
    state = replace(runner.state(), history=("x=1", "cd documents; cd .."))
    assert added(runner.run(LATE, state))
    done = runner.run("ls late", replace(runner.state(), history=(LATE, "wait")))
    assert (done.output, done.patch.operations) == (b"late\n", ())


def test_rows_leave_the_same(runner: SandboxRunner) -> None:
    cwd = runner.system.declaration.start_directory
    for kind in (RowKind.TYPED, RowKind.BESIDE):
        rows = [Row(RowKind.AGAIN, "true"), Row(kind, LATE)]
        assert added(runner.type(rows, cwd)), kind


def test_lines_of_a_shell_that_stays(runner: SandboxRunner) -> None:
    with ResidentShell(runner, runner.system.declaration.start_directory) as shell:
        assert added(shell.run(LATE))
        assert shell.beside(LATE.replace("late", "beside")).limits_hit == ()
        assert shell.run("ls beside late").output == b"beside\nlate\n"
    with ResidentShell(runner, runner.system.declaration.start_directory) as shell:
        last = shell.run(f"{LATE} exit 3")
        assert shell.ended
        assert added(last)
        assert (last.exit_code, last.limits_hit) == (3, ())


def test_a_line_that_ends_its_shell_cuts_off_what_goes_on(system: System) -> None:
    home = system.declaration.start_directory
    hasty = Limits(background_seconds=0.02)
    with open_sandbox(system, hasty) as runner, ResidentShell(runner, home) as shell:
        assert shell.run(STAYING["asleep"]).limits_hit == ()
        beside = shell.beside(STAYING["asleep"].replace("300", "301"))
        assert beside.limits_hit == ("background_seconds",)
        assert shell.run("ps -e -o args= | grep '^sleep'").output == b"sleep 300\n"
        assert shell.run("exit").limits_hit == ("background_seconds",)


@pytest.mark.parametrize(
    ("text", "limits"),
    [(FINISHING["at once"], PATIENT), (LATE, PATIENT), (STAYING["asleep"], LIMITS)],
)
def test_a_score_has_the_same_flag_each_time(system: System, text: str, limits: Limits) -> None:
    session = Session("/home", (Input.from_marked(text.split(" ")),))
    with open_sandbox(system, limits) as runner:
        records = [
            SessionRecorder(scoring=Scoring()).record(session, runner, random.Random(seed))
            for seed in range(3)
        ]
    assert [record.behavior.volatile for record in records] == [False] * 3
    assert all(record.score == records[0].score for record in records)


OLDER = {
    "orphans": "while :; do (sleep 0.01; sleep 300 &); done > /dev/null 2>&1 &",
    "orphans of a session": "while :; do setsid sh -c 'sleep 0.01; sleep 300 &'; done "
    "> /dev/null 2>&1 < /dev/null &",
    "orphans of an orphan": "( (while :; do (sleep 0.01; sleep 300 &); done) > /dev/null 2>&1 & )",
}
"""Jobs of an earlier line that constantly leave sleeping processes behind."""


@pytest.mark.parametrize("how", OLDER)
def test_what_an_older_job_leaves_is_not_of_the_run_beside_it(system: System, how: str) -> None:
    home = system.declaration.start_directory
    hasty = Limits(background_seconds=0.02)
    count = "ps -e -o args= | grep -c '^sleep 300'"
    with open_sandbox(system, hasty) as runner, ResidentShell(runner, home) as shell:
        shell.run(OLDER[how])
        until = "; until ((\\$(pgrep -cx sleep) > n + 3)); do :; done".replace("\\", "")
        for _ in range(3):
            before = int(shell.run(count).output)
            beside = shell.beside(f"n=$(pgrep -cx sleep){until}")
            assert (beside.output, beside.limits_hit) == (b"", ())
            assert int(shell.run(count).output) > before + 2
        own = shell.beside("(sleep 301 &); setsid sh -c 'sleep 301 &' < /dev/null")
        assert own.limits_hit == ("background_seconds",)
        assert shell.run("ps -e -o args= | grep '^sleep 301'").output == b""


def test_a_run_beside_has_the_time_of_its_machine(runner: SandboxRunner) -> None:
    """Its processes are assigned by a namespace of the clock, which shows no other time."""
    now = "cat /proc/uptime; python3 -c 'import time; print(time.monotonic(), time.time())'"
    with ResidentShell(runner, runner.system.declaration.start_directory) as shell:
        first, beside, last = (
            [float(word) for word in behavior.text.split()]
            for behavior in (shell.run(now), shell.beside(now), shell.run(now))
        )
    for place in (0, 2, 3):
        assert first[place] <= beside[place] <= last[place]


def test_any_number_of_older_orphans_hides_nothing(system: System) -> None:
    home = system.declaration.start_directory
    many = Limits(background_seconds=0.02, processes=2000, memory_bytes=64 * GIBIBYTE)
    orphans = "perl -e 'for (1..700) { next if fork; sleep 300; exit }' > /dev/null 2>&1"
    with open_sandbox(system, many) as runner, ResidentShell(runner, home) as shell:
        assert shell.run(f"{orphans}; pgrep -cx perl").output == b"700\n"
        beside = shell.beside("(sleep 301 > /dev/null 2>&1 &)")
        assert beside.limits_hit == ("background_seconds",)
        assert shell.run("pgrep -cx perl; pgrep -x sleep").output == b"700\n"
