"""The program that serves as every account's login shell, with a socket in place of the server."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from shioenv_serve.ssh.daemon import ssh_programs

SERVER = """\
import os, signal, socket, subprocess, sys
listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind("/run/front/sessions")
listener.listen()
shell = subprocess.Popen([sys.argv[1]])
called, _ = listener.accept()
data, fds, *_ = socket.recv_fds(called, 1 << 16, 3)
for number in range(int(sys.argv[2])):
    shell.send_signal(signal.SIGWINCH)
    assert called.recv(8, socket.MSG_PEEK) == b"w"
shell.send_signal(signal.SIGSTOP)  # so that it finds both: the answer, and its end
os.waitpid(shell.pid, os.WUNTRACED)
called.send(sys.argv[3].encode())
called.close()
shell.send_signal(signal.SIGCONT)
print(shell.wait())
"""


def ended(tmp_path: Path, unread: int, answer: str) -> str:
    """Return how the shell ends once the server answers, with messages from the shell unread."""
    program = tmp_path / "session"
    program.write_bytes(ssh_programs()["session"])
    program.chmod(0o755)
    (tmp_path / "server.py").write_text(SERVER)
    words = [sys.executable, tmp_path / "server.py", program, unread, answer]
    inside = 'mount -t tmpfs none /run && mkdir /run/front && exec "$@"'
    unshare = shutil.which("unshare")
    assert unshare is not None
    done = subprocess.run(
        [unshare, "-Urm", "sh", "-c", inside, "sh", *map(str, words)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_it_ends_as_the_server_says(tmp_path: Path) -> None:
    assert ended(tmp_path, 0, "x 7") == "7"
    assert ended(tmp_path, 0, "s 15") == "-15"


def test_it_ends_so_also_where_its_newest_message_was_not_read(tmp_path: Path) -> None:
    assert ended(tmp_path, 1, "x 7") == "7"
