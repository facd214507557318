"""The model that comes with the package, or another one: `default`, `default:MODEL`,
`default:MODEL,seq2seq=MODEL`, `default:abstain-below=0.3`.
"""

from __future__ import annotations

from dataclasses import replace

from shioenv.composition.replay import written
from shioenv.domain.behavior import Behavior
from shioenv.domain.patch import ContextPatch
from shioenv.domain.runner import State
from shioenv.errors import Abstained, PredictorError
from shioenv.evaluation.predictor import Setting
from shioenv.evaluation.predictors.bashkit import Bashkit
from shioenv.model.files import DEFAULT, card_of, load_model
from shioenv.model.model import Model
from shioenv.model.worlds import asked_elsewhere
from shioenv.system.store import find_system

STAGES = "bashkit"
"""The emulator that may stand in for commands that read a pipe."""


class Emulated:
    """Answers commands that read a pipe by an emulator; declines where one changes files."""

    def __init__(self, bashkit: Bashkit) -> None:
        self._bashkit = bashkit

    def run(self, shell_input: str, state: State | None = None) -> Behavior:
        """What the emulator prints of the text in `State.stdin`. Errors: Abstained where it
        changes anything, or fails with words of its own.
        """
        stdin = state.stdin if state else b""
        bare = replace(state, stdin=b"") if state else None
        done = self._bashkit.run(f"{written(stdin)} | {shell_input}", bare)
        if done.patch:
            raise Abstained("the emulator changes files there")
        if done.exit_code and done.output:
            raise Abstained("the emulator fails there")
        return replace(done, patch=ContextPatch(), stdout=done.output, stderr=b"")


def default(setting: Setting) -> Model:
    """The predictor `default`, `default:MODEL`, `default:MODEL,stages=bashkit`,
    `default:stages=bashkit`, with `seq2seq=MODEL` a sequence model beside the memory, and with
    `abstain-below=P` an abstention wherever it is less sure. Asked about another system than the
    model's, it answers of that system's files, and that system has to be built here.
    """
    name, stages, written, least = "", "", None, 0.0
    for part in filter(None, setting.text.split(",")):
        if part.startswith("stages="):
            stages = part.removeprefix("stages=")
        elif part.startswith("seq2seq="):
            written = part.removeprefix("seq2seq=")
        elif part.startswith("abstain-below="):
            least = _share(part.removeprefix("abstain-below="))
        else:
            name = part
    card = card_of(name or DEFAULT)
    emulated = emulator(stages, setting.system) if stages else None
    return load_model(
        name or None, seq2seq=written, stages=emulated, stages_name=stages, abstain_below=least,
        world=asked_elsewhere(card, setting.system, setting.start),
    )  # fmt: skip


def emulator(name: str, system: str | None) -> Emulated:
    """Who answers commands that read a pipe, by name, with the files of a built system.

    Errors: PredictorError for a name that is none; MissingExtraError; those of `find_system`.
    """
    if name != STAGES:
        raise PredictorError(f"stages cannot be by {name!r}", hint=f"stages={STAGES}")
    built = find_system(system)
    return Emulated(Bashkit(Setting("", built.name, built.declaration.start_directory)))


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise PredictorError(f"{text!r} is no confidence", hint="abstain-below=0.3, from 0 to 1")
    return value
