"""`ShIOEnv-v0`: write a session argument by argument, then have it executed and scored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, TypeAlias

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

from shioenv.domain.argument import Argument
from shioenv.domain.inputs import Input, Session
from shioenv.env import rewards
from shioenv.env.execution import (
    Executor,
    Outcome,
    RunnerSource,
    require_count,
    scoring_of,
    shown,
)
from shioenv.env.spaces import (
    ACTION_FIELDS,
    MAX_ARGUMENT_LENGTH,
    PADDING,
    action_space,
    grid_space,
    is_shell_text,
)
from shioenv.errors import (
    ActionError,
    EnvironmentOptionError,
    EpisodeError,
    InputError,
    did_you_mean,
)
from shioenv.irreducibility.scoring import Scoring
from shioenv.sandbox.base import Limits

MAX_COMMANDS: Final = 1
MAX_SEGMENTS: Final = 3
MAX_ARGUMENTS: Final = 12

CELLS_BESIDE_ARGUMENTS: Final = 4
"""What a segment's cells hold beside arguments: command, operator, redirection and its target."""

METADATA: Final[Mapping[str, Any]] = {"render_modes": ["ansi"], "render_fps": 4}

SAMPLER: Final = "env"
"""What a record names as the writer of its input."""

Grid: TypeAlias = tuple[tuple[str, ...], ...]
Action: TypeAlias = Mapping[str, Any] | Sequence[Any]


class Fault(StrEnum):
    """Why an action ended the episode without an execution: the codes of `info["error"]`."""

    EXEC_WITH_INPUT = "EXEC_WITH_INPUT"
    """The executing action brings text."""
    FLAGS_BOTH_SET = "FLAGS_BOTH_SET"
    """Execute and begin a row at once."""
    TOO_LONG = "TOO_LONG"
    """The text has more characters than a cell."""
    EMPTY_INPUT = "EMPTY_INPUT"
    """There is no text to add, or nothing but no-space marks."""
    BAD_CHAR = "BAD_CHAR"
    """The text holds a NUL, a newline, or what UTF-8 cannot hold."""
    NO_COMMAND = "NO_COMMAND"
    """No row has been begun that could be appended to, or executed."""
    HORIZON = "HORIZON"
    """The row, or the session, is full. The only one that costs nothing."""


class ShIOEnv(gymnasium.Env[Grid, Action]):
    """A shell session as a Markov decision process (Sections 3.1 and C.1).

    An action is a dictionary, or the paper's triple in the same order: `input_addition` (0 to 64
    characters, with its no-space marks: `-l<ns>`), `exec_action` and `new_global` (0 or 1). It
    appends a cell to the current row, begins a row, or executes; operators (`| && || ; > >>`) are
    cells of their own. The observation is the whole state: `max_commands + 1` rows of
    `max_segments * (max_arguments + 4)` cells, padded with "", row 0 being ("cd", start directory).

    The executing action ends the episode (`terminated`). Its reward is the irreducibility of what
    was written, 0 where that is undefined, and its info holds every field of a dataset record. So
    does filling the last cell of the last row, with `truncated` as well. All other rewards are 0,
    except -10 for an action against the rules: it ends the episode, changes and executes nothing,
    and `info["error"]` says which rule (`Fault`). Going past the last cell of a row or past the
    last row ends it likewise, at reward 0 (D-1).

    `info` always holds `h` (current row), `l` (cells written in it), `cwd`, `row_full` and `error`
    (None or a code). No sandbox is opened before the first execution.
    """

    metadata: dict[str, Any] = dict(METADATA)  # noqa: RUF012

    def __init__(
        self,
        system: str | None = None,
        *,
        max_commands: int = MAX_COMMANDS,
        max_segments: int = MAX_SEGMENTS,
        max_arguments: int = MAX_ARGUMENTS,
        max_argument_length: int = MAX_ARGUMENT_LENGTH,
        budget: int | None = None,
        scoring: Scoring | None = None,
        limits: Limits | None = None,
        start_directories: Iterable[str] | None = None,
        runner: RunnerSource | None = None,
        render_mode: str | None = None,
    ) -> None:
        """Make the environment; nothing is executed or opened yet.

        `system` is a declared system's name (default: the default system). `max_commands` counts
        the rows after row 0. `max_segments` and `max_arguments` size the rows; what one command of
        a row leaves of it another may use. `scoring` says how
        sessions are scored, `budget` the same where nothing but that is to be said.
        `start_directories` (default: the system's own) are what `reset` draws from. `runner`
        replaces the sandbox: anything with its `run`, or a callable that opens one; the latter is
        closed with the environment, an runner stays its owner's. Errors: UnknownSystemError,
        EnvironmentOptionError.
        """
        self.max_commands = require_count("max_commands", max_commands)
        self.columns = require_count("max_segments", max_segments) * (
            require_count("max_arguments", max_arguments) + CELLS_BESIDE_ARGUMENTS
        )
        self.max_argument_length = require_count("max_argument_length", max_argument_length)
        self.render_mode = checked_render_mode(render_mode)
        self.executor = Executor(
            system, scoring=scoring_of(scoring, budget), limits=limits, runner=runner
        )
        self.start_directories = directories_of(
            self.executor, start_directories, self.max_argument_length
        )
        self.action_space = action_space(self.max_argument_length)
        self.observation_space = grid_space(
            self.max_commands + 1, self.columns, self.max_argument_length
        )
        self._cwd = self.start_directories[0]
        self._rows: list[tuple[str, ...]] = []
        self._outcome: Outcome | None = None
        self._running = False
        self._episodes = 0
        self._score_seed = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Grid, dict[str, Any]]:
        """A session in which nothing but row 0 is written.

        The start directory is drawn uniformly from `start_directories` by the environment's own
        generator, or is `options["cwd"]`. Errors: EnvironmentOptionError for another option.
        """
        super().reset(seed=seed)
        self._cwd, self._score_seed = begin(
            self.np_random, self.start_directories, options, self.max_argument_length
        )
        self._rows = []
        self._outcome = None
        self._running = True
        self._episodes += 1
        return self._observation(), self._info()

    def step(self, action: Action) -> tuple[Grid, float, bool, bool, dict[str, Any]]:
        """One action's observation, reward, `terminated`, `truncated` and info.

        Errors: ActionError for what is no action at all; EpisodeError where no episode is running;
        what the sandbox raises, and then the state is as before and the action may be repeated.
        """
        if not self._running:
            raise EpisodeError("no episode is running", hint="call reset first")
        text, execute, begin_row = read_action(action)
        fault = self._fault(text, execute=execute, begin_row=begin_row)
        if fault is not None:
            self._running = False
            reward = rewards.NOTHING if fault is Fault.HORIZON else rewards.INVALID
            return self._observation(), reward, True, False, self._info(fault)
        if execute:
            return self._executed(self._rows, truncated=False)
        rows = [*self._rows, (text,)] if begin_row else [*self._rows[:-1], (*self._rows[-1], text)]
        if len(rows) == self.max_commands and len(rows[-1]) == self.columns:
            return self._executed(rows, truncated=True)
        self._rows = rows
        return self._observation(), rewards.NOTHING, False, False, self._info()

    def render(self) -> str | None:
        """The session as text, with output, exit code and score once it was executed.

        None where the environment was made without `render_mode="ansi"`.
        """
        if self.render_mode is None:
            warn_without_mode(self.spec)
            return None
        prompt = "".join(f"$ {row.text}\n" for row in self.session.rows)
        after = "" if self._outcome is None else shown(self._outcome)
        return f"$ cd {self._cwd}\n{prompt}{after}"

    def close(self) -> None:
        """Close the sandbox, where one was opened here; any number of calls."""
        self.executor.close()

    @property
    def session(self) -> Session:
        """What has been written so far."""
        return Session(self._cwd, tuple(Input.from_marked(row) for row in self._rows))

    @property
    def outcome(self) -> Outcome | None:
        """The score with all its parts, and the record, once the session was executed."""
        return self._outcome

    def _fault(self, text: str, *, execute: bool, begin_row: bool) -> Fault | None:
        if execute:
            if text:
                return Fault.EXEC_WITH_INPUT
            if begin_row:
                return Fault.FLAGS_BOTH_SET
            return None if self._rows else Fault.NO_COMMAND
        if len(text) > self.max_argument_length:
            return Fault.TOO_LONG
        if not is_shell_text(text):
            return Fault.BAD_CHAR
        try:
            Argument.parse(text)
        except InputError:
            return Fault.EMPTY_INPUT
        if begin_row:
            return Fault.HORIZON if len(self._rows) == self.max_commands else None
        if not self._rows:
            return Fault.NO_COMMAND
        return Fault.HORIZON if len(self._rows[-1]) == self.columns else None

    def _executed(
        self, rows: list[tuple[str, ...]], *, truncated: bool
    ) -> tuple[Grid, float, bool, bool, dict[str, Any]]:
        session = Session(self._cwd, tuple(Input.from_marked(row) for row in rows))
        outcome = self.executor.execute(
            session, self._score_seed, session_id=self._episodes - 1, sampler=SAMPLER
        )
        self._rows, self._outcome, self._running = rows, outcome, False
        info = {**self._info(), **outcome.info()}
        reward = rewards.terminal_reward(outcome.score)
        return self._observation(), reward, True, truncated, info

    def _observation(self) -> Grid:
        written = [("cd", self._cwd), *self._rows]
        padding = ((),) * (self.max_commands + 1 - len(written))
        return tuple(row + (PADDING,) * (self.columns - len(row)) for row in (*written, *padding))

    def _info(self, fault: Fault | None = None) -> dict[str, Any]:
        length = len(self._rows[-1]) if self._rows else len(("cd", self._cwd))
        return {
            "h": len(self._rows),
            "l": length,
            "cwd": self._cwd,
            "row_full": length == self.columns,
            "error": None if fault is None else fault.value,
        }


def checked_render_mode(mode: str | None) -> str | None:
    """The render mode. Errors: EnvironmentOptionError for one that no environment here has."""
    modes = METADATA["render_modes"]
    if mode is not None and mode not in modes:
        message = f"no render mode is called {mode!r}"
        raise EnvironmentOptionError(message, hint=did_you_mean(mode, modes))
    return mode


def warn_without_mode(spec: EnvSpec | None) -> None:
    """Tell who renders without a mode how to make the environment, as Gymnasium's own do."""
    if spec is not None:
        gymnasium.logger.warn(
            f'nothing is rendered without a mode: gymnasium.make({spec.id!r}, render_mode="ansi")'
        )


def begin(
    generator: np.random.Generator,
    directories: Sequence[str],
    options: Mapping[str, Any] | None,
    max_length: int,
) -> tuple[str, int]:
    """An episode's start directory and the seed of its score.

    Both are drawn whatever the options say, so they shift no later episode. Errors:
    EnvironmentOptionError for an option that is none, or a directory that cannot be one.
    """
    cwd = directories[int(generator.integers(len(directories)))]
    seed = int(generator.integers(1 << 63))
    for name in options or {}:
        if name != "cwd":
            message = f"reset has no option {name!r}"
            raise EnvironmentOptionError(message, hint=did_you_mean(str(name), ["cwd"]))
    if options and "cwd" in options:
        (cwd,) = checked_directories((options["cwd"],), max_length)
    return cwd, seed


def directories_of(
    executor: Executor, given: Iterable[str] | None, max_length: int
) -> tuple[str, ...]:
    """What `reset` draws from: the given directories, else the system's own.

    Errors: EnvironmentOptionError.
    """
    own = executor.declaration.session.start_directories
    return checked_directories(own if given is None else given, max_length)


def checked_directories(directories: Iterable[str], max_length: int) -> tuple[str, ...]:
    """The start directories. Errors: EnvironmentOptionError where one cannot stand in a cell.

    Whether they exist in the system shows when something is executed there.
    """
    found = (directories,) if isinstance(directories, str) else tuple(directories)
    if not found:
        raise EnvironmentOptionError("there is no start directory", hint="name at least one")
    for directory in found:
        valid = isinstance(directory, str) and directory.startswith("/")
        if not valid or len(directory) > max_length or not is_shell_text(directory):
            raise EnvironmentOptionError(
                f"{directory!r} is no start directory",
                hint=f"it is an absolute path of at most {max_length} characters on one line",
            )
    return found


def read_action(action: Action) -> tuple[str, bool, bool]:
    """The text, whether to execute, whether to begin a row, from a dictionary or a triple.

    Errors: ActionError.
    """
    if isinstance(action, Mapping):
        for name in (*ACTION_FIELDS, *action):
            if name not in action:
                raise ActionError(f"an action lacks {name!r}", hint=f"it has {_FIELDS}")
            if name not in ACTION_FIELDS:
                hint = did_you_mean(str(name), ACTION_FIELDS)
                raise ActionError(f"an action has no field {name!r}", hint=hint)
        text, execute, begin_row = (action[name] for name in ACTION_FIELDS)
    elif isinstance(action, (tuple, list)) and len(action) == len(ACTION_FIELDS):
        text, execute, begin_row = action
    else:
        raise ActionError(
            f"{action!r} is no action", hint=f"it is a dictionary or triple of {_FIELDS}"
        )
    if not isinstance(text, str):
        raise ActionError(f"input_addition is {text!r}", hint="it is a text")
    return str(text), _flag("exec_action", execute), _flag("new_global", begin_row)


_FIELDS: Final = ", ".join(ACTION_FIELDS)


def _flag(name: str, value: Any) -> bool:
    if np.ndim(value) == 0:
        for flag in (0, 1):
            if value == flag:
                return bool(flag)
    raise ActionError(f"{name} is {value!r}", hint="it is 0 or 1")
