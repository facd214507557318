"""Fit the factors of the default model's confidence to answers with known ground truth.

    python benchmarks/fit_confidence.py FOLDER [--suite NAME ...] [--out DIR] [--commands FILE]
        [--write]

FOLDER, the suites and `--out` are those of `benchmarks/outside.py`; only work halves are read.
`--commands` adds the executions that `soak/every_command.py --keep` wrote. An answer is right with
the probability c * f1 * f2 * ..., where c is the confidence that its records support, and each f
belongs to an answerer or to a property of the input. The factors have the highest likelihood over
the answers with a c of at least `FITTED`, and of at least `RARE_FITTED` for neighbours of commands
without a grammar, few of which have more. A gamma prior keeps them below 1 where there are few
answers. `--write` replaces the package's table.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path
from unittest.mock import patch

import numpy as np

import shioenv_model
from outside import SUITES, is_right, recorded
from shioenv.domain.answer_json import behavior_of
from shioenv.errors import ShioenvError
from shioenv_model import confidence
from shioenv_model.files import load_model

COMMANDS = "commands"
FITTED, RARE_FITTED = 0.9, 0.5
SHAPE, RATE = 1.5, 50.0
"""The gamma distribution of -log(factor) before data; its mode is a factor of .99."""
STEPS, SPEED, LEAST = 20_000, 2e-6, 1e-4

Case = tuple[str, set[str], float, bool]
"""The suite, the properties, the confidence without factors, and whether the answer is right."""


def answered(folder: Path, out: Path, names: list[str]) -> list[Case]:
    """Return the answers of the default model to the work halves, without the table's factors."""
    model, found = load_model(), list[Case]()
    for name in names:
        suite = recorded(name, folder, "work", out, None)
        for case in suite.cases:
            try:
                with patch.object(confidence, "factors", lambda: defaultdict(lambda: 1.0)):
                    answer = model.answer(case.question.input, case.state(suite.head.start))
            except ShioenvError:
                continue
            if len(case.gold) == 1:
                tags = set(confidence.properties(case.question.input, answer, model.steps))
                found.append((name, tags, answer.confidence, is_right(case, answer.behavior)))
    return found


def answered_commands(file: Path) -> list[Case]:
    """Return the answers of the default model to kept executions, without the table's factors."""
    model, found = load_model(), list[Case]()
    for line in file.read_text(encoding="utf-8").splitlines():
        document = json.loads(line)
        text, behavior = document["input"], behavior_of(document)
        if behavior.timed_out or behavior.volatile:
            continue
        try:
            with patch.object(confidence, "factors", lambda: defaultdict(lambda: 1.0)):
                answer = model.answer(text)
        except ShioenvError:
            continue
        said, tags = answer.behavior, set(confidence.properties(text, answer, model.steps))
        right = (said.output, said.exit_code) == (behavior.output, behavior.exit_code)
        found.append((COMMANDS, tags, answer.confidence, right))
    return found


def fitted(cases: list[Case]) -> dict[str, float]:
    """Return the factors, by projected gradient ascent."""
    kept = [
        case for case in cases
        if case[2] >= (RARE_FITTED if confidence.RARE in case[1] else FITTED)
    ]  # fmt: skip
    names = sorted(set().union(*(tags for _, tags, _, _ in kept)))
    has = np.array([[name in tags for name in names] for _, tags, _, _ in kept], dtype=float)
    base = np.array([-np.log(sure) for _, _, sure, _ in kept])
    right = np.array([right for *_, right in kept], dtype=float)
    costs = np.full(len(names), (SHAPE - 1) / RATE)
    for _ in range(STEPS):
        fails = np.exp(-(base + has @ costs))
        slope = has.T @ ((1 - right) * fails / (1 - fails + 1e-9) - right)
        costs = np.maximum(costs + SPEED * (slope + (SHAPE - 1) / costs - RATE), LEAST)
    return {name: round(float(np.exp(-cost)), 4) for name, cost in zip(names, costs, strict=True)}


def main() -> int:
    """Print the table, and how right sure answers are in each suite."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--suite", action="append", choices=SUITES, metavar="NAME")
    parser.add_argument("--out", type=Path, default=Path("build/outside"), metavar="DIR")
    parser.add_argument("--commands", type=Path, metavar="FILE")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    names = given.suite or [name for name in SUITES if (given.folder / name).is_dir()]
    try:
        cases = answered(given.folder, given.out, names)
        if given.commands:
            cases += answered_commands(given.commands)
            names = [*names, COMMANDS]
    except ShioenvError as error:
        print(error.message, file=sys.stderr)
        return 1
    table = fitted(cases)
    table[confidence.LEAST_KNOWN] = min(table.values())
    text = json.dumps(table, indent=2, sort_keys=True)
    print(text)
    for suite in names:
        sure = [
            right for name, tags, base, right in cases
            if name == suite and base * np.prod([table[tag] for tag in tags if tag in table]) >= 0.9
        ]  # fmt: skip
        share = f"{len(sure) / max(1, sum(name == suite for name, *_ in cases)):.2f}"
        print(f"{suite}: sure {share}, right {sum(sure) / max(1, len(sure)):.3f}")
    if given.write:
        path = Path(shioenv_model.__file__).with_name("confidence.json")
        path.write_text(f"{text}\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
