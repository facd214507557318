"""Optional wrappers of `ShIOEnv-v0`."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from gymnasium.utils import RecordConstructorArgs
from numpy.typing import NDArray

from shioenv.env.shio_env import Action, Grid
from shioenv.env.spaces import ShellText, code_points, text_of
from shioenv.errors import EnvironmentOptionError, did_you_mean

IntegerGrid: TypeAlias = NDArray[np.integer[Any]]

CODE_POINTS: Final = "code-points"
UTF_8: Final = "utf-8"
ENCODINGS: Final = (CODE_POINTS, UTF_8)

BYTES_PER_CHARACTER: Final = 4
"""Bytes of a character in UTF-8, at most."""


class IntegerObservation(
    gymnasium.ObservationWrapper[IntegerGrid, Action, Grid], RecordConstructorArgs
):
    """The observation as one array of fixed shape: rows x columns x units, padded with 0.

    A unit is a code point (int32, one per character). With `encoding="utf-8"` a unit is a byte
    (uint8, four per character). No text holds a NUL, so nothing is lost: `texts` gives the cells
    back. Use this for networks, and for `gymnasium.make_vec` with shared memory, which cannot carry
    nested text.
    """

    def __init__(self, env: gymnasium.Env[Grid, Action], encoding: str = CODE_POINTS) -> None:
        """Wrap an environment that observes a grid of texts.

        `encoding` is one of `ENCODINGS`. Errors: EnvironmentOptionError for another encoding, or
        for an environment that observes something else.
        """
        RecordConstructorArgs.__init__(self, encoding=encoding)
        gymnasium.ObservationWrapper.__init__(self, env)
        if encoding not in ENCODINGS:
            message = f"no encoding is called {encoding!r}"
            raise EnvironmentOptionError(message, hint=did_you_mean(encoding, ENCODINGS))
        space: Any = env.observation_space
        try:
            rows, columns, cell = len(space), len(space[0]), space[0][0]
        except (TypeError, IndexError, KeyError):
            cell = None
        if not isinstance(cell, ShellText):
            raise EnvironmentOptionError(f"{env} does not observe a grid of shell texts")
        self.encoding = encoding
        if encoding == CODE_POINTS:
            self._units = cell.max_length
            self.observation_space = Box(0, 0x10FFFF, (rows, columns, self._units), np.int32)
        else:
            self._units = cell.max_length * BYTES_PER_CHARACTER
            self.observation_space = Box(0, 255, (rows, columns, self._units), np.uint8)

    def observation(self, observation: Grid) -> IntegerGrid:
        """The grid as integers, (rows, columns, units)."""
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
    """The texts of the cells of an `IntegerObservation`; the dtype of `grid` tells its encoding."""
    if grid.dtype == np.uint8:
        return tuple(tuple(cell.tobytes().rstrip(b"\0").decode() for cell in row) for row in grid)
    return tuple(tuple(text_of(cell) for cell in row) for row in grid)
