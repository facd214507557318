"""Generate the /proc/PID directories of the machine's declared processes.

These are real but idle processes (`native/around/processes.c`). The kernel's files would show the
values of this host, such as start times and executables. A generated directory, the same on every
host and in every run, therefore covers the kernel's directory until its process ends.

The files are stored as `processes/PID.UID.GID/NAME` beside the root filesystem. A symbolic link of
/proc is stored as a file with the link's target; the supervisor has a list of the links.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from shioenv.system.answers import socket_inode
from shioenv.system.declare import Process, SystemDeclaration
from shioenv.system.home_files import text_of

_TICKS = 100  # clock ticks per second in /proc/PID/stat
_PAGE = 4096
_UNLIMITED = 2**64 - 1
_TERMINALS = {"tty": (4, 0), "ttyS": (4, 64), "pts/": (136, 0)}
_LIMITS = {
    "cpu": ("Max cpu time", "seconds"), "fsize": ("Max file size", "bytes"),
    "data": ("Max data size", "bytes"), "stack": ("Max stack size", "bytes"),
    "core": ("Max core file size", "bytes"), "rss": ("Max resident set", "bytes"),
    "nproc": ("Max processes", "processes"), "nofile": ("Max open files", "files"),
    "memlock": ("Max locked memory", "bytes"), "as": ("Max address space", "bytes"),
    "locks": ("Max file locks", "locks"), "sigpending": ("Max pending signals", "signals"),
    "msgqueue": ("Max msgqueue size", "bytes"), "nice": ("Max nice priority", ""),
    "rtprio": ("Max realtime priority", ""),
}  # fmt: skip
_NAMESPACES = {
    "cgroup": 4026531835, "ipc": 4026531839, "mnt": 4026531841, "net": 4026531840,
    "pid": 4026531836, "time": 4026531834, "user": 4026531837, "uts": 4026531838,
}  # fmt: skip
"""Inode numbers of the initial namespaces."""

_EMPTY = (
    "auxv", "clear_refs", "mem", "numa_maps", "pagemap", "patch_state", "projid_map", "smaps",
    "stack",
)  # fmt: skip


def process_files(declaration: SystemDeclaration) -> dict[str, bytes]:
    """Return contents by path beneath `processes/` for every declared process."""
    files: dict[str, bytes] = {}
    for process, uid, gid in owned_processes(declaration):
        top = f"{process.pid}.{uid}.{gid}"
        for place, back in ((top, ".."), (f"{top}/task/{process.pid}", "../../..")):
            files |= {
                f"{place}/{name}": data
                for name, data in _of_thread(process, declaration, uid, gid, back)
            }
        files |= {f"{top}/{name}": data for name, data in _of_process(process).items()}
    return files


def owned_processes(declaration: SystemDeclaration) -> Iterator[tuple[Process, int, int]]:
    """Yield (process, uid, gid) for every declared process."""
    accounts = declaration.accounts
    for process in declaration.machine.processes:
        yield (process, *accounts[process.user])


def _of_process(process: Process) -> Mapping[str, bytes]:
    """Return the files that exist once per process, not per thread."""
    return {
        "autogroup": text_of([f"/autogroup-{process.pid} nice 0"]),
        "coredump_filter": b"00000033\n",
        "mountstats": b"../self/mountstats",
        "timerslack_ns": b"50000\n",
        "timers": b"",
    }


def _of_thread(
    process: Process, declaration: SystemDeclaration, uid: int, gid: int, back: str
) -> Iterator[tuple[str, bytes]]:
    """Yield the files that exist for each thread as well; `back` is the relative path to /proc."""
    yield from dict.fromkeys(_EMPTY, b"").items()
    yield "arch_status", b""
    yield "cgroup", b"0::/\n"
    children = [child.pid for child in declaration.machine.processes if child.parent == process.pid]
    yield "children", " ".join(map(str, children)).encode() + (b" " if children else b"")
    yield "cmdline", _command_line(process)
    yield "comm", text_of([process.name])
    yield "cpuset", b"/\n"
    yield "cwd", b"/"
    yield "environ", b""
    yield "exe", process.program.encode()
    for number in range(3):
        yield f"fd/{number}", f"/dev/{_device(process)}".encode()
        yield f"fdinfo/{number}", text_of(["pos:\t0", "flags:\t0100002", "mnt_id:\t25", "ino:\t5"])
    numbers = itertools.count(3)
    for index, socket in enumerate(declaration.machine.sockets):
        if socket.process == process.pid:
            number = next(numbers)
            yield f"fd/{number}", f"socket:[{socket_inode(index)}]".encode()
            about = ["pos:\t0", "flags:\t02004002", "mnt_id:\t8", f"ino:\t{socket_inode(index)}"]
            yield f"fdinfo/{number}", text_of(about)
    yield "gid_map", _identity()
    resident = process.resident
    yield "io", text_of([
        f"rchar: {resident * 3}", f"wchar: {resident // 9}", f"syscr: {resident >> 10}",
        f"syscw: {resident >> 13}", f"read_bytes: {resident}", f"write_bytes: {resident // 4096}",
        "cancelled_write_bytes: 0",
    ])  # fmt: skip
    yield "limits", _limits(declaration)
    session, login_uid = _login(process, declaration)
    yield "loginuid", str(login_uid).encode()
    yield "maps", _maps(process)
    yield "mountinfo", f"{back}/self/mountinfo".encode()
    yield "mounts", f"{back}/self/mounts".encode()
    yield "net", f"{back}/self/net".encode()
    for name, number in _NAMESPACES.items():
        yield f"ns/{name}", f"{name}:[{number}]".encode()
    for name in ("pid", "time"):
        yield f"ns/{name}_for_children", f"{name}:[{_NAMESPACES[name]}]".encode()
    yield "oom_adj", b"0\n"
    yield "oom_score", text_of([str(666 + process.resident * 10 // declaration.machine.memory)])
    yield "oom_score_adj", b"0\n"
    yield "personality", b"00000000\n"
    yield "root", b"/"
    yield "sched", text_of([f"{process.name} ({process.pid}, #threads: {process.threads})"])
    nanoseconds = round(process.cpu * 1e9)
    yield "schedstat", text_of([f"{nanoseconds} {nanoseconds // 20} {nanoseconds // 90000}"])
    yield "sessionid", str(session).encode()
    yield "setgroups", b"allow\n"
    yield "smaps_rollup", text_of([f"Rss: {process.resident >> 10:15} kB"])
    yield "stat", _stat(process)
    size, resident = process.size // _PAGE, process.resident // _PAGE
    yield "statm", text_of([f"{size} {resident} {resident * 3 // 4} 6 0 {size // 5} 0"])
    yield "status", _status(process, declaration, uid, gid)
    yield "syscall", b"running\n"
    yield "uid_map", _identity()
    yield "wchan", b"0"


_UNSET = 2**32 - 1


def _login(process: Process, declaration: SystemDeclaration) -> tuple[int, int]:
    """Return the session id and login uid of a process."""
    machine = declaration.machine
    accounts = declaration.accounts
    present = [login for login in machine.logins if login.end is None]
    users = {login.pid: accounts[login.user][0] for login in present if login.user != "reboot"}
    parents = {each.pid: each.parent for each in machine.processes}
    pid = process.pid
    while pid and pid not in users:
        pid = parents[pid]
    return (sorted(users).index(pid) + 1, users[pid]) if pid else (_UNSET, _UNSET)


def _command_line(process: Process) -> bytes:
    if ":" in process.command:
        return process.command.encode() + b"\0"
    return b"".join(word.encode() + b"\0" for word in process.command.split())


def _identity() -> bytes:
    return text_of([f"{0:10} {0:10} {2**32 - 1:10}"])


def _device(process: Process) -> str:
    return process.terminal or "null"


def _terminal_number(terminal: str) -> int:
    """Return a terminal's device number as encoded by the kernel, or 0 without a terminal."""
    digits = terminal.lstrip("abcdefghijklmnopqrstuvwxyzS/")
    if not digits:
        return 0
    major, first = _TERMINALS[terminal.removesuffix(digits)]
    return major << 8 | (first + int(digits))


def _stat(process: Process) -> bytes:
    session = process.session or process.pid
    ticks = round(process.cpu * _TICKS)
    terminal = _terminal_number(process.terminal)
    numbers = [
        process.parent, session, session, terminal, session if terminal else -1, 4194560,
        process.resident // _PAGE * 2, 0, 7 if process.pid == 1 else 0, 0,
        ticks * 2 // 3, ticks - ticks * 2 // 3, 0, 0, 20, 0, process.threads, 0,
        round(process.started * _TICKS), process.size, process.resident // _PAGE, _UNLIMITED,
    ]  # fmt: skip
    rest = [*[0] * 12, 17, *[0] * 14]  # addresses, signals, wchan; 17 is the exit signal
    return text_of([f"{process.pid} ({process.name}) S {' '.join(map(str, numbers + rest))}"])


def _status(process: Process, declaration: SystemDeclaration, uid: int, gid: int) -> bytes:
    pid, session = process.pid, process.session or process.pid
    size, resident = process.size >> 10, process.resident >> 10
    capabilities = "0" * 16 if uid else "000001ffffffffff"
    cpus = declaration.machine.cpu.count
    rows = {
        "Name": process.name, "Umask": "0000" if pid == 1 else "0022", "State": "S (sleeping)",
        "Tgid": pid, "Ngid": 0, "Pid": pid, "PPid": process.parent, "TracerPid": 0,
        "Uid": "\t".join([str(uid)] * 4), "Gid": "\t".join([str(gid)] * 4), "FDSize": 64,
        "Groups": f"{gid} " if uid else " ", "NStgid": pid, "NSpid": pid, "NSpgid": session,
        "NSsid": session, "VmPeak": f"{size:8} kB", "VmSize": f"{size:8} kB",
        "VmLck": f"{0:8} kB", "VmPin": f"{0:8} kB", "VmHWM": f"{resident:8} kB",
        "VmRSS": f"{resident:8} kB", "RssAnon": f"{resident // 4:8} kB",
        "RssFile": f"{resident - resident // 4:8} kB", "RssShmem": f"{0:8} kB",
        "VmData": f"{size // 5:8} kB", "VmStk": f"{132:8} kB", "VmExe": f"{24:8} kB",
        "VmLib": f"{resident // 2:8} kB", "VmPTE": f"{64:8} kB", "VmSwap": f"{0:8} kB",
        "HugetlbPages": f"{0:8} kB", "CoreDumping": 0, "THP_enabled": 1,
        "Threads": process.threads, "SigQ": f"0/{declaration.session.limits['sigpending'][0]}",
        "SigPnd": "0" * 16, "ShdPnd": "0" * 16, "SigBlk": "0" * 16,
        "SigIgn": "0000000000001000", "SigCgt": "0000000000000000",
        "CapInh": "0" * 16, "CapPrm": capabilities, "CapEff": capabilities,
        "CapBnd": "000001ffffffffff", "CapAmb": "0" * 16, "NoNewPrivs": 0, "Seccomp": 0,
        "Seccomp_filters": 0, "Speculation_Store_Bypass": "thread vulnerable",
        "SpeculationIndirectBranch": "conditional enabled",
        "Cpus_allowed": f"{(1 << cpus) - 1:x}",
        "Cpus_allowed_list": "0" if cpus == 1 else f"0-{cpus - 1}",
        "Mems_allowed": "00000000," * 31 + "00000001", "Mems_allowed_list": 0,
        "voluntary_ctxt_switches": round(process.cpu * 1900) + 40,
        "nonvoluntary_ctxt_switches": round(process.cpu * 130) + 3,
    }  # fmt: skip
    return text_of(f"{key}:\t{value}" for key, value in rows.items())


def _limits(declaration: SystemDeclaration) -> bytes:
    lines = [f"{'Limit':<25} {'Soft Limit':<20} {'Hard Limit':<20} {'Units':<10}"]
    limits = declaration.session.limits
    for name, (title, unit) in _LIMITS.items():
        soft, hard = limits.get(name, (-1, -1))
        shown = ["unlimited" if limit < 0 else str(limit) for limit in (soft, hard)]
        lines.append(f"{title:<25} {shown[0]:<20} {shown[1]:<20} {unit:<10}")
    lines.append(f"{'Max realtime timeout':<25} {'unlimited':<20} {'unlimited':<20} {'us':<10}")
    return text_of(lines)


def _maps(process: Process) -> bytes:
    """Return mappings of the executable, heap and stack at addresses derived from the PID."""
    start = 0x55D000000000 + process.pid * 0x9E3779B1 % 0x10000000 * 0x1000
    stack = 0x7FFC00000000 + process.pid * 0x85EBCA6B % 0x3FFFF * 0x1000
    data = max(process.resident // 4 // _PAGE, 33) * _PAGE
    rows = [
        (start, 0x3000, "r--p", 0, process.program),
        (start + 0x3000, 0x6000, "r-xp", 0x3000, process.program),
        (start + 0x9000, 0x3000, "r--p", 0x9000, process.program),
        (start + 0xC000, 0x1000, "rw-p", 0xC000, process.program),
        (start + 0x10000, data, "rw-p", 0, "[heap]"),
        (stack, 0x21000, "rw-p", 0, "[stack]"),
        (stack + 0x30000, 0x2000, "r-xp", 0, "[vdso]"),
    ]
    lines = []
    for at, length, mode, offset, name in rows:
        device, inode = ("f0:00", 1200 + process.pid) if name.startswith("/") else ("00:00", 0)
        place = f"{at:x}-{at + length:x} {mode} {offset:08x} {device} {inode} "
        lines.append(f"{place:<73}{name}")
    return text_of(lines)
