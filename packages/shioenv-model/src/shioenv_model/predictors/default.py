"""The predictor `default`: the model that comes with the package, or another model.

Examples: `default`, `default:MODEL`, `default:MODEL,seq2seq=MODEL`, `default:abstain-below=0.3`,
`default:without=rules`.
"""

from __future__ import annotations

from dataclasses import replace

from shioenv.domain.behavior import Behavior
from shioenv.domain.patch import ContextPatch
from shioenv.domain.predictor import Setting, make_predictor
from shioenv.domain.runner import Runner, State
from shioenv.errors import Abstained, PredictorError, did_you_mean
from shioenv.system.store import find_system
from shioenv_model.composition.command_replay import write_commands
from shioenv_model.files import DEFAULT, card_of, load_model
from shioenv_model.memory.sources import NAMES
from shioenv_model.memory.world import world_of_system
from shioenv_model.model import Model
from shioenv_model.sequence.seq2seq import answer_in_one_thread

STAGES = "bashkit"
"""The emulator that can answer commands that read a pipe."""


class Emulated:
    """Answers commands that read a pipe with an emulator; abstains if a command changes files."""

    def __init__(self, bashkit: Runner) -> None:
        self._bashkit = bashkit

    def run(self, shell_input: str, state: State | None = None) -> Behavior:
        """Run the command in the emulator, with `State.stdin` as standard input.

        Errors: Abstained if anything changes in the emulator, or the command fails with output.
        """
        stdin = state.stdin if state else b""
        bare = replace(state, stdin=b"") if state else None
        done = self._bashkit.run(f"{write_commands(stdin)} | {shell_input}", bare)
        if done.patch:
            raise Abstained("the emulator changes files there")
        if done.exit_code and done.output:
            raise Abstained("the emulator fails there")
        return replace(done, patch=ContextPatch(), stdout=done.output, stderr=b"")


def default(setting: Setting) -> Model:
    """Build the predictor `default` from a model and comma-separated options `NAME=VALUE`.

    With `stages=bashkit`, the emulator answers commands that read a pipe. `seq2seq=MODEL` adds a
    sequence model to the memory. With `abstain-below=P` (0 to 1) the model abstains below the
    confidence P. `without=rules`, `without=functions` and `without=records` disable a source of
    answers. Any other part names a model to use instead of the package's. For another system than
    its own, a model uses that system's files, so the system must be built on this host. Errors:
    PredictorError for unknown options; those of models and of `find_system`.
    """
    name, stages, written, least = "", "", None, 0.0
    left_out: list[str] = []
    for part in filter(None, setting.text.split(",")):
        if part.startswith("stages="):
            stages = part.removeprefix("stages=")
        elif part.startswith("seq2seq="):
            written = part.removeprefix("seq2seq=")
        elif part.startswith("abstain-below="):
            least = _share(part.removeprefix("abstain-below="))
        elif part.startswith("without="):
            left_out.append(_source(part.removeprefix("without=")))
        else:
            name = part
    card = card_of(name or DEFAULT)
    emulated = emulator(stages, setting.system) if stages else None
    model = load_model(
        name or None, seq2seq=written, stages=emulated, stages_name=stages, abstain_below=least,
        world=world_of_system(card, setting.system, setting.start), without=left_out,
    )  # fmt: skip
    if written:
        answer_in_one_thread()
    return model


def emulator(name: str, system: str | None) -> Emulated:
    """Return the emulator of this name, with a built system's files.

    Errors: PredictorError for another name than `STAGES`; MissingExtraError; those of
    `find_system`.
    """
    if name != STAGES:
        raise PredictorError(f"unknown emulator for stages {name!r}", hint=f"stages={STAGES}")
    built = find_system(system)
    return Emulated(make_predictor(STAGES, built.name, built.declaration.start_directory))


def _source(text: str) -> str:
    if text not in NAMES:
        raise PredictorError(f"unknown source of answers {text!r}", hint=did_you_mean(text, NAMES))
    return text


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise PredictorError(
            f"abstain-below={text}: expected a number from 0 to 1",
            hint="for example abstain-below=0.3",
        )
    return value
