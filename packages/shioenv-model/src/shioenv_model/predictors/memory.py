"""A memory of executed inputs as a predictor: a baseline for every model.

`memory` is the kind of memory that models contain. `memory-plain` returns the nearest record
unchanged: a model that is not better than this has only memorised inputs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from shioenv.dataset.manifest import MANIFEST, finished_manifest
from shioenv.domain.behavior import Behavior
from shioenv.domain.predictor import PatchLevel, Setting
from shioenv.domain.runner import Answer, State
from shioenv.errors import Abstained, PredictorError
from shioenv.files.durable import cache_directory, locked, storage_errors
from shioenv_model.composition.call import Call
from shioenv_model.files import (
    is_sealed,
    keep_private,
    load_memory,
    located,
    opened,
    read_card,
    seal,
)
from shioenv_model.memory.example_records import recorded_behavior
from shioenv_model.memory.index import FORMS, LAYOUT, holds_index
from shioenv_model.memory.memory import Memory
from shioenv_model.memory.rank import command_difference
from shioenv_model.memory.world import World, world_of_system
from shioenv_model.training.material import datasets_in
from shioenv_model.training.memory_training import train_memory

QUESTIONS = 2000
"""Number of records used to calibrate the memory of a dataset, which is made on first use."""


@dataclass(frozen=True, slots=True)
class Near:
    """An executed input, its start directory, and its behavior."""

    text: str
    cwd: str
    behavior: Behavior


class Remembering:
    """A memory as a predictor. Without `fills`, it returns the nearest record unchanged."""

    patch_level = PatchLevel.FULL

    def __init__(
        self,
        memory: Memory,
        version: str,
        training: Sequence[Path],
        fills: bool,
        world: World | None = None,
    ) -> None:
        self.version = version
        self.world = world or memory.world
        """The machine for which inputs are answered, which may differ from that of the records."""
        self.training = str(training[0]) if len(training) == 1 else memory.index.training
        """The training data, which `em_new_text` excludes: a dataset, or the memory's inputs."""
        self.memory, self._fills = memory, fills

    def run(self, shell_input: str, state: State | None = None) -> Behavior:
        """Return only the behavior."""
        return self.answer(shell_input, state).behavior

    def answer(self, shell_input: str, state: State | None = None) -> Answer:
        """Answer from the nearest records; the history is ignored.

        Errors: Abstained without a record of the same utility; those of `Memory.answer`.
        """
        if state is None or state.pristine is None:
            stdin, fed = (state.stdin, state.fed) if state else (b"", False)
            cwd = state.cwd if state else None
            state = replace(self.world.state(cwd), stdin=stdin, fed=fed)
        state = replace(state, history=(), context=None)
        if self._fills:
            return self.memory.answer(shell_input, state)
        exact = self.memory.exact(shell_input, state)
        if exact is not None:
            return exact
        near = self.nearest(shell_input, state.cwd, 1)
        if not near:
            raise Abstained(f"nothing like {shell_input!r:.60} was executed")
        return Answer(near[0].behavior, 0.1, near[0].text)

    def nearest(self, shell_input: str, cwd: str, count: int) -> list[Near]:
        """Return at most `count` records of the same utility, nearest first; possibly none."""
        memory = self.memory
        state = self.world.state(cwd)
        ours = memory.take(Call.parse(shell_input), state)
        if ours is None:
            return []
        ranked = []
        for number in memory.index.near(ours, 4 * count + 20):
            theirs = memory.taken(number)
            if theirs is not None:
                pair = command_difference(ours, theirs)
                ranked.append((float(memory.ranker.weights @ pair), number))
        entries = [memory.index.entry(number) for _, number in sorted(ranked)[:count]]
        return [
            Near(
                each.text, each.cwd, recorded_behavior(memory.index.behavior(each.behavior), state)
            )
            for each in entries
        ]


def memory(setting: Setting) -> Remembering:
    """Build the predictor `memory:DATASET`, or `memory:MODEL`.

    For another system than that of the records, the recorded behavior is adapted to that system's
    files. Errors: PredictorError without a dataset; those of datasets and models.
    """
    return _memory(setting, fills=True)


def plain_memory(setting: Setting) -> Remembering:
    """Build the predictor `memory-plain:DATASET`, or `memory-plain:MODEL`.

    It returns the nearest record unchanged. Errors: those of `memory`.
    """
    return _memory(setting, fills=False)


def _memory(setting: Setting, *, fills: bool) -> Remembering:
    if not setting.text:
        raise PredictorError(
            "the dataset is missing",
            hint="use memory:DIR with a dataset of `shioenv generate`, or memory:MODEL",
        )
    path = Path(setting.text)
    if path.is_dir() and not holds_index(path):
        datasets = datasets_in(path)
        directory = _remembered(datasets)
    else:
        datasets, directory = [], opened(located(setting.text))
    card = read_card(directory)
    kept = load_memory(directory)
    version = f"{card.get('records')} records {kept.digest}"
    world = world_of_system(card, setting.system, setting.start)
    if world is not None:
        version += f" of {card.get('system')}"
    return Remembering(kept, version, datasets, fills, world)


def _remembered(datasets: Sequence[Path]) -> Path:
    """Return the cache directory with the datasets' memory, made on first use."""
    shards = [shard.sha256 for each in datasets for shard in finished_manifest(each).shards]
    manifests = [(each / MANIFEST).read_bytes() for each in datasets]
    made = f"{FORMS} {LAYOUT}".encode() + "".join(shards).encode() + b"".join(manifests)
    digest = hashlib.sha256(made).hexdigest()[:32]
    directory = cache_directory() / "models" / "remembered" / digest
    with storage_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
        keep_private(directory.parent)
        with locked(directory):
            if not is_sealed(directory):
                for path in directory.iterdir():
                    path.unlink()
                train_memory(
                    datasets, directory, name=datasets[0].name, questions=QUESTIONS, seed=0
                )
                seal(directory)
    return directory
