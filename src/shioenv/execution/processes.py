"""Processes that each have an open sandbox and execute what they are given."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from itertools import islice
from multiprocessing.util import Finalize
from types import TracebackType
from typing import TypeVar

from shioenv.behavior.observe import SandboxRunner, open_sandbox
from shioenv.errors import GenerationError, SandboxError
from shioenv.recording.bounds import LIMITS

Task = TypeVar("Task")
Answer = TypeVar("Answer")

_observer: SandboxRunner | None = None
_system = ""


def follow_parent() -> None:
    """In a new process: it ends with the one that started it, however that ends, and on Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()


@contextmanager
def new_processes(
    workers: int, begin: Callable[..., None] = follow_parent, *arguments: object
) -> Iterator[ProcessPoolExecutor]:
    """A pool of new processes that call `begin` first; at its end, what is not begun is dropped.

    GenerationError where one of them is killed.
    """
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, context, begin, arguments)
    try:
        yield pool
    except BrokenProcessPool as error:
        raise GenerationError(
            "a process that the experiment had started was ended by something else",
            hint="what is finished is kept: the same command goes on",
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


class Executors:
    """`workers` new processes with a sandbox each; a context manager that ends them.

    Functions are called with the sandbox and a task, both must be importable there. A task whose
    sandbox broke is begun once more in a new one. Errors: those of `new_processes`.
    """

    def __init__(self, system: str, workers: int) -> None:
        self._processes = new_processes(workers, _begin, system)

    def __enter__(self) -> Executors:
        self._pool = self._processes.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._processes.__exit__(kind, error, trace)

    def submit(
        self, function: Callable[[SandboxRunner, Task], Answer], task: Task
    ) -> Future[Answer]:
        """The answer, some time. Its errors: SandboxError, those of `open_sandbox`."""
        return self._pool.submit(_call, function, task)

    def map(
        self, function: Callable[[SandboxRunner, Task], Answer], tasks: Iterable[Task]
    ) -> Iterator[Answer]:
        """The answers in the order of the tasks."""
        return self._pool.map(_call, _repeat(function), tasks)


def batches(tasks: Iterable[Task], size: int) -> Iterator[Sequence[Task]]:
    """The tasks, `size` at once."""
    stream = iter(tasks)
    while batch := list(islice(stream, size)):
        yield batch


def _repeat(function: Callable[[SandboxRunner, Task], Answer]) -> Iterator[object]:
    while True:
        yield function


def _begin(system: str) -> None:
    global _system
    _system = system
    follow_parent()
    Finalize(None, _close, exitpriority=10)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _call(function: Callable[[SandboxRunner, Task], Answer], task: Task) -> Answer:
    try:
        return function(_opened(), task)
    except SandboxError:
        _close()
        return function(_opened(), task)


def _opened() -> SandboxRunner:
    global _observer
    if _observer is None:
        _observer = open_sandbox(_system, LIMITS)
    return _observer


def _close() -> None:
    global _observer
    observer, _observer = _observer, None
    if observer is not None:
        with suppress(SandboxError):
            observer.close()
