"""Measure the error of irreducibility estimates.

    python benchmarks/estimators.py [--inputs N] [--lengths 8 9 10 11 12] [--budgets 8 16 32 64]
                                    [--seeds N] [--seed N] [--json]

Draws inputs as `shioenv generate --policy lengths --composite-share 0` does it, executes every
sub-input of as many as asked for of each number of arguments (2^n - 2 each), and lets each
estimator score them again from what was seen: the mean of |estimate - truth| over inputs and seeds.
Skipped are volatile inputs, and those whose single run, or whose sub-inputs on average, take more
than 100 ms. So are inputs with a sub-input that times out.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys

from shioenv.behavior.observe import open_sandbox
from shioenv.irreducibility.estimators import ESTIMATORS
from shioenv.sandbox.base import LIMITS
from shioenv_paper.estimator_replay import InputReplay
from shioenv_paper.exact import KnownInput, execute_sub_inputs, stream


def collect(lengths: list[int], count: int, seed: int) -> list[KnownInput]:
    """Return `count` executed inputs of each length."""
    found: list[KnownInput] = []
    missing = dict.fromkeys(lengths, count)
    with open_sandbox(None, LIMITS) as observer:
        for number, one in enumerate(stream(observer.system, seed).samples):
            n = one.input.n_arguments
            if one.volatile or not missing.get(n):
                continue
            known = execute_sub_inputs(observer, (number, one))
            if isinstance(known, KnownInput):
                found.append(known)
                missing[n] -= 1
                print(
                    f"{n:2} arguments, {known.irreducibility:.3f}: {known.input.text}",
                    file=sys.stderr,
                    flush=True,
                )
            if not any(missing.values()):
                break
    return found


def measure(inputs: list[KnownInput], estimator: str, budget: int, seeds: int) -> dict[str, float]:
    """Return the mean absolute error, its standard error over inputs, and the sub-inputs used."""
    errors, executions = [], []
    for known in inputs:
        replay = InputReplay(known)
        found = [replay.estimate(estimator, budget, random.Random(seed)) for seed in range(seeds)]
        errors.append(statistics.fmean(abs(value - known.irreducibility) for value, _ in found))
        executions.append(statistics.fmean(looked for _, looked in found))
    return {
        "mean_absolute_error": statistics.fmean(errors),
        "standard_error": statistics.stdev(errors) / len(errors) ** 0.5,
        "executions": statistics.fmean(executions),
    }


def main() -> None:
    """Execute, estimate, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=9, help="of each length")
    parser.add_argument("--lengths", type=int, nargs="+", default=[8, 9, 10, 11, 12])
    parser.add_argument("--budgets", type=int, nargs="+", default=[8, 16, 32, 64])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=2026, help="draws the inputs")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    inputs = collect(given.lengths, given.inputs, given.seed)
    longest = [known for known in inputs if known.input.n_arguments == max(given.lengths)]
    rows = [
        {
            "estimator": name,
            "budget": budget,
            "lengths": label,
            **measure(some, name, budget, given.seeds),
        }
        for label, some in (("all", inputs), (str(max(given.lengths)), longest))
        for name in ESTIMATORS
        for budget in given.budgets
    ]
    if given.json:
        print(json.dumps({"inputs": len(inputs), "seeds": given.seeds, "rows": rows}))
        return
    print(f"{len(inputs)} inputs, {given.seeds} seeds; mean absolute error (+- its standard error)")
    for label in ("all", str(max(given.lengths))):
        print(f"\n{label + ' arguments':14}" + "".join(f"{f'M={m}':>18}" for m in given.budgets))
        for name in ESTIMATORS:
            cells = [row for row in rows if row["estimator"] == name and row["lengths"] == label]
            line = "".join(
                f"{row['mean_absolute_error']:.4f} +- {row['standard_error']:.4f}".rjust(18)
                for row in cells
            )
            print(f"{name:14}{line}")


if __name__ == "__main__":
    main()
