"""The contribution of each source of a model's answers: rules, functions, records.

    python benchmarks/sources.py --suite FILE [--model MODEL] [--limit N] [--workers W] [--json]

The model is asked about every input of a suite: as it is, without each source, without rules and
functions, and its records alone (the predictor `memory-plain`, without Bash's interpreter). Prints
a Markdown row for each: EM of single inputs, multi inputs and all, with 95% intervals; the inputs
that only the whole model answers right, and those that only this row answers right. `--limit`
takes N inputs, evenly spread over the suite.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from shioenv_eval.evaluate import Evaluation, evaluate
from shioenv_eval.suite import read_suite

GROUPS = ("single", "multi", "all")


def predictors(model: str) -> dict[str, str]:
    """Return the predictors, by the name of their row."""
    return {
        "all": f"default:{model}",
        "without rules": f"default:{model},without=rules",
        "without functions": f"default:{model},without=functions",
        "without records": f"default:{model},without=records",
        "without rules and functions": f"default:{model},without=rules,without=functions",
        "records alone": f"memory-plain:{model}",
    }


def rows(done: Evaluation, names: dict[str, str]) -> list[dict[str, Any]]:
    """Return the figures of each row. Errors: KeyError where a predictor could not run."""
    marks = {one.name: [bool(each.em) for each in one.marks] for one in done.predictors}
    whole = marks[names["all"]]
    found = []
    for row, name in names.items():
        scores = done.document["predictors"][name]
        pairs = [*zip(whole, marks[name], strict=True)]
        found.append(
            {
                "sources": row,
                "predictor": name,
                "right": sum(marks[name]),
                "inputs": len(pairs),
                "em": {group: scores[group]["em"] for group in GROUPS if group in scores},
                "lost": sum(before and not now for before, now in pairs),
                "gained": sum(now and not before for before, now in pairs),
            }
        )
    return found


def print_table(found: list[dict[str, Any]]) -> None:
    """Print the rows as Markdown."""
    print(f"| sources | right of {found[0]['inputs']} | {' | '.join(GROUPS)} | lost | gained |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for row in found:
        cells = [_shown(row["em"].get(group)) for group in GROUPS]
        counts = f"{row['lost']} | {row['gained']}"
        print(f"| {row['sources']} | {row['right']} | {' | '.join(cells)} | {counts} |")


def _shown(estimate: list[float | None] | None) -> str:
    if estimate is None or None in estimate:
        return ""
    value, low, high = estimate
    return f"{value:.3f} [{low:.2f}, {high:.2f}]"


def main() -> None:
    """Print the contribution of each source to a suite."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--suite", required=True, type=Path, metavar="FILE")
    parser.add_argument("--model", default="default", metavar="MODEL")
    parser.add_argument("--limit", type=int, metavar="N")
    parser.add_argument("--workers", type=int, metavar="W")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    suite = read_suite(given.suite)
    if given.limit is not None:
        step = max(1, len(suite.cases) // given.limit)
        suite = replace(suite, cases=suite.cases[::step][: given.limit])
    names = predictors(given.model)
    done = evaluate(suite, [*names.values()], workers=given.workers)
    if done.unable:
        parser.exit(1, "".join(f"{name}: {why}\n" for name, why in done.unable.items()))
    found = rows(done, names)
    if given.json:
        print(json.dumps({"suite": suite.head.name, "rows": found}, indent=2))
    else:
        print_table(found)


if __name__ == "__main__":
    main()
