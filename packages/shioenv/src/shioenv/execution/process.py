"""Child processes: worker processes with a connection, and waiting for orphaned children."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import IO, Any, Final

from shioenv.execution.supervised import LAST_WORDS, ended, supervised
from shioenv.system.stopped import StopWatch

_MESSAGE_SECONDS = 60
"""Seconds for which a worker may pause within a message (our choice)."""

CLOSING_SECONDS = 10.0
"""Seconds in which an idle worker must end after its connection is closed (our choice)."""


class WorkerProcess:
    """A Python process that runs `main` of a module, with this process's `sys.path`.

    `sys.argv[2]` of the worker is the file descriptor of its end of the connection; `arguments`
    follow it. With `programs`, the worker may run external programs: it is supervised, and every
    process that it started ends with it. Errors: OSError if no process can be started.
    """

    def __init__(
        self, module: str, arguments: Sequence[str] = (), *, programs: bool = False
    ) -> None:
        boot = (
            "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
            f"from {module} import main; main()"
        )
        self._programs = programs
        self._watch = StopWatch()
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as self
        self.connection: Connection[Any, Any]
        self.connection, theirs = Pipe()
        with socket.socket(fileno=os.dup(self.connection.fileno())) as ours:
            for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
                ours.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", _MESSAGE_SECONDS, 0))
        paths, file = json.dumps(sys.path), theirs.fileno()
        words = [sys.executable, "-X", "utf8", "-c", boot, paths, str(file), *arguments]
        with theirs:
            if programs:
                self._process = supervised(words, last_words=self._stderr, pass_fds=[file])
            else:
                self._process = subprocess.Popen(
                    words,
                    stdin=subprocess.DEVNULL,
                    stdout=self._stderr,
                    stderr=self._stderr,
                    pass_fds=[file],
                    start_new_session=True,  # Ctrl-C is only for this process
                    env=os.environ | {"MALLOC_ARENA_MAX": "1"},  # more arenas would waste memory
                )

    def send(self, content: bytes) -> None:
        """Send bytes; a worker that does not receive them is killed, which ends its connection."""
        try:
            self.connection.send_bytes(content)
        except OSError:
            self._process.kill()

    def kill_if_stopped(self) -> None:
        """Kill a worker that enough calls of this method found stopped (SIGSTOP)."""
        if self._watch.is_lost(self._process.pid):
            self._process.kill()

    def end(self, patience: float) -> tuple[int, str]:
        """Close the connection, and kill the worker if it has not ended after `patience` seconds.

        Return the worker's exit status and the last 2,000 bytes of its output, as text.
        """
        self.connection.close()
        self._process.send_signal(signal.SIGCONT)  # a stopped worker would not end
        if self._programs:
            status = ended(self._process, patience)
        else:
            try:
                status = self._process.wait(patience)
            except subprocess.TimeoutExpired:
                self._process.kill()
                status = self._process.wait()
        with self._stderr:
            self._stderr.seek(0, os.SEEK_END)
            self._stderr.seek(max(0, self._stderr.tell() - LAST_WORDS))
            return status, self._stderr.read().decode("utf-8", "replace").strip()


_PR_SET_CHILD_SUBREAPER: Final = 36

CHILDREN_SECONDS: Final = 5.0
"""Seconds to wait for processes that the kernel is ending (our choice)."""


def adopt_orphans() -> None:
    """Make this process the parent of descendants that become orphans from now on.

    This is needed because the first process of a machine's namespaces ends a moment after the
    machine's supervisor.
    """
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def wait_for_children() -> None:
    """Wait until this process has no children, for at most `CHILDREN_SECONDS`."""
    until = time.monotonic() + CHILDREN_SECONDS
    with suppress(ChildProcessError):
        while time.monotonic() < until:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(0.005)
