"""Optional wrappers of `ShIOEnv-v0` and `ShIOEnv-Grammar-v0`."""

from __future__ import annotations

from typing import Any, Final, SupportsInt, TypeAlias

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.spaces import Box
from gymnasium.utils import RecordConstructorArgs
from numpy.typing import NDArray

from shioenv.env.grammar_env import GrammarEnv, number_of
from shioenv.env.scorer import require_count
from shioenv.env.shio_env import Action, Grid
from shioenv.env.spaces import ShellText, code_points, text_of
from shioenv.errors import EnvironmentOptionError, did_you_mean

IntegerGrid: TypeAlias = NDArray[np.integer[Any]]

CODE_POINTS: Final = "code-points"
UTF_8: Final = "utf-8"
ENCODINGS: Final = (CODE_POINTS, UTF_8)

BYTES_PER_CHARACTER: Final = 4
"""Maximum number of bytes of a character in UTF-8."""


class IntegerObservation(
    gymnasium.ObservationWrapper[IntegerGrid, Action, Grid], RecordConstructorArgs
):
    """The observation as one array of fixed shape: rows x columns x units, padded with 0.

    A unit is a code point (int32, one per character). With `encoding="utf-8"` a unit is a byte
    (uint8, four per character). No text contains a NUL, so the encoding is lossless: `texts`
    decodes it. Use this for networks, and for `gymnasium.make_vec` with shared memory, which cannot
    transfer nested text.
    """

    def __init__(self, env: gymnasium.Env[Grid, Action], encoding: str = CODE_POINTS) -> None:
        """Wrap an environment whose observations are grids of texts.

        `encoding` is one of `ENCODINGS`. Errors: EnvironmentOptionError for another encoding, or
        for an environment with other observations.
        """
        RecordConstructorArgs.__init__(self, encoding=encoding)
        gymnasium.ObservationWrapper.__init__(self, env)
        if encoding not in ENCODINGS:
            message = f"unknown encoding {encoding!r}"
            raise EnvironmentOptionError(message, hint=did_you_mean(encoding, ENCODINGS))
        space: Any = env.observation_space
        try:
            rows, columns, cell = len(space), len(space[0]), space[0][0]
        except (TypeError, IndexError, KeyError):
            cell = None
        if not isinstance(cell, ShellText):
            raise EnvironmentOptionError(
                f"{env} has no observations that are a grid of shell texts"
            )
        self.encoding = encoding
        if encoding == CODE_POINTS:
            self._units = cell.max_length
            self.observation_space = Box(0, 0x10FFFF, (rows, columns, self._units), np.int32)
        else:
            self._units = cell.max_length * BYTES_PER_CHARACTER
            self.observation_space = Box(0, 255, (rows, columns, self._units), np.uint8)

    def observation(self, observation: Grid) -> IntegerGrid:
        """Return the grid as integers, (rows, columns, units)."""
        grid = np.zeros(self.observation_space.shape or (), self.observation_space.dtype)
        for row, texts in enumerate(observation):
            for column, text in enumerate(texts):
                if text:
                    grid[row, column] = self._encoded(text)  # (units,)
        return grid

    def _encoded(self, text: str) -> NDArray[np.integer[Any]]:
        if self.encoding == CODE_POINTS:
            return code_points(text, self._units)
        padded = text.encode().ljust(self._units, b"\0")
        return np.frombuffer(padded, np.uint8)


def texts(grid: IntegerGrid) -> Grid:
    """Decode the cells of an `IntegerObservation`; the dtype of `grid` determines the encoding."""
    if grid.dtype == np.uint8:
        return tuple(tuple(cell.tobytes().rstrip(b"\0").decode() for cell in row) for row in grid)
    return tuple(tuple(text_of(cell) for cell in row) for row in grid)


Tokens: TypeAlias = NDArray[np.int32]
Wrapped: TypeAlias = gymnasium.Env[Any, Any]

HISTORY: Final = 16
"""Default number of productions in a `ProductionHistory`."""

AHEAD: Final = 3
"""How many numbers precede the productions in a `ProductionHistory`: leftmost nonterminal, command,
number of arguments."""

ACTION_MASK: Final = "action_mask"
OBSERVATIONS: Final = "observations"


class LocalActions(gymnasium.Wrapper[Any, SupportsInt, Any, SupportsInt], RecordConstructorArgs):
    """Actions that are numbered among the permitted ones, so that far fewer numbers are needed.

    Action k is the k-th production that the mask permits. With all commands and `gcs` there are at
    most 96 actions instead of all 18,000. The masks (in the observation and in `info`, and
    `action_masks()`) have that length, and begin with a 1 for each permitted production. An action
    whose mask is 0 counts as a masked action.
    """

    def __init__(self, env: Wrapped) -> None:
        """Wrap a grammar environment. Errors: EnvironmentOptionError for another environment."""
        RecordConstructorArgs.__init__(self)
        gymnasium.Wrapper.__init__(self, env)
        self._inner = grammar_env_of(env)
        self.most = self._inner.tables.most
        self.action_space = spaces.Discrete(self.most)
        inner = env.observation_space
        if isinstance(inner, spaces.Dict) and ACTION_MASK in inner.spaces:
            masked = {**inner.spaces, ACTION_MASK: spaces.MultiBinary(self.most)}
            self.observation_space = spaces.Dict(masked)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Reset the environment; observation and info have the shorter mask."""
        return self._shortened(*self.env.reset(seed=seed, options=options))

    def step(self, action: SupportsInt) -> Any:
        """Take the permitted action with this number; observation and info have the shorter mask.

        Errors: those of the environment.
        """
        number = number_of(action, self.most)
        permitted = self._inner.permitted
        if number < len(permitted):
            taken = int(permitted[number])
        else:
            taken = int(np.argmin(self._inner.action_masks()))
        observation, reward, terminated, truncated, info = self.env.step(taken)
        return self._shortened(observation, info, (reward, terminated, truncated))

    def action_masks(self) -> NDArray[np.bool_]:
        """Return the mask of permitted actions, (actions,); all False if no episode is running."""
        return self._mask().astype(np.bool_)

    def _mask(self) -> NDArray[np.int8]:
        mask = np.zeros(self.most, np.int8)  # (actions,)
        mask[: self._inner.n_permitted] = 1
        return mask

    def _shortened(self, observation: Any, info: dict[str, Any], between: Any = ()) -> Any:
        info = {**info, ACTION_MASK: self._mask()}
        if isinstance(observation, dict) and ACTION_MASK in observation:
            observation = {**observation, ACTION_MASK: self._mask()}
        return observation, *between, info


class ProductionHistory(gymnasium.ObservationWrapper[Tokens, Any, Any], RecordConstructorArgs):
    """The observation as a few numbers: the next nonterminal and the latest productions.

    The numbers are the leftmost nonterminal, the first production (the command), the number of
    finished arguments, and the last `length` productions, the newest first. A missing number is 0.
    All numbers come from one vocabulary of `size` numbers. So a network needs only one embedding,
    whose vectors for the numbers are concatenated. The mask is in `info` and is returned by
    `action_masks()`.
    """

    def __init__(self, env: Wrapped, length: int = HISTORY) -> None:
        """Wrap a grammar environment.

        Errors: EnvironmentOptionError for another environment, or a length below 1.
        """
        RecordConstructorArgs.__init__(self, length=length)
        gymnasium.ObservationWrapper.__init__(self, env)
        self.length = require_count("length", length)
        self._inner = grammar_env_of(env)
        self._productions = 1 + self._inner.tables.nonterminals
        self._counts = self._productions + len(self._inner.productions)
        self.size = self._counts + self._inner.max_arguments + 2
        shape = (AHEAD + self.length,)
        self.observation_space = spaces.Box(0, self.size - 1, shape, np.int32)

    def observation(self, observation: Any) -> Tokens:
        """Return the numbers, (3 + length,), of the environment's state; ignore the argument."""
        inner = self._inner
        tokens = np.zeros(AHEAD + self.length, np.int32)  # (3 + length,)
        leftmost = inner.state.leftmost
        if leftmost is not None:
            tokens[0] = inner.tables.number[leftmost] - 1
        taken = inner.taken
        if taken:
            tokens[1] = self._productions + taken[0]
        arguments = min(inner.state.n_arguments, inner.max_arguments + 1)
        tokens[2] = self._counts + arguments
        newest = taken[: -self.length - 1 : -1]
        tokens[AHEAD : AHEAD + len(newest)] = [self._productions + number for number in newest]
        return tokens

    def action_masks(self) -> NDArray[np.bool_]:
        """Return the mask of the wrapped environment as booleans."""
        return action_masks_of(self.env)


class MaskedObservation(
    gymnasium.ObservationWrapper[dict[str, NDArray[np.float32]], Any, Any], RecordConstructorArgs
):
    """The observation as floats from 0 to 1, together with the action mask.

    This is the input format of RLlib's `ActionMaskingTorchRLModule`. `observations` is the wrapped
    observation without its mask, flattened. A number of a `Discrete` becomes a one-hot vector, and
    a number of a `Box` is scaled by its bounds. `action_mask` has a 1 for each permitted action.
    This must be the outermost of this module's wrappers.
    """

    def __init__(self, env: Wrapped) -> None:
        """Wrap a grammar environment.

        Errors: EnvironmentOptionError for another environment, or for observations that have no
        bounds.
        """
        RecordConstructorArgs.__init__(self)
        gymnasium.ObservationWrapper.__init__(self, env)
        grammar_env_of(env)
        self._unmasked = env.observation_space
        if isinstance(self._unmasked, spaces.Dict):
            others = {k: v for k, v in self._unmasked.spaces.items() if k != ACTION_MASK}
            self._unmasked = spaces.Dict(others)
        flat: Any = spaces.flatten_space(self._unmasked)
        if not (isinstance(flat, spaces.Box) and flat.is_bounded()):
            raise EnvironmentOptionError(f"{env} has unbounded observations")
        self._low = flat.low.astype(np.float64)  # (numbers,)
        self._range = np.maximum(flat.high - self._low, 1)
        actions: Any = env.action_space
        floats = spaces.Box(0, 1, flat.shape, np.float32)
        mask = spaces.Box(0, 1, (int(actions.n),), np.float32)
        masked: Any = spaces.Dict({OBSERVATIONS: floats, ACTION_MASK: mask})
        self.observation_space = masked

    def observation(self, observation: Any) -> dict[str, NDArray[np.float32]]:
        """Return the floats, (numbers,), and the mask, (actions,)."""
        flat = np.asarray(spaces.flatten(self._unmasked, observation), np.float64)
        return {
            OBSERVATIONS: ((flat - self._low) / self._range).astype(np.float32),
            ACTION_MASK: self.action_masks().astype(np.float32),
        }

    def action_masks(self) -> NDArray[np.bool_]:
        """Return the mask of the wrapped environment as booleans."""
        return action_masks_of(self.env)


def action_masks_of(env: Wrapped) -> NDArray[np.bool_]:
    """Return the mask of a wrapped grammar environment's permitted actions, (actions,)."""
    masks: NDArray[np.bool_] = env.get_wrapper_attr("action_masks")()
    return masks


def grammar_env_of(env: Wrapped) -> GrammarEnv:
    """Return the grammar environment inside all wrappers.

    EnvironmentOptionError if there is none.
    """
    inner = env.unwrapped
    if not isinstance(inner, GrammarEnv):
        raise EnvironmentOptionError(f"{env} has no grammar environment inside")
    return inner
