"""A sequence model as a predictor: `seq2seq:MODEL`, `seq2seq:MODEL,memory=MODEL`.

Answers are for the system on which the suite was recorded. If this is not the first system in the
model's card, it must be built on this host. Its files are read, and nothing is executed.
"""

from __future__ import annotations

from dataclasses import replace

from shioenv.domain.behavior import Behavior
from shioenv.domain.predictor import PatchLevel, Setting
from shioenv.domain.runner import Answer, State
from shioenv.errors import PredictorError
from shioenv.system.store import find_system
from shioenv_model.composition.composed_inputs import Composition
from shioenv_model.files import card_of, load_memory, load_seq2seq, located, opened
from shioenv_model.memory.world import world_called
from shioenv_model.sequence.seq2seq import Seq2seq, answer_in_one_thread
from shioenv_model.training.preparing import start_instant
from shioenv_model.training.token_examples import Seen


class Seq2seqPredictor:
    """A sequence model as a predictor.

    For an input with several commands, the model answers each command in the state left by the
    previous ones.
    """

    patch_level = PatchLevel.FULL

    def __init__(self, model: Seq2seq, version: str) -> None:
        self.version = version
        self._model = model
        self._composition = Composition(model, model.world.state())
        self.training = Seen(model.directory)
        """The model's training inputs."""

    def run(self, shell_input: str, state: State | None = None) -> Behavior:
        """Return only the behavior."""
        return self.answer(shell_input, state).behavior

    def answer(self, shell_input: str, state: State | None = None) -> Answer:
        """Return the answer that the model generates.

        Errors: Abstained if the model does not finish its answer, or if the input cannot be
        composed from its commands.
        """
        here = self._model.world.state(state.cwd if state else None)
        for text in state.history if state else ():
            here = here.after(text, self._composition.run(text, here))
        if state is not None:
            here = replace(here, stdin=state.stdin)
        return self._composition.answer(shell_input, here)


def seq2seq(setting: Setting) -> Seq2seqPredictor:
    """Build the predictor `seq2seq:MODEL`. With `,memory=MODEL` it also uses a memory.

    Errors: PredictorError without a model; those of models and of `find_system`.
    """
    name, _, rest = setting.text.partition(",")
    kept = rest.removeprefix("memory=")
    if not name or (rest and kept == rest):
        raise PredictorError(
            "the model is missing", hint="use seq2seq:DIR, or seq2seq:DIR,memory=MODEL"
        )
    known = card_of(name).get("systems", {})
    memory = load_memory(opened(located(kept))) if kept else None
    world, now, where = None, None, ""
    if setting.system != next(iter(known), ""):
        world = world_called(setting.system, setting.start)
        now = start_instant(find_system(setting.system).declaration)
        where = "" if setting.system in known else ", of a system it never saw"
    model = load_seq2seq(name, memory=memory, world=world, now=now)
    answer_in_one_thread()
    return Seq2seqPredictor(model, f"{model.version}{where}")
