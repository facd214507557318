"""Predictors by name: `sandbox`, `memory:DATASET`, `command:./mine.py`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pkgutil import resolve_name
from typing import Any, Protocol

from shioenv.domain.runner import Runner
from shioenv.errors import PredictorError, ShioenvError, did_you_mean
from shioenv.evaluation.metrics import PatchLevel

GROUP = "shioenv.predictors"
"""The group of entry points by which other packages add predictors."""

START_SECONDS = 120.0
"""Seconds in which a program has to be ready by default: a program may load a model first."""

REPLY_SECONDS = 30.0
"""Seconds in which an answer has to come by default."""

_HERE = "shioenv.evaluation.predictors"
OURS = {
    "sandbox": f"{_HERE}.sandbox:sandbox",
    "trivial": f"{_HERE}.constant:Trivial",
    "errors": f"{_HERE}.constant:Errors",
    "recording": f"{_HERE}.recording:recording",
    "command": f"{_HERE}.command:CommandPredictor",
    "bashkit": f"{_HERE}.bashkit:Bashkit",
    "just-bash": f"{_HERE}.just_bash:JustBash",
    "cowrie": f"{_HERE}.cowrie:Cowrie",
    "llm": f"{_HERE}.llm:PromptedModel",
    "default": f"{_HERE}.default:default",
    "memory": f"{_HERE}.memory:memory",
    "memory-plain": f"{_HERE}.memory:plain_memory",
    "seq2seq": f"{_HERE}.seq2seq:seq2seq",
}
"""The predictors of this package, named as entry points are; they need no metadata."""


class Predictor(Runner, Protocol):
    """A runner that is judged.

    `close()`, where a predictor has it, is called once nothing more is asked. `make_ready()`, where
    a predictor has it, is called after each answer; the time of this call counts for no answer.
    `together(ask, questions)`, where a predictor has it, gives what `ask` gives for each of at most
    `at_once` questions. `install` and `shell`, where a predictor has them, are as `Ready` says:
    they stand in scripts that show its differences.
    """

    @property
    def version(self) -> str:
        """What exactly the predictor is; every result shows it."""
        ...

    @property
    def patch_level(self) -> PatchLevel | str:
        """`full`, or `files` for a predictor that knows no owners."""
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
    """The name of every predictor, ours and those of other packages, sorted."""
    return sorted({*OURS, *_others()})


def make_predictor(name: str, system: str, start: str, **bounds: float) -> Predictor:
    """The predictor that a text such as `memory:./dataset` names, ready to be asked.

    `bounds` are `start_seconds` and `reply_seconds` of its `Setting`. Errors: PredictorError for a
    name that no predictor has, or a text that the predictor cannot take. HostError where this
    machine lacks something that the predictor needs. What else its maker raises.
    """
    head, _, text = name.partition(":")
    if head in OURS:
        maker: Maker = resolve_name(OURS[head])
    elif head in (others := _others()):
        maker = others[head].load()
    else:
        raise PredictorError(
            f"no predictor is called {head!r}", hint=did_you_mean(head, predictor_names())
        )
    made: Predictor = maker(Setting(text, system, start, **bounds))
    return made


def _others() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}


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
