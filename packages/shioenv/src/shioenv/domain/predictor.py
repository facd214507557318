"""Predictors by name: `sandbox`, `memory:DATASET`, `command:./mine.py`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import EntryPoint
from typing import Any, Protocol, runtime_checkable

from shioenv.domain.runner import Runner
from shioenv.errors import MissingExtraError, PredictorError, ShioenvError, did_you_mean
from shioenv.guests import installed_points

GROUP = "shioenv.predictors"
"""The group of entry points by which packages add predictors."""

START_SECONDS = 120.0
"""Seconds in which a program has to be ready by default: a program may load a model first."""

REPLY_SECONDS = 30.0
"""Seconds in which an answer has to come by default."""

BROUGHT_BY = {
    "eval": "sandbox trivial errors recording command bashkit just-bash cowrie llm",
    "model": "default memory memory-plain seq2seq",
}
"""The predictors that an extra of this package brings. Only errors name extras by this table."""


class PatchLevel(StrEnum):
    """How much of a context patch is known or compared."""

    OUTPUT = "output"
    """Nothing. A comparison may stop here; no predictor knows so little."""
    FILES = "files"
    """Which files were added, removed, changed."""
    FULL = "full"
    """All of the context: owners, sizes, variables, the working directory."""


class Predictor(Runner, Protocol):
    """A runner that is judged.

    `close()`, where a predictor has it, is called once nothing more is asked. `make_ready()`, where
    a predictor has it, is called after each answer; the time of this call counts for no answer.
    `together(ask, questions)`, where a predictor has it, gives what `ask` gives for each of at most
    `at_once` questions. `install` and `shell`, where a predictor has them, are as `Ready` says:
    they stand in scripts that show its differences. `training`, where a predictor has it, is what
    it was trained on: a dataset or a file of inputs by its path, or a `Training`.
    """

    @property
    def version(self) -> str:
        """What exactly the predictor is; every result shows it."""
        ...

    @property
    def patch_level(self) -> PatchLevel | str:
        """`full`, or `files` for a predictor that knows no owners."""
        ...


@runtime_checkable
class Training(Protocol):
    """The inputs that a predictor was trained on. It is pickled, and asked in another process.

    Errors: those of reading the training data.
    """

    @property
    def data(self) -> str:
        """The name of the training data, for people."""
        ...

    def __len__(self) -> int:
        """The number of inputs."""
        ...

    def has_text(self, text: str) -> bool:
        """Whether an input is among them; differences in white space do not count."""
        ...

    def has_form(self, form: str | None) -> bool:
        """Whether an input of this normal form is among them (`shioenv.bash.normal`)."""
        ...


@dataclass(frozen=True, slots=True)
class Setting:
    """What a predictor is made from."""

    text: str
    """The text behind the predictor's name and the colon."""
    system: str
    """The system that the suite was recorded on."""
    start: str
    """That system's first start directory."""
    start_seconds: float = START_SECONDS
    """Seconds in which a program has to answer its first line."""
    reply_seconds: float = REPLY_SECONDS
    """Seconds for a program's answer to each other line; infinite where the caller counts."""


Maker = Callable[[Setting], Any]


def predictor_names() -> list[str]:
    """The name of every installed predictor, sorted."""
    return sorted(installed_points(GROUP))


def find_predictor(name: str) -> EntryPoint:
    """The entry point of the predictor that a text such as `memory:./dataset` names.

    Errors: PredictorError for a name that no predictor has. MissingExtraError for a predictor that
    an extra brings which is not installed.
    """
    head = name.partition(":")[0]
    installed = installed_points(GROUP)
    if head in installed:
        return installed[head]
    for extra, brought in BROUGHT_BY.items():
        if head in brought.split():
            raise MissingExtraError(f"the predictor {head}", extra, f"shioenv-{extra}")
    raise PredictorError(f"no predictor is called {head!r}", hint=did_you_mean(head, installed))


def make_predictor(name: str, system: str, start: str, **bounds: float) -> Predictor:
    """The predictor that a text such as `memory:./dataset` names, ready to be asked.

    `bounds` are `start_seconds` and `reply_seconds` of its `Setting`. Errors: those of
    `find_predictor`. PredictorError for a text that the predictor cannot take. HostError where this
    machine lacks something that the predictor needs. What else its maker raises.
    """
    maker: Maker = find_predictor(name).load()
    made: Predictor = maker(Setting(name.partition(":")[2], system, start, **bounds))
    return made


def level_of(predictor: Any) -> PatchLevel:
    """A predictor's patch level; `full` where it does not say.

    Errors: PredictorError for another level than `full` and `files`.
    """
    said = getattr(predictor, "patch_level", PatchLevel.FULL)
    if said not in (PatchLevel.FULL, PatchLevel.FILES):
        raise PredictorError(f"a patch level is full or files, not {said!r}")
    return PatchLevel(said)


def unable(error: BaseException) -> str:
    """What went wrong, as one text, with the hint where the error has one."""
    if isinstance(error, ShioenvError):
        return f"{error.message}" + (f" ({error.hint})" if error.hint else "")
    return f"{type(error).__name__}: {error}"
