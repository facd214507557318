"""A server of `shioenv serve ssh` as a process, and OpenSSH's client for it."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from support.waiting import PATIENCE, wait_until

OPTIONS = [
    "-F", "none", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
    "-o", "LogLevel=ERROR", "-o", "IdentitiesOnly=yes", "-o", "NumberOfPasswordPrompts=1",
]  # fmt: skip


RUNNERS = {
    "machine": (),
    "model": ("--model", "default"),
    "hybrid": ("--model", "default", "--machine-below", "0.9"),
}
"""Options of a server with each of the runners."""

BOT = (
    "id -un", "uname -m", "pwd", "cd /tmp", "pwd", "cd /var/log", "cd ..", "pwd", "cd /root", "x=5",
    "echo $x", "y=$((x * 8))", "echo $y", "echo one > a", "echo two >> a", "cat a", "wc -l a",
    "cp a b", "cat b", "mv b c", "cat c", "rm a c", "cat c", "mkdir -p d/e", "rmdir d/e",
    "rmdir d", "touch f", "chmod 600 f", "ls -l f", "rm f", "ls f", "echo $?", "export T=1",
    "echo $T", "unset T", "echo \"<$T>\"", "for i in 1 2 3; do echo n$i; done", "true", "false",
    "echo $?", "grep -c ^root: /etc/passwd", "head -1 /etc/passwd", "test -d /etc && echo there",
    "[ -f /nowhere ] || echo none", "echo a b c | wc -w", "printf '%s-' x y; echo", "umask",
    "cd /no-such-directory", "echo done | tr a-z A-Z", "cd /",
)  # fmt: skip
"""Fifty lines typed by a bot."""


class Server:
    """A running server, with its log."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.directory = directory
        command = [sys.executable, "-m", "shioenv", "serve", "ssh", str(directory), "--port", "0"]
        with (directory / "stderr").open("wb") as errors:
            self.process = subprocess.Popen([*command, *options], stderr=errors)
        self.port = wait_until(self._port, lambda: f"the server's port; it wrote {self.errors}")
        ask = directory / "ask"
        ask.write_text('#!/bin/sh\necho "$PASSWORD"\n')
        ask.chmod(0o700)
        self.environment = {
            **os.environ, "SSH_ASKPASS": str(ask), "SSH_ASKPASS_REQUIRE": "force",
            "PASSWORD": "hunter2", "TERM": "xterm",
        }  # fmt: skip

    def _port(self) -> str:
        """Return the port that the server reports; empty as yet."""
        assert self.process.poll() is None, self.errors
        found = re.search(r"running on ssh://[\d.]+:(\d+).*\n", self.errors)
        return found[1] if found else ""

    @property
    def errors(self) -> str:
        """Return the server's standard error so far."""
        return (self.directory / "stderr").read_text()

    def ssh(
        self, *words: str, program: str = "ssh", **options: Any
    ) -> subprocess.CompletedProcess[bytes]:
        port = "-p" if program == "ssh" else "-P"
        identity = [] if "-i" in words else ["-o", "IdentityFile=/nonexistent"]
        command = [program, *OPTIONS, *identity, port, self.port, *words]
        options.setdefault("input", b"")
        return subprocess.run(
            command, env=self.environment, capture_output=True, timeout=PATIENCE, **options
        )

    def events(self, name: str = "") -> list[dict[str, Any]]:
        """Return the events so far, or those of one name."""
        whole, _, _ = (self.directory / "log.jsonl").read_text().rpartition("\n")
        lines = whole.splitlines()  # a line that is being written is seen in part
        return [event for event in map(json.loads, lines) if name in {"", event["eventid"]}]

    def until(self, name: str, *, last_line: str = "", **fields: Any) -> dict[str, Any]:
        """Wait for the first event of a name with these fields."""

        def first() -> dict[str, Any] | None:
            for event in self.events(name):
                if fields.items() <= event.items() and event.get("input", "").endswith(last_line):
                    return event
            return None

        return wait_until(first, lambda: f"{name} with {fields} behind {self.events()[-5:]}")

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End the server by a signal; return its exit status."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)


@contextmanager
def serving(directory: Path, *options: str) -> Iterator[Server]:
    directory.mkdir(parents=True, exist_ok=True)
    server = Server(directory, *options)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.stop()
    assert "Traceback" not in server.errors, server.errors


class Sitting:
    """A client at a terminal."""

    def __init__(self, server: Server, *words: str, rows: int = 24, columns: int = 80) -> None:
        self.pid, self._terminal = pty.fork()
        if not self.pid:
            command = ["ssh", *OPTIONS, "-o", "IdentityFile=/nonexistent", "-p", server.port]
            os.execvpe("ssh", [*command, *words], server.environment)
        self.resize(rows, columns)
        self.shown = b""

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))

    def type(self, text: str, until: str) -> str:
        """Type, and return the output up to a pattern."""
        os.write(self._terminal, text.encode())
        return self.read(until)

    def read(self, until: str) -> str:
        """Return the screen's text up to a pattern."""

        def end() -> int | None:
            found = re.search(until.encode(), self.shown, re.DOTALL)
            if not found and select.select([self._terminal], [], [], 1)[0]:
                try:
                    self.shown += os.read(self._terminal, 65536)
                except OSError:
                    raise AssertionError(f"the end came first: {self.shown!r}") from None
            return found and found.end()

        at = wait_until(end, lambda: f"{until!r} in {self.shown!r}")
        before, self.shown = self.shown[:at], self.shown[at:]
        return before.decode()

    def leave(self) -> int:
        """Wait for the client's end; return its exit code."""
        while True:
            try:
                if not os.read(self._terminal, 65536):
                    break
            except OSError:
                break
        _, status = os.waitpid(self.pid, 0)
        os.close(self._terminal)
        return os.waitstatus_to_exitcode(status)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        try:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            os.close(self._terminal)
        except OSError:
            pass
