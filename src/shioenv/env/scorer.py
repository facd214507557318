"""A finished session executed and scored: what both environments do once their input is written."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias, cast

from msgspec import to_builtins

from shioenv.domain.inputs import Segment, Session
from shioenv.domain.record import Record
from shioenv.domain.runner import Executing, Runner, executing
from shioenv.errors import EnvironmentOptionError, UnknownSystemError
from shioenv.execution.lanes import Reopened
from shioenv.grammar.library import COMMANDS, names_of_grammars
from shioenv.grammar.load import read_grammar
from shioenv.grammar.parse import without_assignments
from shioenv.irreducibility.score import Score
from shioenv.irreducibility.scoring import Scoring
from shioenv.recording.executions import MemoryCache
from shioenv.recording.session import SessionRecorder
from shioenv.sandbox.base import Limits
from shioenv.system.declare import SystemDeclaration, load_declaration
from shioenv.system.store import find_system

RunnerSource: TypeAlias = Runner | Callable[[], Runner]
"""A runner, which stays its owner's to close, or what opens one, which is closed for them."""


@dataclass(frozen=True, slots=True)
class ScoredSession:
    """What a session did and scored."""

    score: Score
    record: Record
    cache_hits: int
    """Behaviors that an earlier episode had already observed."""

    def info(self) -> dict[str, Any]:
        """Every field of the record by its name, and `cache_hits`; nothing in it is shared."""
        info: dict[str, Any] = to_builtins(self.record)
        info["cache_hits"] = self.cache_hits
        return info


class SessionScorer:
    """Executes and scores sessions on one system; opens its sandbox at the first one.

    `close` closes what was opened here, never a runner that was passed in; a later session opens
    a new one.
    """

    def __init__(
        self,
        system: str | None = None,
        *,
        scoring: Scoring | None = None,
        budget: int | None = None,
        limits: Limits | None = None,
        runner: RunnerSource | None = None,
    ) -> None:
        self.declaration = declaration_of(system)
        self._system = system
        self._scoring = scoring_of(scoring, budget)
        self._limits = limits
        self._given = executing(cast("Runner", runner)) if _is_open(runner) else None
        source = cast("Callable[[], Runner]", self._open if runner is None else runner)
        self._sandbox: Reopened[Executing] = Reopened(lambda: executing(source()))
        self._cache = MemoryCache()

    def score(self, session: Session, seed: int, *, session_id: int, sampler: str) -> ScoredSession:
        """The session's score and record.

        The noise runs, one of them with two pipes (D-9), and each distinct sub-input are executed,
        all as the session's text, `cd` included (E16). A first run that times out is repeated
        before it counts (D-10), and such an input is scored from at most 8 sub-inputs. `seed`
        decides which sub-inputs are drawn where not all of them fit the budget. Where a sandbox
        that was opened here breaks, everything is done once more in a new one. Errors: what the
        sandbox raises; what was opened here is closed then, whatever state it was left in.
        """

        def score(runner: Executing) -> ScoredSession:
            cache = self._cache.at(session.cwd)
            recorder = SessionRecorder(scoring=self._scoring, cache=cache, pipe_runs=0)
            volatile = is_declared_volatile(session)
            recorded = recorder.record(session, runner, random.Random(seed), volatile=volatile)
            record = recorded.record(session_id, system=self.declaration.name, sampler=sampler)
            assert recorded.score is not None  # there is a budget
            return ScoredSession(recorded.score, record, cache.hits)

        return self._sandbox.repeat(score) if self._given is None else score(self._given)

    def close(self) -> None:
        """Close the sandbox if one was opened here; any number of calls."""
        self._sandbox.close()

    def _open(self) -> Executing:
        from shioenv.behavior.observe import open_sandbox

        return open_sandbox(self._system, self._limits)


def _is_open(source: RunnerSource | None) -> bool:
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


def scoring_of(scoring: Scoring | None, budget: int | None) -> Scoring:
    """How an environment scores: the settings, or the usual ones with this budget.

    Errors: EnvironmentOptionError where both are given, or a budget is none.
    """
    if budget is None:
        return scoring or Scoring()
    if scoring is not None:
        raise EnvironmentOptionError(
            "budget and scoring are both given", hint=f"scoring=Scoring(budget={budget}, ...)"
        )
    return Scoring(budget=require_count("budget", budget))


def require_count(name: str, value: object) -> int:
    """The value, an integer of at least 1. Errors: EnvironmentOptionError."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise EnvironmentOptionError(f"{name} is {value!r}", hint="it is a whole number from 1 up")
    return value


def shown(scored: ScoredSession) -> str:
    """A scored session for people: output, then exit code and score in one line."""
    record, score = scored.record, scored.score
    if record.irreducibility is None:
        value = "irreducibility undefined, nothing to remove"
    else:
        kind = "exact" if record.exact else f"estimated, standard error {score.standard_error:.3f}"
        value = f"irreducibility {record.irreducibility:.3f} ({kind})"
    ended = "timed out, " if record.timed_out else ""
    output = record.output + ("" if record.output.endswith("\n") or not record.output else "\n")
    cut = "[output truncated]\n" if record.output_truncated else ""
    executed = f"{record.n_executions} executions"
    return f"{output}{cut}[{ended}exit code {record.exit_code}, {value}, {executed}]\n"
