"""The parts of `shioenv serve ssh` that need no sshd and no machine."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import pty
import resource
import socket
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shioenv.domain.behavior import Behavior
from shioenv.domain.patch import ContextPatch
from shioenv.errors import UsageError
from shioenv_serve.events import LONGEST, LONGEST_PATCH, EventLog, origin
from shioenv_serve.ssh import watch as watching
from shioenv_serve.ssh.calls import Caller, LoginCall, accept
from shioenv_serve.ssh.daemon import settings
from shioenv_serve.ssh.machine_channel import MachineChannel
from shioenv_serve.ssh.machines import Account, login_words
from shioenv_serve.ssh.server import REMEMBERED, AtTry, policy_of
from shioenv_serve.ssh.sshd_log import SshdLogParser
from shioenv_serve.ssh.uploads import (
    LARGEST,
    MOST_OPEN,
    Room,
    ScpSink,
    SftpServer,
    StandardInput,
    Uploads,
    tap_of,
)
from shioenv_serve.ssh.visitor_channel import Ended, House, SshChannel, Visitor
from shioenv_serve.ssh.watch import Front, PromptWatch, Typed
from support.waiting import next_turn

# ---- policies ----


def test_any_and_never_answer_everybody_alike() -> None:
    assert policy_of("any").passes("1.2.3.4", "root", "")
    assert not policy_of("never").passes("1.2.3.4", "root", "root")


def test_a_list_has_pairs_and_anybodys_passwords(tmp_path: Path) -> None:
    (tmp_path / "pairs").write_text("root:to:or\n*:letmein\n")
    policy = policy_of(f"list:{tmp_path}/pairs")
    assert policy.passes("a", "root", "to:or")
    assert policy.passes("a", "bob", "letmein")
    assert not policy.passes("a", "bob", "to:or")


def test_the_nth_try_passes_and_is_the_right_one_from_then_on() -> None:
    policy = policy_of("try:3")
    tries = [("root", "1"), ("root", "2"), ("pi", "3"), ("root", "4"), ("pi", "3")]
    assert [policy.passes("a", *pair) for pair in tries] == [False, False, True, False, True]
    assert not policy.passes("b", "pi", "3")


def test_a_policy_remembers_the_newest_addresses() -> None:
    policy = AtTry(2)
    for number in range(REMEMBERED + 1):
        assert not policy.passes(str(number), "root", "x")
    assert not policy.passes("0", "root", "x")
    assert policy.passes(str(REMEMBERED), "root", "x")


@pytest.mark.parametrize("text", ["", "some", "try:", "try:0", "try:x", "list:", "list:/nowhere"])
def test_other_policies_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        policy_of(text)


def test_a_line_that_is_no_pair_is_named(tmp_path: Path) -> None:
    (tmp_path / "pairs").write_text("root:toor\nnothing\n")
    with pytest.raises(UsageError, match="pairs:2"):
        policy_of(f"list:{tmp_path}/pairs")


# ---- what was typed ----


@pytest.mark.parametrize(
    ("keys", "lines"),
    [
        (b"ls -la\r", [("ls -la", False)]),
        (b"a\rb\nc", [("a", False), ("b", False)]),
        (b"cat x\x7f\x7f\x08dog\r", [("cadog", False)]),
        (b"wrong\x15right\r", [("right", False)]),
        (b"one two\x17three\r", [("one three", False)]),
        (b"sleep 9\x03ls\r", [("ls", False)]),
        (b"\x1b[A\r", [("", True)]),
        (b"cd /ho\t\r", [("cd /ho", True)]),
        (b"\x1b[200~pasted\x1b[201~\r", [("pasted", False)]),
        ("grüße\r".encode(), [("grüße", False)]),
    ],
)
def test_keys_become_lines(keys: bytes, lines: list[tuple[str, bool]]) -> None:
    assert Typed().keys(keys) == lines
    one_by_one, typed = [], Typed()
    if keys.isascii():
        for key in keys:
            one_by_one += typed.keys(bytes([key]))
        assert one_by_one == lines


def test_a_paste_lasts_until_its_end() -> None:
    typed = Typed()
    typed.keys(b"a\x1b[200~one\rtwo")
    assert typed.pasting
    typed.keys(b"\x1b[201~")
    assert not typed.pasting


# ---- uploads ----


class Told:
    def __init__(self, directory: Path) -> None:
        self._files: list[tuple[str, bytes]] = []
        self.dropped: list[tuple[str, str]] = []
        self.visitors, self.servers = Room(LARGEST), Room(2 * LARGEST)
        self.directory = directory
        self.uploads = self.channel()

    def channel(self) -> Uploads:
        """Return another channel of the same visitor."""
        return Uploads(
            self.directory, self.told, lambda *told: self.dropped.append(told),
            self.visitors, self.servers,
        )  # fmt: skip

    @property
    def files(self) -> list[tuple[str, bytes]]:
        asyncio.run(self.uploads.write())
        return self._files

    def told(self, name: str, place: Path, digest: str) -> None:
        content = place.read_bytes()
        assert hashlib.sha256(content).hexdigest() == digest == place.name
        self._files.append((name, content))


def in_pieces(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_files_of_scp_are_kept(tmp_path: Path, size: int) -> None:
    told = Told(tmp_path)
    sink = ScpSink(told.uploads)
    stream = b"D0755 0 dir\nC0644 5 a b\nhe\nlo\0C0600 0 empty\n\0E\n"
    for piece in in_pieces(stream, size):
        sink.sent(piece)
    assert told.files == [("a b", b"he\nlo"), ("empty", b"")]


@pytest.mark.parametrize("stream", [b"C0644 99999999999999999 x\n" + b"y" * 99, b"x" * 99_999])
def test_what_is_too_long_for_scp_is_not_kept(tmp_path: Path, stream: bytes) -> None:
    told = Told(tmp_path)
    ScpSink(told.uploads).sent(stream)
    assert told.files == []


def sftp(kind: int, *fields: bytes | int) -> bytes:
    body = b"".join(
        struct.pack(">I", field)
        if isinstance(field, int)
        else struct.pack(">I", len(field)) + field
        for field in fields
    )
    return struct.pack(">IB", len(body) + 1, kind) + body


def offset(number: int) -> tuple[int, int]:
    return number >> 32, number & 0xFFFFFFFF


@pytest.mark.parametrize("size", [1, 11, 10_000])
def test_files_of_sftp_are_kept(tmp_path: Path, size: int) -> None:
    told = Told(tmp_path)
    tap = SftpServer(told.uploads)
    opening = sftp(1, 3) + sftp(3, 1, b"/tmp/x", 0x1A, 0) + sftp(3, 2, b"/etc/passwd", 1, 0)
    for piece in in_pieces(opening, size):
        tap.sent(piece)
    for piece in in_pieces(sftp(2, 3) + sftp(102, 1, b"h1") + sftp(102, 2, b"h2"), size):
        tap.answered(piece)
    written = sftp(6, 3, b"h1", *offset(0), b"hello") + sftp(6, 4, b"h1", *offset(1), b"i!")
    for piece in in_pieces(written + sftp(4, 5, b"h2") + sftp(4, 6, b"h1"), size):
        tap.sent(piece)
    assert told.files == [("/tmp/x", b"hi!lo")]


def opened(uploads: Uploads) -> SftpServer:
    tap = SftpServer(uploads)
    tap.sent(sftp(3, 1, b"x", 2, 0))
    tap.answered(sftp(102, 1, b"h1"))
    return tap


OK = (0, b"", b"")


def test_files_of_sftp_are_kept_where_the_client_waits_for_no_answer(tmp_path: Path) -> None:
    told = Told(tmp_path)
    tap = SftpServer(told.uploads)
    for name, handle in ((b"/first", b"h0"), (b"/second", b"h0")):  # the handle is free again
        tap.sent(sftp(3, 1, name, 0x1A, 0) + sftp(6, 1, handle, *offset(0), name))
        tap.sent(sftp(6, 1, handle, *offset(len(name)), b"!") + sftp(4, 1, handle))
    assert told.visitors.left < LARGEST
    for _ in range(2):
        tap.answered(sftp(102, 1, b"h0") + sftp(101, 1, *OK) * 3)
    tap.ended()
    tap.close()
    assert told.files == [("/first", b"/first!"), ("/second", b"/second!")]
    assert told.dropped == []
    assert (told.visitors.left, told.servers.left) == (LARGEST - 15, 2 * LARGEST)


def test_files_of_sftp_are_kept_after_many_refused_ones(tmp_path: Path) -> None:
    told = Told(tmp_path)
    tap = SftpServer(told.uploads)
    for number in range(300):
        tap.sent(sftp(3, number, b"/proc/no", 0x1A, 0))
        tap.answered(sftp(101, number, 3, b"Permission denied", b""))
    tap.sent(sftp(3, 1, b"/tmp/x", 0x1A, 0))
    tap.answered(sftp(102, 1, b"h0"))
    tap.sent(sftp(6, 2, b"h0", *offset(0), b"content") + sftp(4, 3, b"h0"))
    assert told.files == [("/tmp/x", b"content")]


def test_a_refused_file_of_sftp_takes_nothing_from_the_next(tmp_path: Path) -> None:
    told = Told(tmp_path)
    tap = SftpServer(told.uploads)
    tap.sent(sftp(3, 1, b"/no", 0x1A, 0) + sftp(6, 2, b"h0", *offset(0), b"a") + sftp(4, 3, b"h0"))
    tap.sent(sftp(3, 4, b"/yes", 0x1A, 0) + sftp(6, 5, b"h0", *offset(0), b"b"))
    tap.sent(sftp(4, 6, b"h0"))
    tap.answered(sftp(101, 1, *OK) * 3 + sftp(102, 4, b"h0") + sftp(101, 5, *OK) * 2)
    assert told.files == [("/yes", b"b")]


def waiting(tap: SftpServer) -> None:
    """Return requests without an answer, more than are followed."""
    for _ in range(70):
        tap.sent(sftp(17, 1, b"/") * 1000)


def overflowing(tap: SftpServer) -> None:
    for number in range(513):
        tap.sent(sftp(6, 1, b"h1", *offset(number << 17), b"x" * (1 << 17)))


NOT_WHOLE = "incomplete"
DROPPED: dict[str, tuple[Callable[[SftpServer], None], list[tuple[str, str]]]] = {
    "a gap": (
        lambda tap: tap.sent(sftp(6, 1, b"h1", *offset(1), b"x")),
        [("x", "written with a gap")],
    ),
    "no room": (overflowing, [("x", "no room")]),
    "no close": (lambda tap: tap.sent(sftp(6, 1, b"h1", *offset(0), b"x")), [("x", NOT_WHOLE)]),
    "no answer": (
        lambda tap: tap.sent(sftp(3, 1, b"y", 2, 0) + sftp(6, 1, b"h1", *offset(0), b"x")),
        [("y", NOT_WHOLE), ("x", NOT_WHOLE)],
    ),
    "many requests": (
        waiting,
        [(name, "too many unanswered requests") for name in ("sftp", "x")],
    ),
}


@pytest.mark.parametrize("name", DROPPED)
def test_a_file_of_sftp_that_is_not_kept_is_reported_once(tmp_path: Path, name: str) -> None:
    told = Told(tmp_path)
    tap = opened(told.uploads)
    happens, expected = DROPPED[name]
    happens(tap)
    tap.close()
    tap.close()
    assert told.files == []
    assert told.dropped == expected
    assert told.servers.left == 2 * LARGEST


def test_one_file_too_many_that_is_open_is_reported(tmp_path: Path) -> None:
    told = Told(tmp_path)
    tap = SftpServer(told.uploads)
    for number in range(MOST_OPEN + 1):
        tap.sent(sftp(3, number, b"x%d" % number, 2, 0))
        tap.answered(sftp(102, number, b"h%d" % number))
    assert told.dropped == [(f"x{MOST_OPEN}", "too many open files")]


def test_what_scp_and_a_standard_input_do_not_keep_is_reported(tmp_path: Path) -> None:
    told = Told(tmp_path)
    told.visitors.left = 7
    sink, other = ScpSink(told.uploads), StandardInput(told.uploads)
    sink.sent(b"C0644 99999999999999999 large\n")
    other.sent(b"123456")
    sink = ScpSink(told.uploads)
    sink.sent(b"C0644 5 small\n12")
    other.close()
    sink = ScpSink(told.uploads)
    sink.sent(b"C0644 5 cut\n1")
    sink.close()
    assert told.files == []
    assert told.dropped == [
        ("large", "no room"), ("small", "no room"), ("standard input", "incomplete"),
        ("cut", "incomplete"),
    ]  # fmt: skip


def test_what_rsync_sends_is_a_standard_input(tmp_path: Path) -> None:
    tap = tap_of("rsync --server -vlogDtpre.iLsfxC . /tmp", Told(tmp_path).uploads)
    assert isinstance(tap, StandardInput)


def test_a_file_with_a_gap_is_not_kept_and_takes_no_room(tmp_path: Path) -> None:
    told = Told(tmp_path)
    tap = opened(told.uploads)
    tap.sent(sftp(6, 3, b"h1", *offset(0), b"beginning"))
    tracemalloc.start()
    tap.sent(sftp(6, 4, b"h1", *offset(LARGEST - 1), b"x"))
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()
    tap.sent(sftp(4, 5, b"h1"))
    assert told.files == []
    assert told.servers.left == 2 * LARGEST


def test_channels_of_one_visitor_share_the_room_of_files(tmp_path: Path) -> None:
    told = Told(tmp_path)
    first, second = opened(told.uploads), ScpSink(told.channel())
    told.visitors.left = 10
    first.sent(sftp(6, 3, b"h1", *offset(0), b"sixsix"))
    second.sent(b"C0644 5 y\n12345\0")
    first.sent(sftp(4, 4, b"h1"))
    assert told.files == [("x", b"sixsix")]
    assert (told.visitors.left, told.servers.left) == (4, 2 * LARGEST)


def test_memory_of_files_is_free_again_once_they_are_written_or_their_channel_ends(
    tmp_path: Path,
) -> None:
    told = Told(tmp_path)
    told.servers.left = 10
    halfway, other = ScpSink(told.uploads), told.channel()
    halfway.sent(b"C0644 9 y\n12345678")
    assert not other.room(3)
    told.uploads.close()
    assert told.servers.left == 10
    ScpSink(other).sent(b"C0644 10 z\n0123456789")
    assert told.servers.left == 0
    asyncio.run(other.write())
    assert told.servers.left == 10
    assert told.files == [("z", b"0123456789")]


@pytest.mark.parametrize(
    "stream",
    [
        struct.pack(">I", 0xFFFFFFFF) + b"x" * 100,
        struct.pack(">I", 0),
        sftp(6, 1) + sftp(3, 1),
        sftp(6, 3, b"h1", *offset(1 << 60), b"x") + sftp(6, 3, b"h1", *offset(LARGEST), b"x"),
    ],
)
def test_a_malformed_stream_of_sftp_keeps_nothing_large(tmp_path: Path, stream: bytes) -> None:
    told = Told(tmp_path)
    tap = SftpServer(told.uploads)
    tap.sent(sftp(3, 1, b"x", 2, 0))
    tap.answered(sftp(102, 1, b"h1"))
    tap.sent(stream)
    tap.sent(sftp(4, 6, b"h1"))
    assert told.files in ([], [("x", b"")])


# ---- connections ----


def test_no_connection_is_taken_for_a_moment_where_descriptors_run_out() -> None:
    class Short(socket.socket):
        """A listener that counts the attempts to accept a connection."""

        asked = 0

        def accept(self) -> tuple[socket.socket, object]:
            self.asked += 1
            return super().accept()

    async def run() -> None:
        taken: asyncio.Future[socket.socket] = asyncio.get_running_loop().create_future()
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        with Short() as listener, socket.socket() as client:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            accept(listener, lambda connection, _: taken.set_result(connection), rest=0.1)
            client.connect(listener.getsockname())
            lowest = os.dup(0)
            os.close(lowest)
            resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, limits[1]))
            try:
                for _ in range(1000):
                    await next_turn()
                assert listener.asked == 1
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            (await asyncio.wait_for(taken, 10)).close()
            asyncio.get_running_loop().remove_reader(listener)

    asyncio.run(run())


# ---- the configuration of sshd ----


def test_the_systems_configuration_cannot_undo_what_the_server_states() -> None:
    own = """\
# a comment\x0bPermitTTY no
Include /etc/ssh/sshd_config.d/*.conf
Banner /etc/issue
subsystem = sftp internal-sftp -l INFO
X11Forwarding yes
  "ForceCommand" internal-sftp
Match User *
\tForceCommand internal-sftp
\tchrootdirectory=/tmp
\tDisableForwarding no
\tPermitTTY no
"""
    text = settings(own)
    lines = [line.strip().lower() for line in text.split("\n")]
    assert "# a comment\x0bpermittty no" in lines
    assert not [line for line in lines if "internal-sftp" in line]
    assert [line for line in lines if "subsystem" in line] == [
        "subsystem sftp /usr/lib/openssh/sftp-server"
    ]
    for stated in ("forcecommand none", "disableforwarding yes", "chrootdirectory none"):
        (line,) = [line for line in lines if stated.split()[0] in line]
        assert line == stated
        assert lines.index(line) < lines.index("match user *")
    assert lines.index("match user *") < lines.index("permittty no")
    assert "banner /etc/issue" in lines


def test_a_system_without_sftp_gets_none() -> None:
    assert "Subsystem" not in settings("Subsystem other internal-sftp\nBanner none\n")


# ---- sshd's log ----


def test_a_proposal_becomes_a_hassh() -> None:
    lines = [
        "debug2: peer client KEXINIT proposal [preauth]",
        "debug2: KEX algorithms: a,b [preauth]",
        "debug2: host key algorithms: k [preauth]",
        "debug2: ciphers ctos: c [preauth]",
        "debug2: ciphers stoc: d [preauth]",
        "debug2: MACs ctos: m [preauth]",
        "debug2: compression ctos: none [preauth]",
        "debug2: languages ctos:  [preauth]",
    ]
    heard = SshdLogParser()
    ((event, fields),) = [told for line in lines for told in heard.line(line)]
    assert event == "cowrie.client.kex"
    assert fields["hasshAlgorithms"] == "a,b;c;m;none"
    assert fields["hassh"] == hashlib.md5(b"a,b;c;m;none").hexdigest()
    assert fields["kexAlgs"] == ["a", "b"]


@pytest.mark.parametrize(
    ("line", "event"),
    [
        ("debug1: Remote protocol version 2.0, remote software version x", "cowrie.client.version"),
        ("debug1: server_input_global_request: rtype tcpip-forward want_reply 1",
         "shioenv.forward.refused"),
        ("debug1: server_input_global_request: rtype keepalive@openssh.com want_reply 1", None),
        ("Bad packet length 1234. [preauth]", "shioenv.protocol"),
        ("debug1: something else", None),
        ("", None),
    ],
)  # fmt: skip
def test_lines_become_events(line: str, event: str | None) -> None:
    assert [name for name, _ in SshdLogParser().line(line)] == ([event] if event else [])


# ---- the log ----


def test_an_event_is_one_line_and_long_texts_are_cut(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "log", "box", lambda error: None)
    where = origin(("1.2.3.4", 5), ("6.7.8.9", 22))
    log.tell("cowrie.session.connect", where)
    log.tell("cowrie.command.input", where, input="a\n{x}" + "y" * LONGEST)
    log.close()
    first, second = map(json.loads, (tmp_path / "log").read_text().splitlines())
    assert (first["src_ip"], first["src_port"], first["dst_port"]) == ("1.2.3.4", 5, 22)
    assert len(first["session"]) == 12
    assert second["input"].startswith("a\n{x}")
    assert len(second["input"]) == LONGEST
    assert (first.get("cut"), second["cut"]) == (None, ["input"])
    assert second["session"] == first["session"]


def events_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_a_long_patch_is_cut_between_operations_and_named(tmp_path: Path) -> None:
    operations = [["a", f"/fs/{number}", "x" * 100] for number in range(10_000)]
    patch = ContextPatch.from_json(operations)
    digests = {f"{number}": "0" * 64 for number in range(10_000)}
    behavior = Behavior(0, b"\xff" * LONGEST, patch, content_digests=digests)
    where = origin(("1.2.3.4", 5), ("6.7.8.9", 22))
    with EventLog(tmp_path / "log", "box", print) as log:
        log.did(where, "x", behavior, 0.0, "model")
    (event,) = events_of(tmp_path / "log")
    assert (tmp_path / "log").stat().st_size < 2 * LONGEST_PATCH + 10 * LONGEST
    assert 0 < len(event["context_patch"]) < 10_000
    assert set(map(len, event["context_patch"])) == {3}
    assert {"output_b64", "context_patch", "content_digests"} <= set(event["cut"])
    assert set(base64.b64decode(event["output_b64"])) == {0xFF}


@pytest.mark.parametrize(("left", "after"), [('{"eve', 1), ('{"a": 1}\n', 1), ("", 0)])
def test_an_event_after_a_crash_is_a_line_of_its_own(tmp_path: Path, left: str, after: int) -> None:
    (tmp_path / "log").write_text(left)
    with EventLog(tmp_path / "log", "box", print) as log:
        log.tell("cowrie.session.connect", origin(("1.2.3.4", 5), ("6.7.8.9", 22)))
    lines = (tmp_path / "log").read_text().splitlines()
    assert len(lines) == after + 1
    assert json.loads(lines[-1])["eventid"] == "cowrie.session.connect"


def test_a_log_that_cannot_be_written_is_told_once() -> None:
    told: list[Exception] = []
    log = EventLog(Path("/dev/full"), "box", told.append)
    for _ in range(3):
        log.tell("cowrie.session.connect", origin(("1.2.3.4", 5), ("6.7.8.9", 22)))
    assert len(told) == 1


# ---- logins ----


class SlowMachine:
    """A machine whose look ends when the test sets `over`."""

    ended = False

    def __init__(self) -> None:
        self.asked, self.over = asyncio.Event(), asyncio.Event()

    async def look(self) -> Behavior:
        self.asked.set()
        await self.over.wait()
        return Behavior(0, b"")


class HeardChannel:
    """A channel that keeps the lines reported to it."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def entered(self, line: str, edited: bool) -> None:
        pass

    def did(self, line: str, behavior: Behavior, seconds: float, **fields: Any) -> None:
        self.lines.append(line)


def test_keys_are_held_back_while_what_is_in_front_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "UNHEARD_SECONDS", 0.01)
    fronts = iter([Front(True, False, False)] * 5 + [Front(True, False, True)])

    async def run() -> None:
        watch = PromptWatch(HeardChannel(), SlowMachine(), -1)  # type: ignore[arg-type]
        watch.entered("echo 1", False)
        monkeypatch.setattr(watch, "_front", lambda: next(fronts))
        await watch._freed()

    asyncio.run(run())
    assert list(fronts) == []


def test_keys_are_not_held_back_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "UNHEARD_SECONDS", 0.01)
    monkeypatch.setattr(watching, "HELD_SECONDS", 0.3)

    async def run() -> None:
        watch = PromptWatch(HeardChannel(), SlowMachine(), -1)  # type: ignore[arg-type]
        watch.entered("while :; do :; done", False)
        monkeypatch.setattr(watch, "_front", lambda: Front(True, False, False))
        await asyncio.wait_for(watch._freed(), 30)

    asyncio.run(run())


def test_a_look_that_goes_on_when_its_visitor_leaves_is_told() -> None:
    async def run() -> list[str]:
        master, slave = pty.openpty()
        machine, channel = SlowMachine(), HeardChannel()
        watch = PromptWatch(channel, machine, master)  # type: ignore[arg-type]
        watch.entered("touch x", False)
        watch._is_over = lambda: True  # type: ignore[method-assign]
        looking = asyncio.create_task(watch.look())
        await machine.asked.wait()
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
        machine.over.set()
        await machine.look()
        await next_turn()
        os.close(master)
        os.close(slave)
        return channel.lines

    assert asyncio.run(run()) == ["touch x"]


def test_a_login_gets_what_a_real_one_gets_and_nothing_of_ours() -> None:
    given = {"TERM": "xterm", "LC_X": "y z", "SHIOENV_CONNECTION": "x", "MAIL": "m", "USER": "eve"}
    alice = Account("alice", 1001, 1002, "/home/alice", "/bin/bash")
    text = login_words(alice, "echo 'hi there'", given, tty=True)
    assert text.startswith("setpriv --reuid=1001 --regid=1002 --init-groups env -i -C ")
    assert "'LC_X=y z'" in text
    assert "USER=alice" in text
    assert "SSH_TTY=/dev/pts/0" in text
    assert "SHIOENV" not in text
    assert "MAIL" not in text


# ---- channels ----


class EndingMachine:
    """A machine whose shell changes a file before and after the first look, then ends."""

    ended = False
    seated = True

    def __init__(self) -> None:
        self.left = ["first", "second"]

    async def look(self) -> Behavior:
        name = self.left.pop(0)
        self.ended = not self.left
        patch = ContextPatch((("a", f"/fs/{name}", {"type": "file"}),))
        return Behavior(0, b"", patch, {name: "0" * 64})


def test_all_changes_of_a_shell_that_is_ending_are_reported() -> None:
    channel = MachineChannel.__new__(MachineChannel)
    channel._visit = Visitor(origin(("1.2.3.4", 5), ("6.7.8.9", 22)))
    channel._visit.machine = machine = EndingMachine()  # type: ignore[assignment]
    behavior = asyncio.run(channel._hang_up(machine, left=False))  # type: ignore[arg-type]
    assert [path for _, path, *_ in behavior.patch.operations] == ["/fs/first", "/fs/second"]
    assert [*behavior.content_digests] == ["first", "second"]


class ClosedChannel(SshChannel):
    """A channel whose command ends at once."""

    async def _sit(self) -> Ended:
        return 0, None

    async def _run(self) -> Ended:
        return 0, None


def test_channels_that_begin_together_are_recorded_apart(tmp_path: Path) -> None:
    """Both are there before either is served."""

    async def serve_both(log: EventLog) -> list[bytes]:
        account = Account("root", 0, 0, "/root", "/bin/bash")
        house = House(None, None, None, "host", log, {"root": account}, {}, tmp_path)  # type: ignore[arg-type]
        visit = Visitor(origin(("1.2.3.4", 5), ("6.7.8.9", 22)))
        channels, shells = [], []
        for _ in range(2):
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            fds = (os.dup(0), os.dup(1), os.dup(2))
            call = LoginCall(False, ("session", "-c", "true"), {"USER": "root"}, fds)
            channels.append(ClosedChannel(house, visit, call, Caller(ours)))
            shells.append(theirs)
        await asyncio.gather(*(channel.serve() for channel in channels))
        told = [shell.recv(64) for shell in shells]
        for shell in shells:
            shell.close()
        return told

    log = EventLog(tmp_path / "log.jsonl", "host", lambda error: None)
    assert asyncio.run(serve_both(log)) == [b"x 0", b"x 0"]
    log.close()
    assert len([*(tmp_path / "recordings").glob("*.cast")]) == 2
    assert (tmp_path / "recordings").stat().st_mode & 0o077 == 0
