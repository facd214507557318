import hashlib
import io
import tarfile
from pathlib import Path

import pytest

from shioenv.errors import RootfsTarError
from shioenv.system.declare import load_declaration
from shioenv.system.home import load_home
from shioenv.system.image import (
    Accounts,
    base_time,
    compose,
    index_rows,
    package_versions,
    read_base,
    write_tar,
)
from shioenv.system.profile import root_files

PASSWD = b"root:x:0:0:root:/root:/bin/bash\nimageuser:x:1000:1000::/home/imageuser:/bin/bash\n"
GROUP = (
    b"root:x:0:\nadm:x:4:\nwww-data:x:33:\nutmp:x:43:\nsudo:x:27:\nusers:x:100:\n"
    b"imageuser:x:1000:\n"
)
STATUS = b"""Package: bash
Status: install ok installed
Version: 5.2.15-2+b8

Package: gone
Status: deinstall ok config-files
Version: 1
"""


def make_base(path: Path, *, order: int = 1, extra: dict[str, bytes] | None = None) -> Path:
    """Return a root filesystem of a few files; `order` -1 reverses their order."""
    files = {
        "./usr/bin/bash": b"#!",
        "./etc/passwd": PASSWD,
        "./etc/group": GROUP,
        "./etc/skel/.profile": b"# skel\n",
        "./etc/hostname": b"builder\n",
        "./etc/apt/sources.list": b"deb http://mirror.invalid/ x main\n",
        "./var/log/dpkg.log": b"today\n",
        "./var/lib/dpkg/status": STATUS,
        "./tmp/left": b"x",
    } | (extra or {})
    with tarfile.open(path, "w") as archive:
        for name in list(files)[::order]:
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.mode = len(files[name]), 4_000_000_000, 0o644
            archive.addfile(member, io.BytesIO(files[name]))
        for name, target in (("./bin", "usr/bin"), ("./sbin", "usr/sbin")):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, target
            archive.addfile(link)
        hard = tarfile.TarInfo("./usr/bin/aaa")
        hard.type, hard.linkname = tarfile.LNKTYPE, "./usr/bin/bash"
        archive.addfile(hard)
        device = tarfile.TarInfo("./dev/sda")
        device.type, device.devmajor = tarfile.BLKTYPE, 8
        archive.addfile(device)
    return path


def canonical(base: Path) -> tuple[str, bytes]:
    declaration = load_declaration()
    base_entries = read_base(base, base_time(declaration))
    out = io.BytesIO()
    with base.open("rb") as source:
        entries = compose(
            declaration, base_entries, source, load_home(declaration), root_files(declaration)
        )
        return write_tar(entries, source, out), out.getvalue()


def members(data: bytes) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return {member.name: member for member in archive}


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return make_base(tmp_path / "base.tar")


def test_the_same_files_in_another_order_give_the_same_bytes(tmp_path: Path) -> None:
    forwards = canonical(make_base(tmp_path / "forwards.tar"))
    backwards = canonical(make_base(tmp_path / "backwards.tar", order=-1))
    assert forwards == backwards


def test_the_digest_is_that_of_every_byte_that_is_written(base: Path) -> None:
    digest, written = canonical(base)
    assert digest == hashlib.sha256(written).hexdigest()


def test_another_byte_gives_another_digest(tmp_path: Path, base: Path) -> None:
    changed = make_base(tmp_path / "changed.tar", extra={"./etc/motd": b"hello\n"})
    assert canonical(base)[0] != canonical(changed)[0]


def test_the_tar_is_canonical(base: Path) -> None:
    found = members(canonical(base)[1])
    names = list(found)
    assert names[0] == "."
    assert [name.split("/") for name in names] == sorted(name.split("/") for name in names)
    instant = load_declaration().instant.timestamp()
    for member in found.values():
        assert not member.isdev() or member.isfifo(), member.name
        assert member.uname == member.gname == ""
        assert member.mtime <= instant


def test_what_the_builder_left_is_gone_and_ours_is_there(base: Path) -> None:
    _, data = canonical(base)
    found = members(data)
    assert "./tmp/left" not in found
    assert "./var/log/dpkg.log" not in found
    assert "./dev/sda" not in found
    assert found["./dev/null"].isreg()
    assert found["./dev/fd"].linkname == "/proc/self/fd"
    assert found["./etc/mtab"].linkname == "/proc/self/mounts"
    assert found["./tmp"].mode == 0o1777
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        stored = {
            name: archive.extractfile(name)
            for name in ("./etc/hostname", "./etc/apt/sources.list", "./home/alice/.profile")
        }
        texts = {name: file.read() for name, file in stored.items() if file}
    assert texts["./etc/hostname"] == b"ubuntu\n"
    assert b"mirror.invalid" not in texts["./etc/apt/sources.list"]
    assert texts["./home/alice/.profile"] == b"# skel\n"


def test_every_name_of_a_hard_linked_file_is_a_file_of_its_own(base: Path) -> None:
    data = canonical(base)[1]
    found = members(data)
    assert not any(member.islnk() for member in found.values())
    names = ["./usr/bin/aaa", "./usr/bin/bash"]
    one, other = (found[name].get_info() for name in names)
    assert {**one, "name": "", "chksum": 0} == {**other, "name": "", "chksum": 0}
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        stored = [archive.extractfile(name) for name in names]
        assert [file and file.read() for file in stored] == [b"#!", b"#!"]


def test_hard_links_that_lead_to_each_other_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "base.tar"
    with tarfile.open(path, "w") as archive:
        for name, target in (("a", "b"), ("b", "a")):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.LNKTYPE, target
            archive.addfile(member)
    with pytest.raises(RootfsTarError, match="which is missing"):
        read_base(path, 0)


def test_a_sparse_file_is_stored_without_its_holes(base: Path) -> None:
    _, data = canonical(base)
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        member = archive.getmember("./home/ubuntu/data/sparse.img")
        assert member.issparse()
        assert member.size == 65536
        stored = archive.extractfile(member)
        assert stored is not None
        content = stored.read()
    assert content.startswith(b"start of image\n")
    assert content[61440:].startswith(b"end of image\n")
    assert not content[4096:61440].strip(b"\0")


def test_an_images_own_user_gives_way_to_the_declared_ones(base: Path) -> None:
    _, data = canonical(base)
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        stored = [archive.extractfile(f"./etc/{name}") for name in ("passwd", "group")]
        passwd, group = (file.read().decode() for file in stored if file)
    accounts = Accounts(passwd, group)
    assert "imageuser" not in accounts.users
    assert accounts.user("ubuntu") == (1000, 1000)
    assert accounts.groups_of("ubuntu") == ("ubuntu", "adm", "sudo", "developers")
    assert accounts.groups_of("root") == ("root",)
    assert accounts.login_users() == ("root", "ubuntu", "alice", "bob")


def test_the_index_says_what_lstat_will(base: Path) -> None:
    declaration = load_declaration()
    base_entries = read_base(base, base_time(declaration))
    with base.open("rb") as source:
        entries = compose(
            declaration, base_entries, source, load_home(declaration), root_files(declaration)
        )
        assert package_versions(base_entries, source) == {"bash": "5.2.15-2+b8"}
    rows = {str(row[0]): row[1:] for row in index_rows(entries)}
    assert rows["/usr/bin/bash"][:6] == [0o100644, 0, 0, 2, 1, base_time(declaration)]
    assert rows["/home/ubuntu/latest.log"][3] == len("logs/app.log")
    assert rows["/home/ubuntu/data/ids.txt"][4] == 1
    subdirectories = sum(
        1 for path, row in rows.items()
        if path.startswith("/home/ubuntu/") and path.count("/") == 3 and int(row[0]) >> 12 == 4
    )  # fmt: skip
    assert rows["/home/ubuntu"][4] == 2 + subdirectories


@pytest.mark.parametrize(
    ("name", "expected"),
    [("../outside", "leaves its root"), ("./a/../../b", "leaves its root")],
)
def test_names_that_lead_out_are_refused(tmp_path: Path, name: str, expected: str) -> None:
    bad = make_base(tmp_path / "bad.tar", extra={name: b"x"})
    with pytest.raises(RootfsTarError, match=expected):
        read_base(bad, 0)


def test_what_is_no_root_filesystem_is_refused(tmp_path: Path) -> None:
    text = tmp_path / "text.tar"
    text.write_bytes(b"not a tarball at all\n" * 100)
    with pytest.raises(RootfsTarError, match="cannot be read as a tarball"):
        read_base(text, 0)
    empty = tmp_path / "empty.tar"
    with tarfile.open(empty, "w"):
        pass
    with pytest.raises(RootfsTarError, match="no /bin/bash"):
        read_base(empty, 0)
