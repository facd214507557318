"""What programs read in /proc of a declared machine."""

from __future__ import annotations

import hashlib
import uuid

from shioenv.system.answers import Answers, memory_shares
from shioenv.system.declare import Disk, Machine, SystemDeclaration
from shioenv.system.home_files import text_of
from shioenv.system.processor import ADDRESS_BITS, LINE, level

MASKED = (
    "bootconfig", "config.gz", "kallsyms", "kcore", "key-users", "keys", "kmsg", "kpagecgroup",
    "kpagecount", "kpageflags", "latency_stats", "sched_debug", "slabinfo", "sysrq-trigger",
    "timer_list", "vmallocinfo",
)  # fmt: skip
"""Entries of /proc that tell of the host and that nothing needs: bound over with an empty file."""


_PAGE = 4096

_SOFTIRQS = {
    "HI": 0, "TIMER": 402117, "NET_TX": 3, "NET_RX": 2207, "BLOCK": 8120, "IRQ_POLL": 0,
    "TASKLET": 0, "SCHED": 219871, "HRTIMER": 0, "RCU": 282093,
}  # fmt: skip


def proc_files(declaration: SystemDeclaration, told: Answers) -> dict[str, bytes]:
    """Contents by name beneath /proc, for all but `uptime` (a supervisor writes that) and, where
    programs are told the host's kernel, what names it.
    """
    machine = declaration.machine
    boot = int(declaration.boot_time.timestamp())
    files = {
        "sys/kernel/random/boot_id": text_of([str(_boot_id(machine))]),
        # as Linux does: an eighth of the memory for stacks of 16 KiB
        "sys/kernel/threads-max": text_of([str(memory_shares(machine)["total"] // (8 * 16))]),
        "sys/kernel/pty/nr": text_of(["1"]),
        "sys/fs/dentry-state": text_of(["10211\t3120\t45\t0\t1842\t0"]),
        "sys/fs/file-nr": text_of(["1056\t0\t9223372036854775807"]),
        "sys/fs/inode-nr": text_of(["16023\t412"]),
        "sys/fs/inode-state": text_of(["16023\t412\t0\t0\t0\t0\t0"]),
        "cmdline": text_of([machine.kernel.command_line]),
        "consoles": text_of(["ttyS0                -W- (EC p a)    4:64"]),
        "cpuinfo": _cpuinfo(machine),
        "crypto": b"",
        "devices": _devices(machine),
        "diskstats": text_of(
            f"{disk.major:4} {disk.minor:7} {disk.name} {disk_statistics(disk)}"
            for disk in machine.disks
        ),
        "dma": text_of([" 4: cascade"]),
        "fb": b"",
        "filesystems": _filesystems(),
        "interrupts": _interrupts(machine),
        "iomem": b"",
        "ioports": b"",
        "loadavg": text_of([" ".join(f"{load:.2f}" for load in machine.load) + " 1/64 2048"]),
        "locks": b"",
        "mdstat": text_of(["Personalities : ", "unused devices: <none>"]),
        "meminfo": _meminfo(machine),
        "misc": text_of(
            ["183 hw_random", "  1 psaux", "229 fuse", "235 autofs", "237 loop-control"]
        ),
        "modules": text_of(machine.kernel.modules),
        "mtrr": b"",
        "partitions": _partitions(machine),
        "schedstat": text_of(["version 15", "timestamp 4319231415"]),
        "softirqs": _softirqs(machine),
        "stat": _stat(machine, boot),
        "swaps": _swaps(machine),
        "version": _version(machine, machine.kernel.release),
        "vmstat": _vmstat(machine),
        "zoneinfo": _zoneinfo(machine),
        "buddyinfo": text_of(
            ["Node 0, zone    DMA32    " + " ".join(f"{free:6}" for free in _free_blocks(machine))]
        ),
        "pagetypeinfo": b"",
        "cgroups": text_of(["#subsys_name\thierarchy\tnum_cgroups\tenabled"]),
    }
    if told.kernel == "declared":
        files["sys/kernel/osrelease"] = text_of([machine.kernel.release])
        files["sys/kernel/version"] = text_of([machine.kernel.version])
    return files | dict.fromkeys(MASKED, b"")


def _boot_id(machine: Machine) -> uuid.UUID:
    digest = hashlib.sha256(f"boot {machine.machine_id}".encode()).digest()
    return uuid.UUID(bytes=digest[:16], version=4)


def live_proc_files(
    declaration: SystemDeclaration, *, now: float, release: str
) -> dict[str, bytes]:
    """The entries of `proc_files` that agree with a run's own clock and kernel.

    `stat` says when the machine was booted: `now`, in seconds since 1970, less the declared uptime,
    as the time namespace has it. `version` names the `release` that `uname` shows.
    """
    machine = declaration.machine
    return {
        "stat": _stat(machine, round(now) - machine.uptime),
        "version": _version(machine, release),
    }


def _version(machine: Machine, release: str) -> bytes:
    return text_of([f"Linux version {release} {machine.kernel.build}"])


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
            "cpuid level\t": level(cpu),
            "wp\t\t": "yes",
            "flags\t\t": " ".join(cpu.flags),
            "bugs\t\t": " ".join(cpu.bugs),
            "bogomips\t": f"{cpu.bogomips:.2f}",
            "clflush size\t": LINE,
            "cache_alignment\t": LINE,
            "address sizes\t": "{} bits physical, {} bits virtual".format(*ADDRESS_BITS),
            "power management": "",
        }
        text += [f"{key}: {value}" if value != "" else f"{key}:" for key, value in fields.items()]
        text.append("")
    return text_of(text)


def _meminfo(machine: Machine) -> bytes:
    share = memory_shares(machine)
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
    return text_of(lines)


def _times(machine: Machine) -> tuple[int, ...]:
    """Of one processor: user, nice, system, idle, ... in hundredths of a second; mostly idle."""
    ticks = machine.uptime * 100
    user, system, waiting = ticks // 250, ticks // 400, ticks // 900
    idle = ticks - user - system - waiting
    return (user, 0, system, idle, waiting, 0, 117, 0, 0, 0)


def idle_time(machine: Machine) -> int:
    """Hundredths of a second that its processors had no work, from booting to the instant."""
    return _times(machine)[3] * machine.cpu.count


def _stat(machine: Machine, boot: int) -> bytes:
    times, count = _times(machine), machine.cpu.count
    names = {"cpu ": count} | {f"cpu{number}": 1 for number in range(count)}
    lines = [" ".join([name, *(str(time * n) for time in times)]) for name, n in names.items()]
    lines += [f"intr {machine.uptime * 31}" + " 0" * 24, f"ctxt {machine.uptime * 57}"]
    lines += [f"btime {boot}", "processes 2048", "procs_running 1", "procs_blocked 0"]
    lines.append(f"softirq 914411 {' '.join(str(number) for number in _SOFTIRQS.values())}")
    return text_of(lines)


def _devices(machine: Machine) -> bytes:
    characters = {1: "mem", 4: "tty", 5: "ptmx", 7: "vcs", 10: "misc", 13: "input", 128: "ptm",
                  136: "pts", 229: "hvc", 254: "gpiochip"}  # fmt: skip
    blocks = {7: "loop", 259: "blkext"} | {disk.major: "virtblk" for disk in machine.disks}
    lines = ["Character devices:", *(f"{number:3} {name}" for number, name in characters.items())]
    lines += ["", "Block devices:", *(f"{number:3} {blocks[number]}" for number in sorted(blocks))]
    return text_of(lines)


def _filesystems() -> bytes:
    virtual = [
        "sysfs", "tmpfs", "bdev", "proc", "cgroup", "cgroup2", "devtmpfs", "debugfs", "tracefs",
        "securityfs", "sockfs", "bpf", "pipefs", "ramfs", "devpts", "hugetlbfs", "mqueue",
        "overlay",
    ]  # fmt: skip
    return text_of(
        [f"nodev\t{name}" for name in virtual] + ["\text3", "\text2", "\text4", "\tvfat"]
    )


def disk_statistics(disk: Disk) -> str:
    """The 17 numbers of /sys/block/NAME/stat and /proc/diskstats."""
    scale = max(1, disk.size >> 20)
    reads, writes = scale * 23, scale * 7 if disk.mount else 0
    rest = (reads, scale * 3, reads * 28, reads // 2, writes, writes // 2, writes * 19, writes)
    return " ".join(str(number) for number in (*rest, 0, reads, reads + writes, 0, 0, 0, 0, 0, 0))


def _partitions(machine: Machine) -> bytes:
    rows = [
        f"{disk.major:4} {disk.minor:8} {disk.size >> 10:10} {disk.name}" for disk in machine.disks
    ]
    return text_of(["major minor  #blocks  name", "", *rows])


def _swaps(machine: Machine) -> bytes:
    lines = ["Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority"]
    if machine.swap:
        lines.append(f"{'/swapfile':<40}file\t\t{machine.swap >> 10}\t\t0\t\t-2")
    return text_of(lines)


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
    return text_of(lines)


def _softirqs(machine: Machine) -> bytes:
    count = machine.cpu.count
    lines = [" " * 12 + "".join(f"{'CPU' + str(number):>11}" for number in range(count))]
    for name, value in _SOFTIRQS.items():
        lines.append(f"{name + ':':>12}" + f"{value:11}" * count)
    return text_of(lines)


def _vmstat(machine: Machine) -> bytes:
    share = {key: value * 1024 // _PAGE for key, value in memory_shares(machine).items()}
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
    return text_of(f"{key} {value}" for key, value in rows.items())


def _free_blocks(machine: Machine) -> list[int]:
    """Free blocks of 2^n pages, n from 0 to 10, that add up to about the free memory."""
    pages = memory_shares(machine)["free"] * 1024 // _PAGE
    return [pages // 11 >> order for order in range(11)]


def _zoneinfo(machine: Machine) -> bytes:
    pages = machine.memory // _PAGE
    free = memory_shares(machine)["free"] * 1024 // _PAGE
    return text_of([
        "Node 0, zone    DMA32", f"  pages free     {free}", "        boost    0",
        "        min      468", "        low      585", "        high     702",
        f"        spanned  {pages}", f"        present  {pages}", f"        managed  {pages}",
        "        protection: (0, 0, 0, 0)", "  start_pfn:           1",
    ])  # fmt: skip
