"""Attacks of a hostile previewed command on the host, and the host's state after them."""

from __future__ import annotations

import json
import os
import pty
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shioenv.sandbox.base import MEBIBYTE
from shioenv_agents.preview.layered_run import USUAL_LIMITS, Preview, preview
from support.needs import needs

pytestmark = pytest.mark.xdist_group("preview")

WRITES = r"""
for root in /proc/self/root /proc/1/root /proc/self/fd/../root; do echo bad > $root@/victim; done
mount --bind @ /mnt; echo bad > /mnt/victim
mount -o remount,rw /; umount -l /; umount -l /proc/sys; mount -t proc proc /mnt
unshare -Ur true && echo GOT a user namespace; unshare -m true && echo GOT mounts
nsenter -t 1 -m true && echo GOT into process 1
mknod /tmp/disk b 254 0 && head -c 1 /tmp/disk && echo GOT a disk
ls /dev | grep -E '^(sd|vd|nvme|mem|kmem|kvm)' && echo GOT a device
echo 1 > /proc/sys/vm/overcommit_memory && echo GOT a setting
echo x > /proc/sysrq-trigger && echo GOT the kernel
echo x > /sys/kernel/uevent_helper && echo GOT sysfs
head -c 1 /proc/1/environ && echo GOT process 1
grep NoNewPrivs:.1 /proc/self/status > /dev/null || echo GOT privileges
kill -9 OUTSIDE && echo GOT a process; kill -9 1; kill -INT 1; kill -TERM 1
keyctl show > /dev/null 2>&1 && echo GOT keys
echo still here
"""
ESCAPES = r"""
import ctypes, os
libc = ctypes.CDLL(None)
outer = os.open("/", os.O_RDONLY)
try:
    os.mkdir("cell"); os.chroot("cell"); os.fchdir(outer)
    for _ in range(64): os.chdir("..")
    os.chroot(".")
except OSError as error:
    print(error)
finally:
    os.close(outer)
open(VICTIM, "w").write("bad")
for number in range(3, 1024):
    try: print("GOT descriptor", number, os.readlink(f"/proc/self/fd/{number}"))
    except OSError: pass
    try: os.fchdir(number); print("GOT a directory", number)
    except OSError: pass
for name in ("/run/shioenv-test", SOCKET):
    try:
        import socket
        socket.socket(socket.AF_UNIX).connect(name); print("GOT a socket")
    except OSError: pass
if libc.memfd_create(b"x", 0) >= 0: print("GOT memory")
libc = ctypes.CDLL(None, use_errno=True)
for number in (248, 249, 250, 298, 321, 323, 425, 0x40000000 + 250):
    if libc.syscall(number, 0, 0, 0, 0, 0) >= 0 or ctypes.get_errno() not in (1, 38):
        print("GOT the call", number)
print("still here")
"""


@pytest.fixture
def victim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "victim").write_text("good")
    return tmp_path / "victim"


def captured(*command: str, **limits: Any) -> Preview:
    return preview(command, capture=True, limits=replace(USUAL_LIMITS, **limits))


def test_nothing_that_is_tried_in_a_shell_reaches_the_host(victim: Path) -> None:
    with subprocess.Popen(["sleep", "600"]) as outside:
        script = WRITES.replace("@", str(victim.parent)).replace("OUTSIDE", str(outside.pid))
        made = captured("bash", "-c", script)
        assert outside.poll() is None
        outside.kill()
    assert b"GOT" not in made.behavior.output
    assert made.behavior.output.endswith(b"still here\n")
    assert victim.read_text() == "good"
    assert [path.name for path in victim.parent.iterdir()] == ["victim"]


def test_nothing_leads_out_by_descriptors_and_sockets(victim: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(victim.parent / "socket"))
        server.listen()
        given = {"VICTIM": str(victim), "SOCKET": str(victim.parent / "socket")}
        script = ESCAPES
        for name, value in given.items():
            script = script.replace(name, repr(value))
        made = captured(sys.executable, "-c", script)
    assert b"GOT" not in made.behavior.output
    assert made.behavior.output.endswith(b"still here\n")
    assert victim.read_text() == "good"
    assert "victim" in made.behavior.content_digests


def test_a_terminal_takes_no_keys_from_a_command(victim: Path) -> None:
    ours, theirs = pty.openpty()
    inject = "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSTI, b'x')"
    words = [sys.executable, "-m", "shioenv", "preview", "--", sys.executable, "-c", inject]
    done = subprocess.run(words, stdin=theirs, capture_output=True, preexec_fn=_own_terminal)
    os.close(ours)
    os.close(theirs)
    assert done.returncode == 1
    assert b"PermissionError: [Errno 1]" in done.stderr


def _own_terminal() -> None:
    import fcntl
    import termios

    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def test_a_fork_bomb_meets_the_limit(victim: Path) -> None:
    bomb = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass\n"
    made = captured(sys.executable, "-c", bomb, processes=350, cpu_seconds=0.5)
    assert made.behavior.exit_code == 137
    assert set(made.behavior.limits_hit) <= {"processes", "cpu_seconds"}
    assert made.behavior.limits_hit


def test_more_processes_than_the_limit_are_not_to_be_had(victim: Path) -> None:
    many = (
        "import os, time\n"
        "try:\n"
        "    for count in range(10_000):\n"
        "        if os.fork() == 0: time.sleep(60)\n"
        "except OSError: print(count)\n"
    )
    made = captured(sys.executable, "-c", many, processes=350)
    refused = made.behavior.output and int(made.behavior.output) <= 352
    assert refused or made.behavior.limits_hit == ("processes",)


def test_a_disk_filler_meets_the_limit(victim: Path) -> None:
    made = captured("sh", "-c", "cat /dev/zero > full", disk_bytes=8 * MEBIBYTE)
    assert b"No space left on device" in made.behavior.output
    assert made.behavior.limits_hit == ("disk_bytes",)
    assert not Path("full").exists()


def test_memory_meets_the_limit(victim: Path) -> None:
    hungry = "x = bytearray(1 << 30); import time; time.sleep(60)"
    made = captured(sys.executable, "-c", hungry, memory_bytes=200 * MEBIBYTE)
    assert made.behavior.limits_hit == ("memory_bytes",)
    assert made.behavior.exit_code == 137


def test_memory_meets_the_limit_in_the_background_too(victim: Path) -> None:
    hungry = "x = bytearray(1 << 30); import time; time.sleep(60)"
    script = '"$0" -c "$1" & exit 3'
    limits = {"memory_bytes": 200 * MEBIBYTE, "background_seconds": 5.0}
    made = captured("sh", "-c", script, sys.executable, hungry, **limits)
    assert made.behavior.limits_hit == ("memory_bytes",)
    assert made.behavior.exit_code == 3


def test_sockets_of_virtual_machines_are_the_networks(victim: Path) -> None:
    asked = "import socket; socket.socket(socket.AF_VSOCK); print('GOT a socket')"
    assert b"[Errno 97]" in captured(sys.executable, "-c", asked).behavior.output
    others = "from socket import *; socket(); socket(AF_NETLINK, SOCK_RAW); print('both')"
    assert captured(sys.executable, "-c", others).behavior.output == b"both\n"
    outside = subprocess.run([sys.executable, "-c", asked], capture_output=True)
    allowed = preview([sys.executable, "-c", asked], capture=True, network=True)
    assert allowed.behavior.exit_code == outside.returncode


@needs("root")
def test_devices_in_read_only_mounts_are_not_opened(victim: Path) -> None:
    script = (
        "mkdir disk && mount -t tmpfs none disk && mknod disk/zero c 1 5 && "
        'mount -o remount,ro disk && head -c 1 disk/zero && exec "$@"'
    )
    words = [sys.executable, "-m", "shioenv", "preview", "--", "sh", "-c"]
    tried = "head -c 1 disk/zero; head -c 1 /dev/zero | wc -c; wc -c < /dev/null; wc -c /proc/keys"
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", *words, tried], capture_output=True
    )
    assert b"'disk/zero' for reading: Permission denied" in done.stderr
    assert done.stdout == b"\x001\n0\n0 /proc/keys\n"


def test_output_without_end_meets_the_limit(victim: Path) -> None:
    made = captured("yes", drain_bytes=4 * MEBIBYTE, output_bytes=MEBIBYTE)
    assert made.behavior.output_truncated
    assert len(made.behavior.output) == MEBIBYTE
    assert made.behavior.limits_hit == ("output_bytes", "drain_bytes")


@needs("root")
def test_a_set_user_id_program_gives_no_rights(victim: Path, tmp_path: Path) -> None:
    script = "cp /usr/bin/id own; chown 1:1 own; chmod 6755 own; ./own -u"
    made = captured("sh", "-c", script)
    assert made.behavior.output == b"0\n"
    assert made.behavior.exit_code == 0


SERVES = """
import os, socket, subprocess, sys
start = os.getcwd()
os.chdir("/mnt")
for name in ("inner", "beside"): os.mkdir(name)
subprocess.run(["mount", "-t", "tmpfs", "none", "inner"], check=True)
held = []
for place in (".", "inner", "beside"):
    os.mkfifo(f"{place}/fifo")
    held.append(os.open(f"{place}/fifo", os.O_RDWR))
    for name in (f"/mnt/{place}/socket", f"{place}/relative"):
        held.append(socket.socket(socket.AF_UNIX))
        held[-1].bind(os.path.normpath(name))
        held[-1].listen()
open("mounted", "w").close()
subprocess.run(["mount", "--bind", "/mnt/socket", "/mnt/mounted"], check=True)
other = "import socket; s = socket.socket(1); s.bind('/mnt/other'); s.listen(); "
other += "print(flush=True); input()"
words = ["unshare", "--net", sys.executable, "-c", other]
pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
with subprocess.Popen(words, **pipes) as process:
    process.stdout.readline()
    status = subprocess.run(sys.argv[1:], cwd=start).returncode
    process.stdin.write(b"\\n")
sys.exit(status)
"""
CONNECTS = """
import os, socket
for directory, _, names in os.walk("/mnt"):
    for path in (f"{directory}/{name}" for name in sorted(names)):
        try:
            if path.endswith("fifo"): os.open(path, os.O_WRONLY | os.O_NONBLOCK)
            else: socket.socket(socket.AF_UNIX).connect(path)
            print(path)
        except OSError: pass
"""
LISTED = ["/mnt/beside/socket", "/mnt/inner/socket", "/mnt/mounted", "/mnt/socket"]
ORDINARY = ["setpriv", "--bounding-set=-sys_admin"]


@needs("root")
@pytest.mark.parametrize(
    ("rights", "options", "reached"),
    [([], [], []), (ORDINARY, [], []), (ORDINARY, ["--network"], LISTED)],
)
def test_sockets_and_fifos_outside_layers_are_covered_or_listed(
    victim: Path, rights: list[str], options: list[str], reached: list[str]
) -> None:
    words = [sys.executable, "-c", SERVES, *rights, sys.executable, "-m", "shioenv", "preview"]
    words += ["--json", *options, "--", sys.executable, "-c", CONNECTS]
    outer = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none /mnt && exec "$@"', "sh"]
    done = subprocess.run([*outer, *words], capture_output=True)
    document = json.loads(done.stdout)
    assert sorted(document["output"].splitlines()) == reached
    assert sorted(name for name in document["reachable"] if name.startswith("/mnt")) == reached


@needs("root")
@pytest.mark.parametrize("mounts", ["", "mkdir own/inner; mount -t tmpfs none own/inner;"])
def test_the_runtime_directory_is_writable_and_answers_nobody(victim: Path, mounts: str) -> None:
    script = (
        f"set -e; mount -t tmpfs none /mnt; cd /mnt; mkdir -m 700 own; {mounts} "
        'mkfifo own/fifo; exec 9<> own/fifo; export XDG_RUNTIME_DIR=/mnt/own; exec "$@"'
    )
    tried = (
        'cd "$XDG_RUNTIME_DIR"; stat -c %a .; echo x > new; '
        "test ! -p fifo || dd if=/dev/null of=fifo oflag=nonblock conv=notrunc"
    )
    words = [*ORDINARY, sys.executable, "-m", "shioenv", "preview", "--json"]
    words += ["--root", str(victim.parent), "--", "sh", "-c", tried]
    done = subprocess.run(["unshare", "-m", "sh", "-c", script, "sh", *words], capture_output=True)
    document = json.loads(done.stdout)
    assert document["exit_code"] == (0 if mounts else 1)  # the host has a reader
    nobody = "dd: failed to open 'fifo': No such device or address\n"
    assert document["output"] == "700\n" + ("" if mounts else nobody)
