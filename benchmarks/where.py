"""Break down the processor time of executions, when records are made on this machine.

    python benchmarks/where.py [--count N] [--seed S] [--scored] [--json]

One lane makes the records of the policy `mixed`, one after the other. The kernel reports each
process's processor time, which other load hardly changes. Time of inputs comes in steps of 10 ms:
it is accurate for many executions, not for one. Kernel threads and the loading at the start are not
included. Neither is an execution after which its sandbox was closed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
from collections.abc import Iterable, Iterator
from operator import sub
from pathlib import Path
from typing import Any, TypeVar

from shioenv.behavior.observe import SandboxRunner
from shioenv.dataset.generate import Progress, generate
from shioenv.domain.behavior import Behavior
from shioenv.domain.runner import State
from shioenv.execution.job import NumberedJob, Tell, silent
from shioenv.execution.local import SerialExecutor
from shioenv.irreducibility.scoring import UNSCORED, Scoring
from shioenv.sandbox.base import Limits
from shioenv.sandbox.namespaces.backend import NamespaceSandbox
from shioenv.synthesis.drawing import Drawing
from shioenv.system.store import System, find_system
from steps import spent_by_processes

T = TypeVar("T")
A = TypeVar("A")

WARM_UP = 100
"""Records that are not counted: grammars are read when their command is first drawn."""

PROCESSES = {
    "input": "inputs: their shells, programs and helpers",
    "supervisor": "supervisor: checks, what changed, reset",
    "fork server": "fork of the shell",
}


class Watched(SandboxRunner):
    """A runner that reads its processes' times before each execution. The time since the reading
    before belongs to the previous execution, its reset included.
    """

    def __init__(self, system: System, limits: Limits | None = None) -> None:
        super().__init__(system, limits)
        self.executions: list[dict[str, float]] = []
        """Milliseconds of each, by process."""
        self.looking = 0.0
        """Milliseconds of the readings."""
        self._last: tuple[int, dict[str, float]] | None = None

    def execute(self, shell_input: str, state: State | None = None, **how: Any) -> Behavior:
        """See `SandboxRunner`."""
        self.look()
        began = time.thread_time()
        try:
            return super().execute(shell_input, state, **how)
        finally:
            self.executions.append({"Python": 1000 * (time.thread_time() - began)})

    def look(self) -> None:
        """Add the time of processes to the newest execution, if they are still the same
        processes."""
        began = time.thread_time()
        sandbox = self._sandbox
        assert isinstance(sandbox, NamespaceSandbox)
        before, self._last = self._last, None
        if sandbox._process is not None:
            self._last = sandbox._process.pid, spent_by_processes(self)
            if before is not None and before[0] == self._last[0]:
                used = {name: 1000 * (self._last[1][name] - before[1][name]) for name in PROCESSES}
                self.executions[-1] |= used
        self.looking += 1000 * (time.thread_time() - began)


class Timed(SerialExecutor):
    """The executor, which measures the milliseconds of drawing the next task."""

    drawing = 0.0

    def map(
        self, job: NumberedJob[T, A], tasks: Iterable[tuple[int, T]], tell: Tell = silent
    ) -> Iterator[tuple[int, A]]:
        """See the executor."""
        return super().map(job, self._drawn(iter(tasks)), tell)

    def _drawn(self, tasks: Iterator[tuple[int, T]]) -> Iterator[tuple[int, T]]:
        while True:
            began = time.thread_time()
            task = next(tasks, None)
            self.drawing += 1000 * (time.thread_time() - began)
            if task is None:
                return
            yield task


def measured(count: int, seed: int, scoring: Scoring | None) -> dict[str, Any]:
    """Return milliseconds of processor time an execution, by place, and their variation.

    `WARM_UP` records before these are not counted: they load and open nearly everything.
    """
    opened: list[Watched] = []

    def opens(system: str, limits: Limits) -> Watched:
        opened.append(Watched(find_system(system), limits))
        return opened[-1]

    def so_far() -> tuple[float, float, float]:
        looking = sum(runner.looking for runner in opened)
        return 1000 * time.process_time(), executor.drawing, looking

    executor = Timed(opens)
    before, warm = so_far(), 0

    def report(progress: Progress) -> None:
        nonlocal before, warm
        if progress.done == WARM_UP:
            before, warm = so_far(), sum(len(runner.executions) for runner in opened)

    with tempfile.TemporaryDirectory() as directory:
        generate(
            Path(directory, "dataset"),
            count=WARM_UP + count,
            drawing=Drawing(policy="mixed", seed=seed),
            scoring=scoring,
            executor=executor,
            report=report,
        )
        whole, drawing, looking = map(sub, so_far(), before)
    every = [one for runner in opened for one in runner.executions][warm:]
    known = [one for one in every if len(one) > 1]
    inside = sum(one["Python"] for one in every)
    places = {name: sum(one[name] for one in known) / len(known) for name in PROCESSES}
    places["Python in the run"] = inside / len(every)
    places["Python around it: recording, encoding"] = (whole - inside - drawing - looking) / len(
        every
    )
    places["drawing"] = drawing / len(every)
    all_ms = sum(places.values())
    dearest = sorted((sum(one.values()) for one in known), reverse=True)
    return {
        "records": count,
        "executions": len(every),
        "known": len(known),
        "milliseconds": {PROCESSES.get(name, name): round(ms, 3) for name, ms in places.items()},
        "an execution": round(all_ms, 3),
        "a record": round(all_ms * len(every) / count, 3),
        "share of the dearest hundredth": round(
            sum(dearest[: max(1, len(dearest) // 100)]) / sum(dearest), 3
        ),
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=1000, help="records (default: 1,000)")
    parser.add_argument("--seed", type=int, default=71)
    parser.add_argument("--scored", action="store_true", help="with scores, as usual")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    system = find_system()
    load = os.getloadavg()[0]
    found = measured(options.count, options.seed, None if options.scored else UNSCORED)
    about = {
        "system": f"{system.name} {system.digest[:16]}",
        "machine": f"{len(os.sched_getaffinity(0))} processors, Linux {platform.release()}",
        "load": [round(load, 1), round(os.getloadavg()[0], 1)],
    }
    if options.json:
        print(json.dumps({**about, **found}))
        return
    for name, value in about.items():
        print(f"{name:10} {value}")
    print(f"\n{found['executions']} executions of {found['records']} records")
    print(f"{'processor time per execution, ms':46}{'':8}{'share':>8}")
    for name, ms in found["milliseconds"].items():
        print(f"  {name:44}{ms:8.3f}{100 * ms / found['an execution']:7.1f}%")
    print(f"  {'all':44}{found['an execution']:8.3f}; per record {found['a record']:.2f}")
    print(f"  the most expensive 1% of executions: {found['share of the dearest hundredth']:.0%}")


if __name__ == "__main__":
    main()
