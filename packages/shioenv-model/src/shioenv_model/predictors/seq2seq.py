"""A sequence model by itself: `seq2seq:MODEL`, `seq2seq:MODEL,memory=MODEL`.

The model is asked about the system that the suite was recorded on. A system other than the first in
the model's card has to be built here; it is only looked at, and nothing runs there.
"""

from __future__ import annotations

from dataclasses import replace

from shioenv.domain.behavior import Behavior
from shioenv.domain.predictor import PatchLevel, Setting
from shioenv.domain.runner import Answer, State
from shioenv.errors import PredictorError
from shioenv.system.store import find_system
from shioenv_model.composition.inputs import Composition
from shioenv_model.files import card_of, load_seq2seq, located, opened
from shioenv_model.memory.memory import Memory
from shioenv_model.sequence.seq2seq import Seq2seq, answer_in_one_thread
from shioenv_model.training.examples import Seen
from shioenv_model.training.preparing import now_of
from shioenv_model.worlds import world_called


class WrittenPredictor:
    """A sequence model as a predictor.

    Of an input with several commands the model is asked about each command, in the state that the
    commands before left.
    """

    patch_level = PatchLevel.FULL

    def __init__(self, model: Seq2seq, version: str) -> None:
        self.version = version
        self._model = model
        self._composition = Composition(model, model.world.state())
        self.training = Seen(model.directory)
        """What the model was trained on."""

    def run(self, shell_input: str, state: State | None = None) -> Behavior:
        """The behavior alone."""
        return self.answer(shell_input, state).behavior

    def answer(self, shell_input: str, state: State | None = None) -> Answer:
        """The answer that the model writes.

        Errors: Abstained where the model comes to no end, or the input cannot be put together from
        its commands.
        """
        here = self._model.world.state(state.cwd if state else None)
        for text in state.history if state else ():
            here = here.after(text, self._composition.run(text, here))
        if state is not None:
            here = replace(here, stdin=state.stdin)
        return self._composition.answer(shell_input, here)


def seq2seq(setting: Setting) -> WrittenPredictor:
    """The predictor `seq2seq:MODEL`, with `,memory=MODEL` a sequence model that uses a memory.

    Errors: PredictorError where no model is named; those of models and of `find_system`.
    """
    name, _, rest = setting.text.partition(",")
    kept = rest.removeprefix("memory=")
    if not name or (rest and kept == rest):
        raise PredictorError("no model is named", hint="seq2seq:DIR, or seq2seq:DIR,memory=MODEL")
    known = card_of(name).get("systems", {})
    memory = Memory(opened(located(kept))) if kept else None
    world, now, where = None, None, ""
    if setting.system != next(iter(known), ""):
        world = world_called(setting.system, setting.start)
        now = now_of(find_system(setting.system).declaration)
        where = "" if setting.system in known else ", of a system it never saw"
    model = load_seq2seq(name, memory=memory, world=world, now=now)
    answer_in_one_thread()
    return WrittenPredictor(model, f"{model.version}{where}")
