"""A system's digest is the same on every host and for every compiler: see digests.toml."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import struct
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest

from shioenv import native
from shioenv.system import answers
from shioenv.system.packages import lock_text, parse_lock
from shioenv.system.store import System

COMMITTED = tomllib.loads(Path(__file__).with_name("digests.toml").read_text("utf-8"))
BUILD = """
import os, sys
from pathlib import Path
from shioenv import native
from shioenv.system.store import build_system
base, compiled, umask = sys.argv[1:]
native._BINARIES = Path(compiled)
os.umask(int(umask, 8))
print(build_system(rootfs_tar=Path(base)).digest)
"""


PROGRAM = b"#!/bin/true\n"
MEANT = "where the change is meant, write the new digest into tests/system/digests.toml"


def elf(functions: tuple[str, ...]) -> bytes:
    """Return a minimal C library of Debian 12: a text, functions, and a note with two headers."""
    names = b"\0" + b"".join(name.encode() + b"\0" for name in functions)
    symbols, at = struct.pack("<IBBHQQ", 0, 0, 0, 0, 0, 0), 1
    for number, name in enumerate(functions):
        symbols += struct.pack("<IBBHQQ", at, 0x12, 0, 1, 0x1000 + 16 * number, 16)
        at += len(name) + 1
    text = b"GNU C Library (Debian GLIBC 2.36-9) stable release version 2.36.\n\0"
    headers = 64 + 3 * 56
    note = headers + len(text)
    sections = note + 32 + len(symbols) + len(names)
    loaded = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, sections, sections, 4096)
    notes = [
        struct.pack("<IIQQQQQQ", kind, 4, note, note, note, 32, 32, 8) for kind in (4, 0x6474E553)
    ]
    places = [
        (0, 0, 0, 0),
        (11, note + 32, len(symbols), 2),
        (3, note + 32 + len(symbols), len(names), 0),
    ]
    table = b"".join(
        struct.pack("<IIQQQQIIQQ", 0, kind, 0, 0, start, size, link, 0, 1, 0)
        for kind, start, size, link in places
    )
    head = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 3, 62, 1, 0, 64, sections, 0, 64, 56, 3, 64, 3, 0
    )
    return head + loaded + b"".join(notes) + text + bytes(32) + symbols + names + table


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a fixed root filesystem: the digest depends on the added files alone."""
    library = elf((*answers._ORIGINALS, "fstat", "stat", "time", "uname"))
    digests = f"{hashlib.md5(library).hexdigest()}  usr/lib/x86_64-linux-gnu/libc.so.6\n"
    groups = ("root:0", "tty:5", "adm:4", "sudo:27", "www-data:33", "utmp:43", "users:100")
    files = {
        **dict.fromkeys(("usr/bin/bash", "usr/bin/uname", "usr/sbin/ip", "usr/sbin/nft"), PROGRAM),
        "usr/lib/x86_64-linux-gnu/libc.so.6": library,
        "var/lib/dpkg/info/libc6:amd64.md5sums": digests.encode(),
        "etc/passwd": b"root:x:0:0:root:/root:/bin/bash\n",
        "etc/group": "".join(f"{g.replace(':', ':x:')}:\n" for g in groups).encode(),
        "etc/hosts": b"",
    }
    path = tmp_path_factory.mktemp("base") / "base.tar"
    with tarfile.open(path, "w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode, member.mtime = len(data), 0o755, 1_700_000_000
            archive.addfile(member, io.BytesIO(data))
    return path


@pytest.fixture(scope="module")
def compiled_otherwise(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the compiled programs as from another compiler: other bytes with the same behavior."""
    copy = tmp_path_factory.mktemp("native") / "bin"
    shutil.copytree(native.sandbox_program().parent, copy)
    for program in copy.iterdir():
        program.write_bytes(program.read_bytes() + b"of another compiler")
    return copy


@pytest.mark.parametrize(
    ("umask", "host"),
    [
        ("022", {"TZ": "UTC", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "1"}),
        ("077", {"TZ": "Pacific/Chatham", "LC_ALL": "tr_TR.UTF-8", "PYTHONHASHSEED": "2"}),
    ],
)
def test_what_is_added_to_a_base_is_the_same_on_every_host(
    base: Path, compiled_otherwise: Path, tmp_path: Path, umask: str, host: dict[str, str]
) -> None:
    built = subprocess.run(
        [sys.executable, "-c", BUILD, base, compiled_otherwise, umask],
        env={**os.environ, **host, "SHIOENV_CACHE": str(tmp_path / "cache")},
        check=True, capture_output=True, text=True,
    ).stdout.strip()  # fmt: skip
    assert built == COMMITTED["added"], MEANT


def test_the_default_system_is_the_one_of_its_lock(system: System) -> None:
    lock = parse_lock(lock_text() or "", "debian-12.lock")
    assert system.digest == lock.digest
    assert dict(system.packages) == {package.name: package.version for package in lock.files}
