"""A pristine system that answers inputs with behaviors: what `shioenv.open_sandbox` returns."""

from __future__ import annotations

from functools import cached_property
from types import TracebackType
from typing import Self

from shioenv.behavior.capture import Recorder
from shioenv.domain.behavior import Behavior
from shioenv.errors import SandboxError
from shioenv.sandbox.base import Limits, Request
from shioenv.sandbox.default import default_sandbox
from shioenv.system.store import System, find_system


class Observer:
    """Runs inputs on a system, each from the same pristine state, and records what they did.

    One sandbox with the recorders of its start directories. Use it as a context manager, from one
    thread at a time.
    """

    def __init__(self, system: System, limits: Limits | None = None) -> None:
        self.system = system
        self.seconds = 0.0
        """How long the inputs run so far took by themselves, their last processes included."""
        self.waited = False
        """Whether the newest run ran out of time in its sleep (`Execution.waited`)."""
        self._sandbox = default_sandbox(system, limits)
        self._users = {number: name for name, number in reversed([*system.users.items()])}
        self._groups = {number: name for name, number in reversed([*system.groups.items()])}
        self._recorders: dict[str, Recorder] = {}

    @property
    def limits(self) -> Limits:
        """What every run is bound by."""
        return self._sandbox.limits

    def run(
        self,
        shell_input: str,
        *,
        cwd: str | None = None,
        separate: bool = False,
        tty: bool = False,
        wall_seconds: float | None = None,
    ) -> Behavior:
        """The behavior of a fresh `bash --norc --noprofile -c` of this input in `cwd`.

        `cwd` is an absolute directory of the system (None: its first start directory); `separate`
        runs with two output channels, which fills `stdout` and `stderr` and loses the order between
        them; `tty` runs on a pseudo-terminal of 80 columns and 24 rows, as people see it (lines end
        in CR LF, programs use columns and colours); `wall_seconds` stands for the limit's in this
        run. Errors: InputError, StartDirectoryError, SandboxError (the run may be repeated).
        """
        start = cwd or self.system.declaration.start_directory
        recorder = self._recorders.get(start) or self._recorder(start)
        request = Request(
            shell_input, cwd=start, separate=separate, tty=tty, wall_seconds=wall_seconds
        )
        execution = self._sandbox.run(request)
        self.seconds += execution.ended - execution.started
        self.waited = execution.waited
        return recorder.behavior(execution)

    def close(self) -> None:
        """Ends the sandbox; closing twice does nothing."""
        self._sandbox.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @cached_property
    def _network(self) -> bytes:
        """Read until it is the same twice: every later patch of the network rests on it."""
        known = self._sandbox.network()
        for _ in range(5):
            before, known = known, self._sandbox.network()
            if known == before:
                return known
        raise SandboxError("the pristine network is never the same twice")

    def _recorder(self, start: str) -> Recorder:
        recorder = self._recorders[start] = Recorder(
            start=start,
            baseline=self._sandbox.run(Request("", cwd=start)).shell,
            users=self._users,
            groups=self._groups,
            instant=self.system.declaration.instant.timestamp(),
            network=lambda: self._network,
        )
        return recorder


def open_sandbox(system: str | System | None = None, limits: Limits | None = None) -> Observer:
    """An open sandbox of a built system (None: the default one), ready to run inputs.

    Errors: UnknownSystemError, SystemNotBuiltError and SystemCorruptError with what to do,
    UsageError for what names no system, HostError (exit status 3, with the fix) where this host
    forbids what isolation needs.
    """
    found = system if isinstance(system, System) else find_system(system)
    try:
        return Observer(found, limits)
    except SandboxError:
        found.check()
        raise
