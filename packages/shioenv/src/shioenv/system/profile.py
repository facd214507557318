"""Generate the files that describe the declared machine to programs.

All are pure functions of the declaration. `root_files` are part of the root filesystem. They
include files of /etc that name the host, login records, the kernel log, and placeholders for device
nodes in /dev. They also include a tree of ordinary files and links for /sys, which the sandbox
copies and mounts read-only. `web_files` are the small web site that the system's gateway serves.
The files of /proc are in the module `proc`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from datetime import datetime
from importlib.resources.abc import Traversable
from socket import inet_aton
from typing import Any

from shioenv.system.answers import logged_in
from shioenv.system.declare import (
    Disk,
    Interface,
    Login,
    Machine,
    SystemDeclaration,
    systems_directory,
)
from shioenv.system.home_files import HomeEntry, text_of
from shioenv.system.image import Placed, device
from shioenv.system.proc import disk_statistics
from shioenv.system.processor import CACHES, LINE
from shioenv.system.templates import texts

_SECTOR = 512


# ---------------------------------------------------------------------------------------------
# Files in the root filesystem


def root_files(declaration: SystemDeclaration) -> list[Placed]:
    """Return the files that the profile adds to the root filesystem, in no particular order."""
    machine = declaration.machine
    files = [*_etc(declaration), *_dev(machine), *_sys(machine), *_login_records(declaration)]
    return [*files, *_run(declaration)]


def _etc(declaration: SystemDeclaration) -> Iterator[Placed]:
    machine = declaration.machine
    name = machine.hostname
    full = f"{name}.{machine.domain} {name}" if machine.domain else name
    hosts = ["127.0.0.1 localhost"]
    addresses = [interface.address for interface in machine.interfaces] or ["127.0.1.1"]
    hosts += [f"{address} {full}" for address in addresses]
    hosts += ["", "::1 localhost ip6-localhost ip6-loopback", "ff02::1 ip6-allnodes"]
    resolver = [f"nameserver {address}" for address in machine.nameservers]
    resolver += [f"search {machine.domain}"] if machine.domain else []
    mounts = [
        f"UUID={disk.uuid} {disk.mount} {disk.filesystem} defaults 0 1"
        for disk in machine.disks
        if disk.mount
    ]
    yield Placed("etc/hostname", data=text_of([name]))
    yield Placed("etc/hosts", data=text_of(hosts))
    yield Placed("etc/resolv.conf", data=text_of(resolver))
    number = [machine.machine_id] if machine.machine_id else []
    yield Placed("etc/machine-id", 0o444, text_of(number))
    yield Placed("etc/fstab", data=text_of(mounts))
    yield Placed("etc/apt/sources.list", data=text_of(declaration.distribution.mirrors))
    # the machine has no outside network: three retries would only delay the error by seven seconds
    yield Placed("etc/apt/apt.conf.d/80-retries", data=text_of(['Acquire::Retries "0";']))
    if "openssh-server" in declaration.distribution.packages:
        # the package would generate different keys in each build; these keys are not secret
        for key in systems_directory().joinpath("host_keys").iterdir():
            mode = 0o644 if key.name.endswith(".pub") else 0o600
            yield Placed(f"etc/ssh/{key.name}", mode, key.read_bytes())
    # passwords are locked, as on cloud machines, so sudo must not ask for them
    may = [user.name for user in declaration.users if "sudo" in user.groups]
    rules = [f"{name} ALL=(ALL) NOPASSWD:ALL" for name in may]
    yield Placed("etc/sudoers.d/90-cloud-init-users", 0o440, text_of(rules))


_DISK, _TTY, _DIALOUT, _KMEM = 6, 5, 20, 15
"""Group ids, which are fixed in Debian's and Ubuntu's base-passwd."""

_MISC = {
    "autofs": 235, "btrfs-control": 234, "cpu_dma_latency": 124, "hwrng": 183, "psaux": 1,
    "mapper/control": 236, "snapshot": 231, "uinput": 223, "vga_arbiter": 63, "vhost-net": 238,
}  # fmt: skip
"""Minor numbers of devices with major number 10 that only root may open."""


def _dev(machine: Machine) -> Iterator[Placed]:
    """Yield the files of a virtual machine's /dev, except those that the sandbox mounts."""
    yield Placed("dev/kmsg", 0o644, kernel_log(machine))
    for name, minor in _MISC.items():
        yield Placed(f"dev/{name}", **device("c", 10, minor))
    for name, major, minor, mode, gid in (
        ("console", 5, 1, 0o600, 0), ("cpu/0/cpuid", 203, 0, 0o600, 0),
        ("cpu/0/msr", 202, 0, 0o600, 0), ("fuse", 10, 229, 0o666, 0),
        ("input/event0", 13, 64, 0o660, 0), ("input/mice", 13, 63, 0o660, 0),
        ("loop-control", 10, 237, 0o660, _DISK), ("mem", 1, 1, 0o640, _KMEM),
        ("net/tun", 10, 200, 0o666, 0), ("nvram", 10, 144, 0o640, _KMEM),
        ("port", 1, 4, 0o640, _KMEM), ("ppp", 108, 0, 0o600, 0),
        ("rtc0", 250, 0, 0o600, 0),
    ):  # fmt: skip
        yield Placed(f"dev/{name}", **device("c", major, minor, mode, gid))
    for number in range(64):
        yield Placed(f"dev/tty{number}", **device("c", 4, number, 0o620, _TTY))
    for number in range(4):
        yield Placed(f"dev/ttyS{number}", **device("c", 4, 64 + number, 0o660, _DIALOUT))
    for number in range(7):
        for name, first in (("vcs", 0), ("vcsu", 64), ("vcsa", 128)):
            screen = device("c", 7, first + number, 0o660, _TTY)
            yield Placed(f"dev/{name}{number or ''}", **screen)
    for number in range(8):
        yield Placed(f"dev/loop{number}", **device("b", 7, number, 0o660, _DISK))
    for disk in machine.disks:
        yield Placed(f"dev/{disk.name}", **device("b", disk.major, disk.minor, 0o660, _DISK))
        yield Placed(f"dev/block/{disk.major}:{disk.minor}", target=f"../{disk.name}")
        for kind, name in {"uuid": disk.uuid, "label": disk.label}.items():
            if name:
                yield Placed(f"dev/disk/by-{kind}/{name}", target=f"../../{disk.name}")
        known = {"UUID": disk.uuid, "LABEL": disk.label, "TYPE": disk.filesystem}
        known |= {f"{name}_ENC": known[name] for name in ("UUID", "LABEL")}
        known["VERSION"] = "1.0" if disk.filesystem == "ext4" else ""
        lines = [f"E:ID_FS_{name}={value}" for name, value in known.items() if value]
        place = f"run/udev/data/b{disk.major}:{disk.minor}"
        yield Placed(place, data=text_of(["I:1412000", *lines, "G:systemd"]))
    yield Placed("dev/rtc", target="rtc0")
    yield Placed("dev/initctl", target="/run/initctl")
    yield Placed("dev/log", target="/run/systemd/journal/dev-log")
    yield Placed("run/systemd/journal/dev-log", **device("s", 0, 0, 0o666))
    yield Placed("dev/hugepages", 0o755)


def _run(declaration: SystemDeclaration) -> Iterator[Placed]:
    """Yield the files that booting and logins create in /run."""
    for process in declaration.machine.processes:
        if process.pid_file:
            yield Placed(process.pid_file.strip("/"), data=text_of([str(process.pid)]))
    if "openssh-server" in declaration.distribution.packages:
        yield Placed("run/sshd", 0o755)
    for uid, gid in logged_in(declaration):
        yield Placed(f"run/user/{uid}", 0o700, uid=uid, gid=gid)


def _sys(machine: Machine) -> Iterator[Placed]:
    """Yield the files, links and directories beneath /sys."""
    disks = [_disk(machine, disk) for disk in machine.disks]
    loopback = Interface("lo", "00:00:00:00:00:00", "127.0.0.1", 8, "", 65536)
    interfaces = [
        _net(one, number + 1) for number, one in enumerate([loopback, *machine.interfaces])
    ]
    values = _processors(machine) | {
        "memory": machine.memory // 1024, "sector": _SECTOR, "disk": disks,
        "modelled": [disk for disk in disks if disk["disk"].model], "interface": interfaces,
        # for /proc/modules if the host's kernel has none (`native/library/proc.c`)
        "module": [_module(line) for line in machine.kernel.modules],
    }  # fmt: skip
    for path, text in texts("sys", values).items():
        yield Placed(f"sys/{path}", 0o444, text.encode())
    for number in range(machine.cpu.count):
        node = f"sys/devices/system/cpu/cpu{number}/node0"
        yield Placed(node, target="../../node/node0")
    for name in ("init.scope", "system.slice", "user.slice"):
        yield Placed(f"sys/fs/cgroup/{name}", 0o755)
    for name in ("firmware", "bus", "power", "hypervisor", "dev/char", "module"):
        yield Placed(f"sys/{name}", 0o755)
    if not disks:
        yield Placed("sys/dev/block", 0o755)
    for disk in disks:
        yield from _block(disk["disk"], disk["where"])
    for interface in interfaces:
        name, where = interface["interface"].name, interface["where"]
        yield Placed(f"sys/class/net/{name}", target=f"../../{where}")
    yield from _modules(machine)


def _modules(machine: Machine) -> Iterator[Placed]:
    """Yield the users of each kernel module in /sys, and an empty /lib/modules directory."""
    for module in map(_module, machine.kernel.modules):
        holders = f"sys/module/{module['name']}/holders"
        yield Placed(holders, 0o755)
        users = module["users"]
        for user in users.strip("-,").split(",") if users != "-" else ():
            yield Placed(f"{holders}/{user}", target=f"../../{user}")
    top = f"lib/modules/{machine.kernel.release}"
    for name in ("modules.builtin", "modules.dep", "modules.order"):
        yield Placed(f"{top}/{name}", data=b"")


def _module(line: str) -> dict[str, str]:
    """Parse a line of /proc/modules into fields by name."""
    name, size, references, users = line.split()[:4]
    return {
        "written": line, "name": name, "size": size, "references": references, "users": users,
    }  # fmt: skip


def _processors(machine: Machine) -> dict[str, Any]:
    """Return the values of the template `sys` for processors and their caches."""
    count, mask = machine.cpu.count, f"{(1 << machine.cpu.count) - 1:x}"
    processors = [{"number": number, "own": f"{1 << number:x}"} for number in range(count)]
    caches = []
    for processor in processors:
        for index, (name, level, kind, ways) in enumerate(CACHES):
            size = machine.cpu.caches[name]
            caches.append(processor | {
                "index": index, "level": level, "type": kind, "size": size // 1024, "ways": ways,
                "sets": size // LINE // ways, "shared": mask if level == 3 else processor["own"],
            })  # fmt: skip
    return {
        "processors": "0" if count == 1 else f"0-{count - 1}", "mask": mask, "line": LINE,
        "processor": processors, "removable": processors[1:], "cache": caches,
    }  # fmt: skip


def _disk(machine: Machine, disk: Disk) -> dict[str, Any]:
    """Return the values of the template `sys` for a disk."""
    index = machine.disks.index(disk)
    device = f"devices/pci0000:00/0000:00:0{index + 4}.0/virtio{index}"
    return {
        "disk": disk, "number": index + 1, "device": device,
        "where": f"{device}/block/{disk.name}", "sectors": disk.size // _SECTOR,
        "statistics": disk_statistics(disk),
    }  # fmt: skip


def _block(disk: Disk, where: str) -> Iterator[Placed]:
    """Yield the links and directories of a disk in /sys."""
    up = "../" * (where.count("/") + 1)
    yield Placed(f"sys/block/{disk.name}", target=f"../{where}")
    yield Placed(f"sys/class/block/{disk.name}", target=f"../../{where}")
    yield Placed(f"sys/dev/block/{disk.major}:{disk.minor}", target=f"../../{where}")
    yield Placed(f"sys/{where}/subsystem", target=f"{up}class/block")
    yield Placed(f"sys/{where}/device", target="../..")
    for name in ("bdi", "holders", "slaves"):
        yield Placed(f"sys/{where}/{name}", 0o755)


def _net(interface: Interface, number: int) -> dict[str, Any]:
    """Return the values of the template `sys` for a network interface."""
    loopback = interface.name == "lo"
    card = f"devices/pci0000:00/0000:00:03.0/virtio9{number}/net"
    parent = "devices/virtual/net" if loopback else card
    return {
        "interface": interface, "number": number, "where": f"{parent}/{interface.name}",
        "state": "unknown" if loopback else "up", "type": 772 if loopback else 1,
        "flags": "0x9" if loopback else "0x1003",
        "broadcast": "00:00:00:00:00:00" if loopback else "ff:ff:ff:ff:ff:ff",
    }  # fmt: skip


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
    utmp = up + level + b"".join(_record(_USER, login, login.begin) for login in current)
    yield Placed("run/utmp", 0o664, utmp, mtime=last, gid=group)
    wtmp = b"".join(record for _, _, record in events)
    yield Placed("var/log/wtmp", 0o664, wtmp, mtime=last, gid=group)
    failed = b"".join(_record(_LOGIN, login, login.begin) for login in machine.failed_logins)
    failures = [int(login.begin.timestamp()) for login in machine.failed_logins]
    yield Placed("var/log/btmp", 0o660, failed, mtime=max(failures, default=None), gid=group)
    accounts = declaration.accounts
    table = bytearray()
    for login in sorted(machine.logins, key=lambda login: login.begin):
        if login.user == "reboot":
            continue
        at = accounts[login.user][0] * _LASTLOG.size
        table.extend(bytes(max(0, at + _LASTLOG.size - len(table))))
        _LASTLOG.pack_into(
            table, at, int(login.begin.timestamp()), login.line.encode(), login.host.encode()
        )
    yield Placed("var/log/lastlog", 0o664, bytes(table), mtime=last, gid=group, holes=True)


def kernel_log(machine: Machine) -> bytes:
    """Return /dev/kmsg as a file, with records padded to 8,191 bytes, the read size of dmesg."""
    records = bytearray()
    for number, (seconds, text) in enumerate(machine.kernel.log):
        line = f"6,{number},{round(seconds * 1e6)},-;{text}".encode()
        records += line.ljust(8191, b"\0")
    return bytes(records)


# ---------------------------------------------------------------------------------------------
# The web site of the gateway, for curl and wget

_ARCHIVE = "archives/backup.tar.gz"
"""The file of the home tree that the site serves as `files/archive.tar.gz`."""


def web_files(declaration: SystemDeclaration, home: tuple[HomeEntry, ...]) -> dict[str, bytes]:
    """Return contents by path: the pages of this package, and the archive of the home tree."""
    files: dict[str, bytes] = {}

    def add(directory: Traversable, prefix: str) -> None:
        for page in sorted(directory.iterdir(), key=lambda page: page.name):
            if page.is_dir():
                add(page, f"{prefix}{page.name}/")
            else:
                files[prefix + page.name] = page.read_bytes()

    add(systems_directory().joinpath("web"), "")
    for entry in home:
        if entry.path == _ARCHIVE:
            files["files/archive.tar.gz"] = entry.data
    return files
