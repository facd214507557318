"""A tarball by an untrusted author: its contents end up in the system, or it is refused."""

from __future__ import annotations

import io
import stat
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shioenv.errors import RootfsTarError
from shioenv.system import answers, image
from shioenv.system.declare import load_declaration
from shioenv.system.home import load_home
from shioenv.system.profile import root_files

DEBIAN = load_declaration()
FILES = {
    "usr/bin/bash": b"#!/bin/true\n",
    "etc/passwd": b"root:x:0:0:root:/root:/bin/bash\n",
    "etc/group": b"root:x:0:\nadm:x:4:\nsudo:x:27:\nwww-data:x:33:\nusers:x:100:\n",
}

Add = Callable[[tarfile.TarFile], None]


def member(name: str, data: bytes = b"x", **attributes: Any) -> Add:
    def add(archive: tarfile.TarFile) -> None:
        made = tarfile.TarInfo(name)
        made.size, made.mode, made.mtime = len(data), 0o644, 1_700_000_000
        for attribute, value in attributes.items():
            setattr(made, attribute, value)
        archive.addfile(made, io.BytesIO(data) if made.isreg() else None)

    return add


def link(name: str, target: str, **attributes: Any) -> Add:
    return member(name, b"", type=tarfile.SYMTYPE, linkname=target, **attributes)


def hard(name: str, target: str) -> Add:
    return member(name, b"", type=tarfile.LNKTYPE, linkname=target)


def pax(name: str, **headers: str) -> Add:
    return member(name, pax_headers={key.replace("_", "."): text for key, text in headers.items()})


def garbage(archive: tarfile.TarFile) -> None:
    """Return an invalid block in place of a header."""
    assert archive.fileobj is not None
    archive.fileobj.write(b"x" * tarfile.BLOCKSIZE)
    archive.offset += tarfile.BLOCKSIZE


def packed(path: Path, *adds: Add, **files: bytes) -> Path:
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in {**FILES, **files}.items():
            member(name, data, mode=0o755)(archive)
        for add in adds:
            add(archive)
    return path


def composed(path: Path) -> dict[str, image.ImageEntry]:
    """Return all entries of the system that would be unpacked, with all values read from it."""
    entries = image.read_base(path, image.base_time(DEBIAN))
    with path.open("rb") as base:
        image.package_versions(entries, base)
        whole = image.compose(DEBIAN, entries, base, load_home(DEBIAN), root_files(DEBIAN))
        whole, *_ = answers.install(DEBIAN, whole, base)
        image.write_tar(whole, base, io.BytesIO())
        image.read_accounts(whole, base)
    return {entry.path: entry for entry in whole}


@pytest.mark.parametrize(
    "adds",
    [
        [member("../../etc/cron.d/x")],
        [member("a/../../x")],
        [pax("x", path="a\0/etc/passwd")],
        [link("x", "a", pax_headers={"linkpath": "a\0b"})],
        [link("x", "")],
        [hard("x", "../../../etc/shadow")],
        [hard("x", "x")],
        [hard("x", "y"), hard("y", "x")],
        [link("out", "/etc"), member("out/cron.d")],
        [link("out", "../../.."), member("out/x")],
        [link("home", "/srv")],
        [link("etc", "/etc")],
        [member("etc")],
        [member("a"), member("a/b")],
        [member("a/b"), member("a")],
        [member("a" * 300)],
        [member("a/" * 3000 + "b")],
        [member("a/" * 1500 + "b")],
        [garbage, member("x")],
        [member("x"), garbage],
        [pax("x", size="-5")],
        [pax("x", size="-5"), member("y")],
        [pax("x", size="99999999999999")],
        [pax("x", GNU_sparse_map="0,1", GNU_sparse_size="1000000000000", GNU_sparse_name="x")],
    ],
)
def test_what_leads_out_or_no_file_can_be_is_refused(adds: list[Add], tmp_path: Path) -> None:
    with pytest.raises(RootfsTarError) as caught:
        composed(packed(tmp_path / "theirs.tar", *adds))
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    "adds",
    [
        [member("/etc/cron.d/x")],
        [hard("x", "/etc/passwd")],
        [link("out", "../../../etc/shadow")],
        [member("d", b"", type=tarfile.BLKTYPE, devmajor=8)],
        [member("p", b"", type=tarfile.FIFOTYPE)],
        [member("dev/sda", b"", type=tarfile.BLKTYPE, devmajor=8)],
        [member("new\nline")],
        [member("caf\udce9")],
        [member("x", uid=-5, gid=-5)],
        [pax("x", uid="99999999999999999999", gid="99999999999999999999")],
        [pax("x", mtime="nan")],
        [pax("x", mtime="inf")],
        [pax("x", mtime="-1e300")],
        [member("x", mode=0o7777777)],
        [member("a/b"), member("a/b", b"again")],
    ],
)
def test_what_can_be_meant_lies_in_the_system(adds: list[Add], tmp_path: Path) -> None:
    latest = image.base_time(DEBIAN)
    for path, entry in composed(packed(tmp_path / "theirs.tar", *adds)).items():
        assert not path.startswith("/")
        assert not {".", ".."} & set(path.split("/"))
        assert entry.kind in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK, stat.S_IFIFO)
        assert 0 <= entry.uid <= 65534
        assert 0 <= entry.gid <= 65534
        assert entry.mode <= 0o7777
        if path in ("x", "a/b"):
            assert 0 <= entry.mtime <= latest


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("etc/group", FILES["etc/group"] + b"\n+\nhalf:\n::::\n\xff:x:7:\n"),
        ("etc/passwd", FILES["etc/passwd"] + b"\n+\n+::::::\nx:x:y:z:::\n\xff:x:7:7:::\n"),
        ("etc/shadow", b"\n:::\nroot\n"),
        ("var/lib/dpkg/status", b"Status: x installed\n\nPackage: a\n\n\xff"),
        ("usr/lib/x86_64-linux-gnu/libc.so.6", b"\x7fELF"),
        (
            "usr/lib/x86_64-linux-gnu/libc.so.6",
            b"\x7fELF\2" + bytes(13) + b"\x3e\0GNU C Library (x) stable release version 2.36.",
        ),
        (
            "usr/lib/x86_64-linux-gnu/libc.so.6",
            b"\x7fELF\2" + b"\xff" * 13 + b"\x3e\0GNU C Library (x) release version 2.36." * 9,
        ),
    ],
)
def test_what_is_read_of_its_files_may_be_anything(name: str, data: bytes, tmp_path: Path) -> None:
    assert "home/ubuntu" in composed(packed(tmp_path / "theirs.tar", **{name: data}))


@pytest.mark.parametrize("kept", [100, 1300, 2100])
def test_a_tarball_that_is_cut_off_is_said_to_be(kept: int, tmp_path: Path) -> None:
    whole = packed(tmp_path / "theirs.tar", member("x", bytes(5000)))
    whole.write_bytes(whole.read_bytes()[:kept])
    with pytest.raises(RootfsTarError, match=r"cut off|cannot be read"):
        image.read_base(whole, image.base_time(DEBIAN))
