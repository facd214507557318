"""Machines for many clients: pristine ones for single commands, and shells that stay open."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock
from typing import Final, TypeVar

from shioenv.behavior.observe import SandboxRunner, open_sandbox
from shioenv.domain.behavior import Behavior
from shioenv.errors import OverloadedError, SandboxError, ShioenvError, UsageError
from shioenv.live.resident import ResidentShell
from shioenv.sandbox.base import Limits
from shioenv_agents.mcp.workers import Slots, Threads

Answer = TypeVar("Answer")

OF_ONE_CLIENT: Final = 8
"""Maximum open shells of one client (our choice, because a machine takes megabytes)."""

FORK_SECONDS: Final = 30.0
"""Time limit in seconds for all commands of a forked shell together (our choice)."""


@dataclass(slots=True)
class _Attempt:
    """A runner in use by one call. Another thread may abort the call."""

    runner: SandboxRunner | None = None
    cancelled: bool = False

    def end(self) -> None:
        """Abort the call."""
        self.cancelled = True
        if self.runner is not None:
            self.runner.close()


class PristineMachines:
    """Runners that are opened as needed and kept. Each takes one call at a time."""

    def __init__(
        self, threads: Threads, at_once: int, system: str | None, limits: Limits | None
    ) -> None:
        self._threads, self._system, self._limits = threads, system, limits
        self._slots = Slots(at_once, "a machine")
        self._idle: list[SandboxRunner] = []
        self._lock = Lock()
        self._opened: set[SandboxRunner] = set()
        self._closed = False

    async def use(self, action: Callable[[SandboxRunner], Answer]) -> Answer:
        """Call an action with a runner, in a thread. A cancelled call ends its machine.

        Errors: OverloadedError; those of `open_sandbox` and of the action.
        """
        attempt = _Attempt()
        async with self._slots.taken():
            return await self._threads.call(lambda: self._used(action, attempt), attempt.end)

    def make_ready(self) -> None:
        """Open a runner for the first call. If this fails, that call raises the error."""
        with suppress(ShioenvError):
            self._used(lambda runner: runner.run(""), _Attempt())

    def close(self) -> None:
        """End every machine; calls of other threads are interrupted."""
        with self._lock:
            self._closed = True
            opened = list(self._opened)
        for runner in opened:
            runner.close()

    def _used(self, action: Callable[[SandboxRunner], Answer], attempt: _Attempt) -> Answer:
        with self._lock:
            runner = self._idle.pop() if self._idle else None
        attempt.runner = runner = runner or self._open()
        try:
            if attempt.cancelled:
                raise SandboxError("the call was cancelled")
            answer = action(runner)
        except SandboxError:
            runner.close()
            with self._lock:
                self._opened.discard(runner)
            raise
        except BaseException:
            self._give_back(runner)
            raise
        self._give_back(runner)
        return answer

    def _give_back(self, runner: SandboxRunner) -> None:
        with self._lock:
            self._idle.append(runner)

    def _open(self) -> SandboxRunner:
        runner = open_sandbox(self._system, self._limits)
        with self._lock:
            self._opened.add(runner)
            if not self._closed:
                return runner
        runner.close()
        raise SandboxError("the server is stopping")


@dataclass(slots=True)
class OpenShell:
    """A shell of a client."""

    id: str
    owner: str
    cwd: str
    shell: ResidentShell
    turn: Slots = field(default_factory=lambda: Slots(1, "this shell"))
    used: float = field(default_factory=time.monotonic)
    busy: int = 0
    """Calls that use the shell or wait for it."""

    def close(self) -> None:
        """End the shell; a running command is interrupted."""
        with suppress(ShioenvError):
            self.shell.interrupt()
        with suppress(ShioenvError):
            self.shell.close()


class OpenShells:
    """The open shells of all clients, each in a machine. Methods are called in the event loop."""

    def __init__(
        self,
        threads: Threads,
        most: int,
        idle_seconds: float,
        system: str | None,
        limits: Limits | None,
    ) -> None:
        self._threads, self._most, self._idle_seconds = threads, most, idle_seconds
        self._system, self._limits = system, limits
        self._shells: dict[str, OpenShell] = {}
        self._opening: list[str] = []
        self._runner: SandboxRunner | None = None
        self._lock = Lock()
        self._closed = False

    async def open(self, owner: str, cwd: str | None) -> OpenShell:
        """Open a shell in a directory (None: the system's first one).

        Errors: OverloadedError for too many shells; those of `open_sandbox`; StartDirectoryError.
        """

        def make() -> tuple[ResidentShell, str]:
            runner = self._machines()
            start = cwd or runner.system.declaration.start_directory
            runner.context(start)
            return ResidentShell(runner, start, idle_seconds=self._idle_seconds * 2), start

        return await self._added(owner, make)

    async def fork(self, owner: str, name: str) -> OpenShell:
        """Copy a shell. Errors: UsageError, OverloadedError, ForkError, ShellEndedError."""
        original = self._found(owner, name)

        def make() -> tuple[ResidentShell, str]:
            return original.shell.fork(seconds=FORK_SECONDS), original.cwd

        original.busy += 1
        try:
            async with original.turn.taken():
                return await self._added(owner, make)
        finally:
            self._leave(original)

    async def run(
        self, owner: str, name: str, command: str, seconds: float
    ) -> tuple[OpenShell, Behavior]:
        """Run a command in a shell. A cancelled call ends the shell.

        Errors: UsageError for an unknown id; OverloadedError; those of `Shell.run`.
        """
        return await self._used(
            owner, name, lambda shell: shell.run(command, timeout=seconds), ends=True
        )

    async def changes(self, owner: str, name: str) -> tuple[OpenShell, Behavior]:
        """Return a shell, and its changes since it was opened, in the form of a behavior."""
        return await self._used(
            owner, name, lambda shell: Behavior(0, b"", shell.patch()), ends=False
        )

    async def close_one(self, owner: str, name: str) -> None:
        """End a shell. Errors: UsageError for an unknown id."""
        found = self._found(owner, name)
        del self._shells[name]
        await self._threads.call(found.close)

    def close_of(self, owner: str) -> None:
        """End all shells of a client, without waiting."""
        self._end([each for each in self._shells.values() if each.owner == owner])

    def close_idle(self) -> None:
        """End shells that wait for their next command for too long, without waiting."""
        before = time.monotonic() - self._idle_seconds
        self._end([one for one in self._shells.values() if not one.busy and one.used < before])

    def make_ready(self) -> None:
        """Open the machine of the first shell. If this fails, opening it raises the error."""
        with suppress(ShioenvError):
            ResidentShell(self._machines(), self._start()).close()

    def close(self) -> None:
        """End all shells and machines; calls of other threads are interrupted."""
        with self._lock:
            self._closed = True
            runner = self._runner
        if runner is not None:
            runner.close()

    def _start(self) -> str:
        return self._machines().system.declaration.start_directory

    def _machines(self) -> SandboxRunner:
        with self._lock:
            if self._closed:
                raise SandboxError("the server is stopping")
            if self._runner is None:
                self._runner = open_sandbox(self._system, self._limits)
            return self._runner

    def _found(self, owner: str, name: str) -> OpenShell:
        found = self._shells.get(name)
        if found is None or found.owner != owner:
            raise UsageError(
                f"the shell {name!r:.80} is not open",
                hint="open a new one with the action open; idle shells are closed",
            )
        return found

    async def _used(
        self, owner: str, name: str, action: Callable[[ResidentShell], Behavior], *, ends: bool
    ) -> tuple[OpenShell, Behavior]:
        found = self._found(owner, name)
        found.busy += 1
        began = finished = False
        try:
            async with found.turn.taken():
                began = True
                interrupt = found.close if ends else None
                behavior = await self._threads.call(lambda: action(found.shell), interrupt)
                finished = True
                return found, behavior
        finally:
            self._leave(found)
            if ends and began and not finished and found.shell.ended:
                self._shells.pop(name, None)

    def _leave(self, shell: OpenShell) -> None:
        shell.busy -= 1
        shell.used = time.monotonic()

    def _end(self, shells: list[OpenShell]) -> None:
        for each in shells:
            self._shells.pop(each.id, None)
            self._threads.submit(each.close)

    def _make_room(self, owner: str) -> None:
        """Forget ended shells. Errors: OverloadedError if there are too many others."""
        self._end([each for each in self._shells.values() if each.shell.ended and not each.busy])
        owners = [*(each.owner for each in self._shells.values()), *self._opening]
        for most, count in ((OF_ONE_CLIENT, owners.count(owner)), (self._most, len(owners))):
            if count >= most:
                raise OverloadedError(
                    f"{count} shells are open, which is the limit",
                    hint="close one with the action close",
                )

    async def _added(self, owner: str, make: Callable[[], tuple[ResidentShell, str]]) -> OpenShell:
        self._make_room(owner)
        left = False

        def made() -> tuple[ResidentShell, str]:
            shell, cwd = make()
            if left:
                shell.close()
            return shell, cwd

        self._opening.append(owner)
        try:
            shell, cwd = await self._threads.call(made)
        except BaseException:
            left = True
            raise
        finally:
            self._opening.remove(owner)
        opened = OpenShell(secrets.token_urlsafe(16), owner, cwd, shell)
        self._shells[opened.id] = opened
        return opened
