"""Inputs do not show the caller's priority, nor its share of the processor."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from shioenv.system.store import System
from support.needs import needs
from support.nightly import by_day

ASK = """
from shioenv.behavior.observe import open_sandbox
with open_sandbox({system!r}) as sandbox:
    print(sandbox.run({text!r}).text)
"""
SHOWN = (
    "nice; ionice; chrt -p $$; umask; trap; ulimit -aS; setarch -R true; "
    "cat /proc/self/{oom_score_adj,personality,timerslack_ns,coredump_filter,cgroup,limits}; "
    "grep -vE '^(Vm|Rss|.*ctxt)' /proc/self/status; env; tty; id; pwd; ls /proc/self/fd; "
    "cat /proc/self/{setgroups,uid_map,gid_map,cpuset,sessionid}; setpriv --dump; taskset -p $$; "
    "cut -d' ' -f3-9,18-20,31-34,38-44 /proc/self/stat; set -o; shopt; locale; cat /proc/keys; "
    "ps -o ni=,pri=,cls=,stat=,sid=,flags= -p $$; perl -e 'printf q(%x), syscall 135, 0xffffffff'"
)
CALLERS = {
    "memory not randomised": "libc.personality(0x0040000)",
    "another release": "libc.personality(0x0020000)",
    "lazy timers": "libc.prctl(29, 777_777)",
    "small pages": "libc.prctl(41, 1, 0, 0, 0)",
    "killed early by faulty memory": "libc.prctl(33, 1, 1, 0, 0)",
    "large core dumps": "open('/proc/self/coredump_filter', 'w').write('0x7f')",
    "batch": "os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))",
    "idle disk": "libc.syscall(251, 1, 0, 3 << 13)",
    "killed first": "open('/proc/self/oom_score_adj', 'w').write('300')",
    "umask": "os.umask(0o77)",
    "signals ignored": "[signal.signal(number, signal.SIG_IGN) for number in (1, 2, 3, 13, 15)]",
    "signals blocked": "signal.pthread_sigmask(signal.SIG_BLOCK, {1, 2, 10, 15, 17})",
    "an orphanage": "libc.prctl(36, 1, 0, 0, 0)",
    "low soft limits": "[resource.setrlimit(kind, (least, resource.getrlimit(kind)[1])) "
    "for kind, least in ((3, 1 << 20), (4, 0), (7, 400))]",
    "small files": "resource.setrlimit(1, (1000, resource.getrlimit(1)[1]))",
    "processors": "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})",
    "a group of processes": "os.setpgid(0, 0)",
    "a closed standard input": "os.close(0)",
    "open descriptors": "[os.dup2(2, number) for number in range(3, 40)]",
    "a working directory that is gone": "os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')",
    "no dumps": "libc.prctl(4, 0, 0, 0, 0)",
    "a keyring": "libc.syscall(250, 1, 0)",
    "no speculation": "libc.prctl(53, 0, 4, 0, 0)",
    "no time stamp counter": "libc.prctl(26, 1)",
    "merged pages": "libc.prctl(67, 1, 0, 0, 0)",
    "a parent's end": "libc.prctl(1, 10)",
    "a session": "os.setsid()",
    "an environment": "os.environ.update(LC_ALL='C', BASH_ENV='/x', POSIXLY_CORRECT='1')",
}


NICEST = ("nice", "-n", "39")
"""A prefix that sets the highest nice value, 19, from any current value."""
OWN = os.getpriority(os.PRIO_PROCESS, 0)
"""The nice value of this process, which an ordinary user can only raise."""


def shown(system: System, text: str, *prefix: str) -> str:
    command = [*prefix, sys.executable, "-c", ASK.format(system=system.name, text=text)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def plain(system: System) -> str:
    return shown(system, SHOWN)


@pytest.mark.parametrize("how", by_day([*CALLERS], 5))
def test_inputs_show_nothing_of_their_caller(system: System, plain: str, how: str) -> None:
    change = "import ctypes, os, resource, signal, sys; libc = ctypes.CDLL(None); "
    change += f"{CALLERS[how]}; os.execv(sys.argv[1], sys.argv[1:])"
    assert shown(system, SHOWN, sys.executable, "-c", change) == plain


def test_a_service_ends_whatever_signals_the_caller_blocks(system: System) -> None:
    text = (
        "p=$(pgrep -o -x cron); kill $p; "
        "for i in $(seq 100); do [ -d /proc/$p ] || break; sleep .02; done; ls -d /proc/$p"
    )
    block = "import os, signal, sys; signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32)); "
    block += "os.execv(sys.argv[1], sys.argv[1:])"
    assert "cannot access" in shown(system, text)
    assert shown(system, text, sys.executable, "-c", block) == shown(system, text)


@needs("root")  # an ordinary user cannot lower its own niceness
def test_inputs_of_a_nice_caller_have_the_declared_priorities(system: System) -> None:
    text = "nice; ionice; chrt -p $$ | sed 's/.*: //'; cat /proc/self/oom_score_adj"
    plain = shown(system, text)
    assert plain.splitlines() == ["0", "none: prio 0", "SCHED_OTHER", "0", "0", ""]
    nice = ("nice", "-n", "5", "ionice", "-c", "3", "choom", "-n", "300", "--")
    assert shown(system, text, *nice) == plain
    assert shown(system, text, "chrt", "-i", "0") == plain


def run_by(*prefix: str) -> subprocess.CompletedProcess[str]:
    """Return an input's output where an ordinary user starts the command line."""
    ordinary = ("setpriv", "--bounding-set=-sys_nice") if os.geteuid() == 0 else ()
    words = [*prefix, *ordinary, sys.executable, "-m", "shioenv"]
    text = "nice; grep NoNewPrivs /proc/self/status"
    return subprocess.run([*words, "run", text], capture_output=True, text=True, check=True)


def test_a_nice_value_that_stays_is_warned_of(system: System) -> None:
    done = run_by(*NICEST)
    assert done.stdout == "19\nNoNewPrivs:\t0\n"
    assert done.stderr.startswith(
        "warning: inputs inherit a nice value of 19 and can see it (nice, "
    )
    assert ("warning" in run_by().stderr) == (OWN > 0)


@needs("root")  # an ordinary user's ids are mapped by a set-user-id program
def test_that_set_user_id_programs_have_no_effect_is_warned_of(system: System) -> None:
    done = run_by("setpriv", "--no-new-privs")
    assert done.stdout == f"{max(OWN, 0)}\nNoNewPrivs:\t1\n"
    assert "warning: set-user-id programs of inputs have no effect (" in done.stderr


PRIORITY = (
    sys.executable,
    "-c",
    "from shioenv.sandbox.namespaces.host import inherited_priority as shown; print(shown())",
)


@pytest.mark.parametrize(
    ("prefix", "said"),
    [
        (NICEST, "a nice value of 19\n"),
        (("chrt", "-i", "0"), "the scheduling policy for idle work\n"),
        (("chrt", "-b", "0"), "\n"),
    ],
)
def test_what_an_ordinary_user_cannot_put_back_is_named(prefix: tuple[str, ...], said: str) -> None:
    ordinary = ("setpriv", "--bounding-set=-sys_nice") if os.geteuid() == 0 else ()
    if OWN > 0 and prefix != NICEST:
        said = f"a nice value of {OWN}\n"
    command = [*prefix, *ordinary, *PRIORITY]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == said


def test_what_root_of_a_user_namespace_cannot_put_back_is_named() -> None:
    """For example in a container without the host's root."""
    command = ["unshare", "-U", "-r", *NICEST, *PRIORITY]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout == "a nice value of 19\n"
