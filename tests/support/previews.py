"""A directory with one of everything, a script that changes most of it, and what previews tell."""

from __future__ import annotations

import hashlib
import os
import socket
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from shioenv.domain.names import name_text
from shioenv_agents.preview.preview import Preview, preview

CHANGES = r"""
echo three >> text; printf '\000\001' > binary; chmod 600 sparse
mkdir -p new/deep; echo x > new/deep/f
mv old renamed; rm -r gone; ln -sf text link; ln text twin; truncate -s 3 cut
: > empty; rmdir bare; mkfifo pipe2
touch "$(printf 'a\nb')" "$(printf 'b\377d')" 'c\d'
rm 'to be a directory'; mkdir 'to be a directory'
rm -r 'to be a file'; echo now > 'to be a file'; mv moved somewhere; chmod 1777 open
"""


def fill(place: Path) -> None:
    """Makes one of everything in a directory."""
    for name in ("text", "old", "cut", "twin of hard", "to be a directory"):
        (place / name).write_text(f"one\ntwo {name}\n")
    for name in ("gone/in", "moved/in", "to be a file/in"):
        (place / name).parent.mkdir()
        (place / name).write_text(f"{name}\n")
    (place / "bare").mkdir()
    (place / "open").mkdir()
    (place / "link").symlink_to("nowhere")
    (place / "hard").hardlink_to(place / "twin of hard")
    os.mkfifo(place / "pipe")
    with (place / "sparse").open("wb") as file:
        file.truncate(1 << 20)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(place / "socket"))
    Path(os.fsdecode(bytes(place) + b"/n\n\xff")).write_bytes(b"\xff")
    os.setxattr(place / "text", "user.kept", b"value")


def digest(top: Path) -> str:
    """What there is below a directory: numbers but times of access, contents, attributes."""
    told = hashlib.sha256()
    for directory, names, files in os.walk(bytes(top)):
        names.sort()
        for name in sorted((*names, *files, b".")):
            path = os.path.join(directory, name)  # noqa: PTH118 - bytes
            status = os.lstat(path)
            fields = list(status[:7])
            told.update(repr((path, fields, status.st_mtime_ns, status.st_ctime_ns)).encode())
            told.update(repr(status.st_blocks).encode())
            if stat.S_ISREG(status.st_mode):
                told.update(Path(os.fsdecode(path)).read_bytes())
            if stat.S_ISLNK(status.st_mode):
                told.update(os.readlink(path))  # noqa: PTH115 - bytes
            for attribute in os.listxattr(path, follow_symlinks=False):
                told.update(os.getxattr(path, attribute, follow_symlinks=False))
    return told.hexdigest()


def listed(top: Path) -> dict[str, tuple[Any, ...]]:
    """What a context tells of everything in a directory, without times and directories' sizes."""
    found: dict[str, tuple[Any, ...]] = {}
    for directory, names, files in os.walk(bytes(top)):
        for name in (*names, *files):
            path = os.path.join(directory, name)  # noqa: PTH118 - bytes
            status = os.lstat(path)
            is_directory = stat.S_ISDIR(status.st_mode)
            target = os.readlink(path) if stat.S_ISLNK(status.st_mode) else None  # noqa: PTH115
            found[name_text(os.path.relpath(path, bytes(top)))] = (
                stat.filemode(status.st_mode),
                status.st_nlink,
                None if is_directory else status.st_size,
                target and name_text(target),
            )
    return found


CLOCK = ("month", "day", "year", "time")
"""Fields of a file that change where a minute ends between two listings."""


def applied(before: dict[str, tuple[Any, ...]], made: Preview) -> dict[str, tuple[Any, ...]]:
    """The listing after a patch."""
    operations = made.behavior.patch.operations
    kept = [one for one in operations if one[0] != "=" or not str(one[1]).endswith(CLOCK)]
    patch = replace(made.behavior.patch, operations=tuple(kept))
    fields = ("perms", "links", "size", "target")
    fs = {name: dict(zip(fields, values, strict=True)) for name, values in before.items()}
    after = patch.apply({"fs": {".": {}, **fs}})["fs"]
    return {
        name: tuple(
            None if field == "size" and entry["perms"][0] == "d" else entry.get(field)
            for field in fields
        )
        for name, entry in after.items()
        if name != "."
    }


def captured(*command: str, **options: Any) -> Preview:
    return preview(command, capture=True, **options)


def running(*words: str) -> Iterator[int]:
    """The processes of the host that were started with these words."""
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            given = (directory / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if all(word.encode() in given for word in words):
            yield int(directory.name)
