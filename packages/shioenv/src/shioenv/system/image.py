"""Compose a system's canonical tar archive from base, home tree and machine profile.

Canonical means that the inputs alone determine every byte, so the same inputs give the same SHA-256
on every host. Entries are sorted by path, and owners are numeric. There are no device nodes, and no
caches or logs of the base. No file is newer than the system's instant.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import IO, Any, Protocol, Self

from shioenv.errors import RootfsTarError
from shioenv.system.declare import SystemDeclaration
from shioenv.system.home_files import HomeEntry, text_of
from shioenv.system.values import LONGEST_PATH, too_long

HOLE = 4096
"""Block size in bytes: zero-filled blocks become holes of a sparse file."""

_EMPTIED = ("dev", "proc", "sys", "run", "tmp", "var/tmp", "var/log", "var/lib/apt/lists")
"""Directories of the base whose content is dropped."""

_AT_BOOTING = ("dev", "proc", "sys", "run")

_DROPPED = re.compile(
    r"(var/cache/apt/.*|var/cache/debconf/.*-old|var/cache/ldconfig/.*|var/lib/dpkg/.*-old"
    r"|var/lib/systemd/(catalog/database|random-seed)|etc/apt/apt\.conf\.d/99mmdebstrap"
    r"|etc/apt/sources\.list(\.d/.*)?|etc/(passwd|group|shadow|gshadow|subuid|subgid)-"
    r"|etc/\.pwd\.lock|\.dockerenv|\.dockerinit|var/lib/dbus/machine-id)\Z"
)
"""Files of the base that differ between builds of the same packages, or reveal the builder."""


@dataclass(frozen=True, slots=True)
class ImageEntry:
    """One entry of a root filesystem. Paths are relative, without a leading "./"; "" is the top."""

    path: str
    kind: int
    """File type bits of `st_mode`."""
    mode: int
    """Permission bits."""
    uid: int
    gid: int
    mtime: int
    target: str = ""
    """Target of a symbolic link."""
    size: int = 0
    data: bytes | None = None
    """Content, or None if it is in the base tar."""
    offset: int = 0
    """Offset of the content in the base tar."""
    holes: bool = False


class BaseStream(Protocol):
    """A seekable binary stream of the base tar."""

    def seek(self, offset: int, /) -> int: ...  # noqa: D102
    def read(self, size: int, /) -> bytes: ...  # noqa: D102


def base_time(declaration: SystemDeclaration) -> int:
    """Return the system's installation time in seconds since 1970, the latest time in the base.

    It is 177 days before the instant, so that the home tree is newer than the base.
    """
    return int((declaration.instant - timedelta(days=177)).timestamp())


class _Member(tarfile.TarInfo):
    """A tar member that rejects damaged headers, which tarfile takes for the archive's end."""

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> Self:
        try:
            return super().fromtarfile(archive)
        except (tarfile.EOFHeaderError, tarfile.EmptyHeaderError):  # type: ignore[attr-defined]
            raise
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(f"a header is damaged or cut off: {error}") from error


def read_base(base: Path, latest: int) -> dict[str, ImageEntry]:
    """Read the entries to keep from a root filesystem's tarball, by path.

    Times after `latest` become `latest`. Raises RootfsTarError if the file is not a tarball, is
    truncated, or contains no root filesystem. Raises it too for invalid names, names with `..`, and
    sparse files.
    """
    entries: dict[str, ImageEntry] = {}
    origins: dict[str, str] = {}
    size = base.stat().st_size
    try:
        with tarfile.open(base, "r:", tarinfo=_Member) as archive:
            for member in archive:
                entry = _from_member(member, latest)
                if entry is not None and not 0 <= entry.size <= size - entry.offset:
                    raise RootfsTarError(f"{base} is cut off in {member.name!r}")
                if entry is not None:
                    entries[entry.path] = entry
                    origins.pop(entry.path, None)
                    if member.islnk():
                        origins[entry.path] = "/".join(_parts(member.linkname))
    except (tarfile.TarError, OSError, EOFError, ValueError, OverflowError) as error:
        raise RootfsTarError(f"{base} cannot be read as a tarball: {error}") from error
    _separate(entries, origins)
    shells = [path for path in ("bin/bash", "usr/bin/bash") if path in entries]
    if not shells:
        raise RootfsTarError(
            f"{base} contains no /bin/bash: it is not the root filesystem of a system with Bash",
            hint="expected the vendor's base tarball, or the output of `docker export`",
        )
    return entries


def _from_member(member: tarfile.TarInfo, latest: int) -> ImageEntry | None:
    parts = _parts(member.name)
    if ".." in parts:
        raise RootfsTarError(f"the tarball contains {member.name!r}, which leaves its root")
    path = "/".join(parts)
    _refuse_name(member, parts)
    if member.isdev() or _DROPPED.match(path):
        return None
    for directory in _EMPTIED:
        if path.startswith(directory + "/") and (directory != "var/log" or not member.isdir()):
            return None
    if member.isdir():
        kind = stat.S_IFDIR
    elif member.issym():
        kind = stat.S_IFLNK
    elif member.isfile() or member.islnk():
        kind = stat.S_IFREG
    else:
        return None
    if member.issparse():
        raise RootfsTarError(
            f"the tarball contains the sparse file {member.name!r}", hint="pack it without --sparse"
        )
    return ImageEntry(
        path,
        kind,
        0o777 if member.issym() else member.mode & 0o7777,
        member.uid if 0 <= member.uid < 65536 else 65534,
        member.gid if 0 <= member.gid < 65536 else 65534,
        int(min(max(0, member.mtime), latest)),  # in this order, NaN becomes 0
        target=member.linkname if member.issym() else "",
        size=member.size if member.isreg() else 0,
        offset=member.offset_data,
    )


def _refuse_name(member: tarfile.TarInfo, parts: list[str]) -> None:
    """Raise RootfsTarError for an invalid name or link target."""
    if too_long("/".join(parts)):
        raise RootfsTarError(
            f"the tarball contains a name that is too long: {member.name[:80]!r}..."
        )
    target = member.linkname if member.issym() else "-"
    if "\0" in member.name + target or not 0 < len(os.fsencode(target)) <= LONGEST_PATH:
        raise RootfsTarError(
            f"the tarball contains {member.name!r}, an invalid name or link target"
        )


def _parts(name: str) -> list[str]:
    return [part for part in name.split("/") if part not in ("", ".")]


def _separate(entries: dict[str, ImageEntry], origins: Mapping[str, str]) -> None:
    """Replace each hard link by a copy of the file that it links to (`origins`).

    "Hard links" in docs/design/decisions.md gives the reasons.
    """
    for path, origin in origins.items():
        seen = {path}
        while origin in origins and origin not in seen:
            seen.add(origin)
            origin = origins[origin]
        if origin not in entries or origin in seen:
            raise RootfsTarError(f"{path!r} is a hard link to {origin!r}, which is missing")
        entries[path] = replace(entries[origin], path=path)


@dataclass(frozen=True, slots=True)
class Placed:
    """A file, link or directory to add to the root filesystem; the default owner is root."""

    path: str
    mode: int = 0o644
    data: bytes | None = None
    """None for a directory or a link."""
    target: str = ""
    """Target of a symbolic link."""
    mtime: int | None = None
    """Seconds since 1970; None for the time of installation, or of booting in some directories."""
    uid: int = 0
    gid: int = 0
    holes: bool = False
    """Whether zero-filled blocks are holes."""


def device(kind: str, major: int, minor: int, mode: int = 0o600, gid: int = 0) -> dict[str, Any]:
    """Return arguments of `Placed` for a placeholder of a device node.

    `kind` is `b` (block device), `c` (character device) or `s` (a socket without a listener).
    Device nodes cannot be created in user namespaces, so a symbolic link encodes the node. The
    sandbox shows the link to programs as a node (`native/around/tree.c`).
    """
    return {"target": f"{_DEVICE}{kind} {major} {minor} {mode:o}", "gid": gid}


_DEVICE = "device: "
_DEVICE_TARGET = re.compile(rf"{_DEVICE}([bcs]) (\d+) (\d+) ([0-7]+)")


def device_mode(target: str) -> int | None:
    """Return the `st_mode` of the node encoded in a link's target; None for an ordinary link."""
    found = _DEVICE_TARGET.fullmatch(target)
    kinds = {"b": stat.S_IFBLK, "c": stat.S_IFCHR, "s": stat.S_IFSOCK}
    return kinds[found[1]] | int(found[4], 8) if found else None


def compose(
    declaration: SystemDeclaration,
    entries: dict[str, ImageEntry],
    base: IO[bytes],
    home: Iterable[HomeEntry],
    placed: Iterable[Placed],
) -> list[ImageEntry]:
    """Return all entries of the system by path: base, accounts, machine profile and home tree.

    `entries` is the result of `read_base` for `base`.
    """
    entries = dict(entries)
    put = _Putter(entries, base_time(declaration), int(declaration.boot_time.timestamp()))
    for path in list(entries):
        put.parents(path)
    _mount_points(put)
    accounts = _accounts(declaration, entries, base, put)
    for file in placed:
        put.add(file)
    top = declaration.home.target.strip("/")
    for entry in home:
        path = top if entry.path == "." else f"{top}/{entry.path}"
        put.parents(path)
        entries[path] = ImageEntry(
            path, _KINDS[entry.kind], entry.mode,
            accounts.user(entry.owner)[0], accounts.group(entry.group), entry.mtime,
            target=entry.target, size=len(entry.data), data=entry.data, holes=entry.holes,
        )  # fmt: skip
    if "" not in entries:
        put.add(Placed("", 0o755))
    for path in entries:
        parent = path.rpartition("/")[0]
        if entries[parent].kind != stat.S_IFDIR:
            raise RootfsTarError(f"{path!r} cannot be in the system: {parent!r} is not a directory")
    return [entries[path] for path in sorted(entries, key=_order)]


_KINDS = {
    "file": stat.S_IFREG, "directory": stat.S_IFDIR, "symlink": stat.S_IFLNK, "fifo": stat.S_IFIFO,
}  # fmt: skip


def _order(path: str) -> tuple[bytes, ...]:
    """Return a sort key that orders paths by bytes, directories before their content."""
    return tuple(part.encode("utf-8", "surrogateescape") for part in path.split("/"))


class _Putter:
    """Adds or replaces entries of the base, and creates missing parent directories."""

    def __init__(self, entries: dict[str, ImageEntry], installed: int, booted: int) -> None:
        self.entries = entries
        self.installed, self.booted = installed, booted

    def time(self, path: str) -> int:
        """Return the default time of an entry: booting in some directories, else installation."""
        return self.booted if path.split("/")[0] in _AT_BOOTING else self.installed

    def real(self, path: str) -> str:
        """Resolve symbolic links among the directories of `path`, such as /bin to usr/bin."""
        done = ""
        for part in path.strip("/").split("/")[:-1]:
            step = f"{done}/{part}".strip("/")
            entry = self.entries.get(step)
            if entry is not None and entry.kind == stat.S_IFLNK:
                where = "" if entry.target.startswith("/") else done
                step = f"{where}/{entry.target}".strip("/")
            done = step
        return f"{done}/{path.rpartition('/')[2]}".strip("/")

    def parents(self, path: str) -> None:
        missing, parent = [], path.rpartition("/")[0]
        while parent and parent not in self.entries:
            missing.append(parent)
            parent = parent.rpartition("/")[0]
        for parent in reversed(missing):
            self.entries[parent] = ImageEntry(parent, stat.S_IFDIR, 0o755, 0, 0, self.time(parent))

    def add(self, placed: Placed) -> None:
        """Add an entry at its resolved path, replacing an existing one."""
        path = self.real(placed.path)
        self.parents(path)
        mode, kind = placed.mode, stat.S_IFDIR if placed.data is None else stat.S_IFREG
        if placed.target:
            mode, kind = 0o777, stat.S_IFLNK
        self.entries[path] = ImageEntry(
            path, kind, mode, placed.uid, placed.gid,
            self.time(path) if placed.mtime is None else placed.mtime, target=placed.target,
            size=len(placed.data or b""), data=placed.data, holes=placed.holes,
        )  # fmt: skip


def _mount_points(put: _Putter) -> None:
    """Add the sandbox's mount points, including empty files to bind device nodes over."""
    for path in ("proc", "sys"):
        put.add(Placed(path, 0o555))
    for path in ("dev", "dev/pts", "dev/mqueue", "run"):
        put.add(Placed(path, 0o755))
    for path in ("tmp", "var/tmp", "dev/shm", "run/lock"):
        put.add(Placed(path, 0o1777))
    for name in ("null", "zero", "full", "random", "urandom", "tty"):
        put.add(Placed(f"dev/{name}", 0o666, b""))
    put.add(Placed("dev/ptmx", 0o666, b"", gid=5))  # tty, in Debian's and Ubuntu's base-passwd
    put.add(Placed("dev/fd", target="/proc/self/fd"))
    put.add(Placed("dev/core", target="/proc/kcore"))
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        put.add(Placed(f"dev/{name}", target=f"/proc/self/fd/{number}"))
    put.add(Placed("etc/mtab", target="/proc/self/mounts"))


def _account_rows(text: str, fields: int) -> dict[str, list[str]]:
    rows = (line.split(":") for line in text.splitlines())
    return {row[0]: row for row in rows if len(row) == fields and row[2].isdigit()}


class Accounts:
    """The users and groups of a system by name, from its /etc/passwd and /etc/group."""

    def __init__(self, passwd: str, group: str) -> None:
        self.users = _account_rows(passwd, 7)
        self.groups = _account_rows(group, 4)

    def user(self, name: str) -> tuple[int, int]:
        """Return the numeric user id and primary group id."""
        if name not in self.users:
            raise RootfsTarError(f"the system has no user {name!r}")
        return int(self.users[name][2]), int(self.users[name][3])

    def group(self, name: str) -> int:
        """Return the numeric group id."""
        if name not in self.groups:
            raise RootfsTarError(f"the system has no group {name!r}")
        return int(self.groups[name][2])

    def login_users(self) -> tuple[str, ...]:
        """Return the names of the users whose login shell is a real shell."""
        shells = ("/bash", "/sh", "/dash", "/zsh")
        return tuple(name for name, row in self.users.items() if row[6].endswith(shells))

    def groups_of(self, name: str) -> tuple[str, ...]:
        """Return the names of a user's groups, the primary group first, the others by number."""
        primary = self.users[name][3]
        first = [group for group, fields in self.groups.items() if fields[2] == primary]
        others = [group for group, fields in self.groups.items() if name in fields[3].split(",")]
        others.sort(key=lambda group: int(self.groups[group][2]))
        return tuple(dict.fromkeys(first + others))


def _accounts(
    declaration: SystemDeclaration, entries: Mapping[str, ImageEntry], base: IO[bytes], put: _Putter
) -> Accounts:
    """Add the declared users and groups to the account files, and create home directories."""
    texts = {}
    for name in ("passwd", "group", "shadow", "gshadow"):
        entry = entries.get(f"etc/{name}")
        texts[name] = content(entry, base).decode("utf-8", "replace") if entry else ""
    if not texts["passwd"]:
        texts["passwd"] = "root:x:0:0:root:/root:/bin/bash\n"
    if not texts["group"]:
        texts["group"] = "root:x:0:\n"
    users = {user.name: str(user.uid) for user in declaration.users}
    groups = {group.name: str(group.gid) for group in declaration.groups}

    def others(file: str, ours: Mapping[str, str]) -> list[str]:
        """Return the base's lines whose names and numbers no declared account uses."""
        taken = set(ours.values()) if file in ("passwd", "group") else set()
        rows = [line.split(":") for line in texts[file].splitlines()]
        return [":".join(row) for row in rows if row[0] not in ours and not taken & set(row[2:3])]

    passwd, shadow = others("passwd", users), others("shadow", users)
    group_lines, gshadow = others("group", groups), others("gshadow", groups)
    gids = {name: row[2] for name, row in _account_rows("\n".join(group_lines), 4).items()}
    day = base_time(declaration) // 86400
    for group in declaration.groups:
        gids[group.name] = str(group.gid)
        group_lines.append(f"{group.name}:x:{group.gid}:")
        gshadow.append(f"{group.name}:!::")
    for user in declaration.users:
        primary = gids.get(user.group, str(user.uid))
        passwd.append(f"{user.name}:x:{user.uid}:{primary}:{user.comment}:{user.home}:{user.shell}")
        shadow.append(f"{user.name}:!:{day}:0:99999:7:::")

    def with_members(lines: list[str]) -> bytes:
        rows = []
        for line in lines:
            fields = line.split(":")
            members = [name for name in fields[3].split(",") if name] if len(fields) > 3 else []
            members += [user.name for user in declaration.users if fields[0] in user.groups]
            rows.append(":".join([*fields[:3], ",".join(dict.fromkeys(members))]))
        return text_of(rows)

    files = {
        "passwd": text_of(passwd), "group": with_members(group_lines),
        "shadow": text_of(shadow), "gshadow": with_members(gshadow),
    }  # fmt: skip
    accounts = Accounts(files["passwd"].decode(), files["group"].decode())
    shadow_gid = int(accounts.groups["shadow"][2]) if "shadow" in accounts.groups else 0
    for name, data in files.items():
        mode, gid = (0o640, shadow_gid) if name.endswith("shadow") else (0o644, 0)
        put.add(Placed(f"etc/{name}", mode, data, gid=gid))
    for user in declaration.users:
        uid, gid = accounts.user(user.name)
        put.add(Placed(user.home, 0o755, uid=uid, gid=gid))
        if user.home == declaration.home.target:
            continue
        for path, entry in list(entries.items()):
            if path.startswith("etc/skel/") and entry.kind == stat.S_IFREG:
                name = path.removeprefix("etc/skel/")
                data = content(entry, base)
                put.add(Placed(f"{user.home}/{name}", data=data, uid=uid, gid=gid))
    return accounts


def read_accounts(entries: Iterable[ImageEntry], base: BaseStream) -> Accounts:
    """Return the accounts of a composed system."""
    files = {entry.path: entry for entry in entries if entry.path.startswith("etc/")}
    texts = [content(files[f"etc/{name}"], base).decode() for name in ("passwd", "group")]
    return Accounts(*texts)


def content(entry: ImageEntry, base: BaseStream) -> bytes:
    """Return the content of a regular file, from the entry or from the base tar."""
    if entry.data is not None:
        return entry.data
    base.seek(entry.offset)
    return base.read(entry.size)


def write_tar(entries: Iterable[ImageEntry], base: BaseStream, out: IO[bytes]) -> str:
    """Write the canonical tar to `out`, and return its SHA-256 in hex."""
    digest = hashlib.sha256()

    def emit(data: bytes) -> None:
        digest.update(data)
        out.write(data)

    for entry in entries:
        body = b""
        if entry.kind == stat.S_IFREG:
            body = content(entry, base)
        if entry.holes:
            header, body = _sparse(entry, body)
        else:
            header = _header(entry)
        emit(header)
        emit(body)
        emit(bytes(-len(body) % tarfile.BLOCKSIZE))
    emit(bytes(2 * tarfile.BLOCKSIZE))
    return digest.hexdigest()


_TYPES = {
    stat.S_IFREG: tarfile.REGTYPE,
    stat.S_IFDIR: tarfile.DIRTYPE,
    stat.S_IFLNK: tarfile.SYMTYPE,
    stat.S_IFIFO: tarfile.FIFOTYPE,
}


def _header(entry: ImageEntry) -> bytes:
    member = tarfile.TarInfo("./" + entry.path)
    member.type = _TYPES[entry.kind]
    member.mode, member.uid, member.gid = entry.mode, entry.uid, entry.gid
    member.mtime = entry.mtime
    member.size = entry.size if member.type == tarfile.REGTYPE else 0
    member.linkname = entry.target
    return member.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


def _patched(block: bytes, fields: Mapping[int, bytes]) -> bytes:
    header = bytearray(block)
    for offset, value in fields.items():
        header[offset : offset + len(value)] = value
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)


def _sparse(entry: ImageEntry, body: bytes) -> tuple[bytes, bytes]:
    """Return header and data of a sparse file in the old GNU format, with at most four segments."""
    pieces: list[tuple[int, int]] = []
    for at in range(0, len(body), HOLE):
        block = body[at : at + HOLE]
        if block.strip(b"\0"):
            if pieces and sum(pieces[-1]) == at:
                pieces[-1] = (pieces[-1][0], pieces[-1][1] + len(block))
            else:
                pieces.append((at, len(block)))
    if not pieces or sum(pieces[-1]) != len(body):
        pieces.append((len(body), 0))
    if len(pieces) > 4:
        raise ValueError(f"{entry.path} has more than four pieces")
    stored = b"".join(body[at : at + length] for at, length in pieces)
    table = b"".join(b"%011o\0%011o\0" % piece for piece in pieces)
    fields = {
        124: b"%011o\0" % len(stored),
        156: b"S",
        386: table,
        483: b"%011o\0" % len(body),
    }
    header = _header(entry)
    return header[:-512] + _patched(header[-512:], fields), stored


def link_counts(entries: Iterable[ImageEntry]) -> dict[str, int]:
    """Return `st_nlink` by path: 1 for a file, and 2 plus the subdirectories for a directory."""
    kinds = {entry.path: entry.kind for entry in entries}
    directories = {path for path, kind in kinds.items() if kind == stat.S_IFDIR}
    beneath = Counter(path.rpartition("/")[0] for path in directories if path)
    return {path: 2 + beneath[path] if path in directories else 1 for path in kinds}


def index_rows(entries: list[ImageEntry]) -> Iterator[list[str | int]]:
    """Yield one row per entry: path, st_mode, uid, gid, size, links, mtime, target.

    Paths are absolute. The size of a directory is 4096, as for small ones on ext4; the host's file
    system may report another size. The size of a link is the length of its target.
    """
    links = link_counts(entries)
    for entry in entries:
        size = entry.size
        if entry.kind == stat.S_IFDIR:
            size = 4096
        elif entry.kind == stat.S_IFLNK:
            size = len(entry.target.encode("utf-8", "surrogateescape"))
        yield [
            "/" + entry.path, entry.kind | entry.mode, entry.uid, entry.gid,
            size, links[entry.path], entry.mtime, entry.target,
        ]  # fmt: skip


def package_versions(entries: Mapping[str, ImageEntry], base: BaseStream) -> dict[str, str]:
    """Return versions by package name from dpkg's status file, or {} without such a file."""
    entry = entries.get("var/lib/dpkg/status")
    if entry is None:
        return {}
    versions = {}
    for paragraph in content(entry, base).decode("utf-8", "replace").split("\n\n"):
        fields = dict(re.findall(r"^(Package|Version|Status): (.*)$", paragraph, re.MULTILINE))
        if "Package" in fields and fields.get("Status", "").endswith(" installed"):
            versions[fields["Package"]] = fields.get("Version", "")
    return dict(sorted(versions.items()))
