"""Execute and score a finished session, at the end of an episode of either environment."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypedDict, Unpack, cast

from msgspec import to_builtins

from shioenv.bash.words import without_assignments
from shioenv.domain.behavior import Behavior, output_text
from shioenv.domain.inputs import Segment, Session
from shioenv.domain.record import Record, behavior_fields
from shioenv.domain.runner import Executing, Runner, executing
from shioenv.errors import EnvironmentOptionError, UnknownSystemError
from shioenv.execution.lanes import Reopened
from shioenv.grammar.library import OwnGrammars, load_grammars, own_grammars, shipped_headers
from shioenv.irreducibility.score import Score
from shioenv.irreducibility.scoring import Scoring
from shioenv.recording.execution_cache import MemoryCache
from shioenv.recording.passes import JointRuns
from shioenv.recording.session import SessionRecorder, input_args_of
from shioenv.sandbox.base import Limits
from shioenv.system.declare import SystemDeclaration, load_declaration
from shioenv.system.store import find_system

RunnerSource: TypeAlias = Runner | Callable[[], Runner]
"""A runner, which its owner closes, or a callable that opens one, which the scorer closes."""


class ScoringOptions(TypedDict, total=False):
    """The options for executing and scoring in an environment."""

    scoring: Scoring | None
    """The settings of scores (None: `Scoring()`); not to be combined with one of its fields."""
    budget: int | None
    """Maximum number of sub-inputs per session. This option and the next four are fields of
    `Scoring`."""
    noise_runs: int | None
    """Number of runs of each session for its noise threshold."""
    estimator: str | None
    """The estimator, which chooses sub-inputs."""
    target_se: float | None
    """Standard error at which sampling of sub-inputs stops."""
    process_budget: int | None
    """Maximum number of processes of all sub-inputs of a session, estimated from its first run."""
    limits: Limits | None
    """Limits of every run in the sandbox (None: `Limits()`)."""
    wall_seconds: float | None
    """Short for `limits` with this one field; not to be combined with `limits`."""
    own_grammars: str | Path | None
    """The directory of own grammars (None: `$SHIOENV_GRAMMARS`, if set)."""
    runner: RunnerSource | None
    """The runner in place of the sandbox, or a callable that opens one."""
    record: bool
    """Whether the last info contains a whole record (the default). If not, only the
    executions for the score are made."""


@dataclass(frozen=True, slots=True)
class ScoredSession:
    """A session's behavior and score: the argument of a reward."""

    session: Session
    behavior: Behavior
    """The behavior of the session's first run."""
    score: Score
    volatile: bool
    """Whether another run may behave differently, as far as known.

    This is inferred from a grammar's declaration, differences between noise runs, the output, a
    timeout and, if a record is made, the written files.
    """
    horizon: int
    """The number of arguments by which some rewards divide. For `ShIOEnv-v0` it is `max_commands *
    max_segments * max_arguments`, for `ShIOEnv-Grammar-v0` `max_arguments`."""
    record: Record | None
    """The session's record; None if the environment makes none."""
    cache_hits: int
    """Number of sub-inputs that were not executed because an earlier episode had executed them."""

    def info(self) -> dict[str, Any]:
        """Return every field of the record by name, and `cache_hits`; all values are fresh copies.

        Without a record, only the input, `volatile` and the fields in `KNOWN` are available.
        """
        info: dict[str, Any] = to_builtins(self._known() if self.record is None else self.record)
        info["cache_hits"] = self.cache_hits
        return info

    def reward(self, function: Callable[[ScoredSession], float]) -> float:
        """Return the value of `function` for this session."""
        return float(function(self))

    def to_text(self) -> str:
        """Return the result for people: the output, then exit code and score in one line."""
        score, behavior = self.score, self.behavior
        if score.irreducibility is None:
            value = "irreducibility undefined, no argument can be removed"
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
"""Fields of a record that info contains even without a record, besides the input."""


class Outcome(Protocol):
    """The result of scoring a session; it may be pending."""

    def info(self) -> dict[str, Any]:
        """Return the entries of `info` about the outcome."""
        ...

    def reward(self, function: Callable[[ScoredSession], float]) -> float:
        """Return the reward of the step that executed the session."""
        ...

    def to_text(self) -> str:
        """Return the outcome as text for people."""
        ...


class Scorer(Protocol):
    """Executes and scores the finished sessions of environments."""

    @property
    def declaration(self) -> SystemDeclaration:
        """The system's declaration."""
        ...

    def score(
        self, session: Session, seed: int, *, session_id: int, sampler: str, horizon: int
    ) -> Outcome:
        """Return the outcome of the session; see `SessionScorer.score`."""
        ...

    def close(self) -> None:
        """Close the sandboxes that this scorer opened. May be called any number of times."""
        ...


class SessionScorer:
    """Executes and scores sessions on one system; opens its sandbox at the first session.

    `close` closes only a sandbox that the scorer opened, never a runner that was passed in. A later
    session opens a new sandbox. `cache` may be shared with other scorers of the same options.
    Errors: EnvironmentOptionError, UsageError, UnknownSystemError.
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
        self._own = own_grammars(options.get("own_grammars"))
        self._records = options.get("record", True)
        runner = options.get("runner")
        self._given = executing(cast("Runner", runner)) if is_open(runner) else None
        source = cast("Callable[[], Runner]", self._open if runner is None else runner)
        self._sandbox: Reopened[Executing] = Reopened(lambda: executing(source()))
        self._cache = MemoryCache() if cache is None else cache

    def score(
        self, session: Session, seed: int, *, session_id: int, sampler: str, horizon: int
    ) -> ScoredSession:
        """Return the session's score, and its record if records are made.

        The full session (noise runs) and each distinct sub-input are executed. All of them start in
        the session's directory (D-27). For a record, one run has separate pipes for standard output
        and error. If possible, it also serves as a noise run (D-9). If the first run times out, it
        is repeated, and the repetition counts (D-10). A session that times out is scored from at
        most 8 sub-inputs. `seed` determines the drawn sub-inputs if not all of them fit the budget.

        If a sandbox that the scorer opened breaks, everything is repeated once in a new one.
        Errors: those of the sandbox, after which a sandbox that the scorer opened is closed.
        """

        def score(own: Executing) -> ScoredSession:
            runner = own
            if len(session.rows) > 1 and getattr(own, "keeps_shells", False):
                rows = [row.text for row in session.rows]
                opens = partial(cast("Any", own).open_session, cwd=session.cwd)
                runner = JointRuns(own, rows, opens)
            try:
                return scored(runner)
            finally:
                if runner is not own:
                    runner.close()

        def scored(runner: Executing) -> ScoredSession:
            cache = self._cache.at(session.cwd)
            recorder = SessionRecorder(
                scoring=self._scoring, cache=cache, orders=(), thorough=self._records
            )
            volatile = is_declared_volatile(session, self._own)
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
        """Close the sandbox if this scorer opened one; may be called any number of times."""
        self._sandbox.close()

    def _open(self) -> Executing:
        from shioenv.behavior.observe import open_sandbox

        return open_sandbox(self._system, self._limits)


def is_open(source: RunnerSource | None) -> bool:
    """Whether `source` is a runner rather than a callable that opens one."""
    return hasattr(source, "run") and not isinstance(source, type)


def declaration_of(system: str | None) -> SystemDeclaration:
    """Return the declaration of a shipped system, which need not be built, or of a user's system.

    Errors: UnknownSystemError.
    """
    try:
        return load_declaration(system)
    except UnknownSystemError:
        return find_system(system).declaration


def is_declared_volatile(session: Session, own: OwnGrammars | None = None) -> bool:
    """Whether the grammar of a command in `session` declares that two runs may differ (D-2v).

    `own` grammars take precedence over the shipped ones.
    """
    return any(_is_volatile(_command(part), own) for row in session.rows for part in row.segments)


def _command(segment: Segment) -> str:
    """Return the command of a segment: the first word that sets no variable."""
    words = [segment.command, *(argument.text for argument in segment.arguments)]
    return without_assignments(" ".join(words)).partition(" ")[0]


@lru_cache(maxsize=1024)
def _is_volatile(command: str, own: OwnGrammars | None) -> bool:
    if own is None or command not in own.names:
        header = shipped_headers().get(command)
        return header is not None and header.volatile
    (grammar,) = load_grammars([command], own=own)
    return grammar.header.volatile


_FIELDS = ("budget", "noise_runs", "estimator", "target_se", "process_budget")


def scoring_of(options: ScoringOptions) -> Scoring:
    """Return the option `scoring`, or by default a `Scoring` with the fields that are given.

    Errors: EnvironmentOptionError if both are given, or the budget is not at least 1. UsageError
    for another field with an invalid value.
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
            f"{' and '.join((*given, 'scoring'))} cannot be combined", hint=f"Scoring({named}, ...)"
        )
    if "budget" in given:
        require_count("budget", given["budget"])
    return Scoring(**given)


def limits_of(options: ScoringOptions) -> Limits | None:
    """Return the limits of runs; None for the default ones.

    Errors: EnvironmentOptionError if `wall_seconds` and `limits` are both given; LimitsError.
    """
    limits, wall_seconds = options.get("limits"), options.get("wall_seconds")
    if wall_seconds is None:
        return limits
    if limits is not None:
        raise EnvironmentOptionError(
            "wall_seconds and limits cannot be combined",
            hint=f"Limits(wall_seconds={wall_seconds}, ...)",
        )
    return Limits(wall_seconds=wall_seconds)


def require_count(name: str, value: object) -> int:
    """Return the value if it is an integer of at least 1.

    Errors: EnvironmentOptionError otherwise.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise EnvironmentOptionError(
            f"{name} is {value!r}", hint="give a whole number of at least 1"
        )
    return value
