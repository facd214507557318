"""Many resident shells in one process: one machine for each, and none disturbs another."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from shioenv.behavior.observe import SandboxRunner, open_sandbox
from shioenv.errors import SandboxError, ShellEndedError
from shioenv.live.resident import ResidentShell, open_shell
from shioenv.sandbox.base import Limits
from shioenv.system.store import System
from support.nightly import NIGHTLY

HOME = "/home/ubuntu"
MANY = 1000


def children(pid: int) -> list[int]:
    """Return the child processes of all threads of a process."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


def supervisors() -> set[int]:
    """Return the supervisors that this process has started."""
    here = children(os.getpid())
    return {pid for pid in here if "sandbox" in Path(f"/proc/{pid}/comm").read_text()}


@pytest.fixture
def before() -> set[int]:
    return supervisors()


@pytest.fixture(scope="module")
def runner(system: System) -> Iterator[SandboxRunner]:
    with open_sandbox(system) as opened:
        yield opened


def test_a_shell_opens_one_machine(system: System, before: set[int]) -> None:
    with open_shell(system, HOME) as shell:
        assert shell.run("echo x > new; ls new").output == b"new\n"
        assert len(supervisors() - before) == 1
        with shell.fork() as fork:
            assert fork.run("cat new").output == b"x\n"
            assert len(supervisors() - before) == 2
    assert not supervisors() - before


def test_a_fork_a_rollback_and_their_origin_know_the_state(system: System) -> None:
    with open_shell(system, HOME) as shell:
        mark = shell.mark()
        shell.run("x=1; export Y=2; cd documents; false")
        with shell.fork() as fork:
            for each in (shell, fork):
                looked = each.look()
                assert (looked.exit_code, looked.shell_state_known) == (1, True)
                assert not looked.patch
                assert {"/cwd", "/env/Y"} <= {path for _, path, *_ in each.patch().operations}
            assert fork.run("echo $x $Y $?").output == b"1 2 1\n"
        shell.rollback(mark)
        assert shell.look().shell_state_known
        assert not shell.patch()


def test_a_runner_survives_a_machine_that_ended_under_its_shell(system: System) -> None:
    with open_sandbox(system) as runner:
        shell = ResidentShell(runner, HOME)
        shell.run("true")
        shell.interrupt()
        shell.close()
        assert [runner.run("echo a").output for _ in range(2)] == [b"a\n", b"a\n"]


def test_a_run_and_a_shell_of_a_runner_have_different_machines(system: System) -> None:
    with open_sandbox(system) as runner:
        with ResidentShell(runner, HOME) as shell:
            shell.run("touch new; hostname changed")
            assert runner.run("ls new; uname -n").exit_code == 0
            assert runner.run("ls new").exit_code == 2
            assert shell.run("ls new; uname -n").output == b"new\nchanged\n"
        with ResidentShell(runner, HOME) as shell, ResidentShell(runner, HOME) as another:
            assert shell.run("touch new").exit_code == 0
            assert [each.run("ls new").exit_code for each in (shell, another, runner)] == [0, 2, 2]


def test_the_state_of_the_only_shell_has_the_pristine_network(system: System) -> None:
    with open_shell(system, HOME) as shell, open_sandbox(system) as runner:
        shell.run("ip addr add 10.9.8.7/24 dev eth0")
        changed, pristine = shell.state.before.document, runner.context(HOME).document
        (name,) = {key for key in pristine if changed[key] != pristine[key]}
        assert name == "network"


def test_limits_on_processes_are_the_declared_ones_in_every_shell(runner: SandboxRunner) -> None:
    """The fork servers count as processes of one user of the host, and have a higher limit."""
    shown = "ulimit -Su; ulimit -Hu; grep 'Max proc' /proc/self/limits; prlimit -u --noheadings"
    with ResidentShell(runner, HOME) as shell:
        assert shell.run("ulimit -Su; ulimit -Hu").output == b"800\n8192\n"
        assert shell.run(shown).output == runner.run(shown).output
        assert shell.run("ulimit -u 900 && ulimit -u 8193").exit_code == 1
        assert runner.run("ulimit -Su; ulimit -Hu").output == b"800\n8192\n"
        (supervisor, *_) = supervisors()
        servers = [pid for pid in children(supervisor) if "bash" in _comm(pid)]
        (limit,) = {line for pid in servers for line in _limits(pid) if "Max processes" in line}
        assert limit.split()[2:4] == ["8192", "8192"]


def test_a_process_has_more_machines_than_a_machine_may_have_processes(system: System) -> None:
    """The declared soft limit, 800, ended the 800th machine."""
    declared = system.declaration
    few = dict(declared.session.limits) | {"nproc": (16, 8192)}
    narrow = replace(
        system, declaration=replace(declared, session=replace(declared.session, limits=few))
    )
    with ExitStack() as stack, open_sandbox(narrow) as runner:
        shells = [stack.enter_context(ResidentShell(runner, HOME)) for _ in range(18)]
        outputs = {shell.run("echo $((40 + 2)); ulimit -u").output for shell in shells}
        assert outputs == {b"42\n16\n"}


def test_a_shell_without_free_processes_stops_no_other(system: System) -> None:
    bomb = "for i in {1..200}; do sleep 600 & done 2> /dev/null; jobs -p | wc -l"
    limits = Limits(processes=40, background_seconds=0.05)
    with open_sandbox(system, limits) as runner, ResidentShell(runner, HOME) as sibling:
        with ResidentShell(runner, HOME) as full:
            last = full.run(bomb, timeout=5)
            assert "processes" in last.limits_hit or int(last.output.split()[-1]) < 100
            assert sibling.run("echo $(ls | head -1; echo y)").output.endswith(b" y\n")
            with ResidentShell(runner, HOME) as later:
                assert later.run("echo $(echo z)").output == b"z\n"
            assert runner.run("echo $(echo run)").output == b"run\n"
        assert sibling.run("sleep 0 & wait; echo $?").output.endswith(b"0\n")


@pytest.mark.parametrize("count", [3, pytest.param(MANY, marks=NIGHTLY)])
def test_shells_live_on_when_one_is_killed_from_outside(
    system: System, before: set[int], count: int
) -> None:
    with ExitStack() as stack, open_sandbox(system) as runner:
        shells = [stack.enter_context(ResidentShell(runner, HOME)) for _ in range(count)]
        assert len(supervisors() - before) == count
        for number, shell in enumerate(shells):
            assert shell.run(f"a={number}; echo $a > own").exit_code == 0
        victim = shells[count // 2]
        os.kill(victim._lines._sandbox._process.pid, signal.SIGKILL)  # type: ignore[attr-defined]
        with pytest.raises((SandboxError, ShellEndedError)):
            victim.run("true")
        for number, shell in enumerate(shells):
            if shell is not victim:
                assert shell.run("cat own; echo $a").output == f"{number}\n{number}\n".encode()
        with ResidentShell(runner, HOME) as another:
            assert another.run("ls own").exit_code == 2


def _comm(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text()


def _limits(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/limits").read_text().splitlines()
