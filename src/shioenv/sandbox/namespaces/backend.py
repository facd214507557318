"""The default backend: Linux namespaces over an overlay of the system, without daemon or root.

One supervisor process (C, `shioenv.native`) per sandbox makes the namespaces, has a fork server
inside the system's own bash run one input at a time, and makes everything pristine again
afterwards. This module starts and ends it and has it run inputs; `configuration.py` says what it
is told, `wire.py` how, and `docs/design/sandbox.md` all the rest.
"""

from __future__ import annotations

import errno
import os
import subprocess
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Self

from shioenv.errors import HostError, SandboxError, StartDirectoryError
from shioenv.sandbox.base import Execution, Limits, Request
from shioenv.sandbox.namespaces.configuration import configuration
from shioenv.sandbox.namespaces.wire import (
    LONGEST_PATH,
    REPLY,
    Ask,
    Meaning,
    Reply,
    ShellMode,
    Stage,
    meaning,
    pack_request,
)
from shioenv.system.idmap import find_idmap, spawn_mapped
from shioenv.system.store import System

_PIECE = 1 << 16  # bytes; hardly an answer is longer
_GRACE_SECONDS = 120.0
"""How long past a run's own limits the supervisor may stay silent before it counts as broken."""

_NETWORK_PROBE = Request(
    "printf '{\"links\":'; ip -json link show; printf ',\"addresses\":'; ip -json address show; "
    "printf ',\"routes\":'; ip -4 -json route show table all; "
    "printf ',\"routes6\":'; ip -6 -json route show table all; "
    "printf ',\"rules\":'; ip -4 -json rule show; printf ',\"rules6\":'; ip -6 -json rule show; "
    'printf \',"firewall":"\'; '
    "nft list ruleset 2>/dev/null | od -An -v -tx1 | tr -d ' \\n'; printf '\"}'",
    cwd="/",
    wall_seconds=30.0,  # it takes a hundredth of it
)
"""Prints the state of the network as JSON, the firewall as hexadecimal text within it."""

_HOSTNAME_PROBE = Request("uname -n", cwd="/")


class NamespaceSandbox:
    """A pristine system that runs one input at a time; see `shioenv.sandbox.base.Sandbox`.

    Opening costs some milliseconds, a run about as much as `bash -c` alone. Not for use by two
    threads at once. Raises HostError (exit status 3, with the fix) where the host forbids what is
    needed.
    """

    def __init__(
        self,
        system: System,
        limits: Limits | None = None,
        *,
        mode: ShellMode = ShellMode.LATE,
        plain: Path | None = None,
    ) -> None:
        """`plain` is the oracle's file system: a full copy of the system's rootfs, owners included
        and not below /tmp, that inputs run on in place of the overlay. They change it for good: the
        caller restores it.
        """
        self.system = system
        self.limits = limits or Limits()
        self.mode = mode
        self._plain = plain
        self._closed = False
        self._owner = os.getpid()
        self._process: subprocess.Popen[bytes] | None = None
        self._open()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends every process of the sandbox; closing twice does nothing."""
        self._closed = True
        self._end()

    def _end(self) -> None:
        """Ends the supervisor and with it everything; the next run, if any, starts a new one."""
        process, self._process = self._process, None
        if process is None:
            return
        self._socket.close()  # its end of file ends the supervisor, and that everything else
        try:
            process.wait(timeout=_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def run(self, request: Request) -> Execution:
        """What a fresh `bash --norc --noprofile -c` did with this input; see `Sandbox.run`.

        After a SandboxError the next run gets a new sandbox.
        """
        return self._run(request)

    def run_fresh(self, request: Request) -> Execution:
        """The same from a newly executed bash: the oracle that `run` is compared with.

        Slower, and the shell's state stays unknown.
        """
        return self._run(request, Ask.FRESH)

    def network(self) -> bytes:
        """The pristine network, in the form of `Execution.network`.

        Raises SandboxError where something outside ended what reads it.
        """
        read = self._run(_NETWORK_PROBE, Ask.KEEP)
        if read.exit_code != 0:
            self._end()
            raise SandboxError(f"the network could not be read: exit code {read.exit_code}")
        return read.output

    # ---- the supervisor ----

    def _open(self) -> None:
        directory = self.system.path
        idmap = find_idmap()
        process, connection = spawn_mapped(
            ["run", str(idmap.first_uid), str(idmap.first_gid)],
            idmap,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={},
        )
        self._process, self._socket = process, connection
        try:
            connection.sendall(configuration(self.system, self.limits, self.mode, self._plain))
            line = b""
            while not line.endswith(b"\n"):
                byte = connection.recv(1)
                if not byte:
                    break
                line += byte
        except OSError as error:
            line = f"E{error.errno} talk to the supervisor".encode()
        if line != b"R\n":
            self._end()
            raise _opening_failed(line.decode("utf-8", "replace").strip())

    def _run(self, request: Request, ask: int = 0) -> Execution:
        start = request.cwd or self.system.declaration.start_directory
        message = pack_request(request, _directory(start), self.limits, ask)
        if self._closed:
            raise SandboxError("the sandbox is closed", hint="open a new one")
        if self._owner != os.getpid():
            raise SandboxError(
                "the sandbox was opened by another process", hint="open one in each process"
            )
        if self._process is None:
            self._open()
        limits = self.limits
        seconds = limits.wall_seconds if request.wall_seconds is None else request.wall_seconds
        patience = seconds + limits.background_seconds + _GRACE_SECONDS
        if self._socket.gettimeout() != patience:  # setting it is a call of the kernel
            self._socket.settimeout(patience)
        try:
            self._socket.sendall(message)
            answer = self._receive(REPLY.size)
            reply = Reply._make(REPLY.unpack_from(answer))
            body = memoryview(self._receive(REPLY.size + sum(reply[6:]), answer))[REPLY.size :]
        except OSError as failure:
            self._end()
            raise SandboxError(f"the supervisor is gone: {failure}") from failure
        except BaseException:
            self._end()  # an interrupt: the answer would be taken for the next run's
            raise
        if reply.error:
            if reply.stage == Stage.DIRECTORY:
                raise _no_start(start, os.strerror(reply.error))
            self._end()
            raise SandboxError(
                f"the input could not be started: {os.strerror(reply.error)} (stage {reply.stage})"
            )
        execution = reply.execution(body, limits, separate=request.separate)
        return execution if ask & Ask.KEEP else self._completed(execution, meaning(reply.flags))

    def _completed(self, execution: Execution, said: Meaning) -> Execution:
        """With the network and the host's name where these changed. Ends the sandbox where the next
        run needs a new one.
        """
        if said.network:
            execution = replace(execution, network=self.network())
        if said.hostname:
            hostname = self._run(_HOSTNAME_PROBE, Ask.KEEP).output.rstrip(b"\n")
            if hostname != self.system.declaration.machine.hostname.encode():
                # else it was the domain name that changed
                execution = replace(execution, hostname=hostname)
        if said.needs_new_sandbox:
            self._end()
        return execution

    def _receive(self, least: int, so_far: bytes = b"") -> bytes:
        """So many bytes of an answer at least: mostly it comes in one piece."""
        data = so_far
        while len(data) < least:
            more = self._socket.recv(max(_PIECE, least - len(data)))
            if not more:
                raise ConnectionResetError("end of file")
            data = data + more if data else more
        return data


@lru_cache(maxsize=64)
def _directory(path: str) -> bytes:
    """A start directory as the supervisor gets it; there are few of them."""
    where = os.fsencode(path)
    if not where.startswith(b"/") or b"\0" in where:
        raise _no_start(path, "not an absolute path")
    if len(where) >= LONGEST_PATH:
        raise _no_start(path[:80] + "...", os.strerror(errno.ENAMETOOLONG))
    return where


def _no_start(path: str, reason: str) -> StartDirectoryError:
    return StartDirectoryError(
        f"cannot start in {path}: {reason}",
        hint="a start directory is an absolute path of a directory in the system",
    )


def _opening_failed(line: str) -> HostError | SandboxError:
    """What the supervisor's last line ("E<errno> <step>") means to the user."""
    number, _, step = line.removeprefix("E").partition(" ")
    reason = os.strerror(int(number)) if number.isdigit() else "it ended without a word"
    message = f"the sandbox could not be opened: {step or 'supervisor'}: {reason}"
    if "overlay" in step or "opaque" in step:
        return HostError(
            message,
            hint="Linux 6.6 or newer is needed (on Debian 12: apt-get install "
            "-t bookworm-backports linux-image-amd64)",
        )
    if "proc" in step:
        return HostError(
            message,
            hint="this looks like a container with a masked /proc: run it with "
            "--security-opt systempaths=unconfined --security-opt seccomp=unconfined",
        )
    if number in ("1", "13", "28"):
        return HostError(message, hint="shioenv doctor names what this host forbids")
    return SandboxError(message, hint="shioenv doctor checks each step")
