"""Where the processor time of executions goes, when records are made on this machine.

    python benchmarks/where.py [--count N] [--seed S] [--scored] [--json]

One lane makes the records of the policy `mixed`, one after the other. The kernel tells how much of
a processor each process used, which other work on the machine hardly changes. Time of inputs comes
in steps of 10 ms: it is right of many executions, not of one. Not in it are kernel threads, what
is loaded or opened once, and what an execution used after which its sandbox was ended.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steps import spent_by_processes

from shioenv.behavior.observe import SandboxRunner
from shioenv.dataset.generate import generate
from shioenv.domain.behavior import Behavior
from shioenv.domain.runner import State
from shioenv.execution.local import SerialExecutor
from shioenv.irreducibility.scoring import UNSCORED, Scoring
from shioenv.sandbox.base import Limits
from shioenv.sandbox.namespaces.backend import NamespaceSandbox
from shioenv.synthesis.drawing import Drawing
from shioenv.system.store import System, find_system

PROCESSES = {
    "input": "inputs: their shells, programs and helpers",
    "supervisor": "supervisor: checks, what changed, reset",
    "fork server": "fork of the shell",
}


class Watched(SandboxRunner):
    """A runner that looks at the time of its processes before each execution: what they used since
    the look before is that of the execution before, its reset included.
    """

    def __init__(self, system: System, limits: Limits | None = None) -> None:
        super().__init__(system, limits)
        self.executions: list[dict[str, float]] = []
        """Milliseconds of each, by process."""
        self.looking = 0.0
        """Milliseconds that the looks took."""
        self._last: tuple[int, dict[str, float]] | None = None

    def execute(self, shell_input: str, state: State | None = None, **how: Any) -> Behavior:
        """The same."""
        self.look()
        began = time.thread_time()
        try:
            return super().execute(shell_input, state, **how)
        finally:
            self.executions.append({"Python": 1000 * (time.thread_time() - began)})

    def look(self) -> None:
        """Adds what processes used to the newest execution, where they are those of before it."""
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


@dataclass
class Used:
    """What a dataset took: milliseconds of processor time, all together and by place."""

    records: int
    executions: list[dict[str, float]]
    whole: float
    drawing: float
    looking: float

    def places(self) -> dict[str, float]:
        """Milliseconds by place; of executions whose sandbox was ended only those in Python."""
        inside = sum(one["Python"] for one in self.executions)
        rest = self.whole - inside - self.drawing - self.looking
        return {
            **{name: sum(one.get(name, 0.0) for one in self.executions) for name in PROCESSES},
            "Python in the run": inside,
            "Python around it: recording, encoding": rest,
            "drawing": self.drawing,
        }


def used(count: int, seed: int, scoring: Scoring | None) -> Used:
    """What the first `count` records of a seed take."""
    opened: list[Watched] = []

    def opens(system: str, limits: Limits) -> Watched:
        opened.append(Watched(find_system(system), limits))
        return opened[-1]

    with tempfile.TemporaryDirectory() as directory:
        began = time.process_time()
        summary = generate(
            Path(directory, "dataset"),
            count=count,
            drawing=Drawing(policy="mixed", seed=seed),
            scoring=scoring,
            executor=SerialExecutor(opens),
        )
        whole = 1000 * (time.process_time() - began)
    return Used(
        records=summary.new,
        executions=[one for runner in opened for one in runner.executions],
        whole=whole,
        drawing=1000 * summary.effort.drawing_seconds,
        looking=sum(runner.looking for runner in opened),
    )


def measured(count: int, seed: int, scoring: Scoring | None) -> dict[str, Any]:
    """Milliseconds of processor time an execution, by place, and how unequal they are.

    The records of the first quarter are made twice, by themselves and with the others. They are
    taken off, and with them all that is loaded and opened once.
    """
    used(10, seed, scoring)
    first, every = used(max(1, count // 4), seed, scoring), used(count, seed, scoring)
    executions = len(every.executions) - len(first.executions)
    records = every.records - first.records
    before = first.places()
    places = {name: (ms - before[name]) / executions for name, ms in every.places().items()}
    all_ms = sum(places.values())
    dearest = sorted((sum(one.values()) for one in every.executions), reverse=True)
    return {
        "records": records,
        "executions": executions,
        "milliseconds": {PROCESSES.get(name, name): round(ms, 3) for name, ms in places.items()},
        "an execution": round(all_ms, 3),
        "a record": round(all_ms * executions / records, 3),
        "share of the dearest hundredth": round(
            sum(dearest[: max(1, len(dearest) // 100)]) / sum(dearest), 3
        ),
    }


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=1200, help="records (default: 1,200)")
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
    print(f"{'ms of a processor an execution':46}{'':8}{'share':>8}")
    for name, ms in found["milliseconds"].items():
        print(f"  {name:44}{ms:8.3f}{100 * ms / found['an execution']:7.1f}%")
    print(f"  {'all':44}{found['an execution']:8.3f}; a record {found['a record']:.2f}")
    print(
        f"  the dearest hundredth of executions has {found['share of the dearest hundredth']:.0%}"
    )


if __name__ == "__main__":
    main()
