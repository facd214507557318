"""Measure the Ray engine's cost against the local one: windows of the same records, in turn.

Both are open all the time, on the same processors, and rest while the other works. A window gives
one of them a batch of samples; its time is from the first sample to the last record. The start of
an engine is measured separately.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from itertools import islice
from typing import TypeAlias

from shioenv.dataset.generate import plan_of
from shioenv.dataset.record_tasks import RecordAnswer, RecordTask, Wanted, recording
from shioenv.execution.job import Executor, NumberedJob
from shioenv.execution.local import LocalExecutor
from shioenv.grammar.library import PAPER, load_grammars
from shioenv.irreducibility.scoring import Scoring
from shioenv.synthesis.drawing import Drawing
from shioenv.synthesis.sample import sample
from shioenv.system.store import find_system
from shioenv_backends.ray_executor import RayExecutor

Batch: TypeAlias = list[tuple[int, Wanted]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--records", type=int, default=60, help="in a window")
    parser.add_argument("--budget", type=int, default=16)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    job, batches = prepared(asked)
    local, ray = LocalExecutor(asked.workers), RayExecutor(asked.workers)
    pairs: list[tuple[float, float]] = []
    with local, ray:
        engines: list[Executor] = [local, ray]
        first = next(batches)
        started = [window(engine, job, first) for engine in engines]
        for batch in islice(batches, asked.pairs):
            engines.reverse()
            times = {id(engine): window(engine, job, batch) for engine in engines}
            pairs.append((times[id(local)], times[id(ray)]))
            print(f"local {pairs[-1][0]:.2f} s, ray {pairs[-1][1]:.2f} s", file=sys.stderr)
    told = {
        "pairs": len(pairs),
        "records": asked.records,
        "budget": asked.budget,
        "workers": asked.workers,
        "load": os.getloadavg()[0],
        "first_seconds": {"local": started[0], "ray": started[1]},
        "local_seconds": statistics.median(a for a, _ in pairs),
        "ray_seconds": statistics.median(b for _, b in pairs),
        "ratio_median": statistics.median(b / a for a, b in pairs),
        "ratio_of_sums": sum(b for _, b in pairs) / sum(a for a, _ in pairs),
        "ratio_quartiles": statistics.quantiles((b / a for a, b in pairs), n=4),
    }
    if asked.json:
        print(json.dumps(told))
        return
    for key, value in told.items():
        print(f"{key:16} {value}")


def prepared(
    asked: argparse.Namespace,
) -> tuple[NumberedJob[RecordTask, RecordAnswer], Iterator[Batch]]:
    """Return the workers' job, and batches of numbered samples."""
    system = find_system()
    grammars = load_grammars(PAPER, host_clock=system.host_clock)
    plan = plan_of(
        system,
        grammars,
        drawing=Drawing(sampler="gcs", seed=asked.seed),
        scoring=Scoring(budget=asked.budget),
    )
    count = (asked.pairs + 1) * asked.records
    samples = sample(plan.drawing, system=system, count=count, grammars=grammars)
    numbered = enumerate(map(Wanted.of, samples))
    batches = iter(lambda: list(islice(numbered, asked.records)), [])
    return recording(plan, system.name), batches


def window(engine: Executor, job: NumberedJob[RecordTask, RecordAnswer], batch: Batch) -> float:
    """Return the seconds from the first sample to the last record."""
    start = time.perf_counter()
    made = sum(1 for _ in engine.map(job, batch))
    assert made == len(batch)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
