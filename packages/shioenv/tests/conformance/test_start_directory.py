"""The shell starts in its start directory, without traces of the change to it (D-27)."""

from __future__ import annotations

import re
import shlex

import pytest

from shioenv.behavior.observe import SandboxRunner
from shioenv.behavior.typed_rows import Row, RowKind
from shioenv.domain.behavior import Behavior
from shioenv.errors import StartDirectoryError
from shioenv.live.resident import ResidentShell
from shioenv.sandbox.base import Request, ShellMode
from shioenv.sandbox.namespaces.backend import NamespaceSandbox
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


DATA = "/home/ubuntu/data"
GONE = "rm -r ../data"
THERE = (
    "pwd",
    "pwd; echo ran $? $PWD; ls; ls -a; echo > new; cat x",
    "pwd -P; cd .; cd ..; pwd; cd data",
    "cd; pwd; cd -",
    "/bin/pwd; mkdir d; stat -c %h .",
    "python3 -c 'import os; os.getcwd()' 2>&1 | tail -n 1",
    "(cd /etc; pwd); bash -c pwd; exit 7",
)
"""Inputs of a shell whose working directory was removed."""


def done(behavior: Behavior) -> tuple[list[bytes], int]:
    """Return an input's output lines, sorted because processes write concurrently, and its exit
    code.

    Bash reports a job's missing directory where the job has not ended, in the middle of its line.
    """
    said = re.sub(rb"job-working-directory: .*\n", b"", behavior.output)
    return sorted(said.splitlines()), behavior.exit_code


@pytest.fixture
def truths(observer: SandboxRunner) -> dict[str, tuple[list[bytes], int]]:
    """Return the behavior of a bash that is executed in a directory after its removal."""
    state = observer.state(DATA)
    found = {}
    for text in THERE:
        execute = f"exec env -u PWD -u OLDPWD bash --norc --noprofile -c {shlex.quote(text)}"
        found[text] = done(observer.run(f"{GONE}; {execute}", state))
    assert [line.partition(b":")[0] for line in found["pwd"][0]] == [b"pwd", b"shell-init"]
    return found


def test_a_shell_beside_starts_in_a_directory_that_is_gone(
    observer: SandboxRunner, truths: dict[str, tuple[list[bytes], int]]
) -> None:
    with ResidentShell(observer, DATA) as shell:
        shell.run(f"{GONE}; cd /")
        for text, truth in truths.items():
            assert done(shell.beside(text)) == truth, text
        assert shell.run("mkdir data; pwd").output == b"/\n"
        shell.run(f"mkdir {DATA}")
        assert shell.beside("pwd; ls").output == f"{DATA}\n".encode()
        shell.run(f"mv {DATA} /tmp/data; touch {DATA}")
        assert shell.beside("pwd").output.endswith(b"No such file or directory\n")


MANY = "(mkdir /srv/{0}; cd /srv/{0}; seq 3000 | split -l 1 -a 4)"
"""So many files that a resident shell begins a new layer over them."""


@pytest.mark.parametrize(
    "before", [(f"rm -r {DATA}; cd /",), ("cd /", MANY.format(1), f"rm -r {DATA}")]
)
def test_a_directory_is_gone_in_whatever_layer(
    observer: SandboxRunner, before: tuple[str, ...], truths: dict[str, tuple[list[bytes], int]]
) -> None:
    with ResidentShell(observer, DATA) as shell:
        for line in (*before, MANY.format(2), MANY.format(3), "echo behind"):
            assert shell.run(line).exit_code == 0
        for text, truth in truths.items():
            assert done(shell.beside(text)) == truth, text
        assert b"\n3000\n" in shell.beside("ls /srv/2 | wc -l; rm -r /srv/3").output
        assert shell.run("ls /srv | grep 3").exit_code == 1


def test_a_shell_stays_in_a_directory_that_is_gone(observer: SandboxRunner) -> None:
    with ResidentShell(observer, "/home/ubuntu") as shell:
        shell.run("cd data; rm -r ../data")
        for number in range(3):
            assert shell.run(MANY.format(number)).exit_code == 0
        assert shell.run("pwd; cd ..; pwd; ls /srv | wc -l").output == (
            b"/home/ubuntu/data\n/home/ubuntu\n4\n"
        )


def test_rows_beside_start_in_a_directory_that_is_gone(
    observer: SandboxRunner, truths: dict[str, tuple[list[bytes], int]]
) -> None:
    for text, truth in truths.items():
        rows = [Row(RowKind.AGAIN, GONE), Row(RowKind.END), Row(RowKind.BESIDE, text)]
        for typed in (rows, [rows[0], rows[2]]):
            assert done(observer.type(typed, DATA)) == truth, text
    rows = [Row(RowKind.AGAIN, GONE), Row(RowKind.TYPED, "ls /proc/self/fd | wc -w")]
    assert observer.type(rows, DATA).output == b"4\n"
