"""Measure a predictor's calibration error, and the part of it that is due to chance.

    python benchmarks/calibration.py DIR [DIR ...]

Each DIR was written by `shioenv evaluate --out DIR`. The expected calibration error compares the
mean confidence with the share of right answers (`em`) in ten bins of equal width. A predictor that
is perfectly calibrated has an error too, since the answers are few. Its mean and its 95th
percentile come from 1,000 draws in which each answer is right with the predicted probability.
"""

from __future__ import annotations

import argparse
import random
import statistics
from collections.abc import Sequence

from shioenv_eval.evaluate import read_evaluation

BINS, DRAWS = 10, 1000


def calibration_error(confidences: Sequence[float], right: Sequence[float]) -> float:
    """Return the mean distance of confidence and accuracy over bins, weighted by their answers."""
    sums = [0.0] * BINS
    for said, share in zip(confidences, right, strict=True):
        sums[min(int(said * BINS), BINS - 1)] += said - share
    return sum(map(abs, sums)) / len(confidences)


def main() -> None:
    """Print a line for each number of commands of each evaluation, and for all together."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("directories", nargs="+", metavar="DIR")
    rows: dict[str, list[tuple[float, float]]] = {}
    for directory in parser.parse_args().directories:
        evaluation = read_evaluation(directory)
        for one in evaluation.predictors:
            for case, said, mark in zip(evaluation.suite.cases, one.said, one.marks, strict=True):
                pair = (said.confidence or 0.0, float(mark.em))
                steps = case.question.steps
                for name in (f"{directory} {steps}", f"all {steps}", "all"):
                    rows.setdefault(f"{one.name}: {name}", []).append(pair)
    rng = random.Random(0)
    print(f"{'':60} answers  error  by chance: mean  95%")
    for name, pairs in sorted(rows.items()):
        sure, right = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        drawn = sorted(
            calibration_error(sure, [float(rng.random() < p) for p in sure]) for _ in range(DRAWS)
        )
        error, chance = calibration_error(sure, right), statistics.mean(drawn)
        most = drawn[DRAWS * 95 // 100]
        print(f"{name:60} {len(sure):7} {error:6.3f} {chance:16.3f} {most:5.3f}")


if __name__ == "__main__":
    main()
