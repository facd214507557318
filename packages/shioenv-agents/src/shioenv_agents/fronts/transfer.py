"""Transfer files, and directories as archives, into and out of a machine.

The agent controls the content that comes out. So only regular files and directories are extracted,
all below the requested directory.
"""

from __future__ import annotations

import os
import shlex
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Final

from shioenv.errors import TransferError
from shioenv_agents.tasks.entered_machine import Finished

_BLOCK: Final = 512
_PIECE: Final = 1 << 20
_LONGEST_NAME: Final = 4096
_DEEPEST: Final = 64  # maximum parts of a name; our choice
_KEPT: Final = (tarfile.REGTYPE, tarfile.AREGTYPE)


def write_command(target: str, mode: int) -> str:
    """Return a command that writes its input into a file, and creates the directories above it."""
    name = shlex.quote(target)
    return f'mkdir -p -- "$(dirname -- {name})" && cat > {name} && chmod {mode:o} {name}'


def read_command(source: str) -> str:
    """Return a command that prints a regular file, and fails for any other."""
    name = shlex.quote(source)
    return f"[ -f {name} ] && exec cat -- {name}"


@contextmanager
def downloading(target: Path) -> Iterator[IO[bytes]]:
    """Provide a new file, which replaces `target` after the block, or is removed after an error."""
    with tempfile.NamedTemporaryFile(dir=target.parent, delete=False) as file:
        try:
            yield file
            Path(file.name).chmod(0o644)
            Path(file.name).replace(target)
        except BaseException:
            Path(file.name).unlink()
            raise


def describe_failure(done: Finished) -> str:
    """Describe a command that failed by its exit code and the beginning of its errors."""
    message = done.errors.decode("utf-8", "replace").strip()
    return f"exit code {done.exit_code}: {message:.200}"


def pack(source: Path, archive: IO[bytes]) -> None:
    """Write the contents of a directory into an archive, owned by root, without host metadata.

    Links stay links. Sockets, pipes and devices are omitted. Errors: OSError.
    """

    def roots(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if member.isdev():
            return None
        member.uid = member.gid = 0
        member.uname = member.gname = "root"
        return member

    with tarfile.open(fileobj=archive, mode="w|", format=tarfile.GNU_FORMAT) as tar:
        for child in sorted(source.iterdir()):
            tar.add(child, arcname=child.name, filter=roots)


def unpack(archive: IO[bytes], target: Path, most_files: int, most_bytes: int) -> int:
    """Extract the regular files of an archive, and return the number of omitted entries.

    Links, devices, pipes and sockets are omitted. Directories get the mode 755, files 644. `target`
    must exist and have no other writer. Errors: OSError. TransferError for an archive that GNU tar
    does not write, or a name that leads out of `target` or has more than 64 parts. TransferError
    also for a file in the place of a directory, and for an entry of more than `most_bytes`. It is
    also raised for more than `most_files` files, omitted entries and created directories.
    """
    counted = left_out = 0

    def count() -> None:
        nonlocal counted
        counted += 1
        if counted > most_files:
            raise TransferError(f"the directory has more than {most_files:,} entries")

    for name, kind, size in _entries(archive, most_bytes):
        parts = _parts(name)
        if kind != tarfile.DIRTYPE:
            count()
        if kind == tarfile.DIRTYPE or kind in _KEPT:
            directory = target
            for part in parts if kind == tarfile.DIRTYPE else parts[:-1]:
                directory /= part
                if not directory.is_dir():
                    count()
                    _directory(directory)
        else:
            left_out += 1
        if kind in _KEPT:
            _write(archive, target.joinpath(*parts), size)
        else:
            archive.seek(_padded(size), os.SEEK_CUR)
    return left_out


def put(text: str | None, target: Path, name: str) -> None:
    """Write a file below a directory, replacing any file or link on its path.

    Without a text, the path is removed. Directories above the file are created, including `target`.
    Errors: OSError.
    """
    target.mkdir(parents=True, exist_ok=True)
    *above, last = PurePosixPath(name).parts
    for part in above:
        target /= part
        if target.is_symlink() or not target.is_dir():
            target.unlink(missing_ok=True)
            target.mkdir()
    file = target / last
    if file.is_dir() and not file.is_symlink():
        shutil.rmtree(file)
    file.unlink(missing_ok=True)
    if text is not None:
        file.write_text(text, encoding="utf-8")


def _entries(archive: IO[bytes], most_bytes: int) -> Iterator[tuple[str, bytes, int]]:
    """Yield name, kind and size of each entry. The caller reads or skips the content."""
    long_name = None
    while (block := archive.read(_BLOCK)).strip(b"\0"):
        try:
            member = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except tarfile.HeaderError as error:
            raise TransferError(f"the machine's archive cannot be read: {error}") from None
        if member.size < 0:
            raise TransferError("the machine's archive has an entry with a negative size")
        if member.size > most_bytes:
            raise TransferError(
                f"the machine's archive has an entry of more than {most_bytes:,} bytes"
            )
        if member.type in (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK):
            if member.size > _LONGEST_NAME:
                raise TransferError(f"the machine's archive has a name of {member.size} bytes")
            text = archive.read(_padded(member.size))[: member.size].rstrip(b"\0")
            if member.type == tarfile.GNUTYPE_LONGNAME:
                long_name = os.fsdecode(text)
            continue
        yield long_name or member.name, member.type, member.size
        long_name = None


def _parts(name: str) -> tuple[str, ...]:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name:
        raise TransferError(f"the machine's archive has a path outside the directory: {name!r:.80}")
    if len(path.parts) > _DEEPEST:
        raise TransferError(f"the machine's archive has a path of {len(path.parts)} components")
    return path.parts


def _directory(path: Path) -> None:
    try:
        path.mkdir(mode=0o755)
    except (FileExistsError, NotADirectoryError):
        raise TransferError(f"{path} is not a directory") from None


def _write(archive: IO[bytes], path: Path, size: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o644), "wb") as file:
        left = size
        while left:
            piece = archive.read(min(left, _PIECE))
            if not piece:
                raise TransferError("the machine's archive is truncated")
            file.write(piece)
            left -= len(piece)
    archive.seek(_padded(size) - size, os.SEEK_CUR)


def _padded(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK
