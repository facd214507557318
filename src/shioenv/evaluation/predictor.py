"""What can be judged, by name: `sandbox`, `memory:DATASET`, `command:./mine.py`."""

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
"""The entry points by which other packages add theirs."""

START_SECONDS = 120.0
"""In which a program has to be ready, where nothing else is said: it may load a model first."""

REPLY_SECONDS = 30.0
"""In which an answer has to come, where nothing else is said."""

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
"""Those that come with the package, as entry points name theirs; these need no metadata."""


class Predictor(Runner, Protocol):
    """A runner that is judged. A predictor that has `close()` is closed when it is asked nothing
    more. A predictor that has `make_ready()` is told so after each answer, in time that no answer
    is charged with.
    """

    @property
    def version(self) -> str:
        """What exactly it is, in every result."""
        ...

    @property
    def patch_level(self) -> PatchLevel | str:
        """`full`, or `files` for what knows no owners."""
        ...


@dataclass(frozen=True, slots=True)
class Setting:
    """What a predictor is made for."""

    text: str
    """What stands behind its name and the colon."""
    system: str
    """The system that the suite was recorded on."""
    start: str
    """That system's first start directory."""
    start_seconds: float = START_SECONDS
    """In which a program has to answer its first line."""
    reply_seconds: float = REPLY_SECONDS
    """In which it has to answer each other line; without end where who asks counts for itself."""


Maker = Callable[[Setting], Any]


def predictor_names() -> list[str]:
    """Every name that can be asked for."""
    return sorted({*OURS, *_others()})


def make_predictor(name: str, system: str, start: str, **bounds: float) -> Predictor:
    """The predictor that a text such as `memory:./dataset` names, ready to be asked; `bounds` are
    those of its `Setting`.

    Errors: PredictorError for a name that nobody has, or a text that it cannot take. HostError
    where it lacks something here. What else its maker raises.
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
    """A predictor's level; full where it does not say. Errors: PredictorError."""
    said = getattr(predictor, "patch_level", PatchLevel.FULL)
    try:
        return PatchLevel(said)
    except ValueError:
        raise PredictorError(f"a patch level is full or files, not {said!r}") from None


def unable(error: BaseException) -> str:
    """What went wrong, with the way out where one is known."""
    if isinstance(error, ShioenvError):
        return f"{error.message}" + (f" ({error.hint})" if error.hint else "")
    return f"{type(error).__name__}: {error}"
