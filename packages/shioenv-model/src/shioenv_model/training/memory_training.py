"""Training of a memory: its records, its distance, its trees and its calibration.

All training is by leave-one-out: a record is queried as if it had not been executed.
"""

from __future__ import annotations

import base64
import json
import shutil
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
from shioenv.dataset.record_reader import read_contexts, read_records
from shioenv.domain.inputs import without_start
from shioenv.domain.patch import ContextPatch
from shioenv.domain.record import Record
from shioenv.domain.runner import State
from shioenv.errors import MissingExtraError, ModelError, ShioenvError
from shioenv.files.durable import atomic_write, sha256_of, storage_errors
from shioenv.files.unfinished import Parts, unfinished
from shioenv.guests import package_version
from shioenv.recording.execution_cache import sources_digest
from shioenv_model.composition.call import Call
from shioenv_model.composition.composed_inputs import is_single_query
from shioenv_model.composition.opening import read_redirected_input
from shioenv_model.files import (
    load_memory,
    located,
    model_names,
    opened,
    read_card,
    write_card,
)
from shioenv_model.memory.example_records import stored_behavior
from shioenv_model.memory.forms import Forms
from shioenv_model.memory.index import Index
from shioenv_model.memory.index_writer import write_index
from shioenv_model.memory.memory import Memory, taken
from shioenv_model.memory.rank import PAIR, WEIGHTS, Numbers, Ranker, features
from shioenv_model.memory.rewrite import Kept, Taken
from shioenv_model.memory.world import World, read_world
from shioenv_model.training.material import described, world_in

LONGEST = 20_000
"""Maximum number of characters of a stored output; our choice: one record in 200 has more."""

LEAST = 0.02
"""The minimum weight of any difference between two commands."""

MISTAKEN = PAIR.index("a mistaken option on one side")
"""The index in `PAIR` of mistaken options.

They are too rare for learning a weight, so the weight in `WEIGHTS` is the minimum.
"""

_TREES = {"max_iter": 200, "learning_rate": 0.07, "max_leaf_nodes": 24, "l2_regularization": 1.0}
_SUMS = "sums.json"
RANKER = "ranker.npz"
"""The file with a memory's learned parameters."""

_SOURCES = ("shioenv.bash", "shioenv.domain", "shioenv_model")
"""The packages whose code determines the candidates of a record."""

_FOR_FIGURES = 0.3
"""Share of the queries that are held out, for calibration and metrics."""


Report = Callable[[str, int, int], None]
"""A progress callback: the current task, the finished amount and the total."""


def write_memory(directory: Path, records: Iterable[Record], world: World) -> int:
    """Write records of one system into a directory, and return the number kept.

    `Memory` opens the directory. Records are left out if they reached a limit of time, output or
    patch, or if the output has more than `LONGEST` characters. Inputs with a NUL or of more than
    65,535 bytes are left out, too. If inputs in one start directory are equal, the first is kept.
    Errors: ModelError if nothing is left.
    """
    forms = Forms()
    write_index(directory, _apart(records, world, forms))
    (directory / "world.json").write_bytes(world.to_json())
    kept = len(Index(directory))
    if not kept:
        raise ModelError("there are no records to train on")
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
        yield cwd, text, _taken(text, world.state(cwd), forms), stored_behavior(record.behavior())


def _taken(text: str, state: State, forms: Forms) -> Taken | None:
    """Parse a single command; None for several."""
    call, _ = read_redirected_input(Call.parse(text), state) or (Call(text), state)
    return taken(Call.parse(text), state, forms) if is_single_query(call.text) else None


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
    """Make a model's directory from datasets of one system, and return the model's card.

    The directory has the memory, its learned parameters, and the card. `chosen` has the indices of
    the selected records in the concatenated datasets (default: all). The same datasets, choice,
    questions and seed give the same files. Partial results of a killed call remain in the cache
    directory, and the next call with the same arguments continues from there. `write` is called
    with the finished directory before the partial results are deleted.

    Errors: ModelError for datasets of several systems, for a first dataset without a context, and
    for a rebuilt system. The errors of reading the datasets, and MissingExtraError without
    scikit-learn.
    """
    material = _Material.read(datasets)
    plan = {
        "datasets": [sha256_of(each / MANIFEST) for each in datasets],
        "chosen": None if chosen is None else sorted(chosen),
        "sources": sources_digest(*_SOURCES),
    }
    with unfinished("records", plan) as parts:
        if _take_files(parts / "records", directory):
            report("records", material.total, material.total)
        else:
            write_memory(directory, material.records(report, chosen), material.world())
            with storage_errors(parts):
                _keep_files(directory, parts / "records")
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


def _keep_files(source: Path, kept: Path) -> None:
    """Copy the files of a directory to `kept`, atomically. Errors: OSError."""
    making = kept.with_name(f"{kept.name}.new")
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir()
    sums = {}
    for path in sorted(source.iterdir()):
        shutil.copyfile(path, making / path.name)
        sums[path.name] = sha256_of(path)
    atomic_write(making / _SUMS, json.dumps(sums).encode())
    making.rename(kept)


def _take_files(kept: Path, directory: Path) -> bool:
    """Copy the files stored by `_keep_files` into a directory.

    Return False, without copying, if there are none or they are damaged.
    """
    try:
        sums = json.loads((kept / _SUMS).read_bytes())
        if any(sha256_of(kept / name) != digest for name, digest in sums.items()):
            raise ValueError
    except (OSError, ValueError, AttributeError, ShioenvError):
        shutil.rmtree(kept, ignore_errors=True)
        return False
    directory.mkdir(parents=True, exist_ok=True)
    for name in sums:
        shutil.copyfile(kept / name, directory / name)
    return True


def extend_memory(
    base: str | Path,
    datasets: Sequence[Path],
    directory: Path,
    *,
    name: str,
    report: Report = lambda what, done, of: None,
) -> dict[str, Any]:
    """Make a model's directory from a memory and further datasets, and return the card.

    `base` is a known model, by name or path. Its learned distance, trees and calibration are used.
    If it is of the datasets' system, the result contains it; if an input is in both, the base's
    record is kept. Otherwise the result answers for the datasets' system, and loads the base when
    it is loaded (`load_memory`). The same base and datasets give the same files.

    Errors: ModelError for a base that is not a memory; those of reading the datasets.
    """
    directory.mkdir(parents=True, exist_ok=True)
    place = opened(located(base))
    of_base = read_card(place)
    material = _Material.read(datasets)
    if of_base.get("kind") != "memory":
        raise ModelError(
            f"the model {base} is not a memory", hint="`shioenv model show` prints a model's kind"
        )
    more = [described(each) for each in datasets]
    if of_base.get("system_digest") == material.digest:
        records, world = material.records(report), read_world(place)
        write_index(directory, _apart(records, world, Forms()), Index(place))
        for file in (place / each for each in ("world.json", RANKER)):
            if file.exists():
                (directory / file.name).write_bytes(file.read_bytes())
        card = {**of_base, "material": [*of_base.get("material", ()), *more]}
    else:
        write_memory(directory, material.records(report), material.world())
        named = str(base) if str(base) in model_names() else str(Path(base).absolute())
        card = {
            "kind": "memory",
            "system": material.system,
            "system_digest": material.digest,
            "material": more,
            "base": {"name": named, "digest": load_memory(place).digest},
            "license": "Apache-2.0",
            "limits": LIMITS,
        }
    kept = len(Index(directory))
    card |= {"name": name, "records": kept, "version": package_version()}
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
        """Open the datasets. Errors: ModelError for several systems, or without contexts."""
        manifests = [read_manifest(each) for each in datasets]
        systems = {(each.plan.system, each.plan.system_digest) for each in manifests}
        if len(systems) != 1 or not read_contexts(datasets[0]):
            raise ModelError(
                "a memory needs records of one system, with its context files",
                hint="create such datasets with `shioenv train material`",
            )
        (system, digest), *_ = systems
        total = sum(each.records for each in manifests)
        return cls(datasets, system, digest, total)

    def world(self) -> World:
        """Return the built system's world. Errors: ModelError if another build has its name."""
        _, world = world_in(self.datasets[0])
        return world

    def records(self, report: Report, chosen: frozenset[int] | None = None) -> Iterator[Record]:
        """Yield the records to store, and report each; see `train_memory` for `chosen`."""
        # a memory is about the pristine machine, so records with a history are not used
        everything = chain.from_iterable(read_records(each) for each in self.datasets)
        for place, record in enumerate(everything):
            if not record.history and (chosen is None or place in chosen):
                report("records", place, self.total)
                yield record


LIMITS = (
    "The model answers for one build of one system. Answers to inputs that differ from its records "
    "are guesses. Nothing is executed: do not rely on it to decide whether a command is safe, and "
    "do not use its answers as ground truth for training or evaluation."
)
"""The memory's limits, as stated on every card."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """The candidates for a queried record, one row each."""

    pairs: Numbers
    rows: Numbers
    right: npt.NDArray[np.bool_]

    def to_json(self) -> list[Any]:
        """Return the arrays, each as its shape and its compressed bytes."""
        arrays = (self.pairs, self.rows, self.right.astype(np.float64))
        return [[each.shape, base64.b64encode(zlib.compress(each.tobytes(), 1)).decode()]
                for each in arrays]  # fmt: skip

    @classmethod
    def from_json(cls, document: Any) -> _Asked:
        """Load the output of `to_json`. Errors: ValueError, TypeError."""
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
    """Train a memory's ranker, write it into the memory's directory, and return its metrics.

    At most `questions` of the memory's records are queried, chosen by the seed. Partial results of
    a killed call remain in the cache directory. They are reused if memory, questions and seed are
    the same. If too few records are similar to others, no ranker is written. Errors:
    MissingExtraError without scikit-learn.
    """
    with _learning(directory, questions, seed) as parts:
        return _learned(directory, questions, seed, report, parts)


def _learning(directory: Path, questions: int, seed: int) -> AbstractContextManager[Path]:
    """Open the directory for partial results of training."""
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
        # too few similar records: the weights set by hand are kept
        figures = {"questions": len(numbers), "held_back": 0, "right": 0.0}
        return {**figures, "right_among_candidates": 0.0, "weights": {}}
    trees = HistGradientBoostingClassifier(random_state=seed, **_TREES)
    with threadpool_limits(limits=1):  # several threads are slower for so few rows
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
    """Query each record, in order, and reuse the results of an earlier call."""
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
    """Convert scikit-learn's trees to arrays with a row per tree and a column per node.

    Only `start` is different: it has one number, the initial value of each sum over the trees.
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
