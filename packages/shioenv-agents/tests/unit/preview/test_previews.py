"""A preview predicts the effects of the command and leaves everything unchanged."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import pwd
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from previewing import CHANGES, applied, captured, digest, fill, listed, running
from shioenv.cli.main import app
from shioenv.errors import HostError, UsageError
from shioenv_agents.preview import keeper
from shioenv_agents.preview.inside import _KEPT
from shioenv_agents.preview.layered_run import USUAL_LIMITS

pytestmark = pytest.mark.xdist_group("preview")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a directory with one file of every kind, and change to it."""
    place = tmp_path / "place"
    place.mkdir()
    monkeypatch.chdir(place)
    fill(place)
    return place


@pytest.mark.parametrize("kind", ["CLONE_NEWPID", "CLONE_NEWIPC"])
def test_namespaces_that_the_kernel_refuses_are_an_error_of_the_preview(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are made before there is a plan to answer."""
    change = f"import shioenv_agents.preview.kernel as kernel; kernel.{kind} = 1"
    boot = keeper._BOOT.replace("; main()", f"; {change}; main()")
    monkeypatch.setattr(keeper, "_BOOT", boot)
    with pytest.raises(HostError, match="make namespaces: Invalid argument"):
        captured("true")


@pytest.mark.parametrize("whole", [True, False], ids=["whole root", "directories"])
def test_what_is_told_is_what_running_does_and_nothing_is_done(
    place: Path, whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(place.parent))
    if not whole:  # as an ordinary user
        monkeypatch.setattr("shioenv_agents.preview.keeper.may_mount", lambda: False)
    before, was = digest(place), listed(place)
    made = captured("sh", "-c", CHANGES)
    assert made.behavior.output == b""
    assert made.behavior.exit_code == 0
    assert digest(place) == before
    told = applied(was, made)
    subprocess.run(["sh", "-c", CHANGES], check=True)
    assert told == listed(place)
    contents = made.behavior.content_digests
    assert contents["new/deep/f"] == hashlib.sha256(b"x\n").hexdigest()
    assert contents["text"] == hashlib.sha256((place / "text").read_bytes()).hexdigest()
    moves = [operation for operation in made.behavior.patch.operations if operation[0] == "m"]
    assert ("m", "/fs/old", "/fs/renamed") in moves
    assert ("m", "/fs/moved", "/fs/somewhere") in moves
    assert "@@ -1,2 +1,3 @@\n one\n two text\n+three\n" in made.diff
    assert "two old" not in made.diff


def test_the_host_is_as_before(place: Path) -> None:
    mounts = Path("/proc/self/mountinfo").read_text()
    made = captured(
        "sh", "-c", "sleep 7531 & echo x > /dev/shm/x; echo y > /tmp/shioenv-preview; :"
    )
    assert made.behavior.exit_code == 0
    assert Path("/proc/self/mountinfo").read_text() == mounts
    assert not list(running("7531"))
    assert not Path("/tmp/shioenv-preview").exists()
    assert "/tmp/shioenv-preview" in made.behavior.content_digests


@pytest.mark.parametrize(
    ("command", "code"),
    [(["false"], 1), (["sh", "-c", "kill -9 $$"], 137), (["no-such"], 127), (["/etc"], 126)],
)
def test_exit_codes_are_those_of_the_command(place: Path, command: list[str], code: int) -> None:
    assert captured(*command).behavior.exit_code == code


def test_time_ends_it(place: Path) -> None:
    made = captured(
        "sh", "-c", "echo x > y; exec sleep 60", limits=replace(USUAL_LIMITS, wall_seconds=0.3)
    )
    assert made.behavior.timed_out
    assert made.behavior.exit_code == 124
    assert "y" in made.behavior.content_digests


def test_a_job_that_goes_on_is_cut_off(place: Path) -> None:
    made = captured("sh", "-c", "sleep 300 & exit 3")
    assert (made.behavior.limits_hit, made.behavior.exit_code) == (("background_seconds",), 3)


def test_a_job_that_ends_in_time_is_shown(place: Path) -> None:
    patient = replace(USUAL_LIMITS, background_seconds=20.0)
    made = captured("sh", "-c", "(sleep 0.03; touch late) > /dev/null 2>&1 &", limits=patient)
    assert ["a", "/fs/late"] in [
        list(operation[:2]) for operation in made.behavior.patch.operations
    ]
    assert made.behavior.limits_hit == ()


def test_the_exit_status_tells_the_command_from_the_preview(place: Path) -> None:
    script = "echo -n out; exit 4"
    done = CliRunner().invoke(app, ["preview", "--json", "sh", "-c", script])
    document = json.loads(done.stdout)
    assert (done.exit_code, document["exit_code"], document["output"]) == (4, 4, "out")
    assert document["context_patch"] == []
    assert CliRunner().invoke(app, ["preview", "--no-such-option", "true"]).exit_code == 125
    done = CliRunner().invoke(app, ["preview", "--root", "/no/such", "true"])
    assert (done.exit_code, "SHIO-U01" in done.stderr) == (125, True)


def test_hidden_paths(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(place))
    (place / ".ssh").mkdir()
    (place / ".ssh" / "id").write_text("secret")
    (place / ".netrc").write_text("secret")
    (place / "token").write_text("secret")
    script = "cat .ssh/id; cat .netrc; cat token; echo x > .ssh/new; "
    script += "echo written > .netrc; cat .netrc; :"
    made = captured("sh", "-c", script, hide=["token"])
    assert b"secret" not in made.behavior.output
    assert b"written" not in made.behavior.output
    assert not made.behavior.patch
    hidden = {path for path in made.hidden if Path(path).is_relative_to(place)}
    assert hidden == {str(place / name) for name in (".ssh", ".netrc", "token")}
    assert captured("cat", ".netrc", show=["~/.netrc"]).behavior.output == b"secret"
    with pytest.raises(UsageError, match="is not a hidden path"):
        captured("true", show=["token"])
    with pytest.raises(UsageError, match="is inside the hidden path"):
        captured("true", root=".ssh")


def test_who_calls_sudo_has_secrets_too(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / ".netrc").write_text("secret")
    user = pwd.struct_passwd(("other", "x", 7531, 7531, "", str(place), "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwnam", {"other": user}.__getitem__)  # as a directory lists it
    monkeypatch.setenv("SUDO_USER", "other")
    assert str(place / ".netrc") in captured("true").hidden
    monkeypatch.setenv("SUDO_USER", "nobody knows")
    assert str(place / ".netrc") not in captured("true").hidden


def test_network(place: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        script = f"exec 3<> /dev/tcp/127.0.0.1/{port}"
        assert captured("bash", "-c", script).behavior.exit_code != 0
        assert captured("bash", "-c", script, network=True).behavior.exit_code == 0
    own = (
        "import socket; s = socket.create_server(('127.0.0.1', 80)); "
        "socket.create_connection(s.getsockname())"
    )
    assert captured(sys.executable, "-c", own).behavior.exit_code == 0


TRIES = r"""
echo x > /etc/shioenv-preview || echo refused; echo x > /shioenv-preview || echo refused
mount -t tmpfs none /mnt; unshare -m true; unshare -Ur true
echo 1 > /proc/sys/vm/overcommit_memory
cat /proc/1/environ; wc -c < /proc/keys; ls /proc/self/fd/9 /dev/mem; ls /dev
kill -9 1 OUTSIDE; readlink /proc/self/ns/user; hostname
id > /dev/full; stat -c %a /dev/shm; grep -E '^(NoNewPrivs|Seccomp|CapBnd):' /proc/self/status
"""
CALLS = """
import ctypes, socket
libc = ctypes.CDLL(None, use_errno=True)
def errno(number):
    ctypes.set_errno(0)
    libc.syscall(*map(ctypes.c_long, (number, 0, 0, 0, 0, 0)))
    return ctypes.get_errno()
print([errno(each) for each in (248, 249, 250, 298, 321, 323, 319, 425, 447)])
print(errno((1 << 30) + 250) in (1, 38))
for family in (1, 2, 40, 40 | 1 << 32):
    ctypes.set_errno(0)
    libc.syscall(*map(ctypes.c_long, (41, family, 1, 0)))
    print(ctypes.get_errno())
"""


@pytest.mark.parametrize("whole", [True, False], ids=["whole root", "directories"])
def test_a_command_has_no_way_out(
    place: Path, whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refusals, and the visible parts of the host, in the order of `TRIES`."""
    may_mount = "shioenv_agents.preview.keeper.may_mount"
    monkeypatch.setattr(may_mount, lambda: whole and os.geteuid() == 0)
    with subprocess.Popen(["sleep", "600"]) as outside:
        try:
            made = captured("bash", "-c", TRIES.replace("OUTSIDE", str(outside.pid)))
            assert outside.poll() is None
        finally:
            outside.kill()
    told = made.behavior.output.decode()
    assert told.count("refused\n") == (0 if made.whole else 2)
    assert not any(Path(top, "shioenv-preview").exists() for top in ("/", "/etc"))
    for said in (
        f"mount: /mnt: {'permission denied' if os.geteuid() == 0 else 'must be superuser'}",
        "unshare: unshare failed: Operation not permitted",
        "unshare: unshare failed: No space left on device",
        "/proc/sys/vm/overcommit_memory: Read-only file system",
        "/proc/1/environ: Permission denied",
        "cannot access '/proc/self/fd/9'",
        "cannot access '/dev/mem'",
        "fd\nfull\nnull\nptmx\npts\nrandom\nshm\nstderr\nstdin\nstdout\nurandom\nzero\n",
        f"({outside.pid}) - No such process",
        "write error: No space left on device\n1777\n",
        "\nNoNewPrivs:\t1\nSeccomp:\t2\n",
    ):
        assert said in told, told
    assert str(Path("/proc/self/ns/user").readlink()) not in told
    bounds = int(told.partition("CapBnd:\t")[2].split()[0], 16)
    assert bounds == (sum(1 << each for each in _KEPT) if os.geteuid() == 0 else 0)


def test_calls_that_reach_past_namespaces_are_refused(place: Path) -> None:
    refused = [errno.EPERM] * 6 + [errno.ENOSYS] * 3
    for network in (False, True):
        told = captured(sys.executable, "-c", CALLS, network=network).behavior.output.splitlines()
        assert told[:4] == [str(refused).encode(), b"True", b"0", b"0"]
        assert network or told[4:] == [b"97", b"97"]  # the host may have none


def test_limits_of_processes_and_files_hold(place: Path) -> None:
    limits = replace(USUAL_LIMITS, processes=4, disk_bytes=1 << 20, disk_inodes=300)
    script = (
        "ulimit -u; ulimit -c; cat /dev/zero > full; rm full; "
        "seq 400 | while read n; do : > new$n || exit; done"
    )
    made = captured("bash", "-c", script, limits=limits)
    assert made.behavior.output.startswith(b"4\n0\n")
    assert made.behavior.output.count(b"No space left on device") == 2
    assert made.behavior.limits_hit == ("disk_inodes",)
