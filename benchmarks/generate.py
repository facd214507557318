"""Measure the cost of a dataset: usual and paper's settings, shared or not, and without scores.

    python benchmarks/generate.py [--count N] [--seed S] [--turns T] [--json]

In every turn the same records are made in every way, one way after the other, so that other load
affects all alike; each turn has a different seed. Ratios are of the same turn, the table shows
medians. Records a second are those of the middle four fifths: at the end of a run lanes are idle
while the slowest record waits, which a long run does not notice. docs/performance.md explains the
lines. The usual settings are those of `shioenv generate`, which shares what it executes for scores:
here through a file of the turn, empty at first, and never through the cache of your own runs.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shioenv.dataset.generate import Progress, Summary, generate
from shioenv.execution.local import LocalExecutor
from shioenv.files.durable import cache_directory
from shioenv.irreducibility.scoring import THE_PAPERS, UNSCORED, Scoring
from shioenv.irreducibility.scoring import USUAL as FOR_DATASETS
from shioenv.recording.execution_cache import CACHE_BYTES
from shioenv.synthesis.drawing import Drawing
from shioenv.system.store import find_system

WANTED = {
    "records/s, usual settings": ("usual", "records_per_second", 36.0, 45.0),
    "records/s, without scores": ("without scores", "records_per_second", 150.0, 185.0),
    "generator's own ms a record": ("without scores", "generator_ms", 0.6, 0.3),
}
"""Targets by name: the way that shows it, its figure, the required value and the aim, with two
workers on two processors."""


@dataclass(frozen=True)
class Way:
    """One way to make the records."""

    name: str
    scoring: Scoring = FOR_DATASETS
    workers: int = 2
    shared: bool = False
    times: int = 1
    """Factor on the number of records."""


WAYS = (
    Way("usual", shared=True),
    Way("usual, once more", shared=True),
    Way("nothing shared"),
    Way("nothing shared, 1 worker", workers=1),
    Way("the paper's: `paper`, 64", THE_PAPERS),
    Way("without scores", UNSCORED, times=4),
)
USUAL = [way.name for way in WAYS].index("usual")


class Memory(threading.Thread):
    """Samples the memory of the worker processes every half second."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._ended = threading.Event()
        self._seen: dict[int, list[float]] = {}

    def run(self) -> None:
        while not self._ended.wait(0.5):
            for pid in _children(os.getpid()):
                size = _resident(pid)
                if size:
                    self._seen.setdefault(pid, []).append(size)

    def end(self) -> tuple[float | None, float | None]:
        """Return a worker's MiB in the second and the last quarter of its life: the larger ones."""
        self._ended.set()
        self.join()
        lives = [seen for seen in self._seen.values() if len(seen) >= 4]
        if not lives:
            return None, None
        early = max(max(seen[len(seen) // 4 : len(seen) // 2]) for seen in lives)
        return early, max(max(seen[len(seen) * 3 // 4 :]) for seen in lives)


def _children(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            found += [int(one) for one in (task / "children").read_text().split()]
        except OSError:
            continue
    return found


def _resident(pid: int) -> float:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def progress(text: str) -> None:
    """Print what is being measured."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def cache_of_its_own(directory: Path) -> Iterator[None]:
    """Make a cache with the built systems and no executions."""
    real = cache_directory()
    directory.mkdir()
    for name in ("bases", "names", "systems"):
        if (real / name).exists():
            (directory / name).symlink_to(real / name)
    before = os.environ.get("SHIOENV_CACHE")
    os.environ["SHIOENV_CACHE"] = str(directory)
    try:
        yield
    finally:
        del os.environ["SHIOENV_CACHE"]
        if before is not None:
            os.environ["SHIOENV_CACHE"] = before


class Pace:
    """The times at which records were done, and this process's own time until then."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[float, float]] = {}

    def report(self, progress: Progress) -> None:
        """Receive the progress of `generate`."""
        self._seen.setdefault(progress.done, (progress.seconds, time.process_time()))

    def of_middle(self, count: int) -> dict[str, float]:
        """Return figures from the first tenth of the records to the last: records a second, and
        this process's own milliseconds of processor time a record, which include the sampler and
        the store.
        """
        first, last = count // 10, count - count // 10
        seconds, own = (
            end - start for start, end in zip(self._seen[first], self._seen[last], strict=True)
        )
        records = last - first
        return {"records_per_second": records / seconds, "generator_ms": 1000 * own / records}


def figures(
    summary: Summary, pace: Pace, memory: tuple[float | None, float | None]
) -> dict[str, Any]:
    """Return the figures of one way."""
    effort = summary.effort
    return {
        **pace.of_middle(summary.new),
        "executions": effort.ran / summary.new,
        "executed_per_second": effort.ran / summary.seconds,
        "hit_rate": effort.found / effort.asked if effort.asked else None,
        "differing": effort.differing,
        "checked": effort.checked,
        "not_in_commands": 1 - effort.own_seconds / effort.lane_seconds,
        "memory_early": memory[0],
        "memory_late": memory[1],
        "retried": summary.retried,
    }


def turn(count: int, seed: int, where: Path) -> list[dict[str, Any]]:
    """Make the records of one seed in every way."""
    found = []
    with cache_of_its_own(where / "cache"):
        for number, way in enumerate(WAYS):
            progress(f"seed {seed}: {way.name}")
            memory, pace = Memory(), Pace()
            memory.start()
            summary = generate(
                where / str(number),
                count=count * way.times,
                executor=LocalExecutor(way.workers, cache_bytes=CACHE_BYTES if way.shared else 0),
                report=pace.report,
                drawing=Drawing(seed=seed),
                scoring=way.scoring,
            )
            found.append(figures(summary, pace, memory.end()))
    return found


def _median(values: list[Any]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def report(turns: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return a row for each way: medians over the turns."""
    rows = []
    for number, way in enumerate(WAYS):
        mine = [one[number] for one in turns]
        row: dict[str, Any] = {"name": way.name}
        row |= {name: _median([one[name] for one in mine]) for name in mine[0]}
        row["against_usual"] = statistics.median(
            one[number]["records_per_second"] / one[USUAL]["records_per_second"] for one in turns
        )
        rows.append(row)
    return rows


def print_table(rows: list[dict[str, Any]]) -> None:
    """Print the table of docs/performance.md."""
    head = (
        *("records/s", "ratio", "executions", "executed/s", "known", "not in commands"),
        *("own ms", "MiB early", "late"),
    )
    print(f"{'':26}" + "".join(f"{name:>16}" for name in head))
    for row in rows:
        cells = (
            f"{row['records_per_second']:.1f}",
            f"{row['against_usual']:.2f}",
            f"{row['executions']:.1f}",
            f"{row['executed_per_second']:.0f}",
            "-" if row["hit_rate"] is None else f"{100 * row['hit_rate']:.1f}%",
            f"{100 * row['not_in_commands']:.0f}%",
            f"{row['generator_ms']:.2f}",
            *(
                "-" if row[name] is None else f"{row[name]:.0f}"
                for name in ("memory_early", "memory_late")
            ),
        )
        print(f"{row['name']:26}" + "".join(f"{cell:>16}" for cell in cells))


def print_verdicts(rows: list[dict[str, Any]]) -> None:
    """Print each target, and whether it is reached."""
    by_name = {row["name"]: row for row in rows}
    print(f"\n{'two workers':30}{'must':>8}{'aim':>8}{'reached':>10}")
    for what, (way, figure, must, aim) in WANTED.items():
        reached = by_name[way][figure]
        sign = 1 if aim > must else -1
        verdict = (
            "reaches the aim"
            if sign * reached >= sign * aim
            else "ok"
            if sign * reached >= sign * must
            else "MISSED"
        )
        print(f"{what:30}{must:>8g}{aim:>8g}{reached:>10.2f}  {verdict}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=400, help="records in each way")
    parser.add_argument("--seed", type=int, default=7, help="of the first turn")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    system = find_system()
    load = os.getloadavg()[0]
    turns = []
    for number in range(options.turns):
        with tempfile.TemporaryDirectory() as directory:
            seed = options.seed + number
            turns.append(turn(options.count, seed, Path(directory)))
    rows = report(turns)
    facts = {
        "system": f"{system.name} {system.digest[:16]}",
        "machine": f"{len(os.sched_getaffinity(0))} processors, Linux {platform.release()}",
        "load": [round(load, 1), round(os.getloadavg()[0], 1)],
        "count": options.count,
        "turns": options.turns,
    }
    if options.json:
        print(json.dumps({**facts, "rows": rows}))
        return
    for name, value in facts.items():
        print(f"{name:10} {value}")
    print()
    print_table(rows)
    print_verdicts(rows)


if __name__ == "__main__":
    main()
