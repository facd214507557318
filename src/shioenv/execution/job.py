"""What is done with many tasks, and by whom: a job, and what every executor promises."""

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
from shioenv.recording.bounds import LIMITS
from shioenv.recording.cache import ExecutionCache
from shioenv.sandbox.base import Limits
from shioenv.sandbox.default import kernel_of, layer_of

T = TypeVar("T")
A = TypeVar("A")

WORKER_BYTES = 64 << 20
"""Memory of a worker at least: 40 MiB of its own (measured), and what its sandboxes run."""

STARTING = 2 * len(os.sched_getaffinity(0))
"""Processes that start at the same time (ours). Starting takes a processor most of a second, and
the first is to be at work while the others start.
"""

Tell: TypeAlias = Callable[[str], None]

Opener: TypeAlias = Callable[[str, Limits], Installed]
"""Opens a sandbox of a system, a name or file as `open_sandbox` takes it, under these limits."""


@dataclass(frozen=True, slots=True)
class NumberedJob(Generic[T, A]):
    """What is done with each of many numbered tasks, and where."""

    do: Callable[[Lane, tuple[int, T]], A]
    """Called with a sandbox and a task; importable, or a value that can be pickled, since other
    processes call it. It may be called any number of times for a task, but one answer counts."""
    system: str = ""
    """Whose sandboxes; "" where nothing is executed."""
    limits: Limits = LIMITS
    digest: str | None = None
    """What the system's digest has to be; None for any."""
    lanes: int = 1
    """Sandboxes of a process at most. With several an input that waits holds no other up, and how
    long a run takes says little."""
    what: str = "task"
    """What a task is called where it fails; its `str` is told as well."""
    made: str = "the dataset"
    """What was made on the system with that digest."""

    def opened(self, opener: Opener) -> Installed:
        """A sandbox for it. SystemMismatchError where its system is not the one that is meant."""
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
        """What is shared with others in a file of so many bytes; None of none, or of a system whose
        digest is not known.
        """
        if not size or self.digest is None:
            return None
        return ExecutionCache(self.digest, self.limits, max_bytes=size)


class Executor(Protocol):
    """Does jobs. A context manager that leaves no process behind; it can be used again then."""

    retried: int
    """Tasks that were begun again because a sandbox broke or a worker died."""
    restarts: int
    """Workers that were replaced."""

    @property
    def workers(self) -> int:
        """How many processes work at once."""
        ...

    @property
    def kernels(self) -> Set[str]:
        """Releases of the kernels under which tasks of the newest job were done."""
        ...

    @property
    def layers(self) -> Set[str]:
        """What inputs saw of the system's files there, as `lower_layer` says; none of stand-ins."""
        ...

    def check(self, job: NumberedJob[Any, Any]) -> None:
        """Opens a first sandbox of the job, where this process is known to be on the machine that
        opens them. It is asked before anything is written that the job is for. Errors: those of
        `map`.
        """
        ...

    def map(
        self, job: NumberedJob[T, A], tasks: Iterable[tuple[int, T]], tell: Tell = ...
    ) -> Iterator[tuple[int, A]]:
        """The answers with their tasks' numbers, each task's once, in the order they are finished.

        Tasks have different numbers, and are drawn as there is room for them. Which answers there
        are does not depend on the executor. `tell` is told what a person wants to know. Errors:
        GenerationError where a task fails every time, ShioenvErrors of the job as they are.
        """
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *exception: object) -> None: ...


def silent(text: str) -> None:
    """Tells nobody."""


def surroundings_of(
    opener: Opener, system: str, limits: Limits
) -> tuple[frozenset[str], frozenset[str]]:
    """Releases of kernels, and what sandboxes show of systems' files: of the latter nothing where
    others stand in for them.
    """
    if opener is not open_sandbox or not system:
        return frozenset({platform.release()}), frozenset()
    return frozenset({kernel_of(system, limits)}), frozenset({layer_of(limits)})


def processes(workers: int | None) -> int:
    """So many, None for one a processor. Errors: UsageError."""
    if workers is not None and workers < 1:
        raise UsageError(f"nothing can be done by {workers} workers", hint="at least 1")
    return workers or len(os.sched_getaffinity(0))


def processes_here(workers: int | None) -> int:
    """The same, where all of them are to work on this machine. Errors: UsageError too where its
    memory does not hold so many.
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
    """Bytes of memory of this machine, or that a container leaves this process of it."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with suppress(OSError, ValueError):  # without a limit it says so, or is not there
        memory = min(memory, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return memory
