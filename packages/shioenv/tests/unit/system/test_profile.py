import re
import struct
from dataclasses import replace

import pytest

from shioenv.system.answers import Answers
from shioenv.system.declare import SystemDeclaration, load_declaration
from shioenv.system.proc import MASKED, live_proc_files, proc_files
from shioenv.system.profile import kernel_log, root_files

TOLD = Answers("declared", "declared")


@pytest.fixture(scope="module")
def declaration() -> SystemDeclaration:
    return load_declaration()


def test_cpuinfo_has_one_paragraph_for_each_processor(declaration: SystemDeclaration) -> None:
    four = replace(declaration, machine=replace(declaration.machine, cpu=replace(
        declaration.machine.cpu, count=4)))  # fmt: skip
    for system, count in ((declaration, 1), (four, 4)):
        text = proc_files(system, TOLD)["cpuinfo"].decode()
        assert re.findall(r"^processor\t: (\d+)$", text, re.M) == [str(n) for n in range(count)]
        assert f"model name\t: {system.machine.cpu.model_name}" in text
        assert (
            len(re.findall(r"^cpu\d+ ", proc_files(system, TOLD)["stat"].decode(), re.M)) == count
        )


def test_meminfo_adds_up(declaration: SystemDeclaration) -> None:
    text = proc_files(declaration, TOLD)["meminfo"].decode()
    values = {key: int(value) for key, value in re.findall(r"^(\S+): +(\d+)", text, re.M)}
    assert values["MemTotal"] == 216 * 1024
    assert values["MemFree"] + values["Buffers"] + values["Cached"] < values["MemTotal"]
    assert values["MemFree"] < values["MemAvailable"] < values["MemTotal"]
    assert values["SwapTotal"] == 0
    assert values["Active"] == values["Active(anon)"] + values["Active(file)"]


def test_partitions_and_sysfs_agree_on_the_disks(declaration: SystemDeclaration) -> None:
    partitions = proc_files(declaration, TOLD)["partitions"].decode()
    placed = {file.path: file for file in root_files(declaration)}
    for disk in declaration.machine.disks:
        assert re.search(rf"{disk.major} +{disk.minor} +{disk.size // 1024} {disk.name}$",
                         partitions, re.M)  # fmt: skip
        link = placed[f"sys/block/{disk.name}"].target
        where = "sys/" + link.removeprefix("../")
        assert placed[f"{where}/size"].data == f"{disk.size // 512}\n".encode()
        assert placed[f"{where}/dev"].data == f"{disk.major}:{disk.minor}\n".encode()


def test_live_files_follow_the_clock_and_the_kernel(declaration: SystemDeclaration) -> None:
    live = live_proc_files(declaration, now=1_800_000_000.0, release="9.9.9-x")
    assert f"btime {1_800_000_000 - declaration.machine.uptime}\n".encode() in live["stat"]
    assert live["version"].startswith(b"Linux version 9.9.9-x ")
    assert set(live) <= set(proc_files(declaration, TOLD))


def test_login_records_say_who_is_there(declaration: SystemDeclaration) -> None:
    placed = {file.path: file for file in root_files(declaration)}
    utmp = placed["run/utmp"].data
    assert utmp is not None
    assert len(utmp) % 384 == 0
    records = [utmp[at : at + 384] for at in range(0, len(utmp), 384)]
    users = [record[44:76].rstrip(b"\0").decode() for record in records]
    assert users == ["reboot", "runlevel", "root", "ubuntu"]
    (boot,) = struct.unpack_from("<i", records[0], 340)
    assert boot == int(declaration.boot_time.timestamp())
    lastlog = placed["var/log/lastlog"].data
    assert lastlog is not None
    assert lastlog[1000 * 292 + 36 : 1000 * 292 + 46] == b"10.20.30.2"


def test_the_kernel_log_is_one_record_for_each_read_of_dmesg(
    declaration: SystemDeclaration,
) -> None:
    log = kernel_log(declaration.machine)
    assert len(log) == 8191 * len(declaration.machine.kernel.log)
    assert log[8191:].startswith(b"6,1,0,-;")


def test_what_tells_of_the_host_is_covered_with_nothing(declaration: SystemDeclaration) -> None:
    files = proc_files(declaration, TOLD)
    assert all(files[name] == b"" for name in MASKED)
    assert "uptime" not in files


def test_paths_are_relative_and_unique(declaration: SystemDeclaration) -> None:
    paths = [file.path for file in root_files(declaration)]
    assert len(paths) == len(set(paths))
    assert not any(path.startswith("/") or ".." in path.split("/") for path in paths)


def test_every_link_under_sys_leads_to_something(declaration: SystemDeclaration) -> None:
    import posixpath

    placed = root_files(declaration)
    known = {file.path for file in placed}
    for path in list(known):
        while path := posixpath.dirname(path):
            known.add(path)
    for file in placed:
        if file.target and file.path.startswith("sys/"):
            target = posixpath.normpath(posixpath.join(posixpath.dirname(file.path), file.target))
            assert target in known, (file.path, file.target)
