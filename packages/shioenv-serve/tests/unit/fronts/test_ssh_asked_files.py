"""Files of a shell that a model answers, through SFTP and scp; hostile requests too."""

from __future__ import annotations

import asyncio
import shlex
import stat
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shioenv.domain.behavior import Behavior
from shioenv.domain.context import Context, escape
from shioenv.domain.patch import ContextPatch
from shioenv.domain.runner import Answer, State
from shioenv.errors import Abstained
from shioenv.live.machine_thread import Seat
from shioenv.live.model_shell import ModelShell
from shioenv_serve.ssh.machines import Account
from shioenv_serve.ssh.model_files import (
    HANDLES,
    ModelFiles,
    ScpAnswers,
    SftpAnswers,
    file_mode,
)
from shioenv_serve.ssh.uploads import LONGEST_READ, Room, Uploads

WHEN = {"month": "Oct", "day": 16, "year": 2025, "time": "19:43"}


def entry(perms: str, size: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "perms": perms, "links": 1, "owner": "alice", "group": "alice", "size": size, **WHEN, **more
    }  # fmt: skip


FILES = {
    ".": entry("drwxr-xr-x"), "etc": entry("drwxr-xr-x"), "etc/known": entry("-rw-r--r--", 6),
    "etc/unknown": entry("-rw-r--r--", 9), "etc/link": entry("lrwxrwxrwx", 5, target="known"),
}  # fmt: skip


class Writing:
    """A runner that supports only `cat > NAME`, and declines configured inputs."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def run(self, shell_input: str, state: State | None = None) -> Behavior:
        return self.answer(shell_input, state).behavior

    def answer(self, shell_input: str, state: State | None = None) -> Answer:
        assert state is not None
        self.lines.append(shell_input)
        words = shlex.split(shell_input)
        if words[:2] != ["cat", ">"]:
            return Answer(Behavior(1, b"rm: cannot remove: Permission denied\n"))
        if "declined" in words[2]:
            raise Abstained("it is told to")
        made = entry("-rw-r--r--", len(state.stdin))
        name = words[2].lstrip("/")  # as seen from the start directory
        patch = ContextPatch((("a", f"/fs/{escape(name)}", made),))
        return Answer(Behavior(0, b"", patch), written={name: state.stdin})


class Visit:
    """A session of SFTP, with what was kept."""

    def __init__(self, directory: Path, room: int = 1 << 20) -> None:
        self.runner = Writing()
        context = Context({"cwd": "/", "env": {}, "fs": FILES})
        start = State(
            cwd="/", context=context, written={"etc/known": b"known\n", "etc/unknown": None}
        )
        self.shell = ModelShell(self.runner, start)
        self.kept: list[str] = []
        self.room = Room(room)
        self.dropped: list[tuple[str, str]] = []
        self.uploads = Uploads(
            directory, lambda name, *_: self.kept.append(name),
            lambda *told: self.dropped.append(told), self.room, Room(1 << 30),
        )  # fmt: skip
        accounts = {"alice": Account("alice", 1000, 1001, "/", "/bin/sh")}
        self.files = ModelFiles(self.shell, accounts)
        self.sftp = SftpAnswers(self.files, self.uploads)

    def ask(self, kind: int, *fields: int | bytes | str, number: int = 7) -> tuple[int, bytes]:
        """Return the kind and the body of an answer, without its number."""
        body = b"".join(map(field, fields))
        said = self.sftp.answer(packet(kind, struct.pack(">I", number) + body))
        length, answered, back = struct.unpack_from(">IBI", said)
        assert (length, back) == (len(said) - 4, number)
        return answered, said[9:]

    def status(self, kind: int, *fields: int | bytes | str) -> int:
        answered, body = self.ask(kind, *fields)
        assert answered == 101
        return int(struct.unpack_from(">I", body)[0])

    def handle(self, kind: int, *fields: int | bytes | str) -> bytes:
        answered, body = self.ask(kind, *fields)
        assert answered == 102
        return body[4:]


def field(value: int | bytes | str) -> bytes:
    if isinstance(value, int):
        return struct.pack(">I", value)
    data = value.encode() if isinstance(value, str) else value
    return struct.pack(">I", len(data)) + data


def packet(kind: int, body: bytes) -> bytes:
    return struct.pack(">IB", len(body) + 1, kind) + body


@pytest.fixture
def visit(tmp_path: Path) -> Visit:
    return Visit(tmp_path)


def test_a_version_is_agreed_on_and_packets_may_come_in_pieces(visit: Visit) -> None:
    hello = packet(1, struct.pack(">I", 3))
    assert [visit.sftp.answer(hello[at : at + 1]) for at in range(len(hello))][:-1] == [b""] * 8
    assert visit.sftp.answer(hello * 2) == packet(2, struct.pack(">I", 3)) * 2


def test_files_are_described_and_read(visit: Visit) -> None:
    answered, attributes = visit.ask(17, "/etc/link")
    flags, size, uid, gid, mode, at, _ = struct.unpack(">IQIIIII", attributes)
    assert (answered, flags, size, uid, gid) == (105, 15, 6, 1000, 1001)
    assert (mode, at) == (stat.S_IFREG | 0o644, 1_760_643_780)
    assert stat.S_ISLNK(struct.unpack_from(">IQIII", visit.ask(7, "/etc/link")[1])[4])
    assert visit.ask(19, "/etc/link")[1][4:13] == field("known")
    assert visit.ask(16, "etc/../etc/./link")[1][4:18] == field("/etc/known")
    handle = visit.handle(3, "/etc/link", 1, 0)
    assert visit.ask(5, handle, 0, 2, 100) == (103, field("own\n"))
    assert visit.status(5, handle, 0, 6, 100) == 1
    assert visit.status(4, handle) == 0
    assert visit.status(4, handle) == 4
    listing = visit.handle(11, "/etc")
    names = visit.ask(12, listing)[1]
    assert all(name in names for name in (b"known", b"unknown", b"-rw-r--r--    1 alice    alice"))
    assert visit.status(12, listing) == 1


@pytest.mark.parametrize(
    ("kind", "fields", "status"),
    [
        (17, ("/nowhere",), 2), (3, ("/nowhere", 1, 0), 2), (3, ("/etc", 2, 0), 4),
        (3, ("/nowhere/new", 26, 0), 2), (3, ("/etc/unknown", 1, 0), 4), (3, ("/etc", 1, 0), 4),
        (3, ("/etc/known", 2 | 32, 0), 4), (11, ("/etc/known",), 2), (19, ("/etc/known",), 4),
        (5, ("none", 0, 0, 9), 4), (6, ("none", 0, 0, "x"), 4), (12, ("none",), 4),
        (8, ("none",), 4), (13, ("/etc/known",), 3), (18, ("/etc/known", "/etc/link"), 4),
        (200, ("x",), 8), (99, (), 8),
        (17, ("a\0b",), 5), (17, ("a" * 5000,), 5), (17, (), 5), (3, ("/etc/known",), 5),
    ],
)  # fmt: skip
def test_what_cannot_be_done_has_its_status(
    visit: Visit, kind: int, fields: tuple[int | str, ...], status: int
) -> None:
    assert visit.status(kind, *fields) == status


def test_a_text_that_goes_past_its_packet_is_a_bad_message(visit: Visit) -> None:
    said = visit.sftp.answer(packet(17, struct.pack(">II", 7, 4000) + b"x"))
    assert struct.unpack_from(">I", said, 9)[0] == 5
    assert not visit.sftp.over


@pytest.mark.parametrize("length", [0, LONGEST_READ + 1025, 2**32 - 1])
def test_a_length_that_is_none_ends_the_session(visit: Visit, length: int) -> None:
    assert visit.sftp.answer(struct.pack(">IB", length, 1)) == b""
    assert visit.sftp.over
    assert visit.sftp.answer(packet(1, bytes(4))) == b""


def test_a_file_that_comes_is_a_line_of_the_shell_and_kept(visit: Visit, tmp_path: Path) -> None:
    handle = visit.handle(3, "/etc/it's new", 2 | 8 | 16, 0)
    assert visit.status(6, handle, 0, 3, b"\0\xff") == 0  # in any order, and with a gap
    assert visit.status(6, handle, 0, 0, b"a") == 0
    assert visit.ask(8, handle)[1] == struct.pack(">IQ", 1, 5)
    assert visit.status(4, handle) == 0
    assert [shlex.split(line) for line in visit.runner.lines] == [["cat", ">", "/etc/it's new"]]
    assert visit.shell.state.read("/etc/it's new") == b"a\0\0\0\xff"
    assert visit.shell.state.stdin == b""
    asyncio.run(visit.uploads.write())
    assert visit.kept == ["/etc/it's new"]
    assert [file.read_bytes() for file in tmp_path.iterdir()] == [b"a\0\0\0\xff"]


def test_a_file_that_a_model_declines_fails_and_is_kept_all_the_same(visit: Visit) -> None:
    handle = visit.handle(3, "/etc/declined", 26, 0)
    visit.status(6, handle, 0, 0, b"x")
    assert visit.status(4, handle) == 4
    assert visit.shell.state.stdin == b""
    asyncio.run(visit.uploads.write())
    assert visit.kept == ["/etc/declined"]


def test_bytes_and_handles_are_bounded(tmp_path: Path) -> None:
    visit = Visit(tmp_path, room=10)
    handle = visit.handle(3, "/etc/new", 26, 0)
    assert visit.status(6, handle, 0, 0, b"x" * 10) == 0
    assert visit.status(6, handle, 0, 10, b"x") == 4
    assert visit.status(6, handle, 2**31, 0, b"x") == 4  # a gap counts
    assert visit.dropped == [("/etc/new", "no room")]
    assert visit.status(6, handle, 0, 0, b"y" * 10) == 0
    for _ in range(HANDLES - 1):
        visit.handle(11, "/etc")
    assert visit.status(11, "/etc") == 4
    assert visit.status(3, "/etc/known", 1, 0) == 4


@pytest.mark.parametrize(
    ("perms", "mode"),
    [("-rwsr-xr-x", 0o104755), ("drwxrwxrwt", 0o041777), ("-rw-r-Sr-T", 0o103644)],
)
def test_rights_are_a_mode(perms: str, mode: int) -> None:
    assert file_mode(perms) == mode


# ---- scp ----


@pytest.fixture
def spoken(visit: Visit) -> Iterator[Callable[[str, bytes], tuple[int, bytes]]]:
    seat: Seat[ModelShell] = Seat.at(visit.shell, lambda _: None)

    async def speak(command: str, sent: bytes) -> tuple[int, bytes]:
        size = max(3, len(sent) // 100)
        said, pieces = bytearray(), (sent[at : at + size] for at in range(0, len(sent), size))

        async def read() -> bytes:
            return next(pieces, b"")

        async def say(data: bytes) -> None:
            said.extend(data)

        code = await ScpAnswers(seat, visit.files, visit.uploads, read, say).answer(command)
        await visit.uploads.write()
        return code, bytes(said)

    yield lambda command, sent: asyncio.run(speak(command, sent))
    asyncio.run(seat.close())


def test_a_sink_takes_files(
    visit: Visit, spoken: Callable[[str, bytes], tuple[int, bytes]]
) -> None:
    sent = b"T1 0 1 0\nC0644 5 ../../new\nhello\0C0644 0 empty\n\0"
    assert spoken("scp -p -t /etc", sent) == (0, b"\0" * 6)
    assert visit.shell.state.read("/etc/new") == b"hello"
    assert visit.shell.state.read("/etc/empty") == b""
    assert visit.kept == ["new", "empty"]


@pytest.mark.parametrize(
    ("command", "sent", "code", "said"),
    [
        ("scp -t /etc", b"C0644 x y\n", 1, b"\0\1scp: protocol error\n"),
        ("scp -t /etc", b"\xff\xfe\n", 1, b"\0\1scp: protocol error\n"),
        ("scp -t /etc", b"C0644 9 new\nabc", 1, b"\0\0\1scp: lost connection\n"),
        ("scp -t /etc", b"x" * 9000, 0, b"\0"),
        ("scp -t /etc", b"C0644 2000000 big\n" + b"x" * 2_000_000 + b"\0", 1,
         b"\0\0\1scp: /etc/big: No space left on device\n"),
        ("scp -t /etc", b"C0644 1 declined\nx\0", 1, b"\0\0\1scp: Failure\n"),
        ("scp -f /nowhere", b"\0", 1, b"\1scp: /nowhere: No such file\n"),
        ("scp -f /etc", b"\0", 1, b"\1scp: /etc: Failure\n"),
        ("scp -f /etc/known", b"\0\0\0", 0, b"C0644 6 known\nknown\n\0"),
        ("scp -f /etc/known", b"\1", 1, b""),
        ("scp", b"", 1, b""),
        ("scp 'x", b"", 1, b""),
    ],
)  # fmt: skip
def test_scp_says_what_went_wrong(
    spoken: Callable[[str, bytes], tuple[int, bytes]],
    command: str,
    sent: bytes,
    code: int,
    said: bytes,
) -> None:
    assert spoken(command, sent) == (code, said)
