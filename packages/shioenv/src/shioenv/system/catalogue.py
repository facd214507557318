"""System tokens: names for the placeholders of grammars, read from a built system's index.

Nothing is executed. File names are raw and sorted by their bytes, and may contain blanks, quotes
and newlines. Grammars quote names themselves; other callers use `quoted_name`. Names of files in
the start directory are relative to it, all others are absolute.
"""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from shioenv.bash import words
from shioenv.errors import StartDirectoryError
from shioenv.system.store import IndexEntry, System

_SUFFIXES: Mapping[str, tuple[str, ...]] = {
    "TextFile": (".txt", ".md", ".html", ".csv", ".tsv", ".json", ".yaml", ".ini", ".conf", ".log"),
    "CsvFile": (".csv",),
    "HtmlFile": (".html",),
    "ImageFile": (".png", ".gif", ".svg"),
    "JsonFile": (".json",),
    "LogFile": (".log", ".log.1"),
    "ScriptFile": (".sh", ".py", ".awk"),
    "TarFile": (".tar", ".tar.gz", ".tgz"),
    "GzipFile": (".gz", ".tgz"),
    "CpioFile": (".cpio",),
    "ZipFile": (".zip",),
}
"""Suffixes of regular files, by token. Files in `misc` are excluded, because they are odd on
purpose."""

_GLOBAL: Mapping[str, tuple[str, ...]] = {
    "GlobalFile": (
        "/etc/passwd", "/etc/group", "/etc/shadow", "/etc/hosts", "/etc/hostname", "/etc/fstab",
        "/etc/os-release", "/etc/issue", "/etc/profile", "/etc/bash.bashrc", "/etc/services",
        "/etc/resolv.conf", "/etc/login.defs", "/etc/nsswitch.conf", "/etc/shells",
        "/etc/debian_version", "/etc/apt/sources.list", "/var/log/syslog", "/var/log/wtmp",
        "/root/.bashrc", "/root/.profile", "/usr/share/common-licenses/GPL-3", "/bin/ls",
    ),
    "GlobalDirectory": (
        "/", "/bin", "/etc", "/etc/apt", "/home", "/home/ubuntu", "/home/alice", "/opt", "/root",
        "/srv", "/tmp", "/usr/bin", "/usr/share", "/var", "/var/log", "/var/tmp",
    ),
    "GlobalExecutable": (
        "/bin/bash", "/bin/cat", "/bin/echo", "/bin/false", "/bin/ls", "/bin/sh", "/bin/true",
        "/usr/bin/awk", "/usr/bin/env", "/usr/bin/id", "/usr/bin/printf", "/usr/bin/sort",
        "/usr/bin/wc", "/usr/sbin/ip",
    ),
    "Device": ("/dev/full", "/dev/null", "/dev/urandom", "/dev/zero"),
    "MountPoint": ("/", "/dev/shm", "/proc"),
}  # fmt: skip
"""A few hand-picked paths outside the start directory. Paths that a system lacks are omitted."""

_GROUPS = ("adm", "audio", "daemon", "games", "mail", "root", "sudo", "tty", "users", "www-data")


def catalogue(system: System, cwd: str | None = None) -> Mapping[str, tuple[str, ...]]:
    """Return names by token for inputs that start in `cwd` (default: the default start directory).

    If no file in `cwd` matches a token, names for the token come from the default start directory,
    as paths such as `../archives/archive.tar`. Raises StartDirectoryError if `cwd` is not a
    directory or not an absolute path.
    """
    default = system.resolve(system.declaration.start_directory) or "/"
    here = default if cwd is None else system.resolve(cwd) if cwd.startswith("/") else None
    if here is None or not system.is_directory(here):
        raise StartDirectoryError(
            f"{cwd!r} is not a directory of the system {system.name}",
            hint=f"start directories: {', '.join(system.declaration.session.start_directories)}",
        )
    nearby = _beneath(system, here, here)
    if here != default:
        elsewhere = _beneath(system, default, here)
        nearby = {token: names or elsewhere[token] for token, names in nearby.items()}
    machine, session = system.declaration.machine, system.declaration.session
    declared = {group.name for group in system.declaration.groups}
    tokens: dict[str, Iterable[str]] = {
        **nearby,
        **{
            token: [name for name in names if system.resolve(name) in system.index]
            for token, names in _GLOBAL.items()
        },
        "Username": sorted(system.facts["login_users"]),
        "Groupname": sorted(name for name in {*declared, *_GROUPS} if name in system.groups),
        "Interface": ["lo", *(interface.name for interface in machine.interfaces)],
        "BlockDevice": [disk.name for disk in machine.disks],
        "EnvVar": sorted(session.environment),
        "Hostname": ["localhost", machine.hostname],
        "IpAddress": ["127.0.0.1", *(interface.address for interface in machine.interfaces)],
        "Pid": ["1"],
    }
    return MappingProxyType({token: tuple(names) for token, names in tokens.items()})


def _beneath(system: System, directory: str, start: str) -> dict[str, list[str]]:
    """Return names by token for the files beneath `directory`, relative to `start`."""
    entries = [entry for entry in system.beneath(directory) if entry.path != directory]
    entries.sort(key=lambda entry: os.fsencode(entry.path))

    def names(wanted: Callable[[IndexEntry], bool]) -> list[str]:
        return [posixpath.relpath(entry.path, start) for entry in entries if wanted(entry)]

    def typed(suffixes: tuple[str, ...]) -> list[str]:
        return names(
            lambda entry: (
                stat.S_ISREG(entry.mode)
                and entry.size > 0
                and entry.path.endswith(suffixes)
                and "/misc/" not in entry.path
            )
        )

    files = names(lambda entry: stat.S_ISREG(entry.mode))
    top = [posixpath.relpath(directory, start)]
    return {
        "File": files,
        "Directory": top + names(lambda entry: stat.S_ISDIR(entry.mode)),
        "Executable": names(lambda e: stat.S_ISREG(e.mode) and bool(e.mode & 0o111)),
        "Symlink": names(lambda entry: stat.S_ISLNK(entry.mode)),
        "Fifo": names(lambda entry: stat.S_ISFIFO(entry.mode)),
        "EmptyFile": names(lambda entry: stat.S_ISREG(entry.mode) and entry.size == 0),
        "HardLink": names(lambda entry: stat.S_ISREG(entry.mode) and entry.links > 1),
        "HiddenFile": [name for name in files if posixpath.basename(name).startswith(".")],
        **{token: typed(suffixes) for token, suffixes in _SUFFIXES.items()},
    }


def quoted_name(name: str) -> str:
    """Return a name as a shell word, quoted only if necessary.

    A name that starts with a dash is prefixed with `./`, so that programs do not parse it as an
    option.
    """
    return words.quoted(f"./{name}" if name.startswith("-") else name)
