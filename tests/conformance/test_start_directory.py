"""The shell starts in its start directory, and nothing shows how it came there (D-27)."""

from __future__ import annotations

import pytest

import shioenv
from shioenv.behavior.observe import SandboxRunner
from shioenv.errors import StartDirectoryError
from shioenv.live.terminal import Terminal
from shioenv.sandbox.base import Limits, Request
from shioenv.sandbox.namespaces.backend import NamespaceSandbox
from shioenv.sandbox.namespaces.wire import ShellMode
from shioenv.system.store import System

TRACES = (
    "cd -; echo $? ~-",
    'echo "$_|${OLDPWD-unset}|$BASH_EXECUTION_STRING|$LINENO|$SHLVL"',
    "declare -p PWD OLDPWD _; export -p; env; dirs -v",
    "echo 'never closed",
    "echo a; ) b",
    "set -xv; pwd; nosuch",
    "ps -o args; true",
    "tr '\\0' '\\n' < /proc/$$/cmdline; tr '\\0' '\\n' < /proc/self/environ",
    "pwd; pwd -P; echo $PWD; cd ..; pwd",
    "-x a; echo $-",
    "+x; tr '\\0' '|' < /proc/$$/cmdline",
    "bash -c 'echo $PWD ${OLDPWD-unset}'",
)
PLACES = (
    *("/home/ubuntu", "/home/ubuntu/", "/home//ubuntu", "/home/../home/ubuntu/.", "/"),
    *("/var/run", "/var/run/../run"),
)


@pytest.mark.parametrize("mode", [ShellMode.LATE, ShellMode.MAIN])
def test_a_served_shell_starts_as_a_fresh_one_does(system: System, mode: ShellMode) -> None:
    with NamespaceSandbox(system, mode=mode) as sandbox:
        for cwd in PLACES:
            for text in TRACES:
                request = Request(text, cwd=cwd)
                served, fresh = sandbox.run(request), sandbox.run_fresh(request)
                assert (served.exit_code, served.output) == (fresh.exit_code, fresh.output)
                assert b"cd /" not in served.output


def test_the_shell_was_nowhere_before(observer: SandboxRunner) -> None:
    for cwd in ("/home/ubuntu", "/tmp"):
        state = observer.state(cwd)
        went_back = observer.run("cd -", state)
        assert went_back.output == b"bash: line 1: cd: OLDPWD not set\n"
        assert (went_back.exit_code, went_back.patch.operations) == (1, ())
        shown = observer.run('echo "$_ ${OLDPWD-unset} $BASH_EXECUTION_STRING"', state)
        expected = 'bash unset echo "$_ ${OLDPWD-unset} $BASH_EXECUTION_STRING"\n'
        assert shown.output == expected.encode()


def test_a_history_begins_in_the_start_directory(observer: SandboxRunner) -> None:
    state = observer.state("/tmp")
    state = state.after("true", observer.run("true", state))
    assert observer.run("cd -; echo $_", state).output == (b"bash: line 2: cd: OLDPWD not set\n-\n")
    state = state.after("cd /etc", observer.run("cd /etc", state))
    assert observer.run("cd -", state).output == b"/tmp\n"


def test_a_link_that_leads_to_the_start_keeps_its_name(observer: SandboxRunner) -> None:
    state = observer.state("/var/run")
    assert state.before.document["cwd"] == "/run"
    assert state.before.document["env"]["PWD"] == "/var/run"
    ran = observer.run("pwd; pwd -P; touch made", state)
    assert ran.output == b"/var/run\n/run\n"
    assert [operation[:2] for operation in ran.patch.operations] == [("a", "/fs/~1run~1made")]


@pytest.mark.parametrize("cwd", ["/no such place", "/etc/passwd"])
def test_no_record_is_of_a_directory_that_cannot_be_entered(
    observer: SandboxRunner, cwd: str
) -> None:
    with pytest.raises(StartDirectoryError):
        observer.run("pwd", observer.state(cwd))


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
