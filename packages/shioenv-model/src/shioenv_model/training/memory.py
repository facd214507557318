"""Makes a memory of records, and what the memory learns: a distance, trees, a calibration.

Everything is learned by leaving out: a record is asked about as if it had not been executed.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shioenv.dataset.manifest import MANIFEST, read_manifest
from shioenv.dataset.read import read_contexts, read_records
from shioenv.domain.inputs import without_start
from shioenv.domain.patch import ContextPatch
from shioenv.domain.record import Record
from shioenv.domain.runner import State
from shioenv.errors import MissingExtraError, ModelError
from shioenv.files.durable import sha256_of, storage_errors
from shioenv.files.unfinished import Parts, keep_files, take_files, unfinished
from shioenv.guests import package_version
from shioenv.recording.cache import sources_digest
from shioenv_model.composition.call import Call
from shioenv_model.composition.inputs import is_asked_whole
from shioenv_model.composition.opening import given
from shioenv_model.files import read_card, write_card
from shioenv_model.memory.forms import Forms
from shioenv_model.memory.index import Index, write_index
from shioenv_model.memory.memory import Memory, kept_of, taken
from shioenv_model.memory.rank import PAIR, WEIGHTS, Numbers, Ranker, features
from shioenv_model.memory.rewrite import Kept, Taken
from shioenv_model.memory.world import World, read_world
from shioenv_model.training.material import described, world_in

LONGEST = 20_000
"""Most characters of an output that is remembered; ours: one record in 200 has more."""

LEAST = 0.02
"""The least weight of any difference between two commands."""

MISTAKEN = PAIR.index("a mistaken option on one side")
"""The place of the difference that weighs at least as much as in `WEIGHTS`.

Mistakes are too rare for learning how much they weigh.
"""

_TREES = {"max_iter": 200, "learning_rate": 0.07, "max_leaf_nodes": 24, "l2_regularization": 1.0}
RANKER = "ranker.npz"
"""The file of what a memory learned."""

_SOURCES = ("shioenv.bash", "shioenv.domain", "shioenv_model")
"""The packages whose code decides what is found for a record."""

_FOR_FIGURES = 0.3
"""Share of the questions from which only the calibration and the figures are made."""


Report = Callable[[str, int, int], None]
"""Is given what is being done, how much of it is done, and how much there is."""


def write_memory(directory: Path, records: Iterable[Record], world: World) -> int:
    """Writes records of one system into a directory, and gives the number that was kept.

    `Memory` opens the directory. Left out are inputs whose time, output or patch was cut off, and
    outputs of more than `LONGEST` characters. Left out too are inputs with a NUL or of more than
    65,535 bytes. Of equal inputs in one start directory the first is kept. Errors: ModelError where
    nothing is left.
    """
    forms = Forms()
    write_index(directory, _apart(records, world, forms))
    (directory / "world.json").write_bytes(world.to_json())
    kept = len(Index(directory))
    if not kept:
        raise ModelError("there is no record to remember")
    return kept


def _apart(
    records: Iterable[Record], world: World, forms: Forms
) -> Iterable[tuple[str, str, Taken | None, Kept]]:
    for record in records:
        if record.is_cut or len(record.output) > LONGEST:
            continue
        cwd, text = without_start(record.input)
        cwd = cwd or world.start
        if len(text.encode("utf-8", "surrogateescape")) > 0xFFFF or "\0" in text:
            continue
        yield cwd, text, _taken(text, world.state(cwd), forms), kept_of(record.behavior())


def _taken(text: str, state: State, forms: Forms) -> Taken | None:
    """A single command taken apart; None for several."""
    call, _ = given(Call.parse(text), state) or (Call(text), state)
    return taken(Call.parse(text), state, forms) if is_asked_whole(call.text) else None


def train_memory(
    datasets: Sequence[Path],
    directory: Path,
    *,
    name: str,
    questions: int,
    seed: int,
    chosen: frozenset[int] | None = None,
    report: Report = lambda what, done, of: None,
    write: Callable[[Path], object] = lambda directory: None,
) -> dict[str, Any]:
    """Makes a model's directory of datasets of one system, and gives the model's card.

    The directory holds a memory, what the memory learned, and the card. `chosen` holds the places,
    in all datasets one behind the other, of the records that are taken (default: all). The same
    datasets, choice, questions and seed give the same files. What a killed call found is kept in
    the cache directory, and the next call with the same arguments goes on with it. `write` gets the
    finished directory while that is still kept.

    Errors: ModelError for datasets of several systems, and for a first dataset without a context.
    ModelError where its system was rebuilt. Those of reading. MissingExtraError without
    scikit-learn.
    """
    material = _Material.read(datasets)
    plan = {
        "datasets": [sha256_of(each / MANIFEST) for each in datasets],
        "chosen": None if chosen is None else sorted(chosen),
        "sources": sources_digest(*_SOURCES),
    }
    with unfinished("records", plan) as parts:
        if take_files(parts / "records", directory):
            report("records", material.total, material.total)
        else:
            write_memory(directory, material.records(report, chosen), material.world())
            with storage_errors(parts):
                keep_files(directory, parts / "records")
        with _learning(directory, questions, seed) as found:
            figures = _learned(directory, questions, seed, report, found)
            card = {
                "name": name,
                "kind": "memory",
                "system": material.system,
                "system_digest": material.digest,
                "records": len(Index(directory)),
                "material": [described(each) for each in datasets],
                "version": package_version(),
                "seed": seed,
                "learned": figures,
                "license": "Apache-2.0",
                "limits": LIMITS,
            }
            write_card(directory, card)
            write(directory)
    return card


def extend_memory(
    base: Path,
    datasets: Sequence[Path],
    directory: Path,
    *,
    name: str,
    report: Report = lambda what, done, of: None,
) -> dict[str, Any]:
    """Makes a model's directory of a memory's and of datasets of its system, and gives the card.

    `base` is the directory of a model. What it learned stays: its distance, trees and calibration.
    Of equal inputs the base's is kept. The same base and datasets give the same files.

    Errors: ModelError for a base that is no memory, and for datasets of another system; those of
    reading.
    """
    card = read_card(base)
    material = _Material.read(datasets)
    if card.get("kind") != "memory" or card.get("system_digest") != material.digest:
        raise ModelError(
            f"the model is no memory of {material.system} {material.digest[:12]}",
            hint="`shioenv model show` tells of which system a model is",
        )
    known, forms, world = Index(base), Forms(), read_world(base)

    def remembered() -> Iterator[tuple[str, str, Taken | None, Kept]]:
        for number in range(len(known)):
            entry = known.entry(number)
            apart = _taken(entry.text, world.state(entry.cwd), forms)
            report("records of the base", number, len(known))
            yield entry.cwd, entry.text, apart, known.behavior(entry.behavior)

    write_index(directory, chain(remembered(), _apart(material.records(report), world, forms)))
    for file in (base / each for each in ("world.json", RANKER)):
        if file.exists():
            (directory / file.name).write_bytes(file.read_bytes())
    more = [described(each) for each in datasets]
    card = {
        **card,
        "name": name,
        "records": len(Index(directory)),
        "material": [*card.get("material", ()), *more],
        "version": package_version(),
    }
    write_card(directory, card)
    return card


@dataclass(frozen=True, slots=True)
class _Material:
    """Records of one system."""

    datasets: Sequence[Path]
    system: str
    digest: str
    total: int

    @classmethod
    def read(cls, datasets: Sequence[Path]) -> _Material:
        """Errors: ModelError for datasets of several systems, or without contexts."""
        manifests = [read_manifest(each) for each in datasets]
        systems = {(each.plan.system, each.plan.system_digest) for each in manifests}
        if len(systems) != 1 or not read_contexts(datasets[0]):
            raise ModelError(
                "a memory is of one system, whose contexts lie beside the records",
                hint="shioenv train material makes such datasets",
            )
        (system, digest), *_ = systems
        total = sum(each.records for each in manifests)
        return cls(datasets, system, digest, total)

    def world(self) -> World:
        """The system as it was built. Errors: ModelError where another build has its name now."""
        _, world = world_in(self.datasets[0])
        return world

    def records(self, report: Report, chosen: frozenset[int] | None = None) -> Iterator[Record]:
        """The records that a memory takes, each reported; see `train_memory` for `chosen`."""
        # a memory answers for the pristine machine: records with a history tell nothing of it
        everything = chain.from_iterable(read_records(each) for each in self.datasets)
        for place, record in enumerate(everything):
            if not record.history and (chosen is None or place in chosen):
                report("records", place, self.total)
                yield record


LIMITS = (
    "It answers for one system as it was built, and guesses where that was not asked before. An "
    "answer is no execution: do not rely on it to learn whether a command is safe, and do not "
    "train or judge on its answers as if they were the machine's."
)
"""What every card says of the memory's limits."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """What was found for a record that was asked about: a row for each candidate."""

    pairs: Numbers
    rows: Numbers
    right: npt.NDArray[np.bool_]

    def to_json(self) -> list[Any]:
        """The arrays, each as its shape and its compressed bytes."""
        arrays = (self.pairs, self.rows, self.right.astype(np.float64))
        return [[each.shape, base64.b64encode(zlib.compress(each.tobytes(), 1)).decode()]
                for each in arrays]  # fmt: skip

    @classmethod
    def from_json(cls, document: Any) -> _Asked:
        """What `to_json` wrote. Errors: ValueError, TypeError."""
        try:
            pairs, rows, right = (
                np.frombuffer(zlib.decompress(base64.b64decode(text))).reshape(shape)
                for shape, text in document
            )
        except zlib.error as error:
            raise ValueError(str(error)) from None
        return cls(pairs, rows, right.astype(bool))


def learn(
    directory: Path, questions: int, seed: int, report: Report = lambda what, done, of: None
) -> dict[str, Any]:
    """Learns from a memory, writes the result into the memory's directory, and gives its figures.

    At most `questions` of the memory's records are asked about, chosen by the seed. What a killed
    call found is kept in the cache directory. It is taken over where memory, questions and seed are
    the same. Nothing is written where too few records are like others. Errors: MissingExtraError
    without scikit-learn.
    """
    with _learning(directory, questions, seed) as parts:
        return _learned(directory, questions, seed, report, parts)


def _learning(directory: Path, questions: int, seed: int) -> AbstractContextManager[Path]:
    """The directory for what is found while a memory is learned from."""
    (directory / RANKER).unlink(missing_ok=True)
    plan = {
        "memory": {path.name: sha256_of(path) for path in directory.iterdir() if path.is_file()},
        "questions": questions,
        "seed": seed,
        "sources": sources_digest(*_SOURCES),
    }
    return unfinished("memory", plan)


def _learned(
    directory: Path, questions: int, seed: int, report: Report, parts: Path
) -> dict[str, Any]:
    try:
        from sklearn.ensemble import HistGradientBoostingClassifier
        from sklearn.isotonic import IsotonicRegression
        from sklearn.linear_model import LogisticRegression
        from threadpoolctl import threadpool_limits
    except ImportError:
        raise MissingExtraError("training a memory", "train", "scikit-learn") from None
    memory = Memory(directory)
    rng = np.random.default_rng(seed)
    numbers = [
        number
        for number in rng.permutation(len(memory.index)).tolist()
        if memory.taken(number) is not None
    ][:questions]
    asked = _ask(memory, numbers[: questions // 3], report, "the distance", parts)
    pairs = np.concatenate([np.zeros((0, len(PAIR))), *(one.pairs for one in asked)])
    right = np.concatenate([np.zeros(0, dtype=bool), *(one.right for one in asked)])
    weights = np.array(WEIGHTS)
    if 0 < right.sum() < len(right):
        model = LogisticRegression(max_iter=500, C=1.0).fit(pairs, ~right)
        weights = np.maximum(model.coef_[0], 0.0)
        weights = np.maximum(weights * (sum(WEIGHTS) / max(weights.sum(), 1e-9)), LEAST)
        weights[MISTAKEN] = max(weights[MISTAKEN], WEIGHTS[MISTAKEN])
    none = np.zeros(0)
    memory.ranker = Ranker(weights, memory.ranker.trees, none, none)
    asked = _ask(memory, numbers, report, "the trees", parts)
    split = max(1, round(len(asked) * (1 - _FOR_FIGURES)))
    first, held = asked[:split], asked[split:]
    if not all(any(len(one.rows) for one in part) for part in (first, held)):
        # too few are like another: the weights stay by hand
        figures = {"questions": len(numbers), "held_back": 0, "right": 0.0}
        return {**figures, "right_among_candidates": 0.0, "weights": {}}
    trees = HistGradientBoostingClassifier(random_state=seed, **_TREES)
    with threadpool_limits(limits=1):  # so few rows take longer in several threads
        trees.fit(
            np.concatenate([one.rows for one in first]),
            np.concatenate([one.right for one in first]),
        )
    ranker = Ranker(weights, arrays_of(trees), none, none)
    scores, rights = [], []
    for one in held:
        if len(one.rows):
            found = ranker.probability(one.rows)
            best = int(found.argmax())
            scores.append(found[best])
            rights.append(bool(one.right[best]))
    shares = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip").fit(scores, rights)
    knots = np.quantile(scores, np.linspace(0, 1, 21))
    knots = np.unique(knots)
    ranker = Ranker(weights, arrays_of(trees), knots, shares.predict(knots))
    ranker.save(directory / RANKER)
    return {
        "questions": len(numbers),
        "held_back": len(held),
        "right": round(float(np.mean(rights)), 4) if rights else 0.0,
        "right_among_candidates": round(float(np.mean([one.right.any() for one in held])), 4),
        "weights": {name: round(float(each), 3) for name, each in zip(PAIR, weights, strict=True)},
    }


def _ask(memory: Memory, numbers: list[int], report: Report, what: str, kept: Path) -> list[_Asked]:
    """What is found for each record, in order; parts of an earlier call are taken over."""
    with Parts(kept, what.replace(" ", "-"), _Asked.to_json, _Asked.from_json) as parts:
        report(what, parts.kept, len(numbers))
        for number in map(str, numbers):
            if number not in parts.values:
                parts.add(number, _asked(memory, int(number)))
                report(what, len(parts.values), len(numbers))
        return [parts.values[str(number)] for number in numbers]


def _asked(memory: Memory, number: int) -> _Asked:
    ours = memory.taken(number)
    entry = memory.index.entry(number)
    assert ours is not None
    candidates = memory.candidates(ours, memory.world.state(entry.cwd), without=number)
    truth = memory.index.behavior(entry.behavior)
    return _Asked(
        np.array([list(each.pair) for each in candidates], dtype=float).reshape(-1, len(PAIR)),
        features(ours, candidates),
        np.array([_same(each.kept, truth) for each in candidates], dtype=bool),
    )


def _same(said: Kept, truth: Kept) -> bool:
    if (said.exit_code, said.output) != (truth.exit_code, truth.output):
        return False
    if said.patch == truth.patch:
        return True
    return ContextPatch.from_json(said.patch) == ContextPatch.from_json(truth.patch)


def arrays_of(trees: Any) -> dict[str, npt.NDArray[Any]]:
    """scikit-learn's trees as arrays of one shape: a row for each tree, a column for each node.

    `start` alone has one number, with which each sum over the trees begins.
    """
    nodes = [predictor[0].nodes for predictor in trees._predictors]
    most = max(map(len, nodes))
    made: dict[str, npt.NDArray[Any]] = {
        "feature": np.full((len(nodes), most), -1, dtype=np.int16),
        "threshold": np.zeros((len(nodes), most)),
        "left": np.zeros((len(nodes), most), dtype=np.int16),
        "right": np.zeros((len(nodes), most), dtype=np.int16),
        "value": np.zeros((len(nodes), most), dtype=np.float32),
        "start": np.array([float(np.ravel(trees._baseline_prediction)[0])]),
    }
    for number, each in enumerate(nodes):
        count = len(each)
        leaf = each["is_leaf"].astype(bool)
        made["feature"][number, :count] = np.where(leaf, -1, each["feature_idx"])
        made["threshold"][number, :count] = np.where(leaf, 0.0, each["num_threshold"])
        made["left"][number, :count] = each["left"]
        made["right"][number, :count] = each["right"]
        made["value"][number, :count] = np.where(leaf, each["value"], 0.0)
    return made
