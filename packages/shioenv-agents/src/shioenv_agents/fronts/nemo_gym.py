"""A sandbox provider of NeMo Gym: the provider `shioenv`, which its registry finds by entry point.

    async with AsyncSandbox({"shioenv": {}}, SandboxSpec()) as sandbox: ...

The image is the name of a built system (default: the default system).
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from nemo_gym.sandbox.providers.base import (
    SandboxCreateError,
    SandboxExecResult,
    SandboxHandle,
    SandboxSpec,
    SandboxStatus,
)

from shioenv.errors import SandboxError, ShioenvError, TransferError
from shioenv.live.machine_thread import Seat
from shioenv.sandbox.base import GIBIBYTE, LARGEST, MEBIBYTE, Limits
from shioenv.system.store import System, find_system
from shioenv_agents.fronts.transfer import (
    describe_failure,
    downloading,
    read_command,
    write_command,
)
from shioenv_agents.tasks.entered_machine import (
    OUTPUT,
    Command,
    CommandTimeoutError,
    EnteredMachine,
    Finished,
    agent_limits,
    finished,
)

TRANSFER_SECONDS: Final = 600.0
"""Time limit for transferring a file in seconds (our choice)."""

NO_STATUS: Final = -1
"""The exit code of a command that has none; `error_type` is the reason."""


@dataclass(slots=True)
class _Machine:
    """A sandbox's machine, with the start directory and variables of its commands."""

    seat: Seat[EnteredMachine]
    workdir: str
    env: Mapping[str, str]
    status: SandboxStatus = SandboxStatus.RUNNING


class Provider:
    """Machines of this host as sandboxes of NeMo Gym.

    Commands run concurrently, and processes that they leave running continue. A machine has no
    network. Requested memory and disk are limits; processors and GPUs cannot be requested. `ttl_s`
    is the time for which a machine without calls keeps its processes.
    """

    name = "shioenv"

    def __init__(self, *, memory_mib: int = 2048, disk_gib: int = 1) -> None:
        """Set the limits of sandboxes that request none."""
        self._memory_mib, self._disk_gib = memory_mib, disk_gib
        self._open: set[Seat[EnteredMachine]] = set()

    async def create(self, spec: SandboxSpec) -> SandboxHandle:
        """Open a machine. Errors: SandboxCreateError."""
        wanted = spec.resources
        assert not isinstance(wanted, Mapping)  # its constructor converts mappings
        refused = {"gpu": wanted.gpu, "entrypoint": spec.entrypoint, **spec.provider_options}
        if named := [name for name, value in refused.items() if value]:
            raise SandboxCreateError(f"machines of shioenv do not support {', '.join(named)}")
        try:
            system = await asyncio.to_thread(find_system, spec.image)
            limits = agent_limits(
                memory_bytes=(wanted.memory_mib or self._memory_mib) * MEBIBYTE,
                disk_bytes=(wanted.disk_gib or self._disk_gib) * GIBIBYTE,
            )
            machine = await self._opened(system, limits, spec)
        except ShioenvError as error:
            raise SandboxCreateError(error.message) from error
        return SandboxHandle(secrets.token_hex(16), self.name, machine)

    async def _opened(self, system: System, limits: Limits, spec: SandboxSpec) -> _Machine:
        idle = spec.ttl_s or LARGEST["wall_seconds"]
        seat = Seat(lambda: EnteredMachine(system, limits, idle_seconds=idle))
        workdir = spec.workdir or system.declaration.start_directory
        try:
            done = await finished(seat, Command(program=("/bin/true",), cwd=workdir))
            if done.exit_code:
                raise SandboxError(f"cannot start in {workdir!r}")
        except BaseException:
            await seat.close()
            raise
        self._open.add(seat)
        return _Machine(seat, workdir, dict(spec.env))

    async def exec(
        self,
        handle: SandboxHandle,
        command: str,
        *,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_s: float | None = None,
        user: str | int | None = None,
    ) -> SandboxExecResult:
        """Run a command. The first `OUTPUT` bytes of each output are kept.

        At its timeout the command is ended, and the result has the `error_type` "timeout"; if the
        machine fails, it is "sandbox".
        """
        machine: _Machine = handle.raw
        given = Command(
            text=command,
            cwd=cwd or machine.workdir,
            env={**machine.env, **(env or {})},
            user=None if user is None else str(user),
        )
        try:
            done = await finished(machine.seat, given, seconds=timeout_s)
        except CommandTimeoutError as error:
            output, errors = error.output, b"%s%s\n" % (error.errors, str(error).encode())
            return _result(output, errors, NO_STATUS, "timeout")
        except ShioenvError as error:
            return _result(b"", error.message.encode(), NO_STATUS, "sandbox")
        return _result(done.output, done.errors, done.exit_code)

    async def upload_file(self, handle: SandboxHandle, source_path: Path, target_path: str) -> None:
        """Write a file of this host, and the directories above it. Errors: TransferError."""
        text = write_command(target_path, source_path.stat().st_mode & 0o777)
        with source_path.open("rb") as file:
            await _transfer(handle, Command(text=text, fed=True), given=file)

    async def download_file(
        self, handle: SandboxHandle, source_path: str, target_path: Path
    ) -> None:
        """Copy a regular file of the machine. Errors: TransferError, also for any other file."""
        with downloading(target_path) as file:
            await _transfer(handle, Command(text=read_command(source_path)), into=file)

    async def status(self, handle: SandboxHandle) -> SandboxStatus:
        """Return whether the machine is open."""
        machine: _Machine = handle.raw
        return machine.status

    async def close(self, handle: SandboxHandle) -> None:
        """End the machine and everything in it."""
        machine: _Machine = handle.raw
        machine.status = SandboxStatus.STOPPED
        self._open.discard(machine.seat)
        await machine.seat.close()

    async def aclose(self) -> None:
        """End all machines."""
        seats, self._open = self._open, set()
        await asyncio.gather(*(seat.close() for seat in seats))


def _result(
    output: bytes, errors: bytes, code: int, error_type: str | None = None
) -> SandboxExecResult:
    texts = [each.decode("utf-8", "replace") for each in (output, errors)]
    return SandboxExecResult(*texts, return_code=code, error_type=error_type)


async def _transfer(
    handle: SandboxHandle,
    command: Command,
    *,
    given: IO[bytes] | None = None,
    into: IO[bytes] | None = None,
) -> None:
    """Run a command, as root, that transfers a file. Errors: TransferError, SandboxError."""
    machine: _Machine = handle.raw
    most = GIBIBYTE if into else OUTPUT
    try:
        done: Finished = await finished(
            machine.seat, command, given=given, into=into, most=most, seconds=TRANSFER_SECONDS
        )
    except CommandTimeoutError as error:
        raise TransferError(str(error)) from None
    if not done.whole:
        raise TransferError(f"the file is larger than {most:,} bytes")
    if done.exit_code:
        raise TransferError(describe_failure(done))
