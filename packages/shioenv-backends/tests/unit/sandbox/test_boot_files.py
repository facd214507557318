"""Boot files of microVMs: kernel packages are parsed, and initial file systems are written, in the
formats of the kernel and other programs.
"""

from __future__ import annotations

import io
import lzma
import os
import stat
import subprocess
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from shioenv.errors import SystemBuildError
from shioenv.system.declare import load_declaration
from shioenv_backends.microvm.boot import (
    InitialFile,
    UnpackedKernel,
    archive,
    modules,
    read_kernel,
    root_disk,
    uncompressed,
)
from support.needs import needs


def package(path: Path, files: dict[str, bytes]) -> Path:
    """Return a `.deb` with these files."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:xz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    parts = {"debian-binary": b"2.0\n", "control.tar.xz": b"odd", "data.tar.xz": data.getvalue()}
    with path.open("wb") as file:
        file.write(b"!<arch>\n")
        for name, content in parts.items():
            file.write(f"{name:16}{0:12}{0:6}{0:6}{100644:8}{len(content):10}`\n".encode())
            file.write(content + b"\n" * (len(content) % 2))
    return path


def test_a_package_of_a_kernel_is_read(tmp_path: Path) -> None:
    files = {
        "./boot/vmlinuz-6.18.1-cloud": b"the kernel",
        "./usr/lib/modules/6.18.1-cloud/kernel/fs/a-b.ko.xz": b"a module",
        "./usr/lib/modules/6.18.1-cloud/modules.order": b"no module",
    }
    kernel = read_kernel(package(tmp_path / "linux.deb", files))
    assert (kernel.release, kernel.image) == ("6.18.1-cloud", b"the kernel")
    assert dict(kernel.modules) == {"a_b": b"a module"}


@pytest.mark.parametrize("content", [b"", b"!<arch>\n", b"PK\3\4", b"!<arch>\n" + b"x" * 60])
def test_what_is_no_package_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "odd.deb").write_bytes(content)
    with pytest.raises(SystemBuildError):
        read_kernel(tmp_path / "odd.deb")


def test_a_package_without_a_kernel_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemBuildError, match="no kernel"):
        read_kernel(package(tmp_path / "other.deb", {"./usr/bin/true": b"program"}))


def test_modules_come_after_what_they_depend_on() -> None:
    def module(needs: str) -> bytes:
        return b"\x7fELF\0license=GPL\0depends=" + needs.encode() + b"\0name=x\0"

    held = {"a": module("b-c,d"), "b_c": lzma.compress(module("d")), "d": module(""), "e": b""}
    loaded = modules(UnpackedKernel("6", b"", held), ["a", "built_in", "d"])
    assert [name for name, _ in loaded] == ["d", "b_c", "a"]


def test_a_compressed_kernel_is_unpacked() -> None:
    elf = b"\x7fELF" + bytes(5000)
    payload = lzma.compress(elf)
    head = bytearray(1024)
    head[0x1F1] = 1  # sectors of 512 bytes behind the first
    head[0x202:0x206] = b"HdrS"
    head[0x248:0x24C] = (16).to_bytes(4, "little")
    head[0x24C:0x250] = (len(payload) + 4).to_bytes(4, "little")
    image = bytes(head) + bytes(16) + payload + len(elf).to_bytes(4, "little")
    assert uncompressed(image) == elf
    assert uncompressed(elf) == elf
    with pytest.raises(SystemBuildError):
        uncompressed(bytes(2048))


@needs("cpio")
def test_a_first_file_system_is_read_by_cpio(tmp_path: Path) -> None:
    entries = [
        InitialFile("d", stat.S_IFDIR | 0o755),
        InitialFile("d/odd", stat.S_IFREG | 0o640, b"12345", mtime=1_000_000),
        InitialFile("empty", stat.S_IFREG | 0o600),
    ]
    packed = archive(entries)
    assert packed == archive(entries)
    subprocess.run(["cpio", "-idm", "--quiet"], input=packed, cwd=tmp_path, check=True)
    odd = tmp_path / "d" / "odd"
    assert (odd.read_bytes(), odd.stat().st_mtime) == (b"12345", 1_000_000)
    assert stat.S_IMODE(odd.stat().st_mode) == 0o640
    assert (tmp_path / "empty").read_bytes() == b""


@needs("zstd")
def test_a_kernel_that_is_cut_off_is_none() -> None:
    packed = subprocess.run(["zstd", "-q", "-c"], input=os.urandom(1 << 20), capture_output=True)
    image = bytearray(1024) + packed.stdout[: 900 << 10] + bytes(4)
    image[0x1F1] = 1
    image[0x202:0x206] = b"HdrS"
    image[0x24C:0x250] = (len(image) - 1024).to_bytes(4, "little")
    with pytest.raises(SystemBuildError, match="decompressed"):
        uncompressed(bytes(image))


def test_the_disk_that_is_booted_from_is_the_one_at_the_root() -> None:
    machine = load_declaration().machine
    (root,) = (disk for disk in machine.disks if disk.mount == "/")
    data = replace(root, name="vdb", mount="/data")
    assert root_disk(replace(machine, disks=(root, data))) == 0
    assert root_disk(replace(machine, disks=(data, root))) == 1
