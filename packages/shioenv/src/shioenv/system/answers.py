"""What a system's own C library answers in place of the host's kernel: the declared clock, kernel,
disk and mounts, by the code of `native/library`.

Every program asks the C library. The code is put behind that library's last byte. One of the
library's two headers for the same note becomes that of one more segment, in memory behind all
others. Then the names of functions lead there. These functions tell the time, name the kernel, show
files, disks and directories or open the list of mounts. The order of everything else in the library
and what its other functions do stay as they were. Nothing is loaded in addition, and no file,
variable or mount tells programs about it. The code is compiled once and committed, since inputs can
see the library's bytes. Filled in are the declared moments, names and mounts, what of the disk is
in use, and where the library's own functions lie. So the same library gives the same bytes on every
host.
"""

from __future__ import annotations

import hashlib
import os
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import IO

from shioenv import native
from shioenv.system.declare import Machine, SystemDeclaration
from shioenv.system.elf import (
    EXECUTABLE,
    FUNCTION,
    LOADED,
    NOTE,
    PROPERTY,
    SEGMENT,
    first_segment,
    segments,
    symbols,
)  # fmt: skip
from shioenv.system.image import ImageEntry, content

TRIED = ("2.36", "2.41")
"""Versions of glibc with which programs were seen to keep to it: Debian 12's and 13's."""

_LIBRARY = re.compile(r"(usr/)?lib/x86_64-linux-gnu/libc\.so\.6")
_DIGESTS = "var/lib/dpkg/info/libc6:amd64.md5sums"
_VERSION = re.compile(rb"GNU C Library [^\n]* version (\d+\.\d+)\.")
_PAGE = 4096
_FIRST_SOCKET = 15873

_ORIGINALS = (
    "__errno_location", "clock_gettime", "fdopen", "fopen", "fstatvfs", "getdents64", "open",
    "__open_2", "openat", "__openat_2", "pthread_cond_timedwait", "readdir", "readdir_r", "recvmsg",
    "setmntent", "statvfs", "sysconf",
)  # fmt: skip
"""Functions of the library that the code calls, in the order of `struct facts`."""
_OF_THE_CLOCK = frozenset({
    "__clock_gettime", "__gettimeofday", "clock_gettime", "clock_nanosleep", "gettimeofday",
    "pthread_cond_timedwait", "time", "timespec_get",
})  # fmt: skip
"""Functions of the code that are not used where the clock is declared to be the host's."""
_FACTS = struct.Struct(f"<14q{len(_ORIGINALS)}q")


@dataclass(frozen=True, slots=True)
class Answers:
    """What the programs of a built system are told, as its record says."""

    clock: str
    """`declared`: the declared instant, going on from it in each run; `host`: the host's time."""
    kernel: str
    """`declared`: the declared kernel's release and version; `host`: those of the host's."""
    why: str = ""
    """Why something is the host's; empty where nothing is."""
    glibc: str = ""
    """Version of the C library that holds the answers; empty where it holds none."""
    processor: str = "host"
    """What the loader is told: the `declared` processor, or the `host`'s."""
    why_processor: str = ""
    """Why the processor is the host's; empty where it is not."""
    disk_used: int = 0
    """Bytes of the root disk that are in use before a run; 0 where programs see it empty."""


class UnfitError(ValueError):
    """A file of the C library cannot hold the code; the text says why."""


def install(
    declaration: SystemDeclaration, entries: Sequence[ImageEntry], base: IO[bytes]
) -> tuple[list[ImageEntry], Answers]:
    """The entries with the code in the C library, and what programs are told.

    Changed are the library and the digest that the package manager keeps of it. Where the code
    cannot be there the entries are as they were.
    """
    result = list(entries)
    try:
        found = [at for at, entry in enumerate(result) if _LIBRARY.fullmatch(entry.path)]
        if not found:
            raise UnfitError("it has no C library for x86-64 where Debian keeps it")
        library = result[found[0]]
        before = content(library, base)
        used = _disk_used(declaration, entries)
        after, version = _with_answers(before, native.answers_code(), declaration, used)
    except UnfitError as unfit:
        return result, Answers("host", "host", str(unfit))
    put(result, found[0], after, base)
    why = "its declaration says so" if declaration.clock == "host" else ""
    return result, Answers(declaration.clock, "declared", why, version, disk_used=used[0])


def put(entries: list[ImageEntry], number: int, after: bytes, base: IO[bytes]) -> None:
    """Put other bytes into a file of the C library's package, and into the package manager's list.

    `number` is the file's place in `entries`, which are changed.
    """
    before = content(entries[number], base)
    old, new = (hashlib.md5(data, usedforsecurity=False).hexdigest() for data in (before, after))
    entries[number] = replace(entries[number], data=after, size=len(after))
    for at, entry in enumerate(entries):
        if entry.path == _DIGESTS:
            listed = content(entry, base).replace(old.encode(), new.encode())
            entries[at] = replace(entry, data=listed)


def _disk_used(declaration: SystemDeclaration, entries: Sequence[ImageEntry]) -> tuple[int, int]:
    """Bytes and files that the system takes of its root disk; at most three quarters of that, so
    that something can be written.
    """
    taken = sum(-entry.size % _PAGE + entry.size for entry in entries)
    return min(taken, declaration.machine.disk // 4 * 3) & -_PAGE, len(entries)


def logged_in(declaration: SystemDeclaration) -> list[tuple[int, int]]:
    """Numbers of the users who are logged in at the instant, and of their groups, ascending."""
    known = declaration.accounts
    present = (login for login in declaration.machine.logins if login.end is None)
    return sorted({known[login.user] for login in present if login.user != "reboot"})


def memory_shares(machine: Machine) -> dict[str, int]:
    """Kilobytes: shares of the declared memory that a quiet machine shows."""
    total = machine.memory // 1024
    percent = {
        "free": 41, "available": 68, "buffers": 3, "cached": 33, "active": 14, "inactive": 27,
        "anon": 5, "mapped": 6, "slab": 8,
    }  # fmt: skip
    shares = {name: total * share // 100 for name, share in percent.items()}
    return {**shares, "total": total, "shmem": total // 220}


def _mounts(declaration: SystemDeclaration) -> list[str]:
    """Lines of /proc/self/mountinfo: what a machine of the distribution has mounted.

    What begins with `-` is shown where the kernel has it too; the root disk's number is declared.
    """
    machine = declaration.machine
    root = next((disk.name for disk in machine.disks if disk.mount == "/"), "root")
    quiet = "rw,nosuid,nodev,noexec,relatime"
    half, tenth = machine.memory // 2048, machine.memory // 10240
    return [
        f"22 28 0:20 / /sys {quiet} - sysfs sysfs rw",
        f"23 28 -0:21 / /proc {quiet} - proc proc rw",
        f"24 28 0:5 / /dev rw,nosuid,relatime - devtmpfs udev rw,size={half}k,"
        f"nr_inodes={half // 4},mode=755",
        "25 24 -0:22 / /dev/pts rw,nosuid,noexec,relatime - devpts devpts rw,gid=5,mode=620,"
        "ptmxmode=666",
        "36 22 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime - cgroup2 cgroup2 rw,"
        "nsdelegate,memory_recursiveprot",
        f"26 28 0:23 / /run {quiet} - tmpfs tmpfs rw,size={tenth}k,mode=755",
        f"27 26 0:27 / /run/lock {quiet} - tmpfs tmpfs rw,size=5120k",
        *(
            f"{37 + index} 26 0:{28 + index} / /run/user/{uid} rw,nosuid,nodev,relatime - tmpfs "
            f"tmpfs rw,size={tenth}k,nr_inodes={tenth // 4},mode=700,uid={uid},gid={gid}"
            for index, (uid, gid) in enumerate(logged_in(declaration)[:3])
        ),
        f"28 1 - / / rw,relatime - ext4 /dev/{root} rw",
        "29 24 0:24 / /dev/shm rw,nosuid,nodev - tmpfs tmpfs rw",
        f"30 24 -0:25 / /dev/mqueue {quiet} - mqueue mqueue rw",
    ]


def _measures(machine: Machine) -> Iterator[int]:
    """What sysinfo(2) says: three loads times 65,536, then bytes of memory and of swap."""
    for load in machine.load:
        yield round(load * 2048) << 5  # the kernel keeps eleven bits of the fraction
    share = memory_shares(machine)
    for name in ("total", "free", "shmem", "buffers"):
        yield share[name] << 10
    yield machine.swap


def socket_inode(index: int) -> int:
    """The number that programs see for a declared socket, by its place in the declaration."""
    return _FIRST_SOCKET + 2 * index


def _sockets(machine: Machine) -> list[str]:
    """Family, port, peer's port and shown number of each socket of the machine's processes."""
    rows = enumerate(machine.sockets)
    return [
        f"{6 if ':' in one.address else 4} {one.port} {one.peer_port} {socket_inode(index)}"
        for index, one in rows
    ]


def _with_answers(
    library: bytes, compiled: bytes, declaration: SystemDeclaration, used: tuple[int, int]
) -> tuple[bytes, str]:
    """A copy of the library that holds the code, and its version. `used` are the bytes and files
    of the root disk that are in use.

    Raises UnfitError where it cannot.
    """
    try:
        return _answering(library, compiled, declaration, used)
    except UnfitError:
        raise
    except (struct.error, ValueError, IndexError) as error:
        raise UnfitError("its C library is damaged") from error


def _answering(
    library: bytes, compiled: bytes, declaration: SystemDeclaration, used: tuple[int, int]
) -> tuple[bytes, str]:
    if library[:5] != b"\x7fELF\x02" or library[18:20] != compiled[18:20]:
        raise UnfitError("its C library is for another processor than this package")
    found = _VERSION.search(library)
    version = found[1].decode() if found else "unknown"
    if version not in TRIED:
        raise UnfitError(f"its glibc is {version}, and what was tried is {' and '.join(TRIED)}")
    code, functions = _code(compiled)
    moments = [int(when.timestamp()) for when in (declaration.instant, declaration.boot_time)]
    if declaration.clock == "host":
        functions = {name: at for name, at in functions.items() if name not in _OF_THE_CLOCK}
        moments = [0, 0]
    kernel = declaration.machine.kernel
    texts = [kernel.release, kernel.version, "\n".join(_mounts(declaration))]
    texts.append("\n".join(_sockets(declaration.machine)))
    code += "".join(f"{text}\0" for text in texts).encode()
    header, address = _place(library)
    listed = list(symbols(library))
    own = {symbol.name: symbol.value for symbol in listed if symbol.default}
    if missing := [name for name in _ORIGINALS if name not in own]:
        raise UnfitError(f"its C library has no {missing[0]}")
    disks = (disk for disk in declaration.machine.disks if disk.mount == "/")
    device = next((os.makedev(disk.major, disk.minor) for disk in disks), 0)
    originals = (own[name] - address for name in _ORIGINALS)
    facts = _FACTS.pack(
        *moments,
        device,
        used[0] // _PAGE,
        used[1],
        *_measures(declaration.machine),
        declaration.machine.cpu.count,
        *originals,
    )
    code = facts + code[_FACTS.size :]
    start = (len(library) + _PAGE - 1) & -_PAGE
    result = bytearray(library.ljust(start, b"\0") + code)
    segment = (LOADED, EXECUTABLE, start, address, address, len(code), len(code), _PAGE)
    SEGMENT.pack_into(result, header, *segment)
    for symbol in listed:
        # of a name with a default, older versions may be called otherwise: they stay
        if symbol.name in functions and (symbol.default or symbol.name not in own):
            result[symbol.at + 4] = symbol.info & 0xF0 | FUNCTION
            struct.pack_into("<Q", result, symbol.at + 8, address + functions[symbol.name])
    return bytes(result), version


def _code(compiled: bytes) -> tuple[bytes, dict[str, int]]:
    """The compiled code, its facts first, and where in it the functions are, by name."""
    functions = {symbol.name: symbol.value for symbol in symbols(compiled)}
    return first_segment(compiled), functions


def _place(library: bytes) -> tuple[int, int]:
    """Where the program header lies that becomes the code's, and the code's address.

    It is that of a note which another header shows as the properties, the only thing that a loader
    looks for in it. Segments have to be in the order of their addresses, so it has to be one behind
    all of them.
    """
    rows = list(segments(library))
    properties = [row[2] for _, row in rows if row[0] == PROPERTY]
    loaded = [(at, row) for at, row in rows if row[0] == LOADED]
    spare = [at for at, row in rows if row[0] == NOTE and row[2] in properties]
    if not loaded or not spare or spare[0] < loaded[-1][0]:
        raise UnfitError("its C library is laid out in another way")
    end = max(row[3] + row[6] for _, row in loaded)
    return spare[0], (end + _PAGE - 1) & -_PAGE
