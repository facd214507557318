"""The two processes around a previewed command: a keeper, and process 1 of its namespaces.

`shioenv_agents.preview.layered_run` starts the keeper: as root, or as id 0 of a user namespace that
maps only an ordinary user. The keeper makes the namespaces and stays outside. Process 1 arranges
the mounts, starts the command, and waits for it. The command has its caller's id, in a user
namespace in which it cannot mount anything. Both processes end with the caller.
"""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from shioenv import native
from shioenv_agents.preview import kernel
from shioenv_agents.preview.mounts import LONGEST, PreviewPlan, arrange, guard_proc

_KEPT = (0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 31)
"""Capabilities that root keeps.

They are chown, dac_override, fowner, fsetid, kill, setgid, setuid, setpcap, net_bind_service,
net_raw, sys_chroot and setfcap.
"""
FORBIDDEN = ("add_key", "keyctl", "request_key", "bpf", "perf_event_open", "userfaultfd")
"""System calls that bypass all namespaces. They fail with EPERM."""
ABSENT = ("memfd_create", "memfd_secret", "io_uring_setup")
"""System calls for memory that is charged to no process, or that bypass filters.

They fail with ENOSYS.
"""
FILTER = Path(__file__).with_name("filter.txt")
"""The seccomp filter of `scripts/filter.py`: rejects the calls above, and sockets of one family.

It does not cover programs of another architecture: 32-bit ones can make any call.
"""
FAMILY = "family"
"""The placeholder in `filter.txt` for the rejected socket family."""
_NO_FAMILY = 0xFFFF_FFFF
_SMALLEST_PID_MAX = 302
_CANNOT_RUN, _NOT_FOUND = 126, 127
CUT_OFF = 3
"""The exit status of process 1 if background processes of the command were still running."""


def main() -> None:
    """Run the keeper. `sys.argv` names the socket to the caller, and is 1 for the host's network.

    Process 1 and its first namespaces are made before the plan arrives, to save time then.
    """
    control, network = socket.socket(fileno=int(sys.argv[1])), sys.argv[2] == "1"
    ours, theirs = socket.socketpair()
    try:
        kernel.unshare(kernel.CLONE_NEWPID)
    except OSError as error:
        _refuse(control, error, planned=False)
    first = os.fork()
    if first == 0:
        ours.close()
        _become_first(theirs, control, network=network)
    theirs.close()
    line = _line(control)
    if not line:  # the caller has ended, or needs no preview
        sys.exit()
    plan = PreviewPlan.from_line(line)
    kernel.end_with_parent(plan.parent)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(first, signal.SIGKILL))
    signal.signal(signal.SIGWINCH, lambda *_: os.kill(first, signal.SIGWINCH))
    with suppress(BrokenPipeError):  # process 1 has refused, or was killed
        ours.sendall(line)
    told, descriptors, _, _ = socket.recv_fds(ours, LONGEST, 256)
    if not told:
        os.waitpid(first, 0)
        sys.exit(1)
    socket.send_fds(control, [told], descriptors)
    if control.recv(1) == b"G":
        ours.sendall(b"G")
        if ours.recv(1) == b"U":
            _map_ids(plan, first)
            ours.sendall(b"M")
            with suppress(BrokenPipeError):  # the caller was interrupted
                control.sendall(_line(ours) or b"\n")
    os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)  # its number is not reused yet
    for number in (signal.SIGTERM, signal.SIGWINCH):  # there is nothing left to signal
        signal.signal(number, signal.SIG_IGN)
    _, status = os.waitpid(first, 0)
    with suppress(BrokenPipeError):
        control.sendall(b"BE" if os.waitstatus_to_exitcode(status) == CUT_OFF else b"E")
    if control.recv(1) == b"S":
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _scan(plan, control, descriptors[2:])


def _line(connection: socket.socket) -> bytes:
    """Read a line, after which the other side sends nothing until it is answered."""
    text = bytearray()
    while not text.endswith(b"\n") and len(text) < LONGEST:
        more = connection.recv(1 << 16)
        if not more:
            break
        text += more
    return bytes(text)


def _refuse(control: socket.socket, error: OSError, *, planned: bool = True) -> NoReturn:
    """Report why no preview is possible, and exit; if not `planned`, after the plan has arrived."""
    if not planned:
        _line(control)
    told = json.dumps({"refused": error.strerror or str(error), "errno": error.errno})
    control.sendall(told.encode() + b"\n")
    os._exit(1)


def _map_ids(plan: PreviewPlan, first: int) -> None:
    """Map the caller's id for process 1; root keeps all its ids."""
    for kind, number in (("uid", plan.uid), ("gid", plan.gid)):
        lines = [f"{number} 0 1"]
        if not plan.own_id:
            ranges = Path(f"/proc/self/{kind}_map").read_text().splitlines()
            lines = [f"{inside} {inside} {count}" for inside, _, count in map(str.split, ranges)]
        Path(f"/proc/{first}/{kind}_map").write_text("\n".join(lines) + "\n")


def _scan(plan: PreviewPlan, control: socket.socket, roots: list[int]) -> NoReturn:
    """Execute `scan.c`, which reports the changes in each layer."""
    for descriptor in (control.fileno(), *roots):
        os.set_inheritable(descriptor, True)
    program = str(native.sandbox_program())
    numbers = (control.fileno(), round(plan.scan_seconds * 1000), *roots)
    os.execv(program, [program, "scan", *map(str, numbers)])


def _become_first(keeper: socket.socket, control: socket.socket, *, network: bool) -> NoReturn:
    """Run process 1: arrange everything, and wait for the command. Never return."""
    status = 1
    try:
        status = _first(keeper, network=network)
    except OSError as error:
        _refuse(control, error)
    finally:
        os._exit(status)


def _first(keeper: socket.socket, *, network: bool) -> int:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # the kernel then drops it if sent from inside
    kernel.end_with_parent(0)
    refusal = None
    try:
        kernel.unshare(kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS)
        if not network:
            kernel.unshare(kernel.CLONE_NEWNET)
            kernel.raise_loopback()
    except OSError as error:
        refusal = error  # the caller expects an answer only to its plan
    family = _NO_FAMILY if network else socket.AF_VSOCK  # no namespace isolates it
    program = native.read_filter(FILTER, {FAMILY: family})  # before its directory may be hidden
    line = _line(keeper)
    if not line:  # the keeper has ended
        return 1
    if refusal is not None:
        raise refusal
    plan = PreviewPlan.from_line(line)
    kernel.private_mounts()
    arranged = arrange(plan, network=network)
    proc = kernel.clone_mount("/proc")
    _configure(plan, network=network)
    guard_proc()
    numbers = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=proc)
    segments = os.open("/proc/sysvipc/shm", os.O_RDONLY)
    told = {
        "whole": arranged.whole,
        "layers": [os.fsdecode(layer.path) for layer in arranged.layers],
        "read_only": list(map(os.fsdecode, arranged.read_only)),
        "reachable": list(map(os.fsdecode, arranged.reachable)),
    }
    roots = [root for layer in arranged.layers for root in layer[1:]]
    socket.send_fds(keeper, [json.dumps(told).encode() + b"\n"], [numbers, segments, *roots])
    if keeper.recv(1) != b"G":
        return 1
    kernel.unshare(kernel.CLONE_NEWUSER)
    keeper.sendall(b"U")
    if keeper.recv(1) != b"M":
        return 1
    kernel.end_with_parent(0)
    _write("sys/user/max_user_namespaces", "0", proc)
    command = os.fork()
    if command == 0:
        _execute(plan, program)
    signal.signal(signal.SIGWINCH, lambda *_: _resize(command))
    done, status = os.wait()
    while done != command:
        done, status = os.wait()
    keeper.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
    return CUT_OFF if _has_others_after(plan.background_seconds) else 0


def _resize(group: int) -> None:
    """Notify a process group that the window of its terminal has another size."""
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGWINCH)


def _configure(plan: PreviewPlan, *, network: bool) -> None:
    """Configure the namespaced kernel settings, as far as this kernel has them."""
    release = tuple(map(int, re.findall(r"\d+", os.uname().release)[:2]))
    if release >= (6, 14):  # before that, the setting is the host's
        _write("sys/kernel/pid_max", str(max(_SMALLEST_PID_MAX, plan.processes + 2)))
    if not network:
        _write("sys/net/ipv4/ip_unprivileged_port_start", "0")


def _write(name: str, value: str, proc: int | None = None) -> None:
    place = os.open("/proc", os.O_PATH) if proc is None else proc
    file = os.open(name, os.O_WRONLY | os.O_CLOEXEC, dir_fd=place)
    os.write(file, value.encode())
    os.close(file)


def _execute(plan: PreviewPlan, program: bytes) -> NoReturn:
    """Execute the command under a filter of system calls.

    If it cannot be executed, the exit status is 127 if it is not found, otherwise 126.
    """
    try:
        os.setsid()
        for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_NPROC, (plan.processes, plan.processes))
        resource.setrlimit(resource.RLIMIT_CORE, (1, 1))  # 1: starts no core handler of the host
        resource.setrlimit(resource.RLIMIT_NOFILE, plan.open_files)
        os.closerange(3, plan.open_files[1] if plan.open_files[1] > 0 else 1 << 20)
        kernel.drop_capabilities(_KEPT if plan.uid == 0 else ())
        kernel.no_new_privileges()
        kernel.filter_calls(program)
        os.execvp(plan.command[0], plan.command)
    except OSError as error:
        why = _found_error(plan.command[0], error.errno or 0)
        name = plan.command[0].encode("utf-8", "surrogateescape")
        os.write(2, b"%s: %s\n" % (name, os.strerror(why).encode()))
        os._exit(_NOT_FOUND if why == errno.ENOENT else _CANNOT_RUN)
    finally:
        os._exit(_CANNOT_RUN)


def _found_error(name: str, number: int) -> int:
    """Return the error number to report.

    EACCES becomes ENOENT if no directory in PATH has the command: it then only means that a
    directory could not be searched.
    """
    if number == errno.EACCES and "/" not in name:
        places = (os.path.join(place, name) for place in os.get_exec_path())  # noqa: PTH118 - plain
        return number if any(map(os.path.lexists, places)) else errno.ENOENT
    return number


def _has_others_after(seconds: float) -> bool:
    """Wait for background processes, and return whether any still runs after `seconds`."""
    end = time.monotonic() + seconds
    try:
        while True:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                if time.monotonic() >= end:
                    return True
                time.sleep(0.005)
    except ChildProcessError:
        return False
