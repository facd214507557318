"""The base class of both environments: it starts, scores, ends and renders episodes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from enum import StrEnum
from inspect import signature
from typing import Any, ClassVar, Final, Self, TypeAlias, Unpack

import gymnasium
from gymnasium.core import ActType, ObsType
from gymnasium.envs.registration import EnvSpec

from shioenv.domain.inputs import Session
from shioenv.env import rewards
from shioenv.env.scorer import Outcome, ScoredSession, Scorer, ScoringOptions, SessionScorer
from shioenv.env.spaces import is_shell_text
from shioenv.errors import EnvironmentOptionError, EpisodeError, did_you_mean, used_environment
from shioenv.text import short_repr

METADATA: Final[Mapping[str, Any]] = {"render_modes": ["ansi"], "render_fps": 4}

NO_ROOM: Final = "HORIZON"
"""The code of the only fault without a penalty: a bound would be exceeded."""

Step: TypeAlias = tuple[ObsType, float, bool, bool, dict[str, Any]]


class EpisodeOptions(ScoringOptions, total=False):
    """The options that all environments have in common."""

    start_directories: Iterable[str] | None
    """`reset` draws one of these start directories uniformly (None: those that the system
    declares)."""
    rewards: rewards.Reward
    """The reward function of an executed session (default: `irreducibility`)."""
    render_mode: str | None
    """`ansi`: `render` returns the session as text. None: `render` returns None."""


class SessionEnv(gymnasium.Env[ObsType, ActType]):
    """An environment in whose episodes a session is written, and at the end executed and scored.

    An environment can be copied and pickled before its first reset. The copy has the same options.
    """

    metadata: dict[str, Any] = dict(METADATA)  # noqa: RUF012
    sampler: str
    """The sampler's name in records."""
    resets_with: ClassVar[tuple[str, ...]] = ("cwd",)
    """The keys that `options` of `reset` may have."""

    def __new__(cls, *args: Any, **options: Any) -> Self:
        """Store the arguments, for making copies."""
        made = super().__new__(cls)
        made._made_with = args, options
        return made

    def __init__(
        self,
        system: str | None,
        max_length: int,
        horizon: int,
        **options: Unpack[EpisodeOptions],
    ) -> None:
        """Initialize the common part of an environment.

        A start directory has at most `max_length` characters. `horizon` is the number of arguments
        by which some rewards divide. Errors: EnvironmentOptionError, TypeError for an unknown
        option, and the errors of `SessionScorer`.
        """
        for name in options:
            if name not in _OPTIONS:
                allowed = {*signature(type(self)).parameters, *_OPTIONS} - {"options"}
                raise TypeError(
                    f"{type(self).__name__} got an unexpected keyword argument {name!r}; "
                    f"{did_you_mean(name, allowed)}"
                )
        directories = options.pop("start_directories", None)
        render_mode = options.pop("render_mode", None)
        self.rewards = options.pop("rewards", rewards.irreducibility)
        if not callable(self.rewards):
            raise EnvironmentOptionError(
                f"rewards is {self.rewards!r:.60}, which is not a function",
                hint="for example rewards=shioenv.env.rewards.necessary",
            )
        modes = METADATA["render_modes"]
        if render_mode is not None and render_mode not in modes:
            message = f"unknown render mode {render_mode!r}"
            raise EnvironmentOptionError(message, hint=did_you_mean(render_mode, modes))
        self.scorer: Scorer = SessionScorer(system, **options)  # type: ignore[misc]
        self.render_mode = render_mode
        self.horizon = horizon
        own = self.scorer.declaration.session.start_directories
        self.start_directories = checked_directories(
            own if directories is None else directories, max_length
        )
        self._made_with: tuple[tuple[Any, ...], dict[str, Any]]
        self._max_length = max_length
        self._cwd = self.start_directories[0]
        self._scored: Outcome | None = None
        self._running = False
        self._episodes = 0
        self._score_seed = 0

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the arguments for making a copy. Errors: EpisodeError after the first reset."""
        if self._episodes:
            raise used_environment()
        return _remade, (type(self), *self._made_with, self.spec)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[ObsType, dict[str, Any]]:
        """Begin an episode with an empty session, and return its first observation and info.

        The start directory is `options["cwd"]`. Without this option the environment's generator
        draws one of `start_directories` uniformly. Errors: EnvironmentOptionError for an unknown
        option, or for a text that is no start directory.
        """
        super().reset(seed=seed)
        # always draw directory and seed, so that options do not change later episodes
        cwd = self.start_directories[int(self.np_random.integers(len(self.start_directories)))]
        self._score_seed = int(self.np_random.integers(1 << 63))
        for name in options or {}:
            if name not in self.resets_with:
                message = f"reset has no option {name!r}"
                raise EnvironmentOptionError(
                    message, hint=did_you_mean(str(name), self.resets_with)
                )
        if options and "cwd" in options:
            (cwd,) = checked_directories((options["cwd"],), self._max_length)
        self._begin(cwd, options or {})
        self._cwd, self._scored, self._running = cwd, None, True
        self._episodes += 1
        return self._observation(), self._info()

    def step(self, action: ActType) -> Step[ObsType]:
        """Take an action, and return observation, reward, `terminated`, `truncated` and info.

        Errors: ActionError for a malformed action. EpisodeError if no episode is running. Errors of
        the sandbox leave the state unchanged: the action may be retried.
        """
        if not self._running:
            raise EpisodeError("no episode is running", hint="call reset first")
        return self._take(action)

    def render(self) -> str | None:
        """Return the session so far as text; after its execution, with output, exit code and score.

        None if the environment was made without `render_mode="ansi"`.
        """
        if self.render_mode is None:
            if self.spec is not None:
                made = f'gymnasium.make({self.spec.id!r}, render_mode="ansi")'
                gymnasium.logger.warn(f"render() needs a render mode: {made}")
            return None
        after = "" if self._scored is None else self._scored.to_text()
        return f"$ cd {self._cwd}\n{self._written()}{after}"

    def close(self) -> None:
        """Close the sandbox if this environment opened one; may be called any number of times."""
        self.scorer.close()

    @property
    def scored(self) -> ScoredSession | None:
        """The executed session with its complete score and its record; None before execution."""
        return self._scored if isinstance(self._scored, ScoredSession) else None

    def __repr__(self) -> str:
        return short_repr(self, {"sampler": self.sampler, "horizon": self.horizon})

    @property
    def outcome(self) -> Outcome | None:
        """The result of `scorer.score`; None before the session was scored."""
        return self._scored

    def _score(self, session: Session) -> Outcome:
        return self.scorer.score(
            session,
            self._score_seed,
            session_id=self._episodes - 1,
            sampler=self.sampler,
            horizon=self.horizon,
        )

    def _going_on(self) -> Step[ObsType]:
        return self._observation(), rewards.NOTHING, False, False, self._info()

    def _finished(self, scored: Outcome, *, truncated: bool = False) -> Step[ObsType]:
        self._scored, self._running = scored, False
        info = {**self._info(), **scored.info()}
        reward = scored.reward(self.rewards)
        return self._observation(), reward, True, truncated, info

    def _refused(self, fault: StrEnum) -> Step[ObsType]:
        self._running = False
        reward = rewards.NOTHING if fault == NO_ROOM else rewards.INVALID
        return self._observation(), reward, True, False, {**self._info(), "error": fault.value}

    def _info(self) -> dict[str, Any]:
        return {**self._facts(), "error": None}

    @abstractmethod
    def _begin(self, cwd: str, options: Mapping[str, Any]) -> None:
        """Reset the state for an episode in `cwd`. Errors: EnvironmentOptionError."""

    @abstractmethod
    def _take(self, action: ActType) -> Step[ObsType]:
        """Take an action of a running episode; return the results in the form of `step`."""

    @abstractmethod
    def _observation(self) -> ObsType:
        """Return the observation of the state."""

    @abstractmethod
    def _facts(self) -> dict[str, Any]:
        """Return the entries of `info` that describe the state."""

    @abstractmethod
    def _written(self) -> str:
        """Return the state as lines of text."""


_OPTIONS: Final = EpisodeOptions.__optional_keys__


def _remade(
    kind: type[SessionEnv[Any, Any]],
    args: tuple[Any, ...],
    options: dict[str, Any],
    spec: EnvSpec | None,
) -> SessionEnv[Any, Any]:
    """Return a new environment with the same options."""
    env = kind(*args, **options)
    env.spec = spec
    return env


def checked_directories(directories: Iterable[str], max_length: int) -> tuple[str, ...]:
    """Check the syntax of start directories and return them as a tuple.

    Whether they exist in the system is checked at execution. Errors: EnvironmentOptionError if
    there is none, or if one is no absolute path on one line of at most `max_length` characters.
    """
    named = (directories,) if isinstance(directories, str) else tuple(directories)
    if not named:
        raise EnvironmentOptionError("start_directories is empty", hint="give at least one")
    for directory in named:
        valid = isinstance(directory, str) and directory.startswith("/")
        if not valid or len(directory) > max_length or not is_shell_text(directory):
            raise EnvironmentOptionError(
                f"invalid start directory {directory!r}",
                hint=f"give an absolute path of at most {max_length} characters on one line",
            )
    return named
