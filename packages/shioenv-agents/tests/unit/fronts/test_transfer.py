"""An archive from a machine is extracted below one directory, or refused."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from shioenv.errors import TransferError
from shioenv_agents.fronts.transfer import pack, put, unpack

MOST = 1 << 20


def sized(name: str, size: int) -> io.BytesIO:
    """Return an archive that ends after an entry's header, which declares the entry's size."""
    head = member(name)
    head.size = size
    return io.BytesIO(head.tobuf(tarfile.GNU_FORMAT))


def archive(*members: tuple[tarfile.TarInfo, bytes]) -> io.BytesIO:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for member, content in members:
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    held.seek(0)
    return held


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.mode = kind, target, 0o6777
    return made


def listed(place: Path) -> dict[str, bytes | None]:
    return {
        path.relative_to(place).as_posix(): path.read_bytes() if path.is_file() else None
        for path in place.rglob("*")
    }


def test_a_directory_goes_in_and_comes_out_as_it_was(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    deep = source / ("d" * 120) / ("e" * 120)
    deep.mkdir(parents=True)
    target.mkdir()
    (deep / "f").write_bytes(b"x" * 1025)
    (source / os.fsdecode(b"odd\n\xff")).write_bytes(b"")
    os.mkfifo(source / "pipe")
    held = io.BytesIO()
    pack(source, held)
    held.seek(0)
    assert unpack(held, target, 10, MOST) == 0
    assert listed(target) == {n: c for n, c in listed(source).items() if n != "pipe"}


def test_what_is_packed_is_of_root_and_links_stay_links(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/shadow")
    held = io.BytesIO()
    pack(tmp_path, held)
    held.seek(0)
    with tarfile.open(fileobj=held) as tar:
        (found,) = tar.getmembers()
    assert (found.uid, found.gid, found.uname) == (0, 0, "root")
    assert (found.type, found.linkname) == (tarfile.SYMTYPE, "/etc/shadow")


def test_nothing_but_files_and_directories_comes_out(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    held = archive(
        (member("link", tarfile.SYMTYPE, "/etc"), b""),
        (member("link/passwd"), b"mine"),
        (member("hard", tarfile.LNKTYPE, "/etc/passwd"), b""),
        (member("zero", tarfile.CHRTYPE), b""),
        (member("disk", tarfile.BLKTYPE), b""),
        (member("pipe", tarfile.FIFOTYPE), b""),
        (member("program"), b"#!"),
    )
    assert unpack(held, place, 10, MOST) == 5
    assert listed(place) == {"link": None, "link/passwd": b"mine", "program": b"#!"}
    assert (place / "program").stat().st_mode & 0o7777 == 0o644 & ~_umask()


def _umask() -> int:
    now = os.umask(0)
    os.umask(now)
    return now


@pytest.mark.parametrize("name", ["../out", "/etc/out", "a/../../out", "a/.."])
def test_a_name_that_leads_out_is_refused(tmp_path: Path, name: str) -> None:
    place = tmp_path / "place"
    place.mkdir()
    with pytest.raises(TransferError, match="outside the directory"):
        unpack(archive((member(name), b"x")), place, 10, MOST)
    assert listed(tmp_path) == {"place": None}


def test_a_link_of_this_host_in_the_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "place/file").symlink_to(tmp_path / "mine")
    with pytest.raises(OSError, match="file"):
        unpack(archive((member("file"), b"theirs")), tmp_path / "place", 10, MOST)
    assert (tmp_path / "mine").read_text() == "mine"


@pytest.mark.parametrize(
    ("held", "why"),
    [
        (archive(*((member(str(n)), b"") for n in range(11))), "more than 10 entries"),
        (archive(*((member(f"{n}/x"), b"") for n in range(6))), "more than 10 entries"),
        (archive((member("d/" * 12, tarfile.DIRTYPE), b"")), "more than 10 entries"),
        (archive((member("d/" * 64 + "f"), b"")), "a path of 65 components"),
        (archive((member("d/" * 1500 + "f"), b"")), "a path of 1501 components"),
        (sized("f", MOST + 1), "more than 1,048,576 bytes"),
        (sized("f", 1 << 80), "more than 1,048,576 bytes"),
        (archive((member("a"), b""), (member("a/b"), b"")), "not a directory"),
        (archive((member("n" * 5000), b"")), "a name of 5001 bytes"),
        (io.BytesIO(b"x" * 512), "cannot be read"),
        (io.BytesIO(archive((member("a"), b"x" * 2000)).getvalue()[:1024]), "is truncated"),
    ],
    ids=[
        "many",
        "many implied",
        "many nested",
        "deep",
        "deepest",
        "large",
        "past every number",
        "file as directory",
        "long name",
        "no archive",
        "cut",
    ],
)
def test_what_no_machine_of_good_will_sends_is_refused(
    tmp_path: Path, held: io.BytesIO, why: str
) -> None:
    with pytest.raises(TransferError, match=why):
        unpack(held, tmp_path, 10, MOST)


@pytest.mark.parametrize("there", ["nothing", "directory", "file above", "link", "link above"])
def test_a_file_is_put_in_the_place_of_whatever_lies_there(tmp_path: Path, there: str) -> None:
    place, mine = tmp_path / "place", tmp_path / "mine"
    mine.mkdir()
    (mine / "state").write_text("mine")
    if there == "directory":
        (place / "artifacts/state/full").mkdir(parents=True)
    elif there == "file above":
        place.mkdir()
        (place / "artifacts").write_text("theirs")
    elif there == "link":
        (place / "artifacts").mkdir(parents=True)
        (place / "artifacts/state").symlink_to(mine / "state")
    elif there == "link above":
        place.mkdir()
        (place / "artifacts").symlink_to(mine)
    put("true", place, "artifacts/state")
    assert listed(place) == {"artifacts": None, "artifacts/state": b"true"}
    assert (mine / "state").read_text() == "mine"
    put(None, place, "artifacts/state")
    assert listed(place) == {"artifacts": None}
