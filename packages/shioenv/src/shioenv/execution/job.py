"""A job, which says what is done with many tasks, and what every executor promises."""

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
from shioenv.recording.cache import ExecutionCache
from shioenv.sandbox.backends import kernel_of, layer_of
from shioenv.sandbox.base import LIMITS, MACHINES, Limits
from shioenv.system.store import find_system

T = TypeVar("T")
A = TypeVar("A")

WORKER_BYTES = 64 << 20
"""Memory of a worker at least: 40 MiB of its own (measured), and memory for what it executes."""

STARTING = 2 * len(os.sched_getaffinity(0))
"""Worker processes that may start at the same time (ours). A start takes a processor most of a
second; the first worker is to be at work while the others start."""

Tell: TypeAlias = Callable[[str], None]

Opener: TypeAlias = Callable[[str, Limits], Installed]
"""Opens a sandbox, given a system's name or file (as for `open_sandbox`) and the limits."""


@dataclass(frozen=True, slots=True)
class NumberedJob(Generic[T, A]):
    """What is done with each of many numbered tasks, and where."""

    do: Callable[[Lane, tuple[int, T]], A]
    """Called with a sandbox and a task. Other processes call `do`, so it must be importable or a
    value that can be pickled. `do` may be called several times for a task; one answer counts."""
    system: str = ""
    """The name or file of the system whose sandboxes are used; "" where nothing is executed."""
    limits: Limits = LIMITS
    digest: str | None = None
    """The digest that the system must have; None for any."""
    lanes: int = 1
    """Sandboxes of a process at most. With several, an input that waits holds no other input up,
    and the duration of a run says little."""
    what: str = "task"
    """The word for a task in messages about failures, which also show the task's `str`."""
    made: str = "the dataset"
    """The word in messages for the thing that was made on the system with that digest."""

    def opened(self, opener: Opener) -> Installed:
        """A sandbox for this job. SystemMismatchError where its system has another digest."""
        sandbox = opener(self.system, self.limits)
        if self.digest not in (None, sandbox.system.digest):
            raise SystemMismatchError(
                f"{self.made} was made on another build of the system {self.system}, or the system "
                f"was built anew meanwhile: its digest is {sandbox.system.digest} here, and was "
                f"{self.digest}",
                hint=f"make {self.made} again on this system, or copy the system here from where "
                "it was built: docs/how-to/cluster.md",
            )
        return sandbox

    def cache(self, size: int) -> ExecutionCache | None:
        """The executions shared with other processes through a file of `size` bytes.

        None where `size` is 0, or where the system's digest is not known.
        """
        if not size or self.digest is None:
            return None
        return ExecutionCache(self.digest, self.limits, max_bytes=size)


class Executor(Protocol):
    """Does jobs. A context manager that leaves no process behind and can be entered again."""

    retried: int
    """Tasks that were begun again because a sandbox broke or a worker died."""
    restarts: int
    """Workers that were replaced."""

    @property
    def workers(self) -> int:
        """Processes that work at once."""
        ...

    @property
    def kernels(self) -> Set[str]:
        """Releases of the kernels under which tasks of the newest job were done."""
        ...

    @property
    def layers(self) -> Set[str]:
        """The lower layers on which tasks of the newest job were done, as `layer_of` names them.

        Empty where something stands in for sandboxes.
        """
        ...

    def check(self, job: NumberedJob[Any, Any]) -> None:
        """Open a first sandbox of the job, where sandboxes are known to open on this machine.

        Callers check before they write anything for the job. Errors: those of `map`.
        """
        ...

    def map(
        self, job: NumberedJob[T, A], tasks: Iterable[tuple[int, T]], tell: Tell = ...
    ) -> Iterator[tuple[int, A]]:
        """One answer for each task, with the task's number, in the order they are finished.

        Tasks have different numbers, and are drawn as there is room for them. The answers do not
        depend on the executor. `tell` is called with notes for a person. Errors: GenerationError
        where a task fails in every attempt. ShioenvErrors of the job pass through.
        """
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *exception: object) -> None: ...


def silent(text: str) -> None:
    """Tell nobody."""


def surroundings_of(
    opener: Opener, system: str, limits: Limits
) -> tuple[frozenset[str], frozenset[str]]:
    """The kernels and the lower layers of sandboxes on this machine.

    There are no layers where something stands in for sandboxes (another `opener`, or no system).
    """
    if opener is not open_sandbox or not system:
        return frozenset({platform.release()}), frozenset()
    return frozenset({kernel_of(system, limits)}), frozenset({layer_of(limits)})


def processors_of_their_own(
    opener: Opener, system: str, limits: Limits, workers: int
) -> tuple[int, ...]:
    """A processor of this machine for each worker; none where workers had better go anywhere.

    A worker, its sandbox and the input hand over to each other all the time. That costs least on
    one processor (ours). There has to be a worker for each processor, or some would be idle. A run
    must use no more than one, as the declared machine says.
    """
    here = sorted(os.sched_getaffinity(0))
    if opener is not open_sandbox or not system or workers != len(here):
        return ()
    declared = find_system(system).declaration.machine.cpu.count
    return tuple(here) if declared == 1 and limits.sandbox not in MACHINES else ()


def processes(workers: int | None) -> int:
    """The number of worker processes; None: one a processor. Errors: UsageError below 1."""
    if workers is not None and workers < 1:
        raise UsageError(f"nothing can be done by {workers} workers", hint="at least 1")
    return workers or len(os.sched_getaffinity(0))


def processes_here(workers: int | None) -> int:
    """The number of worker processes where all of them work on this machine.

    None: one a processor. Errors: UsageError below 1, or where the memory does not hold so many.
    """
    wanted = processes(workers)
    most = max(1, memory_here() // WORKER_BYTES)
    if workers is not None and wanted > most:
        raise UsageError(
            f"{wanted:,} workers take some {wanted * WORKER_BYTES / 2**30:.1f} GiB of memory, and "
            f"there are {memory_here() / 2**30:.1f}",
            hint=f"at most {most:,} here; more than one a processor, of which there are "
            f"{processes(None)}, is hardly faster",
        )
    return wanted


def memory_here() -> int:
    """Bytes of memory of this machine, or fewer where a container allows only a part of them."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with suppress(OSError, ValueError):  # without a limit the file holds "max", or is missing
        memory = min(memory, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return memory
