"""Snapshots of machines: a kept snapshot is read back unchanged, or is absent."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from shioenv_backends.microvm.boot import Microvm
from shioenv_backends.microvm.qemu import Hardware, MachineTemplate
from support.needs import needs

MEMORY = 8 << 20


@pytest.fixture
def hardware(tmp_path: Path) -> Hardware:
    return Hardware(Microvm(tmp_path, {}), MEMORY)


@pytest.fixture
def kept(hardware: Hardware, tmp_path: Path) -> Path:
    template = MachineTemplate(hardware)
    os.pwrite(template.memory, b"memory", 3 << 20)
    os.pwrite(template.state, b"state", 0)
    template.keep(tmp_path / "kept")
    template.close()
    return tmp_path / "kept"


def test_what_is_kept_is_found(hardware: Hardware, kept: Path) -> None:
    template = MachineTemplate(hardware, kept)
    assert os.pread(template.memory, 8, 3 << 20) == b"memory\0\0"
    assert os.fstat(template.memory).st_size == MEMORY
    assert os.pread(template.state, 9, 0) == b"state"
    template.close()


@pytest.mark.parametrize("name", ["memory", "state"])
@pytest.mark.parametrize("cut", [True, False])
def test_what_is_broken_is_thrown_away_and_can_be_kept_anew(
    hardware: Hardware, kept: Path, name: str, cut: bool
) -> None:
    with (kept / name).open("r+b") as file:
        if cut:
            file.truncate(3)
        else:
            file.seek(2)
            file.write(b"X")
    with pytest.raises(OSError, match="modified after it was saved"):
        MachineTemplate(hardware, kept)
    assert not kept.exists()
    template = MachineTemplate(hardware)
    template.keep(kept)
    template.close()
    MachineTemplate(hardware, kept).close()


def test_where_a_file_system_has_holes_does_not_count(hardware: Hardware, kept: Path) -> None:
    template = MachineTemplate(hardware)
    for page in range(0, 256, 3):  # several pieces of data in each block that is read
        os.pwrite(template.memory, b"memory", page << 12)
    shutil.rmtree(kept)
    template.keep(kept)
    template.close()
    whole = (kept / "memory").read_bytes()
    (kept / "memory").write_bytes(whole)  # without holes now
    MachineTemplate(hardware, kept).close()


def test_what_is_kept_is_on_the_disk_before_it_has_its_name(
    hardware: Hardware, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    place, real = tmp_path / "kept", os.fsync

    def fsync(descriptor: int) -> None:
        assert not place.exists() or Path(f"/proc/self/fd/{descriptor}").resolve() == tmp_path
        synced.append(Path(f"/proc/self/fd/{descriptor}").resolve().name)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    template = MachineTemplate(hardware)
    template.keep(place)
    template.close()
    assert {"memory", "state", tmp_path.name} <= {*synced}


@needs("qemu-system-x86_64")  # for its version
def test_another_command_line_is_another_machine(hardware: Hardware, tmp_path: Path) -> None:
    other = Hardware(Microvm(tmp_path / "other", {}), MEMORY)
    bare = Hardware(hardware.microvm, MEMORY, bare=True)
    assert len({hardware.told(), other.told(), bare.told()}) == 3
