"""The default backend: Linux namespaces and an overlay of the system, without daemon or root.

Each sandbox has one supervisor process (C, `shioenv.native`), which creates the namespaces. A fork
server in the system's own bash runs one input at a time for the supervisor. After each run the
supervisor restores the pristine state.

This module starts and ends the supervisor and sends it inputs. `configuration.py` builds the
supervisor's configuration, `wire.py` defines the messages, and `docs/design/sandbox.md` explains
the design.
"""

from __future__ import annotations

import errno
import os
import platform
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from shioenv.errors import (
    SandboxError,
    ShellEndedError,
    ShioenvError,
    StartDirectoryError,
    SystemCorruptError,
    SystemNotBuiltError,
)
from shioenv.sandbox.base import (
    CallLock,
    Closing,
    Entered,
    Execution,
    Limits,
    Marked,
    Request,
    ShellMode,
    ShellNode,
)
from shioenv.sandbox.namespaces.configuration import ShownKernel, configuration
from shioenv.sandbox.namespaces.lower import (
    KeptNamespaces,
    LowerForm,
    exhausted,
    keep_namespaces,
    opening_failed,
)
from shioenv.sandbox.namespaces.netlink import network_document
from shioenv.sandbox.namespaces.wire import (
    LONGEST_PATH,
    UNMARKED,
    Ask,
    Connection,
    Meaning,
    Reply,
    Stage,
    Supervisor,
    SupervisorSocket,
    meaning,
    pack_request,
    read_reply,
)
from shioenv.system.build import PROGRAMS
from shioenv.system.host_checks import allow_large_files, allow_open_files
from shioenv.system.idmap import read_line, spawn
from shioenv.system.store import System

_PIECE = 1 << 16  # bytes; answers are rarely longer
_GRACE_SECONDS = 120.0
"""Seconds of silence, beyond a run's wall and background time, after which the supervisor counts as
broken."""

_PROBE_LINKS = (
    r"ip -json -force -batch - <<< $'link show\naddress show'; printf '\0'; "
    r"ip -4 -json -force -batch - <<< $'route show table all\nrule show'; printf '\0'; "
    r"ip -6 -json -force -batch - <<< $'route show table all\nrule show'; printf '\0'; "
)
_PROBE_RULES = "nft list ruleset 2>/dev/null"
_NETWORK_PROBE = Request(
    _PROBE_LINKS + _PROBE_RULES,
    cwd="/",
    wall_seconds=30.0,  # a probe takes a thousandth of this time
)
"""Prints the state of the network for `network_document`.

Starting programs takes most of the probe's time, so it starts few."""


_HOSTNAME_PROBE = Request("uname -n", cwd="/")


_Own = TypeVar("_Own", bound="NamespaceSandbox")
_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


def in_turn(
    call: Callable[Concatenate[_Own, _Given], _Result],
) -> Callable[Concatenate[_Own, _Given], _Result]:
    """Make a method hold the supervisor's lock, so that calls of several threads do not overlap.

    A call may consist of several requests: for example, changes of the network are read by a
    further request. An exception that is not a ShioenvError, such as KeyboardInterrupt, may come
    between these requests. So it ends the supervisor, and the next call starts another.
    """

    @wraps(call)
    def alone(self: _Own, /, *given: _Given.args, **named: _Given.kwargs) -> _Result:
        with self.calls.lock:
            try:
                return call(self, *given, **named)
            except ShioenvError:
                raise
            except BaseException:
                self.abandon()
                raise

    return alone


class NamespaceSandbox(Closing):
    """A pristine system that runs one input at a time; see `shioenv.sandbox.base.Sandbox`.

    Opening takes a tenth of a second, and a run about as long as `bash -c` alone. Errors: HostError
    (exit status 3, with the fix) if the host forbids something that the sandbox needs.
    """

    def __init__(
        self,
        system: System,
        limits: Limits | None = None,
        *,
        mode: ShellMode = ShellMode.LATE,
        lower: LowerForm = LowerForm.NAMES,
        plain: Path | None = None,
    ) -> None:
        """Open the sandbox.

        `lower` is the form of the lower layer to try first; `LowerForm.PART` is for comparisons.
        `plain` is a directory that replaces the overlay, as the reference for tests. It is a full
        copy of the system's rootfs, including owners, and must not be below /tmp. Inputs change
        the copy permanently; the caller restores it.
        """
        self.system = system
        self.limits = limits or Limits()
        self.mode = mode
        self._lower, self._plain = lower, plain
        self._kept: KeptNamespaces | None = None
        self._closed = False
        self._live = False
        self.calls = CallLock()
        """The lock of the supervisor's connection."""
        self._asking = False  # between a request and its answer
        self._process: Supervisor | None = None
        self._open()

    @property
    def lower(self) -> LowerForm:
        """The form of the sandbox's lower layer on this host."""
        return self._kept.form if self._kept else self._lower

    @property
    def supervisor_pid(self) -> int | None:
        """See `ShellSandbox.supervisor_pid`."""
        return self._process.pid if self._process else None

    def close(self) -> None:
        """End every process of the sandbox; later calls do nothing.

        A call in progress in another thread is interrupted and raises SandboxError.
        """
        self._closed = True
        with self.calls.last(self.interrupt):
            self._end()
            self._kept = None

    def interrupt(self) -> None:
        """End the machine during a call; see `ShellSandbox.interrupt`."""
        process = self._process
        if process is not None:
            process.kill()

    def abandon(self) -> None:
        """End the supervisor during a call, without waiting for the call."""
        self.interrupt()
        self._end()

    def _end(self) -> None:
        """End the supervisor and thereby the whole sandbox; the next run starts a new one."""
        self._asking = False
        process, self._process = self._process, None
        if process is None:
            return
        self._socket.close()  # end of file ends the supervisor, which ends everything else
        if process.poll() is None:  # after its end, its pid may be reused
            os.kill(process.pid, signal.SIGCONT)  # if stopped, it would not notice
        try:
            process.wait(timeout=_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    @in_turn
    def run(self, request: Request) -> Execution:
        """Run the input in a fresh `bash --norc --noprofile -c`; see `Sandbox.run`.

        After a SandboxError the next run gets a new sandbox.
        """
        return self._run(request)

    @in_turn
    def run_fresh(self, request: Request) -> Execution:
        """Run the input in a newly executed bash, as the reference for `run`.

        This is slower than `run`, and the shell state is unknown.
        """
        return self._run(request, Ask.FRESH)

    @in_turn
    def network(self) -> bytes:
        """Return the pristine network in the format of `Execution.network`.

        Raises SandboxError if the network cannot be read, for example if the probe was killed.
        """
        return self._read_network(Ask.KEEP)

    @in_turn
    def start_shell(
        self, cwd: str | None = None, *, idle_seconds: float, separate: bool = False
    ) -> Execution:
        """Start a persistent shell; see `ShellSandbox.start_shell`."""
        start = cwd or self.system.declaration.start_directory
        request = Request(". /dev/stdin", cwd=start, separate=separate)
        return self._shell(request, idle_seconds)

    def _shell(self, request: Request, idle_seconds: float) -> Execution:
        if self._process is None:
            self._live = False
        reply, execution = self._exchange(request, Ask.SHELL, idle_seconds)
        self._live = True
        if reply.error:
            self.end_shell()
        self._succeed(reply, request)
        return execution

    @in_turn
    def run_line(self, request: Request, *, blind: bool = False, last: bool = False) -> Execution:
        """Run a line in the persistent shell; see `ShellSandbox.run_line`."""
        ask = Ask.LINE | (Ask.BLIND if blind else 0) | (Ask.LAST if last else 0)
        return self._of_shell(request, ask)

    @in_turn
    def mark(self) -> Marked:
        """Keep the state of the persistent shell; see `ShellSandbox.mark`."""
        return self._mark(Ask.MARK)

    def _mark(self, ask: int) -> Marked:
        reply, _ = self._exchange(Request(""), ask)
        self._succeed(reply, Request(""))
        said = meaning(reply.flags)
        why = [*UNMARKED.values()][-1 - reply.status] if reply.status < 0 else None
        return Marked(reply.status, why, said.stays, said.frozen, said.traffic)

    @in_turn
    def export(self) -> ShellNode:
        """Keep the state of the shell for other machines; see `ShellSandbox.export`."""
        marked = self._mark(Ask.MARK | Ask.EXPORT)
        return ShellNode(self._ends(1)[0] if marked.why is None else -1, marked.why)

    @in_turn
    def start_copy(self, node: int, *, idle_seconds: float) -> bool:
        """Start a copy of another machine's shell; see `ShellSandbox.start_copy`."""
        if self._process is None:
            self._live = False
        ask = Ask.SHELL | Ask.FORK
        reply, execution = self._exchange(Request(""), ask, idle_seconds, file=node)
        self._live = True
        if reply.error:
            self.end_shell()
            raise SandboxError("a copy of the shell could not start")
        return execution.stays

    @in_turn
    def return_to(self, node: int) -> None:
        """Continue with a copy of a node's shell; see `ShellSandbox.return_to`."""
        reply, _ = self._exchange(Request(""), Ask.FORK, node=node)
        self._succeed(reply, Request(""))

    @in_turn
    def run_from(self, node: int, request: Request, *, last: bool) -> Execution:
        """Run a line in a copy of a node's shell; see `ShellSandbox.run_from`."""
        ask = Ask.LINE | Ask.FORK | (Ask.LAST if last else 0)
        return self._of_shell(request, ask, node)

    @in_turn
    def run_beside(self, request: Request) -> Execution:
        """Run an input in addition to the persistent shell; see `ShellSandbox.run_beside`."""
        return self._of_shell(request, 0)

    @in_turn
    def run_apart(self, request: Request) -> Execution:
        """Run an input beside the shell on pristine files; see `ShellSandbox.run_apart`."""
        return self._of_shell(request, Ask.APART)

    @in_turn
    def start_terminal(self, request: Request, *, idle_seconds: float) -> int:
        """Start a shell on a terminal; see `ShellSandbox.start_terminal`."""
        self._shell(replace(request, tty=True), idle_seconds)
        return self._ends(1)[0]

    def _ends(self, count: int) -> list[int]:
        """Receive the descriptors that the supervisor holds for this process."""
        if not isinstance(self._socket, SupervisorSocket):
            raise SandboxError(
                "this sandbox cannot pass descriptors", hint="use the sandbox namespaces"
            )
        self._asking = True
        self._socket.sendall(pack_request(Request(""), b"/", self.limits, Ask.HAND))
        descriptors = self._socket.receive_descriptors(count)
        self._asking = False
        if len(descriptors) != count:
            for descriptor in descriptors:
                os.close(descriptor)
            self._end()
            raise SandboxError("the supervisor returned no descriptors")
        return descriptors

    @in_turn
    def enter(self, request: Request, *, idle_seconds: float) -> Entered:
        """Run an input whose processes continue in the machine; see `ShellSandbox.enter`."""
        reply, _ = self._exchange(replace(request, separate=True), Ask.ENTER, idle_seconds)
        self._live = True
        self._succeed(reply, request)
        if meaning(reply.flags).timed_out:
            raise SandboxError(
                "an input did not start in its machine",
                hint="the machine may have too many processes, or a process stopped it",
            )
        return Entered(*self._ends(3))

    @in_turn
    def look(self) -> Execution:
        """Report the changes since the shell was started; see `ShellSandbox.look`."""
        return self._of_shell(Request(""), Ask.LOOK)

    def _of_shell(self, request: Request, ask: int, node: int = 0) -> Execution:
        """Send a request to the machine of a persistent shell, and return its execution."""
        reply, execution = self._exchange(request, ask, node=node)
        if reply.stage == Stage.OVER:
            raise ShellEndedError(
                "the shell ended before this line",
                hint="a process killed it, or it was idle for too long; open another shell",
            )
        self._succeed(reply, request)
        return self._named(execution, meaning(reply.flags), Ask.APART)

    @in_turn
    def end_shell(self) -> None:
        """End the persistent shell; see `ShellSandbox.end_shell`."""
        if not self._live or self._process is None:
            self._live = False
            return
        try:
            reply, _ = self._exchange(Request(""), Ask.END)
        finally:
            self._live = False
        if reply.error or meaning(reply.flags).needs_new_sandbox:
            self._end()

    def _network_probe(self) -> Request | None:
        """Return the network probe without programs that the system lacks (imported systems may).

        None if nothing is left.
        """
        links, rules = (name in self.system.programs for name in ("ip", "nft"))
        if links and rules:
            return _NETWORK_PROBE
        text = f"{_PROBE_LINKS}true" if links else _PROBE_RULES
        return replace(_NETWORK_PROBE, text=text) if links or rules else None

    def _read_network(self, ask: Ask) -> bytes:
        probe = self._network_probe()
        if probe is None:
            return b"{}"
        read = self._run(probe, ask)
        try:
            if read.exit_code != 0:
                raise ValueError(f"nft ended with exit code {read.exit_code}")
            return network_document(read.output, links="ip" in self.system.programs)
        except ValueError as error:
            self._end()
            needed = " and ".join(f"{name} ({package})" for name, package in PROGRAMS.items())
            raise SandboxError(
                f"cannot read the network state: {error}",
                hint=f"the system needs {needed}; `shioenv system build` checks for them",
            ) from None

    # ---- the supervisor ----

    def _open(self) -> None:
        self._process, self._socket = self._start()
        line = self._configure()
        if line != "R":
            self._end()
            raise opening_failed(line)

    def _start(self) -> tuple[Supervisor, Connection]:
        """Start a supervisor; return it, not yet configured, and the connection to it."""
        allow_open_files()
        allow_large_files()
        directory, declaration = self.system.path, self.system.declaration
        if not self.system.rootfs.is_dir():
            raise SystemNotBuiltError(
                f"the files of the system {self.system.name} are missing: {directory}",
                hint="build it again: shioenv system build",
            )
        if self._kept is None:
            instant = int(declaration.instant.timestamp())
            self._kept = keep_namespaces(directory, instant, best=self._lower, plain=self._plain)
            if self.system.tree_sums.get(self._kept.form, self._kept.sum) != self._kept.sum:
                self._kept = None
                raise SystemCorruptError(
                    f"files of the system {self.system.name} were changed after it was built",
                    hint=f"list them: shioenv system verify {self.system.name}; "
                    f"rebuild: shioenv system build {self.system.name}",
                )
        kept = self._kept
        process, connection = spawn(
            ["run", str(kept.user), str(kept.mounts), kept.form, str(kept.number)],
            descriptors=(kept.user, kept.mounts),
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={},
        )
        return process, SupervisorSocket(connection, process.pid)

    def _configure(self) -> str:
        """Configure the supervisor and return its answer: "R" if it is ready."""
        plain = self._plain is not None
        try:
            self._socket.sendall(
                configuration(self.system, self.limits, self.mode, self._kernel(), plain=plain)
            )
            return read_line(self._socket)
        except OSError as error:
            return f"E{error.errno or errno.ETIMEDOUT} talk to the supervisor"

    def _kernel(self) -> ShownKernel:
        """Return the kernel that the supervisor runs under."""
        return ShownKernel(platform.release(), time.time())

    def _run(self, request: Request, ask: int = 0) -> Execution:
        if self._live and not ask & Ask.APART:
            raise SandboxError("a shell uses the sandbox's machine", hint="end the shell first")
        reply, execution = self._exchange(request, ask)
        self._succeed(reply, request)
        said = meaning(reply.flags)
        if ask & (Ask.KEEP | Ask.RENEW | Ask.APART):  # a probe
            if ask & Ask.RENEW and said.needs_new_sandbox:
                self._end()
            return execution
        return self._completed(execution, said)

    def _exchange(
        self,
        request: Request,
        ask: int,
        idle_seconds: float = 0.0,
        node: int = 0,
        file: int | None = None,
    ) -> tuple[Reply, Execution]:
        """Send a request, perhaps with a descriptor, and return the reply.

        A sandbox is opened if none is open.
        """
        start = self._start_of(request)
        message = pack_request(request, start, self.limits, ask, idle_seconds, node)
        if self._closed:
            raise SandboxError("the sandbox is closed", hint="open a new one")
        if self._asking:  # a signal handler called this during the thread's own call
            raise SandboxError("the sandbox is busy with another call", hint="wait for its result")
        if self._live:
            if self._process is None:
                raise SandboxError("the shell's machine has ended", hint="open another shell")
        elif self._kept is not None and not self._kept.current():
            self._end()
            self._kept = None
        if self._process is None:
            self._open()
        limits = self.limits
        seconds = limits.wall_seconds if request.wall_seconds is None else request.wall_seconds
        patience = seconds + limits.background_seconds + limits.scan_seconds + _GRACE_SECONDS
        if self._socket.gettimeout() != patience:  # setting a timeout takes a system call
            self._socket.settimeout(patience)
        try:
            self._asking = True
            if file is not None and isinstance(self._socket, SupervisorSocket):
                self._socket.send_with(message, file)
            else:
                self._socket.sendall(message)
            reply, body = read_reply(self._receive, limits)
            self._asking = False
            return reply, reply.execution(body, limits, separate=request.separate)
        except OSError as error:
            self._end()
            raise SandboxError(f"lost the connection to the supervisor: {error}") from error
        except BaseException:
            self._end()  # otherwise the next run would receive this run's answer
            raise

    def _start_of(self, request: Request) -> bytes:
        return _directory(request.cwd or self.system.declaration.start_directory)

    def _succeed(self, reply: Reply, request: Request) -> None:
        """Raise the error in a reply, if any. An error of the sandbox itself ends the sandbox."""
        if not reply.error:
            return
        reason = os.strerror(reply.error)
        if reply.stage == Stage.DIRECTORY:
            raise _no_start(os.fsdecode(self._start_of(request)), reason)
        self._end()
        raise _run_failed(reply.error, reply.stage)

    def _named(self, execution: Execution, said: Meaning, ask: Ask) -> Execution:
        """Add the network and the hostname to the execution if they changed.

        `ask` holds the flags of the requests that read them.
        """
        if said.network:
            execution = replace(execution, network=self._read_network(ask))
        if said.hostname:
            named = self._run(_HOSTNAME_PROBE, ask & Ask.APART or Ask.KEEP)
            if named.exit_code != 0:
                self._end()
                raise SandboxError(f"cannot read the host name: exit code {named.exit_code}")
            execution = replace(execution, hostname=named.output.rstrip(b"\n"))
        return execution

    def _completed(self, execution: Execution, said: Meaning) -> Execution:
        """Like `_named`, for a run. End the sandbox if the next run needs a new one."""
        execution = self._named(execution, said, Ask.KEEP if said.needs_new_sandbox else Ask.RENEW)
        if execution.hostname == self.system.declaration.machine.hostname.encode():
            execution = replace(execution, hostname=None)  # only the domain name changed
        if said.needs_new_sandbox:
            self._end()
        return execution

    def _receive(self, least: int, so_far: bytes) -> bytes:
        """Receive at least `least` bytes of an answer, including `so_far`; mostly in one call."""
        data = so_far
        while len(data) < least:
            more = self._socket.recv(max(_PIECE, least - len(data)))
            if not more:
                raise ConnectionResetError("end of file")
            data = data + more if data else more
        return data


@lru_cache(maxsize=64)
def _directory(path: str) -> bytes:
    """Encode a start directory for the supervisor; cached, because few different ones occur."""
    where = os.fsencode(path)
    if not where.startswith(b"/") or b"\0" in where:
        raise _no_start(path, "not an absolute path")
    if len(where) >= LONGEST_PATH:
        raise _no_start(path[:80] + "...", os.strerror(errno.ENAMETOOLONG))
    return where


def _no_start(path: str, reason: str) -> StartDirectoryError:
    return StartDirectoryError(
        f"cannot start in {path}: {reason}",
        hint="give the absolute path of a directory in the system",
    )


def _run_failed(number: int, stage: int) -> SandboxError:
    reason = os.strerror(number)
    if stage == Stage.SCAN:
        return SandboxError(f"cannot read the changes of the input: {reason}")
    return SandboxError(f"cannot run the input: {reason} (stage {stage})", hint=exhausted(number))
