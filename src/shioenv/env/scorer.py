"""A finished session executed and scored: what both environments do once their input is written."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol, TypeAlias, TypedDict, Unpack, cast

from msgspec import to_builtins

from shioenv.bash.words import without_assignments
from shioenv.domain.behavior import Behavior
from shioenv.domain.inputs import Segment, Session
from shioenv.domain.record import Record, behavior_fields, output_text
from shioenv.domain.runner import Executing, Runner, executing
from shioenv.errors import EnvironmentOptionError, UnknownSystemError
from shioenv.execution.lanes import Reopened
from shioenv.grammar.library import COMMANDS, names_of_grammars
from shioenv.grammar.load import read_grammar
from shioenv.irreducibility.score import Score
from shioenv.irreducibility.scoring import Scoring
from shioenv.recording.executions import MemoryCache
from shioenv.recording.session import SessionRecorder, input_args_of
from shioenv.sandbox.base import Limits
from shioenv.system.declare import SystemDeclaration, load_declaration
from shioenv.system.store import find_system

RunnerSource: TypeAlias = Runner | Callable[[], Runner]
"""A runner, which stays its owner's to close, or what opens one, which is closed for them."""


class ScoringOptions(TypedDict, total=False):
    """How an environment executes and scores: options of each of them."""

    scoring: Scoring | None
    """How sessions are scored (None: `Scoring()`); never beside one of its fields."""
    budget: int | None
    """Sub-inputs per session at most; this and the next three are fields of `Scoring`."""
    noise_runs: int | None
    """Runs of each session that give its noise."""
    estimator: str | None
    """How sub-inputs are chosen."""
    target_se: float | None
    """Standard error at which no more are run."""
    limits: Limits | None
    """Bounds of every run in the sandbox (None: `Limits()`)."""
    wall_seconds: float | None
    """Short for the limit of this name; never beside `limits`."""
    runner: RunnerSource | None
    """What stands for the sandbox: a runner, or a callable that opens one."""
    record: bool
    """Whether info holds a whole record at the end (the default). Without, nothing is executed
    that the score does not need."""


@dataclass(frozen=True, slots=True)
class ScoredSession:
    """What a session did and scored: what a reward is a function of."""

    session: Session
    behavior: Behavior
    """Of its first run."""
    score: Score
    volatile: bool
    """Another run may do something else, as far as is known: declared, seen in the noise runs or in
    the output, or out of time. With a record, the files that were written tell as well.
    """
    horizon: int
    """How many arguments there was room for."""
    record: Record | None
    """None where the environment makes none."""
    cache_hits: int
    """Behaviors that an earlier episode had already observed."""

    def info(self) -> dict[str, Any]:
        """Every field of the record by its name, and `cache_hits`; nothing in it is shared.

        Without a record, those fields that are known without.
        """
        info: dict[str, Any] = to_builtins(self._known() if self.record is None else self.record)
        info["cache_hits"] = self.cache_hits
        return info

    def reward(self, function: Callable[[ScoredSession], float]) -> float:
        """What the function says that it is worth."""
        return float(function(self))

    def shown(self) -> str:
        """It for people: output, then exit code and score in one line."""
        score, behavior = self.score, self.behavior
        if score.irreducibility is None:
            value = "irreducibility undefined, nothing to remove"
        else:
            error = score.standard_error
            spread = "" if error is None else f", standard error {error:.3f}"
            kind = "exact" if score.exact else f"estimated{spread}"
            value = f"irreducibility {score.irreducibility:.3f} ({kind})"
        ended = "timed out, " if behavior.timed_out else ""
        output = output_text(behavior.output)[0]
        output += "" if output.endswith("\n") or not output else "\n"
        cut = "[output truncated]\n" if behavior.output_truncated else ""
        executed = f"{score.n_executions} executions"
        return f"{output}{cut}[{ended}exit code {behavior.exit_code}, {value}, {executed}]\n"

    def _known(self) -> dict[str, Any]:
        known = behavior_fields(self.behavior) | self.score.record_fields()
        session = self.session
        return {
            "input": session.text,
            "input_args": input_args_of(session),
            "cwd": session.cwd,
            **{name: known[name] for name in KNOWN},
            "volatile": self.volatile,
        }


KNOWN = (
    "exit_code", "output", "timed_out", "irreducibility", "necessary", "exact", "standard_error",
    "n_arguments", "n_executions",
)  # fmt: skip
"""What info holds without a record, beside the input."""


class Outcome(Protocol):
    """What became of a session that was written."""

    def info(self) -> dict[str, Any]:
        """What info says of it."""
        ...

    def reward(self, function: Callable[[ScoredSession], float]) -> float:
        """What the step that executed it is worth."""
        ...

    def shown(self) -> str:
        """It for people."""
        ...


class Scorer(Protocol):
    """What an environment hands its finished sessions to."""

    @property
    def declaration(self) -> SystemDeclaration:
        """Of the system."""
        ...

    def score(
        self, session: Session, seed: int, *, session_id: int, sampler: str, horizon: int
    ) -> Outcome:
        """What becomes of the session; see `SessionScorer.score`."""
        ...

    def close(self) -> None:
        """Gives back what was opened; any number of calls."""
        ...


class SessionScorer:
    """Executes and scores sessions on one system; opens its sandbox at the first one.

    `close` closes what was opened here, never a runner that was passed in; a later session opens
    a new one. `cache` is shared with other scorers of the same options. Errors:
    EnvironmentOptionError, UsageError, UnknownSystemError.
    """

    def __init__(
        self,
        system: str | None = None,
        cache: MemoryCache | None = None,
        **options: Unpack[ScoringOptions],
    ) -> None:
        self.declaration = declaration_of(system)
        self._system = system
        self._scoring = scoring_of(options)
        self._limits = limits_of(options)
        self._records = options.get("record", True)
        runner = options.get("runner")
        self._given = executing(cast("Runner", runner)) if is_open(runner) else None
        source = cast("Callable[[], Runner]", self._open if runner is None else runner)
        self._sandbox: Reopened[Executing] = Reopened(lambda: executing(source()))
        self._cache = MemoryCache() if cache is None else cache

    def score(
        self, session: Session, seed: int, *, session_id: int, sampler: str, horizon: int
    ) -> ScoredSession:
        """The session's score, and its record where records are made.

        The noise runs and each distinct sub-input are executed, all as the session's text, `cd`
        included (E16). For a record one of the noise runs has two pipes (D-9). A first run that
        times out is repeated before it counts (D-10), and such an input is scored from at most 8
        sub-inputs. `seed` decides which sub-inputs are drawn where not all of them fit the budget.
        Where a sandbox that was opened here breaks, everything is done once more in a new one.
        Errors: what the sandbox raises; what was opened here is closed then, whatever state it was
        left in.
        """

        def score(runner: Executing) -> ScoredSession:
            cache = self._cache.at(session.cwd)
            recorder = SessionRecorder(
                scoring=self._scoring, cache=cache, orders=(), thorough=self._records
            )
            volatile = is_declared_volatile(session)
            recorded = recorder.record(session, runner, random.Random(seed), volatile=volatile)
            record = None
            if self._records:
                record = recorded.record(session_id, system=self.declaration.name, sampler=sampler)
            assert recorded.score is not None  # there is a budget
            return ScoredSession(
                session=session,
                behavior=recorded.behavior,
                score=recorded.score,
                volatile=recorded.behavior.volatile,
                horizon=horizon,
                record=record,
                cache_hits=cache.hits,
            )

        return self._sandbox.repeat(score) if self._given is None else score(self._given)

    def close(self) -> None:
        """Close the sandbox if one was opened here; any number of calls."""
        self._sandbox.close()

    def _open(self) -> Executing:
        from shioenv.behavior.observe import open_sandbox

        return open_sandbox(self._system, self._limits)


def is_open(source: RunnerSource | None) -> bool:
    """Whether it is a runner, not what opens one."""
    return hasattr(source, "run") and not isinstance(source, type)


def declaration_of(system: str | None) -> SystemDeclaration:
    """A system's declaration, whether it is shipped (then it need not be built) or one's own.

    Errors: UnknownSystemError.
    """
    try:
        return load_declaration(system)
    except UnknownSystemError:
        return find_system(system).declaration


def is_declared_volatile(session: Session) -> bool:
    """Whether the grammar of a command in it says that two runs may differ (D-2v)."""
    return any(_is_volatile(_command(part)) for row in session.rows for part in row.segments)


def _command(segment: Segment) -> str:
    """What runs: the first word that sets no variable."""
    words = [segment.command, *(argument.text for argument in segment.arguments)]
    return without_assignments(" ".join(words)).partition(" ")[0]


@lru_cache(maxsize=1024)
def _is_volatile(command: str) -> bool:
    if command not in names_of_grammars():
        return False
    path = COMMANDS / f"{command}.grammar"
    return read_grammar(path.read_text(encoding="utf-8"), path.name).grammar.header.volatile


_FIELDS = ("budget", "noise_runs", "estimator", "target_se")


def scoring_of(options: ScoringOptions) -> Scoring:
    """How an environment scores: the settings, or the usual ones with these fields.

    Errors: EnvironmentOptionError where both are given, or a budget is none; UsageError.
    """
    given = {name: options[name] for name in _FIELDS if options.get(name) is not None}  # type: ignore[literal-required]
    scoring = options.get("scoring")
    if not given:
        scoring = scoring or Scoring()
        require_count("budget", scoring.budget)
        return scoring
    named = ", ".join(f"{name}={value!r}" for name, value in given.items())
    if scoring is not None:
        raise EnvironmentOptionError(
            f"{' and '.join((*given, 'scoring'))} are both given", hint=f"Scoring({named}, ...)"
        )
    if "budget" in given:
        require_count("budget", given["budget"])
    return Scoring(**given)


def limits_of(options: ScoringOptions) -> Limits | None:
    """The bounds of runs. Errors: EnvironmentOptionError where the wall time is given twice."""
    limits, wall_seconds = options.get("limits"), options.get("wall_seconds")
    if wall_seconds is None:
        return limits
    if limits is not None:
        raise EnvironmentOptionError(
            "wall_seconds and limits are both given",
            hint=f"Limits(wall_seconds={wall_seconds}, ...)",
        )
    return Limits(wall_seconds=wall_seconds)


def require_count(name: str, value: object) -> int:
    """The value, an integer of at least 1. Errors: EnvironmentOptionError."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise EnvironmentOptionError(f"{name} is {value!r}", hint="it is a whole number from 1 up")
    return value
