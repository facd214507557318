"""A resident shell: it stays in a machine, and can be forked."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import RLock
from typing import NamedTuple, overload

from shioenv.behavior.line_behaviors import Lines
from shioenv.behavior.observe import SandboxRunner, open_sandbox
from shioenv.domain.behavior import Behavior
from shioenv.domain.patch import ContextPatch
from shioenv.domain.runner import State
from shioenv.errors import ForkError
from shioenv.live.model_shell import RepeatedShell
from shioenv.live.shell import IDLE_SECONDS, ended, nothing
from shioenv.sandbox.base import Closing, Entered, Limits
from shioenv.system.store import System
from shioenv.text import short_repr


class KeptLine(NamedTuple):
    """A line that was run, with a digest of its output and exit status."""

    line: str
    did: str
    timeout: float | None


@dataclass(frozen=True, slots=True, eq=False)
class ShellMark:
    """A kept state of a shell (`ResidentShell.mark`)."""

    shell: ResidentShell
    node: int
    state: State
    lines: tuple[KeptLine, ...]


class ResidentShell(Closing):
    """A shell that stays in a machine, so that its processes persist between lines.

    Time continues from the declared instant. A background effect is attributed to the line during
    which it happens. A line waits for the processes that it started, at most for
    `Limits.background_seconds`. Threads may share a shell, which takes their lines one by one.
    """

    def __init__(
        self,
        runner: SandboxRunner,
        cwd: str,
        *,
        idle_seconds: float = IDLE_SECONDS,
        close: Callable[[], None] | None = None,
        lines: Lines | None = None,
    ) -> None:
        """Start the shell on a machine of the runner, or continue with started `lines`.

        `close` is called after the shell is closed.
        """
        self._runner, self._cwd, self._idle_seconds = runner, cwd, idle_seconds
        self._lines: Lines = lines or runner.start_shell(cwd, idle_seconds=idle_seconds)
        self._close = close or nothing
        self._state = runner.state(cwd)
        self._bookkeeping = RLock()  # protects the state; not held while a line runs
        self._waiting: list[tuple[tuple[str, ...], Behavior]] = []  # not in the state yet
        self._typed: list[KeptLine] = []
        self._did: str | None = None  # digest of all changes, if computed since the last line

    def __repr__(self) -> str:
        return short_repr(self, {"cwd": self._cwd, "ended": self.ended})

    @property
    def ended(self) -> bool:
        """See `Shell.ended`."""
        return self._lines.ended

    @property
    def state(self) -> State:
        """See `Shell.state`. The state is computed on first use."""
        with self._bookkeeping:
            while self._waiting:
                lines, behavior = self._waiting[0]
                before = self._state
                after = before.after(lines[-1], behavior)
                self._state = replace(after, history=(*before.history, *lines))
                del self._waiting[0]
            return self._state

    def run(self, line: str, *, timeout: float | None = None) -> Behavior:
        """See `Shell.run`."""
        if self.ended:
            raise ended(line)
        with self._lines.turn():
            self._did = None
            behavior = self._lines.run(line, wall_seconds=timeout)
            self._waiting.append(((line,), behavior))
            self._typed.append(KeptLine(line, _digest(behavior), timeout))
            return behavior

    def beside(self, text: str, *, timeout: float | None = None) -> Behavior:
        """Run an input in a separate shell of the same machine, in the start directory.

        The input finds the files, network and host name as the lines left them, but not the state
        of their shell. Later lines find what the input changed in the machine. A fork does not
        repeat the input. Errors: those of `run`.
        """
        with self._lines.turn():
            self._did = None
            return self._lines.beside(text, wall_seconds=timeout)

    def enter(self, text: str, *, wall_seconds: float, idle_seconds: float) -> Entered:
        """Start an input in parallel with the lines, with a control channel; see `Lines.enter`."""
        return self._lines.enter(text, wall_seconds=wall_seconds, idle_seconds=idle_seconds)

    def look(self) -> Behavior:
        """Return the changes by background and entered processes since the newest line or look.

        Errors: SandboxError.
        """
        with self._lines.turn():
            behavior = self._lines.look()
            with self._bookkeeping:
                before = self.state
                after = before.after("", behavior)
                self._state = replace(after, history=before.history, status=before.status)
            return behavior

    def patch(self) -> ContextPatch:
        """See `Shell.patch`."""
        return self._lines.whole().patch

    @overload
    def fork(self, *, exact: bool = True, seconds: float = math.inf) -> ResidentShell: ...
    @overload
    def fork(
        self, n: int, *, exact: bool = True, seconds: float = math.inf
    ) -> list[ResidentShell]: ...
    def fork(
        self, n: int | None = None, *, exact: bool = True, seconds: float = math.inf
    ) -> ResidentShell | list[ResidentShell]:
        """Return a new shell, or a list of `n` of them, each on a separate machine, in this state.

        The shells are independent from then on. A new shell has this one's memory, files and clock.
        If something else has to be kept, such as a background process, an open descriptor or a
        changed network, the lines are run again. Then each line must behave as before. ForkError
        names the first line that does not, such as `date` or a race. With `exact` False such
        differences are accepted. ForkError is also raised if the lines take more than `seconds`
        together. Errors: those of `run`.
        """
        count = 1 if n is None else n
        forks = self._copied(count) or self._repeated(count, exact, seconds)
        return forks[0] if n is None else forks

    def _copied(self, count: int) -> list[ResidentShell]:
        """Return copies of this shell; an empty list if there can be none."""
        with self._lines.turn(closed=True):
            if self.ended or self._lines.given_back:
                return []
            copies = self._runner.start_copies(self._lines, count, idle_seconds=self._idle_seconds)
            if isinstance(copies, str):
                return []
            with self._bookkeeping:
                state, waiting = self._state, list(self._waiting)
            typed, did = list(self._typed), self._did
        forks = []
        for lines in copies:
            forks.append(
                ResidentShell(self._runner, self._cwd, idle_seconds=self._idle_seconds, lines=lines)
            )
            forks[-1]._state, forks[-1]._waiting = state, list(waiting)
            forks[-1]._typed, forks[-1]._did = list(typed), did
        return forks

    def _repeated(self, count: int, exact: bool, seconds: float) -> list[ResidentShell]:
        """Return shells in which the lines were run again."""
        with self._lines.turn(closed=True):
            typed, whole = list(self._typed), self._whole() if exact else None
        forks: list[ResidentShell] = []
        try:
            for _ in range(count):
                shell = ResidentShell(self._runner, self._cwd, idle_seconds=self._idle_seconds)
                forks.append(shell)
                shell._repeat(typed, whole, seconds)
        except BaseException:
            for shell in forks:
                shell.close()
            raise
        return forks

    def mark(self) -> ShellMark:
        """Keep the shell and the machine's files as they are, for `rollback`.

        A shell has at most 32 marks. ForkError names what cannot be kept, such as a background
        process, an open descriptor or a changed network. Errors: those of `look`.
        """
        with self._lines.turn():
            state = self.state
            marked = self._lines.mark()
            if marked.why is not None:
                raise ForkError(f"the shell cannot be marked: {marked.why}")
            mark = ShellMark(self, marked.node, state, tuple(self._typed))
            if not marked.stays:  # keeping many changed files ended the shell
                self.rollback(mark)
            return mark

    def rollback(self, mark: ShellMark) -> None:
        """Return to a mark of this shell; the lines since then, and their processes, are undone.

        No line is run again, so a shell that ran `date` returns as well. The clock goes on, and the
        network is as on the pristine machine. Errors: ForkError for a mark of another shell.
        SandboxError if the machine cannot return, for example after the end of a declared process;
        the machine is then gone.
        """
        if mark.shell is not self:
            raise ForkError("the mark belongs to another shell", hint="call its mark()")
        with self._lines.turn(), self._bookkeeping:
            self._lines.return_to(mark.node)
            self._state, self._waiting, self._did = mark.state, [], None
            self._typed = list(mark.lines)

    def interrupt(self) -> None:
        """End the machine at once, from any thread; a running line raises SandboxError."""
        self._lines.interrupt()

    def close(self) -> None:
        """See `Shell.close`."""
        self._lines.close()
        close, self._close = self._close, nothing
        close()

    def _repeat(self, lines: list[KeptLine], whole: str | None, seconds: float = math.inf) -> None:
        """Run another shell's lines. If `whole` is given, each must behave as in that shell."""
        behavior = Behavior(0, b"")
        end = time.monotonic() + seconds
        for number, each in enumerate(lines, 1):
            if self.ended:
                raise ForkError(f"the shell ended before line {number}: {each.line!r:.60}")
            run = self._lines.run if number == len(lines) else self._lines.repeat
            allowed = each.timeout or self._runner.limits.wall_seconds
            left = end - time.monotonic()
            if left > 0:
                behavior = run(each.line, wall_seconds=min(allowed, left))
            if time.monotonic() >= end:
                raise ForkError(f"lines 1 to {number} of {len(lines)} took more than {seconds:g} s")
            if whole and _digest(behavior) != each.did:
                raise ForkError(
                    f"line {number} behaved differently in the replay: {each.line!r:.60}",
                    hint="to accept differences, use exact=False",
                )
        self._typed = list(lines)
        if lines:  # the last line's behavior has the changes of all lines
            self._waiting.append((tuple(each.line for each in lines), behavior))
            self._did = _digest(behavior, changes=True)
        if whole and self._whole() != whole:
            raise ForkError(
                "the replayed lines made other changes",
                hint="to accept differences, use exact=False",
            )

    def _whole(self) -> str:
        if self._did is None:
            self._did = _digest(self._lines.whole(), changes=True)
        return self._did


def shell_of(
    runner: SandboxRunner, cwd: str | None = None, *, idle_seconds: float = IDLE_SECONDS
) -> ResidentShell | RepeatedShell:
    """Open a shell on one of a runner's machines, in a start directory (None: the first one).

    The runner can run other shells and inputs at the same time. Some sandboxes cannot keep a shell:
    those in a microVM, or with a new bash for each input. In these, each line runs the lines before
    it again. Errors: those of `SandboxRunner.run`.
    """
    cwd = cwd or runner.system.declaration.start_directory
    if not runner.keeps_shells:
        return RepeatedShell(runner, cwd)
    return ResidentShell(runner, cwd, idle_seconds=idle_seconds)


def open_shell(
    system: str | System | None = None,
    cwd: str | None = None,
    limits: Limits | None = None,
    *,
    idle_seconds: float = IDLE_SECONDS,
) -> ResidentShell:
    """Open a shell on a separate machine, which is discarded when the shell is closed.

    `cwd` is the start directory (None: the system's first one). The `limits` of time and output
    apply to each line. The limits of memory, processes and disk apply to the shell. The shell ends
    after waiting for its next line for `idle_seconds`. Errors: those of `open_sandbox`;
    SandboxError for a sandbox that keeps no shell, such as a microVM.
    """
    runner = open_sandbox(system, limits)
    try:
        start = cwd or runner.system.declaration.start_directory
        return ResidentShell(runner, start, idle_seconds=idle_seconds, close=runner.close)
    except BaseException:
        runner.close()
        raise


def _digest(behavior: Behavior, *, changes: bool = False) -> str:
    """Return a digest of a behavior's output and exit status, or of its `changes`."""
    parts: list[object] = [behavior.exit_code, behavior.timed_out, behavior.died_by_signal]
    if changes:
        parts = [behavior.patch.operations, sorted(behavior.content_digests.items())]
        parts.append(behavior.patch_digest)
    else:
        parts.append(behavior.output.hex())
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
