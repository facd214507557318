"""Jobs, which apply one function to many tasks, and the interface of executors."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable, Iterator, Set
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, Self, TypeAlias, TypeVar

from shioenv.behavior.observe import open_sandbox
from shioenv.domain.runner import Installed
from shioenv.errors import SystemMismatchError, UsageError
from shioenv.execution.lanes import Lane
from shioenv.recording.execution_cache import ExecutionCache
from shioenv.sandbox.backends import kernel_of, layer_of
from shioenv.sandbox.base import LIMITS, MACHINES, Limits
from shioenv.system.store import find_system

T = TypeVar("T")
A = TypeVar("A")

WORKER_BYTES = 64 << 20
"""Minimum memory of a worker in bytes: 40 MiB (measured) for itself, and the rest for
executions."""

STARTING = 2 * len(os.sched_getaffinity(0))
"""Worker processes that may start at the same time (our choice). A start uses most of a processor
for a second, and the first workers should already work while others start."""

Tell: TypeAlias = Callable[[str], None]

Opener: TypeAlias = Callable[[str, Limits], Installed]
"""A function that opens a sandbox, given a system's name or file (as for `open_sandbox`) and
limits."""


@dataclass(frozen=True, slots=True)
class NumberedJob(Generic[T, A]):
    """A function to apply to many numbered tasks, and the sandboxes that it uses."""

    do: Callable[[Lane, tuple[int, T]], A]
    """Called with a sandbox and a task, in other processes. So it must be importable or a picklable
    value. `do` may be called several times for a task; only one answer is used."""
    system: str = ""
    """The name or file of the system of the sandboxes; "" if nothing is executed."""
    limits: Limits = LIMITS
    digest: str | None = None
    """The required digest of the system; None for any."""
    lanes: int = 1
    """The maximum number of sandboxes per process. With several, an input that waits does not delay
    others, but measured run times are less exact."""
    what: str = "task"
    """The noun for a task in messages about failures, which also show the task's `str`."""
    made: str = "the dataset"
    """The noun in messages for the object that was made with the system of this digest."""

    def opened(self, opener: Opener) -> Installed:
        """Open a sandbox for this job. Errors: SystemMismatchError for another digest."""
        sandbox = opener(self.system, self.limits)
        if self.digest not in (None, sandbox.system.digest):
            raise SystemMismatchError(
                f"{self.made} was made with another build of the system {self.system}: digest "
                f"{self.digest}, here {sandbox.system.digest}",
                hint=f"make {self.made} again with this system, or copy the original system to "
                "this host: docs/how-to/cluster.md",
            )
        return sandbox

    def cache(self, size: int) -> ExecutionCache | None:
        """Open the cache of executions that processes share through a file of `size` bytes.

        Return None if `size` is 0, or if the system's digest is not known.
        """
        if not size or self.digest is None:
            return None
        return ExecutionCache(self.digest, self.limits, max_bytes=size)


class Executor(Protocol):
    """Runs jobs. A context manager that leaves no process behind and can be entered again."""

    retried: int
    """The number of retries of tasks, after a sandbox broke or a worker died."""
    restarts: int
    """The number of replaced workers."""

    @property
    def workers(self) -> int:
        """The number of processes that work at once."""
        ...

    @property
    def kernels(self) -> Set[str]:
        """Releases of the kernels under which tasks of the latest job ran."""
        ...

    @property
    def layers(self) -> Set[str]:
        """The lower layers used by tasks of the latest job, as `layer_of` describes them.

        Empty if the job uses no real sandboxes.
        """
        ...

    def check(self, job: NumberedJob[Any, Any]) -> None:
        """Open a first sandbox of the job, if its sandboxes run on this machine.

        Callers do this before they write anything for the job. Errors: those of `map`.
        """
        ...

    def map(
        self, job: NumberedJob[T, A], tasks: Iterable[tuple[int, T]], tell: Tell = ...
    ) -> Iterator[tuple[int, A]]:
        """Yield (number, answer) for each task, in the order in which tasks finish.

        Numbers of tasks are unique. Tasks are drawn from the iterable as capacity permits. The
        answers do not depend on the executor. `tell` is called with notes for the user. Errors:
        GenerationError if a task fails in every attempt. ShioenvErrors of the job pass through.
        """
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *exception: object) -> None: ...


def silent(text: str) -> None:
    """Ignore the note."""


def surroundings_of(
    opener: Opener, system: str, limits: Limits
) -> tuple[frozenset[str], frozenset[str]]:
    """Return the kernels and the lower layers of sandboxes on this machine.

    There are no layers with another `opener` than `open_sandbox`, or without a system.
    """
    if opener is not open_sandbox or not system:
        return frozenset({platform.release()}), frozenset()
    return frozenset({kernel_of(system, limits)}), frozenset({layer_of(limits)})


def processors_of_their_own(
    opener: Opener, system: str, limits: Limits, workers: int
) -> tuple[int, ...]:
    """Return a processor of this machine for each worker, or () if pinning would not be faster.

    Control passes constantly between a worker, its sandbox and the input. By our measurements, this
    is fastest on one processor. Workers are pinned only if there is one for each processor, since
    other processors would be idle. The declared machine must have one processor, so that a run uses
    no more.
    """
    here = sorted(os.sched_getaffinity(0))
    if opener is not open_sandbox or not system or workers != len(here):
        return ()
    declared = find_system(system).declaration.machine.cpu.count
    return tuple(here) if declared == 1 and limits.sandbox not in MACHINES else ()


def processes(workers: int | None) -> int:
    """Return the number of worker processes (None: one per processor). UsageError below 1."""
    if workers is not None and workers < 1:
        raise UsageError(f"invalid number of workers: {workers}", hint="give at least 1")
    return workers or len(os.sched_getaffinity(0))


def processes_here(workers: int | None) -> int:
    """Return the number of worker processes that all run on this machine.

    None: one per processor. Errors: UsageError below 1, or for more than fit into the memory.
    """
    wanted = processes(workers)
    most = max(1, memory_here() // WORKER_BYTES)
    if workers is not None and wanted > most:
        raise UsageError(
            f"{wanted:,} workers need about {wanted * WORKER_BYTES / 2**30:.1f} GiB of memory; "
            f"this host has {memory_here() / 2**30:.1f}",
            hint=f"give at most {most:,}; more than {processes(None)}, one per processor, are "
            "hardly faster",
        )
    return wanted


def memory_here() -> int:
    """Return the bytes of memory of this machine, or of its container if that has a limit."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with suppress(OSError, ValueError):  # without a limit the file holds "max", or is missing
        memory = min(memory, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return memory
