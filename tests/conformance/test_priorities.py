"""What a caller has, or is allowed of the processor, is not what its inputs show."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from needs import needs

from shioenv.system.store import System

ASK = """
from shioenv.behavior.observe import open_sandbox
with open_sandbox({system!r}) as sandbox:
    print(sandbox.run({text!r}).text)
"""
SHOWN = (
    "nice; ionice; chrt -p $$; umask; trap; ulimit -aS; setarch -R true; "
    "cat /proc/self/{oom_score_adj,personality,timerslack_ns,coredump_filter,cgroup}; "
    "grep -E '^(THP|Sig[BI]|Cap|Groups|Umask)' /proc/self/status; env; tty; id; "
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
    "a session": "os.setsid()",
    "an environment": "os.environ.update(LC_ALL='C', BASH_ENV='/x', POSIXLY_CORRECT='1')",
}


def shown(system: System, text: str, *prefix: str) -> str:
    command = [*prefix, sys.executable, "-c", ASK.format(system=system.name, text=text)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def plain(system: System) -> str:
    return shown(system, SHOWN)


@pytest.mark.parametrize("how", CALLERS)
def test_inputs_show_nothing_of_their_caller(system: System, plain: str, how: str) -> None:
    change = "import ctypes, os, resource, signal, sys; libc = ctypes.CDLL(None); "
    change += f"{CALLERS[how]}; os.execv(sys.argv[1], sys.argv[1:])"
    assert shown(system, SHOWN, sys.executable, "-c", change) == plain


@needs("root")  # an ordinary user cannot lower its own niceness
def test_inputs_of_a_nice_caller_have_the_declared_priorities(system: System) -> None:
    text = "nice; ionice; chrt -p $$ | sed 's/.*: //'; cat /proc/self/oom_score_adj"
    plain = shown(system, text)
    assert plain.splitlines() == ["0", "none: prio 0", "SCHED_OTHER", "0", "0", ""]
    nice = ("nice", "-n", "5", "ionice", "-c", "3", "choom", "-n", "300", "--")
    assert shown(system, text, *nice) == plain
    assert shown(system, text, "chrt", "-i", "0") == plain


@pytest.mark.parametrize(
    ("prefix", "said"),
    [
        (("nice", "-n", "5"), "a nice value of 5\n"),
        (("chrt", "-i", "0"), "the scheduling policy for idle work\n"),
        (("chrt", "-b", "0"), "\n"),
    ],
)
def test_what_an_ordinary_user_cannot_put_back_is_named(prefix: tuple[str, ...], said: str) -> None:
    ordinary = ("setpriv", "--bounding-set=-sys_nice") if os.geteuid() == 0 else ()
    ask = "from shioenv.sandbox.namespaces.host import inherited_priority as shown; print(shown())"
    command = [*prefix, *ordinary, sys.executable, "-c", ask]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == said
