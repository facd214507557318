"""Convert a session into a record: run and score it, then run it once more with two pipes.

The records of datasets and of the last steps of environments are made here.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from random import Random
from typing import Any

from shioenv.bash.words import quoted
from shioenv.behavior.compare import Noise
from shioenv.domain.behavior import NOTHING, Behavior
from shioenv.domain.inputs import Session
from shioenv.domain.record import SCHEMA_VERSION, Record, ScoredSegment, behavior_fields
from shioenv.domain.runner import Executing, Order, State
from shioenv.irreducibility.score import Cache, Score, estimate_irreducibility
from shioenv.irreducibility.scoring import Scoring
from shioenv.recording.execution_cache import SessionExecutions
from shioenv.recording.volatility import (
    FOUND_BY_LOOKING,
    dated,
    disagree,
    of_one_run,
    races,
    shareable,
    shows_date,
    unsettled,
)
from shioenv.sandbox.base import LONGEST_INPUT

HURRIED_SECONDS = 0.25
"""Minimum wall time of hurried sub-inputs (`TimedRuns`), in seconds. An input that hangs without
some argument (`ping` without its count) mostly hangs without further arguments too. So once one
sub-input hung, others get less time (our choice)."""

HASTE = 4
"""Factor by which a hurried sub-input gets more time if it timed out while working (our choice)."""

TIMED_OUT_BUDGET = 8
"""Maximum number of sub-inputs of a session that times out, because each may take the whole wall
time (our choice)."""

LOOKS = 8
"""Maximum number of runs that print the written files (our choice): enough for a million bytes of
names."""

ORDERS: tuple[Order, ...] = ("eager", "lazy")
"""The scheduling orders of further runs, for an input with concurrent processes.

These runs serve only to detect a volatile input. The two orders are extremes, so the results are
reproducible. The first run and the run with two pipes use the natural order. The choice is ours:
`soak/orders.py` shows that a further run in natural order detects nothing more.
"""


def _cut(behavior: Behavior) -> bool:
    """Whether processes still ran at the end of the time allowed after the shell's end."""
    return "background_seconds" in behavior.limits_hit


Alone = Callable[[Callable[[], Behavior]], Behavior]
"""A function that calls a run while no other run competes for resources."""


def at_once(run: Callable[[], Behavior]) -> Behavior:
    """Call the run at once, for callers without parallel runs."""
    return run()


class TimedRuns:
    """Executes a session and its sub-inputs, and decides their limits of wall time (D-10).

    The first run of the session is repeated once through `alone` if it timed out, and the second
    run counts. The same applies to a sub-input that times out although the session does not, unless
    the session is `volatile` anyway. If the sub-input times out again, or is not repeated, all
    further sub-inputs are hurried.

    A hurried sub-input gets 20 times the session's own time: at least `HURRIED_SECONDS`, and at
    most the time of the sub-input that timed out. If it was sleeping when its time was over, it is
    not repeated. If it was working, it was slow and did not hang. Then it gets four times as long,
    repeatedly. Once this reaches the time of the sub-input that timed out, it gets the usual wall
    time.

    Background processes may exceed the time allowed after the shell's end. If they do in the first
    run of the session, the run is repeated once through `alone`. If they do in a sub-input, it is
    repeated too, unless it is hurried, or the session is volatile or has such processes itself.

    A run that breaks its sandboxes is repeated once through `alone`, because another run may have
    taken its resources. If it breaks them again, the run itself is the cause. Then all further runs
    of the session and its sub-inputs get one sandbox each.
    """

    def __init__(
        self, session: Session, runner: Executing, *, alone: Alone = at_once, volatile: bool = False
    ) -> None:
        self.hangs = False
        """Whether the session itself times out, or breaks its sandboxes."""
        self.hurried: float | None = None
        """Wall time of further sub-inputs in seconds; None until a sub-input timed out."""
        self.limits_reached: set[str] = set()
        """Names of the limits that runs of the whole session reached."""
        self._text = session.body
        self._state = State(cwd=session.cwd, history=session.history)
        self._runner, self._alone, self._volatile = runner, alone, volatile
        self._took = self._longest = math.inf
        self._breaks = self._cut = False

    def begin(self) -> Behavior:
        """Run the session for the first time, and return the behavior that counts."""
        first = self.whole()
        if first.timed_out or _cut(first):
            first = self._alone(self.whole)
        self.hangs = first.timed_out or self._breaks
        self._cut = _cut(first)
        return first

    def whole(self, order: Order = "as it comes") -> Behavior:
        """Run the whole session, with its processes in this order, and return its behavior."""
        began = self._runner.seconds
        behavior = self._executed(
            self._text, **({} if order == "as it comes" else {"order": order})
        )
        self._took = min(self._took, self._seconds_since(began))
        self.limits_reached.update(behavior.limits_hit)
        return behavior

    def channels(self) -> Behavior:
        """Run the whole session with two pipes (D-9), and return its behavior."""
        behavior = self._executed(self._text, separate=True)
        self.limits_reached.update(behavior.limits_hit)
        return behavior

    @property
    def length(self) -> int:
        """Size of the executed session in bytes, including its history."""
        return len(os.fsencode("\n".join([*self._state.history, self._text])))

    def followed_by(self, line: str) -> Behavior:
        """Run the session followed by a line, and return their joint behavior."""
        return self._executed(f"{self._text}\n{line}")

    def part(self, text: str) -> Behavior:
        """Run a sub-input, and return its behavior."""
        if self.hurried is not None:
            return self._soon(text, self.hurried)
        began = self._runner.seconds
        behavior = self._executed(text)
        took = self._seconds_since(began)
        if _cut(behavior) and not (self._cut or self._volatile):
            return self._alone(lambda: self._executed(text))
        if behavior.timed_out and not self.hangs:
            if not self._volatile:
                behavior = self._alone(lambda: self._executed(text))
            if behavior.timed_out:
                self._longest = took
                self.hurried = max(HURRIED_SECONDS, min(20 * self._took, took))
        return behavior

    def _soon(self, text: str, wall: float) -> Behavior:
        """Run a hurried sub-input, with more time if it was working when it timed out."""
        behavior = self._executed(text, wall_seconds=wall)
        while behavior.timed_out and not self._runner.waited and wall < self._longest:
            wall *= HASTE
            more = wall if wall < self._longest else None
            behavior = self._executed(text, wall_seconds=more)
        return behavior

    def _seconds_since(self, began: float) -> float:
        """Return the seconds that executions ran since `began`, without waiting for a turn.

        If a new sandbox was opened since then, counting begins at 0.
        """
        seconds = self._runner.seconds
        return seconds - began if seconds >= began else seconds

    def _executed(self, text: str, **how: Any) -> Behavior:
        if self._breaks:
            return self._runner.execute(text, self._state, sandboxes=1, **how)
        behavior = self._runner.execute(text, self._state, **how)
        if "sandboxes" in behavior.limits_hit:
            behavior = self._alone(lambda: self._runner.execute(text, self._state, **how))
            self._breaks = "sandboxes" in behavior.limits_hit
        return behavior


class _Whole:
    """The runs of a whole session: the noise runs, and with `piped` one with a pipe per channel."""

    def __init__(
        self, timed_runs: TimedRuns, first: Behavior, noise_runs: int, *, piped: bool
    ) -> None:
        self._timed_runs, self._first, self._noise_runs = timed_runs, first, noise_runs
        self._piped = piped
        self._asked = 0
        self._channels = None if piped else first

    @property
    def channels(self) -> Behavior:
        """The run with two pipes; without `piped` the first run, whose channels are unknown."""
        if self._channels is None:  # a cached property locks all threads before Python 3.12
            self._channels = self._timed_runs.channels()
        return self._channels

    def again(self) -> Behavior:
        """Return the next noise run. The first call returns the session's first run.

        The last noise run may be the run with two pipes. That run must behave like the first run,
        and one of its channels must be empty.
        """
        self._asked += 1
        if self._asked == 1:
            return self._first
        if self._piped and self._asked == self._noise_runs:
            channels = self.channels
            ordered = not (channels.stdout and channels.stderr)
            if ordered and not disagree(self._first, channels, ordered=True):
                return channels
        return self._timed_runs.whole()


ROW_END = "\n"
"""The token between the rows of a session in `input_args`, as in `input` (our choice)."""


def input_args_of(session: Session) -> list[str]:
    """Return the tokens of all rows of a session with no-space marks, as in a record."""
    first, *further = [row.input_args for row in session.rows]
    return first + [token for row in further for token in (ROW_END, *row)]


@dataclass(frozen=True, slots=True)
class Recorded:
    """A session that was executed and scored."""

    session: Session
    behavior: Behavior
    """The behavior of the first run, with the channels of another run that behaved the same. If the
    other run differed, everything is from one of the two runs (`of_one_run`)."""
    score: Score | None
    """The score; None if the budget was 0."""

    def record(
        self,
        session_id: int,
        *,
        system: str,
        sampler: str,
        schema: int = SCHEMA_VERSION,
        mistake: str | None = None,
    ) -> Record:
        """Return the session as a record with this number, in the layout of version `schema`.

        `sampler` is the sampler that drew the sample, `mistake` the class of the mistake in it;
        None for none.
        """
        scored = self._unscored if self.score is None else self.score.record_fields()
        return Record(
            session_id=session_id,
            input=self.session.text,
            input_args=input_args_of(self.session),
            cwd=self.session.cwd,
            system=system,
            sampler=sampler,
            mistake=mistake,
            history=list(self.session.history),
            schema_version=schema,
            **behavior_fields(self.behavior),
            **scored,
        )

    @property
    def _unscored(self) -> dict[str, Any]:
        """The score fields of an unscored record: numbers of arguments, no irreducibility."""
        segments = [
            ScoredSegment(command=part.command, n_arguments=len(part.arguments))
            for row in self.session.rows
            for part in row.segments
        ]
        return {
            "irreducibility": None,
            "n_arguments": sum(part.n_arguments for part in segments),
            "segments": segments,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecorder:
    """Executes and scores sessions, and detects volatile ones.

    Every execution (also of sub-inputs) starts in the session's directory, and runs the rows
    without the `cd` of a record's `input` (D-27). Within a record, sub-inputs with the same
    rendered text share one execution. The runs of the whole session are always executed.
    """

    scoring: Scoring
    cache: Cache | None = None
    """A cache that shares executions of sub-inputs with other sessions of the same system, start
    directory and limits, or None. The executions of a volatile session never enter the cache, and
    neither do sub-inputs that may behave differently another time (`shareable`). Once a sub-input
    of the session timed out, the cache is no longer used."""
    orders: tuple[Order, ...] = ORDERS
    """The scheduling orders of further runs of an input whose shell has concurrent processes."""
    thorough: bool = True
    """Whether to execute more than the score needs: the run with two pipes, and the runs that print
    the written files. Without these runs, `stdout` and `stderr` are unknown, and a session is not
    detected as volatile if its files contain the date."""
    alone: Alone = at_once
    """Calls a run while no other run competes for its resources; see `TimedRuns`."""
    clock: Callable[[], float] = time.time
    """Seconds since 1970 on the host, as seen by programs that ask its kernel (D-4)."""

    def record(
        self, session: Session, runner: Executing, rng: Random, *, volatile: bool = False
    ) -> Recorded:
        """Execute and score a session; `rng` draws the sub-inputs.

        A session that times out or breaks its sandboxes is scored from at most 8 sub-inputs. With a
        budget of 0 no session is scored.

        One run has a pipe for each of `stdout` and `stderr` (D-9). It counts as the last noise
        run if it behaved like the first run and one channel stayed empty. In this case no order
        between the channels is lost, and the noise threshold is the same as with one pipe.

        The behavior is volatile in each of these cases:

        - `volatile` is true: the input is declared volatile.
        - The session times out or breaks its sandboxes, or its first run is volatile by itself.
        - A run of the whole session, or of a scored prefix, differed from another such run (D-2v).
        - A run of the whole session reached a limit of `FOUND_BY_LOOKING`.
        - The output shows the date of the run, or a written file contains the date or has it as its
          time.
        - The output or a written file shows that another run may differ (`unsettled`).
        - The shell has concurrent processes, and a run in another order (`orders`) differed.

        A further run, of the session followed by a `cat`, prints the non-empty written files. There
        are several such runs if the files' names do not fit into one input. If more than `LOOKS`
        runs would be needed, or a single name does not fit, there is no such run, and the behavior
        is volatile.

        Output, exit code, patch and channels are from runs that behaved the same, or all from one
        run. The result is the same for the same runner and state of `rng`. Exceptions of the runner
        are not caught, so only real results are recorded.
        """
        timed_runs = TimedRuns(session, runner, alone=self.alone, volatile=volatile)
        executions = SessionExecutions(self.cache, lambda: timed_runs.hurried is None)
        started = self.clock()
        first = timed_runs.begin()
        full, scoring = session.body, self.scoring
        whole = _Whole(timed_runs, first, scoring.noise_runs, piped=self.thorough)
        if timed_runs.hangs and scoring.budget:
            scoring = replace(scoring, budget=min(scoring.budget, TIMED_OUT_BUDGET))

        def behave(text: str) -> Behavior:
            return whole.again() if text == full else timed_runs.part(text)

        score = None
        if scoring.budget:
            score = estimate_irreducibility(
                session.rows, behave, scoring, rng=rng, cache=executions
            )
            unsteady = score.volatile
        else:
            unsteady = Noise.of([whole.again() for _ in range(scoring.noise_runs)]).volatile
        channels = whole.channels
        volatile = (
            volatile
            or timed_runs.hangs
            or first.volatile
            or unsteady
            or disagree(first, channels)
            or not timed_runs.limits_reached.isdisjoint(FOUND_BY_LOOKING)
            or dated(first, (started, self.clock()))
            or unsettled(first.output, full)
            or (self.thorough and self._writes_date(session, first, timed_runs, started))
            or self._races(session, first, timed_runs)
        )
        if self.cache is not None and not volatile:
            moments = (started, self.clock())
            own = executions.own.items()
            self.cache.update({text: did for text, did in own if shareable(text, did, moments)})
        behavior = replace(of_one_run(first, channels), volatile=volatile)
        return Recorded(session, behavior, score)

    def _writes_date(
        self, session: Session, first: Behavior, timed_runs: TimedRuns, started: float
    ) -> bool:
        """Whether a written file contains the date of the run, or is `unsettled`.

        Also true if the names of the non-empty files are too long to print the files.
        """
        digests = first.content_digests.items()
        filled = [name for name, digest in digests if digest != NOTHING]
        paths = [str(PurePosixPath(session.cwd, name)) for name in filled]
        if not paths:
            return False
        room = LONGEST_INPUT - timed_runs.length
        lines = list(_shown(paths, room))
        if len(lines) > LOOKS or any(len(os.fsencode(line)) >= room for line in lines):
            return True
        for line in lines:
            shown = timed_runs.followed_by(line).output
            if unsettled(shown, session.body) or any(
                shows_date(shown, moment) for moment in (started, self.clock())
            ):
                return True
        return False

    def _races(self, session: Session, first: Behavior, timed_runs: TimedRuns) -> bool:
        """Whether an input has concurrent processes and differs in a run with another order."""
        if not races("\n".join([*session.history, session.body])):
            return False
        return any(disagree(first, timed_runs.whole(order), ordered=True) for order in self.orders)


def _shown(paths: Iterable[str], room: int) -> Iterator[str]:
    """Yield shell lines that print files, each below `room` bytes unless a name is longer."""
    line, length = ["cat", "--"], len("cat --")
    for path in map(quoted, paths):
        more = len(os.fsencode(path)) + 1
        if len(line) > 2 and length + more >= room:
            yield " ".join(line)
            line, length = ["cat", "--"], len("cat --")
        line.append(path)
        length += more
    yield " ".join(line)
