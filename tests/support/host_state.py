"""The host's state that an input must not change, as comparable values."""

from __future__ import annotations

import os
import socket
import time
from functools import cache
from pathlib import Path
from typing import Any

MARK = "shioenv-escaped"
"""The name of files that hostile inputs try to make on the host."""

_WRITABLE = ("/", "/tmp", "/var/tmp", "/root", "/home", "/dev", "/dev/shm", "/run", "/etc", ".")
_SYSCTLS = ("kernel", "vm", "user", "fs", "fs/mqueue", "net/core")
_RESTLESS = ("ns_last_pid", "dentry-state", "file-nr", "inode-nr", "inode-state", "stat_refresh")


class Canaries:
    """Things of the host that no input can reach: files, a TCP port, two Unix sockets."""

    def __init__(self, directory: Path, secret: str) -> None:
        self.directory, self.secret = directory, secret
        (directory / "secret").write_text(secret)
        (directory / "secret").chmod(0o666)
        (directory / "inner").mkdir(mode=0o777)
        directory.chmod(0o777)
        self.tcp = socket.create_server(("0.0.0.0", 0))
        self.abstract = socket.socket(socket.AF_UNIX)
        self.abstract.bind("\0" + secret)
        self.unix = socket.socket(socket.AF_UNIX)
        self.unix.bind(str(directory / "socket"))
        for each in (self.tcp, self.abstract, self.unix):
            each.listen()
            each.setblocking(False)
        (directory / "socket").chmod(0o777)

    def words(self) -> dict[str, str]:
        """Return the words that replace `@NAME@` in a case's text."""
        return {
            "CANARY": str(self.directory),
            "SOCKET": self.secret,
            "PORT": str(self.tcp.getsockname()[1]),
            "MARK": MARK,
        }

    def state(self) -> dict[str, Any]:
        """Return every file with its content, and the received connections."""
        found: dict[str, Any] = {}
        for path in (self.directory, *sorted(self.directory.rglob("*"))):
            status = path.lstat()
            row = [status.st_mode, status.st_uid, status.st_ino, status.st_mtime_ns, status.st_size]
            found[str(path)] = (*row, path.read_bytes() if path.is_file() else b"")
        for name in ("tcp", "abstract", "unix"):
            try:
                found[name] = getattr(self, name).accept()
            except BlockingIOError:
                found[name] = None
        return found

    def close(self) -> None:
        for each in (self.tcp, self.abstract, self.unix):
            each.close()


def host_state(canaries: Canaries, process: int) -> dict[str, Any]:
    """Return files, mounts, network, names, settings and the clock of the host, as `process` sees
    them."""
    made = [f"{top}/{name}" for top in _WRITABLE for name in _names(top) if MARK in name]
    return {
        "canaries": canaries.state(),
        "made": made,
        "cwd": str(Path(f"/proc/{process}/cwd").readlink()),
        "mounts": _read(f"/proc/{process}/mountinfo"),
        "links": sorted(line.split(":")[0] for line in _lines("/proc/net/dev")),
        "addresses": sorted(_lines("/proc/net/if_inet6")),
        "routes": sorted(_lines("/proc/net/route")),
        "names": (os.uname(), _read("/proc/sys/kernel/domainname")),
        "sysctls": _sysctls(),
        "ipc": [_read(f"/proc/sysvipc/{kind}").count("\n") for kind in ("shm", "sem", "msg")],
        "swaps": _read("/proc/swaps"),
        "priority": (
            os.getpriority(os.PRIO_PROCESS, process),
            sorted(os.sched_getaffinity(process)),
        ),
        # to the second, half a second off the edge: time synchronisation adjusts clocks by less
        "clock": round(time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) - _BOOT),
    }


_BOOT = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def descendants(process: int) -> dict[int, str]:
    """Return the names of all processes below one, by PID."""
    found: dict[int, str] = {}
    queue = [process]
    while queue:
        parent = queue.pop()
        for child in map(int, _read(f"/proc/{parent}/task/{parent}/children").split()):
            name = _read(f"/proc/{child}/comm").rstrip("\n")
            if name:
                found[child] = name
                queue.append(child)
    return found


def _read(path: str) -> str:
    try:
        return Path(path).read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""


def _names(directory: str) -> list[str]:
    try:
        return [path.name for path in Path(directory).iterdir()]
    except OSError:
        return []


def _lines(path: str) -> list[str]:
    return _read(path).splitlines()


@cache
def _settings() -> list[str]:
    """Return the settings of the host that do not change by themselves."""
    found = []
    for directory in _SYSCTLS:
        for path in sorted(Path("/proc/sys", directory).glob("*")):
            if path.is_file() and path.name not in _RESTLESS:
                found.append(str(path))
    return found


def _sysctls() -> dict[str, str]:
    found = {}
    for path in _settings():
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except OSError:
            continue
        try:
            found[path] = os.read(descriptor, 4096).decode()
        except OSError:
            continue
        finally:
            os.close(descriptor)
    return found
