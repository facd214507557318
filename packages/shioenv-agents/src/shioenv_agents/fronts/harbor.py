"""Harbor environments: `harbor run -e shioenv_agents.fronts.harbor:Environment`.

A task runs here if its image is a built system. Its Dockerfile begins with `FROM
shioenv/NAME:DIGEST`, or with a pushed image and `LABEL shioenv.system=NAME:DIGEST`. It may further
contain only `WORKDIR`, and `RUN` with a text for Bash. Neither Docker nor root nor a network is
needed.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities
from harbor.utils.path_filter import filter_paths_by_patterns

from shioenv.errors import TransferError, UsageError
from shioenv.live.machine_thread import Seat
from shioenv.sandbox.base import MEBIBYTE, FileChange, Limits
from shioenv.system.store import System, find_system
from shioenv_agents.fronts.transfer import (
    describe_failure,
    downloading,
    pack,
    put,
    read_command,
    unpack,
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
from shioenv_agents.tasks.harbor.check import ARTIFACTS, EVIDENCE
from shioenv_agents.tasks.harbor.evidence import evidence_of
from shioenv_agents.tasks.harbor.task_folders import HOOK, IMAGE, LABEL, PROOF_SECONDS, SHELL

MEMORY_MB: Final = 2048
"""Default memory in mebibytes."""

STORAGE_MB: Final = 1024
"""Default limit of new or changed files in mebibytes; they are stored in memory."""

TRANSFER_SECONDS: Final = 600.0
"""Time limit for transferring a file or a directory in seconds, as for Harbor's archives."""

IDLE_SECONDS: Final = 86_400.0
"""Seconds until background processes are ended when no command runs."""

_UNFIT: Final = (TransferError, OSError, OverflowError, RecursionError)
"""Exceptions that artifacts can raise while they are copied out."""

_BUILD = r"(?P<name>[^\s:@]+):(?P<digest>[0-9a-f]{12,64})"
_FROM = re.compile(rf"FROM\s+{IMAGE}/{_BUILD}")
_PUSHED = re.compile(r"FROM\s+\S+")
_LABEL = re.compile(rf"LABEL\s+{re.escape(LABEL)}={_BUILD}")
_WORKDIR = re.compile(r"WORKDIR\s+(?P<path>/\S*)")
_RUN = re.compile(r"RUN\s+(?P<words>\[.*\])")


class Environment(BaseEnvironment):
    """A machine for one trial, initially pristine.

    Commands run concurrently, and processes that they leave running continue. There is no network
    except the machine's own. Files and outputs are in memory. The memory and storage that a task
    declares are limits. The number of processors is the system's.

    A task's hook that begins with `HOOK` is answered from outside: every process is ended, and the
    changes are read without programs of the machine. The artifact `EVIDENCE` is created only in
    this way.
    """

    def __init__(self, *args: Any, layer: str | None = None, **kwargs: Any) -> None:
        """Create the environment. `layer` is a directory of this host to copy over the system.

        The judge does not count its files as changes. Errors: UsageError if the image is not a
        built system, or the directory does not exist; those of `find_system`.
        """
        self._layer = None if layer is None else Path(layer)
        self._evidence: dict[str, Any] | None = None
        self._brought: tuple[FileChange, ...] = ()
        super().__init__(*args, **kwargs)

    @staticmethod
    def type() -> str:
        """Return the environment's name in logs."""
        return "shioenv"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        """The capabilities: there is no network, so a task may disable the internet."""
        return EnvironmentCapabilities(disable_internet=True)

    def _validate_definition(self) -> None:
        self._image = image_of(self.environment_dir / "Dockerfile")
        if self._layer is not None and not self._layer.is_dir():
            raise UsageError(f"the layer {self._layer} is not a directory")
        self._system = self._image.system
        self._workdir = self.task_env_config.workdir or self._image.workdir

    # ---- the machine ----

    async def start(self, force_build: bool) -> None:
        """Open the machine in the state of its image, with the layer and Harbor's directories.

        Errors: UsageError if a `RUN` of the Dockerfile fails.
        """
        limits = agent_limits(
            memory_bytes=(self._effective_memory_mb or MEMORY_MB) * MEBIBYTE,
            disk_bytes=(self._effective_storage_mb or STORAGE_MB) * MEBIBYTE,
        )
        self._limits = limits
        self._seat = _IDLE.take(self._system, limits)
        for command in self._image.runs:
            done = await self._run(command, seconds=PROOF_SECONDS)
            if done.exit_code:
                raise UsageError(f"RUN {command.text!r:.80} ended with exit code {done.exit_code}")
        if self._layer is not None:
            await self.upload_dir(self._layer, "/")
        if self._image.runs or self._layer is not None:
            self._brought = (await self._seat.do(EnteredMachine.changes)).changes
        await self.ensure_dirs(["/logs/agent", "/logs/verifier", ARTIFACTS])
        await self._upload_environment_dir_after_start()

    async def stop(self, delete: bool) -> None:
        """End everything in the machine, and renew it for the next trial."""
        await _IDLE.give_back(self._seat, self._system, self._limits)

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Run a command concurrently with others; processes that it leaves running continue.

        The first `OUTPUT` bytes of each output are kept. Errors: RuntimeError at the time limit, as
        in Harbor's environments; the command's processes are then ended.
        """
        named = self._resolve_user(user)
        done = await self._run(
            Command(
                text=command,
                cwd=cwd or self._workdir,
                env=self._merge_env(env) or {},
                user=None if named is None else str(named),
            ),
            seconds=timeout_sec,
        )
        return ExecResult(
            stdout=done.output.decode("utf-8", "replace"),
            stderr=done.errors.decode("utf-8", "replace"),
            return_code=done.exit_code,
        )

    async def _run(
        self,
        command: Command,
        *,
        given: IO[bytes] | None = None,
        into: IO[bytes] | None = None,
        most: int = OUTPUT,
        seconds: float | None = None,
    ) -> Finished:
        """Run a command, and return how it ended. Errors: RuntimeError at the time limit."""
        try:
            return await finished(
                self._seat, command, given=given, into=into, most=most, seconds=seconds
            )
        except CommandTimeoutError as error:
            raise RuntimeError(str(error)) from None

    # ---- files ----

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        """Write a file of this host, and the directories above it. Errors: TransferError."""
        source = Path(source_path)
        text = write_command(target_path, source.stat().st_mode & 0o777)
        with source.open("rb") as file:
            await self._transfer(text, target_path, given=file)

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        """Write the contents of a directory of this host, owned by root. Errors: TransferError."""
        target = shlex.quote(target_dir)
        text = f"mkdir -p -- {target} && tar -x -f - -C {target}"
        with tempfile.TemporaryFile() as archive:
            await asyncio.to_thread(pack, Path(source_dir), archive)
            archive.seek(0)
            await self._transfer(text, target_dir, given=archive)

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        """Copy a regular file of the machine. Errors: TransferError, also for any other file."""
        if os.path.normpath(source_path) == f"{ARTIFACTS}/{EVIDENCE}":
            self._tell(Path(target_path).parent, Path(target_path).name)
            return
        with downloading(Path(target_path)) as file:
            await self._transfer(read_command(source_path), source_path, into=file)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        """Copy the regular files of a directory of the machine. Errors: TransferError.

        Links, devices, pipes and sockets are not copied. Among the artifacts, `EVIDENCE` is always
        written from what was read outside the machine.
        """
        await self._download(source_dir, Path(target_dir), [])

    async def download_dir_with_exclusions(
        self, *, source_dir: str, target_dir: Path | str, exclude: list[str]
    ) -> None:
        """Copy a directory's regular files except those that match patterns of tar."""
        await self._download(source_dir, Path(target_dir), exclude)

    async def download_dir_filtered(
        self,
        *,
        source_dir: str,
        target_dir: Path | str,
        include: Sequence[str] | None = None,
        exclude: Sequence[str] | None = None,
        protect: Sequence[str] | None = None,
    ) -> None:
        """Copy a directory's regular files whose paths match, and the protected ones."""
        target = Path(target_dir)
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as whole:
            await self._download(source_dir, Path(whole), [])
            found = [path for path in Path(whole).rglob("*") if path.is_file()]
            names = {path.relative_to(whole).as_posix(): path for path in found}
            chosen = filter_paths_by_patterns([*names], include=include, exclude=exclude)
            for name in {*chosen, *(set(protect or ()) & set(names))}:
                try:
                    (target / name).parent.mkdir(parents=True, exist_ok=True)
                    (target / name).write_bytes(names[name].read_bytes())
                except OSError as error:  # for example, the path is longer than in `whole`
                    self._leave_out(source_dir, error)

    async def is_dir(self, path: str, user: str | int | None = None) -> bool:
        """Whether a path is a directory; always true for the artifacts if evidence was taken."""
        if self._evidence is not None and _is_artifacts(path):
            return True
        return await super().is_dir(path, user=user)

    async def _download(self, source: str, target: Path, excluded: Sequence[str]) -> None:
        target.mkdir(parents=True, exist_ok=True)
        patterns = " ".join(f"--exclude={shlex.quote(pattern)}" for pattern in excluded)
        how = f"--format=gnu --hard-dereference {patterns} -C {shlex.quote(source)}"
        text = f"tar -c {how} -f - .; [ $? -le 1 ]"  # 1: a file changed meanwhile
        try:
            limits = self._limits
            with tempfile.TemporaryFile() as archive:
                await self._transfer(text, source, into=archive)
                archive.seek(0)
                left_out = await asyncio.to_thread(
                    unpack, archive, target, limits.disk_inodes, limits.disk_bytes
                )
            if left_out:
                self.logger.debug(f"skipped {left_out} entries of {source} that are not files")
        except _UNFIT as error:
            self._leave_out(source, error)
        within = os.path.relpath(ARTIFACTS, f"/{source}")
        if not within.startswith(".."):
            self._tell(target, f"{within}/{EVIDENCE}")

    def _leave_out(self, source: str, error: Exception) -> None:
        """Skip artifacts after an error if evidence was taken; otherwise raise the error.

        The agent controls names and contents of artifacts, and must not be able to hide evidence.
        """
        if self._evidence is None or not _is_artifacts(source):
            raise error
        self.logger.warning(f"artifacts are skipped: {error}")

    def _tell(self, target: Path, name: str) -> None:
        """Write the evidence; if none was taken, remove any such file."""
        put(None if self._evidence is None else json.dumps(self._evidence), target, name)

    async def _transfer(
        self,
        text: str,
        path: str,
        *,
        given: IO[bytes] | None = None,
        into: IO[bytes] | None = None,
    ) -> None:
        """Run a command, as root, that transfers a file or directory."""
        most = self._limits.disk_bytes
        command = Command(text=text, fed=given is not None)
        try:
            done = await self._run(
                command, given=given, into=into, most=most, seconds=TRANSFER_SECONDS
            )
        except RuntimeError as error:
            raise TransferError(f"{path}: {error}") from None
        if not done.whole:
            raise TransferError(f"{path} is larger than the machine's limit of {most:,} bytes")
        if done.exit_code:
            raise TransferError(f"{path}: {describe_failure(done)}")

    # ---- observation from outside ----

    async def service_exec(
        self,
        command: str,
        *,
        service: str | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Run a command, or answer the hook that collects evidence."""
        if self.is_main_service(service) and command.startswith(HOOK):
            execution = await self._seat.do(EnteredMachine.changes)
            self._evidence = evidence_of(execution, self._system, self._brought)
            return ExecResult(stdout="", stderr="", return_code=0)
        return await super().service_exec(
            command, service=service, cwd=cwd, env=env, timeout_sec=timeout_sec, user=user
        )


class _Idle:
    """Idle machines for the next trials, because renewing one is faster than opening one."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, Limits], list[Seat[EnteredMachine]]] = {}

    def take(self, system: System, limits: Limits) -> Seat[EnteredMachine]:
        """Return the handle of an unused machine."""
        if waiting := self._waiting.get((system.digest, limits)):
            return waiting.pop()
        return Seat(lambda: EnteredMachine(system, limits, idle_seconds=IDLE_SECONDS))

    async def give_back(self, seat: Seat[EnteredMachine], system: System, limits: Limits) -> None:
        """Renew a machine after its trial and keep it, or close it if that fails."""
        try:
            await seat.do(EnteredMachine.renew)
        except BaseException:
            await seat.close()
            raise
        self._waiting.setdefault((system.digest, limits), []).append(seat)


_IDLE: Final = _Idle()


@dataclass(frozen=True, slots=True)
class DockerImage:
    """The system and the commands in a Dockerfile."""

    system: System
    workdir: str
    runs: tuple[Command, ...]
    """Commands to run before the trial, in order."""


def image_of(dockerfile: Path) -> DockerImage:
    """Parse a Dockerfile.

    Errors: UsageError for unsupported instructions, or another build of the system; those of
    `find_system`.
    """
    try:
        lines = dockerfile.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{dockerfile} cannot be read: {error}") from None
    lines = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    image = _FROM.fullmatch(lines[0]) if lines else None
    if image is None and len(lines) > 1 and _PUSHED.fullmatch(lines[0]):
        image = _LABEL.fullmatch(lines.pop(1))
    if image is None:
        raise UsageError(
            f"{dockerfile} does not name a ShIOEnv system",
            hint=f"begin it with FROM {IMAGE}/SYSTEM:DIGEST, or put LABEL {LABEL}=SYSTEM:DIGEST on "
            "the second line, as `shioenv tasks export` does",
        )
    workdir, runs = "/", []
    for line in lines[1:]:
        if found := _WORKDIR.fullmatch(line):
            workdir = found["path"]
        elif (text := _text_of_run(line)) is not None:
            runs.append(Command(text=text, cwd=workdir))
        else:
            raise UsageError(
                f"{dockerfile} has an unsupported instruction: {line!r:.80}",
                hint=f"use only WORKDIR and RUN {json.dumps([*SHELL, 'TEXT'])} only",
            )
    system = find_system(image["name"])
    if not system.digest.startswith(image["digest"]):
        raise UsageError(
            f"{dockerfile} needs the build {image['digest']:.12}… of {image['name']}, but this is "
            f"the build {system.digest:.12}…",
            hint="export tasks of this build",
        )
    return DockerImage(system, workdir, tuple(runs))


def _text_of_run(line: str) -> str | None:
    """Return the text that a line of a Dockerfile runs in Bash; None for any other line."""
    found = _RUN.fullmatch(line)
    try:
        words = json.loads(found["words"]) if found else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(words, list) or len(words) != len(SHELL) + 1 or [*SHELL] != words[:-1]:
        return None
    return words[-1] if isinstance(words[-1], str) else None


def _is_artifacts(path: str) -> bool:
    return os.path.normpath(path) == ARTIFACTS
