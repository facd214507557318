"""Sandboxes that a process has open at once share the system's tree in memory, and nothing else."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from shioenv.behavior.observe import open_sandbox
from shioenv.sandbox.base import Request
from shioenv.sandbox.namespaces.backend import NamespaceSandbox
from shioenv.system.store import System
from support.host_state import descendants
from support.waiting import wait_until

LOCKED = ("/etc/passwd", "/bin/ls", "/home/ubuntu", "/sys/class", "/proc/1/comm")
"""One path of every mount: an overlay, /sys, the process files."""
DEVICES = ("/dev/zero", "/dev/full")
"""Root's sandboxes have their own; an ordinary user's are the host's."""


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


def test_the_tree_is_shared_and_outlives_who_filled_it(system: System) -> None:
    with NamespaceSandbox(system) as first:
        second = NamespaceSandbox(system)
        assert trees(first) == trees(second)
    with second:
        listed = second.run(Request("ls -lai /etc | md5sum")).output
        second.run(Request("hostname other"))  # opened anew for the next
        assert second.run(Request("ls -lai /etc | md5sum")).output == listed
        with NamespaceSandbox(system) as third:
            assert trees(third) == trees(second)
            assert third.run(Request("ls -lai /etc | md5sum")).output == listed


@pytest.mark.parametrize("text", ["rm -rf /etc /usr 2> /dev/null; kill -9 -1", "chmod -R 0 /"])
def test_what_one_ruins_another_has(system: System, text: str) -> None:
    with NamespaceSandbox(system) as one, NamespaceSandbox(system) as two:
        before = two.run(Request("ls -laR /etc | md5sum")).output
        one.run(Request(text))
        assert two.run(Request("ls -laR /etc | md5sum")).output == before


def test_each_has_its_own_bounds(system: System) -> None:
    """The kernel counts processes, signals and queues for the creator of a user namespace."""
    forks = "last unless defined($p = fork); $p ? $n++ : (sleep(3), exit)"
    many = f"perl -e 'for (1..120) {{ {forks} }} print $n; sleep 3'"
    with ExitStack() as stack, ThreadPoolExecutor(3) as pool:
        opened = [stack.enter_context(open_sandbox(system)) for _ in range(3)]
        assert [each.output for each in pool.map(lambda one: one.run(many), opened)] == [b"120"] * 3
