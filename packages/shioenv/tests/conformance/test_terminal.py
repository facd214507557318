"""Inputs on a pseudo-terminal: their view of it, and its complete reset for the next input."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shioenv.errors import InputError
from shioenv.sandbox.base import Request
from shioenv.sandbox.namespaces.backend import NamespaceSandbox
from shioenv.system.store import System

INPUTS = (
    "tty; stty size; stty -a",
    "ls --color=auto; ls -C documents; ls",
    "test -t 0 && test -t 1 && test -t 2 && echo all",
    "echo $- $COLUMNS; true; /bin/true; echo $COLUMNS $LINES",
    "cat; wc -c; read -p 'name? ' name; echo \"[$name] $?\"",
    "ps -o pid,ppid,pgid,sid,tpgid,tty,stat,args",
    "printf 'a\\tb\\n'; echo to the terminal > /dev/tty; echo error >&2",
    "ls -la /dev/pts | sed 's/ [A-Z][a-z][a-z] .*:.. / /'; stat -c '%F %t %T' /dev/pts/0",
    "stty -onlcr; echo a; stty raw; echo b; exit 3",
    "sleep 60 & echo background",
    "echo 'test -t 0 && read x; echo $# $PPID $-' > s; chmod +x s; ./s a; echo $?; exec ./s",
    "trap 'echo hung up' HUP; kill -HUP $$; grep -c . /etc/passwd | cat",
)


@pytest.fixture(scope="module")
def sandbox(system: System) -> Iterator[NamespaceSandbox]:
    with NamespaceSandbox(system) as opened:
        yield opened


@pytest.mark.parametrize("text", INPUTS)
def test_a_terminal_shows_what_a_fresh_bash_shows_on_one(
    sandbox: NamespaceSandbox, text: str
) -> None:
    served, fresh = sandbox.run(Request(text, tty=True)), sandbox.run_fresh(Request(text, tty=True))
    assert served.output == fresh.output
    assert served.exit_code == fresh.exit_code
    assert not served.timed_out


def test_lines_end_as_on_a_terminal(sandbox: NamespaceSandbox) -> None:
    assert sandbox.run(Request("echo a; echo b >&2", tty=True)).output == b"a\r\nb\r\n"


def test_reading_finds_the_end_of_file_at_once(sandbox: NamespaceSandbox) -> None:
    found = sandbox.run(Request("cat; sort; head -1; echo done", tty=True))
    assert (found.output, found.timed_out) == (b"done\r\n", False)


def test_the_next_input_has_no_terminal(sandbox: NamespaceSandbox) -> None:
    question = "tty; stty size; ls /dev/pts; ps -o tty= -p $$"
    before = sandbox.run(Request(question)).output
    sandbox.run(Request("stty raw -echo; stty rows 3; sleep 60 &", tty=True))
    assert sandbox.run(Request(question)).output == before
    assert sandbox.run(Request("stty size", tty=True)).output == b"24 80\r\n"


def test_one_terminal_has_no_two_channels(sandbox: NamespaceSandbox) -> None:
    with pytest.raises(InputError, match="one output channel"):
        sandbox.run(Request("true", separate=True, tty=True))


@pytest.mark.parametrize(
    "text",
    [
        "exec < /dev/null > /dev/null 2>&1; sleep 0.2; exit 6",
        "for i in {1..70}; do read x; done; exit 6",
        "perl -e 'syscall 16, 0, 0x540b, 2'; cat; exit 6",
    ],
)
def test_a_terminal_stays_while_the_shell_does(sandbox: NamespaceSandbox, text: str) -> None:
    assert sandbox.run(Request(text, tty=True)).exit_code == 6


@pytest.mark.parametrize("tty", [False, True])
def test_what_was_done_to_the_terminals_directory_is_gone(
    sandbox: NamespaceSandbox, tty: bool
) -> None:
    question = "stat -c '%n %a %u %g %y %x' /dev/pts /dev/pts/ptmx"
    before = sandbox.run(Request(question)).output
    sandbox.run(
        Request("chmod 777 /dev/pts; chmod 600 /dev/pts/ptmx; chown 5:6 /dev/pts/ptmx", tty=tty)
    )
    assert sandbox.run(Request(question)).output == before
    sandbox.run(Request("exec 3<> /dev/pts/ptmx; echo x >&3; ls /dev/pts", tty=tty))
    assert sandbox.run(Request(question)).output == before


def test_no_lock_is_kept_by_descriptors_in_flight(sandbox: NamespaceSandbox) -> None:
    fly = r"""perl -MSocket -e 'socketpair A, B, 1, 2, 0; open F, "/etc/passwd"; flock F, 2;
        for $h (fileno A, fileno B, fileno F) {
            $c = pack("Q l l l x4", 20, 1, 1, $h); $i = pack "P Q", ($b = "x"), 1;
            $m = pack "Q L x4 P Q P Q l x4", 0, 0, $i, 1, $c, 24, 0; syscall 46, fileno A, $m, 0
        }'"""
    for _ in range(3):
        assert sandbox.run(Request(fly)).exit_code == 0
        assert sandbox.run(Request("flock -n /etc/passwd echo free")).output == b"free\n"
