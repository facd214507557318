"""`shioenv serve ssh` as seen by OpenSSH's own client and in its log."""

from __future__ import annotations

import asyncio
import hashlib
import os
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from faults import descendants
from shioenv.errors import SandboxError
from shioenv.system.store import System
from shioenv_serve.cli.replaying import repeat_visit
from shioenv_serve.events import origin
from shioenv_serve.ssh.machines import Machines
from shioenv_serve.ssh.visitor_channel import Visitor
from shioenv_serve.visit_log import read_visits
from support.needs import needs
from support.nightly import by_day
from support.ssh_server import OPTIONS, Server, Sitting, serving
from support.waiting import PATIENCE, next_turn, wait_until

pytestmark = [needs("ssh"), pytest.mark.xdist_group("serve_ssh")]

PROMPT = r"[#$] $"


@pytest.fixture(scope="module")
def server(system: System, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("serve")
    pairs, key = directory / "pairs", directory / "key"
    pairs.write_text("*:hunter2\nroot:toor\n")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    options = [
        "--passwords",
        f"list:{pairs}",
        "--authorized-keys",
        f"{key}.pub",
        "--per-address",
        "30",
    ]
    with serving(directory, *options) as running:
        yield running
        assert running.stop() == 0


def processes_with(text: str) -> list[int]:
    """Return the PIDs of this host's processes whose command line contains a text, without
    clients."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdecimal() else []
        except OSError:
            continue
        if text.encode() in words and words[0] != b"ssh":
            found.append(int(entry.name))
    return found


def started_with(text: str) -> int:
    """Wait for such a process; return its PID."""
    return wait_until(lambda: processes_with(text), f"a process with {text}")[0]


def wait_for_end(pids: list[int]) -> None:
    for pid in pids:
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        assert select.select([handle], [], [], PATIENCE)[0], pid
        os.close(handle)


def test_a_command_has_two_channels_and_an_exit_status(server: Server) -> None:
    done = server.ssh("root@127.0.0.1", "echo out; echo err >&2; tty; pwd; exit 7")
    assert (done.stdout, done.stderr) == (b"out\nnot a tty\n/root\n", b"err\n")
    assert done.returncode == 7
    told = server.until("shioenv.command", input="echo out; echo err >&2; tty; pwd; exit 7")
    assert (told["runner"], told["exit_code"], told["context_patch"]) == ("machine", 7, [])
    assert sorted(told["output"].splitlines()) == ["/root", "err", "not a tty", "out"]


def test_a_command_answers_while_it_runs(server: Server) -> None:
    command = ["ssh", *OPTIONS, "-o", "IdentityFile=/nonexistent", "-p", server.port]
    line = "echo begun; read word; echo got $word >&2; exec sleep 86423"
    talking = subprocess.Popen(
        [*command, "root@127.0.0.1", line], env=server.environment,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert talking.stdin
    assert talking.stdout
    assert talking.stderr
    assert talking.stdout.readline() == b"begun\n"
    talking.stdin.write(b"it\n")
    talking.stdin.flush()
    assert talking.stderr.readline() == b"got it\n"
    sleeper = started_with("86423")
    talking.kill()
    talking.communicate()
    wait_for_end([sleeper])
    assert server.until("shioenv.command", input=line)["exit_code"] == 129


def test_processes_show_nothing_of_how_a_machine_waits(server: Server) -> None:
    done = server.ssh("root@127.0.0.1", "ps -eo args; cat /proc/[1-9]*/cmdline")
    assert b"\nsshd: root@notty\n" in done.stdout
    assert b"\nbash\n" in done.stdout
    assert not [word for word in (b"norc", b"/dev/stdin", b"printf") if word in done.stdout]


def test_a_command_that_a_signal_kills_ends_as_with_a_stock_sshd(server: Server) -> None:
    killed = server.ssh("root@127.0.0.1", "kill -9 $$")
    assert (killed.returncode, killed.stdout, killed.stderr) == (255, b"", b"")
    told = server.ssh("root@127.0.0.1", "(exit 137)")
    assert told.returncode == 137
    for forged in ("status 0", f"status {'9' * 5000}"):
        line = f"kill -9 $$\n{forged}\n"
        assert server.ssh("root@127.0.0.1", line).returncode == 255
        assert server.until("shioenv.command", input=line)["exit_code"] == 137
    by_a_child = server.ssh("root@127.0.0.1", "bash -c 'kill -9 $$'; echo $?")
    assert by_a_child.stdout == b"137\n"


@pytest.mark.parametrize("size", [0, 1, 300_000, 3_000_000])
def test_standard_input_reaches_the_command_byte_by_byte(server: Server, size: int) -> None:
    content = bytes(range(256)) * (size // 256) + b"\x04" * (size % 256)
    done = server.ssh("root@127.0.0.1", "cat", input=content)
    assert done.stdout == content


def test_a_script_on_standard_input_is_run(server: Server) -> None:
    done = server.ssh("-T", "root@127.0.0.1", input=b"cd /tmp\npwd\nid -un\n")
    assert done.stdout == b"/tmp\nroot\n"


def test_names_of_the_system_are_its_users_and_others_are_root(server: Server) -> None:
    assert server.ssh("alice@127.0.0.1", "id -un; pwd").stdout == b"alice\n/home/alice\n"
    assert server.ssh("no-such.user+@127.0.0.1", "id -un").stdout == b"root\n"


def test_a_login_has_the_variables_that_a_stock_sshd_gives(server: Server) -> None:
    names = [
        "HOME",
        "LOGNAME",
        "MOTD_SHOWN",
        "PATH",
        "PWD",
        "SHELL",
        "SHLVL",
        "SSH_CLIENT",
        "SSH_CONNECTION",
        "USER",
        "_",
    ]
    done = server.ssh("alice@127.0.0.1", "env")
    told = dict(line.split("=", 1) for line in done.stdout.decode().splitlines())
    assert sorted(told) == names
    assert (told["MOTD_SHOWN"], told["PWD"], told["SHLVL"]) == ("pam", "/home/alice", "0")


def test_a_terminal_is_one(server: Server) -> None:
    with Sitting(server, "root@127.0.0.1", rows=33, columns=111) as sitting:
        assert "Last login: " in sitting.read(PROMPT)
        shown = sitting.type("stty size; tty; echo $TERM-$SSH_TTY\r", r"xterm-/\S+\r\n.*[#$] $")
        assert "33 111" in shown
        assert "/dev/pts/0\r\nxterm-/dev/pts/0" in shown
        sitting.resize(50, 132)
        server.until("cowrie.client.size", width=132, height=50)
        assert "50 132" in sitting.type("stty size\r", rf"\d+ \d+\r\n.*{PROMPT}")
        # bash itself may lose the signal while it starts a program
        sitting.type("sh -c 'echo begun; exec sleep 1000'\r", r"begun\r\n")
        sitting.type("\x03", rf"\^C\r\n.*{PROMPT}")
        assert "st=130" in sitting.type("echo st=$?\r", rf"st=\d+\r\n.*{PROMPT}")
        server.until("shioenv.command", last_line="echo st=$?")
        sitting.type("echo x > mad\x7f\x7fade-here\r", PROMPT)
        told = server.until("shioenv.command", input="echo x > made-here")
        (operation,) = told["context_patch"]
        assert operation[:2] == ["a", "/fs/root~1made-here"]
        assert told["content_digests"] == {"root/made-here": hashlib.sha256(b"x\n").hexdigest()}
        sitting.type("exit 5\r", "logout")
        assert sitting.leave() == 5
    assert server.until("cowrie.command.input", input="echo x > made-here")


@pytest.mark.parametrize("flag", [[], ["-O"]])
def test_files_come_and_go_and_are_kept_by_their_digest(
    server: Server, tmp_path: Path, flag: list[str]
) -> None:
    content = os.urandom(200_000)
    digest = hashlib.sha256(content).hexdigest()
    (tmp_path / "brought").write_bytes(content)
    control = ["-o", f"ControlPath={tmp_path}/c", "-o", "ControlMaster=auto"]
    persist = [*control, "-o", "ControlPersist=yes"]
    assert server.ssh(*persist, "eve@127.0.0.1", "true").returncode == 0
    up = server.ssh(
        *control, *flag, str(tmp_path / "brought"), "eve@127.0.0.1:there", program="scp"
    )
    assert up.returncode == 0, up.stderr
    there = server.ssh(*control, "eve@127.0.0.1", "sha256sum < there").stdout
    assert there == f"{digest}  -\n".encode()
    server.ssh(*control, *flag, "eve@127.0.0.1:there", str(tmp_path / "back"), program="scp")
    assert (tmp_path / "back").read_bytes() == content
    listed = server.ssh(*control, "-b", "-", "eve@127.0.0.1", program="sftp", input=b"ls\n")
    assert b"there" in listed.stdout
    server.ssh(*control, "-O", "exit", "eve@127.0.0.1")
    told = server.until("cowrie.session.file_upload", shasum=digest)
    assert Path(told["outfile"]).read_bytes() == content


def packet(kind: int, *fields: bytes) -> bytes:
    """A packet of SFTP."""
    body = b"".join(fields)
    return struct.pack(">IB", len(body) + 1, kind) + body


def test_an_upload_is_kept_where_the_client_waits_for_no_answer(server: Server) -> None:
    content, number, handle = os.urandom(100), struct.pack(">I", 1), struct.pack(">II", 4, 0)
    text = struct.pack(">I", 100) + content
    name = struct.pack(">I", 6) + b"/tmp/x"
    flags = struct.pack(">II", 0x1A, 0)
    sent = packet(1, struct.pack(">I", 3)) + packet(3, number, name, flags)
    sent += packet(6, number, handle, bytes(8), text) + packet(4, number, handle)
    sent += packet(3, number, struct.pack(">I", 6) + b"/tmp/y", flags)
    server.ssh("-s", "eve@127.0.0.1", "sftp", input=sent)
    digest = hashlib.sha256(content).hexdigest()
    told = server.until("cowrie.session.file_upload", shasum=digest)
    assert told["filename"] == "/tmp/x"
    assert Path(told["outfile"]).read_bytes() == content
    dropped = server.until("shioenv.upload.dropped", session=told["session"])
    assert (dropped["filename"], dropped["reason"]) == ("/tmp/y", "incomplete")


def repeated_visit(server: Server, session: str) -> str:
    """Return the first line that a repetition of a closed session prints."""
    server.until("cowrie.session.closed", session=session)
    printed = repeat_visit(read_visits(server.directory)[session], None).parts
    return str(next(iter(printed)))


def test_a_command_is_repeated_with_the_input_that_was_kept(server: Server) -> None:
    content, line = bytes(range(256)) * 1200, "cat > f; wc -c f; id -un; exit 3"
    server.ssh("alice@127.0.0.1", line, input=content)
    session = server.until("shioenv.command", input=line)["session"]
    assert repeated_visit(server, session) == f"{line}: same exit code, output, changes"
    kept = server.until("cowrie.session.file_upload", session=session)["outfile"]
    Path(kept).unlink()
    assert repeated_visit(server, session) == f"{line}: not repeated: its input was not kept"


def test_a_command_that_does_not_read_its_input_is_repeated(server: Server) -> None:
    line = "head -c 3; exec kill -9 $$"
    server.ssh("root@127.0.0.1", line, input=b"abc\n")
    session = server.until("shioenv.command", input=line)["session"]
    assert repeated_visit(server, session) == f"{line}: same exit code, output, changes"


def test_a_script_on_standard_input_is_repeated_as_it_is(server: Server) -> None:
    server.ssh("-T", "root@127.0.0.1", input=b"cd /tmp; touch by-script\n")
    session = server.until("shioenv.command", last_line="by-script\n")["session"]
    assert repeated_visit(server, session).endswith(": same exit code, output, changes")


def sandboxes(pid: int) -> int:
    """Return the number of sandbox supervisors of a process."""
    found = 0
    for child in descendants(pid):
        with suppress(OSError):
            found += Path(f"/proc/{child}/comm").read_text() == "shioenv-sandbox\n"
    return found


def test_channels_of_one_connection_share_a_machine_and_leave_none(
    server: Server, tmp_path: Path
) -> None:
    control = ["-o", f"ControlPath={tmp_path}/c"]
    begin = [*control, "-o", "ControlMaster=auto", "-o", "ControlPersist=yes", "-f", "-N"]
    told = ["-v", "-E", str(tmp_path / "first")]
    assert server.ssh(*begin, *told, "root@127.0.0.1").returncode == 0  # it opens no channel yet
    touched = [f"touch /tmp/by-{number}" for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        done = pool.map(lambda line: server.ssh(*control, "-v", "root@127.0.0.1", line), touched)
        wrong = [each.stderr.decode() for each in done if each.returncode]
    log = "\n".join([*wrong, (tmp_path / "first").read_text(), *map(str, server.events())])
    ran = [(event["input"], event["exit_code"]) for event in server.events("shioenv.command")]
    assert sorted(one for one in ran if one[0] in touched) == [(line, 0) for line in touched], log
    assert not wrong, log
    listed = server.ssh(*control, "root@127.0.0.1", "ls /tmp").stdout.decode().split()
    assert listed == [f"by-{number}" for number in range(8)]
    counted = []
    with Sitting(server, *control, "root@127.0.0.1") as first:
        first.read(PROMPT)
        for _ in range(6):
            with Sitting(server, *control, "root@127.0.0.1") as further:
                further.read(PROMPT)
                further.type("exit\r", "logout")
                further.leave()
            counted.append(sandboxes(server.process.pid))
    server.ssh(*control, "-O", "exit", "root@127.0.0.1")
    assert 0 < counted[-1] <= counted[0] + 1, counted  # one, while the last machine still ends


def test_what_is_opened_for_a_visitor_who_left_is_ended(system: System) -> None:
    async def visits(machines: Machines) -> list[int]:
        where, counted = origin(("1.2.3.4", 5), ("6.7.8.9", 22)), []
        for _ in range(3):
            visit = Visitor(where)
            taking = [asyncio.create_task(visit.machine_of(machines)) for _ in range(8)]
            await next_turn()  # each of them has begun
            await visit.close()
            for lost in await asyncio.gather(*taking, return_exceptions=True):
                assert isinstance(lost, SandboxError), lost
            staying = Visitor(where)
            taking = [asyncio.create_task(staying.machine_of(machines)) for _ in range(8)]
            assert len(set(await asyncio.gather(*taking))) == 1
            await staying.close()
            counted.append(sandboxes(os.getpid()))
        return counted

    machines = Machines(system, 0)
    try:
        counted = asyncio.run(visits(machines))
    finally:
        machines.close()
    assert counted[0] > 0
    assert set(counted) == {counted[0]}


def test_visitors_find_nothing_of_each_other(server: Server) -> None:
    """Nine at once, fewer than an sshd drops, each with a separate file and name."""

    def visit(number: int) -> bytes:
        command = f"touch /tmp/of-{number}; hostname host-{number}; ls /tmp; hostname; id -un"
        return server.ssh("root@127.0.0.1", command).stdout

    with ThreadPoolExecutor(9) as pool:
        for number, shown in enumerate(pool.map(visit, range(9))):
            assert shown == f"of-{number}\nhost-{number}\nroot\n".encode()
    assert server.ssh("root@127.0.0.1", "ls /tmp; hostname").stdout == b"ubuntu\n"


def test_a_visitor_has_no_network_and_nothing_is_forwarded(server: Server) -> None:
    done = server.ssh("root@127.0.0.1", "exec 3<>/dev/tcp/127.0.0.1/" + server.port)
    assert done.returncode == 1
    direct = server.ssh("-W", "127.0.0.1:80", "root@127.0.0.1")
    assert direct.returncode == 255
    assert server.until("cowrie.direct-tcpip.request", dst_ip="127.0.0.1", dst_port=80)
    back = ["-o", "ExitOnForwardFailure=yes", "-R", "9999:127.0.0.1:1"]
    assert server.ssh(*back, "root@127.0.0.1", "true").returncode == 255
    assert server.until("shioenv.forward.refused", request="tcpip-forward")


def test_passwords_and_keys_pass_as_they_are_listed(server: Server, tmp_path: Path) -> None:
    key, other = server.directory / "key", tmp_path / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", other], check=True)
    only = ["-o", "PreferredAuthentications=publickey"]
    assert server.ssh(*only, "-i", str(key), "root@127.0.0.1", "id -un").stdout == b"root\n"
    assert server.ssh(*only, "-i", str(other), "root@127.0.0.1", "true").returncode == 255
    printed = subprocess.run(["ssh-keygen", "-lf", other], check=True, capture_output=True)
    told = server.until("cowrie.client.fingerprint", username="root")
    assert told["fingerprint"].encode() == printed.stdout.split()[1]
    server.environment["PASSWORD"] = "wrong"
    try:
        assert server.ssh("root@127.0.0.1", "true").returncode == 255
    finally:
        server.environment["PASSWORD"] = "hunter2"
    assert server.until("cowrie.login.failed", username="root", password="wrong")


def test_the_log_tells_a_visit_in_cowries_words(server: Server) -> None:
    server.ssh("ubuntu@127.0.0.1", "echo told")
    session = server.until("cowrie.command.input", input="echo told")["session"]
    server.until("cowrie.session.closed", session=session)
    events = [event for event in server.events() if event["session"] == session]
    names = [event["eventid"] for event in events]
    order = [
        "cowrie.session.connect", "cowrie.client.version", "cowrie.client.kex",
        "cowrie.login.success", "cowrie.session.params", "cowrie.command.input",
        "shioenv.command", "cowrie.log.closed", "cowrie.session.closed",
    ]  # fmt: skip
    assert [name for name in names if name in order] == order
    kex = events[names.index("cowrie.client.kex")]
    assert kex["hassh"] == hashlib.md5(kex["hasshAlgorithms"].encode()).hexdigest()
    assert all(event["src_ip"] == "127.0.0.1" and event["timestamp"] for event in events)
    assert {event["sensor"] for event in events} == {socket.gethostname()}
    closed = events[names.index("cowrie.log.closed")]
    assert Path(closed["cast"]).read_text().startswith("{")
    assert struct.unpack("<iLiiLL", Path(closed["ttylog"]).read_bytes()[-24:])[0] == 2  # closed


def test_a_directory_belongs_to_one_server(server: Server) -> None:
    command = [sys.executable, "-m", "shioenv", "serve", "ssh", str(server.directory)]
    second = subprocess.run([*command, "--port", "0"], capture_output=True, text=True, check=False)
    assert second.returncode != 0
    assert f"another process is writing into {server.directory}" in second.stderr


def test_the_log_names_what_it_cut_of_a_commands_streams(server: Server) -> None:
    server.ssh("root@127.0.0.1", "head -c 16384 /dev/zero | tr '\\0' a")
    whole = server.until("shioenv.command", input="head -c 16384 /dev/zero | tr '\\0' a")
    assert (len(whole["output"]), "cut" in whole) == (16_384, False)
    server.ssh("root@127.0.0.1", "head -c 16385 /dev/zero | tr '\\0' a")
    longer = server.until("shioenv.command", input="head -c 16385 /dev/zero | tr '\\0' a")
    assert (len(longer["output"]), longer["cut"]) == (16_384, ["output"])
    server.ssh("-T", "root@127.0.0.1", input=b": long script\n".ljust(20_000, b"#"))
    script = server.until("shioenv.command", cut=["input"])
    assert (script["input"][:13], len(script["input"])) == (": long script", 16_384)


def test_malformed_slow_and_half_closed_openings_stop_nothing(server: Server) -> None:
    banner = b"SSH-2.0-x\r\n"
    openings = [
        b"", b"\0" * 64, b"GET / HTTP/1.1\r\n\r\n", banner, banner * 3, b"A" * 10_000,
        banner + b"\xff" * 4096, banner + b"\0\0\0\x0c\x0a\x14" + b"\0" * 400,
    ]  # fmt: skip
    opened = []
    for opening in openings:
        connection = socket.create_connection(("127.0.0.1", int(server.port)), PATIENCE)
        connection.sendall(opening)
        connection.shutdown(socket.SHUT_WR)
        opened.append(connection)
    slow = socket.create_connection(("127.0.0.1", int(server.port)), PATIENCE)
    assert server.ssh("root@127.0.0.1", "echo still here").stdout == b"still here\n"
    for connection in opened:
        with suppress(ConnectionResetError):
            while connection.recv(65536):
                pass
        connection.close()
    slow.close()


def test_an_address_has_so_many_connections_and_no_more(server: Server) -> None:
    held = []
    try:
        for _ in range(31):
            connection = socket.create_connection(("127.0.0.1", int(server.port)), PATIENCE)
            held.append(connection)
            if connection.recv(64).startswith(b"Exceeded MaxStartups"):
                break
        else:
            pytest.fail("31 connections of an address were taken")
    finally:
        for connection in held:
            connection.close()
    assert server.until("shioenv.dropped")
    ended = {event["session"] for event in server.events("cowrie.session.connect")}
    for session in ended:
        server.until("cowrie.session.closed", session=session)
    assert server.ssh("root@127.0.0.1", "echo again").stdout == b"again\n"


def test_a_machine_that_breaks_ends_one_session(server: Server) -> None:
    with Sitting(server, "root@127.0.0.1") as other:
        other.read(PROMPT)
        with Sitting(server, "root@127.0.0.1") as broken:
            broken.read(PROMPT)
            broken.type("echo begun; sleep 86421\r", "begun\r\n")
            sleeper = started_with("86421")
            os.kill(supervisor_of(sleeper), signal.SIGKILL)
            assert broken.leave() != 0
            wait_for_end([sleeper])
        assert "here" in other.type("echo he''re\r", rf"here\r\n.*{PROMPT}")


def supervisor_of(pid: int) -> int:
    while True:
        if Path(f"/proc/{pid}/comm").read_text() == "shioenv-sandbox\n":
            return pid
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.parametrize(
    ("number", "status"),
    by_day(
        [(signal.SIGTERM, 0), (signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)],
        3,
        unpacked=True,
    ),
)
def test_the_end_of_the_server_ends_everything(
    system: System, tmp_path: Path, number: signal.Signals, status: int
) -> None:
    with serving(tmp_path / "served") as server:
        with Sitting(server, "root@127.0.0.1") as sitting:
            sitting.read(PROMPT)
            sitting.type("echo begun; sleep 86422\r", "begun\r\n")
            client = ThreadPoolExecutor(1).submit(server.ssh, "root@127.0.0.1", "exec sleep 86422")
            server.until("cowrie.command.input", input="exec sleep 86422")
            started_with("86422")
            ours = processes_with("86422") + descendants(server.process.pid)
            assert len(ours) > 4
            assert server.stop(number) == status
            if number != signal.SIGKILL:
                assert not any(Path(f"/proc/{pid}").exists() for pid in ours)
            wait_for_end(ours)
            assert sitting.leave() == 255
            assert client.result(PATIENCE).returncode == 255
        assert processes_with("86422") == []


def test_the_log_tells_what_ran_when_the_server_ended(system: System, tmp_path: Path) -> None:
    command = "touch /by_command; exec sleep 86425"
    with serving(tmp_path / "served") as server:
        with Sitting(server, "root@127.0.0.1") as sitting:
            sitting.read(PROMPT)
            sitting.type("touch /by_terminal; echo be''gun; exec sleep 86424\r", "begun\r\n")
            with ThreadPoolExecutor(1) as pool:
                client = pool.submit(server.ssh, "root@127.0.0.1", command)
                server.until("cowrie.command.input", input=command)
                started_with("86425")
                assert server.stop() == 0
                assert client.result(PATIENCE).returncode == 255
        told = server.events("shioenv.command")
        assert len(told) == len(server.events("cowrie.session.closed")) == 2
        changed = [change[1] for event in told for change in event["context_patch"]]
        assert {"/fs/by_command", "/fs/by_terminal"} <= set(changed)
        assert server.events()[-1]["eventid"] == "cowrie.session.closed"


@needs("shioenv-model")
def test_a_model_answers_in_place_of_a_machine(system: System, tmp_path: Path) -> None:
    with serving(tmp_path / "served", "--model", "default", "--passwords", "try:1") as server:
        done = server.ssh("root@127.0.0.1", "pwd; nosuchcommand")
        assert done.stdout == b"/home/ubuntu\nbash: line 1: nosuchcommand: command not found\n"
        assert done.returncode == 127
        with Sitting(server, "root@127.0.0.1") as sitting:
            sitting.read(r"~?/home/ubuntu# $")
            sitting.type("cd doc\x7f\x7f\x7f/tmp\r", r"ubuntu:/tmp# $")
            sitting.type("ls\x03", r"\^C.*ubuntu:/tmp# $")
            sitting.type("exit 3\r", "logout")
            assert sitting.leave() == 3
        told = server.until("shioenv.command", input="cd /tmp")
        assert told["runner"] == "model"
        assert ["=", "/cwd", "/tmp"] in told["context_patch"]


def test_descriptors_have_to_suffice_for_the_bounds(system: System, tmp_path: Path) -> None:
    command = ["prlimit", "--nofile=4000:4000", sys.executable, "-m", "shioenv", "serve", "ssh"]
    done = subprocess.run(
        [*command, str(tmp_path / "new"), "--port", "0", "--connections", "100"],
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 3
    assert f"required: {256 + 100 * (6 + 4 * 9)}" in done.stderr
    assert not (tmp_path / "new").exists()


def test_elsewhere_than_on_this_host_a_policy_is_named(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "shioenv", "serve", "ssh", str(tmp_path), "--host", "0.0.0.0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 2
    assert "--passwords" in done.stderr
