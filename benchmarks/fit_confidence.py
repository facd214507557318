"""Fit the factors of the default model's confidence to answers with known ground truth.

    python benchmarks/fit_confidence.py [FOLDER] [--suite NAME ...] [--out DIR] [--commands FILE]
        [--fresh FILE ...] [--write]

FOLDER, the suites and `--out` are those of `benchmarks/outside.py`; only work halves are read.
`--commands` adds the executions that `soak/every_command.py --keep` wrote. An answer is right with
the probability c * f1 * f2 * ..., where c is the confidence that its records support, and each f
belongs to an answerer or to a property of the input (to the power of its count). The factors have
the highest likelihood over the answers with a c of at least `FITTED`, and of at least `RARE_FITTED`
for neighbours of commands without a grammar, few of which have more. A gamma prior keeps them below
1 where there are few answers. `--write` replaces the package's table.

The interpreter was developed with the scripts of the work halves, so it answers these better than
others. `--fresh` names suites of inputs that it was not developed with, such as snippets from other
shells' tests (`shioenv suite record FILE --runs 2`). The factors of scripts
(`confidence.OF_SCRIPTS`) are then fitted to these, with all other factors kept. To show how right
sure answers to unknown scripts are, each half of their cases, by the hash of the input, is also
judged by factors that are fitted to the other half. Without FOLDER, the package's other factors are
kept.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from unittest.mock import patch

import numpy as np

import shioenv_model
from outside import SUITES, is_right, recorded
from shioenv.domain.answer_json import behavior_of
from shioenv.errors import ShioenvError
from shioenv_eval.suite import Suite, read_suite
from shioenv_model import confidence
from shioenv_model.files import load_model

COMMANDS, FRESH = "commands", ("fresh, one half", "fresh, other half")
FITTED, RARE_FITTED = 0.9, 0.5
SHAPE, RATE = 1.5, 50.0
"""The gamma distribution of -log(factor) before data; its mode is a factor of .99."""
STEPS = 1_000

Case = tuple[str, Mapping[str, int], float, bool]
"""The suite, the properties, the confidence without factors, and whether the answer is right."""


def answered(name: str, suite: Suite) -> list[Case]:
    """Return the default model's answers to a suite, without the table's factors.

    The cases of a suite without a name are divided into the halves `FRESH`.
    """
    model, found = load_model(), list[Case]()
    for case in suite.cases:
        text = case.question.input
        try:
            with patch.object(confidence, "factors", lambda: defaultdict(lambda: 1.0)):
                answer = model.answer(text, case.state(suite.head.start))
        except ShioenvError:
            continue
        if len(case.gold) == 1:
            tags = confidence.properties(text, answer, model.steps)
            of = name or FRESH[hashlib.sha256(text.encode()).digest()[0] & 1]
            found.append((of, tags, answer.confidence, is_right(case, answer.behavior)))
    return found


def answered_work(folder: Path, names: list[str] | None, out: Path) -> list[Case]:
    """Return the default model's answers to the work halves of suites, as `answered`."""
    here = names or [name for name in SUITES if (folder / name).is_dir()]
    work = {name: recorded(name, folder, "work", out, None) for name in here}
    return [case for name, suite in work.items() for case in answered(name, suite)]


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
        said, tags = answer.behavior, confidence.properties(text, answer, model.steps)
        right = (said.output, said.exit_code) == (behavior.output, behavior.exit_code)
        found.append((COMMANDS, tags, answer.confidence, right))
    return found


def estimate(tags: Mapping[str, int], base: float, table: Mapping[str, float]) -> float:
    """Return the calibrated confidence by a table. Names that it lacks do not count."""
    return base * float(np.prod([table[n] ** times for n, times in tags.items() if n in table]))


def fitted(cases: list[Case]) -> dict[str, float]:
    """Return the factors, by expectation maximisation.

    The cost -log(factor) of a property is the expected number of faults that it causes in an
    answer, and an answer is right if nothing causes one.
    """
    kept = [
        case for case in cases
        if case[2] >= (RARE_FITTED if confidence.RARE in case[1] else FITTED)
    ]  # fmt: skip
    names = sorted(set().union(*(tags for _, tags, _, _ in kept)))
    counts = np.array([[tags.get(name, 0) for name in names] for _, tags, _, _ in kept], float)
    wrong = np.array([not right for *_, right in kept])
    faulty, costs = counts[wrong], np.full(len(names), (SHAPE - 1) / RATE)
    base = np.array([-np.log(sure) for _, _, sure, _ in kept])[wrong]
    for _ in range(STEPS):
        faults = base + faulty @ costs
        caused = costs * (faulty / (1 - np.exp(-faults) + 1e-9)[:, None]).sum(axis=0)
        costs = (caused + SHAPE - 1) / (counts.sum(axis=0) + RATE)
    return {name: round(float(np.exp(-cost)), 4) for name, cost in zip(names, costs, strict=True)}


def fitted_scripts(cases: list[Case], table: Mapping[str, float]) -> dict[str, float]:
    """Return the factors of scripts, with the other factors kept."""
    ours = confidence.OF_SCRIPTS
    others = {name: factor for name, factor in table.items() if name not in ours}
    scripts: list[Case] = [
        (name, {each: tags.get(each, 0) for each in ours}, estimate(tags, base, others), right)
        for name, tags, base, right in cases
        if confidence.SCRIPT in tags
    ]
    return fitted(scripts)


def main() -> int:
    """Print the table, and how right sure answers are in each suite."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?", metavar="FOLDER")
    parser.add_argument("--suite", action="append", choices=SUITES, metavar="NAME")
    parser.add_argument("--out", type=Path, default=Path("build/outside"), metavar="DIR")
    parser.add_argument("--commands", type=Path, metavar="FILE")
    parser.add_argument("--fresh", nargs="+", default=[], metavar="FILE")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    if given.folder is None and not given.fresh:
        parser.error("FOLDER or --fresh is needed")
    try:
        cases = answered_work(given.folder, given.suite, given.out) if given.folder else []
        if given.commands:
            cases += answered_commands(given.commands)
        fresh = [case for file in given.fresh for case in answered("", read_suite(file))]
    except ShioenvError as error:
        print(error.message, file=sys.stderr)
        return 1
    table = fitted(cases) if given.folder else dict(confidence.factors())
    tables: dict[str, dict[str, float]] = defaultdict(lambda: table)
    if fresh:
        for half in FRESH:
            unlike = [case for case in fresh if case[0] != half]
            tables[half] = table | fitted_scripts(unlike, table)
        table |= fitted_scripts(fresh, table)
    others = {confidence.LEAST_KNOWN, confidence.RARE, *confidence.OF_SCRIPTS}
    answerers = table.keys() - others
    table[confidence.LEAST_KNOWN] = min(table[name] for name in answerers)
    text = json.dumps(table, indent=2, sort_keys=True)
    print(text)
    cases += fresh
    for suite in sorted({name for name, *_ in cases}):
        sure = [
            right for name, tags, base, right in cases
            if name == suite and estimate(tags, base, tables[suite]) >= 0.9
        ]  # fmt: skip
        share = f"{len(sure) / max(1, sum(name == suite for name, *_ in cases)):.2f}"
        print(f"{suite}: sure {share}, right {sum(sure) / max(1, len(sure)):.3f}")
    if given.write:
        path = Path(shioenv_model.__file__).with_name("confidence.json")
        path.write_text(f"{text}\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
