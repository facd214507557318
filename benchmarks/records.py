"""How right the default model is by how many records it is of, and how large and fast.

    python benchmarks/records.py MATERIAL --out DIR --records 88000 177000 354000 --suite FILE

Fewer records are among the more. A model or an answer that is there is not made again.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import numpy as np

from shioenv.dataset.contexts import read_contexts
from shioenv.dataset.manifest import read_manifest
from shioenv.dataset.read import read_records
from shioenv.domain.record import Record
from shioenv.evaluation.evaluate import answers_beneath, evaluate
from shioenv.evaluation.suite import read_suite
from shioenv.model.files import CARD, pack, write_card
from shioenv.system.store import find_system
from shioenv.system.world import world_of
from shioenv.training.material import datasets_in
from shioenv.training.memory import learn, write_memory


def main() -> None:
    """Makes each model, asks it, and prints a line for each suite."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("material", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--records", type=int, nargs="+", required=True)
    parser.add_argument("--suite", type=Path, action="append", required=True)
    parser.add_argument("--questions", type=int, default=12_000)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    datasets = [each for directory in given.material for each in datasets_in(directory)]
    manifests = [read_manifest(each) for each in datasets]
    ranks = np.random.default_rng(0).permutation(sum(each.records for each in manifests))
    for size in given.records:
        directory = given.out / f"{size}"
        if not (directory / CARD).exists():
            plan = manifests[0].plan
            built = find_system(plan.system)
            context = read_contexts(datasets[0])[built.declaration.start_directory]
            directory.mkdir(parents=True, exist_ok=True)
            world = world_of(built, context)
            kept = write_memory(directory, _some(datasets, ranks < size), world)
            learned = learn(directory, given.questions, 0)
            card = {"name": f"{size}", "kind": "memory", "records": kept, "learned": learned}
            write_card(
                directory,
                {**card, "system": plan.system, "system_digest": plan.system_digest},
            )
        about = json.loads((directory / CARD).read_bytes())
        packed = pack(directory, given.out / f"{size}.model")
        print(f"{about['records']} records, {packed / 1e6:.1f} MB", flush=True)
        for path in given.suite:
            suite = read_suite(path)
            answers = answers_beneath(directory, suite)
            done = evaluate(suite, [f"default:{directory}"], answers, workers=given.workers)
            (figures,) = done.document["predictors"].values()
            told = {steps: figures[steps]["em"][0] for steps in ("single", "multi")}
            print(f"  {path.stem}: {told}", flush=True)


def _some(datasets: list[Path], chosen: np.ndarray) -> Iterator[Record]:
    records = chain.from_iterable(read_records(each) for each in datasets)
    for record, is_chosen in zip(records, chosen, strict=True):
        if is_chosen and not record.history:
            yield record


if __name__ == "__main__":
    main()
