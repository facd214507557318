"""Generate the files of /proc for a declared machine."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from shioenv.system.answers import Answers, memory_shares
from shioenv.system.declare import Disk, Machine, SystemDeclaration
from shioenv.system.home_files import text_of
from shioenv.system.processor import ADDRESS_BITS, LINE, level
from shioenv.system.templates import texts

MASKED = (
    "bootconfig", "config.gz", "kallsyms", "kcore", "key-users", "keys", "kmsg", "kpagecgroup",
    "kpagecount", "kpageflags", "latency_stats", "sched_debug", "slabinfo", "sysrq-trigger",
    "timer_list", "vmallocinfo",
)  # fmt: skip
"""Unneeded entries of /proc that reveal the host; an empty file is bind-mounted over them."""


_PAGE = 4096

_SOFTIRQS = {
    "HI": 0, "TIMER": 402117, "NET_TX": 3, "NET_RX": 2207, "BLOCK": 8120, "IRQ_POLL": 0,
    "TASKLET": 0, "SCHED": 219871, "HRTIMER": 0, "RCU": 282093,
}  # fmt: skip


def proc_files(declaration: SystemDeclaration, answers: Answers) -> dict[str, bytes]:
    """Return contents by path relative to /proc.

    They do not include `uptime`, which a supervisor writes. If programs see the host's kernel, they
    do not include the files that name the kernel.
    """
    machine = declaration.machine
    boot = int(declaration.boot_time.timestamp())
    files = _encoded("proc", _values(machine))
    files |= _encoded("live", _live(machine, boot, machine.kernel.release))
    if answers.kernel == "declared":
        files["sys/kernel/osrelease"] = text_of([machine.kernel.release])
        files["sys/kernel/version"] = text_of([machine.kernel.version])
    return files | dict.fromkeys(MASKED, b"")


def live_proc_files(
    declaration: SystemDeclaration, *, now: float, release: str
) -> dict[str, bytes]:
    """Return the entries of `proc_files` that depend on a run's real clock and kernel.

    The boot time in `stat` is `now`, in seconds since 1970, minus the declared uptime, as in the
    time namespace. `version` contains `release`, as shown by `uname`.
    """
    machine = declaration.machine
    return _encoded("live", _live(machine, round(now) - machine.uptime, release))


def _encoded(template: str, values: Mapping[str, Any]) -> dict[str, bytes]:
    return {path: text.encode() for path, text in texts(template, values).items()}


def _boot_id(machine: Machine) -> uuid.UUID:
    digest = hashlib.sha256(f"boot {machine.machine_id}".encode()).digest()
    return uuid.UUID(bytes=digest[:16], version=4)


def _values(machine: Machine) -> dict[str, Any]:
    """Return the values of the template `proc`."""
    cpu, count = machine.cpu, machine.cpu.count
    shares = memory_shares(machine)
    kilobytes = _memory(shares)
    pages = _memory({name: share * 1024 // _PAGE for name, share in shares.items()})
    physical, virtual = ADDRESS_BITS
    blocks = {7: "loop", 259: "blkext"} | {disk.major: "virtblk" for disk in machine.disks}
    swap = machine.swap >> 10
    return {
        "machine": machine, "cpu": cpu, "boot_id": _boot_id(machine),
        # as in Linux: an eighth of the memory for stacks of 16 KiB
        "threads": kilobytes.total // (8 * 16),
        "load": " ".join(f"{load:.2f}" for load in machine.load),
        "processor": [{"number": number} for number in range(count)],
        "processors": "".join(f"{f'CPU{number}':>11}" for number in range(count)),
        "others": f"{0:11}" * (count - 1), "local_timer": machine.uptime * 12,
        "cache": cpu.caches["L3"] // 1024, "level": level(cpu), "line": LINE,
        "flags": " ".join(cpu.flags), "bugs": " ".join(cpu.bugs),
        "physical": physical, "virtual": virtual,
        "kilobytes": kilobytes, "pages": pages, "all_pages": machine.memory // _PAGE,
        # free blocks of 2^n pages that add up to about the free memory
        "free_blocks": " ".join(f"{pages.free // 11 >> order:6}" for order in range(11)),
        "swap": [{"swap": swap}] if swap else [], "swap_total": swap,
        "commit_limit": kilobytes.total // 2 + swap, "committed": kilobytes.total * 12 // 100,
        "direct_small": kilobytes.total * 9 // 10, "direct_large": kilobytes.total // 10,
        "block": [{"major": major, "name": blocks[major]} for major in sorted(blocks)],
        "disk": [
            {"disk": disk, "statistics": disk_statistics(disk), "size": disk.size >> 10}
            for disk in machine.disks
        ],
        "module": [{"line": line} for line in machine.kernel.modules],
        "softirq": [
            {"name": f"{name}:", "counts": f"{number:11}" * count}
            for name, number in _SOFTIRQS.items()
        ],
    }  # fmt: skip


def _memory(shares: Mapping[str, int]) -> SimpleNamespace:
    """Return the memory statistics, and values derived from them, in the unit of `shares`."""
    reclaimable = shares["slab"] * 3 // 5
    return SimpleNamespace(
        **shares,
        active_file=shares["active"] - shares["shmem"],
        inactive_file=shares["inactive"] - shares["anon"],
        files=shares["cached"] + shares["buffers"],
        reclaimable=reclaimable,
        unreclaimable=shares["slab"] - reclaimable,
    )


def _live(machine: Machine, boot: int, release: str) -> dict[str, Any]:
    """Return the values of the template `live`, the files that depend on the run."""
    times, count = _times(machine), machine.cpu.count
    own = " ".join(map(str, times))
    return {
        "machine": machine, "release": release, "boot": boot, "times": own,
        "all_times": " ".join(str(time * count) for time in times),
        "processor": [{"number": number} for number in range(count)],
        "interrupts": machine.uptime * 31, "switches": machine.uptime * 57,
        "softirq_counts": " ".join(map(str, _SOFTIRQS.values())),
    }  # fmt: skip


def _times(machine: Machine) -> tuple[int, ...]:
    """Return the times of one processor in hundredths of a second: user, nice, system, idle, ..."""
    ticks = machine.uptime * 100
    user, system, waiting = ticks // 250, ticks // 400, ticks // 900
    idle = ticks - user - system - waiting
    return (user, 0, system, idle, waiting, 0, 117, 0, 0, 0)


def idle_time(machine: Machine) -> int:
    """Return the total idle time of all processors at the instant, in hundredths of a second."""
    return _times(machine)[3] * machine.cpu.count


def disk_statistics(disk: Disk) -> str:
    """Return the 17 numbers of /sys/block/NAME/stat and /proc/diskstats."""
    scale = max(1, disk.size >> 20)
    reads, writes = scale * 23, scale * 7 if disk.mount else 0
    rest = (reads, scale * 3, reads * 28, reads // 2, writes, writes // 2, writes * 19, writes)
    return " ".join(str(number) for number in (*rest, 0, reads, reads + writes, 0, 0, 0, 0, 0, 0))
