"""Observation and action spaces: shell text as a Gymnasium space, grids of texts, and actions.

Gymnasium's `Text` stores the permitted characters in tables, and every cell of a vectorised grid
has a copy. For all of Unicode the copies take too much memory. `ShellText` checks texts by a rule
instead.
"""

from __future__ import annotations

import string
from typing import Any, Final

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

MAX_ARGUMENT_LENGTH: Final = 64
"""Maximum number of characters in a cell, and in an action's text (Section C.1.1)."""

PADDING: Final = ""
"""The text of an empty cell."""

SAMPLED: Final = frozenset(string.ascii_letters + string.digits + string.punctuation + " ")
"""The characters of sampled texts: printable ASCII. Texts of the space may contain many others."""

ACTION_FIELDS: Final = ("input_addition", "exec_action", "new_global")
"""The fields of an action, in the order of the paper's triple (Section C.1.2)."""


def is_shell_text(text: str) -> bool:
    """Whether `text` is valid in a row of shell input: UTF-8 without NUL and newline.

    Lone surrogates have no UTF-8 encoding, NUL ends a string for the kernel, and a newline would
    end the row.
    """
    if "\0" in text or "\n" in text:
        return False
    return text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)


class ShellText(spaces.Text):
    """The texts of 0 to `max_length` characters for which `is_shell_text` holds.

    Sampling draws printable ASCII.
    """

    def __init__(self, max_length: int = MAX_ARGUMENT_LENGTH, *, seed: int | None = None) -> None:
        super().__init__(max_length, min_length=0, charset=SAMPLED, seed=seed)

    def contains(self, x: Any) -> bool:
        """Whether `x` is a text of the space."""
        return isinstance(x, str) and len(x) <= self.max_length and is_shell_text(x)

    def __eq__(self, other: object, /) -> bool:
        return isinstance(other, ShellText) and other.max_length == self.max_length

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"ShellText({self.max_length})"


def action_space(max_length: int = MAX_ARGUMENT_LENGTH) -> spaces.Dict:
    """Return the space of actions: a text, whether to execute, whether to begin a row (E3)."""
    text, execute, begin = ACTION_FIELDS
    return spaces.Dict(
        {text: ShellText(max_length), execute: spaces.Discrete(2), begin: spaces.Discrete(2)}
    )


def grid_space(rows: int, columns: int, max_length: int = MAX_ARGUMENT_LENGTH) -> spaces.Tuple[Any]:
    """Return the space of observations: `rows` tuples of `columns` texts each (E8)."""
    return spaces.Tuple(
        [spaces.Tuple([ShellText(max_length) for _ in range(columns)]) for _ in range(rows)]
    )


def code_points(text: str, length: int) -> NDArray[np.int32]:
    """Return the text's code points, (length,), padded with 0."""
    points = np.zeros(length, dtype=np.int32)  # (length,)
    points[: len(text)] = [ord(char) for char in text]
    return points


def text_of(points: NDArray[np.integer[Any]]) -> str:
    """Return the text of code points that are padded with 0."""
    return "".join(map(chr, points[: np.count_nonzero(points)].tolist()))
