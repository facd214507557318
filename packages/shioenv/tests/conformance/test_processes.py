"""The machine's own processes, as programs see them; they are restarted after an input harms
them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shioenv.sandbox.base import Limits, Request, ShellMode
from shioenv.sandbox.namespaces.backend import NamespaceSandbox
from shioenv.system.store import System


@pytest.fixture(scope="module")
def sandbox(system: System) -> Iterator[NamespaceSandbox]:
    with NamespaceSandbox(system) as opened:
        yield opened


def _print(sandbox: NamespaceSandbox, text: str) -> str:
    return sandbox.run(Request(text)).output.decode()


def test_every_source_tells_of_the_same_processes(sandbox: NamespaceSandbox) -> None:
    declared = {process.pid: process for process in sandbox.system.declaration.machine.processes}
    assert len(declared) > 12
    of_proc = _print(sandbox, "cd /proc; for p in [0-9]*; do echo $p; done")
    of_ps = _print(sandbox, "ps -e -o pid=")
    of_top = _print(sandbox, "top -bn1 | awk '$1 ~ /^[0-9]+$/ { print $1 }'")
    of_kill = _print(
        sandbox, "for ((p = 1; p < 1000; p++)); do kill -0 $p 2> /dev/null && echo $p; done"
    )
    for said in (of_proc, of_ps, of_top, of_kill):
        assert {int(pid) for pid in said.split() if int(pid) < 1000} == set(declared)
    listed = _print(sandbox, "ps -e -o pid=,ppid=,user=,comm=").splitlines()
    for pid, parent, user, name in (line.split() for line in listed):
        if int(pid) < 1000:
            process = declared[int(pid)]
            assert (int(parent), user, name) == (process.parent, process.user, process.name)
    assert _print(sandbox, "pidof cron; pgrep -c sshd; cat /proc/398/comm") == "398\n3\ncron\n"
    assert "su(903)---bash(904)---bash(1000)" in _print(sandbox, "pstree -p; true")


def test_processes_started_after_the_machine_and_stay_as_old(sandbox: NamespaceSandbox) -> None:
    text = "ps -o lstart= -p 1; ps -o lstart= -p 398; stat -c %y /proc/1 | cut -c -4"
    first = _print(sandbox, text)
    assert first.splitlines()[0].split() == ["Wed", "Oct", "15", "16:40:00", "2025"]
    assert first.splitlines()[1] == "Wed Oct 15 16:40:04 2025"
    assert _print(sandbox, f"sleep 0.3; {text}") == first


SLOW_TO_GO = """exec perl -e '
    $SIG{CHLD} = sub { exit 11 };
    if (fork) { sleep 60 }
    open $file[$_], "<", "/dev/null" for 9..1000;
    for my $list ("fd", "fdinfo", "task/$$/fd") {
        opendir LIST, "/proc/$$/$list";
        lstat "/proc/$$/$list/$_" for readdir LIST;
    }
'"""
"""Leave a process that init reaps. The kernel removes it from all lists, then its many entries of
/proc, and frees its id last: all that takes longer than the supervisor's answer."""


def test_ids_do_not_depend_on_a_process_of_the_run_before(sandbox: NamespaceSandbox) -> None:
    numbers = "echo $$ $(echo $BASHPID); sleep 0 & echo $!"
    for _ in range(6):
        assert sandbox.run(Request(SLOW_TO_GO)).exit_code == 11
        assert _print(sandbox, numbers) == "1000 1001\n1002\n"


def test_the_shell_has_a_parent(sandbox: NamespaceSandbox) -> None:
    text = "echo $PPID; ps -o ppid= -p $$; perl -e 'print getppid'; sh -c 'ps -o comm= -p $PPID'"
    declared = str(sandbox.system.declaration.session.parent)
    assert _print(sandbox, text).split() == [declared, declared, "1000bash"]
    ask = Request("echo $PPID; ps -o ppid= -p $$; kill -9 $PPID; echo $?")
    told = [declared.encode(), declared.encode(), b"0"]
    assert sandbox.run_fresh(ask).output.split() == told
    for mode in (ShellMode.MAIN, ShellMode.FRESH):
        with NamespaceSandbox(sandbox.system, mode=mode) as other:
            assert other.run(ask).output.split() == told
            assert other.run(ask).output.split() == told


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("kill -9 -1; echo $?", "0\n"),
        ("kill -1 -1; echo $?", "0\n"),
        ("kill -9 398; sleep 0.1; kill -0 398", "bash: line 1: kill: (398) - No such process"),
        ("kill -STOP 398; echo $?", "0\n"),
        ("kill -HUP 405; sleep 0.1; kill -0 405; echo $?", "0\n"),
        ("renice 19 -p 398 > /dev/null; echo $?", "0\n"),
        ("prlimit --pid 398 --nofile=9:9; echo $?", "0\n"),
    ],
)  # fmt: skip
def test_what_hurts_one_is_this_run_alone(
    sandbox: NamespaceSandbox, text: str, printed: str
) -> None:
    look = (
        "ps -e -o pid,ni,stat,args; kill -TERM 398; sleep 0.1; kill -0 398 2>&1; prlimit --pid 405"
    )
    with NamespaceSandbox(sandbox.system) as other:
        untouched = _print(other, look)
    assert _print(sandbox, text).startswith(printed)
    assert _print(sandbox, look) == untouched


def test_what_a_run_leaves_is_ended_without_the_machines_own(sandbox: NamespaceSandbox) -> None:
    sandbox.run(Request("true"))
    supervisor = sandbox._process
    for text in ("sleep 60 &", "(sleep 60 & sleep 60 &) & setsid sleep 60 &"):
        sandbox.run(Request(f"{text} true > /dev/null"))
        assert "sleep" not in _print(sandbox, "ps -e -o comm=")
    assert sandbox._process is supervisor


def test_root_is_refused_nothing_in_proc(sandbox: NamespaceSandbox) -> None:
    text = "find / -xdev > /dev/null; find /proc -maxdepth 4 ! -path '/proc/10*' 2>&1 > /dev/null"
    assert _print(sandbox, text) == ""
    text = (
        "cat /proc/1/{cmdline,environ,status,comm,maps,stat,limits} > /dev/null; ls -l /proc/1/exe"
    )
    assert _print(sandbox, text).endswith("/proc/1/exe -> /usr/lib/systemd/systemd\n")
    said = _print(sandbox, "cut -d' ' -f 1,2,4 /proc/1/stat; grep -e ^Name -e ^PPid /proc/1/status")
    assert said == "1 (systemd) 0\nName:\tsystemd\nPPid:\t0\n"
    assert _print(sandbox, "test -x /sbin/init; echo $?; ls -A /proc/tty/driver") == "0\n"


def test_logins_are_those_of_processes(sandbox: NamespaceSandbox) -> None:
    assert "gone" not in _print(sandbox, "last")
    assert _print(sandbox, "last | grep -c 'still logged in'") == "2\n"
    for pid in _print(sandbox, "who -u | awk '{ print $6 }'").split():
        assert _print(sandbox, f"ps -o pid= -p {pid}").strip() == pid


def test_limits_are_a_machines_whatever_the_hosts_are_and_the_bounds_hold(
    sandbox: NamespaceSandbox,
) -> None:
    text = "ulimit -Hn; ulimit -n 32768 && ulimit -n; bash -c 'ulimit -n'; ulimit -u 8192 && "
    text += "ulimit -u; ulimit -c unlimited && ulimit -c"
    assert _print(sandbox, text) == "65536\n32768\n32768\n8192\nunlimited\n"
    assert _print(sandbox, "ulimit -n 1048576 && ulimit -Hn; ulimit -n 1048577 2>&1").startswith(
        "1048576\nbash: "
    )
    text = "ulimit -Hn 4096; prlimit --nofile -o SOFT,HARD --noheadings; ulimit -n 5000"
    said = _print(sandbox, f"su ubuntu -c '{text}' 2>&1")
    assert said.startswith("1024 4096\n")
    assert said.endswith("open files: cannot modify limit: Operation not permitted\n")
    two = "open(F, q(<), q(/etc/passwd)) && open(G, q(<), q(/etc/group))"
    few = f"ulimit -n 4; perl -e 'print {two} ? 0 : int $!'"
    assert _print(sandbox, few) == "24"
    assert _print(sandbox, "ulimit -x; ulimit -Sn 2000; ulimit -Sn; ulimit -Hn") == (
        "unlimited\n2000\n65536\n"
    )
    bomb = "ulimit -u 8192; for i in {1..400}; do sleep 5 & done 2> /dev/null; jobs -p | wc -l"
    with NamespaceSandbox(sandbox.system, Limits(processes=60)) as bounded:
        for who in ("", "su -s /bin/bash alice -c "):
            quoted = f"{who}'{bomb}'" if who else bomb
            run = bounded.run(Request(quoted, wall_seconds=3.0))
            assert "processes" in run.limits_hit or int(run.output.split()[-1]) < 100
