"""Measure what records of drawn inputs are worth: right sides that run, empty records, variety.

    python benchmarks/worth.py --count 5000 --seed 1 2 3 --policy mixed --kept DIR

Prints a JSON line for each seed. Each set of records is kept in DIR and reused. Inputs are executed
without scores.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shioenv.behavior.observe import SandboxRunner, open_sandbox
from shioenv.dataset.generate import generate
from shioenv.dataset.record_reader import read_records
from shioenv.domain.inputs import Input
from shioenv.domain.record import Record
from shioenv.execution.local import LocalExecutor
from shioenv.irreducibility.scoring import UNSCORED
from shioenv.synthesis.drawing import Drawing

CONDITIONS = ("&&", "||")
OPERATORS = (*CONDITIONS, "|", ";", ">", ">>", "<")


def right_sides(record: Record, sandbox: SandboxRunner) -> Iterator[tuple[str, bool]]:
    """Yield each `&&` and `||` of an input, and whether its right side runs.

    That depends on the exit code of all that is to the left, which is executed alone.
    """
    words = record.input_args
    for place, word in enumerate(words):
        if word in CONDITIONS:
            left = Input.from_marked(words[:place]).text
            succeeded = sandbox.run(left, sandbox.state(record.cwd)).exit_code == 0
            yield word, succeeded is (word == "&&")


def measured(directory: Path, sandbox: SandboxRunner) -> dict[str, Any]:
    """Return the figures of a dataset."""
    count = empty = 0
    inputs: Counter[str] = Counter()
    ran: Counter[str] = Counter()
    sides: Counter[str] = Counter()
    behaviors = set()
    for record in read_records(directory):
        count += 1
        nothing = not record.output and record.context_patch == "[]"
        empty += nothing
        behaviors.add((record.output, record.context_patch, record.exit_code))
        inputs.update({operator for operator in OPERATORS if operator in record.input_args})
        for operator, executed in right_sides(record, sandbox):
            sides[operator] += 1
            ran[operator] += executed
    return {
        "records": count,
        "without output and patch": round(empty / count, 4),
        "distinct behaviors": round(len(behaviors) / count, 4),
        "inputs with": {operator: inputs[operator] for operator in OPERATORS},
        "right sides": {operator: sides[operator] for operator in CONDITIONS},
        "of these executed": {
            operator: round(ran[operator] / (sides[operator] or 1), 3) for operator in CONDITIONS
        },
    }


def main() -> None:
    """Generate the datasets that are missing, and print their figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--policy", default="mixed")
    parser.add_argument("--kept", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    for seed in given.seed:
        directory = given.kept / f"{given.policy}-{seed}-{given.count}"
        drawing = Drawing(policy=given.policy, seed=seed)
        executor = LocalExecutor(given.workers)
        generate(directory, count=given.count, drawing=drawing, scoring=UNSCORED, executor=executor)
        with open_sandbox() as sandbox:
            print(json.dumps({"seed": seed, **measured(directory, sandbox)}), flush=True)


if __name__ == "__main__":
    main()
