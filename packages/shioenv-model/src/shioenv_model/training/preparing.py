"""Preparation of training examples for sequence models from the records of datasets."""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import IO

import msgspec

from shioenv.bash.normal import normal
from shioenv.dataset.manifest import read_manifest
from shioenv.dataset.record_reader import read_records
from shioenv.domain.behavior import Behavior
from shioenv.domain.context import date_of
from shioenv.domain.inputs import without_start
from shioenv.domain.record import Record
from shioenv.domain.runner import State
from shioenv.errors import Abstained, ModelError, PatchError
from shioenv.system.declare import SystemDeclaration
from shioenv_model.composition.composed_inputs import is_single_query
from shioenv_model.memory.memory import Memory
from shioenv_model.memory.world import World
from shioenv_model.sequence.codec import Codec
from shioenv_model.sequence.compact import DocumentNames, Now, Target, target_of
from shioenv_model.sequence.prompts import Prompter
from shioenv_model.training.material import described, system_of, world_in
from shioenv_model.training.material_samplers import PIPED, is_source, parted
from shioenv_model.training.token_examples import TrainingExample, write_examples

DEV_ONE_IN = 50
"""One in this many inputs becomes a dev example, which is used for evaluation and not for training.

The input's normal form determines whether it does.
"""

_STATES = 256
"""Maximum number of stored states after inputs. Few suffice: a session's inputs are adjacent."""

_DIRECTORIES = 64
"""Maximum number of start directories with cached sorted names, about 10,000 names each."""

_LEARNED_FROM = 20_000
"""Number of examples from which a vocabulary is learned; up to twice as many are used."""

_LONGER = "longer than a target"

Report = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Shape:
    """Parameters of examples, and of the prompts of models trained on these examples."""

    vocabulary: int = 8192
    """Maximum size of the vocabulary, if there is none from a checkpoint."""
    source_tokens: int = 512
    """Maximum number of tokens of a prompt, which is truncated."""
    target_tokens: int = 256
    """Maximum number of tokens of a target. Examples with longer targets are left out."""
    neighbours: int = 0
    """Number of nearest records of a memory in each prompt."""


@dataclass
class _Counts:
    kept: int = 0
    left_out: dict[str, int] = field(default_factory=dict)

    def without(self, why: str) -> None:
        self.left_out[why] = self.left_out.get(why, 0) + 1


def prepare(
    datasets: Sequence[Path],
    directory: Path,
    shape: Shape,
    *,
    checkpoint: Path | None = None,
    memory: Memory | None = None,
    chosen: Container[int] | None = None,
    report: Report = lambda what, done, of: None,
) -> int:
    """Write the examples of datasets into a directory, and return their number.

    The datasets may be of several systems. `chosen` has the indices, in each dataset, of the
    selected records (default: all). The vocabulary is that of the checkpoint, or is learned from
    the examples.

    Errors: ModelError if there is no training example, or if a dataset has no context or is of
    another build. ModelError if only one of `memory` and `Shape.neighbours` is given. The errors of
    reading datasets, of `find_system` and of `Codec` are raised too.
    """
    if bool(shape.neighbours) != (memory is not None):
        raise ModelError("--neighbours needs --memory", hint="use both, or neither")
    counts = _Counts()
    systems: dict[str, dict[str, str]] = {}
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=directory) as file:
        prompter = Prompter(memory, shape.neighbours)
        worlds = _write_texts(file, datasets, shape, prompter, chosen, counts, report)
        for name, (world, digest, now) in worlds.items():
            systems[name] = {"digest": digest, "now": now.text}
            if len(systems) == 1:
                (directory / "world.json").write_bytes(world.to_json())
        if checkpoint:
            codec = Codec.read(checkpoint)
        else:
            # texts are grouped by dataset, so every step-th text covers all datasets
            step = max(1, counts.kept // _LEARNED_FROM)
            texts = (
                text
                for number, one in enumerate(_texts(file))
                if not number % step
                for text in (one.prompt, *(data.decode() for _, data in one.printed), one.patch)
            )
            codec = Codec.learned(texts, shape.vocabulary)
        facts = {
            "systems": systems,
            "material": [described(each) for each in datasets],
            "shape": msgspec.to_builtins(shape),
        }
        encoded = _encoded(_texts(file), codec, shape, counts, report)
        facts["left_out"] = counts.left_out
        return write_examples(directory, codec, encoded, facts)


class _Text(msgspec.Struct, array_like=True):
    """An example before tokenization."""

    prompt: str
    exit_code: int
    printed: tuple[tuple[str, bytes], ...]
    patch: str
    dev: bool
    text: str
    form: str | None


_ENCODER, _DECODER = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(_Text)


def _texts(file: IO[bytes]) -> Iterator[_Text]:
    file.seek(0)
    while head := file.read(4):
        yield _DECODER.decode(file.read(int.from_bytes(head, "little")))


def _encoded(
    texts: Iterable[_Text], codec: Codec, shape: Shape, counts: _Counts, report: Report
) -> Iterator[TrainingExample]:
    for done, one in enumerate(texts):
        report("examples", done, counts.kept)
        target = codec.encode_target(Target(one.exit_code, one.printed, one.patch))
        if target is None or len(target) > shape.target_tokens:
            counts.without(_LONGER)
            continue
        source = codec.encode(one.prompt)[: shape.source_tokens]
        yield TrainingExample(source, target, one.dev, one.text, one.form)


def _write_texts(
    file: IO[bytes],
    datasets: Sequence[Path],
    shape: Shape,
    prompter: Prompter,
    chosen: Container[int] | None,
    counts: _Counts,
    report: Report,
) -> dict[str, tuple[World, str, Now]]:
    """Write the texts of the datasets' records into a file, and return the systems by name."""
    worlds: dict[str, tuple[World, str, Now]] = {}
    printed: dict[tuple[str, str, str], bytes] = {}
    manifests = {each: read_manifest(each) for each in datasets}
    # stages last, because their standard input is recorded in the other datasets
    for each in sorted(datasets, key=lambda one: manifests[one].plan.drawing.sampler == PIPED):
        plan = manifests[each].plan
        system_of(each)  # raises an error if the dataset is of another build
        if plan.system not in worlds:
            worlds[plan.system] = _known(each)
        world, _, now = worlds[plan.system]
        led = _Led(world)
        for done, record in enumerate(read_records(each)):
            report(f"records of {each.name}", done, manifests[each].records)
            cwd, text = without_start(record.input)
            place = plan.system, cwd or world.start, text
            state = led.before(record, place[1])
            if plan.drawing.session_length > 1 and state is not None:
                led.keep(record, state, text)
            if chosen is not None and done not in chosen:
                continue
            if plan.drawing.sampler != PIPED and is_source(record):
                printed[place] = record.output_bytes
            most = shape.target_tokens
            found = _text_of(record, place, state, now, prompter, printed, led.names, most)
            if isinstance(found, str):
                counts.without(found)
                continue
            data = _ENCODER.encode(found)
            file.write(len(data).to_bytes(4, "little") + data)
            counts.kept += 1
    return worlds


class _Led:
    """The states after inputs of a dataset, in which the session's later inputs start.

    They are computed from the records.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._states: dict[tuple[str, tuple[str, ...]], State] = {}
        self._pristine = lru_cache(maxsize=_DIRECTORIES)(
            lambda cwd: DocumentNames(world.state(cwd).before.document)
        )

    def before(self, record: Record, cwd: str) -> State | None:
        """Return the state in which a record's input starts.

        Return None if the record of an earlier input is missing.
        """
        if not record.history:
            return self._world.state(cwd)
        return self._states.get((cwd, tuple(record.history)))

    def names(self, state: State) -> DocumentNames:
        """Return the names in the document of a state from `before`."""
        if state.context is None:
            return self._pristine(state.cwd)
        return DocumentNames(state.before.document)

    def keep(self, record: Record, state: State, text: str) -> None:
        """Store the state after a record, if it is known, and evict the oldest ones."""
        if record.is_cut or record.volatile:
            return
        behavior = record.behavior()
        with suppress(PatchError):
            self._states[state.cwd, (*record.history, text)] = state.after(text, behavior)
        if len(self._states) > _STATES:
            del self._states[next(iter(self._states))]


def _text_of(
    record: Record,
    place: tuple[str, str, str],
    state: State | None,
    now: Now,
    prompter: Prompter,
    printed: dict[tuple[str, str, str], bytes],
    names: Callable[[State], DocumentNames],
    most: int,
) -> _Text | str:
    """Return the example made from a record, or the reason why there is none.

    Its target has at most `most` tokens.
    """
    system, cwd, text = place
    if record.is_cut:
        return "cut"
    if record.volatile:
        return "volatile"
    if state is None:
        return "after an unknown history"
    if "\0" in text:
        return "not representable in a prompt"
    if record.sampler == PIPED:
        first, stage = parted(text)
        stdin = printed.get((system, cwd, first))
        if stdin is None:
            return "unknown input of a pipe"
        state, text = replace(state, stdin=stdin), stage
    if not is_single_query(text):
        return "several commands"
    behavior = record.behavior()
    if len(behavior.patch.operations) > most:  # every operation takes at least one token
        return _LONGER
    target = _target(behavior, names(state), now)
    if target is None:
        return "not representable in a target"
    form = normal(text)
    dev = zlib.crc32((form or text).encode("utf-8", "surrogateescape")) % DEV_ONE_IN == 0
    whole = place[2]
    if whole != text:
        form = normal(whole)
    try:
        prompt = prompter.prompt(text, state, now, without_itself=True)
        prompt.encode()
        return _Text(prompt, target.exit_code, target.printed, target.patch, dev, whole, form)
    except (Abstained, UnicodeEncodeError):
        return "not representable in a prompt"


def _target(behavior: Behavior, names: DocumentNames, now: Now) -> Target | None:
    target = target_of(behavior, names, now)
    if target is None:
        return None
    try:
        for _, text in target.printed:
            text.decode()
    except UnicodeDecodeError:
        return None
    return target


def _known(dataset: Path) -> tuple[World, str, Now]:
    built, world = world_in(dataset)
    return world, built.digest, start_instant(built.declaration)


def start_instant(declaration: SystemDeclaration) -> Now:
    """Return the instant at which inputs start on a system."""
    return Now(**date_of(declaration.instant))
