"""The machine profile as files: what programs read to learn about the machine they run on.

Two groups, both pure functions of the declaration. `root_files` lie in the root filesystem itself:
the files of /etc that name the host, login records, the kernel log, and a tree of ordinary files
and links under /sys (no sysfs is mounted in the sandbox). `proc_files` lie beside the root
filesystem and are bound over entries of /proc. `live_proc_files` are those that must agree with
the clock or the kernel a run really has.
"""

from __future__ import annotations

import hashlib
import struct
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from socket import inet_aton

from shioenv.system.declare import Disk, Interface, Login, Machine, SystemDeclaration
from shioenv.system.image import Placed

_SECTOR = 512
_PAGE = 4096
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

MASKED = (
    "bootconfig", "config.gz", "kallsyms", "kcore", "key-users", "keys", "kmsg", "kpagecgroup",
    "kpagecount", "kpageflags", "latency_stats", "sched_debug", "slabinfo", "sysrq-trigger",
    "timer_list", "vmallocinfo",
)  # fmt: skip
"""Entries of /proc that tell of the host and that nothing needs: bound over with an empty file."""


# ---------------------------------------------------------------------------------------------
# Files in the root filesystem


def root_files(declaration: SystemDeclaration) -> list[Placed]:
    """What the profile puts into the root filesystem, in no particular order."""
    machine = declaration.machine
    files = [*_etc(declaration), *_sys(machine), *_login_records(declaration)]
    files.append(Placed("dev/kmsg", 0o644, kernel_log(machine)))
    files.append(Placed("var/log/syslog", 0o640, _system_log(declaration), gid=4))
    return files


def _etc(declaration: SystemDeclaration) -> Iterator[Placed]:
    machine = declaration.machine
    name = machine.hostname
    full = f"{name}.{machine.domain} {name}" if machine.domain else name
    hosts = ["127.0.0.1 localhost"]
    hosts += [f"{each.address} {full}" for each in machine.interfaces] or [f"127.0.1.1 {full}"]
    hosts += ["", "::1 localhost ip6-localhost ip6-loopback", "ff02::1 ip6-allnodes"]
    resolver = [f"nameserver {address}" for address in machine.nameservers]
    resolver += [f"search {machine.domain}"] if machine.domain else []
    mounts = [
        f"UUID={disk.uuid} {disk.mount} {disk.filesystem} defaults 0 1"
        for disk in machine.disks
        if disk.mount
    ]
    yield Placed("etc/hostname", data=_text([name]))
    yield Placed("etc/hosts", data=_text(hosts))
    yield Placed("etc/resolv.conf", data=_text(resolver))
    yield Placed("etc/machine-id", 0o444, _text([machine.machine_id] if machine.machine_id else []))
    yield Placed("etc/fstab", data=_text(mounts))
    yield Placed("etc/apt/sources.list", data=_text(declaration.distribution.mirrors))


def _sys(machine: Machine) -> Iterator[Placed]:
    def file(path: str, text: object, mode: int = 0o444) -> Placed:
        return Placed(f"sys/{path}", mode, f"{text}\n".encode())

    cpus = "0" if machine.cpu.count == 1 else f"0-{machine.cpu.count - 1}"
    mask = f"{(1 << machine.cpu.count) - 1:x}"
    top = "devices/system/cpu"
    for name in ("online", "possible", "present"):
        yield file(f"{top}/{name}", cpus)
    yield file(f"{top}/offline", "")
    yield file(f"{top}/isolated", "")
    yield file(f"{top}/kernel_max", 8191)
    for name in ("meltdown", "l1tf", "mds", "tsx_async_abort", "itlb_multihit", "srbds"):
        yield file(f"{top}/vulnerabilities/{name}", "Not affected")
    yield file(f"{top}/vulnerabilities/spectre_v1", "Mitigation: usercopy/swapgs barriers")
    yield file(f"{top}/vulnerabilities/spectre_v2", "Mitigation: Retpolines")
    for number in range(machine.cpu.count):
        core = f"{top}/cpu{number}"
        own = f"{1 << number:x}"
        for name, value in (
            ("core_id", number), ("physical_package_id", 0), ("die_id", 0), ("cluster_id", 65535),
            ("thread_siblings", own), ("thread_siblings_list", number), ("core_siblings", mask),
            ("core_siblings_list", cpus), ("core_cpus", own), ("core_cpus_list", number),
            ("package_cpus", mask), ("package_cpus_list", cpus), ("die_cpus", mask),
            ("die_cpus_list", cpus),
        ):  # fmt: skip
            yield file(f"{core}/topology/{name}", value)
        if number:
            yield file(f"{core}/online", 1)
        yield Placed(f"sys/{core}/node0", target="../../node/node0")
        yield from _caches(machine, core, own, mask)
    node = "devices/system/node"
    for name in ("online", "possible", "has_cpu", "has_memory", "has_normal_memory"):
        yield file(f"{node}/{name}", 0)
    yield file(f"{node}/node0/cpumap", mask)
    yield file(f"{node}/node0/cpulist", cpus)
    yield file(f"{node}/node0/distance", 10)
    total = machine.memory // 1024
    yield file(f"{node}/node0/meminfo", f"Node 0 MemTotal: {total:14} kB")
    yield file("kernel/mm/transparent_hugepage/enabled", "always [madvise] never")
    yield file("class/dmi/id/sys_vendor", "QEMU")
    yield file("class/dmi/id/product_name", "Standard PC (i440FX + PIIX, 1996)")
    for name in ("fs", "firmware", "bus", "module", "power", "hypervisor", "dev/char"):
        yield Placed(f"sys/{name}", 0o755)
    for disk in machine.disks:
        yield from _block(machine, disk)
    if not machine.disks:
        yield Placed("sys/dev/block", 0o755)
    yield from _net(Interface("lo", "00:00:00:00:00:00", "127.0.0.1", 8, "", 65536), 1)
    for index, interface in enumerate(machine.interfaces):
        yield from _net(interface, index + 2)


def _caches(machine: Machine, core: str, own: str, mask: str) -> Iterator[Placed]:
    shapes = (("L1d", 1, "Data", 8), ("L1i", 1, "Instruction", 8), ("L2", 2, "Unified", 16))
    for index, (name, level, kind, ways) in enumerate((*shapes, ("L3", 3, "Unified", 16))):
        size = machine.cpu.caches[name]
        shared = mask if level == 3 else own
        for key, value in (
            ("level", level), ("type", kind), ("size", f"{size // 1024}K"),
            ("coherency_line_size", 64), ("ways_of_associativity", ways),
            ("number_of_sets", size // 64 // ways), ("physical_line_partition", 1),
            ("shared_cpu_map", shared), ("id", 0),
        ):  # fmt: skip
            yield Placed(f"sys/{core}/cache/index{index}/{key}", 0o444, f"{value}\n".encode())


def _block(machine: Machine, disk: Disk) -> Iterator[Placed]:
    index = machine.disks.index(disk)
    device = f"devices/pci0000:00/0000:00:0{index + 4}.0/virtio{index}"
    where = f"{device}/block/{disk.name}"
    up = "../" * (where.count("/") + 1)

    def file(path: str, text: object, mode: int = 0o444) -> Placed:
        return Placed(f"sys/{where}/{path}", mode, f"{text}\n".encode())

    yield Placed(f"sys/block/{disk.name}", target=f"../{where}")
    yield Placed(f"sys/class/block/{disk.name}", target=f"../../{where}")
    yield Placed(f"sys/dev/block/{disk.major}:{disk.minor}", target=f"../../{where}")
    yield Placed(f"sys/{where}/subsystem", target=f"{up}class/block")
    yield Placed(f"sys/{where}/device", target="../..")
    yield Placed(f"sys/{where}/bdi", 0o755)
    yield Placed(f"sys/{device}/vendor", 0o444, b"0x1af4\n")
    yield Placed(f"sys/{device}/device", 0o444, b"0x0002\n")
    if disk.model:
        yield Placed(f"sys/{device}/model", 0o444, f"{disk.model}\n".encode())
    for name, value in (
        ("dev", f"{disk.major}:{disk.minor}"), ("size", disk.size // _SECTOR),
        ("ro", int(disk.read_only)), ("removable", int(disk.removable)), ("hidden", 0),
        ("range", 16), ("ext_range", 256), ("capability", 0), ("alignment_offset", 0),
        ("discard_alignment", 0), ("diskseq", index + 1), ("inflight", "       0        0"),
        ("stat", _disk_statistics(disk)),
        ("uevent", f"MAJOR={disk.major}\nMINOR={disk.minor}\nDEVNAME={disk.name}\nDEVTYPE=disk"),
        ("queue/rotational", 1), ("queue/logical_block_size", _SECTOR),
        ("queue/physical_block_size", _SECTOR), ("queue/hw_sector_size", _SECTOR),
        ("queue/minimum_io_size", _SECTOR), ("queue/optimal_io_size", 0),
        ("queue/read_ahead_kb", 128), ("queue/nr_requests", 256),
        ("queue/scheduler", "[mq-deadline] none"), ("queue/add_random", 0),
        ("queue/discard_granularity", _SECTOR), ("queue/discard_max_bytes", 2147483136),
        ("queue/discard_max_hw_bytes", 2147483136), ("queue/discard_zeroes_data", 0),
        ("queue/write_same_max_bytes", 0), ("queue/max_sectors_kb", 1280),
        ("queue/write_cache", "write back"), ("queue/zoned", "none"), ("queue/dax", 0),
    ):  # fmt: skip
        yield file(name, value)
    for name in ("holders", "slaves"):
        yield Placed(f"sys/{where}/{name}", 0o755)


def _net(interface: Interface, index: int) -> Iterator[Placed]:
    loopback = interface.name == "lo"
    parent = (
        "devices/virtual/net" if loopback else f"devices/pci0000:00/0000:00:03.0/virtio9{index}/net"
    )
    where = f"{parent}/{interface.name}"
    yield Placed(f"sys/class/net/{interface.name}", target=f"../../{where}")
    for name, value in (
        ("address", interface.mac), ("addr_len", 6), ("mtu", interface.mtu), ("ifindex", index),
        ("iflink", index), ("operstate", "unknown" if loopback else "up"), ("carrier", 1),
        ("type", 772 if loopback else 1), ("flags", "0x9" if loopback else "0x1003"),
        ("tx_queue_len", 1000), ("dev_id", "0x0"), ("dormant", 0), ("link_mode", 0),
        ("broadcast", "00:00:00:00:00:00" if loopback else "ff:ff:ff:ff:ff:ff"),
        ("uevent", f"INTERFACE={interface.name}\nIFINDEX={index}"),
    ):  # fmt: skip
        yield Placed(f"sys/{where}/{name}", 0o444, f"{value}\n".encode())
    counters = ["bytes", "packets", "errors", "dropped", "fifo_errors", "compressed"]
    for name in [f"{way}_{counter}" for way in ("rx", "tx") for counter in counters]:
        yield Placed(f"sys/{where}/statistics/{name}", 0o444, b"0\n")


# ---------------------------------------------------------------------------------------------
# Login records

_EMPTY, _RUN_LEVEL, _BOOT, _LOGIN, _USER, _DEAD = 0, 1, 2, 6, 7, 8
_UTMP = struct.Struct("<hxxi32s4s32s256shhiii4s12x20x")  # glibc's struct utmp on x86-64, 384 bytes
_LASTLOG = struct.Struct("<i32s256s")  # 292 bytes for each user number


def _record(kind: int, login: Login, when: datetime, *, user: str | None = None) -> bytes:
    name = login.user if user is None else user
    line = login.line
    tail = {"~": "~~"}.get(line, line[-4:] if not line.startswith("pts/") else f"ts/{line[4:]}")
    address = bytes(4)
    if login.host and all(part.isdigit() for part in login.host.split(".")):
        address = inet_aton(login.host)
    return _UTMP.pack(
        kind, login.pid, line.encode(), tail.encode(), name.encode(), login.host.encode(),
        0, 0, 0 if line == "~" else login.pid, int(when.timestamp()), 0, address,
    )  # fmt: skip


def _login_records(declaration: SystemDeclaration) -> Iterator[Placed]:
    machine = declaration.machine
    boot = declaration.boot_time
    release = machine.kernel.release
    up = _record(_BOOT, Login("reboot", "~", release, 0, boot, None), boot)
    level = _record(_RUN_LEVEL, Login("runlevel", "~", release, 53, boot, None), boot)
    present = [login for login in machine.logins if login.end is None]
    events = [(boot, 0, up), (boot, 1, level)]
    for login in machine.logins:
        if login.user == "reboot":
            old = Login("reboot", "~", login.host or release, 0, login.begin, login.end)
            events.append((login.begin, 0, _record(_BOOT, old, login.begin)))
            if login.end is not None:
                events.append((login.end, 9, _record(_RUN_LEVEL, old, login.end, user="shutdown")))
            continue
        events.append((login.begin, 2, _record(_USER, login, login.begin)))
        if login.end is not None:
            events.append((login.end, 3, _record(_DEAD, login, login.end, user="")))
    events.sort(key=lambda event: event[:2])
    group = 43  # utmp, a fixed number in Debian's and Ubuntu's base-passwd
    last = int(max((when for when, _, _ in events), default=boot).timestamp())
    current = sorted(present, key=lambda login: login.begin)
    # `who` shows only sessions whose process exists: number 1, the one that always does.
    shown = [replace(login, pid=1) for login in current]
    utmp = up + level + b"".join(_record(_USER, login, login.begin) for login in shown)
    yield Placed("run/utmp", 0o664, utmp, mtime=last, gid=group)
    wtmp = b"".join(record for _, _, record in events)
    yield Placed("var/log/wtmp", 0o664, wtmp, mtime=last, gid=group)
    failed = b"".join(_record(_LOGIN, login, login.begin) for login in machine.failed_logins)
    failed_at = max((int(each.begin.timestamp()) for each in machine.failed_logins), default=None)
    yield Placed("var/log/btmp", 0o660, failed, mtime=failed_at, gid=group)
    numbers = {"root": 0} | {user.name: user.uid for user in declaration.users}
    table = bytearray()
    for login in sorted(machine.logins, key=lambda login: login.begin):
        if login.user == "reboot":
            continue
        at = numbers[login.user] * _LASTLOG.size
        table.extend(bytes(max(0, at + _LASTLOG.size - len(table))))
        _LASTLOG.pack_into(
            table, at, int(login.begin.timestamp()), login.line.encode(), login.host.encode()
        )
    yield Placed("var/log/lastlog", 0o664, bytes(table), mtime=last, gid=group, holes=True)


def _system_log(declaration: SystemDeclaration) -> bytes:
    """/var/log/syslog: the end of booting, then an hourly line until the instant."""
    name = declaration.machine.hostname
    lines = []

    def line(moment: datetime, text: str) -> None:
        lines.append(f"{_MONTHS[moment.month - 1]} {moment.day:2} {moment:%H:%M:%S} {name} {text}")

    boot = declaration.boot_time
    for seconds, text in declaration.machine.kernel.log:
        line(boot + timedelta(seconds=seconds), f"kernel: [{seconds:12.6f}] {text}")
    hourly = boot.replace(minute=17, second=1)
    while (hourly := hourly + timedelta(hours=1)) <= declaration.instant:
        line(hourly, "CRON[1490]: (root) CMD (cd / && run-parts --report /etc/cron.hourly)")
    return _text(lines)


def kernel_log(machine: Machine) -> bytes:
    """/dev/kmsg as a file: one record in each read of 8,191 bytes, which is how dmesg reads it."""
    records = bytearray()
    for number, (seconds, text) in enumerate(machine.kernel.log):
        line = f"6,{number},{round(seconds * 1e6)},-;{text}".encode()
        records += line.ljust(8191, b"\0")
    return bytes(records)


# ---------------------------------------------------------------------------------------------
# Files bound over /proc


def proc_files(declaration: SystemDeclaration) -> dict[str, bytes]:
    """Contents by name beneath /proc, for all but `uptime` (a time namespace gives that)."""
    machine = declaration.machine
    boot = int(declaration.boot_time.timestamp())
    files = {
        "sys/kernel/random/boot_id": _text([str(_boot_id(machine))]),
        "sys/fs/dentry-state": _text(["10211\t3120\t45\t0\t1842\t0"]),
        "sys/fs/file-nr": _text(["1056\t0\t9223372036854775807"]),
        "sys/fs/inode-nr": _text(["16023\t412"]),
        "sys/fs/inode-state": _text(["16023\t412\t0\t0\t0\t0\t0"]),
        "cmdline": _text([machine.kernel.command_line]),
        "consoles": _text(["ttyS0                -W- (EC p a)    4:64"]),
        "cpuinfo": _cpuinfo(machine),
        "crypto": b"",
        "devices": _devices(machine),
        "diskstats": _text(
            f"{disk.major:4} {disk.minor:7} {disk.name} {_disk_statistics(disk)}"
            for disk in machine.disks
        ),
        "dma": _text([" 4: cascade"]),
        "fb": b"",
        "filesystems": _filesystems(),
        "interrupts": _interrupts(machine),
        "iomem": b"",
        "ioports": b"",
        "loadavg": _text([" ".join(f"{each:.2f}" for each in machine.load) + " 1/64 2048"]),
        "locks": b"",
        "mdstat": _text(["Personalities : ", "unused devices: <none>"]),
        "meminfo": _meminfo(machine),
        "misc": _text(["183 hw_random", "  1 psaux", "229 fuse", "235 autofs", "237 loop-control"]),
        "modules": _text(machine.kernel.modules),
        "mtrr": b"",
        "partitions": _partitions(machine),
        "schedstat": _text(["version 15", "timestamp 4319231415"]),
        "softirqs": _softirqs(machine),
        "stat": _stat(machine, boot),
        "swaps": _swaps(machine),
        "version": _version(machine, machine.kernel.release),
        "vmstat": _vmstat(machine),
        "zoneinfo": _zoneinfo(machine),
        "buddyinfo": _text(
            ["Node 0, zone    DMA32    " + " ".join(f"{n:6}" for n in _free_blocks(machine))]
        ),
        "pagetypeinfo": b"",
        "cgroups": _text(["#subsys_name\thierarchy\tnum_cgroups\tenabled"]),
    }
    return files | dict.fromkeys(MASKED, b"")


def _boot_id(machine: Machine) -> uuid.UUID:
    digest = hashlib.sha256(f"boot {machine.machine_id}".encode()).digest()
    return uuid.UUID(bytes=digest[:16], version=4)


def live_proc_files(
    declaration: SystemDeclaration, *, now: float, kernel_release: str
) -> dict[str, bytes]:
    """The entries of `proc_files` that agree with a run's own clock and kernel.

    `stat` says when the machine was booted (`now`, in seconds since 1970, less the declared uptime,
    as the time namespace has it); `version` names the release that `uname` shows.
    """
    machine = declaration.machine
    return {
        "stat": _stat(machine, round(now) - machine.uptime),
        "version": _version(machine, kernel_release),
    }


def _version(machine: Machine, release: str) -> bytes:
    return _text([f"Linux version {release} {machine.kernel.build}"])


def _cpuinfo(machine: Machine) -> bytes:
    cpu = machine.cpu
    text = []
    for number in range(cpu.count):
        fields = {
            "processor\t": number,
            "vendor_id\t": cpu.vendor,
            "cpu family\t": cpu.family,
            "model\t\t": cpu.model,
            "model name\t": cpu.model_name,
            "stepping\t": cpu.stepping,
            "microcode\t": cpu.microcode,
            "cpu MHz\t\t": f"{cpu.mhz:.3f}",
            "cache size\t": f"{cpu.caches['L3'] // 1024} KB",
            "physical id\t": 0,
            "siblings\t": cpu.count,
            "core id\t\t": number,
            "cpu cores\t": cpu.count,
            "apicid\t\t": number,
            "initial apicid\t": number,
            "fpu\t\t": "yes",
            "fpu_exception\t": "yes",
            "cpuid level\t": 13,
            "wp\t\t": "yes",
            "flags\t\t": " ".join(cpu.flags),
            "bugs\t\t": " ".join(cpu.bugs),
            "bogomips\t": f"{cpu.bogomips:.2f}",
            "clflush size\t": 64,
            "cache_alignment\t": 64,
            "address sizes\t": "46 bits physical, 48 bits virtual",
            "power management": "",
        }
        text += [f"{key}: {value}" if value != "" else f"{key}:" for key, value in fields.items()]
        text.append("")
    return _text(text)


def _memory(machine: Machine) -> dict[str, int]:
    """Kilobytes: shares of the declared memory that a quiet machine shows."""
    total = machine.memory // 1024
    free = total * 41 // 100
    buffers = total * 3 // 100
    cached = total * 33 // 100
    return {
        "total": total,
        "free": free,
        "available": total * 68 // 100,
        "buffers": buffers,
        "cached": cached,
        "active": total * 14 // 100,
        "inactive": total * 27 // 100,
        "anon": total * 5 // 100,
        "mapped": total * 6 // 100,
        "shmem": total // 220,
        "slab": total * 8 // 100,
    }


def _meminfo(machine: Machine) -> bytes:
    share = _memory(machine)
    swap = machine.swap // 1024
    rows = {
        "MemTotal": share["total"], "MemFree": share["free"], "MemAvailable": share["available"],
        "Buffers": share["buffers"], "Cached": share["cached"], "SwapCached": 0,
        "Active": share["active"], "Inactive": share["inactive"],
        "Active(anon)": share["shmem"], "Inactive(anon)": share["anon"],
        "Active(file)": share["active"] - share["shmem"],
        "Inactive(file)": share["inactive"] - share["anon"],
        "Unevictable": 0, "Mlocked": 0, "SwapTotal": swap, "SwapFree": swap,
        "Zswap": 0, "Zswapped": 0, "Dirty": 12, "Writeback": 0, "AnonPages": share["anon"],
        "Mapped": share["mapped"], "Shmem": share["shmem"],
        "KReclaimable": share["slab"] * 3 // 5, "Slab": share["slab"],
        "SReclaimable": share["slab"] * 3 // 5,
        "SUnreclaim": share["slab"] - share["slab"] * 3 // 5,
        "KernelStack": 1232, "PageTables": 1004, "SecPageTables": 0, "NFS_Unstable": 0,
        "Bounce": 0, "WritebackTmp": 0, "CommitLimit": share["total"] // 2 + swap,
        "Committed_AS": share["total"] * 12 // 100, "VmallocTotal": 34359738367,
        "VmallocUsed": 7012, "VmallocChunk": 0, "Percpu": 392, "HardwareCorrupted": 0,
        "AnonHugePages": 0, "ShmemHugePages": 0, "ShmemPmdMapped": 0, "FileHugePages": 0,
        "FilePmdMapped": 0,
    }  # fmt: skip
    lines = [f"{key + ':':<15} {value:8} kB" for key, value in rows.items()]
    lines += [f"HugePages_{key + ':':<9}{0:4}" for key in ("Total", "Free", "Rsvd", "Surp")]
    lines += [f"{'Hugepagesize:':<15} {2048:8} kB", f"{'Hugetlb:':<15} {0:8} kB"]
    lines += [f"{'DirectMap4k:':<15} {share['total'] * 9 // 10:8} kB"]
    lines += [f"{'DirectMap2M:':<15} {share['total'] // 10:8} kB"]
    return _text(lines)


def _stat(machine: Machine, boot: int) -> bytes:
    """User, nice, system, idle, ... in hundredths of a second; mostly idle."""
    ticks = machine.uptime * 100
    user, system, waiting = ticks // 250, ticks // 400, ticks // 900
    idle = ticks - user - system - waiting
    one = f"{user} 0 {system} {idle} {waiting} 0 117 0 0 0"
    count = machine.cpu.count
    whole = (
        f"{user * count} 0 {system * count} {idle * count} {waiting * count} 0 {117 * count} 0 0 0"
    )
    lines = [f"cpu  {whole}"] + [f"cpu{number} {one}" for number in range(count)]
    lines += [f"intr {machine.uptime * 31}" + " 0" * 24, f"ctxt {machine.uptime * 57}"]
    lines += [f"btime {boot}", "processes 2048", "procs_running 1", "procs_blocked 0"]
    lines += ["softirq " + " ".join(["914411", "0", "402117", "3", "2207", "8120", "0", "0",
                                     "219871", "0", "282093"])]  # fmt: skip
    return _text(lines)


def _devices(machine: Machine) -> bytes:
    characters = {1: "mem", 4: "tty", 5: "ptmx", 7: "vcs", 10: "misc", 13: "input", 128: "ptm",
                  136: "pts", 229: "hvc", 254: "gpiochip"}  # fmt: skip
    blocks = {7: "loop", 259: "blkext"} | {disk.major: "virtblk" for disk in machine.disks}
    lines = ["Character devices:", *(f"{number:3} {name}" for number, name in characters.items())]
    lines += ["", "Block devices:", *(f"{number:3} {blocks[number]}" for number in sorted(blocks))]
    return _text(lines)


def _filesystems() -> bytes:
    virtual = [
        "sysfs", "tmpfs", "bdev", "proc", "cgroup", "cgroup2", "devtmpfs", "debugfs", "tracefs",
        "securityfs", "sockfs", "bpf", "pipefs", "ramfs", "devpts", "hugetlbfs", "mqueue",
        "overlay",
    ]  # fmt: skip
    return _text([f"nodev\t{name}" for name in virtual] + ["\text3", "\text2", "\text4", "\tvfat"])


def _disk_statistics(disk: Disk) -> str:
    """The 17 numbers of /sys/block/NAME/stat and /proc/diskstats."""
    scale = max(1, disk.size >> 20)
    reads, writes = scale * 23, scale * 7 if disk.mount else 0
    rest = (reads, scale * 3, reads * 28, reads // 2, writes, writes // 2, writes * 19, writes)
    return " ".join(str(number) for number in (*rest, 0, reads, reads + writes, 0, 0, 0, 0, 0, 0))


def _partitions(machine: Machine) -> bytes:
    rows = [
        f"{disk.major:4} {disk.minor:8} {disk.size >> 10:10} {disk.name}" for disk in machine.disks
    ]
    return _text(["major minor  #blocks  name", "", *rows])


def _swaps(machine: Machine) -> bytes:
    lines = ["Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority"]
    if machine.swap:
        lines.append(f"{'/swapfile':<40}file\t\t{machine.swap >> 10}\t\t0\t\t-2")
    return _text(lines)


def _interrupts(machine: Machine) -> bytes:
    count = machine.cpu.count
    rows = [
        ("0", 36, "IO-APIC   2-edge      timer"),
        ("4", 512, "IO-APIC   4-edge      ttyS0"),
        ("8", 0, "IO-APIC   8-edge      rtc0"),
        ("24", 0, "PCI-MSI 65536-edge      virtio0-config"),
        ("25", 40211, "PCI-MSI 65537-edge      virtio0-req.0"),
        ("26", 88104, "PCI-MSI 81921-edge      virtio1-input.0"),
        ("NMI", 0, "Non-maskable interrupts"),
        ("LOC", machine.uptime * 12, "Local timer interrupts"),
        ("RES", 0, "Rescheduling interrupts"),
        ("CAL", 0, "Function call interrupts"),
        ("TLB", 0, "TLB shootdowns"),
    ]
    lines = ["     " + "".join(f"{'CPU' + str(number):>11}" for number in range(count))]
    for name, value, text in rows:
        numbers = "".join(f"{value if number == 0 else 0:11}" for number in range(count))
        lines.append(f"{name:>3}: {numbers}   {text}")
    return _text(lines)


def _softirqs(machine: Machine) -> bytes:
    names = ["HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET"]
    names += ["SCHED", "HRTIMER", "RCU"]
    values = (0, 402117, 3, 2207, 8120, 0, 0, 219871, 0, 282093)
    count = machine.cpu.count
    lines = [" " * 12 + "".join(f"{'CPU' + str(n):>11}" for n in range(count))]
    for name, value in zip(names, values, strict=True):
        lines.append(f"{name + ':':>12}" + f"{value:11}" * count)
    return _text(lines)


def _vmstat(machine: Machine) -> bytes:
    share = {key: value * 1024 // _PAGE for key, value in _memory(machine).items()}
    rows = {
        "nr_free_pages": share["free"], "nr_zone_inactive_anon": share["anon"],
        "nr_zone_active_anon": share["shmem"],
        "nr_zone_inactive_file": share["inactive"] - share["anon"],
        "nr_zone_active_file": share["active"] - share["shmem"], "nr_mlock": 0,
        "nr_inactive_anon": share["anon"], "nr_active_anon": share["shmem"],
        "nr_slab_reclaimable": share["slab"] * 3 // 5,
        "nr_slab_unreclaimable": share["slab"] - share["slab"] * 3 // 5,
        "nr_anon_pages": share["anon"], "nr_mapped": share["mapped"],
        "nr_file_pages": share["cached"] + share["buffers"], "nr_dirty": 3, "nr_writeback": 0,
        "nr_shmem": share["shmem"], "nr_kernel_stack": 1232, "nr_page_table_pages": 251,
        "pgpgin": 151552, "pgpgout": 34048, "pswpin": 0, "pswpout": 0, "pgalloc_dma32": 4120119,
        "pgfree": 4152310, "pgactivate": 10223, "pgdeactivate": 0, "pgfault": 6120034,
        "pgmajfault": 812, "oom_kill": 0,
    }  # fmt: skip
    return _text(f"{key} {value}" for key, value in rows.items())


def _free_blocks(machine: Machine) -> list[int]:
    """Free blocks of 2^n pages, n from 0 to 10, that add up to about the free memory."""
    pages = _memory(machine)["free"] * 1024 // _PAGE
    counts = []
    for order in range(11):
        counts.append(max(0, pages // 11 >> order))
    return counts


def _zoneinfo(machine: Machine) -> bytes:
    pages = machine.memory // _PAGE
    free = _memory(machine)["free"] * 1024 // _PAGE
    return _text(
        [
            "Node 0, zone    DMA32", f"  pages free     {free}", "        boost    0",
            "        min      468", "        low      585", "        high     702",
            f"        spanned  {pages}", f"        present  {pages}", f"        managed  {pages}",
            "        protection: (0, 0, 0, 0)", "  start_pfn:           1",
        ]
    )  # fmt: skip


def _text(lines: Iterable[str]) -> bytes:
    """Lines joined, each with its newline."""
    return "".join(f"{line}\n" for line in lines).encode()
