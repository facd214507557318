"""A finished session executed and scored: what both environments do once their input is written."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias, cast

from msgspec import to_builtins

from shioenv.domain.inputs import Segment, Session
from shioenv.domain.record import Record
from shioenv.domain.runner import Executing, Runner, executing
from shioenv.errors import EnvironmentOptionError, SandboxError, UnknownSystemError
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
"""An runner, which stays its owner's to close, or what opens one, which is closed for them."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What executing a session gave."""

    score: Score
    record: Record
    cache_hits: int
    """Behaviors that an earlier episode had already observed."""

    def info(self) -> dict[str, Any]:
        """Every field of the record by its name, and `cache_hits`; nothing in it is shared."""
        info: dict[str, Any] = to_builtins(self.record)
        info["cache_hits"] = self.cache_hits
        return info


class Executor:
    """Executes and scores sessions on one system; opens its sandbox at the first one.

    `close` closes what was opened here, never an runner that was passed in; a later session opens
    a new one.
    """

    def __init__(
        self,
        system: str | None = None,
        *,
        scoring: Scoring = Scoring(),
        limits: Limits | None = None,
        runner: RunnerSource | None = None,
    ) -> None:
        self.declaration = declaration_of(system)
        self._system = system
        self._scoring = scoring
        self._limits = limits
        self._source = runner
        self._opened: Executing | None = None
        self._cache = MemoryCache()

    def execute(self, session: Session, seed: int, *, session_id: int, sampler: str) -> Outcome:
        """The session's score and record.

        The noise runs, each distinct sub-input and one run with two pipes (D-9) are executed, all
        as the session's text, `cd` included (E16). A first run that times out is repeated before it
        counts (D-10), and such an input is scored from at most 8 sub-inputs. `seed` decides which
        sub-inputs are drawn where not all of them fit the budget. Where a sandbox that was opened
        here breaks, everything is done once more in a new one. Errors: what the sandbox raises;
        what was opened here is closed then, whatever state it was left in.
        """
        try:
            try:
                return self._execute(session, seed, session_id, sampler)
            except SandboxError:
                if self._opened is None:
                    raise
                self._abandon()
                return self._execute(session, seed, session_id, sampler)
        except BaseException:
            self._abandon()
            raise

    def _execute(self, session: Session, seed: int, session_id: int, sampler: str) -> Outcome:
        cache = self._cache.at(session.cwd)
        recorder = SessionRecorder(scoring=self._scoring, cache=cache, pipe_runs=0)
        recorded = recorder.record(
            session,
            self._runner(),
            random.Random(seed),
            volatile=is_declared_volatile(session),
        )
        record = recorded.record(session_id, system=self.declaration.name, sampler=sampler)
        return Outcome(recorded.score, record, cache.hits)

    def close(self) -> None:
        """Close the sandbox if one was opened here; any number of calls."""
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    def _abandon(self) -> None:
        """Close a sandbox that may be broken."""
        with suppress(SandboxError, OSError):
            self.close()

    def _runner(self) -> Executing:
        if self._opened is None:
            source = self._source
            if source is None:
                self._opened = self._open()
            elif isinstance(source, type) or not hasattr(source, "run"):
                self._opened = executing(cast("Callable[[], Runner]", source)())
            else:
                return executing(cast("Runner", source))
        return self._opened

    def _open(self) -> Executing:
        from shioenv.behavior.observe import open_sandbox

        return open_sandbox(self._system, self._limits)


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
    return any(_is_volatile(_command(one)) for row in session.rows for one in row.segments)


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


def shown(outcome: Outcome) -> str:
    """The outcome for people: output, then exit code and score in one line."""
    record, score = outcome.record, outcome.score
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
