"""Reading of untrusted files: only regular files are opened, and sizes are bounded."""

from __future__ import annotations

import errno
import io
import os
import stat
from pathlib import Path

LARGEST = 64 * 1024 * 1024
"""The default maximum size in bytes of a file that is read whole. A manifest of 190,000 shards has
this size."""

LARGEST_LIST = 1 << 30
"""The maximum size in bytes of a list that is read whole: inputs, suites, tasks or answers."""

_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFLNK: "a link",
}


def is_directory(path: str | Path) -> bool:
    """Whether the path is a directory or a link to one. False if the lookup fails."""
    return os.path.isdir(path)  # noqa: PTH112 - Path.is_dir raises if a name is too long


def open_regular(path: str | Path) -> io.BufferedReader:
    """Open a regular file, or a link to one, for reading bytes.

    Opening never blocks on a pipe or a device. Errors: those of `open`. IsADirectoryError for a
    directory. OSError for a pipe, a device or a socket, with the file type in `strerror`.
    """
    refuse_other(Path(path).stat(), path)  # some devices act when they are opened
    file = open(path, "rb", opener=_opened)  # noqa: SIM115 - the caller closes it
    try:
        refuse_other(os.fstat(file.fileno()), path)
    except BaseException:
        file.close()
        raise
    return file


def read_regular(path: str | Path, most: int = LARGEST) -> bytes:
    """Read a regular file of at most `most` bytes.

    Errors: OSError as for `open_regular`; with EFBIG for a larger file, before reading all of it.
    """
    with open_regular(path) as file:
        known = os.fstat(file.fileno()).st_size  # 0 for virtual files, as in /proc
        content = b"" if known > most else file.read(most + 1)
    if known > most or len(content) > most:
        raise OSError(errno.EFBIG, f"it is larger than {most:,} bytes", str(path))
    return content


def lines_of(text: str) -> list[str]:
    r"""Split a text into lines that end in `\n` or `\r\n`.

    `str.splitlines` also splits at form feeds, U+2028 and the like, which inputs may contain.
    """
    lines = text.replace("\r\n", "\n").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def refuse_to_replace(path: str | Path) -> None:
    """Raise OSError like `open_regular` if the path exists and is not a regular file.

    A link is refused too, because it would be replaced instead of its target.
    """
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return
    refuse_other(status, path)


def _opened(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def refuse_other(status: os.stat_result, path: str | Path) -> None:
    """Raise OSError like `open_regular`, unless the status is that of a regular file."""
    kind = stat.S_IFMT(status.st_mode)
    if kind == stat.S_IFDIR:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if kind != stat.S_IFREG:
        said = _KINDS.get(kind, "something else")
        raise OSError(errno.EINVAL, f"it is {said}, not a regular file", str(path))
