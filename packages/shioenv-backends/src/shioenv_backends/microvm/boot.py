"""The boot files of a microVM: a kernel, an initramfs and the system's root disk.

    systems/<digest>/microvm/microvm.json   a copy of the microvm.json of the key in use
    systems/<digest>/microvm/<key>/         vmlinux  initramfs  disk  microvm.json  snapshots/
    kernels/<sha256>.deb                    packages that kernels come from

These files are made without root, on demand (`shioenv system build --microvm`). The same system,
kernel, list of modules and helpers give the same bytes; the key is a digest of these four.
"""

from __future__ import annotations

import hashlib
import io
import lzma
import os
import re
import shutil
import stat
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.request import urlopen
from uuid import UUID

from shioenv.errors import BuildToolError, HostError, SystemBuildError, SystemNotBuiltError
from shioenv.files.durable import atomic_write, cache_directory, sha256_of
from shioenv.native import built
from shioenv.system import build as building
from shioenv.system.bootstrap import Progress
from shioenv.system.contents import read_json
from shioenv.system.declare import Machine
from shioenv.system.idmap import find_idmap, run_mapped
from shioenv.system.store import System

_PROGRAMS = Path(__file__).parents[1] / "native" / "bin"

_LAYOUT = 3
_BESIDE = ("proc", "processes", "web")
"""Directories next to a system's `rootfs` that a supervisor reads."""

MODULES = (
    "virtio_pci", "virtio_mmio", "virtio_blk", "virtio_console", "virtio_net", "ext4", "overlay",
    "veth", "vmw_vsock_virtio_transport", "nf_tables", "nft_ct", "nft_chain_nat", "nft_limit",
    "nft_log", "nft_masq", "nft_reject_inet",
)  # fmt: skip
"""Modules for the guest's kernel, unless they are built into it."""


@dataclass(frozen=True, slots=True)
class KernelPackage:
    """A kernel in a distribution's package (`.deb`)."""

    release: str
    """The kernel's release, as `uname -r` prints it."""
    sha256: str
    """Digest (hex) of the package."""
    addresses: tuple[str, ...] = ()
    """Download addresses of the package; the first that returns these bytes is used."""


KERNEL = KernelPackage(
    "6.18.15+deb13-cloud-amd64",
    "5a507681ea8c978d02265a7fec2f02c9588fb48b54b7f71edc1059e86007f3ec",
    tuple(
        f"{archive}/pool/main/l/linux-signed-amd64/"
        "linux-image-6.18.15+deb13-cloud-amd64_6.18.15-1~bpo13+1_amd64.deb"
        for archive in (
            "http://deb.debian.org/debian",
            "http://snapshot.debian.org/archive/debian/20260301T000000Z",
        )
    ),
)
"""Debian's kernel for virtual machines, from trixie-backports.

A sandbox needs Linux 6.6. From Linux 6.16 on, inputs cannot see the host's file system that stores
the system (`LowerForm`).
"""


@dataclass(frozen=True, slots=True)
class Microvm:
    """The files from which a system's machines boot."""

    path: Path
    record: Mapping[str, Any]
    """The content of `microvm.json`: `key`, `helpers` (digest of the helper programs), `kernel`
    (`release`, and `sha256` of the package), `files` (sha256 by name)."""

    @property
    def kernel(self) -> Path:
        """An uncompressed kernel."""
        return self.path / "vmlinux"

    @property
    def initramfs(self) -> Path:
        """The initramfs: process 1, the supervisor and the kernel's modules.

        It also holds the directories next to the system's root file system.
        """
        return self.path / "initramfs"

    @property
    def disk(self) -> Path:
        """An ext4 image of the root file system, with the system's own owners."""
        return self.path / "disk"

    @property
    def release(self) -> str:
        """The kernel's release, as `uname -r` prints it."""
        return str(self.record["kernel"]["release"])


def find_microvm(system: System) -> Microvm:
    """Return the boot files of the system's machines.

    Errors: SystemNotBuiltError if they were not built, or were built with other helper programs
    than the installed ones.
    """
    hint = f"shioenv system build {system.name} --microvm"
    try:
        record = read_json(system.path / "microvm" / "microvm.json")
        made_with, key = record["helpers"], record["key"]
    except (OSError, ValueError, KeyError):
        raise SystemNotBuiltError(
            f"the microVM of the system {system.name} has not been built", hint=hint
        ) from None
    found = Microvm(system.path / "microvm" / key, record)
    if made_with != _helpers() or not found.disk.exists():
        raise SystemNotBuiltError(
            f"the microVM of the system {system.name} was built with another shioenv", hint=hint
        )
    return found


def build_microvm(
    system: System,
    *,
    kernel: Path | None = None,
    report: Progress = building.silent,
) -> Microvm:
    """Return the boot files of the system's machines, building them if missing.

    `kernel` is a package (`.deb`) to use instead of `KERNEL`.

    Errors: HostError and BuildToolError (exit status 3) if the host lacks a program or right,
    SystemBuildError if the kernel is not available, SystemStorageError.
    """
    cache = cache_directory()
    with building.system_storage_errors(cache), building.build_lock(cache, report):
        package = _downloaded(KERNEL, cache, report) if kernel is None else kernel
        sha256 = KERNEL.sha256 if kernel is None else sha256_of(package)
        key = _key(system, sha256)
        top = system.path / "microvm"
        if not (top / key).is_dir():
            _make(system, package, sha256, key, report)
        else:
            report(f"already built: {top / key}")
        atomic_write(top / "microvm.json", (top / key / "microvm.json").read_bytes())
    return find_microvm(system)


def _helpers() -> str:
    digest = hashlib.sha256(f"{_LAYOUT}".encode())
    for program in (guest_agent(), guest_sandbox()):
        digest.update(program.read_bytes())
    return digest.hexdigest()


def _key(system: System, kernel: str) -> str:
    document = repr((system.digest, kernel, _helpers(), MODULES))
    return hashlib.sha256(document.encode()).hexdigest()[:16]


def _make(system: System, package: Path, sha256: str, key: str, report: Progress) -> None:
    top = system.path / "microvm"
    top.mkdir(exist_ok=True)
    for left in top.glob(".build-*"):
        shutil.rmtree(left)
    work = Path(tempfile.mkdtemp(prefix=".build-", dir=top))
    try:
        report("unpacking the kernel")
        unpacked = read_kernel(package)
        (work / "vmlinux").write_bytes(uncompressed(unpacked.image))
        (work / "initramfs").write_bytes(_initramfs(system, unpacked))
        report("creating the disk")
        make_disk(system, root_disk(system.declaration.machine), work / "disk")
        names = ("vmlinux", "initramfs", "disk")
        record = {
            "key": key,
            "helpers": _helpers(),
            "kernel": {"release": unpacked.release, "sha256": sha256},
            "files": {name: sha256_of(work / name) for name in names},
        }
        building.write_json(work / "microvm.json", record)
        work.chmod(0o755)
        work.rename(top / key)
    finally:
        shutil.rmtree(work, ignore_errors=True)


# ---- kernels ----


@dataclass(frozen=True, slots=True)
class UnpackedKernel:
    """The content of a kernel's package."""

    release: str
    image: bytes
    modules: Mapping[str, bytes]
    """Modules by name, with `_` for `-`; optionally compressed with xz."""


def _downloaded(kernel: KernelPackage, cache: Path, report: Progress) -> Path:
    place = cache / "kernels" / f"{kernel.sha256}.deb"
    if place.exists():
        return place
    place.parent.mkdir(exist_ok=True)
    failed = []
    for address in kernel.addresses:
        report(f"downloading {address}")
        try:
            with urlopen(address, timeout=60) as answer:
                content = answer.read()
        except (OSError, HTTPException) as error:
            failed.append(f"{address}: {getattr(error, 'reason', error)}")
            continue
        if hashlib.sha256(content).hexdigest() == kernel.sha256:
            atomic_write(place, content)
            return place
        failed.append(f"{address}: the checksum differs")
    raise SystemBuildError(
        "the kernel could not be downloaded:\n" + "\n".join(failed),
        hint="copy a package of a kernel for virtual machines, 6.16 or newer, to this host: "
        "--kernel FILE.deb",
    )


def read_kernel(package: Path) -> UnpackedKernel:
    """Read the kernel in a package. SystemBuildError if the file is not a kernel's package."""
    image, release, modules = b"", "", {}
    try:
        with tarfile.open(fileobj=io.BytesIO(_data(package)), mode="r:") as tar:
            for member in tar:
                name = Path(member.name)
                held = tar.extractfile(member) if member.isreg() else None
                if held and name.name.startswith("vmlinuz-"):
                    image, release = held.read(), name.name.removeprefix("vmlinuz-")
                elif held and ".ko" in name.suffixes:
                    modules[name.name.partition(".ko")[0].replace("-", "_")] = held.read()
    except (OSError, tarfile.TarError, lzma.LZMAError, ValueError) as error:
        raise SystemBuildError(f"{package} is not a valid package: {error}") from error
    if not image:
        raise SystemBuildError(f"{package} has no kernel", hint="use a linux-image package")
    return UnpackedKernel(release, image, modules)


def _data(package: Path) -> bytes:
    """Return the tar file in a package, which is an `ar` archive of three members."""
    with package.open("rb") as file:
        if file.read(8) != b"!<arch>\n":
            raise ValueError("not a .deb file")
        while head := file.read(60):
            name, size = head[:16].decode("ascii").strip(), int(head[48:58])
            content = file.read(size + size % 2)[:size]
            if name.startswith("data.tar.xz"):
                return lzma.decompress(content)
            if name.startswith("data.tar.zst"):
                return _unzstd(content)
    raise ValueError("its data is not compressed with xz or zstd")


def _unzstd(content: bytes) -> bytes:
    try:
        done = subprocess.run(["zstd", "-q", "-d", "-c"], input=content, capture_output=True)
    except FileNotFoundError as error:
        raise BuildToolError(
            "zstd is not installed, and the kernel is compressed with it",
            hint="apt-get install zstd",
        ) from error
    if done.returncode or not done.stdout:
        raise SystemBuildError(f"the kernel cannot be decompressed: {done.stderr.decode()}")
    return done.stdout


def uncompressed(image: bytes) -> bytes:
    """Return the ELF file in a `vmlinuz` (Linux, Documentation/arch/x86/boot.rst).

    An emulated machine would take seconds to unpack it. Raises SystemBuildError for another image.
    """
    if image.startswith(b"\x7fELF"):
        return image
    if image[0x202:0x206] != b"HdrS":
        raise SystemBuildError("the kernel is not a Linux image for x86")
    begin = (image[0x1F1] + 1) * 512 + int.from_bytes(image[0x248:0x24C], "little")
    payload = image[begin : begin + int.from_bytes(image[0x24C:0x250], "little")]
    if payload.startswith(b"\x28\xb5\x2f\xfd"):
        return _unzstd(payload[:-4])  # the last four bytes are the length
    if payload.startswith(b"\xfd7zXZ\0"):
        return lzma.LZMADecompressor().decompress(payload)
    raise SystemBuildError("the kernel is not compressed with zstd or xz")


def _field(module: bytes, key: bytes) -> str:
    """Return a field of a module's `.modinfo`."""
    parts = (part for part in module.split(b"\0") if part.startswith(key + b"="))
    return next(parts, b"=").partition(b"=")[2].decode()


def modules(kernel: UnpackedKernel, wanted: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Yield (name, content) of modules, each after its dependencies.

    Modules that the package lacks are skipped, since they are built into the kernel.
    """
    done = set()

    def needed(name: str) -> Iterator[tuple[str, bytes]]:
        content = kernel.modules.get(name)
        if name in done or content is None:
            return
        done.add(name)
        if content.startswith(b"\xfd7zXZ\0"):
            content = lzma.decompress(content)
        for other in _field(content, b"depends").split(","):
            yield from needed(other.replace("-", "_"))
        yield name, content

    for name in wanted:
        yield from needed(name)


# ---- file systems ----


@dataclass(frozen=True, slots=True)
class InitialFile:
    """A file of an initramfs."""

    name: str
    mode: int
    content: bytes = b""
    device: tuple[int, int] = (0, 0)
    mtime: int = 0


def archive(entries: Sequence[InitialFile]) -> bytes:
    """Return the archive (cpio, `newc`) of files that the kernel unpacks at boot."""
    packed = bytearray()
    for number, entry in enumerate((*entries, InitialFile("TRAILER!!!", 0)), 1):
        name, size = entry.name.encode() + b"\0", len(entry.content)
        fields = (number, entry.mode, 0, 0, 1, entry.mtime, size, 0, 0, *entry.device, len(name), 0)
        packed += b"070701" + b"".join(b"%08X" % field for field in fields) + name
        packed += b"\0" * (-len(packed) % 4) + entry.content
        packed += b"\0" * (-len(packed) % 4)
    return bytes(packed)


def boot_files(kernel: UnpackedKernel, wanted: Sequence[str], agent: bytes) -> list[InitialFile]:
    """Return the files to boot with: process 1, a console, and modules with their loading order."""
    loaded = list(modules(kernel, wanted))
    order = "".join(f"/modules/{name}.ko\n" for name, _ in loaded).encode()
    directories = ("dev", "proc", "sys", "tmp", "new", "modules")
    return [
        *(InitialFile(name, stat.S_IFDIR | 0o755) for name in directories),
        InitialFile("dev/console", stat.S_IFCHR | 0o600, device=(5, 1)),
        InitialFile("modules/order", stat.S_IFREG | 0o644, order),
        InitialFile("init", stat.S_IFREG | 0o755, agent),
        *(InitialFile(f"modules/{name}.ko", stat.S_IFREG | 0o644, held) for name, held in loaded),
    ]


def _initramfs(system: System, kernel: UnpackedKernel) -> bytes:
    agent, supervisor = guest_agent(), guest_sandbox()
    instant = int(system.declaration.instant.timestamp())
    entries = boot_files(kernel, MODULES, agent.read_bytes())
    entries.append(InitialFile("shioenv-sandbox", stat.S_IFREG | 0o755, supervisor.read_bytes()))
    entries += [InitialFile(name, stat.S_IFDIR | 0o755) for name in ("system", "system/rootfs")]
    for top in _BESIDE:
        beside = system.path / top
        for path in (beside, *sorted(beside.rglob("*"))):
            content = path.read_bytes() if path.is_file() else b""
            name = f"system/{path.relative_to(system.path)}"
            entries.append(InitialFile(name, path.stat().st_mode, content, mtime=instant))
    return archive(entries)


def root_disk(machine: Machine) -> int:
    """Return the number of the declared disk that is mounted at /; 0 if there is none."""
    return next((number for number, disk in enumerate(machine.disks) if disk.mount == "/"), 0)


def make_disk(system: System, number: int, image: Path) -> None:
    """Create the image of the declared disk of this number, deterministically for a system.

    The disk mounted at / gets the root file system, with the system's own owners. Any other disk
    gets an empty file system. `image` must be in the system's directory, or in a directory that
    root of the system can write to.
    """
    declared = system.declaration.machine.disks[number]
    instant = int(system.declaration.instant.timestamp())
    with image.open("wb") as file:
        file.truncate(declared.size)
    _let_mapped_write(image)
    image.parent.chmod(0o755)
    inside = image.is_relative_to(system.path)
    shown = str(image.relative_to(system.path)) if inside else str(image)
    options = "root_owner=0:0,lazy_itable_init=0,lazy_journal_init=0"
    uuid = declared.uuid or str(UUID(system.digest[:32]))
    command = ["mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096", "-I", "256", "-U", uuid]
    command += ["-E", f"{options},hash_seed={uuid}", "-L", declared.label or ""]
    if declared.mount == "/":
        command = ["unshare", "-m", "sh", "-ec", _IN_ORDER, "sh", *command, "-d", "/mnt"]
    _run_mapped([*command, shown], system, instant)
    if declared.mount == "/":
        # The image must not depend on its creation time. So the times of files are set, and
        # `lost+found`, which systems lack, is removed. Files are identified by inode number, since
        # names may hold any bytes.
        numbers = range(12, 12 + _inodes(system))
        listed = _debugfs(shown, [f"stat <{number}>" for number in numbers], system, instant)
        times = [int(seconds, 16) for seconds in _CHANGED.findall(listed)]
        script = ["rmdir lost+found", f"set_inode_field <2> mtime @{system.index['/'].mtime}"]
        changed = zip((2, *numbers), (system.index["/"].mtime, *times), strict=True)
        for number, seconds in changed:
            script += [f"set_inode_field <{number}> {name} @{seconds}" for name in _AS_CONTENT]
            script.append(f"set_inode_field <{number}> atime @{instant}")
        _debugfs(shown, script, system, instant)
    if os.geteuid() == 0:
        os.chown(image, 0, 0)
    image.chmod(0o644)


def _let_mapped_write(image: Path) -> None:
    """Let root of the user namespace for building images write this image.

    An ordinary user cannot change the image's owner, so the image becomes world-writable. It is
    inside `systems`, which only this user can access.
    """
    if os.geteuid() == 0:
        idmap = find_idmap()
        os.chown(image, idmap.first_uid, idmap.first_gid)
        image.chmod(0o600)
    else:
        image.chmod(0o666)


_IN_ORDER = """
mount -t tmpfs -o mode=755 none /mnt
tar -c --sort=name --numeric-owner --xattrs --xattrs-include='*' -C rootfs . |
    tar -x --numeric-owner --same-owner --same-permissions --xattrs --xattrs-include='*' \\
        --delay-directory-restore -C /mnt
exec "$@"
"""
"""Copies the system to a tmpfs, in order of names, and then runs a command (`mke2fs`).

`mke2fs` takes names in the order in which the file system lists a directory. A tmpfs lists them by
creation time, so the host's file system has no effect.
"""


def _inodes(system: System) -> int:
    """Return the number of files of the system without the root; hard links count once."""
    return round(
        sum(
            1 if stat.S_ISDIR(entry.mode) else 1 / entry.links
            for entry in system.index.values()
            if entry.path != "/"
        )
    )


_CHANGED = re.compile(rb"^ mtime: (0x[0-9a-f]+)", re.MULTILINE)
"""The line of `debugfs` with the time of a file's last change of content."""
_AS_CONTENT = ("ctime", "crtime")
"""Times that are set to a file's modification time, as the C library shows them in `namespaces`."""


def _debugfs(image: str, script: list[str], system: System, instant: int) -> bytes:
    """Run a script of `debugfs` commands and return the output."""
    with tempfile.TemporaryFile() as commands:
        commands.write("\n".join(script).encode() + b"\n")
        commands.seek(0)
        return _run_mapped(["debugfs", "-w", image], system, instant, stdin=commands)


def _run_mapped(command: list[str], system: System, instant: int, **options: Any) -> bytes:
    """Run a program as root of the namespace for building images, and return its output."""
    environment = {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "LC_ALL": "C",
        "E2FSPROGS_FAKE_TIME": str(instant),
    }
    done = run_mapped(command, idmap=find_idmap(), cwd=system.path, env=environment, **options)
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip()
        if done.returncode == 127:
            raise BuildToolError(f"a disk: {said}", hint="apt-get install e2fsprogs tar")
        raise HostError(f"{command[0]}: {said}", hint="the disk could not be created")
    return bytes(done.stdout)


def guest_agent() -> Path:
    """Return the path of process 1 of a microVM. Errors: HostError if it is missing."""
    return built(_PROGRAMS, "shioenv-guest", "shioenv-backends")


def guest_sandbox() -> Path:
    """Return the path of a microVM's supervisor. Errors: HostError if it is missing."""
    return built(_PROGRAMS, "shioenv-guest-sandbox", "shioenv-backends")
