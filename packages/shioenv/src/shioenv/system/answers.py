"""Patch a system's C library to return the declared clock, kernel, disk and mounts.

Programs get these values from the C library, so functions in `native/library` replace some of its
functions. The compiled code is appended to the library. The library has two program headers for the
same note; one of them becomes the header of an additional segment, mapped above all others. Dynamic
symbols then point into this segment. The replaced functions return the time, the kernel's name, and
attributes of files, disks and directories, or open the list of mounts.

The layout of the rest of the library and its other functions do not change. Nothing else is loaded,
and no file, variable or mount reveals the patch. The code is compiled once and committed, because
inputs can read the library's bytes. The build fills in the declared times, names and mounts, the
disk usage, and the addresses of the original functions. The same library therefore gives the same
bytes on every host.
"""

from __future__ import annotations

import hashlib
import os
import re
import struct
from collections.abc import Collection, Iterator, Sequence
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
    Symbol,
    first_segment,
    segments,
    symbols,
)  # fmt: skip
from shioenv.system.image import ImageEntry, content

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
"""Library functions that the code calls, in the order of `struct facts`."""
_FIRST_INTERFACE = "GLIBC_2.2.5"
_INTERFACES = {
    "GLIBC_2.3.2": {"pthread_cond_timedwait"},
    "GLIBC_2.3.4": {"sched_getaffinity", "sched_setaffinity"},
    "GLIBC_2.4": {"__fxstatat", "__fxstatat64", "openat", "openat64", "renameat"},
    "GLIBC_2.6": {"sched_getcpu"},
    "GLIBC_2.7": {"__open64_2", "__open_2", "__openat64_2", "__openat_2"},
    "GLIBC_2.13": {"prlimit", "prlimit64"},
    "GLIBC_2.16": {"timespec_get"},
    "GLIBC_2.17": {"clock_gettime", "clock_nanosleep"},
    "GLIBC_2.28": {"renameat2", "statx"},
    "GLIBC_2.29": {"getcpu"},
    "GLIBC_2.30": {"getdents64"},
    "GLIBC_2.33": {
        "fstat", "fstat64", "fstatat", "fstatat64", "lstat", "lstat64", "stat", "stat64",
    },
    "GLIBC_PRIVATE": {"__clock_gettime"},
}  # fmt: skip
"""Functions by symbol version: the interfaces that the code was written for.

glibc gives a function a new version when it changes its arguments or structures. All other
functions that the code replaces or calls have the first version for x86-64, `_FIRST_INTERFACE`.
"""
_REQUIRED = ("fstat", "fstatat", "lstat", "pthread_create", "stat", "statx")
"""Other functions that the library must have.

Before glibc 2.33, programs call other names of the stat family. Before 2.34, the library of threads
has a second copy of some functions.
"""
_OF_THE_CLOCK = frozenset({
    "__clock_gettime", "__gettimeofday", "clock_gettime", "clock_nanosleep", "gettimeofday",
    "pthread_cond_timedwait", "time", "timespec_get",
})  # fmt: skip
"""Functions of the code that are omitted if the declared clock is the host's."""
_FACTS = struct.Struct(f"<14q{len(_ORIGINALS)}q")


@dataclass(frozen=True, slots=True)
class Answers:
    """The clock, kernel, processor and disk usage that the programs of a built system see."""

    clock: str
    """`declared`: time starts at the declared instant in each run; `host`: the host's time."""
    kernel: str
    """`declared`: the declared kernel's release and version; `host`: those of the host."""
    why: str = ""
    """The reason why the clock or kernel is the host's, else empty."""
    glibc: str = ""
    """Version of the patched C library; empty if it is not patched."""
    processor: str = "host"
    """The processor that the loader sees: `declared` or `host`."""
    why_processor: str = ""
    """The reason why the processor is the host's, else empty."""
    disk_used: int = 0
    """Bytes of the root disk in use before a run; 0 if programs see it as empty."""


class UnfitError(ValueError):
    """The C library or the loader cannot be patched; the message gives the reason."""


def install(
    declaration: SystemDeclaration, entries: Sequence[ImageEntry], base: IO[bytes]
) -> tuple[list[ImageEntry], Answers]:
    """Return the entries with a patched C library, and the values that programs see.

    The library and its checksum in the package manager's database change. If the library cannot be
    patched, the entries are unchanged.
    """
    result = list(entries)
    try:
        found = [at for at, entry in enumerate(result) if _LIBRARY.fullmatch(entry.path)]
        if not found:
            raise UnfitError("it has no lib/x86_64-linux-gnu/libc.so.6")
        library = result[found[0]]
        before = content(library, base)
        used = _disk_used(declaration, entries)
        after, version = _with_answers(before, native.answers_code(), declaration, used)
    except UnfitError as unfit:
        return result, Answers("host", "host", str(unfit))
    put(result, found[0], after, base)
    why = "its declaration sets it" if declaration.clock == "host" else ""
    return result, Answers(declaration.clock, "declared", why, version, disk_used=used[0])


def put(entries: list[ImageEntry], number: int, after: bytes, base: IO[bytes]) -> None:
    """Replace a file of the C library's package and its checksum in the package manager's database.

    `number` is the file's index in `entries`, which is modified in place.
    """
    before = content(entries[number], base)
    old, new = (hashlib.md5(data, usedforsecurity=False).hexdigest() for data in (before, after))
    entries[number] = replace(entries[number], data=after, size=len(after))
    for at, entry in enumerate(entries):
        if entry.path == _DIGESTS:
            listed = content(entry, base).replace(old.encode(), new.encode())
            entries[at] = replace(entry, data=listed)


def _disk_used(declaration: SystemDeclaration, entries: Sequence[ImageEntry]) -> tuple[int, int]:
    """Return the bytes and files in use on the root disk.

    The bytes are limited to three quarters of the disk, to leave free space.
    """
    taken = sum(-entry.size % _PAGE + entry.size for entry in entries)
    return min(taken, declaration.machine.disk // 4 * 3) & -_PAGE, len(entries)


def logged_in(declaration: SystemDeclaration) -> list[tuple[int, int]]:
    """Return (uid, gid) of the users who are logged in at the instant, in ascending order."""
    known = declaration.accounts
    present = (login for login in declaration.machine.logins if login.end is None)
    return sorted({known[login.user] for login in present if login.user != "reboot"})


def memory_shares(machine: Machine) -> dict[str, int]:
    """Return the memory statistics of an idle machine in kilobytes, by name."""
    total = machine.memory // 1024
    percent = {
        "free": 41, "available": 68, "buffers": 3, "cached": 33, "active": 14, "inactive": 27,
        "anon": 5, "mapped": 6, "slab": 8,
    }  # fmt: skip
    shares = {name: total * share // 100 for name, share in percent.items()}
    return {**shares, "total": total, "shmem": total // 220}


def _mounts(declaration: SystemDeclaration) -> list[str]:
    """Return the lines of /proc/self/mountinfo on a machine of the distribution.

    A device number that begins with `-` marks a mount that is shown only if the kernel has it. The
    root disk's device number, `-`, is replaced by the declared one.
    """
    machine = declaration.machine
    root = next((disk.name for disk in machine.disks if disk.mount == "/"), "root")
    quiet = "rw,nosuid,nodev,noexec,relatime"
    half, tenth = machine.memory // 2048, machine.memory // 10240
    wide = "inode64"  # the default of Debian's and Ubuntu's kernels

    def owner(uid: int, gid: int) -> str:  # tmpfs shows neither if it is root's
        return (f",uid={uid}" if uid else "") + (f",gid={gid}" if gid else "")

    return [
        f"22 28 0:20 / /sys {quiet} - sysfs sysfs rw",
        f"23 28 -0:21 / /proc {quiet} - proc proc rw",
        f"24 28 0:5 / /dev rw,nosuid,relatime - devtmpfs udev rw,size={half}k,"
        f"nr_inodes={half // 4},mode=755,{wide}",
        "25 24 -0:22 / /dev/pts rw,nosuid,noexec,relatime - devpts devpts rw,gid=5,mode=620,"
        "ptmxmode=666",
        "36 22 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime - cgroup2 cgroup2 rw,"
        "nsdelegate,memory_recursiveprot",
        f"26 28 0:23 / /run {quiet} - tmpfs tmpfs rw,size={tenth}k,mode=755,{wide}",
        f"27 26 0:27 / /run/lock {quiet} - tmpfs tmpfs rw,size=5120k,{wide}",
        *(
            f"{37 + index} 26 0:{28 + index} / /run/user/{uid} rw,nosuid,nodev,relatime - tmpfs "
            f"tmpfs rw,size={tenth}k,nr_inodes={tenth // 4},mode=700{owner(uid, gid)},{wide}"
            for index, (uid, gid) in enumerate(logged_in(declaration)[:3])
        ),
        f"28 1 - / / rw,relatime - ext4 /dev/{root} rw",
        f"29 24 0:24 / /dev/shm rw,nosuid,nodev - tmpfs tmpfs rw,{wide}",
        f"30 24 -0:25 / /dev/mqueue {quiet} - mqueue mqueue rw",
    ]


def _measures(machine: Machine) -> Iterator[int]:
    """Yield values of sysinfo(2): three loads times 65,536, then memory and swap in bytes."""
    for load in machine.load:
        yield round(load * 2048) << 5  # the kernel stores eleven fractional bits
    share = memory_shares(machine)
    for name in ("total", "free", "shmem", "buffers"):
        yield share[name] << 10
    yield machine.swap


def socket_inode(index: int) -> int:
    """Return the inode number that programs see for a declared socket, by its index."""
    return _FIRST_SOCKET + 2 * index


def _sockets(machine: Machine) -> list[str]:
    """Return family, port, peer port and inode number of each declared socket, as a line."""
    rows = enumerate(machine.sockets)
    return [
        f"{6 if ':' in one.address else 4} {one.port} {one.peer_port} {socket_inode(index)}"
        for index, one in rows
    ]


def _with_answers(
    library: bytes, compiled: bytes, declaration: SystemDeclaration, used: tuple[int, int]
) -> tuple[bytes, str]:
    """Return a patched copy of the library, and its version.

    `used` is the number of bytes and files in use on the root disk. Raises UnfitError if the
    library cannot be patched.
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
        raise UnfitError("its C library is for another architecture than x86-64")
    found = _VERSION.search(library)
    if not found:
        raise UnfitError("its C library is not glibc")
    code, functions = _code(compiled)
    moments = [int(when.timestamp()) for when in (declaration.instant, declaration.boot_time)]
    if declaration.clock == "host":
        functions = {name: at for name, at in functions.items() if name not in _OF_THE_CLOCK}
        moments = [0, 0]
    kernel = declaration.machine.kernel
    texts = [kernel.release, kernel.version, "\n".join(_mounts(declaration))]
    texts.append("\n".join(_sockets(declaration.machine)))
    code += "".join(f"{text}\0" for text in texts).encode()
    listed = list(symbols(library))
    own = {symbol.name: symbol.value for symbol in listed if symbol.default}
    _check_interfaces(listed, functions)
    header, address = _place(library)
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
        # if a name has a default version, its older versions may have another interface: keep them
        if symbol.name in functions and (symbol.default or symbol.name not in own):
            result[symbol.at + 4] = symbol.info & 0xF0 | FUNCTION
            struct.pack_into("<Q", result, symbol.at + 8, address + functions[symbol.name])
    return bytes(result), found[1].decode()


def _check_interfaces(listed: Sequence[Symbol], replaced: Collection[str]) -> None:
    """Raise UnfitError if a function is missing or has another interface than the code expects."""
    versions = {symbol.name: symbol.version for symbol in listed if symbol.default}
    for name in (*_ORIGINALS, *_REQUIRED):
        if name not in versions:
            raise UnfitError(f"its C library has no {name}")
    for name in sorted({*_ORIGINALS, *replaced}):
        expected = _interface(name)
        if versions.get(name, expected) != expected:
            raise UnfitError(f"its C library has {name}@{versions[name]}, not {name}@{expected}")


def _interface(function: str) -> str:
    """Return the symbol version of the function's interface that the code was written for."""
    found = (version for version, names in _INTERFACES.items() if function in names)
    return next(found, _FIRST_INTERFACE)


def _code(compiled: bytes) -> tuple[bytes, dict[str, int]]:
    """Return the compiled code, which starts with its facts, and offsets of functions by name."""
    functions = {symbol.name: symbol.value for symbol in symbols(compiled)}
    return first_segment(compiled), functions


def _place(library: bytes) -> tuple[int, int]:
    """Return the file offset of the program header to reuse, and the address of the code.

    The reused header describes a note that a second header describes as properties, and loaders
    read only the latter. Load segments must be in ascending order of addresses, so the reused
    header must follow all of them.
    """
    rows = list(segments(library))
    properties = [row[2] for _, row in rows if row[0] == PROPERTY]
    loaded = [(at, row) for at, row in rows if row[0] == LOADED]
    spare = [at for at, row in rows if row[0] == NOTE and row[2] in properties]
    if not loaded or not spare or spare[0] < loaded[-1][0]:
        raise UnfitError("its C library has an unsupported layout")
    end = max(row[3] + row[6] for _, row in loaded)
    return spare[0], (end + _PAGE - 1) & -_PAGE
