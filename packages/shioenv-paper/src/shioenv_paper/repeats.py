"""Repeated runs of the same inputs, and reasons for different results.

    pass 1  a sandbox of this process, inputs in the order in which they were drawn
    pass 2  another sandbox of this process
    pass 3  a sandbox of a new process
    pass 4  sandboxes of two processes at once, on processors that are busy with something else
    pass 5  another new process, in a later minute than the first pass

Every pass but the first has a different order. Passes after the fifth are like the third.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cache
from typing import TypeAlias

from shioenv.domain.behavior import Behavior
from shioenv.domain.runner import Executing, Runner, State
from shioenv.execution.job import Executor
from shioenv.execution.local import LocalExecutor, SerialExecutor
from shioenv.grammar.library import shipped_headers
from shioenv.grammar.traits import PROCESSES
from shioenv.irreducibility.scoring import Scoring
from shioenv.recording.session import SessionRecorder
from shioenv.synthesis.traces import Sample
from shioenv_paper.setting import ExperimentSetting, answers


@cache
def show_present() -> frozenset[str]:
    """Return commands that print current data: the time, or the state of the machine."""
    headers = shipped_headers().items()
    return frozenset(name for name, one in headers if one.clock or one.traits.shows == PROCESSES)


_MONTH = rb"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"
_DAY = rb"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_CLOCK = re.compile(
    rb"(?:" + _DAY + rb",? +)?(?:"
    rb"\d{4}-\d\d-\d\d|" + _MONTH + rb" +\d\d?|\d\d? " + _MONTH + rb"|\d\d?/" + _MONTH + rb"/\d{4}"
    rb"|\d\d/\d\d/\d\d(?:\d\d)?|(?<!\d)20\d{6}(?!\d))"
    rb"|\d{1,2}:\d\d(?::\d\d(?:\.\d+)?)?(?: [AP]M)?"
    rb"|(?<!\d)1[5-9]\d{8}(?:\.\d+)?(?!\d)"
)
"""Dates, times of day, and seconds since 1970."""

Pass: TypeAlias = Iterator[tuple[int, Behavior]]
"""Pairs of an input's number and its behavior, in order of execution."""


def executor_of(number: int) -> Executor:
    """Return the executor of the pass with this number."""
    return SerialExecutor() if number <= 2 else LocalExecutor(2 if number == 4 else 1)


def passes(
    setting: ExperimentSetting,
    samples: Sequence[Sample],
    numbers: Iterable[int],
    executors: Callable[[int], Executor] = executor_of,
) -> Iterator[tuple[int, Pass]]:
    """Yield the passes with these numbers; each must be consumed before the next one.

    The fifth pass begins in another minute than the first of `numbers`. Errors: those of the
    executors.
    """
    minute = time.time() // 60
    for number in numbers:
        order = list(enumerate(samples))
        if number > 1:
            order = random.Random(f"{setting.seed} {number}").sample(order, len(order))
        if number == 5 and time.time() // 60 == minute:
            time.sleep(60 - time.time() % 60)
        yield number, _pass(number, order, setting, executors(number))


def _pass(
    number: int, order: Sequence[tuple[int, Sample]], setting: ExperimentSetting, executor: Executor
) -> Pass:
    job = setting.job(_behavior)
    # tasks are numbered by their places in this order
    tasks = ((place, sample) for place, (_, sample) in enumerate(order))
    with busy() if number == 4 else nullcontext():
        for place, behavior in answers(
            executor, job, tasks, lambda done: setting.report(f"pass {number}", done, len(order))
        ):
            yield order[place][0], behavior


def _behavior(runner: Runner, task: tuple[int, Sample]) -> Behavior:
    _, sample = task
    text, state = sample.input.text, State(cwd=sample.cwd)
    behavior = runner.run(text, state)
    if behavior.timed_out:  # the second run counts, as for a record
        behavior = runner.run(text, state)
    return behavior


_SPIN = "import os\nwhile os.getppid() == {}: sum(range(100_000))"


@contextmanager
def busy() -> Iterator[None]:
    """Keep every processor busy while the context lasts."""
    spin = [sys.executable, "-c", _SPIN.format(os.getpid())]
    processes = [subprocess.Popen(spin, start_new_session=True) for _ in os.sched_getaffinity(0)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


# ---- differences and causes ----


@dataclass(frozen=True, slots=True)
class Cause:
    """A reason why an input's behavior may vary."""

    mark: str
    """`declared` by a grammar, `noticed` when the input is recorded, `none`, or "" in `NO_CAUSE`.

    With `none`, the input's record has no warning.
    """
    text: str


NO_CAUSE = Cause("", "")
"""The cause if there is nothing to explain."""


def sample_commands(sample: Sample) -> tuple[str, ...]:
    """Return the names of the grammars of a sample's commands, in order."""
    return tuple(part.grammar for part in sample.trace)


def masked(behavior: Behavior) -> Behavior:
    """Return the behavior with masked clock times and collapsed blanks in its output."""
    output = re.sub(rb"[ \t]+", b" ", _CLOCK.sub(b"CLOCK", behavior.output))
    return replace(behavior, output=output)


def volatile_commands() -> Mapping[str, str]:
    """Return commands whose grammars declare all their inputs volatile, with the reasons."""
    headers = shipped_headers().items()
    return {name: header.volatile_reason for name, header in headers if header.volatile}


def marked(sample: Sample, volatile: Container[str]) -> list[str]:
    """Return a sample's commands that are in `volatile` or volatile by an option or operand."""
    return [part.grammar for part in sample.trace if part.volatile or part.grammar in volatile]


def shows_clock(sample: Sample, volatile: Container[str]) -> bool:
    """Whether a command of a sample prints current data, and no other command is volatile.

    Current data are the clock, the load, or the system's uptime. `volatile` are the grammars whose
    inputs are all volatile.
    """
    present = show_present()
    shows = not present.isdisjoint(sample_commands(sample))
    return shows and present.issuperset(marked(sample, volatile))


def cause_of(runner: Executing, task: tuple[int, Sample], *, volatile: Mapping[str, str]) -> Cause:
    """Determine why a sample's behavior varied; `volatile` is the result of `volatile_commands`.

    The sample is recorded again if no grammar declares it volatile.
    """
    _, sample = task
    commands = sample_commands(sample)
    declared = [name for name in commands if name in volatile]
    if declared:
        return Cause("declared", f"{declared[0]}: {volatile[declared[0]]}")
    if sample.volatile:
        return Cause("declared", f"an option or operand of {' or '.join(commands)}")
    # with a budget of 1, hardly any sub-inputs run, beside the runs of the whole input
    recorder = SessionRecorder(scoring=Scoring(budget=1))
    if recorder.record(sample.session, runner, random.Random(0)).behavior.volatile:
        return Cause("noticed", "noticed at recording: runs differ, or the current date occurs")
    return Cause("none", "cause unknown")


REASONS = ("time of day", "declared volatile", "noticed when recorded", "not explained")
"""Reasons for differences.

"not explained" takes precedence. Of the others, the first one that applies counts.
"""


@dataclass(frozen=True, slots=True)
class RepeatVerdict:
    """An input, with the differences between its passes."""

    number: int
    sample: Sample
    channels: tuple[str, ...]
    """The fields of the behavior in which a pass differs from the first; empty if all agree."""
    differing: int
    """Number of passes that differ from the first."""
    time_of_day: bool
    """Whether the passes agree except for clock times, or a command prints current data."""
    cause: Cause
    """`NO_CAUSE` if all passes agree."""
    command: str
    """The command for grouping: the first one declared volatile, else the first."""

    @property
    def identical(self) -> bool:
        """Whether all passes agree byte for byte."""
        return not self.channels

    @property
    def reason(self) -> str:
        """One of `REASONS`; "" if there is nothing to explain."""
        said = {"declared": "declared volatile", "noticed": "noticed when recorded"}
        if self.time_of_day and self.cause.mark in said:
            return "time of day"
        return {"": "", "none": "not explained", **said}[self.cause.mark]

    @property
    def commands(self) -> list[str]:
        """The names of the grammars of the input's commands, in order."""
        return list(sample_commands(self.sample))

    @property
    def different(self) -> str:
        """The channels joined by `+`; "" if all passes agree."""
        return "+".join(self.channels)
