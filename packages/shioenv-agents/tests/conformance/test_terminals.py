"""Terminals on real machines: their start directory, and more of them than there are shells."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

import shioenv
from shioenv.behavior.observe import SandboxRunner
from shioenv.sandbox.base import Limits
from shioenv.system.store import System
from shioenv_agents.tasks.terminal import Terminal

HOME = "/home/ubuntu"
DATA = "/home/ubuntu/data"
GONE = "rm -r ../data"
THREADS = 8


@pytest.mark.parametrize("limits", [Limits(), Limits(without_shell_state=True)])
def test_rows_begin_as_inputs_do(system: System, limits: Limits) -> None:
    asks = 'echo "$_ ${OLDPWD-unset} $PWD"; pwd -P'
    with shioenv.open_sandbox(system, limits) as machine:
        for cwd, own in (("/home/ubuntu/data", "/home/ubuntu/data"), ("/var/run", "/run")):
            terminal = Terminal(machine, cwd)
            assert terminal.run(asks).output == f"bash unset {cwd}\n{own}\n".encode()
            terminal.run("mkdir /tmp/other; cd /tmp/other; cd() { echo mine; }")
            beside = terminal.beside("echo ${OLDPWD-unset} $PWD; pwd -P; cd -")
            assert beside.output.startswith(f"unset {cwd}\n{own}\n".encode())
            assert beside.output.endswith(b"line 1: cd: OLDPWD not set\n")
            assert terminal.beside("-x").output.endswith(b"line 1: -x: command not found\n")
            terminal.repeated()


def test_a_terminal_whose_directory_is_gone_can_be_judged(system: System) -> None:
    with shioenv.open_sandbox(system) as machine:
        terminal = Terminal(machine, DATA)
        terminal.run(f"{GONE}; sleep 300 &")
        asked = terminal.beside(
            "{ test -e x; echo $?; ls /home/ubuntu | grep -c data; pgrep sleep; } 2>&-"
        )
        assert asked.output.splitlines()[-2:] == [b"1", b"0"]
        terminal.repeated()


def test_a_shell_without_code_of_ours_says_that_the_directory_is_gone(system: System) -> None:
    with shioenv.open_sandbox(system, Limits(without_shell_state=True)) as machine:
        terminal = Terminal(machine, DATA)
        terminal.run(GONE)
        behavior = terminal.beside("echo ran")
    assert behavior.output.endswith(f"cd: {DATA}: No such file or directory\n".encode())
    assert behavior.exit_code == 1


def test_more_terminals_than_shells_type_in_threads(observer: SandboxRunner) -> None:
    def typed(number: int) -> list[bytes]:
        terminal = Terminal(observer, HOME)
        rows = [f"n={number}", *["echo $n"] * 4]
        return [terminal.run(row).output for row in rows]

    with ThreadPoolExecutor(THREADS) as threads:
        for number, outputs in enumerate(threads.map(typed, range(THREADS))):
            assert outputs == [b"", *[b"%d\n" % number] * 4]
