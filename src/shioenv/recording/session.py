"""A session turned into a record: run and scored, then run once more with two pipes.

What a dataset keeps and what an environment's last step tells are made here.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import PurePosixPath
from random import Random
from typing import Any

from shioenv.bash.words import quoted
from shioenv.behavior.noise import Noise
from shioenv.domain.behavior import Behavior
from shioenv.domain.inputs import Input, Session
from shioenv.domain.record import SCHEMA_VERSION, Record, ScoredSegment, behavior_fields
from shioenv.domain.runner import Executing, Order
from shioenv.irreducibility.score import Cache, Score, estimate_irreducibility
from shioenv.irreducibility.scoring import Scoring
from shioenv.recording.executions import SessionExecutions
from shioenv.recording.patience import Alone, Patience, at_once
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

TIMED_OUT_BUDGET = 8
"""Sub-inputs at most of a session that times out: each may take the whole wall time (ours)."""

LOOKS = 8
"""Runs at most that show the files which an input wrote (ours): a million bytes of names."""

ORDERS: tuple[Order, ...] = ("eager", "lazy")
"""Further runs of an input with processes beside each other, only to tell whether it is volatile.

The two orders lie furthest apart, so the same is found each time. The first run and the one with
two pipes go as they come. Ours: `soak/orders.py` shows that a further run as it comes finds nothing
more.
"""


class _Whole:
    """The runs of a whole session: those that give the noise, and the one with two pipes, where
    that is wanted.
    """

    def __init__(
        self, patience: Patience, first: Behavior, noise_runs: int, *, piped: bool
    ) -> None:
        self._patience, self._first, self._noise_runs = patience, first, noise_runs
        self._piped = piped
        self._asked = 0
        self._channels = None if piped else first

    @property
    def channels(self) -> Behavior:
        """The run with two pipes; without one the first run, whose channels are unknown."""
        if self._channels is None:  # a cached property is one for all threads before Python 3.12
            self._channels = self._patience.channels()
        return self._channels

    def again(self) -> Behavior:
        """The next run; the first one was there before."""
        self._asked += 1
        if self._asked == 1:
            return self._first
        if self._piped and self._asked == self._noise_runs:
            channels = self.channels
            ordered = not (channels.stdout and channels.stderr)
            if ordered and not disagree(self._first, channels, ordered=True):
                return channels
        return self._patience.whole()


ROW_END = "\n"
"""What stands between the rows of a session in `input_args`, as it does in `input` (ours)."""


def input_args_of(session: Session) -> list[str]:
    """The tokens of all its rows with no-space marks, as a record holds them."""
    first, *further = [row.input_args for row in session.rows]
    return first + [token for row in further for token in (ROW_END, *row)]


def rows_of(input_args: Sequence[str]) -> list[Input]:
    """The rows of a record's `input_args`. Errors: InputError as by `Input.from_marked`."""
    parts = groupby(input_args, ROW_END.__eq__)
    return [Input.from_marked(list(row)) for is_end, row in parts if not is_end]


@dataclass(frozen=True, slots=True)
class Recorded:
    """A session that was executed and scored."""

    session: Session
    behavior: Behavior
    """Of its first run, the one that counts, with the channels of another run where the two did the
    same. Else all is of one of them.
    """
    score: Score | None
    """None where the budget was 0."""

    def record(
        self,
        session_id: int,
        *,
        system: str,
        sampler: str,
        schema: int = SCHEMA_VERSION,
        mistake: str | None = None,
    ) -> Record:
        """The session as a record of this number, of a sample that `sampler` wrote, in the layout
        of this version. `mistake` is the class of what was done wrong in it.
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
        """The fields that tell how many arguments there are; all others about scores are empty."""
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
    """How sessions are executed, scored and looked at for what is volatile.

    Every execution, sub-inputs included, is of the session's text (`cd DIR; INPUT`, E16). They are
    shared by rendered text within the record; the runs of the whole are always executed.
    """

    scoring: Scoring
    cache: Cache | None = None
    """Shares executions of sub-inputs with other sessions of the same system, start directory and
    limits. What a volatile session ran never enters it, nor what may do something else another time
    (`shareable`). Nothing of it is used once a sub-input ran out of time.
    """
    orders: tuple[Order, ...] = ORDERS
    """Of the further runs of an input whose shell has processes beside each other."""
    thorough: bool = True
    """Whether more is executed than the score needs: the run with two pipes, and what shows the
    files that were written. Without, `stdout` and `stderr` stay unknown, and a session whose files
    hold the date passes for one that is steady."""
    alone: Alone = at_once
    """Calls a run while nothing runs that it could have lacked; see `Patience`."""
    clock: Callable[[], float] = time.time
    """Seconds since 1970 on the host, which programs see that ask its kernel (D-4)."""

    def record(
        self, session: Session, runner: Executing, rng: Random, *, volatile: bool = False
    ) -> Recorded:
        """The session executed and scored; `rng` draws the sub-inputs.

        A session that times out is scored from at most 8 sub-inputs, with a budget of 0 none is.

        One run has two pipes, which fills `stdout` and `stderr` (D-9). It counts as the last noise
        run where it did the same as the first and one channel stayed empty. No order between the
        channels is lost then. The noise threshold is then what a run with one pipe would give.

        The behavior is volatile where `volatile` says that it is declared so, and where any run of
        the whole did something else (D-2v). It is volatile where a run reached a limit of
        `FOUND_BY_LOOKING`. It is volatile where its output or the files it wrote show the date of
        the run or how long something took. It is volatile where files got that date as theirs.
        Where its shell has processes beside each other, runs in other orders (`ORDERS`) have to do
        the same. Output, exit code, patch and channels are those of runs that did the same, or of
        one run. Files are looked at by one more run, of the session with a `cat` behind it. There
        are several such runs where the names are more than an input has room for. Where they are
        more than `LOOKS` runs could show, nobody looks, and it is volatile as well.

        Deterministic for the runner and the generator's state. What the runner raises passes
        through, so nothing is recorded that did not happen.
        """
        patience = Patience(session, runner, alone=self.alone, volatile=volatile)
        executions = SessionExecutions(self.cache, lambda: patience.hurried is None)
        started = self.clock()
        first = patience.begin()
        full, scoring = session.body, self.scoring
        whole = _Whole(patience, first, scoring.noise_runs, piped=self.thorough)
        if patience.hangs and scoring.budget:
            scoring = replace(scoring, budget=min(scoring.budget, TIMED_OUT_BUDGET))

        def behave(text: str) -> Behavior:
            return whole.again() if text == full else patience.part(text)

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
            or patience.hangs
            or first.volatile
            or unsteady
            or disagree(first, channels)
            or not patience.limits_reached.isdisjoint(FOUND_BY_LOOKING)
            or dated(first, (started, self.clock()))
            or unsettled(first.output)
            or (self.thorough and self._writes_date(session.cwd, first, patience, started))
            or self._races(session, first, patience)
        )
        if self.cache is not None and not volatile:
            moments = (started, self.clock())
            own = executions.own.items()
            self.cache.update({text: did for text, did in own if shareable(text, did, moments)})
        behavior = replace(of_one_run(first, channels), volatile=volatile)
        return Recorded(session, behavior, score)

    def _writes_date(self, cwd: str, first: Behavior, patience: Patience, started: float) -> bool:
        """Whether a file that was written holds the date of the run."""
        if not first.content_digests:
            return False
        paths = [str(PurePosixPath(cwd, name)) for name in first.content_digests]
        room = LONGEST_INPUT - patience.length
        lines = list(_shown(paths, room))
        if len(lines) > LOOKS or any(len(os.fsencode(line)) >= room for line in lines):
            return True
        for line in lines:
            shown = patience.followed_by(line).output
            if unsettled(shown) or any(
                shows_date(shown, moment) for moment in (started, self.clock())
            ):
                return True
        return False

    def _races(self, session: Session, first: Behavior, patience: Patience) -> bool:
        """Whether an input with processes beside each other does something else in one of several
        further runs, each in an order of its own.
        """
        if not races("\n".join([*session.history, session.body])):
            return False
        return any(disagree(first, patience.whole(order), ordered=True) for order in self.orders)


def _shown(paths: Iterable[str], room: int) -> Iterator[str]:
    """Lines that print files, of fewer bytes than `room` each but where one name takes more."""
    line, length = ["cat", "--"], len("cat --")
    for path in map(quoted, paths):
        more = len(os.fsencode(path)) + 1
        if len(line) > 2 and length + more >= room:
            yield " ".join(line)
            line, length = ["cat", "--"], len("cat --")
        line.append(path)
        length += more
    yield " ".join(line)
