"""`ShIOEnv-v0`: write a session argument by argument, then execute and score it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, TypeAlias, Unpack

import numpy as np

from shioenv.domain.inputs import Argument, Input, Session
from shioenv.env.scorer import require_count
from shioenv.env.session_env import EpisodeOptions, SessionEnv, Step
from shioenv.env.spaces import (
    ACTION_FIELDS,
    MAX_ARGUMENT_LENGTH,
    PADDING,
    action_space,
    grid_space,
    is_shell_text,
)
from shioenv.errors import ActionError, InputError, did_you_mean

MAX_COMMANDS: Final = 1
MAX_SEGMENTS: Final = 3
MAX_ARGUMENTS: Final = 12

CELLS_BESIDE_ARGUMENTS: Final = 4
"""Cells of a segment besides arguments: command, operator, redirection and its target."""

Grid: TypeAlias = tuple[tuple[str, ...], ...]
Action: TypeAlias = Mapping[str, Any] | Sequence[Any]


class ActionFault(StrEnum):
    """The reasons that end an episode without an execution: the codes of `info["error"]`."""

    EXEC_WITH_INPUT = "EXEC_WITH_INPUT"
    """The executing action has text."""
    FLAGS_BOTH_SET = "FLAGS_BOTH_SET"
    """The action both executes and begins a row."""
    TOO_LONG = "TOO_LONG"
    """The text has more characters than a cell."""
    EMPTY_INPUT = "EMPTY_INPUT"
    """The text to add is empty, or has only no-space marks."""
    BAD_CHAR = "BAD_CHAR"
    """The text contains a NUL, a newline, or a character that UTF-8 cannot encode."""
    NO_COMMAND = "NO_COMMAND"
    """There is no row to append to, or to execute."""
    HORIZON = "HORIZON"
    """The action exceeds the number of rows, the commands or cells of a row, or the arguments of a
    command. Only this fault has no penalty."""


class ShIOEnv(SessionEnv[Grid, Action]):
    """A shell session as a Markov decision process (Sections 3.1 and C.1).

    An action is a dictionary, or the paper's triple in the same order: `input_addition`,
    `exec_action` and `new_global`. `input_addition` has 0 to 64 characters, no-space marks included
    (`-l<ns>`); the other two are 0 or 1. An action appends a cell to the current row, begins a row,
    or executes. Operators (`| && || ; > >>`) are separate cells.

    The observation is the whole state: `max_commands + 1` rows of `max_segments * (max_arguments +
    4)` cells. Row 0 is ("cd", start directory). Empty cells are "".

    The executing action ends the episode (`terminated`). The step's reward is the irreducibility of
    the session, or 0 if that is undefined. The step's info contains every field of a dataset
    record. Filling the last cell of the last row executes the session as well, and also sets
    `truncated`.

    All other rewards are 0, except -10 for an action against the rules. Such an action ends the
    episode, and nothing is changed or executed. `info["error"]` names the rule (`ActionFault`).
    Exceeding a bound ends the episode in the same way, but with reward 0 (D-1). The bounds are the
    rows, the cells and commands of a row, and the arguments of a command.

    `info` always contains `h` (the current row), `l` (number of cells in that row), `cwd`,
    `row_full` and `error` (None or a code). No sandbox is opened before the first execution.
    """

    sampler = "env"

    def __init__(
        self,
        system: str | None = None,
        *,
        max_commands: int = MAX_COMMANDS,
        max_segments: int = MAX_SEGMENTS,
        max_arguments: int = MAX_ARGUMENTS,
        max_argument_length: int = MAX_ARGUMENT_LENGTH,
        **options: Unpack[EpisodeOptions],
    ) -> None:
        """Prepare the environment; nothing is executed or opened yet.

        `system` is a declared system's name (default: the default system). `max_commands` is the
        maximum number of rows after row 0. `max_segments` limits the commands of a row, which are
        joined by operators, and `max_arguments` the arguments of each command. Operators, targets
        and the command's name do not count as arguments. The other options are those of
        `EpisodeOptions` and `ScoringOptions`. If `runner` is a callable, the runner that it opens
        is closed with the environment. A runner that is passed in is closed by the caller. Errors:
        UnknownSystemError, EnvironmentOptionError, UsageError, TypeError for an unknown option.
        """
        self.max_commands = require_count("max_commands", max_commands)
        self.max_segments = require_count("max_segments", max_segments)
        self.max_arguments = require_count("max_arguments", max_arguments)
        self.columns = self.max_segments * (self.max_arguments + CELLS_BESIDE_ARGUMENTS)
        self.max_argument_length = require_count("max_argument_length", max_argument_length)
        horizon = self.max_commands * self.max_segments * self.max_arguments
        super().__init__(system, self.max_argument_length, horizon, **options)
        self.action_space = action_space(self.max_argument_length)
        self.observation_space = grid_space(
            self.max_commands + 1, self.columns, self.max_argument_length
        )
        self._rows: list[tuple[str, ...]] = []

    def _begin(self, cwd: str, options: Mapping[str, Any]) -> None:
        self._rows = []

    def _take(self, action: Action) -> Step[Grid]:
        text, execute, begin_row = read_action(action)
        fault = self._fault(text, execute=execute, begin_row=begin_row)
        if fault is not None:
            return self._refused(fault)
        if execute:
            return self._executed(self._rows, truncated=False)
        rows = [*self._rows, (text,)] if begin_row else [*self._rows[:-1], (*self._rows[-1], text)]
        if len(rows) == self.max_commands and len(rows[-1]) == self.columns:
            return self._executed(rows, truncated=True)
        self._rows = rows
        return self._going_on()

    def _written(self) -> str:
        return "".join(f"$ {row.text}\n" for row in self.session.rows)

    @property
    def session(self) -> Session:
        """The session written so far."""
        return self._session(self._rows)

    def _session(self, rows: list[tuple[str, ...]]) -> Session:
        return Session(self._cwd, tuple(Input.from_marked(row) for row in rows))

    def _fault(self, text: str, *, execute: bool, begin_row: bool) -> ActionFault | None:
        if execute:
            if text:
                return ActionFault.EXEC_WITH_INPUT
            if begin_row:
                return ActionFault.FLAGS_BOTH_SET
            return None if self._rows else ActionFault.NO_COMMAND
        if len(text) > self.max_argument_length:
            return ActionFault.TOO_LONG
        if not is_shell_text(text):
            return ActionFault.BAD_CHAR
        try:
            Argument.parse(text)
        except InputError:
            return ActionFault.EMPTY_INPUT
        if begin_row:
            return ActionFault.HORIZON if len(self._rows) == self.max_commands else None
        if not self._rows:
            return ActionFault.NO_COMMAND
        return None if self._is_within((*self._rows[-1], text)) else ActionFault.HORIZON

    def _is_within(self, row: tuple[str, ...]) -> bool:
        """Whether a row is within all bounds; without its last cell, it was."""
        if len(row) > self.columns:
            return False
        segments = Input.from_marked(row).segments
        arguments = segments[-1].arguments if segments else ()  # none in a row of operators
        return len(segments) <= self.max_segments and len(arguments) <= self.max_arguments

    def _executed(self, rows: list[tuple[str, ...]], *, truncated: bool) -> Step[Grid]:
        scored = self._score(self._session(rows))
        self._rows = rows
        return self._finished(scored, truncated=truncated)

    def _observation(self) -> Grid:
        written = [("cd", self._cwd), *self._rows]
        padding = ((),) * (self.max_commands + 1 - len(written))
        return tuple(row + (PADDING,) * (self.columns - len(row)) for row in (*written, *padding))

    def _facts(self) -> dict[str, Any]:
        length = len(self._rows[-1]) if self._rows else len(("cd", self._cwd))
        return {
            "h": len(self._rows),
            "l": length,
            "cwd": self._cwd,
            "row_full": length == self.columns,
        }


def read_action(action: Action) -> tuple[str, bool, bool]:
    """Return the text of an action, whether to execute, and whether to begin a row.

    The action is a dictionary or a triple. Errors: ActionError for anything else.
    """
    if isinstance(action, Mapping):
        for name in (*ACTION_FIELDS, *action):
            if name not in action:
                raise ActionError(f"an action has no field {name!r}", hint=f"fields: {_FIELDS}")
            if name not in ACTION_FIELDS:
                hint = did_you_mean(str(name), ACTION_FIELDS)
                raise ActionError(f"unknown field {name!r} of an action", hint=hint)
        text, execute, begin_row = (action[name] for name in ACTION_FIELDS)
    elif isinstance(action, (tuple, list)) and len(action) == len(ACTION_FIELDS):
        text, execute, begin_row = action
    else:
        raise ActionError(
            f"invalid action {action!r}", hint=f"give a dictionary or triple of {_FIELDS}"
        )
    if not isinstance(text, str):
        raise ActionError(f"input_addition is {text!r}", hint="give a text")
    return str(text), _flag("exec_action", execute), _flag("new_global", begin_row)


_FIELDS: Final = ", ".join(ACTION_FIELDS)


def _flag(name: str, value: Any) -> bool:
    if np.ndim(value) == 0:
        for flag in (0, 1):
            if value == flag:
                return bool(flag)
    raise ActionError(f"{name} is {value!r}", hint="give 0 or 1")
