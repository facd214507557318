"""What both environments do: begin an episode, have its session scored, end it, show it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, ClassVar, Final, TypeAlias

import gymnasium
from gymnasium.core import ActType, ObsType

from shioenv.domain.inputs import Session
from shioenv.env import rewards
from shioenv.env.scorer import ScoredSession, SessionScorer, shown
from shioenv.env.spaces import is_shell_text
from shioenv.errors import EnvironmentOptionError, EpisodeError, did_you_mean

METADATA: Final[Mapping[str, Any]] = {"render_modes": ["ansi"], "render_fps": 4}

NO_ROOM: Final = "HORIZON"
"""The one fault that costs nothing: there is no room left."""

Step: TypeAlias = tuple[ObsType, float, bool, bool, dict[str, Any]]


class SessionEnv(gymnasium.Env[ObsType, ActType]):
    """An environment whose episodes write a session, which is executed and scored at the end."""

    metadata: dict[str, Any] = dict(METADATA)  # noqa: RUF012
    sampler: ClassVar[str]
    """What a record names as the writer of its input."""

    def __init__(
        self,
        scorer: SessionScorer,
        start_directories: Iterable[str] | None,
        max_length: int,
        render_mode: str | None,
    ) -> None:
        """Make what is common: `max_length` is the number of characters of a start directory.

        Errors: EnvironmentOptionError.
        """
        modes = METADATA["render_modes"]
        if render_mode is not None and render_mode not in modes:
            message = f"no render mode is called {render_mode!r}"
            raise EnvironmentOptionError(message, hint=did_you_mean(render_mode, modes))
        own = scorer.declaration.session.start_directories
        self.render_mode = render_mode
        self.scorer = scorer
        self.start_directories = checked_directories(
            own if start_directories is None else start_directories, max_length
        )
        self._max_length = max_length
        self._cwd = self.start_directories[0]
        self._scored: ScoredSession | None = None
        self._running = False
        self._episodes = 0
        self._score_seed = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[ObsType, dict[str, Any]]:
        """An episode in which nothing is written yet.

        The start directory is drawn uniformly from `start_directories` by the environment's own
        generator, or is `options["cwd"]`. Errors: EnvironmentOptionError for another option, or a
        directory that cannot be one.
        """
        super().reset(seed=seed)
        # both are drawn whatever the options say, so that they shift no later episode
        cwd = self.start_directories[int(self.np_random.integers(len(self.start_directories)))]
        self._score_seed = int(self.np_random.integers(1 << 63))
        for name in options or {}:
            if name != "cwd":
                message = f"reset has no option {name!r}"
                raise EnvironmentOptionError(message, hint=did_you_mean(str(name), ["cwd"]))
        if options and "cwd" in options:
            (cwd,) = checked_directories((options["cwd"],), self._max_length)
        self._begin(cwd)
        self._cwd, self._scored, self._running = cwd, None, True
        self._episodes += 1
        return self._observation(), self._info()

    def step(self, action: ActType) -> Step[ObsType]:
        """One action's observation, reward, `terminated`, `truncated` and info.

        Errors: ActionError for what is no action at all; EpisodeError where no episode is running;
        what the sandbox raises, and then the state is as before and the action may be repeated.
        """
        if not self._running:
            raise EpisodeError("no episode is running", hint="call reset first")
        return self._take(action)

    def render(self) -> str | None:
        """What is written, with output, exit code and score once it was executed.

        None where the environment was made without `render_mode="ansi"`.
        """
        if self.render_mode is None:
            if self.spec is not None:
                made = f'gymnasium.make({self.spec.id!r}, render_mode="ansi")'
                gymnasium.logger.warn(f"nothing is rendered without a mode: {made}")
            return None
        after = "" if self._scored is None else shown(self._scored)
        return f"$ cd {self._cwd}\n{self._written()}{after}"

    def close(self) -> None:
        """Close the sandbox, where one was opened here; any number of calls."""
        self.scorer.close()

    @property
    def scored(self) -> ScoredSession | None:
        """The score with all its parts, and the record, once the session was executed."""
        return self._scored

    def _score(self, session: Session) -> ScoredSession:
        return self.scorer.score(
            session, self._score_seed, session_id=self._episodes - 1, sampler=self.sampler
        )

    def _going_on(self) -> Step[ObsType]:
        return self._observation(), rewards.NOTHING, False, False, self._info()

    def _finished(self, scored: ScoredSession, *, truncated: bool = False) -> Step[ObsType]:
        self._scored, self._running = scored, False
        info = {**self._info(), **scored.info()}
        reward = rewards.terminal_reward(scored.score)
        return self._observation(), reward, True, truncated, info

    def _refused(self, fault: StrEnum) -> Step[ObsType]:
        self._running = False
        reward = rewards.NOTHING if fault == NO_ROOM else rewards.INVALID
        return self._observation(), reward, True, False, {**self._info(), "error": fault.value}

    def _info(self) -> dict[str, Any]:
        return {**self._facts(), "error": None}

    @abstractmethod
    def _begin(self, cwd: str) -> None:
        """Makes the state that of a new episode. EnvironmentOptionError where none can be there."""

    @abstractmethod
    def _take(self, action: ActType) -> Step[ObsType]:
        """What `step` gives while an episode is running."""

    @abstractmethod
    def _observation(self) -> ObsType:
        """The state as it is observed."""

    @abstractmethod
    def _facts(self) -> dict[str, Any]:
        """What `info` holds of the state."""

    @abstractmethod
    def _written(self) -> str:
        """The state as lines of text."""


def checked_directories(directories: Iterable[str], max_length: int) -> tuple[str, ...]:
    """The start directories. Errors: EnvironmentOptionError where one cannot stand in a cell.

    Whether they exist in the system shows when something is executed there.
    """
    named = (directories,) if isinstance(directories, str) else tuple(directories)
    if not named:
        raise EnvironmentOptionError("there is no start directory", hint="name at least one")
    for directory in named:
        valid = isinstance(directory, str) and directory.startswith("/")
        if not valid or len(directory) > max_length or not is_shell_text(directory):
            raise EnvironmentOptionError(
                f"{directory!r} is no start directory",
                hint=f"it is an absolute path of at most {max_length} characters on one line",
            )
    return named
