"""OpenSSH's own clients at each runner of `shioenv serve ssh`: a machine, a model, one above it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.needs import needs
from support.ssh_server import BOT, RUNNERS, Server, Sitting, serving

pytestmark = [needs("ssh"), pytest.mark.xdist_group("serve_ssh")]

PROMPT = r"[#$] $"

SHOWN = {
    4: "/tmp", 7: "/var", 10: "5", 12: "40", 15: "one\r\ntwo", 18: "one\r\ntwo", 20: "one\r\ntwo",
    22: "cat: c: No such file or directory", 31: "2", 33: "1", 35: "<>", 36: "n1\r\nn2\r\nn3",
    39: "1", 40: "1", 41: "root:x:0:0:root:/root:/bin/bash", 42: "there", 43: "none", 44: "3",
    45: "x-y-", 46: "0022", 48: "DONE",
}  # fmt: skip
"""Expected output of some of these lines, by their index."""


@pytest.fixture(scope="module", params=RUNNERS)
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Server]]:
    place = tmp_path_factory.mktemp(request.param)
    with serving(place, *RUNNERS[request.param]) as running:
        running.environment["TERM"] = "dumb"
        yield request.param, running
        assert running.stop() == 0


def test_a_bots_fifty_lines_are_answered_and_told(served: tuple[str, Server]) -> None:
    _, server = served
    assert len(BOT) == 50
    with Sitting(server, "root@127.0.0.1", rows=50, columns=200) as sitting:
        sitting.read(PROMPT)
        for place, line in enumerate(BOT):
            shown = sitting.type(f"{line}\r", rf"\n.*{PROMPT}").partition("\r\n")[2]
            if place in SHOWN:
                assert shown.rpartition("\r\n")[0] == SHOWN[place], line
        sitting.type("exit 3\r", "logout")
        assert sitting.leave() == 3
    session = server.until("cowrie.session.closed")["session"]
    events = [event for event in server.events() if event["session"] == session]
    typed = [event["input"] for event in events if event["eventid"] == "cowrie.command.input"]
    assert typed == [*BOT, "exit 3"]
    told = [event["input"] for event in events if event["eventid"] == "shioenv.command"]
    assert set(BOT) <= {line for each in told for line in each.splitlines()}


@pytest.mark.parametrize("flag", [[], ["-O"]])
def test_files_come_and_go_by_scp(
    served: tuple[str, Server], tmp_path: Path, flag: list[str]
) -> None:
    runner, server = served
    content = os.urandom(100_000)
    digest = hashlib.sha256(content).hexdigest()
    (tmp_path / "brought").write_bytes(content)
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "inside").write_text("inside\n")
    control = ["-o", f"ControlPath={tmp_path}/c"]
    begin = [*control, "-o", "ControlMaster=auto", "-o", "ControlPersist=yes"]
    assert server.ssh(*begin, "root@127.0.0.1", "true").returncode == 0
    copying = [*control, *flag]
    up = server.ssh(
        *copying, "-r", str(tmp_path / "brought"), str(tmp_path / "tree"), "root@127.0.0.1:/tmp",
        program="scp",
    )  # fmt: skip
    assert (up.returncode, up.stderr) == (0, b"")
    command = "wc -c < /tmp/brought; cat /tmp/tree/inside; test -x /tmp/brought || echo not"
    there = server.ssh(*control, "root@127.0.0.1", command)
    assert there.stdout == b"100000\ninside\nnot\n"
    back = tmp_path / "back"
    down = server.ssh(*copying, "root@127.0.0.1:/tmp/brought", str(back), program="scp")
    assert (down.returncode, back.read_bytes()) == (0, content)
    none = server.ssh(*copying, "root@127.0.0.1:/nowhere/x", str(tmp_path), program="scp")
    assert none.returncode == 1
    assert b"/nowhere/x: No such file" in none.stderr
    server.ssh(*control, "-O", "exit", "root@127.0.0.1")
    upload = server.until("cowrie.session.file_upload", shasum=digest)
    assert Path(upload["outfile"]).read_bytes() == content
    channel = {"session": upload["session"], "channel": upload["channel"]}
    told = server.until("shioenv.command", **channel)
    assert told["runner"] == ("model" if runner == "model" else "machine")
    changed = [operation[1] for operation in told["context_patch"]]
    assert [name for name in changed if name.endswith("tmp~1brought")]


def test_a_session_of_sftp_is_served(served: tuple[str, Server], tmp_path: Path) -> None:
    _, server = served
    (tmp_path / "own").write_text("own\n")
    orders = [
        "cd /tmp", "mkdir e", f"put {tmp_path}/own e/t", "rename e/t e/u", "chmod 640 e/u",
        "ls -l e", "ln -s u e/link", f"get e/link {tmp_path}/back", "rm e/link", "rm e/u",
        "rmdir e", f"get /etc/passwd {tmp_path}/passwd", "pwd", "-mkdir /etc", "-get /etc/nothing",
        "-put /nowhere", "-rm e/u", "-rmdir e", "-rename a b",
    ]  # fmt: skip
    script = "".join(f"{order}\n" for order in orders).encode()
    control = ["-o", f"ControlPath={tmp_path}/c"]  # a batch asks for no password
    begin = [*control, "-o", "ControlMaster=auto", "-o", "ControlPersist=yes"]
    assert server.ssh(*begin, "root@127.0.0.1", "true").returncode == 0
    batch = [*control, "-b", "-", "root@127.0.0.1"]
    done = server.ssh(*batch, program="sftp", input=script)
    server.ssh(*control, "-O", "exit", "root@127.0.0.1")
    assert done.returncode == 0, done.stderr
    assert "-rw-r-----" in done.stdout.decode()
    assert b"Remote working directory: /tmp" in done.stdout
    assert (tmp_path / "back").read_text() == "own\n"
    assert (tmp_path / "passwd").read_text().startswith("root:x:0:0:")
    told = server.until("shioenv.command", input="/usr/lib/openssh/sftp-server")
    assert not [each for each in told["context_patch"] if "e" in each[1].split("~1")]


def test_a_command_has_its_outputs_and_exit_code(served: tuple[str, Server]) -> None:
    runner, server = served
    done = server.ssh("root@127.0.0.1", "cd /tmp; pwd; ls nowhere; (exit 7)")
    missing = b"ls: cannot access 'nowhere': No such file or directory\n"
    assert (done.stdout + done.stderr, done.returncode) == (b"/tmp\n" + missing, 7)
    if runner == "machine":  # the others have one output
        assert done.stderr == missing


SCRIPT = b"""cat > /tmp/notes <<'END'
rm -r /etc
exit 9
END
for i in 1 2
do
  echo "$i
of two"
done
greet() {
  echo hello $1
}
greet \\
you
cat /tmp/notes; test -d /etc && echo there
(exit 5)
echo 'never closed
"""


def test_a_script_on_standard_input_is_read_by_commands(served: tuple[str, Server]) -> None:
    _, server = served
    done = server.ssh("-T", "root@127.0.0.1", input=SCRIPT)
    lines = ["1", "of two", "2", "of two", "hello you", "rm -r /etc", "exit 9", "there"]
    assert done.stdout.decode().splitlines()[-8:] == lines
    done = server.ssh("-T", "root@127.0.0.1", input=b"true\n(exit 5)")
    assert done.returncode == 5
    done = server.ssh("-T", "root@127.0.0.1", input=b"echo before\nfi\necho never\n")
    assert (done.stdout.decode().splitlines()[-1], done.returncode) == ("before", 2)


def test_a_command_of_several_lines_is_typed(served: tuple[str, Server]) -> None:
    _, server = served
    with Sitting(server, "root@127.0.0.1", rows=50, columns=200) as sitting:
        sitting.read(PROMPT)
        for line in ("cat <<END | tr a-z A-Z", "exit 3", "echo body"):
            sitting.type(f"{line}\r", r"\n> $")
        shown = sitting.type("END\r", rf"\n.*{PROMPT}")
        assert "EXIT 3\r\nECHO BODY\r\n" in shown
        sitting.type("for i in 1\r", r"\n> $")
        sitting.type("\x03", PROMPT)
        assert "here\r\n" in sitting.type("echo here\r", rf"\nhere\r\n.*{PROMPT}")
        sitting.type("exit 4\r", "logout")
        assert sitting.leave() == 4


def test_a_command_that_exits_ends_no_other_channel(
    served: tuple[str, Server], tmp_path: Path
) -> None:
    _, server = served
    control = ["-o", f"ControlPath={tmp_path}/c"]
    begin = [*control, "-o", "ControlMaster=auto", "-o", "ControlPersist=yes"]
    codes = [server.ssh(*begin, "root@127.0.0.1", f"exit {code}").returncode for code in (3, 4)]
    done = server.ssh(*control, "root@127.0.0.1", "echo still here # exit")
    server.ssh(*control, "-O", "exit", "root@127.0.0.1")
    assert (codes, done.stdout) == ([3, 4], b"still here\n")
