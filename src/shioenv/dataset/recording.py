"""A sample turned into a record: run and scored, then run once more with two pipes."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Protocol

from shioenv.domain.behavior import Behavior
from shioenv.domain.inputs import Session
from shioenv.domain.record import Record, behavior_fields
from shioenv.irreducibility.score import RUNS, Cache, estimate_irreducibility
from shioenv.synthesis.sample import Sample

TIMED_OUT_BUDGET = 8
"""Sub-inputs at most of an input that times out: each may take the whole wall time (ours)."""

PIPE_RUNS = 4
"""Further runs of an input with a pipe, only to tell whether it is volatile: what a program makes
of its input may depend on the pieces it arrives in (ours; `cat */*.txt | grep x` finds binary data
or not), and three noise runs miss half of what goes either way every fourth time."""


class Built(Protocol):
    """What a dataset needs to know of a system."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    @property
    def digest(self) -> str:
        """Equal digests: the same inputs do the same things."""
        ...


class Observer(Protocol):
    """Runs inputs on a pristine system: what `open_sandbox` returns, or a stand-in."""

    @property
    def system(self) -> Built:
        """Where inputs run."""
        ...

    def run(self, shell_input: str, *, cwd: str | None = None, separate: bool = False) -> Behavior:
        """What the input does in `cwd`; SandboxError where it has to be run again."""
        ...

    def close(self) -> None:
        """Ends it."""
        ...


def _at_once(run: Callable[[], Behavior]) -> Behavior:
    return run()


def record(
    sample: Sample,
    session_id: int,
    observer: Observer,
    budget: int,
    rng: Random,
    *,
    sampler: str,
    runs: int = RUNS,
    alone: Callable[[Callable[[], Behavior]], Behavior] = _at_once,
    cache: Cache | None = None,
) -> Record:
    """The sample executed and scored, numbered `session_id`.

    Every execution, sub-inputs included, is of the session's text (`cd DIR; INPUT`) in the start
    directory. `budget` and `runs` are `estimate_irreducibility`'s, `rng` draws the sub-inputs.
    Executions are shared by rendered text within the record; `cache` shares them with others of
    the same system, start directory and limits.

    Where the input times out it is repeated once through `alone`, which calls it while nothing else
    runs, and the second run counts (D-10). One that then still times out is scored from at most 8
    sub-inputs. Sub-inputs that time out are not repeated. The input's own last run has two pipes,
    which fills `stdout` and `stderr` (D-9). Volatile is what is declared so, or runs otherwise any
    time.

    Deterministic for the observer and the generator's state. What the observer raises passes
    through, so nothing is recorded that did not happen.
    """
    prefix = Session(sample.cwd, ()).text
    full = sample.input.text
    hangs = False

    def run(text: str) -> Behavior:
        behavior = observer.run(prefix + text, cwd=sample.cwd)
        if behavior.timed_out and text == full and not hangs:
            behavior = alone(lambda: observer.run(prefix + text, cwd=sample.cwd))
        return behavior

    first = run(full)
    hangs = first.timed_out
    waiting = [first]

    def behave(text: str) -> Behavior:
        return waiting.pop() if waiting and text == full else run(text)

    score = estimate_irreducibility(
        sample.input,
        behave,
        budget=min(budget, TIMED_OUT_BUDGET) if hangs else budget,
        rng=rng,
        runs=runs,
        cache={} if cache is None else cache,
    )
    channels = observer.run(prefix + full, cwd=sample.cwd, separate=True)
    volatile = sample.volatile or score.volatile or _disagree(first, channels)
    if "|" in sample.input.operators and not volatile:
        volatile = any(_disagree(first, run(full), ordered=True) for _ in range(PIPE_RUNS))
    fields = behavior_fields(first)
    separate = behavior_fields(channels)
    fields.update(
        stdout=separate["stdout"],
        stderr=separate["stderr"],
        volatile=volatile,
    )
    return Record(
        session_id=session_id,
        input=prefix + full,
        input_args=sample.input.input_args,
        cwd=sample.cwd,
        system=observer.system.name,
        sampler=sampler,
        **fields,
        **score.record_fields(),
    )


def _disagree(first: Behavior, other: Behavior, *, ordered: bool = False) -> bool:
    """Whether another run did something else.

    Of the output only the length is compared where the other run had two pipes: the order between
    the channels is lost then.
    """
    return (
        first.exit_code != other.exit_code
        or first.timed_out != other.timed_out
        or first.patch != other.patch
        or first.content_digests != other.content_digests
        or first.output_truncated != other.output_truncated
        or (not first.output_truncated and len(first.output) != len(other.output))
        or (ordered and first.output != other.output)
    )
