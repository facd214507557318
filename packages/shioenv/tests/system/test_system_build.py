"""Building from a generated tarball: everything but mmdebstrap, in a separate cache."""

import errno
import gzip
import hashlib
import io
import os
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from shioenv.behavior.observe import open_sandbox
from shioenv.cli.main import app
from shioenv.errors import (
    BuildToolError,
    RootfsTarError,
    SandboxError,
    StartDirectoryError,
    SystemBuildError,
    SystemCorruptError,
    SystemDeclarationError,
    SystemNotBuiltError,
    SystemStorageError,
    UnknownSystemError,
    UsageError,
)
from shioenv.files.durable import cache_directory
from shioenv.sandbox.namespaces.backend import NamespaceSandbox
from shioenv.sandbox.namespaces.lower import LowerForm, keep_namespaces
from shioenv.system import contents, image
from shioenv.system.catalogue import catalogue, quoted_name
from shioenv.system.declare import load_declaration, read_text
from shioenv.system.idmap import find_idmap
from shioenv.system.store import (
    System,
    build_system,
    find_system,
    list_systems,
)
from support.needs import needs


def small_tar(path: Path, *, without: tuple[str, ...] = ()) -> Path:
    files = {
        "usr/bin/bash": b"#!/bin/true\n",
        "usr/bin/uname": b"#!/bin/true\n",
        "usr/sbin/ip": b"#!/bin/true\n",
        "usr/sbin/nft": b"#!/bin/true\n",
        "etc/passwd": b"root:x:0:0:root:/root:/bin/bash\n",
        "etc/group": b"root:x:0:\nadm:x:4:\nsudo:x:27:\nwww-data:x:33:\nutmp:x:43:\nusers:x:100:\n",
        "etc/hosts": b"",
    }
    with tarfile.open(path, "w") as archive:
        for name, data in files.items():
            if name in without:
                continue
            member = tarfile.TarInfo(name)
            member.size, member.mode, member.mtime = len(data), 0o755, 1_700_000_000
            archive.addfile(member, io.BytesIO(data))
    return path


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SHIOENV_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def tar(tmp_path: Path) -> Path:
    return small_tar(tmp_path / "base.tar")


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """Return a user's declaration, called `mine`."""
    path = tmp_path / "mine.toml"
    path.write_text(read_text("debian-12").replace('name = "debian-12"', 'name = "mine"'))
    return path


@pytest.fixture
def system(cache: Path, tar: Path) -> System:
    return build_system(rootfs_tar=tar)


def leftovers(cache: Path) -> list[str]:
    return [path.name for path in (cache / "systems").iterdir() if path.name.startswith(".")]


def test_what_was_built_is_found_and_listed(cache: Path, system: System) -> None:
    found = find_system()
    assert (found.name, found.digest) == ("debian-12", system.digest)
    assert found.path == cache / "systems" / system.digest
    assert found.source.startswith("tar:")
    assert [(name, getattr(s, "digest", None)) for name, s in list_systems()] == [
        ("debian-12", system.digest),
        ("debian-12-dev", None),
        ("ubuntu-24.04", None),
    ]
    assert leftovers(cache) == []


def test_two_builds_give_the_same_digest(
    tmp_path: Path, tar: Path, system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = tmp_path / "base.tar.gz"
    packed.write_bytes(gzip.compress(tar.read_bytes()))
    monkeypatch.setenv("SHIOENV_CACHE", str(tmp_path / "second"))
    assert build_system(rootfs_tar=packed).digest == system.digest


@needs("root")  # it reads files of the mapped ids
def test_the_index_says_what_lies_on_the_disk(system: System) -> None:
    ids = find_idmap()
    on_disk = {}
    for directory, names, files in os.walk(system.rootfs):
        for name in [".", *names, *files]:
            path = os.path.normpath(os.path.join(directory, name))  # noqa: PTH118
            on_disk["/" + os.path.relpath(path, system.rootfs).removeprefix(".")] = os.lstat(path)
    assert set(on_disk) == set(system.index)
    moment = system.declaration.instant.timestamp()
    for path, status in on_disk.items():
        entry = system.index[path]
        assert status.st_mode == entry.mode, path
        assert (status.st_uid, status.st_gid) == (
            ids.first_uid + entry.uid,
            ids.first_gid + entry.gid,
        ), path
        assert int(status.st_mtime) == entry.mtime, path
        if not stat.S_ISDIR(entry.mode):
            assert (status.st_size, status.st_nlink) == (entry.size, entry.links), path
        if stat.S_ISREG(entry.mode):
            assert status.st_atime == moment, path
        if stat.S_ISLNK(entry.mode):
            assert str(Path(f"{system.rootfs}{path}").readlink()) == entry.target
    sparse = on_disk["/home/ubuntu/data/sparse.img"]
    assert sparse.st_blocks * 512 < sparse.st_size


def test_the_files_over_proc_lie_beside_the_root_filesystem(system: System) -> None:
    assert (system.proc_files / "meminfo").read_bytes().startswith(b"MemTotal:         221184 kB\n")
    assert not (system.proc_files / "uptime").exists()


def test_the_profile_is_what_was_declared(system: System) -> None:
    profile = system.profile
    assert (profile["mem"], profile["disk"], profile["cpus"]) == ("216M", "512M", "1")
    assert profile["groups"] == ["root"]


@pytest.mark.parametrize(
    "cwd", ["/no/such", "/etc/passwd", "/home/ubuntu/config/current", "etc", ".", ""]
)
def test_a_start_directory_must_be_one(system: System, cwd: str) -> None:
    with pytest.raises(StartDirectoryError):
        catalogue(system, cwd)


def test_links_are_followed_as_the_kernel_does(system: System) -> None:
    assert system.resolve("/home/ubuntu/logs/archive/../bin") == "/home/ubuntu/bin"
    assert system.resolve("/home/ubuntu/latest.log") == "/home/ubuntu/logs/app.log"
    assert system.resolve("/home/ubuntu/config/current") is None
    assert system.resolve("/") == "/"


def test_the_catalogue_names_what_is_there(system: System) -> None:
    tokens = catalogue(system)
    assert tokens["TarFile"][0] == "archives/archive.tar"
    assert "scripts/backup.sh" in tokens["Executable"]
    assert "misc/two\nlines.txt" in tokens["File"]
    assert tokens["Username"] == ("alice", "bob", "root", "ubuntu")
    assert tokens["Directory"][0] == "."
    assert "/etc/services" not in tokens["GlobalFile"]  # the small tarball has none
    for token in ("File", "Directory", "Symlink", "Executable", "Fifo", "CsvFile"):
        for name in tokens[token]:
            assert f"/home/ubuntu/{name}".removesuffix("/.") in system.index
    elsewhere = catalogue(system, "/home/ubuntu/data")
    assert elsewhere["TarFile"][0] == "../archives/archive.tar"
    assert elsewhere["CsvFile"][0] == "data.csv"


def test_names_are_quoted_for_the_shell() -> None:
    for name in ("plain.txt", "a file", "it's", "two\nlines", "-n", "$HOME", "star*", "é"):
        printed = subprocess.run(
            ["bash", "-c", f"printf %s {quoted_name(name)}"], capture_output=True, check=True
        ).stdout.decode()
        assert printed.removeprefix("./") == name


def test_building_again_reuses_what_is_there(tar: Path, system: System) -> None:
    lines: list[str] = []
    again = build_system(rootfs_tar=tar, report=lines.append)
    assert again.digest == system.digest
    assert "the same system is already built" in lines


def test_a_changed_declaration_is_not_taken_for_the_built_one(
    mine: Path, cache: Path, tar: Path
) -> None:
    first = build_system(str(mine), rootfs_tar=tar)
    assert find_system("mine").digest == first.digest
    assert find_system(str(mine)).digest == first.digest
    mine.write_text(mine.read_text().replace('hostname = "ubuntu"', 'hostname = "other"'))
    with pytest.raises(SystemNotBuiltError, match="has changed since it was built"):
        find_system(str(mine))
    second = build_system(str(mine), rootfs_tar=tar)
    assert second.digest != first.digest
    assert find_system("mine").declaration.machine.hostname == "other"
    assert ("mine", second.digest) in [
        (name, getattr(s, "digest", None)) for name, s in list_systems()
    ]
    removed = CliRunner().invoke(app, ["system", "remove", str(mine)])
    assert (removed.exit_code, removed.stdout) == (0, "removed mine\n")
    assert not second.path.exists()
    again = CliRunner().invoke(app, ["system", "remove", "mine"])
    assert again.exit_code == SystemNotBuiltError.exit_status
    assert "the system mine is not built here" in again.stderr


def test_a_system_whose_files_are_gone_is_built_again_from_its_file(
    mine: Path, cache: Path, tar: Path
) -> None:
    built = build_system(str(mine), rootfs_tar=tar)
    (built.path / "system.json").unlink()
    with pytest.raises(SystemNotBuiltError, match=r"system build FILE\.toml"):
        find_system("mine")


def test_what_is_not_built_or_not_known_is_said_so(cache: Path) -> None:
    with pytest.raises(SystemNotBuiltError, match="shioenv system build debian-12") as caught:
        find_system()
    assert caught.value.exit_status == 3
    with pytest.raises(UnknownSystemError, match=r"did you mean ubuntu-24.04\?"):
        find_system("ubuntu-24.4")


def test_damage_is_seen_and_building_repairs_it(tar: Path, system: System) -> None:
    (system.path / "index.json.gz").write_bytes(b"broken")
    with pytest.raises(SystemCorruptError, match="shioenv system build debian-12"):
        len(find_system().index)
    assert build_system(rootfs_tar=tar).index
    (system.path / "system.json").unlink()
    with pytest.raises(SystemNotBuiltError):
        find_system()
    assert build_system(rootfs_tar=tar).facts["entries"] == len(find_system().index)


@pytest.mark.parametrize("wrong", [5, b"debian-12", Path("debian-12")])
def test_what_is_no_name_of_a_system_is_refused(wrong: Any) -> None:
    for ask in (find_system, open_sandbox):
        with pytest.raises(UsageError, match="the name of a system must be a text"):
            ask(wrong)


def remove(file: Path) -> None:
    file.unlink()


def shorten(file: Path) -> None:
    file.write_bytes(b"")


def replace_by_directory(file: Path) -> None:
    file.unlink()
    file.mkdir()


@needs("root")  # it changes files of the mapped ids
@pytest.mark.parametrize("damage", [remove, shorten, replace_by_directory])
def test_a_damaged_root_file_system_is_said_and_repaired(
    tar: Path, system: System, damage: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*arguments: object, **options: object) -> None:
        raise SandboxError("start the fork server: Broken pipe")

    monkeypatch.setattr("shioenv.behavior.observe.default_sandbox", breaks)
    with pytest.raises(SandboxError, match="fork server"):
        open_sandbox()
    bash = system.path / "rootfs/usr/bin/bash"
    damage(bash)
    with pytest.raises(
        SystemCorruptError, match=r"damaged: /usr/bin/bash (is missing|was changed)"
    ):
        open_sandbox()
    repaired = build_system(rootfs_tar=tar)
    repaired.check()
    assert bash.read_bytes() == b"#!/bin/true\n"


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (KeyboardInterrupt(), KeyboardInterrupt),
        (OSError(errno.ENOSPC, "No space left on device"), SystemStorageError),
        (PermissionError(errno.EACCES, "Permission denied"), SystemStorageError),
    ],
)
def test_a_failed_build_leaves_nothing_behind(
    cache: Path,
    tar: Path,
    monkeypatch: pytest.MonkeyPatch,
    failure: BaseException,
    expected: type[BaseException],
) -> None:
    def fail(*_: object) -> str:
        raise failure

    monkeypatch.setattr(image, "index_rows", fail)  # called after unpacking
    with pytest.raises(expected):
        build_system(rootfs_tar=tar)
    assert list((cache / "systems").iterdir()) == []
    assert list((cache / "names").iterdir()) == []


def edited(path: Path) -> None:
    """Change one byte, without any other change visible to `ls`."""
    status, content = path.stat(), path.read_bytes()
    path.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@needs("root")  # it changes files of the mapped ids
@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda top: None, []),
        (lambda top: edited(top / "rootfs/etc/passwd"), ["rootfs/etc/passwd: changed content"]),
        (lambda top: edited(top / "proc/version"), ["proc/version: changed content"]),
        (lambda top: (top / "proc/version").unlink(), ["proc/version: missing"]),
        (
            lambda top: (top / "rootfs/etc/passwd").chmod(0o640),
            ["rootfs/etc/passwd: changed permissions, owner or time"],
        ),
        (
            lambda top: os.utime(top / "rootfs/etc/passwd", (1, 2)),
            ["rootfs/etc/passwd: changed permissions, owner or time"],
        ),
        (
            lambda top: (top / "rootfs/var/log/new").mkdir(),
            ["rootfs/var/log/new: added", "rootfs/var/log: changed permissions, owner or time"],
        ),
        (
            lambda top: (top / "rootfs/etc/hostname").unlink(),
            ["rootfs/etc/hostname: missing", "rootfs/etc: changed permissions, owner or time"],
        ),
    ],
)
def test_every_difference_from_what_was_built_is_found(
    system: System, change: Callable[[Path], None], found: list[str]
) -> None:
    change(system.path)
    assert sorted(system.differences()) == sorted(found)


def test_what_tar_writes_behind_the_end_of_an_archive_is_no_difference(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end may fall into its last block: a reader that stops there would truncate it."""
    with tempfile.TemporaryDirectory() as name:  # where the system's own root may look
        directory = Path(name)
        directory.chmod(0o755)
        script = directory / "tar"
        script.write_text(
            f'#!/bin/sh\n{shutil.which("tar")} "$@" && sleep 0.2 && exec head -c 10240 /dev/zero\n'
        )
        script.chmod(0o755)
        monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")
        assert list(system.differences()) == []


@pytest.mark.parametrize("closed", ["names", "systems"])
def test_a_cache_that_may_not_be_read_is_said_to_be_just_that(
    cache: Path, system: System, closed: str
) -> None:
    unprivileged = ["setpriv", "--inh-caps=-all", "--bounding-set=-dac_override,-dac_read_search"]
    (cache / closed).chmod(0)
    try:
        said = subprocess.run(
            [*(unprivileged if os.geteuid() == 0 else []), sys.executable, "-m",
             "shioenv.cli.main", "run", "true"],
            check=False, capture_output=True, text=True,
        )  # fmt: skip
    finally:
        (cache / closed).chmod(0o700)
    assert said.returncode == 1, said.stderr
    assert "Permission denied" in said.stderr
    assert "SHIOENV_CACHE=DIR" in said.stderr
    assert "Traceback" not in said.stderr


@needs("root")  # it changes files of the mapped ids
@pytest.mark.parametrize("form", LowerForm)
def test_a_sandbox_does_not_open_over_files_that_were_changed(
    system: System, form: LowerForm
) -> None:
    assert keep_namespaces(system.path, 0, best=form).sum == system.tree_sums[form]
    (system.rootfs / "etc/hostname").write_text("other\n")
    with pytest.raises(SystemCorruptError, match="were changed after it was built"):
        NamespaceSandbox(system, lower=form)
    damage = contents.damage(system.path)
    assert damage == "/etc/hostname was changed"  # so that `system build` makes it anew


def test_nothing_is_said_of_a_system_whose_contents_were_not_written_down(system: System) -> None:
    (system.path / "contents.json.gz").unlink()
    with pytest.raises(SystemCorruptError, match="contents"):
        list(system.differences())


def test_a_tarball_that_is_none_is_refused(cache: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.tar"
    bad.write_bytes(b"\x1f\x8bnot gzip")
    with pytest.raises(RootfsTarError, match="cannot be decompressed"):
        build_system(rootfs_tar=bad)
    with pytest.raises(RootfsTarError, match="No such file"):
        build_system(rootfs_tar=tmp_path / "absent.tar")
    assert leftovers(cache) == []


def with_release(path: Path, family: str, suite: str) -> Path:
    small_tar(path)
    with tarfile.open(path, "a") as archive:
        data = f'PRETTY_NAME="x"\nID={family}\nVERSION_CODENAME={suite}\n'.encode()
        member = tarfile.TarInfo("usr/lib/os-release")
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    return path


def test_a_system_made_from_something_else_is_not_replaced(
    system: System, tmp_path: Path, cache: Path
) -> None:
    other = with_release(tmp_path / "other.tar", "debian", "bookworm")
    with pytest.raises(SystemBuildError, match="from another source") as told:
        build_system(rootfs_tar=other)
    assert "--name NAME" in str(told.value.hint)
    with pytest.raises(SystemBuildError, match="from another source"):
        build_system()  # by mmdebstrap, which is not even asked
    assert find_system().digest == system.digest
    said = CliRunner().invoke(app, ["system", "remove", "debian-12"])
    assert said.exit_code == 0
    assert build_system(rootfs_tar=other).digest != system.digest


def test_what_a_tarball_holds_can_be_called_otherwise(
    system: System, tmp_path: Path, cache: Path
) -> None:
    other = with_release(tmp_path / "other.tar", "debian", "trixie")
    built = build_system(rootfs_tar=other, called="other")
    assert (built.name, built.declaration.name) == ("other", "other")
    assert find_system("other").digest == built.digest != system.digest
    assert find_system().digest == system.digest
    assert [name for name, found in list_systems() if isinstance(found, System)] == [
        "debian-12",
        "other",
    ]
    again = build_system(rootfs_tar=other, called="other")
    assert again.digest == built.digest
    with pytest.raises(SystemBuildError, match="a system other from another source"):
        build_system("ubuntu-24.04", rootfs_tar=small_tar(tmp_path / "a.tar"), called="other")


@pytest.mark.parametrize("name", ["../x", "", "ubuntu-24.04", "a.toml", "-x", "A"])
def test_no_system_gets_a_name_that_cannot_be_had(cache: Path, tar: Path, name: str) -> None:
    with pytest.raises(UsageError):
        build_system(rootfs_tar=tar, called=name)
    with pytest.raises(UsageError, match="only for a tarball"):
        build_system(called="other")


@pytest.mark.parametrize(
    ("name", "family", "suite", "fits"),
    [
        ("debian-12", "debian", "bookworm", True),
        ("debian-12", "debian", "trixie", False),
        ("debian-12", "ubuntu", "noble", False),
        ("debian-12", "alpine", "", False),
        ("ubuntu-24.04", "ubuntu", "noble", True),
        ("ubuntu-24.04", "debian", "bookworm", False),
        ("mine", "fedora", "", True),
    ],
)
def test_a_shipped_name_is_for_its_own_distribution(
    cache: Path, tmp_path: Path, mine: Path, name: str, family: str, suite: str, fits: bool
) -> None:
    asked = str(mine) if name == "mine" else name
    tar = with_release(tmp_path / "base.tar", family, suite)
    if fits:
        assert build_system(asked, rootfs_tar=tar).name == name
        return
    with pytest.raises(RootfsTarError, match=f"contains {family}") as caught:
        build_system(asked, rootfs_tar=tar)
    assert "--name NAME" in str(caught.value.hint)


def with_packages(path: Path, versions: dict[str, str], files: dict[str, str]) -> Path:
    """Add dpkg's database with these packages, and other files, to a tarball."""
    status = "\n".join(
        f"Package: {name}\nStatus: install ok installed\nVersion: {version}\n"
        for name, version in versions.items()
    )
    with tarfile.open(path, "a") as archive:
        for name, text in {"var/lib/dpkg/status": status, **files}.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return path


@pytest.mark.parametrize(
    ("version", "changed", "error"),
    [
        ("12.4+deb12u11", False, None),
        ("12.4+deb12u11", True, "os-release is not the one of its package base-files 12.4"),
        ("13ubuntu10.2", False, "contains ubuntu base-files 13ubuntu10.2, but debian-12 is debian"),
    ],
)
def test_the_release_of_a_tarball_is_compared_with_its_package(
    cache: Path, tmp_path: Path, version: str, changed: bool, error: str | None
) -> None:
    path = with_release(tmp_path / "base.tar", "debian", "bookworm")
    with tarfile.open(path) as archive:
        release = archive.extractfile("usr/lib/os-release")
        assert release is not None
        digest = hashlib.md5(release.read() + b"#" * changed).hexdigest()
    sums = {"var/lib/dpkg/info/base-files.md5sums": f"{digest}  usr/lib/os-release\n"}
    with_packages(path, {"base-files": version}, sums)
    if error is None:
        assert build_system(rootfs_tar=path).name == "debian-12"
        return
    with pytest.raises(RootfsTarError, match=error):
        build_system(rootfs_tar=path)


def test_a_release_that_was_removed_is_missed(cache: Path, tmp_path: Path) -> None:
    sums = {"var/lib/dpkg/info/base-files.md5sums": f"{'0' * 32}  usr/lib/os-release\n"}
    path = with_packages(small_tar(tmp_path / "base.tar"), {"base-files": "12.4"}, sums)
    with pytest.raises(RootfsTarError, match="not the one of its package"):
        build_system(rootfs_tar=path)


def test_packages_that_a_tarball_lacks_are_reported_with_a_command(
    cache: Path, tmp_path: Path
) -> None:
    declared = load_declaration().distribution.packages
    versions = {name: "1" for name in declared if name not in {"less", "xxd"}}
    lines: list[str] = []
    build_system(
        rootfs_tar=with_packages(small_tar(tmp_path / "base.tar"), versions, {}),
        report=lines.append,
    )
    assert "the tarball lacks 2 declared packages: apt-get install less xxd" in lines


def test_a_file_does_not_take_the_name_of_a_system_that_ships(
    mine: Path, cache: Path, tar: Path
) -> None:
    mine.write_text(read_text("debian-12"))
    assert build_system(str(mine), rootfs_tar=tar).name == "debian-12"  # it is that one
    mine.write_text(read_text("debian-12").replace("uptime = 97380", "uptime = 97381"))
    for ask in (find_system, build_system):
        with pytest.raises(
            SystemDeclarationError, match="debian-12 is the name of a shipped system"
        ):
            ask(str(mine))


@pytest.mark.parametrize(
    ("without", "said", "packages"),
    [
        (("usr/sbin/ip",), "has no ip in", "iproute2"),
        (("usr/sbin/nft",), "has no nft in", "nftables"),
        (("usr/sbin/nft", "usr/sbin/ip"), "has no ip and no nft in", "iproute2 nftables"),
        (("usr/bin/uname",), "has no uname in", "coreutils"),
    ],
)
def test_a_system_that_records_could_not_be_read_from_is_not_built(
    cache: Path, tmp_path: Path, without: tuple[str, ...], said: str, packages: str
) -> None:
    with pytest.raises(RootfsTarError, match=said) as caught:
        build_system(rootfs_tar=small_tar(tmp_path / "less.tar", without=without))
    assert caught.value.hint is not None
    assert caught.value.hint.endswith(f": apt-get install {packages}")
    assert list((cache / "systems").iterdir()) == list((cache / "names").iterdir()) == []


@pytest.mark.parametrize("path", ["/usr/bin", "", "/nonexistent:/home/ubuntu", "/etc:/usr/bin"])
def test_those_programs_are_looked_for_as_the_session_does(
    cache: Path, tmp_path: Path, tar: Path, mine: Path, path: str
) -> None:
    default = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    mine.write_text(mine.read_text().replace(f'PATH = "{default}"', f'PATH = "{path}"'))
    with pytest.raises(RootfsTarError, match="has no ip and no nft"):
        build_system(str(mine), rootfs_tar=tar)


@pytest.mark.parametrize("target", ["../usr/sbin/ip", "/usr/bin/bash", "loop", "gone", "/etc"])
def test_a_program_may_be_a_link_that_leads_to_one(
    cache: Path, tmp_path: Path, target: str
) -> None:
    path = small_tar(tmp_path / "linked.tar", without=("usr/sbin/ip",))
    with tarfile.open(path, "a") as archive:
        for name, leads in (("usr/sbin/ip", target), ("usr/sbin/loop", "ip")):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, leads
            archive.addfile(member)
    if target == "/usr/bin/bash":
        assert build_system(rootfs_tar=path).resolve("/usr/sbin/ip") == target
    else:
        with pytest.raises(RootfsTarError, match="has no ip in"):
            build_system(rootfs_tar=path)


def test_a_cache_that_cannot_be_made_is_a_clear_error(
    tmp_path: Path, tar: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SHIOENV_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(SystemStorageError, match="SHIOENV_CACHE=DIR"):
        build_system(rootfs_tar=tar)


def test_packages_are_installed_with_none_of_the_hosts_variables(
    cache: Path, mine: Path, tar: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Except those that a download may need: programs that set packages up see them."""
    programs = tmp_path / "programs"
    programs.mkdir()
    script = programs / "mmdebstrap"
    script.write_text(
        f"#!/bin/sh\nenv > {tmp_path}/seen\n"
        f'for word; do case $word in *.part) cp {tar} "$word";; esac; done\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    host = {"PYTHONHASHSEED": "7", "PERL5OPT": "-w", "TAR_OPTIONS": "-v", "POSIXLY_CORRECT": "1"}
    host |= {"TZ": "Asia/Tokyo", "LANGUAGE": "de", "BASH_ENV": "/dev/null", "LC_TIME": "tr_TR"}
    for name, value in {**host, "https_proxy": "http://proxy.test"}.items():
        monkeypatch.setenv(name, value)
    build_system(str(mine))
    seen = dict(line.split("=", 1) for line in (tmp_path / "seen").read_text().splitlines())
    assert seen["https_proxy"] == "http://proxy.test"
    assert set(seen) & set(host) == set()
    assert (seen["LC_ALL"], seen["PYTHONDONTWRITEBYTECODE"]) == ("C.UTF-8", "1")


def test_a_faulty_home_tree_is_told_before_anything_is_downloaded(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A typing error in it is found before the minutes of a download."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "mmdebstrap"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/downloaded\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin", prepend=os.pathsep)
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "tree.toml").write_text(
        '[entries]\n"." = { kind = "directry", time = 2025-09-01T00:00:00Z }\n'
    )
    text = read_text().replace('name = "debian-12"', 'name = "theirs"', 1)
    text = text.replace('source = "home"', f'source = "{tree}"', 1)
    (tmp_path / "theirs.toml").write_text(text)
    for base in (None, tmp_path / "no.tar"):
        with pytest.raises(SystemDeclarationError, match="directry"):
            build_system(str(tmp_path / "theirs.toml"), rootfs_tar=base)
    assert not (tmp_path / "downloaded").exists()
    assert not cache.exists()


def test_a_missing_mmdebstrap_comes_with_the_fix(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(BuildToolError, match="apt-get install mmdebstrap") as caught:
        build_system()
    assert caught.value.exit_status == 3


@pytest.mark.parametrize(
    "said",
    [
        "tar: ./usr/lib/x: Cannot write: No space left on device",
        "tar: base.part: Wrote only 4096 of 10240 bytes: Disk quota exceeded",
        "E: You don't have enough free space in /tmp/mmdebstrap.x/var/cache/apt/archives/.",
    ],
)
@pytest.mark.parametrize(("full", "hint"), [("cache", "SHIOENV_CACHE=DIR"), ("/tmp", "TMPDIR=DIR")])
def test_the_disk_that_is_full_is_the_one_that_is_named(
    cache: Path, mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    said: str, full: str, hint: str,
) -> None:  # fmt: skip
    program = tmp_path / "mmdebstrap"
    program.write_text(f'#!/bin/sh\necho "{said}" >&2\nexit 25\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(shutil, "disk_usage", lambda place: SimpleNamespace(free=1 << 40))
    if full == "cache":
        full = str(cache)
        monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    else:
        full = "/proc"  # on another disk than the cache
        monkeypatch.setattr(tempfile, "gettempdir", lambda: "/proc")
    with pytest.raises(SystemStorageError, match=f"disk is full: {full}") as caught:
        build_system(str(mine))
    assert hint in str(caught.value.hint)
    assert list((cache / "bases").iterdir()) == []


@pytest.mark.parametrize(
    ("free", "together", "named"),
    [(900, True, "cache"), (750, False, "cache"), (850, False, "/proc"), (1100, True, None)],
)
def test_a_disk_without_room_is_named_before_anything_is_downloaded(
    cache: Path, mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    free: int, together: bool, named: str | None,
) -> None:  # fmt: skip
    program = tmp_path / "mmdebstrap"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/downloaded\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(
        shutil, "disk_usage",
        lambda place: SimpleNamespace(free=600e6 if str(place) == "/proc" else free * 1e6),
    )  # fmt: skip
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path) if together else "/proc")
    if named is None:
        with pytest.raises(SystemBuildError, match="mmdebstrap failed"):
            build_system(str(mine))
        return
    with pytest.raises(SystemStorageError, match=f"full: .*{named}.* has [0-9]+ MB free"):
        build_system(str(mine))
    assert not (tmp_path / "downloaded").exists()


def test_two_builds_at_once_do_not_disturb_each_other(cache: Path, tar: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        builds = [pool.submit(build_system, rootfs_tar=tar) for _ in range(2)]
        digests = {build.result().digest for build in builds}
    assert digests == {find_system().digest}
    assert leftovers(cache) == []


def test_what_a_killed_build_left_is_swept_up(cache: Path, tar: Path, system: System) -> None:
    code = (
        "import os, signal\n"
        "from shioenv.system import image, store\n"
        "image.index_rows = lambda _: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"store.build_system('ubuntu-24.04', rootfs_tar={str(tar)!r})\n"
    )
    killed = subprocess.run([sys.executable, "-c", code], check=False)
    assert killed.returncode == -9
    assert len(leftovers(cache)) == 1
    build_system(rootfs_tar=tar)
    assert leftovers(cache) == []


def test_the_cache_lies_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHIOENV_CACHE", "/one")
    monkeypatch.setenv("XDG_CACHE_HOME", "/two")
    monkeypatch.setenv("HOME", "/three")
    assert cache_directory() == Path("/one")
    monkeypatch.delenv("SHIOENV_CACHE")
    assert cache_directory() == Path("/two/shioenv")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_directory() == Path("/three/.cache/shioenv")
