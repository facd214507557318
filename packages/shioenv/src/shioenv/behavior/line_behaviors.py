"""Convert the executions of a shell's lines into behaviors, each of one line alone.

Each execution reports all changes since the machine was pristine. Changes by earlier lines are not
part of a line's behavior.
"""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import replace
from typing import Final

from shioenv.behavior.capture import SHELL_FIELDS, Found, Recorder, settled
from shioenv.behavior.shell_state import ShellDump
from shioenv.domain.behavior import Behavior
from shioenv.domain.runner import Order
from shioenv.errors import (
    SandboxError,
    ShellEndedError,
    ShioenvError,
    StartDirectoryError,
)
from shioenv.sandbox.base import (
    CallLock,
    Entered,
    Execution,
    FileChange,
    FileStat,
    Marked,
    Request,
    ShellNode,
    ShellSandbox,
)

OF_SHELLS = frozenset({*SHELL_FIELDS, "umask", "groups"})
"""The fields of a context that a shell's dump contains."""

SHELL_PID: Final = 1000
"""The process ID of a resident shell in its machine: `SHELL_PID` of `native/around/runs.h`."""

_ENDLESS: Final = "while [[ 1 ]]; do [[ 1 ]]; done"
_AT_ONCE: Final = 0.001


class LineRecorder:
    """Converts the executions of one machine's lines into behaviors, in their order.

    `recorder` is the recorder for the directory in which the shells start. `hostname` is the
    pristine host's name. `content` returns the content of a file of the pristine system by its
    path, or None if there is no such file.
    """

    def __init__(
        self, recorder: Recorder, hostname: bytes, content: Callable[[str], bytes | None]
    ) -> None:
        self._recorder = recorder
        self._content = content
        self._hostname = self._first_hostname = hostname
        self._network: bytes | None = None
        self._found = recorder.found
        self._left: dict[bytes, FileChange] = {}  # since the upper layer was last frozen
        self._frozen: dict[bytes, FileChange] = {}  # from the pristine machine until then
        self._last: Execution | None = None

    @property
    def newest(self) -> Execution | None:
        """The execution of the newest line whose changes were read; None before the first."""
        return self._last

    def behavior(self, execution: Execution) -> Behavior:
        """Return the behavior of the newest line."""
        execution = self._named(execution)
        changes = tuple(self._since(execution))
        behavior = self._recorder.behavior(replace(execution, changes=changes), self._found)
        self._go_on(execution, behavior)
        return behavior

    def joint(self, execution: Execution) -> Behavior:
        """Return the joint behavior of all lines so far, with only the newest line's output.

        One recorder returns either joint behaviors or those of single lines.
        """
        execution = self._named(execution)
        self._left = {each.path: each for each in settled(map(self._thawed, execution.changes))}
        if execution.frozen:
            self._frozen, self._left = self._composed(self._left), {}
        self._last = execution
        self._leave(execution, self._found.shell, execution.cwd or self._found.cwd)
        return self.whole()

    def printed(self, execution: Execution) -> Behavior:
        """Return the output and exit status of a line whose changes were not read."""
        if not execution.stays:
            return self.behavior(execution)
        return self._recorder.behavior(replace(execution, shell=None, cwd=None))

    def beside(self, execution: Execution) -> Behavior:
        """Return the behavior of an input that ran in a separate shell, after the lines."""
        execution = self._named(execution)
        changes = tuple(self._since(execution))
        fresh = replace(self._found, shell=self._recorder.found.shell, cwd=self._recorder.found.cwd)
        behavior = self._recorder.behavior(replace(execution, changes=changes), fresh)
        self._leave(execution, self._found.shell, self._found.cwd)
        last = self._last or replace(execution, shell=None, cwd=None)
        self._last = replace(
            last, changes=execution.changes, changes_truncated=execution.changes_truncated
        )
        return behavior

    def restart(self, execution: Execution) -> None:
        """Continue with another shell, which was started in the machine as it is."""
        execution = self._named(execution)
        for _ in self._since(execution):
            pass
        self._last = execution
        self._leave(execution, self._recorder.found.shell, self._recorder.found.cwd)

    def copy(self, *, frozen: bool = False) -> LineRecorder:
        """Return a recorder that continues from here. `frozen`: the upper layer was just frozen."""
        other = copy(self)
        other._left = dict(self._left)
        if frozen:
            other._frozen, other._left = self._composed(self._left), {}
        return other

    def whole(self) -> Behavior:
        """Return the joint behavior of all lines, with the last one's output and exit code."""
        if self._last is None:
            return Behavior(0, b"")
        hostname = None if self._hostname == self._first_hostname else self._hostname
        execution = replace(self._last, hostname=hostname, network=self._network)
        if self._frozen:
            changes = self._composed(self._left)
            execution = replace(execution, changes=tuple(changes.values()))
        return self._recorder.behavior(execution)

    def _named(self, execution: Execution) -> Execution:
        """Remove the host name or network from an execution if the line did not change it."""
        if execution.hostname == self._hostname:
            execution = replace(execution, hostname=None)
        if execution.network == self._found.network:
            execution = replace(execution, network=None)
        return execution

    def _since(self, execution: Execution) -> Iterator[FileChange]:
        """Yield the changes since the end of the previous line."""
        now = {change.path: change for change in settled(map(self._thawed, execution.changes))}
        entered = _entered(self._frozen) | _entered(self._left) | _entered(now)
        for path, change in now.items():
            left = self._left.get(path)
            before = change.before if left is None else left.after
            after = change.after
            replaced = before is None or before.digest is not None
            if left is not None and replaced and after is not None:
                after = self._digested(path, after)
            if left is not None and before is not None and after is None:
                before = self._digested(path, before)  # moved files are recognised by content
            if before != after:
                yield self._of_line(FileChange(path, before, after), entered)
        if not execution.changes_truncated:
            for path, left in self._left.items():
                if path not in now:
                    yield self._of_line(FileChange(path, left.after, left.before), entered)
            self._left = now
        else:
            self._left |= now
        if execution.frozen:
            self._frozen, self._left = self._composed(self._left), {}

    def _of_line(self, change: FileChange, entered: Collection[bytes]) -> FileChange:
        """Return a change without the attributes that replaying the lines cannot reproduce.

        These are attributes of a pristine directory in which entries were added or removed, before
        or by this line (`entered`).
        """
        path, before, after = change.path, change.before, change.after
        if before is None or after is None or path not in entered:
            return change
        known = self._frozen.get(path) or self._left.get(path)
        pristine = before if known is None else known.before
        if pristine is None or not all(stat.S_ISDIR(file.mode) for file in (before, after)):
            return change
        same = replace(after, size=before.size, links=before.links, mtime_ns=before.mtime_ns)
        return FileChange(path, before, same)

    @property
    def _touched(self) -> Collection[bytes]:
        return {*self._frozen, *self._left} if self._frozen else self._left.keys()

    def _thawed(self, change: FileChange) -> FileChange:
        """Return a change since the layer was frozen, with the correct previous size and links."""
        known = self._frozen.get(change.path)
        if known is None or known.after is None or change.before is None:
            return change
        before = replace(change.before, size=known.after.size, links=known.after.links)
        if change.before.digest is None:
            before = replace(before, digest=known.after.digest)
        return FileChange(change.path, before, change.after)

    def _composed(self, newer: Mapping[bytes, FileChange]) -> dict[bytes, FileChange]:
        """Return the changes since the machine was pristine: the frozen ones, then `newer`."""
        changes = dict(self._frozen)
        for path, change in newer.items():
            known = changes.get(path)
            changes[path] = (
                change if known is None else FileChange(path, known.before, change.after)
            )
        return changes

    def _digested(self, path: bytes, after: FileStat) -> FileStat:
        """Return a file with its digest added if its content is the pristine one again."""
        if after.digest is not None or not stat.S_ISREG(after.mode):
            return after
        content = self._content(path.decode("utf-8", "surrogateescape"))
        if content is None:
            return after
        return replace(after, digest=hashlib.sha256(content).hexdigest())

    def _go_on(self, execution: Execution, behavior: Behavior) -> None:
        """Make this line's final state the next line's initial state."""
        self._last = execution
        shell = self._found.shell
        areas = {operation[1].split("/")[1] for operation in behavior.patch.operations}
        if execution.shell and areas & OF_SHELLS:
            shell = self._recorder.dump(execution.shell)
        self._leave(execution, shell, execution.cwd or self._found.cwd)

    def _leave(self, execution: Execution, shell: ShellDump | None, cwd: bytes) -> None:
        """Set the machine's state to the execution's final one, with the given shell state."""
        self._hostname = execution.hostname or self._hostname
        self._network = execution.network or self._network
        self._found = Found(shell, cwd, self._network, self._touched)


def _entered(changes: Mapping[bytes, FileChange]) -> set[bytes]:
    """Return the directories in which an entry was added or removed."""
    return {
        path.rpartition(b"/")[0] or b"/"
        for path, change in changes.items()
        if (change.before is None) != (change.after is None)
    }


class Lines:
    """A resident shell, open between lines. Calls of several threads run in turn."""

    def __init__(
        self,
        sandbox: ShellSandbox,
        recorder: LineRecorder,
        cwd: str,
        give_back: Callable[[ShellSandbox], object],
    ) -> None:
        """`cwd` is the directory in which the shell was started.

        `give_back` receives the sandbox once the shell is ended.
        """
        self._sandbox, self._recorder, self.cwd = sandbox, recorder, cwd
        self._give_back: Callable[[ShellSandbox], object] | None = give_back
        self._calls = CallLock()
        self._marked: dict[int, LineRecorder] = {}
        self.busy = False
        """On a terminal: whether a process other than the shell was in the foreground at the last
        `look`."""
        self.seconds = 0.0
        """Seconds since the shell was started, at the end of its last line."""
        self.ended = False
        """Whether the shell has ended, with every process that it started."""
        self.gone = False
        """Whether the machine is gone: after an error of the sandbox or an interrupted call."""

    def run(
        self,
        line: str,
        *,
        wall_seconds: float | None = None,
        separate: bool = False,
        order: Order = "as it comes",
        last: bool = False,
        joint: bool = False,
    ) -> Behavior:
        """Run a line and return its behavior; the patch starts at the end of the previous line.

        A line that reaches a limit ends the shell, as `exit` does. `wall_seconds` overrides the
        limit of that name. Set `separate` if the shell was started with separate channels;
        `Request` documents `order`. With `last` the shell ends with the line, as `bash -c` ends
        with its last line. With `joint` the patch starts at the pristine machine, in every call.
        Errors: ShellEndedError if the shell has ended before; SandboxError, after which the machine
        is gone.
        """
        request = Request(
            line, cwd=self.cwd, wall_seconds=wall_seconds, separate=separate, order=order
        )
        with self.turn():
            execution = self._run(request, last=last)
            return self._recorded(execution, joint=joint)

    def _recorded(self, execution: Execution, *, joint: bool) -> Behavior:
        record = self._recorder.joint if joint else self._recorder.behavior
        return record(execution)

    def repeat(self, line: str, *, wall_seconds: float | None = None) -> Behavior:
        """Run a line without reading its changes: the next `run` or `look` reads them.

        The behavior has only the output and the exit code. Errors: those of `run`.
        """
        request = Request(line, cwd=self.cwd, wall_seconds=wall_seconds)
        with self.turn():
            return self._recorder.printed(self._run(request, blind=True))

    def mark(self) -> Marked:
        """Keep the state of the shell and the machine's files as a node, for `run_from`.

        If a line has changed files, this ends the shell. Errors: those of `look`.
        """
        with self._machine():
            marked = self._sandbox.mark()
            self.ended = not marked.stays
            if marked.why is None:
                self._marked[marked.node] = self._recorder.copy(frozen=marked.frozen)
            return marked

    def run_from(
        self,
        node: int,
        line: str,
        *,
        last: bool,
        wall_seconds: float | None = None,
        separate: bool = False,
        order: Order = "as it comes",
        joint: bool = False,
    ) -> Behavior:
        """Run a line in the state that `mark` kept, and return its behavior; see `run`.

        The present shell is ended, and its changes since the node are undone. Errors: SandboxError,
        after which the machine is gone.
        """
        request = Request(
            line, cwd=self.cwd, wall_seconds=wall_seconds, separate=separate, order=order
        )
        with self._machine():
            execution = self._sandbox.run_from(node, request, last=last)
            self._recorder = self._marked[node].copy()
            self.ended = not execution.stays
            return self._recorded(execution, joint=joint)

    def return_to(self, node: int) -> None:
        """Continue in the state that `mark` kept, without running a line; see `run_from`."""
        with self._machine():
            self._sandbox.return_to(node)
            self._recorder, self.ended = self._marked[node].copy(), False

    def export(self) -> tuple[ShellNode, LineRecorder]:
        """Keep the shell's state for other machines, and return it with a recorder for them.

        Errors: those of `look`.
        """
        with self._machine():
            return self._sandbox.export(), self._recorder.copy()

    def beside(
        self,
        text: str,
        *,
        wall_seconds: float | None = None,
        separate: bool = False,
        stdin: bytes = b"",
    ) -> Behavior:
        """Run an input in a separate shell of the same machine, in the start directory.

        The files, the network and the host's name are those that the lines left. `separate` and
        `stdin` are those of `Request`. Errors: SandboxError, after which the machine is gone.
        """
        request = Request(
            text,
            cwd=self.cwd,
            wall_seconds=wall_seconds,
            separate=separate,
            stdin=stdin,
        )
        return self._beside(self._sandbox.run_beside, request)

    def apart(self, text: str, *, wall_seconds: float | None = None) -> Behavior:
        """Run an input like `beside`, in the root directory and on the pristine system's files.

        Network, processes and IPC objects are those that the lines left. Programs are those of the
        pristine system, even if a line replaced them. Errors: those of `beside`.
        """
        return self._beside(
            self._sandbox.run_apart, Request(text, cwd="/", wall_seconds=wall_seconds)
        )

    def _beside(self, run: Callable[[Request], Execution], request: Request) -> Behavior:
        with self._machine():
            execution = run(request)
            return self._recorder.beside(execution)

    def kill(self) -> None:
        """Kill the shell and all processes that it started; their changes to the machine stay.

        A separate shell kills them. If a process prevents that, the supervisor kills them, as after
        a timeout. No trap of the shell is run. Errors: SandboxError if the shell survives.
        """
        with self.turn():
            self._kill()

    def _kill(self) -> None:
        if self.ended:
            return
        self._beside(self._sandbox.run_beside, Request(f"kill -9 {SHELL_PID}", cwd="/"))
        endless = Request(_ENDLESS, cwd=self.cwd, wall_seconds=_AT_ONCE)
        with suppress(ShellEndedError):  # the shell was killed, and the sandbox reports that now
            for ask in (self._sandbox.look, lambda: self._run(endless)):
                execution = ask()
                self._recorder.beside(execution)
                self.ended = not execution.stays
                if self.ended:
                    return
        if not self.ended:
            raise SandboxError("the shell cannot be killed, and does not run further lines")

    def settle(self) -> Behavior:
        """Kill the shell and every other process of the machine, and return `whole` afterwards.

        The result includes the changes that the processes made until their end. The shell's own
        state is that after the last line. Errors: SandboxError.
        """
        with self.turn():
            self._kill()
            with self._machine():
                self._recorder.beside(self._sandbox.look())
            return self.whole()

    def restart(self, *, idle_seconds: float) -> None:
        """Start another shell in the machine as it is, after one that ended. Errors: SandboxError.

        The shell starts where the first one did, or in the root directory if that is gone.
        """
        with self._machine():
            try:
                execution = self._sandbox.start_shell(self.cwd, idle_seconds=idle_seconds)
            except StartDirectoryError:
                execution = self._sandbox.start_shell("/", idle_seconds=idle_seconds)
            self.ended = not execution.stays
            self._recorder.restart(execution)

    def start_terminal(self, text: str, *, idle_seconds: float) -> int:
        """Start another shell, which runs an input on a terminal, in the machine as it is.

        The caller closes the descriptor of the terminal's other end. If a shell is waiting for a
        line, it is ended first. Errors: those of `look`.
        """
        with self._machine():
            try:
                if not self.ended:
                    self._sandbox.run_line(Request("exit", cwd=self.cwd), blind=True)
                request = Request(text, cwd=self.cwd)
                terminal = self._sandbox.start_terminal(request, idle_seconds=idle_seconds)
            except ShellEndedError:
                self.ended = True
                raise
            self.ended = False
            return terminal

    def enter(self, text: str, *, wall_seconds: float, idle_seconds: float) -> Entered:
        """Start an input in the machine's root directory, in parallel to the shell.

        The next `look` reports its changes. Errors: those of `ShellSandbox.enter`.
        """
        request = Request(text, cwd="/", wall_seconds=wall_seconds)
        with self.turn():
            self._refuse_gone()
            return self._sandbox.enter(request, idle_seconds=idle_seconds)

    def look(self) -> Behavior:
        """Return the changes since the previous line, without running a line."""
        with self._machine():
            execution = self._sandbox.look()
            self.ended, self.busy = not execution.stays, execution.busy
            return self._recorder.behavior(execution)

    def whole(self) -> Behavior:
        """Return the joint behavior of all lines, with the last one's output and exit code."""
        with self._calls.lock:
            return self._recorder.whole()

    @contextmanager
    def turn(self, *, closed: bool = False) -> Iterator[None]:
        """Hold the lock, so that several calls run without calls of other threads in between.

        An error from outside the package, such as KeyboardInterrupt, ends the shell, because some
        of its changes may be unknown. Errors: ShellEndedError after `close`, unless the calls need
        no machine (`closed`).
        """
        with self._calls.lock:
            if self.given_back and not closed:
                raise ShellEndedError("the shell was closed", hint="open another shell")
            try:
                yield
            except ShioenvError:
                raise
            except BaseException:
                self.ended = self.gone = True
                self.interrupt()
                raise

    @contextmanager
    def _machine(self) -> Iterator[None]:
        """Hold the lock for calls that leave the machine in an unknown state if they fail."""
        with self.turn():
            self._refuse_gone()
            try:
                yield
            except SandboxError:
                self.ended = self.gone = True
                raise

    def _refuse_gone(self) -> None:
        if self.gone:  # otherwise the sandbox would open a new pristine machine
            raise SandboxError("the shell's machine has ended", hint="open another shell")

    def _run(self, request: Request, *, blind: bool = False, last: bool = False) -> Execution:
        if self.gone:
            raise ShellEndedError("the shell ended with its machine", hint="open another shell")
        try:
            execution = self._sandbox.run_line(request, blind=blind, last=last)
        except (SandboxError, ShellEndedError) as error:
            self.ended = True
            self.gone = self.gone or isinstance(error, SandboxError)
            raise
        self.ended = not execution.stays
        self.seconds = execution.ended - execution.started
        return execution

    @property
    def newest(self) -> Execution | None:
        """The newest line's execution; None before the first line."""
        return self._recorder.newest

    @property
    def given_back(self) -> bool:
        """Whether `close` was called."""
        return self._give_back is None

    def interrupt(self) -> None:
        """End the machine at once, from any thread; a waiting call raises SandboxError."""
        if not self.given_back:  # afterwards another shell may use the machine
            self._sandbox.interrupt()

    def close_idle(self) -> bool:
        """Close the shell unless another thread's call is running; return whether it was closed."""
        if not self._calls.lock.acquire(blocking=False):
            return False
        try:
            self.close()
        finally:
            self._calls.lock.release()
        return True

    def close(self) -> None:
        """End the shell and all processes that it left; closing twice does nothing.

        A call of another thread is interrupted, and raises SandboxError.
        """
        self.ended = True
        give_back, self._give_back = self._give_back, None
        if give_back is not None:
            with self._calls.last(self._sandbox.interrupt):
                with suppress(SandboxError):  # the next shell opens a new machine
                    self._sandbox.end_shell()
                give_back(self._sandbox)
