"""Measure the default model's accuracy and size by its number of records.

    python benchmarks/records.py MATERIAL --out DIR --records 88000 177000 354000 --suite FILE

Each smaller set is a part of the larger ones. Existing models and answers are kept.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from shioenv.dataset.manifest import read_manifest
from shioenv_eval.evaluate import answers_beneath, evaluate
from shioenv_eval.suite import read_suite
from shioenv_model.files import CARD, pack
from shioenv_model.training.material import datasets_in
from shioenv_model.training.memory_training import train_memory


def main() -> None:
    """Make each model, evaluate it, and print a line for each suite."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("material", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--records", type=int, nargs="+", required=True)
    parser.add_argument("--suite", type=Path, action="append", required=True)
    parser.add_argument("--questions", type=int, default=12_000)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    datasets = [each for directory in given.material for each in datasets_in(directory)]
    total = sum(read_manifest(each).records for each in datasets)
    ranks = np.random.default_rng(0).permutation(total)
    for size in given.records:
        directory = given.out / f"{size}"
        if not (directory / CARD).exists():
            train_memory(
                datasets, directory, name=f"{size}", questions=given.questions, seed=0,
                chosen=frozenset(np.flatnonzero(ranks < size).tolist()),
            )  # fmt: skip
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


if __name__ == "__main__":
    main()
