"""Measure certified tasks a minute.

    python benchmarks/certify.py TASKS [--count N] [--k N] [--workers N]

The attacks on the judge, which run once for a build, are timed separately.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

from shioenv.system.store import find_system
from shioenv_agents.tasks.certify import certified_judge, certify_tasks
from shioenv_agents.tasks.task import read_tasks


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("tasks", type=Path)
    options.add_argument("--count", type=int, default=120)
    options.add_argument("--k", type=int, default=20)
    options.add_argument("--workers", type=int)
    asked = options.parse_args()
    tasks = read_tasks(asked.tasks)
    began = time.perf_counter()
    built = find_system(tasks[0].system)
    judge = certified_judge(tasks, built, built.name, asked.workers)
    print(
        f"attacks: {judge.attacks} kinds on {judge.tasks} tasks, {len(judge.forged)} forged, "
        f"{time.perf_counter() - began:.1f} s (near 0 if the result was cached)"
    )
    tasks = tasks[: asked.count]
    began, cpu = time.perf_counter(), os.times()
    certified = certify_tasks(tasks, k=asked.k, workers=asked.workers)
    seconds, after = time.perf_counter() - began, os.times()
    sound = [task for task in certified if task.certificate and not task.certificate.faults]
    used = sum(after[:4]) - sum(cpu[:4])
    runs = sum(
        2 * one.k + 2 + len(one.near_misses) + len(one.alternatives)
        for task in certified
        if (one := task.certificate)
    )
    print(
        f"{len(sound)} of {len(tasks)} tasks certified in {seconds:.1f} s with k = {asked.k}: "
        f"{60 * len(tasks) / seconds:.0f} per minute, {runs / len(tasks):.0f} attempts per task; "
        f"{used / len(tasks):.2f} s of processor time per task; load {os.getloadavg()[0]:.0f}"
    )


if __name__ == "__main__":
    main()
