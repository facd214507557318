"""Inputs executed once each, by several processes, in order: for counting, nothing is recorded."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

from shioenv.behavior.observe import SandboxRunner, open_sandbox
from shioenv.domain.runner import State
from shioenv.errors import SandboxError
from shioenv.recording.bounds import LIMITS
from shioenv.synthesis.sample import Sample

BATCH = 50
"""Inputs that a process is given at once."""

KEPT = 4096
"""Characters of output kept: messages stand at the beginning, or at the end."""

_observer: SandboxRunner | None = None
_system = ""


@dataclass(frozen=True, slots=True)
class Trial:
    """What one execution of an input gave.

    `grammar` is the first command's, `output` the first and the last 2,048 characters.
    """

    grammar: str
    text: str
    cwd: str
    exit_code: int
    output: str
    timed_out: bool


def trials(samples: Iterable[Sample], *, system: str, workers: int) -> Iterator[Trial]:
    """Every sample executed once, in order. Errors: those of `open_sandbox`, SandboxError."""
    context = multiprocessing.get_context("spawn")
    tasks = [
        [(one.trace[0].grammar, one.input.text, one.cwd) for one in batch]
        for batch in _batches(samples)
    ]
    with ProcessPoolExecutor(workers, context, _open, (system,)) as pool:
        for done in pool.map(_run, tasks):
            yield from done
        for _ in pool.map(_close, range(workers)):
            pass


def _batches(samples: Iterable[Sample]) -> Iterator[list[Sample]]:
    stream = iter(samples)
    while batch := list(islice(stream, BATCH)):
        yield batch


def _open(system: str) -> None:
    global _system
    _system = system


def _run(batch: Sequence[tuple[str, str, str]]) -> list[Trial]:
    return [_trial(*one) for one in batch]


def _trial(grammar: str, text: str, cwd: str) -> Trial:
    try:
        behavior = _opened().run(text, State(cwd=cwd))
    except SandboxError:  # once more, in a new one
        _close(0)
        behavior = _opened().run(text, State(cwd=cwd))
    output = behavior.text
    if len(output) > KEPT:
        output = f"{output[: KEPT // 2]}\n{output[-KEPT // 2 :]}"
    return Trial(grammar, text, cwd, behavior.exit_code, output, behavior.timed_out)


def _opened() -> SandboxRunner:
    global _observer
    if _observer is None:
        _observer = open_sandbox(_system, LIMITS)
    return _observer


def _close(_: int) -> None:
    global _observer
    observer, _observer = _observer, None
    if observer is not None:
        with suppress(SandboxError):
            observer.close()
