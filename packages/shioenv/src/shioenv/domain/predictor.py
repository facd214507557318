"""Predictors by name: `sandbox`, `memory:DATASET`, `command:./mine.py`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import EntryPoint
from typing import Any, Protocol, runtime_checkable

from shioenv.domain.runner import Runner
from shioenv.errors import MissingExtraError, PredictorError, did_you_mean
from shioenv.guests import installed_points

GROUP = "shioenv.predictors"
"""The entry-point group for predictors of installed packages."""

START_SECONDS = 120.0
"""Default time limit, in seconds, for a program to start: it may load a model first."""

REPLY_SECONDS = 30.0
"""Default time limit, in seconds, for an answer."""

BROUGHT_BY = {
    "eval": "sandbox trivial errors recording command bashkit just-bash cowrie llm",
    "model": "default memory memory-plain seq2seq",
}
"""The predictors provided by each extra of this package. Only error messages use this table."""


class PatchLevel(StrEnum):
    """The part of a context patch that a predictor knows, or that is compared."""

    OUTPUT = "output"
    """No part of the patch. Only comparisons use this level; every predictor knows more."""
    FILES = "files"
    """Names of added, removed and changed files."""
    FULL = "full"
    """The whole context: owners, sizes, variables, the working directory."""


class Predictor(Runner, Protocol):
    """A runner that is evaluated.

    All of the following are optional. `close()` is called after the last question. `make_ready()`
    is called after each answer, and its time is not counted as part of an answer. `together(ask,
    questions)` returns the results of `ask` for up to `at_once` questions. `install` and `shell`
    are copied into the scripts of `shioenv conform` that reproduce a difference. `training` is the
    training data: the path of a dataset or of a file of inputs, or a `Training`.
    """

    @property
    def version(self) -> str:
        """The predictor's exact version, shown in every result."""
        ...

    @property
    def patch_level(self) -> PatchLevel | str:
        """The level of the predictor's patches: `full`, or `files` if it knows only names."""
        ...


@runtime_checkable
class Training(Protocol):
    """The inputs that a predictor was trained on.

    The object is pickled and used in another process.

    Errors: those of reading the training data.
    """

    @property
    def data(self) -> str:
        """The name of the training data, for display."""
        ...

    def __len__(self) -> int:
        """The number of inputs."""
        ...

    def has_text(self, text: str) -> bool:
        """Whether this input is in the training data; differences in white space are ignored."""
        ...

    def has_form(self, form: str | None) -> bool:
        """Whether one of the inputs has this normal form (`shioenv.bash.normal`)."""
        ...


@dataclass(frozen=True, slots=True)
class Setting:
    """The arguments for constructing a predictor."""

    text: str
    """The text after the predictor's name and the colon."""
    system: str
    """The system on which the suite was recorded."""
    start: str
    """That system's first start directory."""
    start_seconds: float = START_SECONDS
    """Time limit, in seconds, for a program's answer to its first line."""
    reply_seconds: float = REPLY_SECONDS
    """Time limit, in seconds, for each later answer; infinite if the caller measures the time."""


Maker = Callable[[Setting], Any]


def predictor_names() -> list[str]:
    """Return the names of all installed predictors, sorted."""
    return sorted(installed_points(GROUP))


def find_predictor(name: str) -> EntryPoint:
    """Return the entry point of the predictor named by a text such as `memory:./dataset`.

    Errors: PredictorError for an unknown name. MissingExtraError if the predictor belongs to an
    extra of this package that is not installed.
    """
    head = name.partition(":")[0]
    installed = installed_points(GROUP)
    if head in installed:
        return installed[head]
    for extra, brought in BROUGHT_BY.items():
        if head in brought.split():
            raise MissingExtraError(f"the predictor {head}", extra, f"shioenv-{extra}")
    raise PredictorError(f"unknown predictor {head!r}", hint=did_you_mean(head, installed))


def make_predictor(name: str, system: str, start: str, **bounds: float) -> Predictor:
    """Create the predictor named by a text such as `memory:./dataset`, ready to answer.

    `bounds` are `start_seconds` and `reply_seconds` of the predictor's `Setting`. Errors: those of
    `find_predictor`, and any error of the predictor's constructor. Among these are PredictorError
    for a text that it does not accept, and HostError if this machine lacks something that it needs.
    """
    maker: Maker = find_predictor(name).load()
    made: Predictor = maker(Setting(name.partition(":")[2], system, start, **bounds))
    return made
