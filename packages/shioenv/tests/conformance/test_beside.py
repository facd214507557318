"""Sandboxes that a process has open at once share the system's tree in memory, and nothing else."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from shlex import quote

import pytest

from shioenv.behavior.observe import open_sandbox
from shioenv.live.resident import open_shell
from shioenv.sandbox.base import Request
from shioenv.sandbox.namespaces.backend import NamespaceSandbox
from shioenv.system.store import System
from support.host_state import descendants
from support.waiting import wait_until

LOCKED = ("/etc/passwd", "/bin/ls", "/home/ubuntu", "/sys/class", "/proc/1/comm")
"""One path of every mount: an overlay, /sys, the process files."""
DEVICES = ("/dev/zero", "/dev/full")
"""Root's sandboxes have their own; an ordinary user's are the host's."""


MADE = "/sys /proc/1 /proc/[1-9]??"  # declared processes have numbers below 1000
SEEN = f"{{ ls -laiR /etc {MADE}; cat /sys/block/*/size /proc/[1-9]??/comm; }} 2>&1 | md5sum"
"""Shows files of the overlay, of /sys and of the declared processes."""


def trees(sandbox: NamespaceSandbox) -> str:
    """Return the device number of the file system that contains the tree."""
    sandbox.run(Request("true"))
    assert sandbox._process is not None
    mounts = Path(f"/proc/{sandbox._process.pid}/mountinfo").read_text().splitlines()
    return next(line.split()[2] for line in mounts if line.split()[4] == "/tree")


def test_what_one_locks_another_can_lock(system: System) -> None:
    names = LOCKED + DEVICES * (os.geteuid() == 0)
    with open_sandbox(system) as one, open_sandbox(system) as two, ThreadPoolExecutor(1) as pool:
        two.run("true")
        locks = "".join(f"exec {{fd}}< {name}; flock -n $fd || echo {name}; " for name in names)
        held = pool.submit(one.run, locks + "sleep 2")
        wait_until(lambda: "sleep" in descendants(os.getpid()).values(), "the locks")
        beside = two.run(locks)
        assert (beside.output, beside.exit_code) == (b"", 0)
        assert held.result().output == b""


WATCH = r"""
$watch = syscall 294, 0x800; $opened_or_read = 0x21;
for (@ARGV) { $path = $_; syscall(254, $watch, $path, $opened_or_read) < 0 and die "$path: $!" }
open $events, "<&=", $watch;
sub told { my $n = 0; $n += length($_) / 16 while sysread $events, $_, 1 << 16; $n }
open R, ">", "ready"; close R; open G, "<", "go"; <G>;
print "others: ", told(), "\n"; for (@ARGV) { open $held{$_}, "<", $_ or die "$_: $!" }
print "own: ", told(), "\n";
"""
"""Watches paths (inotify) until told to go; counts the events, then those of opening each path."""


def test_what_one_reads_another_is_not_told(system: System) -> None:
    told = f"others: 0\nown: {len(LOCKED)}\n"
    with open_shell(system) as one, open_shell(system) as two:
        assert one.run("cd /root; mkfifo ready go").exit_code == 0
        one.run(f"perl -e {quote(WATCH)} {' '.join(LOCKED)} > told 2>&1 & : < ready")
        assert two.run("".join(f"exec {{fd}}< {name}; " for name in LOCKED)).exit_code == 0
        assert one.run(": > go; wait; cat told").output == told.encode()


def test_the_tree_is_shared_and_outlives_who_filled_it(system: System) -> None:
    with NamespaceSandbox(system) as first:
        second = NamespaceSandbox(system)
        assert trees(first) == trees(second)
        listed = first.run(Request(SEEN)).output
        assert second.run(Request(SEEN)).output == listed
    with second:
        second.run(Request("hostname other"))  # opened anew for the next
        assert second.run(Request(SEEN)).output == listed
        with NamespaceSandbox(system) as third:
            assert trees(third) == trees(second)
            assert third.run(Request(SEEN)).output == listed


RUINS = {
    "files": "rm -rf /etc /usr 2> /dev/null; kill -9 -1",
    "modes": "chmod -R 0 /",
    "system files": r"""
mount -o remount,rw /sys; mount --bind /sys /mnt; mount -o remount,bind,rw /mnt; umount -l /sys
for at in /sys/class /mnt/class /proc/1/task; do mv $at $at.x; ln -s / $at.y; chmod 0 $at; done
exec 3< /proc/1/comm; echo x | tee /proc/1/comm /dev/fd/3; ln -f /etc/passwd /proc/1/comm
perl -e 'open F, "<", "/proc/1/comm"; syscall 9, 0, 4096, 3, 1, fileno F, 0'; rm -rf /mnt/*
""",
}


@pytest.mark.parametrize("text", RUINS.values(), ids=RUINS)
def test_what_one_ruins_another_has(system: System, text: str) -> None:
    with NamespaceSandbox(system) as one, NamespaceSandbox(system) as two:
        before = two.run(Request(SEEN)).output
        one.run(Request(text))
        assert two.run(Request(SEEN)).output == before


def test_each_has_its_own_bounds(system: System) -> None:
    """The kernel counts processes, signals and queues for the creator of a user namespace."""
    forks = "last unless defined($p = fork); $p ? $n++ : (sleep(3), exit)"
    many = f"perl -e 'for (1..120) {{ {forks} }} print $n; sleep 3'"
    with ExitStack() as stack, ThreadPoolExecutor(3) as pool:
        opened = [stack.enter_context(open_sandbox(system)) for _ in range(3)]
        assert [each.output for each in pool.map(lambda one: one.run(many), opened)] == [b"120"] * 3
