"""The files of a built system's tree.

The build writes their digests, with which the system can be verified later. Links are resolved as
the kernel resolves them.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import stat
import struct
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from shioenv.errors import SandboxError
from shioenv.system.idmap import find_idmap, spawn_mapped

_FILE = "contents.json.gz"
_ATTRIBUTES = struct.Struct("=4I2q")
_BESIDE = ("proc", "processes", "web")
"""Directories beside `rootfs` whose files are also visible to programs in the system."""


def members(archive: IO[bytes]) -> Iterator[tuple[str, tarfile.TarInfo, str]]:
    """Yield (path, header, digest) for each member of a tar archive.

    The path has no leading `./` or `/`. The digest is the SHA-256 (hex) of a regular file's
    content, and "" for other members.
    """
    digests: dict[str, str] = {}
    with tarfile.open(
        fileobj=archive, mode="r|", encoding="utf-8", errors="surrogateescape"
    ) as tar:
        for member in tar:
            name = member.name.removeprefix(".").strip("/")
            if member.islnk():
                digests[name] = digests[member.linkname.removeprefix(".").strip("/")]
            elif member.isreg() and (content := tar.extractfile(member)):
                digests[name] = hashlib.sha256(content.read()).hexdigest()
            yield name, member, digests.get(name, "")


def tree_sum(rows: Iterable[Sequence[Any]]) -> str:
    """Compute `filled_sum` of `native/around/tree.c` for a tree with these index rows."""
    total = 0
    for path, mode, uid, gid, size, _, mtime, _ in rows:
        attributes = _ATTRIBUTES.pack(mode, uid, gid, 0, 0 if stat.S_ISDIR(mode) else size, mtime)
        digest = hashlib.sha256(os.fsencode(path) + b"\0" + attributes).digest()
        total += int.from_bytes(digest[:8], sys.byteorder)
    return f"{total % 2**64:016x}"


def write_contents(directory: Path, rootfs: Path) -> None:
    """Write the digests of a system's files into the system's `directory`.

    `rootfs` is a tar archive of the root file system.
    """
    with rootfs.open("rb") as archive:
        digests = {f"rootfs/{name}": digest for name, _, digest in members(archive) if digest}
    for name in _BESIDE:
        for path in sorted((directory / name).rglob("*")):
            if path.is_file():
                content = hashlib.sha256(path.read_bytes()).hexdigest()
                digests[str(path.relative_to(directory))] = content
    with (directory / _FILE).open("wb") as raw, gzip.GzipFile("", "wb", 6, raw, 0) as packed:
        packed.write(json.dumps(digests, separators=(",", ":")).encode())


def read_contents(directory: Path) -> Mapping[str, str]:
    """Read the stored digests: SHA-256 by path. Errors: OSError, ValueError, EOFError."""
    with gzip.open(directory / _FILE) as packed:
        digests = json.loads(packed.read())
    if not isinstance(digests, dict):
        raise ValueError(f"{_FILE} is not a JSON object")
    return digests


def current_files(directory: Path) -> Iterator[tuple[str, tarfile.TarInfo, str]]:
    """Yield (path, header, digest), as `members` does, for the current files of a system.

    Files are read with tar(1), which runs as the system's root (mapped ids), because no other user
    may read some of them. Errors: HostError if this host does not allow such ids; SandboxError if a
    file cannot be read.
    """
    names = ["rootfs", *(name for name in _BESIDE if (directory / name).is_dir())]
    process, connection = spawn_mapped(
        ["exec", "tar", "--create", "--numeric-owner", "--format=gnu", "--file=-", *names],
        find_idmap(),
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with connection, process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            yield from members(process.stdout)
            # tar pads its last block; closing the pipe earlier would make tar fail
            process.stdout.read()
        except tarfile.ReadError as error:
            raise SandboxError(f"the files of {directory} cannot be read: {error}") from error
        finally:
            process.stdout.close()
            said = process.stderr.read().decode("utf-8", "replace").strip()
    if process.returncode:
        raise SandboxError(f"some files of {directory} cannot be read: {said}")


_MOST_STEPS = 400


def resolve(path: str, target: Callable[[str], str | None]) -> str | None:
    """Return the absolute path that `path` resolves to; None for a missing file or a link loop.

    `target` maps an absolute path to the target of the symbolic link there. It returns "" for any
    other file, and None if there is no file.
    """
    left = [part for part in path.split("/") if part][::-1]
    done: list[str] = []
    for _ in range(_MOST_STEPS):
        if not left:
            return "/" + "/".join(done)
        part = left.pop()
        if part == ".":
            continue
        if part == "..":
            done = done[:-1]
            continue
        leads = target("/" + "/".join([*done, part]))
        if leads is None:
            return None
        if leads:
            if leads.startswith("/"):
                done = []
            left += [step for step in leads.split("/") if step][::-1]
        else:
            done.append(part)
    return None


def damage(path: Path) -> str | None:
    """Return the first damage found in the built system at `path`, or None if it is intact.

    Compares the kind, mode, size and modification time of each file of the root filesystem, without
    reading its content. Files that this user may not `lstat` count as intact.
    """
    try:
        read_json(path / "system.json")
        with gzip.open(path / "index.json.gz") as index:
            rows = json.loads(index.read())
    except (OSError, ValueError, EOFError) as error:
        return str(error)
    for name in ("rootfs", "proc", "processes", "contents.json.gz"):
        if not (path / name).exists():
            return f"{name} is missing"
    rootfs = os.fsencode(path / "rootfs")
    files_first = sorted(rows, key=lambda row: stat.S_ISDIR(row[1]))
    for name, mode, _, _, size, _, mtime, _ in files_first:
        try:
            status = os.lstat(rootfs + os.fsencode(name))
        except PermissionError:
            continue
        except OSError:
            return f"{name} is missing"
        regular = stat.S_ISREG(mode)
        other_size = regular and status.st_size != size
        if status.st_mode != mode or other_size or status.st_mtime_ns != mtime * 10**9:
            return f"{name} was changed"
    return None


def read_json(path: Path) -> dict[str, Any]:
    """Read the object written by `write_json`. Errors: OSError; ValueError for other content."""
    value = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(value, dict):
        raise ValueError(f"{path} is not a JSON object")
    return value
