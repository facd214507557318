"""The same inputs run again and again, and why some of them do something else.

    pass 1  a sandbox of this process, in the order in which they were drawn
    pass 2  another sandbox of this process
    pass 3  a sandbox of a new process
    pass 4  sandboxes of two processes at once, on processors that are busy with something else
    pass 5  a new process again, in another minute than the first pass

Every pass but the first has an order of its own; those after the fifth are like the third.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import re
import time
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypeAlias

from shioenv.behavior.observe import SandboxRunner, open_sandbox
from shioenv.domain.behavior import Behavior
from shioenv.domain.runner import State
from shioenv.errors import SandboxError
from shioenv.execution.processes import Executors, batches, follow_parent
from shioenv.experiments.setting import Report
from shioenv.grammar.library import load_grammars
from shioenv.irreducibility.scoring import Scoring
from shioenv.recording.bounds import LIMITS
from shioenv.recording.session import SessionRecorder
from shioenv.synthesis.sample import Sample

BATCH = 100
"""Inputs that a process is given at once."""

SHOW_CLOCK = frozenset({"date", "ps", "uptime", "w"})
"""Commands whose output is the present, masked or not."""

_MONTH = rb"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"
_DAY = rb"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_CLOCK = re.compile(
    rb"(?:" + _DAY + rb",? +)?(?:"
    rb"\d{4}-\d\d-\d\d|" + _MONTH + rb" +\d\d?|\d\d? " + _MONTH + rb"|\d\d?/" + _MONTH + rb"/\d{4}"
    rb"|\d\d/\d\d/\d\d(?:\d\d)?|(?<!\d)20\d{6}(?!\d))"
    rb"|\d{1,2}:\d\d(?::\d\d(?:\.\d+)?)?(?: [AP]M)?"
    rb"|(?<!\d)1[5-9]\d{8}(?:\.\d+)?(?!\d)"
)
"""Dates, times of day, seconds since 1970."""

Task: TypeAlias = tuple[int, str, str]
"""An input's number, its text, its start directory."""

Pass: TypeAlias = Iterator[tuple[int, Behavior]]
"""Behaviors by the number of the input, as they are seen."""


def passes(
    tasks: Sequence[Task], system: str, seed: int, numbers: Iterable[int], report: Report
) -> Iterator[tuple[int, Pass]]:
    """The passes of these numbers; each is to be read to its end before the next one.

    The fifth waits until it is another minute than at the first call. Errors: those of
    `open_sandbox`, SandboxError where a sandbox breaks twice.
    """
    minute = time.time() // 60
    for number in numbers:
        order = list(tasks)
        if number > 1:
            order = random.Random(f"{seed} {number}").sample(tasks, len(tasks))
        yield number, _pass(number, order, system, minute, report)


def _pass(number: int, order: Sequence[Task], system: str, minute: float, report: Report) -> Pass:
    found: Pass
    if number <= 2:
        found = _here(order, system)
    else:
        if number == 5 and time.time() // 60 == minute:
            time.sleep(60 - time.time() % 60)
        found = _elsewhere(order, system, 2 if number == 4 else 1)
    with _busy(number == 4):
        for done, one in enumerate(found, 1):
            yield one
            report(f"pass {number}", done, len(order))


def _here(tasks: Iterable[Task], system: str) -> Pass:
    with open_sandbox(system, LIMITS) as observer:
        for task in tasks:
            try:
                yield task[0], _run(observer, task)
            except SandboxError:  # it may be repeated, elsewhere
                with open_sandbox(system, LIMITS) as other:
                    yield task[0], _run(other, task)


def _elsewhere(tasks: Iterable[Task], system: str, processes: int) -> Pass:
    """From new processes, batch by batch."""
    with Executors(system, processes) as executors:
        for done in executors.map(_run_batch, batches(tasks, BATCH)):
            yield from done


def _run_batch(observer: SandboxRunner, tasks: Sequence[Task]) -> list[tuple[int, Behavior]]:
    return [(task[0], _run(observer, task)) for task in tasks]


def _run(observer: SandboxRunner, task: Task) -> Behavior:
    _, text, cwd = task
    behavior = observer.run(text, State(cwd=cwd))
    if behavior.timed_out:  # as a record does: once more, and the second one counts
        behavior = observer.run(text, State(cwd=cwd))
    return behavior


@contextmanager
def _busy(wanted: bool) -> Iterator[None]:
    """While it lasts, every processor has something else to do as well."""
    context = multiprocessing.get_context("spawn")
    count = len(os.sched_getaffinity(0)) if wanted else 0
    processes = [context.Process(target=_spin, daemon=True) for _ in range(count)]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.join()


def _spin() -> None:
    follow_parent()
    while True:
        pass


# ---- what differs, and why ----


@dataclass(frozen=True, slots=True)
class Cause:
    """Why an input may do something else another time."""

    mark: str
    """`declared` by a grammar, `noticed` when it is recorded, or `none`: nobody who reads its
    record is warned."""
    text: str


def commands_of(one: Sample) -> tuple[str, ...]:
    """The grammars of its commands, in order."""
    return tuple(part.grammar for part in one.trace)


def masked(behavior: Behavior) -> Behavior:
    """The behavior with every clock in its output replaced; columns close up around them."""
    output = re.sub(rb"[ \t]+", b" ", _CLOCK.sub(b"CLOCK", behavior.output))
    return replace(behavior, output=output)


def volatile_commands() -> Mapping[str, str]:
    """Commands whose grammars say that all their inputs are volatile, and why."""
    headers = {grammar.name: grammar.header for grammar in load_grammars()}
    return {name: header.volatile_reason for name, header in headers.items() if header.volatile}


def marked(one: Sample, volatile: Container[str]) -> list[str]:
    """Those of its commands that are volatile: by an option or operand, or one of `volatile`."""
    return [part.grammar for part in one.trace if part.volatile or part.grammar in volatile]


def shows_clock(one: Sample, volatile: Container[str]) -> bool:
    """Whether a command prints the clock, the load or how long the system is up, and no other of
    its commands is volatile; `volatile` are the grammars that are so as wholes.
    """
    shows = any(name in SHOW_CLOCK for name in commands_of(one))
    return shows and SHOW_CLOCK.issuperset(marked(one, volatile))


def cause_of(observer: SandboxRunner, one: Sample, volatile: Mapping[str, str]) -> Cause:
    """Why a sample did something else, run once more where it must be; `volatile` is what
    `volatile_commands` gives.
    """
    commands = commands_of(one)
    declared = [name for name in commands if name in volatile]
    if declared:
        return Cause("declared", f"{declared[0]}: {volatile[declared[0]]}")
    if one.volatile:
        return Cause("declared", f"an option or operand of {' or '.join(commands)}")
    # budget 1: all runs of the whole input, hardly any of its parts
    recorder = SessionRecorder(scoring=Scoring(budget=1))
    if recorder.record(one.session, observer, random.Random(0)).behavior.volatile:
        return Cause("noticed", "dates or differences seen when it is recorded")
    return Cause("none", "no cause is stated")
