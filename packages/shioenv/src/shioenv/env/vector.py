"""The vector of `ShIOEnv-Grammar-v0`: many environments with a few shared sandboxes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Final, NoReturn, TypeAlias, cast

import gymnasium
import numpy as np
from gymnasium.core import ActType
from numpy.typing import NDArray

from shioenv.domain.inputs import Session
from shioenv.env.grammar_env import GrammarEnv
from shioenv.env.rewards import NOTHING, Reward
from shioenv.env.same_step import SameStepVectorEnv, Taken, Vector
from shioenv.env.scorer import ScoredSession, ScoringOptions, SessionScorer, is_open, require_count
from shioenv.errors import EnvironmentOptionError
from shioenv.recording.execution_cache import MemoryCache
from shioenv.system.declare import SystemDeclaration

Wrapper: TypeAlias = Callable[[gymnasium.Env[Any, Any]], gymnasium.Env[Any, Any]]


@dataclass(frozen=True, slots=True)
class EndedEpisode:
    """An executed episode of a vector."""

    step: int
    """The number of the step that ended the episode, counted from 0 since the last `collect` or
    reset."""
    env: int
    """The number of the environment, from 0."""
    reward: float
    scored: ScoredSession


class SharedScorer:
    """Scores sessions in parallel, in several sandboxes with a thread each.

    `score` returns at once. The sandboxes share the behaviors of sub-inputs. Errors: those of
    `SessionScorer`, and EnvironmentOptionError for a runner that is already open.
    """

    def __init__(self, system: str | None, sandboxes: int, options: ScoringOptions) -> None:
        if is_open(options.get("runner")):
            raise EnvironmentOptionError(
                "several sandboxes cannot share one runner", hint="pass a callable that opens one"
            )
        cache = MemoryCache()
        self._scorers = [SessionScorer(system, cache, **options) for _ in range(sandboxes)]
        self._free: SimpleQueue[SessionScorer] = SimpleQueue()
        for scorer in self._scorers:
            self._free.put(scorer)
        self._threads = ThreadPoolExecutor(sandboxes, "shioenv-scorer")

    @property
    def declaration(self) -> SystemDeclaration:
        """The system's declaration."""
        return self._scorers[0].declaration

    def score(self, session: Session, seed: int, **how: Any) -> PendingSession:
        """Start scoring the session; `how` are the keyword arguments of `SessionScorer.score`."""
        return PendingSession(self._threads.submit(self._score, session, seed, how))

    def close(self) -> None:
        """Start no further session, wait for running ones, and close the sandboxes."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        for scorer in self._scorers:
            scorer.close()

    def _score(self, session: Session, seed: int, how: dict[str, Any]) -> ScoredSession:
        scorer = self._free.get()
        try:
            return scorer.score(session, seed, **how)
        finally:
            self._free.put(scorer)


def _refuse(*_: object) -> NoReturn:
    raise EnvironmentOptionError(
        "a wrapper in `wrap` uses the reward of an executed episode, which is not scored yet",
        hint="wrap the vector instead (gymnasium.wrappers.vector has the same wrappers), or use "
        'vectorization_mode="sync"',
    )


class _Unscored(float):
    """The reward of a session that is being scored: a wrapper may pass it on, but not use it.

    As a float it is NaN, because extensions in C read its value without calling methods.
    """

    __slots__ = ()


_USES: Final = (
    "add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow rpow divmod "
    "rdivmod neg pos abs bool float int round trunc floor ceil lt le gt ge eq ne repr str format"
)
for _name in _USES.split():
    setattr(_Unscored, f"__{_name}__", _refuse)

_UNSCORED: Final = _Unscored("nan")


@dataclass(frozen=True, slots=True)
class PendingSession:
    """A session that is being scored: its reward is not known yet."""

    future: Future[ScoredSession]

    def info(self) -> dict[str, Any]:
        """Return no entries: none is known yet."""
        return {}

    def reward(self, function: Reward) -> float:
        """Return a placeholder that may be passed on, but raises an error when used."""
        return _UNSCORED

    def to_text(self) -> str:
        """Return a line for a session that is being scored."""
        return "[being scored]\n"


class GrammarVectorEnv(SameStepVectorEnv):
    """Several `ShIOEnv-Grammar-v0` that share tables and a few sandboxes.

    `gymnasium.make_vec("ShIOEnv-Grammar-v0", num_envs=16)` makes such a vector. A step takes an
    action in all environments. An environment whose episode ends is reset in the same step
    (`AutoresetMode.SAME_STEP`). Its last observation and info are in `final_obs` and `final_info`.
    The inputs of the ended episodes are scored in parallel.

    With `defer`, `step` does not wait for scores, and returns a reward of 0 for executed episodes.
    `collect`, called once per rollout, returns their rewards. Rewards are computed in the order of
    steps and environments. So a seed determines the rewards, with and without `defer`, in any order
    of scoring.
    """

    def __init__(
        self,
        num_envs: int = 1,
        system: str | None = None,
        *,
        sandboxes: int | None = None,
        defer: bool = False,
        wrap: Sequence[Wrapper] = (),
        **options: Any,
    ) -> None:
        """Prepare the environments; nothing is executed or opened yet.

        `sandboxes` is the number of sessions scored at once (default: two per processor). `wrap`
        lists the wrappers around each environment, the innermost first, such as `LocalActions`.
        Sessions are scored later, so a wrapper in `wrap` that uses a session's reward raises
        EnvironmentOptionError in `step`: wrap the vector instead. The other options are those of
        `GrammarEnv`, but `runner` must be a callable that opens a runner, and there is no
        `render_mode`. Errors: those of `GrammarEnv`.
        """
        require_count("num_envs", num_envs)
        count = 2 * len(os.sched_getaffinity(0)) if sandboxes is None else sandboxes
        if options.get("render_mode") is not None:
            raise EnvironmentOptionError("a vector cannot be rendered", hint="omit render_mode")
        self.defer = defer
        self._inner = [GrammarEnv(system, **options) for _ in range(num_envs)]
        scoring = {name: options[name] for name in _SCORING if name in options}
        self.scorer = SharedScorer(
            system, require_count("sandboxes", count), cast("ScoringOptions", scoring)
        )
        envs: list[gymnasium.Env[Any, Any]] = []
        for inner in self._inner:
            inner.scorer = self.scorer
            env: gymnasium.Env[Any, Any] = inner
            for wrapper in wrap:
                env = wrapper(env)
            envs.append(env)
        super().__init__(envs)
        self.rewards = self._inner[0].rewards
        self._waiting: list[tuple[int, int, PendingSession]] = []
        self._ended_now: list[tuple[int, int, PendingSession]] = []
        self._steps = 0

    def reset(
        self,
        *,
        seed: int | list[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Begin a new episode in each environment; uncollected scores are discarded.

        Sessions whose execution has not begun are not executed any more. With a seed, environment i
        gets `seed + i`. A list has a separate seed for each environment. `options` are those of
        `GrammarEnv.reset`, the same for all. Errors: those of `GrammarEnv.reset`, and
        EnvironmentOptionError for a list of another length than `num_envs`.
        """
        for _, _, pending in self._waiting:
            pending.future.cancel()
        self._waiting, self._steps = [], 0
        return super().reset(seed=seed, options=options)

    def step(self, actions: ActType) -> Vector:
        """Take an action in each environment; the class describes the end of an episode.

        Errors: EpisodeError before a reset. ActionError for a malformed action, after the
        environments before it have taken their actions. Without `defer` also errors of the sandbox.
        After an error the scores of this step are lost.
        """
        self._ended_now = []
        return super().step(actions)

    def collect(self) -> tuple[NDArray[np.float64], list[EndedEpisode]]:
        """Return the rewards of the episodes that were executed since the last call or reset.

        Waits until all of these episodes are scored. The rewards are an array of (steps,
        environments), to be added to the rewards of the steps. The second result is the episodes,
        in the order of steps and environments. Errors: those of the sandbox, after which these
        episodes are lost.
        """
        steps = self._steps
        episodes = self._scored()
        self._steps = 0
        rewards = np.zeros((steps, self.num_envs))  # (steps, environments)
        for episode in episodes:
            rewards[episode.step, episode.env] = episode.reward
        return rewards, episodes

    def close_extras(self, **kwargs: Any) -> None:
        """Close the sandboxes; sessions that are not scored yet are discarded."""
        self.scorer.close()

    def action_masks(self) -> NDArray[np.bool_]:
        """Return the mask of permitted actions, (environments, actions)."""
        return np.stack([env.get_wrapper_attr("action_masks")() for env in self.envs])

    def _taken(self, actions: Iterable[Any]) -> Iterable[Taken]:
        """Yield the results of the actions. A reward that is not known yet is 0."""
        for inner, taken in zip(self._inner, super()._taken(actions), strict=True):
            observation, reward, ended, cut, info = taken
            if isinstance(inner.outcome, PendingSession) and (ended or cut):
                if reward is not _UNSCORED:
                    _refuse()
                reward = NOTHING
            yield observation, reward, ended, cut, info

    def _end(self, number: int) -> None:
        outcome = self._inner[number].outcome
        if isinstance(outcome, PendingSession):
            self._ended_now.append((self._steps, number, outcome))

    def _complete(
        self, rewards: NDArray[np.float64], finals: dict[int, tuple[Any, dict[str, Any]]]
    ) -> None:
        self._waiting += self._ended_now
        self._steps += 1
        if not self.defer:
            for episode in self._scored():
                rewards[episode.env] = episode.reward
                finals[episode.env][1].update(episode.scored.info())

    def _scored(self) -> list[EndedEpisode]:
        waiting, self._waiting = self._waiting, []
        episodes = []
        for step, number, pending in waiting:
            scored = pending.future.result()
            episodes.append(EndedEpisode(step, number, scored.reward(self.rewards), scored))
        return episodes


_SCORING = ScoringOptions.__optional_keys__
