"""Inference with an encoder-decoder that predicts the behavior of commands.

The model reads facts of a state, and its decoding is constrained to answers that fit the state. It
starts no process and needs no built system. Its libraries are installed with `shioenv[train]`.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from shioenv.domain.behavior import NOTHING, Behavior
from shioenv.domain.context import MONTHS, Context, keys
from shioenv.domain.patch import ContextPatch
from shioenv.domain.runner import Answer, State
from shioenv.errors import Abstained, ContextError, MissingExtraError, ModelError, PatchError
from shioenv.files.regular import open_regular
from shioenv_model.bash.work import answering
from shioenv_model.memory.members import json_member, raise_model_errors
from shioenv_model.memory.memory import Memory
from shioenv_model.memory.translation import shift
from shioenv_model.memory.world import World, read_world
from shioenv_model.sequence.codec import Codec, Writing
from shioenv_model.sequence.compact import DocumentNames, Now, Target, operations_of
from shioenv_model.sequence.prompts import Prompter

_TRIED = 64
"""Number of most likely tokens that are tried as the next token before all others."""


class Seq2seq:
    """Answers single commands; the input of a command after a pipe is `State.stdin`."""

    patch_level = "full"

    def __init__(
        self,
        directory: str | Path,
        *,
        memory: Memory | None = None,
        world: World | None = None,
        now: Now | None = None,
    ) -> None:
        """Open a directory that `shioenv_model.training.sequence.train` wrote.

        `memory` provides neighbours if the model was trained with neighbours. `world` and `now`
        describe another machine than the first one of the training data. By default, the
        time between the start of the machine and `now` is the same as on that first machine.
        Errors: ModelError, MissingExtraError.
        """
        self.directory = directory = Path(directory)
        own = read_world(directory)
        self.world = world or own
        with raise_model_errors(directory / "model.json"):
            self.card: dict[str, Any] = json_member(directory / "model.json", dict[str, Any])
            learned = self.card["learned"]
            self._knots = np.array(learned["scores"]), np.array(learned["shares"])
            shape = self.card["shape"]
            self._source, self._target = shape["source_tokens"], shape["target_tokens"]
            systems = self.card["systems"]
            self.now = now or _moved(now_from(next(iter(systems.values()))["now"]), own, self.world)
        if shape["neighbours"] and memory is None:
            raise ModelError(
                f"{directory} was trained with neighbours of a memory",
                hint="use it together with that memory",
            )
        self._codec = Codec.read(directory)
        self._prompter = Prompter(memory if shape["neighbours"] else None, shape["neighbours"])
        self._model = _loaded(directory)
        self._named = DocumentNames(self.world.state().before.document)

    @property
    def version(self) -> str:
        """The model's name, step and digest, as stored with every result."""
        plan = json.dumps(self.card, sort_keys=True).encode()
        digest = hashlib.sha256(plan).hexdigest()[:12]
        return f"{self.card['name']}, step {self.card['steps']} {digest}"

    def run(self, shell_input: str, state: State | None = None) -> Behavior:
        """Return the behavior alone."""
        return self.answer(shell_input, state).behavior

    def answer(self, shell_input: str, state: State | None = None) -> Answer:
        """Predict an input's behavior.

        The confidence is calibrated: it is the accuracy, on held-out records, of answers to which
        the model gave the same probability.

        Errors: Abstained if the input is not valid Unicode, if the output does not end, or if the
        patch does not apply.
        """
        with answering(shell_input):
            return self._answer(shell_input, self.world.placed(state))

    def _answer(self, shell_input: str, state: State) -> Answer:
        target, probability = self.written(shell_input, state)
        document = state.before.document
        try:
            patch = ContextPatch(tuple(operations_of(target.patch, document, self.now)))
            Context(patch.apply(document))
        except (PatchError, ContextError, ValueError, KeyError) as error:
            raise Abstained(f"the model generated an invalid patch: {error}") from None
        behavior = replace(target.behavior(patch), content_digests=_digests(patch, state))
        sure = float(np.interp(probability, *self._knots))
        return Answer(
            behavior, sure, f"{self.card['name']}: written, probability {probability:.2f}"
        )

    def written(self, shell_input: str, state: State) -> tuple[Target, float]:
        """Generate the target of a command; return it with its probability, 0 to 1.

        Errors: Abstained if the output does not end, or if the input is not valid Unicode.
        """
        import torch

        prompt = self._prompter.prompt(shell_input, state, self.now)
        try:
            numbers = self._codec.encode(prompt)[: self._source]
        except UnicodeEncodeError:
            raise Abstained("the input is not text") from None
        if self._named.before is not state.before.document:
            self._named = DocumentNames(state.before.document)
        held = _Held(Writing(self._codec, self._named))
        with torch.inference_mode():
            made = self._model.generate(
                input_ids=torch.tensor([numbers]),
                attention_mask=torch.ones((1, len(numbers)), dtype=torch.long),
                max_new_tokens=self._target,
                do_sample=False,
                num_beams=1,
                logits_processor=[held],
                return_dict_in_generate=True,
                output_logits=True,
            )
        said = made.sequences[0, 1:].tolist()
        writing = held.writing.after(said[-1]) if said else None
        if writing is None or not writing.ended:
            raise Abstained("the model does not end its answer")
        steps = zip(made.logits, said, strict=True)
        total = sum(float(step[0].float().log_softmax(-1)[token]) for step, token in steps)
        return writing.target, math.exp(total)


class _Held:
    """A `LogitsProcessor` of transformers that keeps only the most likely valid token."""

    def __init__(self, writing: Writing) -> None:
        self.writing = writing
        self._read = 1  # the token that starts decoding is not part of the target

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        import torch

        for token in input_ids[0, self._read :].tolist():
            after = self.writing.after(token)
            assert after is not None
            self.writing = after
        self._read = input_ids.shape[1]
        kept = torch.full_like(scores, -math.inf)
        token = self._next(scores[0])
        kept[0, token] = scores[0, token]
        return kept

    def _next(self, scores: Any) -> int:
        for count in (min(_TRIED, len(scores)), len(scores)):
            for token in scores.topk(count).indices.tolist():
                if self.writing.after(token) is not None:
                    return int(token)
        raise Abstained("no token is valid next")


def answer_in_one_thread() -> None:
    """Limit this process to one thread, because other processes use the other processors.

    Threads of several processes would wait for each other at every operation.
    """
    import torch

    torch.set_num_threads(1)


def now_from(text: str) -> Now:
    """Parse the output of `Now.text`."""
    day, _, clock = text.partition(" ")
    year, month, number = map(int, day.split("-"))
    return Now(MONTHS[month - 1], number, year, clock)


def _moved(now: Now, theirs: World, ours: World) -> Now:
    """Shift `now` by the difference between the start times of the two machines."""
    by = shift(theirs, ours)
    return Now(**by.dates(asdict(now))) if by else now


def _digests(patch: ContextPatch, state: State) -> dict[str, str]:
    """Return the digests of the empty files that a patch creates."""
    return {
        keys(operation[1])[1]: NOTHING
        for operation in patch.operations
        if operation[0] == "a" and isinstance(operation[2], dict)
        and operation[2].get("size") == 0 and str(operation[2].get("perms")).startswith("-")
    }  # fmt: skip


def _loaded(directory: Path) -> Any:
    try:
        import torch
        import transformers
    except ImportError:
        raise MissingExtraError("a sequence model", "train", "torch", "transformers") from None
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    weights = directory / "model.safetensors"
    for name in ("config.json", "generation_config.json"):
        if os.path.lexists(directory / name):
            json_member(directory / name, dict[str, Any])
    with raise_model_errors(weights, "contains no readable weights"):
        open_regular(weights).close()
        model = transformers.T5ForConditionalGeneration.from_pretrained(
            directory, dtype=torch.float32, local_files_only=True, use_safetensors=True
        )
    return model.eval()
