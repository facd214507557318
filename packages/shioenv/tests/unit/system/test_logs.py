"""The declared machine's entries in its logs."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from shioenv.system.answers import socket_inode
from shioenv.system.declare import SystemDeclaration, load_declaration
from shioenv.system.logs import log_files
from shioenv.system.processes import process_files

PACKAGES = {"bash": "5.2.15-2+b7", "zlib1g": "1:1.2.13.dfsg-1"}


@pytest.fixture(scope="module")
def declaration() -> SystemDeclaration:
    return load_declaration()


def lines(declaration: SystemDeclaration, name: str) -> list[tuple[datetime, str]]:
    placed = {file.path: file for file in log_files(declaration, PACKAGES)}
    file = placed[f"var/log/{name}"]
    assert file.data is not None
    split = [line.split(" ", 2) for line in file.data.decode().splitlines()]
    assert {host for _, host, _ in split} == {declaration.machine.hostname}
    found = [(datetime.fromisoformat(when), text) for when, _, text in split]
    assert file.mtime == int(found[-1][0].timestamp())
    return found


@pytest.mark.parametrize("name", ["syslog", "auth.log", "cron.log", "kern.log"])
@pytest.mark.parametrize("hours", [0.5, 27, 400])
def test_lines_are_in_order_and_lie_before_the_instant(
    declaration: SystemDeclaration, name: str, hours: float
) -> None:
    machine = replace(declaration.machine, uptime=round(hours * 3600))
    own = replace(declaration, machine=machine)
    if name == "cron.log" and hours < 1:
        return
    found = [when for when, _ in lines(own, name)]
    assert found == sorted(found)
    assert found[-1] <= own.instant + timedelta(seconds=1)
    if name != "auth.log":  # failed logins are as old as they are declared
        assert found[0] >= own.boot_time


def test_every_hour_has_a_process_of_its_own(declaration: SystemDeclaration) -> None:
    ran = [
        (when, int(match[1]))
        for when, text in lines(declaration, "cron.log")
        if (match := re.fullmatch(r"CRON\[(\d+)\]: \(root\) CMD .*", text))
    ]
    assert len(ran) == declaration.machine.uptime // 3600
    numbers = [number for _, number in ran]
    assert numbers == sorted(set(numbers))
    taken = {process.pid for process in declaration.machine.processes}
    assert not taken & set(numbers)
    login = next(process for process in declaration.machine.processes if process.pid == 812)
    began = declaration.boot_time + timedelta(seconds=login.started)
    for when, number in ran:
        assert (number > 812) == (when > began)
    assert numbers[-1] < 1000


def test_who_is_logged_in_was_let_in_by_the_port_of_the_connection(
    declaration: SystemDeclaration,
) -> None:
    said = [text for _, text in lines(declaration, "auth.log")]
    (socket,) = (one for one in declaration.machine.sockets if one.peer)
    wanted = (
        f"sshd[812]: Accepted publickey for ubuntu from 10.20.30.2 port {socket.peer_port} ssh2"
    )
    assert wanted in said
    opened = [text for text in said if "session opened for user alice" in text]
    closed = [text for text in said if "session closed for user alice" in text]
    assert len(opened) == len(closed) == 1
    assert not [text for text in said if "session closed for user ubuntu" in text]


def test_no_kernel_of_newer_lines_and_no_login_before_booting(
    declaration: SystemDeclaration,
) -> None:
    assert not [text for _, text in lines(declaration, "auth.log") if "for user bob" in text]
    kernel = [text for _, text in lines(declaration, "kern.log")]
    assert len(kernel) == len(declaration.machine.kernel.log)


def test_packages_were_installed_when_the_system_was(declaration: SystemDeclaration) -> None:
    placed = {file.path: file for file in log_files(declaration, PACKAGES)}
    file = placed["var/log/dpkg.log"]
    assert file.data is not None
    rows = file.data.decode().splitlines()
    assert rows[0].endswith(" install bash:amd64 <none> 5.2.15-2+b7")
    assert rows[-1].endswith(" status installed zlib1g:amd64 1:1.2.13.dfsg-1")
    assert rows == sorted(rows, key=lambda row: row[:19])
    assert "var/log/dpkg.log" not in {one.path for one in log_files(declaration, {})}


def test_a_process_has_its_sockets_open(declaration: SystemDeclaration) -> None:
    files = process_files(declaration)
    for index, socket in enumerate(declaration.machine.sockets):
        top = next(name for name in files if name.startswith(f"{socket.process}.")).split("/")[0]
        links = [data for name, data in files.items() if name.startswith(f"{top}/fd/")]
        assert f"socket:[{socket_inode(index)}]".encode() in links
