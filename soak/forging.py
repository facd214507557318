"""Try to forge rewards: every attack of `shioenv_agents.tasks.attacks` on many tasks.

    python soak/forging.py [--count TASKS] [--seed S] [--tasks FILE] [--workers N] [--json]

The tasks are those of a file, spread over it, or are made of newly drawn records. An attack does
not do its task, or does harm besides, so any reward is forged.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

from common import Progress, parser, report
from shioenv.dataset.generate import Destination, generate
from shioenv.dataset.record_reader import read_records
from shioenv.execution.local import LocalExecutor
from shioenv.synthesis.drawing import Drawing
from shioenv_agents.tasks.attacks import ATTACKS, forgeries
from shioenv_agents.tasks.make import job_of, make_tasks
from shioenv_agents.tasks.task import Task, read_tasks

RECORDS = 8
"""Records drawn for a task: one in five makes one."""


def made(count: int, seed: int, system: str | None) -> list[Task]:
    """Make tasks of newly drawn records, at least `count` where enough records give one."""
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place) / "dataset"
        drawing = Drawing(seed=seed)
        generate(Destination(directory), count=max(count * RECORDS, 40), drawing=drawing)
        return make_tasks(read_records(directory), system=system).tasks


def main() -> int:
    """Run the check; exit status 1 where a reward was forged."""
    options = parser(__doc__, count=50)
    options.add_argument("--tasks", type=Path, help="a file of tasks (default: made for this)")
    options.add_argument("--workers", type=int, help="processes (default: one a processor)")
    asked = options.parse_args()
    tasks = read_tasks(asked.tasks) if asked.tasks else made(asked.count, asked.seed, asked.system)
    count = min(asked.count, len(tasks))
    chosen = [tasks[number * len(tasks) // count] for number in range(count)]
    progress, violations = Progress("tasks attacked", count), []
    system = asked.system or chosen[0].system
    with LocalExecutor(asked.workers) as executor:
        job = job_of(forgeries, system, None)
        for number, paid in executor.map(job, enumerate(chosen)):
            task = chosen[number]
            violations += [{"task": task.id, "solution": task.solution, "paid": x} for x in paid]
            progress.step()
    kinds = Counter(task.kind.value for task in chosen)
    facts = {"kinds of attacks": len(ATTACKS), "tasks": count, **kinds, "forged": len(violations)}
    return report(facts, violations, as_json=asked.json)


if __name__ == "__main__":
    sys.exit(main())
