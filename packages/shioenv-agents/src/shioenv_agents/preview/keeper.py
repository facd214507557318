"""The keeper of a preview: the process that makes its namespaces, and ends everything inside."""

from __future__ import annotations

import json
import os
import re
import socket
import stat
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shioenv.sandbox.base import Closing
from shioenv.system import host_diagnosis
from shioenv.system.idmap import OwnId, read_line, spawn_mapped

PATIENCE = 120.0
"""Seconds to wait for a keeper to exit.

For its list of changes, the wait is the scan's time limit and these seconds."""

_SYS_ADMIN = 21  # the number of CAP_SYS_ADMIN
_BOOT = (
    "import sys, json; sys.path[:] = json.loads(sys.argv.pop()); "
    "from shioenv_agents.preview.inside import main; main()"
)


@dataclass(frozen=True, slots=True)
class Keeper(Closing):
    """A running keeper process that waits for its plan. The context manager ends it on exit."""

    process: subprocess.Popen[bytes]
    control: socket.socket
    output: int | None
    """The pipe with the command's output and errors; None if they go to those of the caller."""

    def close(self) -> None:
        """End the keeper, and close the descriptors. Call it once."""
        self.control.close()  # first: the keeper may wait for an answer
        self.end()
        if self.output is not None:
            os.close(self.output)

    def end(self) -> None:
        """End the keeper, which ends everything inside first. Any thread may call this."""
        self.process.terminate()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def may_mount() -> bool:
    """Whether this process may mount without a user namespace."""
    status = Path("/proc/self/status").read_text()
    held = re.search(r"^CapEff:\s*(\S+)", status, re.MULTILINE)
    return os.geteuid() == 0 and held is not None and bool(int(held[1], 16) >> _SYS_ADMIN & 1)


def start_keeper(given: int | None, *, capture: bool, network: bool = False) -> Keeper:
    """Start a keeper. `given` is the standard input of its command (None: the caller's input).

    With `capture` the command writes into a pipe, else to the caller's output and error. `network`
    gives it the host's network. The kernel kills the keeper when the calling thread exits. Errors:
    HostError if the host allows no user namespace.
    """
    ours, theirs = socket.socketpair()
    options: dict[str, Any] = {"cwd": "/", "start_new_session": True, "stdin": given}
    pipe = end = None
    if capture:
        pipe, end = os.pipe()
        os.set_blocking(pipe, False)  # the keeper holds the other end until it ends
        options |= {"stdout": end, "stderr": end}
    words = [sys.executable, "-X", "utf8", "-P", "-c", _BOOT, str(theirs.fileno())]
    words += [str(int(network)), json.dumps(sys.path)]
    try:
        process = _spawned(words, theirs.fileno(), options)
    except BaseException:
        ours.close()
        if pipe is not None:
            os.close(pipe)
        raise
    finally:
        theirs.close()
        if end is not None:
            os.close(end)
    return Keeper(process, ours, pipe)


def _spawned(words: list[str], control: int, options: dict[str, Any]) -> subprocess.Popen[bytes]:
    if may_mount():
        return subprocess.Popen(words, pass_fds=[control], **options)
    process, helper = spawn_mapped(["own", *words], OwnId(), descriptors=[control], **options)
    with helper:
        if said := read_line(helper):
            raise host_diagnosis.no_user_namespace(said)
    return process


def standard_input() -> int | None:
    """Return a command's standard input, never a host file that it could reopen for writing.

    None means the caller's own input. The caller must close a descriptor above 2.
    """
    try:
        kind = os.fstat(0).st_mode
    except OSError:
        return subprocess.DEVNULL
    if os.isatty(0) or stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind):
        return None
    end, ours = os.pipe()
    feeding = threading.Thread(target=_feed, args=(ours,), daemon=True)
    feeding.start()
    return end


def _feed(pipe: int) -> None:
    """Write standard input into a pipe, as long as it has a reader."""
    with suppress(OSError), open(pipe, "wb", buffering=0) as file:
        while data := os.read(0, 1 << 16):
            while data:
                data = data[file.write(data) :]
