"""A session turned into a record: run and scored, then run once more with two pipes.

What a dataset keeps and what an environment's last step tells are made by this one function.
"""

from __future__ import annotations

import math
import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import replace
from functools import lru_cache
from pathlib import PurePosixPath
from random import Random
from typing import Any, Protocol

from shioenv.domain.behavior import Behavior
from shioenv.domain.inputs import Session
from shioenv.domain.patch import ContextPatch
from shioenv.domain.record import Record, behavior_fields
from shioenv.irreducibility.score import Cache, Score, estimate_irreducibility
from shioenv.irreducibility.scoring import Scoring

TIMED_OUT_BUDGET = 8
"""Sub-inputs at most of a session that times out: each may take the whole wall time (ours)."""

HURRIED_SECONDS = 0.25
"""Wall time at least of the further sub-inputs of a session one of whose sub-inputs ran out of time
though the session itself did not: what hangs without one argument (`ping` without its count) hangs
without it and any others (ours)."""

PIPE_RUNS = 4
"""Further runs of an input with a pipe, only to tell whether it is volatile: what a program makes
of its input may depend on the pieces it arrives in (ours; `cat */*.txt | grep x` finds binary data
or not), and three noise runs miss half of what goes either way every fourth time."""

FOUND_BY_LOOKING = frozenset({"cpu_seconds", "memory_bytes", "processes"})
"""Limits that are looked at every 50 ms: how far a run came until it was ended depends on when."""

_PROC = re.compile(rb"dr-xr-xr-x +\d+ ")
"""/proc in a long listing: its links are the processes of the host, its time is the mount's."""

ROW_END = "\n"
"""What stands between the rows of a session in `input_args`, as it does in `input` (ours)."""


class Runner(Protocol):
    """Runs a text on a pristine system: what `open_sandbox` returns, or a stand-in."""

    def run(
        self,
        shell_input: str,
        *,
        cwd: str | None = None,
        separate: bool = False,
        wall_seconds: float | None = None,
    ) -> Behavior:
        """What the text does in `cwd`; with `separate`, standard error has a pipe of its own. Where
        `wall_seconds` is given it stands for the limit that holds otherwise.
        """
        ...


def _at_once(run: Callable[[], Behavior]) -> Behavior:
    return run()


class _Executions(MutableMapping[str, Behavior]):
    """Behaviors by text: this session's own, and behind them those that others left."""

    def __init__(self, others: Cache | None) -> None:
        self.own: dict[str, Behavior] = {}
        self.others = others

    def __getitem__(self, text: str) -> Behavior:
        found = self.own.get(text)
        if found is None:
            if self.others is None:
                raise KeyError(text)
            found = self.others[text]
        return found

    def __setitem__(self, text: str, behavior: Behavior) -> None:
        self.own[text] = behavior

    def __delitem__(self, text: str) -> None:
        del self.own[text]

    def __iter__(self) -> Iterator[str]:
        return iter(self.own)

    def __len__(self) -> int:
        return len(self.own)


def record_session(
    session: Session,
    runner: Runner,
    *,
    session_id: int,
    system: str,
    sampler: str,
    scoring: Scoring,
    rng: Random,
    pipe_runs: int = PIPE_RUNS,
    volatile: bool = False,
    alone: Callable[[Callable[[], Behavior]], Behavior] = _at_once,
    cache: Cache | None = None,
    clock: Callable[[], float] = time.time,
) -> tuple[Record, Score]:
    """The session executed and scored, numbered `session_id`.

    Every execution, sub-inputs included, is of the session's text (`cd DIR; INPUT`, SPEC E16) in
    the start directory; `rng` draws the sub-inputs. Executions are shared by rendered text
    within the record; `cache` shares those of sub-inputs with others of the same system, start
    directory and limits. The runs of the whole are always executed. What a volatile record ran
    never enters `cache`, nor what may do something else another time (`_shareable`), and nothing of
    it is used once a sub-input ran out of time.

    A first run that times out is repeated once through `alone`, which calls it while nothing runs
    that it could have lacked, and the second run counts (D-10). A session that then still times out
    is scored from at most 8 sub-inputs. A sub-input that times out though the session does not is
    repeated so, too; where it still does, and where the session is declared volatile anyway, the
    further ones get 20 times the session's own time, at most what this one had, and no repetition.
    The session's own last run has two pipes, which fills `stdout` and `stderr` (D-9). The record is
    volatile where `volatile` says that it is declared so, where any run of the whole did something
    else (D-2v) or reached a limit of `FOUND_BY_LOOKING`, or where its output or the files it wrote
    show the date of the run, or files got it as theirs (`clock`, seconds since 1970): programs see
    real time (D-4), so they will show another one tomorrow, which no run of today tells. Files are
    looked at by one more run, of the session with a `cat` behind it.

    Deterministic for the runner and the generator's state. What the runner raises passes through,
    so nothing is recorded that did not happen.
    """
    executions = _Executions(cache)
    prefix = Session(session.cwd, ()).text
    full = ROW_END.join(row.text for row in session.rows)
    hurry: float | None = None

    def run(text: str) -> Behavior:
        nonlocal hurry
        if hurry is not None:
            return runner.run(prefix + text, cwd=session.cwd, wall_seconds=hurry)
        began = time.perf_counter()
        behavior = runner.run(prefix + text, cwd=session.cwd)
        waited = time.perf_counter() - began
        if behavior.timed_out and not hangs and not volatile:
            behavior = alone(lambda: runner.run(prefix + text, cwd=session.cwd))
        if behavior.timed_out and not hangs:
            hurry = max(HURRIED_SECONDS, min(20 * took, waited))
            executions.others = None  # others had more time
        return behavior

    reached: set[str] = set()

    took = math.inf

    def once() -> Behavior:
        nonlocal took
        began = time.perf_counter()
        behavior = runner.run(prefix + full, cwd=session.cwd)
        took = min(took, time.perf_counter() - began)  # it may have waited for its turn
        reached.update(behavior.limits_hit)
        return behavior

    started = clock()
    first = once()
    if first.timed_out:
        first = alone(once)
    hangs = first.timed_out
    waiting = [first]
    score = estimate_irreducibility(
        session.rows,
        lambda text: (waiting.pop() if waiting else once()) if text == full else run(text),
        replace(scoring, budget=min(scoring.budget, TIMED_OUT_BUDGET)) if hangs else scoring,
        rng=rng,
        cache=executions,
    )
    channels = runner.run(prefix + full, cwd=session.cwd, separate=True)
    reached.update(channels.limits_hit)
    volatile = volatile or hangs or score.volatile or _disagree(first, channels)
    volatile = volatile or not reached.isdisjoint(FOUND_BY_LOOKING)
    volatile = volatile or any(_holds(first, moment) for moment in (started, clock()))
    if not volatile and first.content_digests:
        names = " ".join(
            shlex.quote(str(PurePosixPath(session.cwd, name))) for name in first.content_digests
        )
        shown = runner.run(f"{prefix}{full}\ncat -- {names}", cwd=session.cwd)
        volatile = any(_shows(shown.output, moment) for moment in (started, clock()))
    if not volatile and any("|" in row.operators for row in session.rows):
        volatile = any(_disagree(first, once(), ordered=True) for _ in range(pipe_runs))
    if cache is not None and not volatile:
        moments = (started, clock())
        cache.update(
            {
                text: behavior
                for text, behavior in executions.own.items()
                if _shareable(text, behavior, moments)
            }
        )
    fields = behavior_fields(first)
    separate = behavior_fields(channels)
    fields.update(stdout=separate["stdout"], stderr=separate["stderr"], volatile=volatile)
    record = Record(
        session_id=session_id,
        input=prefix + full,
        input_args=_input_args(session),
        cwd=session.cwd,
        system=system,
        sampler=sampler,
        **fields,
        **score.record_fields(),
    )
    return record, score


def _input_args(session: Session) -> list[str]:
    """The tokens of all rows with their marks."""
    rows = [row.input_args for row in session.rows]
    return rows[0] + [token for row in rows[1:] for token in (ROW_END, *row)]


def _shareable(text: str, behavior: Behavior, moments: tuple[float, float]) -> bool:
    """Whether one execution of a sub-input may stand for others.

    Not where it reached a limit or shows the date, and not with a pipe (see `PIPE_RUNS`).
    """
    return not (
        behavior.volatile
        or behavior.limits_hit
        or "|" in text
        or any(_holds(behavior, moment) for moment in moments)
    )


def _shows(output: bytes, moment: float) -> bool:
    """Whether the output holds the moment's date in one of the forms that programs print, or the
    first seven digits of its seconds since 1970.

    /proc shows such a moment as well. Every form tells the year, or what is young enough to be
    printed without it: nothing of a system itself is as young as a run.
    """
    if _PROC.search(output):
        return True
    return any(date in output for date in _dates(int(moment)))


def _holds(behavior: Behavior, moment: float) -> bool:
    """Whether its output shows the moment's date, or a file got it."""
    return _shows(behavior.output, moment) or _sets(behavior.patch, moment)


def _sets(patch: ContextPatch, moment: float) -> bool:
    """Whether a file got the moment's date as its own, as by `touch -d 0:00`: other times of a run
    are the system's instant in a patch.
    """
    if not patch.operations:
        return False
    day = time.gmtime(moment)
    date = {"year": day.tm_year, "month": time.strftime("%b", day), "day": day.tm_mday}
    found: dict[str, Mapping[str, Any]] = {}
    for kind, path, *values in patch.operations:
        parent, _, field = path.rpartition("/")
        if not path.startswith("/fs/"):
            continue
        if kind == "a" and isinstance(values[0], Mapping):  # else a field, such as a link's target
            found[path] = values[0]
        elif kind == "=" and field in date:
            found[parent] = {**found.get(parent, {}), field: values[0]}
    return any(
        "year" in one and all(one.get(field, date[field]) == date[field] for field in date)
        for one in found.values()
    )


@lru_cache(maxsize=4)
def _dates(moment: int) -> tuple[bytes, ...]:
    day = time.gmtime(moment)
    forms = ("%Y-%m-%d", "%b %e %H:", "%d %b %Y", "%e %b %Y", "%d/%b/%Y", "%x", "%Y%m%d")
    dates = {time.strftime(form, day).strip() for form in forms}
    return tuple(date.encode() for date in (*dates, str(moment)[:7]))


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
        or first.limits_hit != other.limits_hit
        or (not first.output_truncated and len(first.output) != len(other.output))
        or (ordered and first.output != other.output)
    )
