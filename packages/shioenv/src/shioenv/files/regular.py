"""Files that somebody else may have made: only regular files are opened, and read up to a bound."""

from __future__ import annotations

import errno
import io
import os
import stat
from pathlib import Path

LARGEST = 64 * 1024 * 1024
"""Most bytes of a file that is read whole, where its reader names no other bound. A manifest of
190,000 shards has as many."""

LARGEST_LIST = 1 << 30
"""Most bytes of a list that is read whole: a file of inputs, suites, tasks or answers."""

_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFLNK: "a link",
}


def is_directory(path: str | Path) -> bool:
    """Whether the path leads to a directory. False where the path cannot be looked up."""
    return os.path.isdir(path)  # noqa: PTH112 - Path.is_dir raises where a name is too long


def open_regular(path: str | Path) -> io.BufferedReader:
    """A regular file, or a link to a regular file, opened to be read as bytes.

    Opening never waits for a pipe or a device. OSError as `open` raises it. IsADirectoryError for a
    directory. OSError for a pipe, a device or a socket, with the kind of file in `strerror`.
    """
    refuse_other(Path(path).stat(), path)  # some devices do something when they are opened
    file = open(path, "rb", opener=_opened)  # noqa: SIM115 - the caller closes it
    try:
        refuse_other(os.fstat(file.fileno()), path)
    except BaseException:
        file.close()
        raise
    return file


def read_regular(path: str | Path, most: int = LARGEST) -> bytes:
    """The content of a regular file of at most `most` bytes.

    OSError as `open_regular` raises it; with EFBIG for a larger file, before it fills the memory.
    """
    with open_regular(path) as file:
        known = os.fstat(file.fileno()).st_size  # 0 for files that the kernel makes up, as in /proc
        content = b"" if known > most else file.read(most + 1)
    if known > most or len(content) > most:
        raise OSError(errno.EFBIG, f"it is larger than {most:,} bytes", str(path))
    return content


def lines_of(text: str) -> list[str]:
    """The lines of a text, which end in a newline or in a carriage return and a newline.

    `str.splitlines` also splits at form feeds, U+2028 and the like, which may stand in an input.
    """
    lines = text.replace("\r\n", "\n").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def refuse_to_replace(path: str | Path) -> None:
    """Raise OSError as `open_regular` does, where a file of that name is no regular file.

    A link is refused as well: what would be written is not where the link leads.
    """
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return
    refuse_other(status, path)


def _opened(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def refuse_other(status: os.stat_result, path: str | Path) -> None:
    """Raise OSError as `open_regular` does, where the status is not that of a regular file."""
    kind = stat.S_IFMT(status.st_mode)
    if kind == stat.S_IFDIR:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if kind != stat.S_IFREG:
        said = _KINDS.get(kind, "something else")
        raise OSError(errno.EINVAL, f"it is {said}, not a regular file", str(path))
