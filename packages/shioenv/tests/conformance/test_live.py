"""Resident shells: what they report, that they behave like repeated shells, and how they end."""

from __future__ import annotations

import math
import os
import random
import re
import signal
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from shioenv.behavior.observe import SandboxRunner, open_sandbox
from shioenv.behavior.typed_rows import Row, RowKind
from shioenv.domain.behavior import Behavior
from shioenv.domain.context import Context
from shioenv.domain.inputs import Session
from shioenv.domain.runner import ScriptedRunner
from shioenv.errors import (
    ForkError,
    LimitsError,
    SandboxError,
    ShellEndedError,
    StartDirectoryError,
)
from shioenv.irreducibility.scoring import UNSCORED
from shioenv.live.model_shell import HybridShell, RepeatedShell
from shioenv.live.resident import ResidentShell, open_shell, shell_of
from shioenv.recording.session import SessionRecorder
from shioenv.sandbox import backends as default
from shioenv.sandbox.base import Limits, ShellMode
from shioenv.sandbox.namespaces.probe import ServingVerdict, proven_shell
from shioenv.synthesis.drawing import Drawing
from shioenv.synthesis.sample import sample
from shioenv.system.store import System
from support.nightly import by_day
from support.shell_conformance import OTHERWISE, SCRIPTS, differences, refuses_lines
from support.waiting import let_time_pass, wait_until

HOME = "/home/ubuntu"
ATTACKS = (
    "rm -rf --no-preserve-root / 2> /dev/null", "kill -9 -1", "kill -STOP -1", "exec cat",
    ":(){ :|:& };:", "ulimit -t 0; ulimit -n 3", "chmod -R 0 / 2> /dev/null", "hostname attacked",
    "ipcmk -Q", "mount -t tmpfs none /home", "ip link set lo down", "while :; do :; done",
    "mount -o remount,ro /; date -s 2001-01-01; renice 19 $$", "sleep 60 & disown; exec 1>&-",
)  # fmt: skip
"""Lines with which a copy of a shell attacks the other copies."""
pytestmark = pytest.mark.xdist_group("live")


@pytest.fixture(scope="module")
def runner(system: System) -> Iterator[SandboxRunner]:
    with open_sandbox(system) as opened:
        yield opened


@pytest.fixture
def shell(runner: SandboxRunner) -> Iterator[ResidentShell]:
    with ResidentShell(runner, HOME) as opened:
        yield opened


@pytest.mark.parametrize("script", by_day(SCRIPTS, 6, range(len(SCRIPTS))))
def test_a_shell_that_stays_does_what_a_repeated_one_does(
    runner: SandboxRunner, script: tuple[str, ...]
) -> None:
    with ResidentShell(runner, HOME) as mine, RepeatedShell(runner, HOME) as oracle:
        found = list(differences(mine, oracle, script))
        assert bool(found) == (script in OTHERWISE), found
        if mine.ended:
            assert refuses_lines(mine)


@pytest.fixture(scope="module")
def slower(system: System) -> Iterator[SandboxRunner]:
    """Run the same system without the fastest way to serve its bash."""
    slow = replace(system, name="slower")

    def verdict(served: System) -> ServingVerdict:
        return ServingVerdict(ShellMode.MAIN) if served is slow else proven_shell(served)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(default, "proven_shell", verdict)
        with open_sandbox(slow) as opened:
            yield opened


WHERE_MAIN_DIFFERS = [
    script
    for number, script in enumerate(SCRIPTS)
    if number % 16 == 0 or any(line.startswith((". ", "kill")) for line in script)
]


@pytest.mark.parametrize("script", WHERE_MAIN_DIFFERS, ids=range(len(WHERE_MAIN_DIFFERS)))
def test_a_shell_that_is_served_the_slower_way_does_the_same(
    runner: SandboxRunner, slower: SandboxRunner, script: tuple[str, ...]
) -> None:
    with ResidentShell(slower, HOME) as mine, ResidentShell(runner, HOME) as faster:
        assert not list(differences(mine, faster, script))


def test_rows_that_are_served_the_slower_way_do_the_same(
    runner: SandboxRunner, slower: SandboxRunner
) -> None:
    rows = [
        Row(RowKind.AGAIN, "echo 'x=1; echo sourced' > s; trap 'echo usr1' USR1"),
        Row(RowKind.AGAIN, ". ./s; kill -USR1 $$"),
        Row(RowKind.TYPED, ". ./s; kill -USR1 $$; echo $x; kill -9 $$; echo never"),
    ]
    behavior = slower.type(rows, HOME)
    assert behavior.output == b"sourced\nusr1\n1\n"
    assert behavior == runner.type(rows, HOME)


MANY = "mkdir /var/tmp/many && cd /var/tmp/many && touch $(seq 1500) && cd ~- && cp -r documents d"
"""Changes so much that the layer is frozen, and later lines read files from a lower layer."""


@pytest.mark.parametrize("script", by_day(SCRIPTS[::4], 30, range(0, len(SCRIPTS), 4)))
def test_what_is_frozen_is_as_it_was(runner: SandboxRunner, script: tuple[str, ...]) -> None:
    edit = ("rm d/notes.txt; echo x >> d/todo.txt; mv d/poem.txt .; rm -r documents", "ls -lR d")
    lines = (MANY, *edit, *script)
    with ResidentShell(runner, HOME) as mine, RepeatedShell(runner, HOME) as oracle:
        found = list(differences(mine, oracle, lines))
        assert bool(found) == (script in OTHERWISE), found
        assert mine._lines._recorder._frozen


def test_a_layer_is_frozen_again_and_again(runner: SandboxRunner, shell: ResidentShell) -> None:
    lines = [
        MANY,
        "cd /var/tmp/many; rm 7 8; echo 9 > 9; mkdir sub; mv 10 sub/ten; chmod 600 12; ln -s 11 l",
        "touch $(seq 2000 3500); rm -r /home/ubuntu/documents; rm -f $(seq 20 60)",
        "echo again > 9; rm -r sub; mkdir sub; touch -d 2020-01-01 sub/new; mv 13 14",
        "touch $(seq 4000 5500); for i in $(seq 100 200); do echo $i > $i; done; echo * | wc -w",
        "cat 9 150; ls sub; ls | wc -l; readlink /proc/$$/fd/0 /proc/$$/cwd; pwd",
        "rm -r /var/tmp/many/[1-4]*; echo * | wc -w; cd /home/ubuntu; cp -r d documents; rm -r d",
    ]
    told = [shell.run(line) for line in lines]
    whole = runner.run("\n".join(lines))
    assert b"".join(one.output for one in told) == whole.output
    assert shell.patch() == whole.patch
    assert shell._lines._recorder._frozen


def test_files_of_several_names_stay_one(runner: SandboxRunner, shell: ResidentShell) -> None:
    lines = [
        MANY,
        f"ln README.md r; {MANY.replace('many', 'more')}",
        "echo x >> r; wc -l README.md r",
    ]
    told = [shell.run(line) for line in lines]
    whole = runner.run("\n".join(lines))
    assert told[-1].output == whole.output
    shell.run("rm README.md")
    assert shell.run("stat -c %h r").output == b"1\n"


def test_nothing_is_frozen_under_whoever_holds_it(shell: ResidentShell) -> None:
    for line in ("sleep 100 &", "exec 5> kept", "mount -t tmpfs t /mnt"):
        with shell.fork() as other:
            other.run(line)
            other.run("for i in $(seq 1500); do echo > f$i; done")
            assert not other._lines._recorder._frozen, line
            assert other.run("rm f7; ls f* | wc -l").output == b"1499\n"


def test_nothing_is_frozen_where_there_is_no_room(system: System) -> None:
    for limits, line in (
        (Limits(disk_inodes=2000), "touch $(seq 3000)"),
        (
            Limits(disk_bytes=4 << 20),
            "for i in $(seq 1500); do echo x; done | split -l 1; yes > all",
        ),
        (Limits(), "ulimit -n 20; touch $(seq 1500)"),
    ):
        with open_shell(system, limits=limits) as shell:
            shell.run(f"mkdir d; cd d; {line} 2> /dev/null", timeout=20.0)
            assert not shell._lines._recorder._frozen
            assert shell.run("cd ..; rm -r d; echo $?").output == b"0\n"


@pytest.mark.parametrize("seed", by_day(range(12), 6))
def test_drawn_inputs_do_the_same_in_both(runner: SandboxRunner, seed: int) -> None:
    drawn = sample(Drawing(seed=seed, start_directories=(HOME,)), system=runner.system, count=6)
    recorder = SessionRecorder(scoring=UNSCORED)
    script: list[str] = []
    for one in drawn:
        session = Session(HOME, (one.input,), tuple(script))
        did = recorder.record(session, runner, random.Random(0), volatile=one.volatile).behavior
        if not (did.volatile or did.limits_hit):  # a limit ends a repeated shell
            script.append(session.body)
    for _ in range(4):  # what its own processes race for may come out otherwise
        with ResidentShell(runner, HOME) as mine, RepeatedShell(runner, HOME) as oracle:
            if not (found := list(differences(mine, oracle, script))):
                return
    pytest.fail(str(found))


def test_the_patch_of_all_lines_is_what_one_run_of_them_changes(
    runner: SandboxRunner, shell: ResidentShell
) -> None:
    lines = ["mkdir d; echo one > d/f", "x=1; cd d", "mv f g", "rm -r ../documents", "echo $x >> g"]
    for line in lines:
        shell.run(line)
    whole = runner.run("\n".join(lines))
    assert shell.patch() == whole.patch
    assert (
        Context(shell.patch().apply(runner.context(HOME).document)).document["cwd"] == f"{HOME}/d"
    )


def test_the_state_is_where_the_lines_led(runner: SandboxRunner, shell: ResidentShell) -> None:
    shell.run("echo one > made; cd documents; x=7")
    shell.run("(exit 3)")
    state = shell.state
    assert (state.status, state.cwd, len(state.history)) == (3, HOME, 2)
    assert state.before.document["settings"]["x"] == "7"
    assert runner.run("echo $x $?; cat ../made", state).output == b"7 3\none\n"


def test_reading_what_changed_shows_in_no_access_time(shell: ResidentShell) -> None:
    """A time before that of the last change is one that reading would replace."""
    shell.run("mkdir new; echo x > new/x; touch -a -d 2001-01-01 new new/x")
    shell.run("true")
    shown = shell.run("stat -c %x new new/x").output.splitlines()
    assert [line[:10] for line in shown] == [b"2001-01-01"] * 2


def test_a_process_lives_on_and_what_it_does_is_told_with_the_line_of_its_time(
    shell: ResidentShell,
) -> None:
    waits = "until [ -e go ]; do sleep .02; done"
    first = shell.run(f"({waits}; for i in 1 2 3; do sleep .2; echo $i; touch made$i; done) &")
    assert first.output == b""
    assert b"Running" in shell.run("jobs").output
    shell.run("touch go")
    seen: list[bytes] = []
    files: list[str] = []

    def has_made_three() -> bool:
        behavior = shell.run("sleep .05")
        seen.append(behavior.output)
        named = [operation[1] for operation in behavior.patch.operations]
        files.extend(name for name in named if "made" in name)
        return len(files) >= 3

    wait_until(has_made_three, lambda: f"three files beside {files}")
    assert b"".join(seen) == b"1\n2\n3\n"
    assert files == [f"/fs/made{n}" for n in (1, 2, 3)]


def test_time_goes_on_from_the_declared_instant(shell: ResidentShell) -> None:
    first = float(shell.run("date +%s.%N").output)
    let_time_pass(1.2, "the clock of the machine has to go on by as much")
    assert 1.2 <= float(shell.run("date +%s.%N").output) - first < 20
    shell.run("touch later")
    assert int(shell.run("stat -c %Y later").output) >= int(first) + 1


@pytest.mark.parametrize(
    ("line", "limit"),
    [
        ("while :; do :; done", "wall_seconds"),
        ("sleep 60", "wall_seconds"),
        ("yes", "drain_bytes"),
        ("head -c 900M /dev/zero | tail", "memory_bytes"),
    ],
)
def test_a_line_that_reaches_a_limit_ends_its_shell(
    runner: SandboxRunner, line: str, limit: str
) -> None:
    with ResidentShell(runner, HOME) as shell:
        shell.run("echo kept > kept; sleep 1000 &")
        behavior = shell.run(line, timeout=1.0 if limit == "wall_seconds" else 30.0)
        assert limit in behavior.limits_hit
        assert behavior.timed_out == (limit == "wall_seconds")
        assert shell.ended
        assert refuses_lines(shell)
        assert any("kept" in operation[1] for operation in shell.patch().operations)


def test_processor_time_is_each_lines_own(system: System) -> None:
    with open_shell(system, limits=Limits(cpu_seconds=1.0, wall_seconds=30.0)) as shell:
        for _ in range(4):
            assert not shell.run("timeout .5 bash -c 'while :; do :; done'").limits_hit
        assert "cpu_seconds" in shell.run("while :; do :; done").limits_hit


def ask_after(shell: ResidentShell, *seconds: float) -> None:
    for each in seconds:
        let_time_pass(each, "the shell gets no line meanwhile")
        shell.run("echo never")


def test_what_burns_between_the_lines_is_ended(system: System) -> None:
    with open_shell(system, limits=Limits(cpu_seconds=0.5)) as shell:
        shell.run("while :; do :; done &")
        with pytest.raises(ShellEndedError):
            ask_after(shell, 1.0, 2.0, 30.0)  # it may have to wait for a processor


def test_a_shell_that_nobody_uses_ends(system: System) -> None:
    with open_shell(system, idle_seconds=0.3) as shell:
        shell.run("true")
        with pytest.raises(ShellEndedError, match="before this line"):
            ask_after(shell, 1.0, 10.0)


def test_a_shell_leaves_nothing_to_the_next(runner: SandboxRunner) -> None:
    look = "ls -A; env; ps -e | wc -l; hostname; ip -br addr; ls /tmp /dev/shm; ipcs | wc -l"
    with ResidentShell(runner, HOME) as shell:
        pristine = shell.run(look).output
    for attack in (
        "export X=1; touch left /tmp/left; cd /; sleep 1000 &",
        "hostname other; ip addr add 10.9.9.9/32 dev lo",
        "ipcmk -Q; mount -t tmpfs t /mnt",
        "exec 9<>/dev/tcp/127.0.0.1/80; nc -l 4444 &",
        "kill -9 -1",
        "kill -STOP $$ & exit",
    ):
        with ResidentShell(runner, HOME) as shell:
            shell.run(attack, timeout=2.0)
        with ResidentShell(runner, HOME) as shell:
            assert shell.run(look).output == pristine, attack


def test_shells_of_one_runner_are_nothing_to_each_other(runner: SandboxRunner) -> None:
    get = "for i in {1..60}; do curl -s localhost:8000 > page && break; sleep .05; done; wc -l page"
    with ResidentShell(runner, HOME) as one, ResidentShell(runner, HOME) as other:
        one.run("touch mine; hostname one; python3 -m http.server 8000 > /dev/null 2>&1 &")
        assert one.run(get).output > b"1"
        assert other.run("ls mine; curl -s localhost:8000").exit_code == 7
        assert other.run("hostname; ps -e | grep -c python").output == b"ubuntu\n0\n"
        assert runner.run("ls mine").exit_code == 2


def test_a_shell_that_cannot_start_leaves_its_machine_to_the_next(system: System) -> None:
    with open_sandbox(system) as runner:
        for cwd in ("/nowhere", "/etc/passwd", "/" + "x" * 5000, "relative"):
            with pytest.raises(StartDirectoryError):
                ResidentShell(runner, cwd)
        with ResidentShell(runner, HOME) as shell:
            assert shell.run("pwd; echo $$").output == b"/home/ubuntu\n1000\n"
        assert len(runner._opened) == 1


def test_beside_finds_the_machine_and_nothing_of_the_shell(shell: ResidentShell) -> None:
    shell.run("cd documents; x=7; echo made > ../made; cat() { echo fooled; }; sleep 1000 &")
    before = shell.run("echo $BASHPID $!; sh -c 'echo $$'").output
    asked = shell.beside(
        "pwd; echo [$x]; cat made; ps -e | grep -c sleep; echo new > new; f() { :; }"
    )
    assert asked.output == b"/home/ubuntu\n[]\nmade\n1\n"
    assert [operation[:2] for operation in asked.patch.operations] == [
        ("a", "/fs/new"), ("a", "/functions/f"),
    ]  # fmt: skip
    after = shell.run("echo $BASHPID $!; sh -c 'echo $$'; command cat ../new; jobs").output
    first, second, third, *_ = after.decode().splitlines()
    assert (first, third) == (before.decode().splitlines()[0], "new")
    assert int(second) == int(before.split()[-1]) + 1  # as if nothing had run in between
    assert shell.beside("sleep 30", timeout=0.5).timed_out
    assert b"Running" in shell.run("jobs").output


def test_a_fork_goes_on_by_itself(shell: ResidentShell) -> None:
    shell.run("x=1; echo one > f; cd documents")
    shell.run("sleep 1000 &")
    with shell.fork() as other:
        other.run("x=2; echo two > ../f")
        assert other.run("echo $x; cat ../f; pwd; jobs | wc -l").output == (
            b"2\ntwo\n/home/ubuntu/documents\n1\n"
        )
    assert shell.run("echo $x; cat ../f").output == b"1\none\n"


def test_a_shell_returns_to_its_marks_without_running_lines_again(shell: ResidentShell) -> None:
    shell.run("x=$(date +%N); echo $x > f; ln f g; mkdir -p d; cd d; (exit 3)")
    first, mark = shell.run("echo $? $x $PWD; cat ../g; (exit 4)"), shell.mark()
    state, patch = shell.state, shell.patch()
    other = shell.run("echo $?; rm -r ../f ../d; x=7; sleep 60 & echo gone").output
    assert other == b"4\ngone\n"
    with pytest.raises(ForkError, match="other processes are running"):
        shell.mark()
    for attack in ("kill -9 $$", "exec 1>&-; cat() { :; }; chmod 0 ..", "ulimit -n 3; cd /"):
        shell.rollback(mark)
        assert (shell.state, shell.patch()) == (state, patch)
        assert shell.run("echo $? $x $PWD; cat ../g; (exit 4)").output[1:] == first.output[1:]
        shell.run(attack)
    shell.rollback(mark)
    shell.run("rm ../g; head -c 9000000 /dev/zero > ../large")
    large = shell.mark()
    assert shell.run("rm ../large; ls -A ..").output.count(b"large") == 0
    shell.rollback(large)
    assert shell.run("stat -c %s ../large; echo $x").output.startswith(b"9000000\n")


def test_a_shell_returns_to_any_node(shell: ResidentShell) -> None:
    marks = []
    for number in range(4):
        shell.run(f"x={number}; touch f{number}; cd /tmp; date > /dev/null")
        marks.append(shell.mark())
    for number in (2, 0, 3, 1):
        shell.rollback(marks[number])
        assert shell.run("echo $x; cd -; ls f*").output.endswith(f"f{number}\n".encode())
        with shell.fork() as fork:
            assert fork.run("echo $x").output == f"{number}\n".encode()


def test_a_mark_of_another_shell_is_refused(shell: ResidentShell) -> None:
    with shell.fork() as other, pytest.raises(ForkError, match="another shell"):
        other.rollback(shell.mark())


@pytest.mark.parametrize("script", by_day(SCRIPTS, 12, range(len(SCRIPTS))))
def test_a_fork_continues_as_its_original_does(
    runner: SandboxRunner, script: tuple[str, ...]
) -> None:
    half = len(script) // 2
    with ResidentShell(runner, HOME) as original:
        for line in script[:half]:
            if not original.ended:
                original.run(line)
        with original.fork(exact=False) as fork:
            assert fork.ended == original.ended
            assert (fork.state, fork.patch()) == (original.state, original.patch())
            if original.ended:
                return
            found = list(differences(fork, original, script[half:]))
            assert bool(found) <= (script in OTHERWISE), found
            assert fork.patch() == original.patch()


ONCE = "head -c 8 /dev/urandom | od | tee once; date +%N >> once; n=$RANDOM; ln once twice"


def test_forks_have_what_happened_once_and_repeat_no_line(shell: ResidentShell) -> None:
    shell.run(f"{ONCE}; touch -d 2001-02-03 once; chmod 4701 once; cd documents; (exit 3)")
    show = "echo $? $n $$ $BASHPID; od ../once; ls -lai .. . /; stat -c '%h %Y' ../twice"
    first, *others = shell.fork(3)
    seen = first.run(show)
    for other in others:
        other.run("rm -r ../* ; n=0")
    (again,) = first.fork(1)
    assert shell.run(show) == seen
    assert again.run(f"(exit 3); {show}").output == seen.output
    for fork in (first, again, *others):
        fork.close()


def test_the_clock_of_a_fork_goes_on(shell: ResidentShell) -> None:
    clock = "date +%s.%N; cut -d ' ' -f 1 /proc/uptime"
    before = [*map(float, shell.run(clock).output.split())]
    shell.run("touch old")
    let_time_pass(1.1, "the clock of the machine has to go on by as much")
    with shell.fork() as fork:
        after = [*map(float, fork.run(clock).output.split())]
        now = [*map(float, shell.run(clock).output.split())]
        assert all(1.1 < late - early < 60 for early, late in zip(before, after, strict=True))
        assert all(0 <= late - early < 60 for early, late in zip(after, now, strict=True))
        times = fork.run("touch new; stat -c %Y old new; [ new -nt old ]; echo $?").output.split()
        assert before[0] - 1 < int(times[0]) < int(times[1]) < after[0] + 60
        assert times[2] == b"0"


def test_a_fork_repeats_lines_that_left_more_than_a_copy_has(shell: ResidentShell) -> None:
    shell.run(ONCE)
    shell.fork().close()
    for left in ("sleep 1000 &", "exec 7< README.md", "hostname other", "seq 2000000 > large"):
        mark = shell.mark()
        shell.run(left)
        with pytest.raises(ForkError, match="line 1"):
            shell.fork()
        shell.fork(exact=False).close()
        if left.startswith("hostname"):
            return
        shell.rollback(mark)


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_fork_attacks_its_siblings_in_vain(runner: SandboxRunner, attack: str) -> None:
    look = "echo $x; cat made; ls -a / .; uname -n; ulimit -n; nice; ps -e -o comm=; ip -br link"
    with ResidentShell(runner, HOME) as shell:
        shell.run("x=5; echo kept > made")
        first, attacker, last = shell.fork(3)
        seen = first.run(look)
        attacker.run(attack, timeout=0.5)
        for sibling in (last, shell):
            assert sibling.run(look) == seen
        attacker.close()
        with shell.fork() as late:  # perhaps on the attacker's machine
            assert late.run(look).output == seen.output
        for fork in (first, last):
            fork.close()


IMPOSSIBLE: list[Any] = [-1, -0.001, 0, math.nan, math.inf, 1e308, 2_592_001, "3", None]


def test_an_impossible_time_is_one_error_and_changes_nothing(
    runner: SandboxRunner, shell: ResidentShell
) -> None:
    shell.run("x=kept")
    for seconds in IMPOSSIBLE:
        for ask in (shell.run, shell.beside, RepeatedShell(runner, HOME).run):
            if seconds is not None:
                with pytest.raises(
                    LimitsError, match=re.escape(f"limit wall_seconds is {seconds!r}")
                ):
                    ask("echo hi", timeout=seconds)
        with pytest.raises(LimitsError, match=re.escape(f"limit idle_seconds is {seconds!r}")):
            ResidentShell(runner, HOME, idle_seconds=seconds)
        if seconds is not None:
            with pytest.raises(LimitsError, match=re.escape(f"limit wall_seconds is {seconds!r}")):
                runner.execute("echo hi", wall_seconds=seconds)
    assert shell.run("echo $x").output == b"kept\n"
    assert runner.run("echo $x").output == b"\n"


def test_a_model_answers_what_it_is_sure_of_and_the_machine_the_rest(runner: SandboxRunner) -> None:
    model = ScriptedRunner()
    model.table["cd documents"] = Behavior(0, b"")
    with HybridShell(model, shell_of(runner), confidence=0.5) as shell:
        shell.run("cd documents")
        assert shell.answer is not None
        assert shell.run("pwd").output == b"/home/ubuntu/documents\n"
        assert shell.answer is None


def test_where_no_shell_stays_lines_are_run_again(system: System) -> None:
    with open_sandbox(system, Limits(without_shell_state=True)) as runner:
        with shell_of(runner) as shell:
            shell.run("x=1; touch made")
            assert shell.run("echo $x; ls made").output == b"1\nmade\n"
        with pytest.raises(SandboxError, match="persistent shells"):
            runner.start_shell(HOME, idle_seconds=1)


def test_a_machine_that_dies_loses_no_line_and_tells_none_twice(system: System) -> None:
    """Its supervisor is killed at any moment: a line was reported, or an error reports its loss."""
    for moment in (0.0, 0.002, 0.005, 0.02):
        with open_shell(system) as shell:
            shell.run("echo one > f")
            sandbox = shell._lines._sandbox
            pid = sandbox._process.pid  # type: ignore[attr-defined]
            child = os.fork()
            if not child:
                let_time_pass(moment, "the supervisor is killed at any moment")
                os.kill(pid, signal.SIGKILL)
                os._exit(0)
            told = 1
            try:
                for told in range(1, 100_000):
                    shell.run(f"echo {told}")
            except SandboxError:
                pass
            else:
                pytest.fail("it was not killed")
            os.waitpid(child, 0)
            assert len(shell.state.history) == told
            assert shell.ended
            assert refuses_lines(shell)
