"""The system-call filter: its decisions, from its instructions and from the kernel."""

from __future__ import annotations

import errno
import fcntl
import importlib.util
import json
import signal
import socket
import struct
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pyseccomp
import pytest

from shioenv.sandbox.namespaces.configuration import filter_program
from support.paths import ROOT

SCRIPT = ROOT / "scripts/filter.py"
X86_64, I386 = 0xC000003E, 0x40000003
X32 = 0x40000000
LAST = 450
"""The newest call in the groups: set_mempolicy_home_node, of Linux 5.17."""
LATER = {"uretprobe": 335}
"""Calls of later kernels with a number below it; only a newer libseccomp has their names."""

PARENT = 904
"""PID of the shells' parent."""

ALLOW = 0x7FFF0000
ABSENT_ANSWER, FORBIDDEN_ANSWER = 0x50000 | errno.ENOSYS, 0x50000 | errno.EPERM
NO_FAMILY, NO_PROTOCOL = 0x50000 | errno.EAFNOSUPPORT, 0x50000 | errno.EPROTONOSUPPORT


class ArgumentsMatter(Exception):  # noqa: N818 (an answer, not an error)
    """The decision depends on the arguments of the call."""


@cache
def instructions() -> list[tuple[int, int, int, int]]:
    return list(struct.iter_unpack("=HBBI", filter_program(PARENT)))


def decide(
    number: int, arguments: tuple[int, ...] | None = None, architecture: int = X86_64
) -> int:
    """Return the filter's decision, by interpreting its instructions (classic BPF)."""
    program, at, accumulator = instructions(), 0, 0
    while True:
        code, if_true, if_false, k = program[at]
        at += 1
        if code == 0x20:  # load a word of seccomp_data
            if k >= 16:
                if arguments is None:
                    raise ArgumentsMatter
                accumulator = arguments[(k - 16) // 8] >> (32 if k % 8 else 0) & 0xFFFFFFFF
            else:
                accumulator = {0: number, 4: architecture}[k]
        elif code == 0x06:
            return k
        elif code == 0x54:
            accumulator &= k
        elif code == 0x05:
            at += k
        else:
            true = {0x15: accumulator == k, 0x25: accumulator > k, 0x35: accumulator >= k}[code]
            at += if_true if true else if_false


def compiler_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("filter", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


compiler = compiler_script()


def number(name: str) -> int:
    found: int = pyseccomp.resolve_syscall(pyseccomp.Arch.X86_64, name)
    return found


def names(groups: tuple[Any, ...]) -> list[str]:
    return [name for group in groups for name in group.names]


def test_every_call_of_linux_5_17_is_in_exactly_one_group() -> None:
    grouped = Counter(
        [
            *names(compiler.ALLOWED),
            *names(compiler.FORBIDDEN),
            *names(compiler.HOLLOW),
            *names(compiler.ABSENT),
            *("socket", "socketpair", "fcntl", "kill"),
        ]
    )
    assert [name for name, times in grouped.items() if times > 1] == []
    known = set()
    for n in range(LAST + 1):
        try:
            known.add(pyseccomp.resolve_syscall(pyseccomp.Arch.X86_64, n).decode())
        except ValueError:
            continue
    assert set(grouped) == known - LATER.keys()


def test_a_later_call_in_a_gap_of_the_numbers_is_absent() -> None:
    assert {decide(number) for number in LATER.values()} == {ABSENT_ANSWER}


def test_every_group_gets_its_answer_and_no_argument_changes_it() -> None:
    assert {decide(number(name)) for name in names(compiler.ALLOWED)} == {ALLOW}
    assert {decide(number(name)) for name in names(compiler.FORBIDDEN)} == {FORBIDDEN_ANSWER}
    assert {decide(number(name)) for name in names(compiler.ABSENT)} == {ABSENT_ANSWER}
    assert decide(number("sync")) == 0x50000


def test_a_call_that_nobody_knows_yet_is_absent() -> None:
    assert {decide(n) for n in [*range(LAST + 1, 1024), 0xFFFFFFF0]} == {ABSENT_ANSWER}


@pytest.mark.parametrize("name", ["getpid", "execve", "socket", "keyctl"])
def test_other_architectures_are_absent(name: str) -> None:
    for n in range(LAST):
        assert decide(n, architecture=I386) == ABSENT_ANSWER
    assert decide(number(name) | X32) == ABSENT_ANSWER


def test_sockets_are_of_four_families() -> None:
    for family in range(64):
        answer = decide(number("socketpair"), (family, 1, 0))
        assert answer == (ALLOW if family in compiler.FAMILIES else NO_FAMILY)
        if family != socket.AF_NETLINK:
            assert decide(number("socket"), (family, 1, 0)) == answer
    for family in (socket.AF_VSOCK, socket.AF_PACKET, socket.AF_ALG, socket.AF_TIPC):
        assert decide(number("socket"), (family, 1, 0)) == NO_FAMILY


def test_netlink_sockets_are_of_the_protocols_that_namespaces_hold_apart() -> None:
    for protocol in range(64):
        answer = decide(number("socket"), (socket.AF_NETLINK, 3, protocol))
        assert answer == (ALLOW if protocol in compiler.NETLINK else NO_PROTOCOL)


def test_what_the_kernel_cuts_off_an_argument_hides_nothing() -> None:
    high = 1 << 32
    assert decide(number("socket"), (socket.AF_VSOCK | high, 1, 0)) == NO_FAMILY
    assert decide(number("socket"), (socket.AF_UNIX | high, 1, 0)) == NO_FAMILY
    assert decide(number("socket"), (socket.AF_NETLINK, 3, 9 | high)) == NO_PROTOCOL


def test_pipes_stay_as_large_as_they_are_made() -> None:
    sets_size, call = fcntl.F_SETPIPE_SZ, number("fcntl")
    assert decide(call, (3, sets_size, compiler.LARGEST_PIPE)) == ALLOW
    assert decide(call, (3, sets_size, compiler.LARGEST_PIPE + 1)) == FORBIDDEN_ANSWER
    assert decide(call, (3, sets_size, 1 << 32)) == FORBIDDEN_ANSWER
    assert decide(call, (3, sets_size | 1 << 32, 1 << 20)) == ABSENT_ANSWER
    for command in (0, fcntl.F_GETFL, sets_size - 1, sets_size + 1, fcntl.F_ADD_SEALS, 0x41F):
        assert decide(call, (3, command, 1 << 20)) == ALLOW


def test_what_is_sent_to_the_shells_parent_is_taken_and_goes_nowhere() -> None:
    call = number("kill")
    assert decide(call, (PARENT, 9)) == 0x50000
    for process in (1, PARENT - 1, PARENT + 1, 1000, 0, 2**64 - 1, 2**64 - PARENT):
        assert decide(call, (process, 9)) == ALLOW


def test_few_calls_have_their_arguments_looked_at() -> None:
    """The kernel keeps the other decisions in a bitmap: an allowed call does not run the filter."""
    for name in ("socket", "socketpair", "fcntl", "kill"):
        with pytest.raises(ArgumentsMatter):
            decide(number(name))


@pytest.mark.parametrize("parent", [PARENT, 1, 300, 2**22])
def test_it_is_what_libseccomp_makes_of_the_lists(parent: int) -> None:
    assert filter_program(parent) == compiler.compile_filter(parent), "`make filter` writes it"


def test_a_change_of_a_list_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "HOLLOW", ())
    assert filter_program(PARENT) != compiler.compile_filter(PARENT)


def test_the_benchmark_of_its_cost_runs() -> None:
    script = ROOT / "benchmarks" / "filter_cost.py"
    command = [sys.executable, str(script), "--calls", "2000", "--rounds", "1"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    assert [line.rsplit(maxsplit=4)[0] for line in done.stdout.splitlines()] == [
        "nanoseconds per call", "no filter", "refused calls", "the sandbox's"
    ]  # fmt: skip


CONFINED = """
import ctypes, json, mmap, sys
libc = ctypes.CDLL(None, use_errno=True)
program = open(sys.argv[1], "rb").read()
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]
memory = mmap.mmap(-1, 4096, prot=7)
memory.write(bytes.fromhex("b814000000cd80c3"))  # mov eax, 20 (getpid of i386); int 0x80; ret
i386 = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(memory)))
assert not libc.prctl(38, 1, 0, 0, 0)
assert not libc.prctl(22, 2, ctypes.byref(Program(len(program) // 8, program)))
for arguments in json.loads(sys.argv[2]):
    ctypes.set_errno(0)
    libc.syscall(*[ctypes.c_long(argument) for argument in arguments])
    print(ctypes.get_errno(), flush=True)
print(-i386())
"""


def test_the_kernel_takes_the_filter_and_answers_as_it_says(tmp_path: Path) -> None:
    asked = [
        ([number("getpid")], 0),
        ([number("sync")], 0),
        ([number("socketpair"), socket.AF_UNIX, 77, 0, 0], errno.EINVAL),
        ([number("socket"), socket.AF_VSOCK, 1, 0], errno.EAFNOSUPPORT),
        ([number("keyctl"), 0, 0], errno.EPERM),
        ([number("open_by_handle_at"), -1, 0, 0], errno.EPERM),
        ([number("memfd_create"), 0, 0], errno.ENOSYS),
        ([LAST + 100], errno.ENOSYS),
        ([number("getpid") | X32], errno.ENOSYS),
    ]
    program = tmp_path / "filter"
    program.write_bytes(filter_program(PARENT))
    calls = json.dumps([arguments for arguments, _ in asked])
    child = [sys.executable, "-I", "-c", CONFINED, str(program), calls]
    done = subprocess.run(child, stdout=subprocess.PIPE, text=True)
    expected = [answer for _, answer in asked]
    if done.returncode == -signal.SIGSEGV:  # a kernel without calls of i386 has no int 0x80
        assert [int(line) for line in done.stdout.split()] == expected
    else:
        assert [int(line) for line in done.stdout.split()] == [*expected, errno.ENOSYS]
