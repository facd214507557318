"""Measure the cost of the system-call filter per call.

    python benchmarks/filter_cost.py [--calls N] [--rounds N]

Times a loop of one system call, a few machine instructions long (x86-64), in processes with no
filter, with a list of thirty refused calls (what the sandbox used to have), and with the filter
that sandboxes get. Prints nanoseconds per call: the least of several rounds, since other load only
adds.

`getppid` represents the calls that are allowed with all arguments. The arguments of `socket` are
checked (here it then fails in the kernel, at once). `keyctl` is refused.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import mmap
import os
import struct
import tempfile
import time

import pyseccomp

from shioenv.sandbox.namespaces.configuration import filter_program

DENIED = """add_key keyctl request_key bpf perf_event_open userfaultfd io_uring_setup io_uring_enter
io_uring_register kexec_load kexec_file_load init_module finit_module delete_module reboot swapon
swapoff acct quotactl quotactl_fd syslog settimeofday clock_settime clock_adjtime adjtimex
open_by_handle_at name_to_handle_at lookup_dcookie nfsservctl iopl ioperm"""

LOOP = bytes.fromhex(
    "4989f9"  # mov r9, rdi    how often
    "4989f2"  # mov r10, rsi   the call's number
    "4889d7"  # mov rdi, rdx   its arguments
    "4889ce"  # mov rsi, rcx
    "4c89c2"  # mov rdx, r8
    "4c89d0"  # mov rax, r10
    "0f05"  # syscall
    "49ffc9"  # dec r9
    "75f6"  # jnz back to mov rax, r10
    "c3"  # ret
)
CALLS = {"getppid": (110, 0, 0, 0), "socket": (41, 1, 0x10, 0), "keyctl": (250, 0, 0, 0)}
"""Number and arguments."""


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]


def denied() -> bytes:
    """The list of refused calls, compiled."""
    rules = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
    for name in DENIED.split():
        rules.add_rule(pyseccomp.ERRNO(errno.EPERM), name)
    with tempfile.TemporaryFile() as file:
        rules.export_bpf(file)
        file.seek(0)
        return file.read()


def nanoseconds(program: bytes | None, call: str, calls: int) -> float:
    """Time per call in a new process that has the filter `program`."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        memory.write(LOOP)
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        loop = ctypes.CFUNCTYPE(ctypes.c_long, *[ctypes.c_long] * 5)(address)
        if program is not None:
            libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
            filled = _Program(len(program) // 8, program)
            if libc.prctl(22, 2, ctypes.byref(filled)):  # PR_SET_SECCOMP
                os._exit(1)
        loop(calls // 10, *CALLS[call])
        start = time.perf_counter()
        loop(calls, *CALLS[call])
        os.write(writing, struct.pack("d", (time.perf_counter() - start) / calls * 1e9))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    measured: float = struct.unpack("d", answer)[0]
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Measure the cost of the system-call filter per call."
    )
    parser.add_argument("--calls", type=int, default=1_000_000, help="calls per round")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    filters: dict[str, bytes | None] = {
        "no filter": None,
        "refused calls": denied(),
        "the sandbox's": filter_program(904),
    }
    print(f"{'nanoseconds per call':26}" + "".join(f"{call:>10}" for call in CALLS) + "  bytes")
    times: dict[tuple[str, str], list[float]] = {}
    for _ in range(options.rounds):
        for call in CALLS:
            for name, program in filters.items():
                times.setdefault((name, call), []).append(nanoseconds(program, call, options.calls))
    for name, program in filters.items():
        row = "".join(f"{min(times[name, call]):10.1f}" for call in CALLS)
        print(f"{name:26}{row}{len(program or b''):7}")


if __name__ == "__main__":
    main()
