"""What a system's C library makes of files of /proc, by the texts of several kernels.

The parts of `native/library` that turn the kernel's text into the shown one are compiled with the
host's compiler, beside facts and declared texts of this test.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest

LIBRARY = Path(str(files("shioenv"))) / "native/library"
SHOWN = 60 << 10

MOUNTS = """\
22 28 0:20 / /sys rw,nosuid,nodev,noexec,relatime - sysfs sysfs rw
23 28 -0:21 / /proc rw,nosuid,nodev,noexec,relatime - proc proc rw
38 26 0:29 / /run/user/1000 rw,nosuid,nodev,relatime - tmpfs tmpfs rw,size=5k,uid=1000,gid=1000
28 1 - / / rw,relatime - ext4 /dev/vda rw
"""
SOCKETS = "4 22 0 15873\n6 22 0 15875\n4 22 51514 15877"
DRIVER = r"""
#include "mounts.h"
const struct facts facts = {.processors = PROCESSORS, .device = 254 << 8};
const char answers_end[] = DECLARED;
const unsigned long mounts_room = sizeof(struct mounts);
"""


class Shown(ctypes.Structure):
    _fields_ = (("length", ctypes.c_size_t), ("text", ctypes.c_char * SHOWN))


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[int, ctypes.CDLL]:
    """The code for machines with so many processors."""
    directory = tmp_path_factory.mktemp("proc")
    driver = directory / "driver.c"
    driver.write_text(DRIVER)
    declared = f"release\\000version\\000{MOUNTS}\\000{SOCKETS}".replace("\n", "\\n")
    libraries = {}
    for processors in (1, 2):
        library = directory / f"{processors}.so"
        command = [os.environ.get("CC", "cc"), "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror"]
        command += ["-ffreestanding", "-fno-builtin", "-shared", "-fPIC", f"-I{LIBRARY}"]
        command += [f"-DPROCESSORS={processors}", f'-DDECLARED="{declared}"']
        sources = [driver, *(LIBRARY / f"{name}.c" for name in ("lines", "mounts", "text"))]
        subprocess.run([*command, "-o", library, *sources], check=True)
        libraries[processors] = ctypes.CDLL(str(library))
    return libraries


Compiled = dict[int, ctypes.CDLL]


def shown(library: ctypes.CDLL, name: str, text: str, *arguments: int) -> str:
    result = Shown()
    getattr(library, f"show_{name}")(ctypes.byref(result), text.encode(), *arguments)
    return bytes(result)[8 : 8 + result.length].decode()


def shown_mounts(library: ctypes.CDLL, form: int, text: str) -> list[str]:
    room = ctypes.create_string_buffer(ctypes.c_ulong.in_dll(library, "mounts_room").value)
    kernel, result = ctypes.create_string_buffer(text.encode()), Shown()
    library.read_mounts(room, form, kernel)
    library.show_mounts(ctypes.byref(result), room)
    return bytes(result)[8 : 8 + result.length].decode().splitlines()


SAME, HIDDEN = "same", ""
NODES = "Mems_allowed:\t" + "00000000," * 31 + "00000001"
STATUS = (
    ((5, 10), "Name:\tcat", SAME),
    ((5, 10), "Umask:\t0022", SAME),
    ((5, 10), "State:\tR (running)", SAME),
    ((5, 10), "Pid:\t1001", SAME),
    ((5, 10), "Uid:\t0\t0\t0\t0", SAME),
    ((5, 10), "Groups:\t ", SAME),
    ((5, 10), "NSsid:\t1000", SAME),
    ((6, 8), "Kthread:\t0", HIDDEN),
    ((5, 10), "VmPeak:\t    2404 kB", SAME),
    ((5, 10), "HugetlbPages:\t       0 kB", SAME),
    ((5, 10), "CoreDumping:\t0", SAME),
    ((5, 10), "THP_enabled:\t1", SAME),
    ((6, 4), "untag_mask:\t0xffffffffffffffff", HIDDEN),
    ((5, 10), "Threads:\t1", SAME),
    ((5, 10), "SigQ:\t0/4096", SAME),
    ((5, 10), "CapBnd:\t000001ffffffffff", SAME),
    ((5, 10), "NoNewPrivs:\t0", SAME),
    ((5, 10), "Seccomp:\t2", "Seccomp:\t0"),
    ((5, 10), "Seccomp_filters:\t2", "Seccomp_filters:\t0"),
    (
        (5, 10),
        "Speculation_Store_Bypass:\tthread force mitigated",
        "Speculation_Store_Bypass:\tthread vulnerable",
    ),
    (
        (5, 11),
        "SpeculationIndirectBranch:\talways enabled",
        "SpeculationIndirectBranch:\tconditional enabled",
    ),
    ((5, 10), "Cpus_allowed:\tff", "Cpus_allowed:\t1"),
    ((5, 10), "Cpus_allowed_list:\t0-7", "Cpus_allowed_list:\t0"),
    ((5, 10), "Mems_allowed:\t00000000,00000003", NODES),
    ((5, 10), "Mems_allowed_list:\t0", SAME),
    ((5, 10), "voluntary_ctxt_switches:\t0", SAME),
    ((5, 10), "nonvoluntary_ctxt_switches:\t0", SAME),
    ((6, 6), "x86_Thread_features:\t", HIDDEN),
    ((6, 6), "x86_Thread_features_locked:\t", HIDDEN),
)
"""Of /proc/PID/status: the kernel that brought a line, the line, and what is shown for it."""

KERNELS = ((5, 10), (6, 1), (6, 8), (6, 12))


@pytest.mark.parametrize("kernel", KERNELS)
def test_status_has_the_declared_kernel_s_lines(
    compiled: Compiled, kernel: tuple[int, int]
) -> None:
    rows = [(line, told) for since, line, told in STATUS if since <= kernel]
    text = "".join(f"{line}\n" for line, _ in rows)
    expected = "".join(f"{line if told is SAME else told}\n" for line, told in rows if told)
    assert shown(compiled[1], "status", text) == expected


def test_status_names_the_host_s_processors_where_there_are_several(compiled: Compiled) -> None:
    text = "Cpus_allowed:\tff\nCpus_allowed_list:\t0-7\nCpus_allowed_other:\t1\n"
    assert shown(compiled[2], "status", text) == text


def test_a_name_in_the_middle_of_a_line_is_no_line_s(compiled: Compiled) -> None:
    text = "Name:\tKthread:\nGroups:\t0 Seccomp:\n"
    assert shown(compiled[1], "status", text) == text


LIMITS = (
    ("Limit", "Soft Limit", "Hard Limit", "Units"),
    ("Max cpu time", "unlimited", "unlimited", "seconds"),
    ("Max core file size", "{core}", "unlimited", "bytes"),
    ("Max open files", "{soft}", "{hard}", "files"),
    ("Max file locks", "{locks}", "unlimited", "locks"),
    ("Max nice priority", "0", "0", ""),
)
"""Of /proc/PID/limits: the columns of each line."""


def limits(**values: object) -> str:
    rows = [[column.format(**values) for column in row] for row in LIMITS]
    return "".join(f"{a:25} {b:20} {c:20} {d:10}\n" for a, b, c, d in rows)


KEPT = 0x7F10C << 44 | 1000 << 22 | 1048576
"""As `kept_limits.h` has it: the soft limit of open files and the hard one."""


@pytest.mark.parametrize(("core", "told"), [("1", "0"), ("0", "0"), ("10", "10")])
def test_limits_have_no_marks(compiled: Compiled, core: str, told: str) -> None:
    host = {"soft": 1024, "hard": 20000}
    text = limits(core=core, locks="unlimited", **host)
    assert shown(compiled[1], "limits", text) == limits(core=told, locks="unlimited", **host)
    text = limits(core=core, locks=KEPT, **host)
    declared = limits(core=told, locks="unlimited", soft=1000, hard=1048576)
    assert shown(compiled[1], "limits", text) == declared


STAT = "1006 ({name}) R 1000 " + " ".join(["0"] * 33) + " 17 {processor} 0 0 1\n"


@pytest.mark.parametrize("name", ["cat", "a b", ") (", "x) R 1 2"])
def test_stat_names_the_only_processor(compiled: Compiled, name: str) -> None:
    text = STAT.format(name=name, processor=13)
    assert shown(compiled[1], "stat", text) == STAT.format(name=name, processor=0)
    assert shown(compiled[2], "stat", text) == text


SOCKET = "00000000:00000000 00:00000000 00000000     0        0"
HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout"
TCP = """\
   0: 00000000:0016 00000000:0000 0A {socket} {one} 1 {pointer} 100 0 0 10 0
   1: 281E140A:0016 021E140A:C93A 01 {socket} {two} 1 {pointer} 300 0 0 10 -1
"""
ANOTHER = f"   2: 00000000:0050 00000000:0000 0A {SOCKET} 99 1 00000000ca67cbb9 100 0 0 10 0\n"


def table(lines: str, width: int) -> str:
    return "".join(f"{line:{width}}\n" for line in f"{HEAD}\n{lines}".splitlines())


@pytest.mark.parametrize("width", [149, 0])
def test_sockets_of_the_machine_have_declared_numbers(compiled: Compiled, width: int) -> None:
    kernel = TCP.format(socket=SOCKET, one=53526471, two=6, pointer="0000000004f3f025") + ANOTHER
    told = TCP.format(socket=SOCKET, one=15873, two=15877, pointer="0" * 16) + ANOTHER
    assert shown(compiled[1], "sockets", table(kernel, width), 4) == table(told, width)


def test_sockets_of_the_other_family_have_their_own(compiled: Compiled) -> None:
    kernel = (
        f"   0: {'0' * 32}:0016 {'0' * 32}:0000 0A {SOCKET} 7 1 00000000ca67cbb9 100 0 0 10 0\n"
    )
    told = kernel.replace(" 7 1 00000000ca67cbb9", f" 15875 1 {'0' * 16}")
    assert shown(compiled[1], "sockets", kernel, 6) == told


LAYER = "lowerdir=/tree/top::/lower,upperdir=/layer/upper,workdir=/layer/work"
OVERLAY = {
    (5, 11): f"{LAYER},xino=on,userxattr",
    (6, 1): f"{LAYER},xino=on,userxattr",
    (6, 8): f"{LAYER},redirect_dir=nofollow,uuid=on,xino=on,userxattr",
    (6, 12): f"{LAYER},redirect_dir=nofollow,uuid=on,xino=on,userxattr",
}
"""What the kernel says of the root disk, which is an overlay."""

COVER = "ro,size=0k,mode=555,uid=1000000000,gid=1000000000"
QUIET = "rw,nosuid,nodev,noexec,relatime"


@pytest.mark.parametrize("kernel", OVERLAY)
@pytest.mark.parametrize("wide", ["", ",inode64"])
def test_the_list_of_mounts_is_the_machine_s(
    compiled: Compiled, kernel: tuple[int, int], wide: str
) -> None:
    rows = [
        ("181 161 0:149 / /", "rw,relatime", "overlay /dev/vda", f"rw,{OVERLAY[kernel]}"),
        ("182 181 0:140 / /proc", QUIET, "proc proc", "rw"),
        ("211 182 0:141 /stat /proc/stat", QUIET, "tmpfs proc", COVER + wide),
        ("347 181 0:125 / /sys", QUIET, "tmpfs sysfs", COVER + wide),
        ("400 181 0:150 / /mnt", "rw,relatime", "tmpfs none", f"rw,uid=1000001000{wide}"),
        ("401 400 0:150 /a /mnt/b", "rw,relatime shared:1 master:2", "tmpfs none", f"rw{wide}"),
        ("402 181 0:149 /etc /srv", "rw,relatime", "overlay /dev/vda", f"rw,{OVERLAY[kernel]}"),
    ]
    info = "".join(f"{place} {options} - {what} {own}\n" for place, options, what, own in rows)
    run_user = "rw,size=5k,uid=1000,gid=1000"
    assert shown_mounts(compiled[1], 1, info) == [
        f"22 28 0:20 / /sys {QUIET} - sysfs sysfs rw",
        f"23 28 0:21 / /proc {QUIET} - proc proc rw",
        f"38 26 0:29 / /run/user/1000 rw,nosuid,nodev,relatime - tmpfs tmpfs {run_user}",
        "28 1 254:0 / / rw,relatime - ext4 /dev/vda rw",
        f"40 28 0:40 / /mnt rw,relatime - tmpfs none rw,uid=1000{wide}",
        f"41 40 0:40 /a /mnt/b rw,relatime - tmpfs none rw{wide}",
        "42 28 254:0 /etc /srv rw,relatime - ext4 /dev/vda rw",
    ]
    short = [
        (place.split()[4], options.split()[0], what.split(), own.partition(",")[2])
        for place, options, what, own in rows
    ]
    table_ = "".join(
        f"{source} {point} {kind} {','.join(filter(None, (options, own)))} 0 0\n"
        for point, options, (kind, source), own in short
    )
    assert shown_mounts(compiled[1], 0, table_) == [
        f"sysfs /sys sysfs {QUIET} 0 0",
        f"proc /proc proc {QUIET} 0 0",
        "tmpfs /run/user/1000 tmpfs rw,nosuid,nodev,relatime,size=5k,uid=1000,gid=1000 0 0",
        "/dev/vda / ext4 rw,relatime 0 0",
        f"none /mnt tmpfs rw,relatime,uid=1000{wide} 0 0",
        f"none /mnt/b tmpfs rw,relatime{wide} 0 0",
        "/dev/vda /srv ext4 rw,relatime 0 0",
    ]
    statistics = "".join(
        f"device {source} mounted on {point} with fstype {kind}\n"
        for point, _, (kind, source), _ in short
    )
    assert shown_mounts(compiled[1], 2, f"no device mounted on / with fstype x\n{statistics}") == [
        "device sysfs mounted on /sys with fstype sysfs",
        "device proc mounted on /proc with fstype proc",
        "device tmpfs mounted on /run/user/1000 with fstype tmpfs",
        "device /dev/vda mounted on / with fstype ext4",
        "device none mounted on /mnt with fstype tmpfs",
        "device none mounted on /mnt/b with fstype tmpfs",
        "device /dev/vda mounted on /srv with fstype ext4",
    ]


def test_a_mount_that_was_closed_and_one_that_is_gone(compiled: Compiled) -> None:
    root = f"181 161 0:149 / / ro,relatime - overlay /dev/vda rw,{OVERLAY[6, 1]}\n"
    assert shown_mounts(compiled[1], 1, root)[-1] == "28 1 254:0 / / ro,relatime - ext4 /dev/vda rw"
    assert not [line for line in shown_mounts(compiled[1], 1, root) if " /proc " in line]


def test_who_sees_no_root_disk_sees_its_own_mounts_alone(compiled: Compiled) -> None:
    text = (
        "400 181 0:150 / / rw,relatime - tmpfs none rw\n182 400 0:140 / /proc rw - proc proc rw\n"
    )
    assert shown_mounts(compiled[1], 1, text) == [
        "40 1 0:40 / / rw,relatime - tmpfs none rw",
        "23 40 0:21 / /proc rw - proc proc rw",
    ]


def test_the_number_of_a_device_is_that_of_the_list(compiled: Compiled) -> None:
    library = compiled[1]
    room = ctypes.create_string_buffer(ctypes.c_ulong.in_dll(library, "mounts_room").value)
    text = (
        f"181 161 0:149 / / rw,relatime - overlay /dev/vda rw,{OVERLAY[6, 12]}\n"
        "182 181 0:140 / /proc rw - proc proc rw\n"
        f"211 182 0:141 /stat /proc/stat rw - tmpfs proc {COVER}\n"
        "400 181 0:450 / /mnt rw - tmpfs none rw\n"
    )
    library.read_mounts(room, 1, ctypes.create_string_buffer(text.encode()))
    device_in = library.device_in
    device_in.restype, device_in.argtypes = ctypes.c_ulong, (ctypes.c_void_p, ctypes.c_ulong)
    found = [device_in(room, os.makedev(0, minor)) for minor in (140, 141, 450, 7)]
    assert found == [21, 21, 40, 7]
