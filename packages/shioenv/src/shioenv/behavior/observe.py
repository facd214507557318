"""A pristine system that runs inputs: `shioenv.open_sandbox` returns it."""

from __future__ import annotations

import hashlib
import os
import posixpath
import signal
import stat
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from threading import Lock, RLock, local
from typing import Any, TypeVar, cast

from shioenv.behavior.capture import Recorder
from shioenv.behavior.history import channels_since, difference, touched
from shioenv.behavior.line_behaviors import LineRecorder, Lines
from shioenv.behavior.sessions import SessionMachine, shows_a_kill
from shioenv.behavior.typed_rows import Row, RowKind, request_of
from shioenv.domain.behavior import NOTHING, Behavior
from shioenv.domain.context import Context
from shioenv.domain.names import name_bytes
from shioenv.domain.runner import Order, State
from shioenv.errors import Abstained, SandboxError, StartDirectoryError
from shioenv.sandbox.backends import default_sandbox
from shioenv.sandbox.base import (
    Closing,
    Execution,
    FileStat,
    Limits,
    Request,
    Sandbox,
    ShellSandbox,
)
from shioenv.system.image import device_mode
from shioenv.system.store import DEVICES, IndexEntry, System, find_system
from shioenv.text import short_repr

Started = TypeVar("Started")

LENT = 2
"""Maximum number of shells that `lend_shell` lends at a time (our choice, because each takes
megabytes)."""

LENT_SECONDS = 86_400.0
"""Seconds for which a lent shell waits for its next line."""

REPLAYED = 64
"""Maximum number of histories whose behavior is kept. Each saves one run when a further input of
its session is executed."""

_KILLED = 128 + signal.SIGKILL


class _Spent(local):
    """Times of the calling thread's runs."""

    seconds = 0.0
    whole_seconds = 0.0
    waited = False


class SandboxRunner(Closing):
    """Runs inputs on a system, each from the same pristine state, and records their behaviors.

    The `Runner` that executes: one sandbox with the recorders of its start directories. Use it as a
    context manager. Threads may share a runner: the sandbox runs their inputs one after the other,
    and each call returns its own input's behavior. For parallel inputs use several runners, or
    several shells. A forked process cannot use the runner.
    """

    _ran = _given = False
    """Whether the runner's own sandbox is kept for runs, and whether a shell took it."""

    def __init__(self, system: System, limits: Limits | None = None) -> None:
        self.system = system
        self._spent = _Spent()
        self._closed = False
        self._sandbox = default_sandbox(system, limits)
        self._choosing = Lock()  # held to set `_ran` or `_given`
        self._opened: list[Sandbox] = [self._sandbox]
        self._machines: list[ShellSandbox] = []  # the sandboxes in `_opened` that wait for a shell
        self._lent: list[Lines] = []
        self.lends = LENT
        """Maximum number of shells lent at a time. If none of them is idle, more are lent
        (`lend_shell`)."""
        self._lending = RLock()  # held by the call that makes room for a shell and starts it
        self._lock = RLock()
        self._users = {number: name for name, number in reversed([*system.users.items()])}
        self._groups = {number: name for name, number in reversed([*system.groups.items()])}
        self._recorders: dict[str, Recorder] = {}
        self._context: tuple[str, Context] | None = None
        self._replayed: OrderedDict[Request, Behavior] = OrderedDict()
        self._network: bytes | None = None  # no cached_property, whose lock all runners would share

    def __repr__(self) -> str:
        return short_repr(self, {"system": self.system.name, "limits": self.limits})

    @property
    def limits(self) -> Limits:
        """The limits of every run."""
        return self._sandbox.limits

    @property
    def seconds(self) -> float:
        """Seconds that this thread's inputs ran, until the end of their last processes."""
        return self._spent.seconds

    @property
    def whole_seconds(self) -> float:
        """Seconds that the rows of this thread's newest call of `type` ran."""
        return self._spent.whole_seconds

    @property
    def waited(self) -> bool:
        """Whether this thread's newest run timed out while it slept (`Execution.waited`)."""
        return self._spent.waited

    def state(self, cwd: str | None = None) -> State:
        """Return the pristine state in a start directory (None: the system's first one)."""
        return State(cwd=cwd or self.system.declaration.start_directory, pristine=self)

    def run(self, shell_input: str, state: State | None = None) -> Behavior:
        """Run an input in a fresh `bash --norc --noprofile -c INPUT`; see `Runner.run`.

        For a state with a history, the history is run first in the same shell, one line each.
        `execute` describes how the input's output is separated from the history's. Errors:
        InputError, StartDirectoryError, SandboxError (the run may be retried). Abstained for a
        history together with standard input, because a history is run again with an empty one.

        A run in which a program was killed is repeated. If no program is killed in the second run,
        the cause was outside the sandbox. Then the behavior is that of the second run, flagged as
        volatile.

        A run that breaks its sandbox is repeated in a new sandbox, up to `Limits.sandboxes` times.
        Each new sandbox first runs an empty input. If all break, the behavior reports only that the
        input was killed (`limits_hit` has `sandboxes`). Its effects are unknown.
        """
        return self.execute(shell_input, state)

    def execute(
        self,
        shell_input: str,
        state: State | None = None,
        *,
        separate: bool = False,
        tty: bool = False,
        wall_seconds: float | None = None,
        sandboxes: int | None = None,
        order: Order = "as it comes",
    ) -> Behavior:
        """Run an input like `run`, with the settings that only executing runners have.

        `separate` runs with two output channels, which fills `stdout` and `stderr` and loses the
        order between them. `tty` runs on a pseudo-terminal of 80 columns and 24 rows, like an
        interactive session. Lines then end in CR LF, and programs use columns and colours.
        `wall_seconds` and `sandboxes` override the limits of these names. `order` sets which of the
        shell's processes is scheduled first.

        After a history the behavior is the difference of two executions: the history alone, and the
        history followed by the input. The output is the part after the history's output. The patch
        leads from the context after the history to the one after the input. If two runs of the
        history differ, the behavior is volatile. Then as many lines of the output are removed as
        the history alone wrote (our choice).
        """
        cwd = state.cwd if state else self.system.declaration.start_directory
        history = state.history if state else ()
        if state and history and (state.fed or state.stdin):
            raise Abstained(
                f"{shell_input!r:.60} has a history and standard input",
                hint="omit one: inputs after a history have an empty standard input",
            )
        request = Request(
            "\n".join([*history, shell_input]),
            cwd=cwd,
            separate=separate,
            tty=tty,
            wall_seconds=wall_seconds,
            order=order,
            stdin=state.stdin if state else b"",
        )
        whole = self._executed(request, sandboxes)
        if not history or "sandboxes" in whole.limits_hit:  # unknown
            return whole
        # the empty line keeps bash from replacing itself by the last command, as in `whole`
        alone = "\n".join([*history, "", ""])
        before = replace(request, text=alone, stdin=b"", wall_seconds=None)
        waited = self.waited
        since = self.since(self._replay(before), whole, cwd)
        self._spent.waited = waited
        return since

    def type(
        self,
        rows: Iterable[Row],
        cwd: str,
        *,
        separate: bool = False,
        wall_seconds: float | None = None,
    ) -> Behavior:
        """Run rows one after the other in one shell, and return their joint behavior.

        The system is pristine before the first row. `cwd` is the start directory. `separate` and
        `wall_seconds` are those of `execute`. If the last row repeats an earlier one, the behavior
        may be a cached one.

        Errors: InputError if the rows are too long (`request_of`), those of `run`.
        """
        rows = list(rows)
        env = self.context(cwd).document["env"] if self.limits.without_shell_state else None
        request = request_of(rows, cwd, env, separate=separate, wall_seconds=wall_seconds)
        if rows and rows[-1].how in {RowKind.AGAIN, RowKind.BESIDE_AGAIN}:
            return self._replay(request)
        began = self.seconds
        behavior = self._executed(request)
        self._spent.whole_seconds = self.seconds - began
        return behavior

    def context(self, cwd: str | None = None) -> Context:
        """Return the complete context of the pristine system in a start directory.

        The patches of inputs that are run there apply to this context. The context is constant and
        has every field. Errors: StartDirectoryError if `cwd` is not a directory, SandboxError.
        """
        start = cwd or self.system.declaration.start_directory
        known = self._context
        if known is None or known[0] != start:
            here = self.system.index.get(self.system.resolve(start) or "")
            if here is None or not stat.S_ISDIR(here.mode):
                raise StartDirectoryError(
                    f"{start!r} is not a directory of the system {self.system.name}",
                    hint="start directories: "
                    + ", ".join(self.system.declaration.session.start_directories),
                )
            files = {
                os.fsencode(path): _file_stat(entry) for path, entry in self.system.index.items()
            }
            # keep only the newest context: each takes megabytes, and workers live long
            if start not in self._recorders:
                self._keep_for_runs()
            known = start, self._recorder(start).context(self.system.profile, files)
            self._context = known
        return known[1]

    @property
    def keeps_shells(self) -> bool:
        """Whether this runner's sandbox has resident shells (`start_shell`)."""
        return self.limits.sandbox == "namespaces" and not self.limits.without_shell_state

    def open_session(
        self,
        rows: Sequence[str],
        cwd: str,
        *,
        separate: bool = False,
        order: Order = "as it comes",
        joint: bool = False,
        nodes: bool = False,
    ) -> SessionMachine:
        """Start a machine that runs a session's rows, and inputs in the states that they left.

        `separate` and `order` are those of `execute`, for the rows. `joint` and `nodes` are those
        of `SessionMachine`. The caller closes the machine. Errors: those of `start_shell`.
        """
        lines = self.start_shell(cwd, idle_seconds=LENT_SECONDS, separate=separate)
        how: dict[str, Any] = {"separate": separate, "order": order, "joint": joint, "nodes": nodes}
        return SessionMachine(lines, rows, self.limits, note=self._note, **how)

    def _note(self, seconds: float, waited: bool) -> None:
        """Count a run of a session's machine among this thread's runs."""
        self._spent.seconds += seconds
        self._spent.waited = waited

    def start_shell(
        self, cwd: str | None = None, *, idle_seconds: float, separate: bool = False
    ) -> Lines:
        """Start a resident shell in a start directory (None: the first one).

        Each shell has a separate machine, so shells and runs are independent. A machine serves one
        shell after the other. The first shell of a runner that has run no input takes the runner's
        own machine; a later run opens another. The shell ends after waiting for its next line for
        `idle_seconds`. `separate` gives it two output channels. Errors: those of `run`;
        SandboxError if `keeps_shells` is False.
        """
        start = cwd or self.system.declaration.start_directory
        lines, _ = self._started(
            start,
            lambda sandbox: sandbox.start_shell(
                start, idle_seconds=idle_seconds, separate=separate
            ),
        )
        return lines

    def start_copies(self, lines: Lines, count: int, *, idle_seconds: float) -> list[Lines] | str:
        """Start copies of a resident shell of this runner, each in a separate machine.

        A copy has the shell's memory, its machine's files and its clock; no line is run. Return the
        reason if there can be no copy, for example a background process. Errors: those of
        `start_shell`.
        """
        exported, recorder = lines.export()
        if exported.why is not None:
            return exported.why
        copies: list[Lines] = []
        try:
            while len(copies) < count:
                copy, waits = self._started(
                    lines.cwd,
                    lambda sandbox: sandbox.start_copy(exported.node, idle_seconds=idle_seconds),
                    recorder.copy(),
                )
                copies.append(copy)
                if not waits:
                    raise SandboxError("the machines differ")
        except BaseException as error:
            for copy in copies:
                copy.close()
            if isinstance(error, SandboxError):
                return error.message
            raise
        finally:
            os.close(exported.node)
        return copies

    def start_terminal(
        self, shell_input: str, cwd: str | None = None, *, idle_seconds: float
    ) -> tuple[Lines, int]:
        """Start a resident shell that runs an input on a terminal, in a start directory.

        Only `look` and `close` of the returned `Lines` are usable. The caller closes the descriptor
        of the terminal's other end. Errors: those of `start_shell`.
        """
        start = cwd or self.system.declaration.start_directory
        request = Request(shell_input, cwd=start)
        return self._started(
            start, lambda sandbox: sandbox.start_terminal(request, idle_seconds=idle_seconds)
        )

    def lend_shell(self, cwd: str) -> Lines:
        """Start a shell like `start_shell`, for callers that can repeat its lines in another.

        Once `lends` other shells are lent, the oldest idle one is ended to make room. If none is
        idle, one more shell is lent. Errors: those of `start_shell`.
        """
        with self._lending:
            self._lent = [lines for lines in self._lent if not lines.given_back]
            room = self.lends - len(self._lent)
            for lines in self._lent:
                if room > 0:
                    break
                room += lines.close_idle()
            lines = self.start_shell(cwd, idle_seconds=LENT_SECONDS)
            self._lent.append(lines)
        return lines

    def _started(
        self,
        start: str,
        start_in: Callable[[ShellSandbox], Started],
        lines: LineRecorder | None = None,
    ) -> tuple[Lines, Started]:
        """Start a shell in an idle or new machine, and return it with the result of `start_in`.

        `lines` is the recorder of its lines (None: a new one for the pristine state).
        """
        if not self.keeps_shells:
            raise SandboxError(
                "this sandbox does not support persistent shells",
                hint="use the sandbox namespaces, without without_shell_state",
            )
        with self._lock:
            if self._closed:
                raise SandboxError("the sandbox is closed", hint="open a new one")
            recorder = self._recorder(start)
            with self._choosing:
                take = not (self._ran or self._given)
                self._given = self._given or take
            sandbox = cast("ShellSandbox", self._sandbox) if take else self._idle_machine()
        try:
            given = start_in(sandbox)
        except BaseException:
            self._machines.append(sandbox)
            raise
        hostname = self.system.declaration.machine.hostname.encode()
        lines = lines or LineRecorder(recorder, hostname, self.read)
        return Lines(sandbox, lines, start, self._machines.append), given

    def _idle_machine(self) -> ShellSandbox:
        """Return a machine that no shell uses; open one if necessary. The caller has the lock."""
        if self._machines:
            return self._machines.pop(0)
        machine = cast("ShellSandbox", default_sandbox(self.system, self.limits))
        self._opened.append(machine)
        if self._closed:  # another thread closed it meanwhile
            machine.close()
            raise SandboxError("the sandbox was closed", hint="open a new one")
        return machine

    def _keep_for_runs(self) -> None:
        """Prevent shells from taking the runner's own sandbox."""
        if not self._ran:
            with self._choosing:
                self._ran = True

    def _for_runs(self) -> Sandbox:
        """Return the sandbox for runs, which no shell uses."""
        if self._given:
            with self._lock:
                if self._given:
                    self._sandbox, self._given = self._idle_machine(), False
        return self._sandbox

    def read(self, path: str) -> bytes | None:
        """Return the content of a regular file of the pristine system, by its absolute path.

        None if the path leads to no regular file.
        """
        return self.system.content(path)

    def close(self) -> None:
        """End the sandbox and every shell; closing twice does nothing.

        Calls of other threads are interrupted, and raise SandboxError.
        """
        self._closed = True
        self._sandbox.close()  # first, since another thread may hold the lock and wait for it
        for sandbox in list(self._opened):  # sandboxes opened from now on close themselves
            sandbox.close()

    def _executed(self, request: Request, sandboxes: int | None = None) -> Behavior:
        self._keep_for_runs()
        recorder = self._recorder(request.cwd or self.system.declaration.start_directory)
        execution = self._survived(request, sandboxes or self.limits.sandboxes)
        disturbed = False
        if execution is not None and shows_a_kill(execution):
            again = self._survived(request, 1)
            if again is not None and not shows_a_kill(again):
                execution, disturbed = again, True
        self._spent.waited = execution is not None and execution.waited
        if execution is None:
            return _unknown(request)
        self._spent.seconds += execution.ended - execution.started
        behavior = recorder.behavior(execution)
        return replace(behavior, volatile=True) if disturbed else behavior

    def _survived(self, request: Request, sandboxes: int) -> Execution | None:
        """Return the execution in the first sandbox that the run did not break.

        None if the run broke `sandboxes` sandboxes. Errors: SandboxError if a new sandbox cannot
        run an empty input either, because then the input is not the cause.
        """
        sandbox = self._for_runs()
        for _ in range(sandboxes):
            try:
                return sandbox.run(request)
            except SandboxError:
                sandbox.run(Request("", cwd="/"))
        return None

    def _replay(self, request: Request) -> Behavior:
        """Return a history's behavior, executed or remembered.

        Volatile behaviors are never remembered.
        """
        known = self._replayed.pop(request, None) or self._executed(request)
        if not known.volatile:
            self._replayed[request] = known
            if len(self._replayed) > REPLAYED:
                self._replayed.popitem(last=False)
        return known

    def since(
        self, before: Behavior, whole: Behavior, cwd: str, *, of_moved: bool = False
    ) -> Behavior:
        """Return the difference from the end of `before` to the end of `whole`.

        `whole` is a run in the start directory `cwd` that repeated `before` and then did more. With
        `of_moved` moved files have digests as well.
        """
        if "sandboxes" in whole.limits_hit:
            return whole

        def path_of(name: str) -> str:
            return posixpath.normpath(posixpath.join(cwd, os.fsdecode(name_bytes(name))))

        def pristine(name: str) -> str | None:
            content = self.read(path_of(name))
            return None if content is None else hashlib.sha256(content).hexdigest()

        known = (self.system.index.get(path_of(name)) for name in touched(before, whole))
        files = {os.fsencode(entry.path): _file_stat(entry) for entry in known if entry}
        context = self._recorder(cwd).context(self.system.profile, files).document
        patch, digests = difference(before, whole, context, pristine, of_moved=of_moved)
        channels, steady = channels_since(before, whole)
        return replace(
            whole,
            **channels,
            patch=patch,
            content_digests=digests,
            volatile=whole.volatile or before.volatile or not steady,
        )

    def _pristine_network(self) -> bytes:
        """Return the untouched network, read until it is stable: later patches depend on it."""
        with self._lock:
            if self._network is None:
                sandbox = self._for_runs()
                known = sandbox.network()
                for _ in range(5):
                    before, known = known, sandbox.network()
                    if known == before:
                        self._network = known
                        return known
                raise SandboxError("the network state of the pristine machine keeps changing")
            return self._network

    def _recorder(self, start: str) -> Recorder:
        if start not in self._recorders:
            empty = self._for_runs().run(Request("", cwd=start))
            if empty.shell is None and not self.limits.without_shell_state:
                # something outside ended that shell, so its state is no baseline for later runs
                raise SandboxError(f"an empty input in {start} reported no shell state")
            self._recorders[start] = Recorder(
                start=start,
                baseline=empty.shell,
                cwd=empty.cwd,
                users=self._users,
                groups=self._groups,
                instant=self.system.declaration.instant.timestamp(),
                network=self._pristine_network,
            )
        return self._recorders[start]


def _unknown(request: Request) -> Behavior:
    """Return the behavior of a run that breaks its sandboxes: killed, and with unknown effects."""
    separate = b"" if request.separate else None
    return Behavior(
        exit_code=_KILLED,
        output=b"",
        stdout=separate,
        stderr=separate,
        limits_hit=("sandboxes",),
        patch_truncated=True,
        patch_digest=NOTHING,
        volatile=True,
        shell_state_known=False,
        died_by_signal=signal.SIGKILL,
    )


def _file_stat(entry: IndexEntry) -> FileStat:
    """Return a file's status as the sandbox shows it.

    Devices are mounted over some files, and some entries of the index stand for devices.
    """
    mounted = entry.path in DEVICES or entry.path == "/dev/ptmx"
    device = stat.S_IFCHR | 0o666 if mounted else device_mode(entry.target)
    return FileStat(
        mode=device or entry.mode,
        uid=entry.uid,
        gid=entry.gid,
        size=0 if device else entry.size,
        links=entry.links,
        mtime_ns=entry.mtime * 1_000_000_000,
        inode=0,
        target=None if device else os.fsencode(entry.target) or None,
    )


def open_sandbox(
    system: str | System | None = None,
    limits: Limits | None = None,
    *,
    sandbox: str | None = None,
) -> SandboxRunner:
    """Open a sandbox of a built system (None: the default one), ready to run inputs.

    `sandbox` overrides `Limits.sandbox`. `namespaces` uses the host's kernel; `microvm`,
    `microvm-bare` and `firecracker` start a virtual machine. If the processor is emulated (no KVM),
    a virtual machine needs longer time limits than the default ones. In a `microvm-bare` the input
    runs as root of the machine, and the shell's state is not read.

    Errors: UnknownSystemError, SystemNotBuiltError and SystemCorruptError, with a hint. UsageError:
    the argument names no system. HostError (exit status 3, with the fix): this host forbids a
    feature that isolation needs. ShellStateError, a HostError: the changes of the shell's state
    cannot be read. `Limits(without_shell_state=True)` avoids this error.
    """
    built = system if isinstance(system, System) else find_system(system)
    if sandbox is not None:
        limits = replace(limits or Limits(), sandbox=sandbox)
    try:
        return SandboxRunner(built, limits)
    except SandboxError:
        built.check()
        raise
