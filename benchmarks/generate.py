"""What a dataset costs: one worker and two, executions shared or not.

    python benchmarks/generate.py [--count N] [--budget M] [--seed S] [--turns T] [--json]

In every turn the same records are made four times, one way after the other, so that whatever else
the machine does hits all; each turn has a seed of its own. Ratios are of the same turn, the table
shows medians. Records a second are those of the middle four fifths: at the end of a run lanes are
idle while the slowest record waits, which a long run does not notice. docs/performance.md explains
the lines. Executions are shared through a file that is
made for the turn; what your own runs share is neither read nor written.
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
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shioenv.dataset.generate import Progress, Summary, generate
from shioenv.execution.local import LocalExecutor
from shioenv.irreducibility.scoring import Scoring
from shioenv.recording.cache import CACHE_BYTES
from shioenv.synthesis.drawing import Drawing
from shioenv.system.build import cache_directory
from shioenv.system.store import find_system

MUST, AIM = 25.0, 50.0
"""Records a second of two workers on two processors at a budget of 64."""


@dataclass(frozen=True)
class Way:
    """One way to make the records."""

    name: str
    workers: int
    shared: bool


WAYS = (
    Way("1 worker, nothing shared", 1, False),
    Way("2 workers, nothing shared", 2, False),
    Way("2 workers, cold", 2, True),
    Way("2 workers, warm", 2, True),
)


class Memory(threading.Thread):
    """Looks at what the worker processes keep in memory, every half second."""

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
        """MiB of a worker in the second quarter of its life and in its last: the larger ones."""
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
    """Says what is being measured."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def cache_of_its_own(directory: Path) -> Iterator[None]:
    """The built systems, and nothing that was executed before."""
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
    """When how many records were done."""

    def __init__(self) -> None:
        self._seconds: dict[int, float] = {}

    def report(self, progress: Progress) -> None:
        """What `generate` reports to."""
        self._seconds.setdefault(progress.done, progress.seconds)

    def records_per_second(self, count: int) -> float:
        """From the first tenth of the records to the last."""
        first, last = count // 10, count - count // 10
        return (last - first) / (self._seconds[last] - self._seconds[first])


def figures(
    summary: Summary, pace: Pace, memory: tuple[float | None, float | None]
) -> dict[str, Any]:
    """What one way gave."""
    effort = summary.effort
    return {
        "records_per_second": pace.records_per_second(summary.new),
        "executed_per_second": effort.ran / summary.seconds,
        "hit_rate": effort.found / effort.asked if effort.asked else None,
        "differing": effort.differing,
        "checked": effort.checked,
        "not_in_commands": 1 - effort.own_seconds / effort.lane_seconds,
        "memory_early": memory[0],
        "memory_late": memory[1],
        "retried": summary.retried,
    }


def turn(count: int, budget: int, seed: int, where: Path) -> list[dict[str, Any]]:
    """The records of one seed, made in every way."""
    found = []
    with cache_of_its_own(where / "cache"):
        for number, way in enumerate(WAYS):
            progress(f"seed {seed}: {way.name}")
            memory, pace = Memory(), Pace()
            memory.start()
            summary = generate(
                where / str(number),
                count=count,
                executor=LocalExecutor(way.workers, cache_bytes=CACHE_BYTES if way.shared else 0),
                report=pace.report,
                drawing=Drawing(seed=seed),
                scoring=Scoring(budget=budget),
            )
            found.append(figures(summary, pace, memory.end()))
    return found


def _median(values: list[Any]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def report(turns: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """A row for each way: medians over the turns."""
    rows = []
    for number, way in enumerate(WAYS):
        mine = [one[number] for one in turns]
        row: dict[str, Any] = {"name": way.name}
        row |= {name: _median([one[name] for one in mine]) for name in mine[0]}
        row["against_2_workers"] = statistics.median(
            one[number]["records_per_second"] / one[1]["records_per_second"] for one in turns
        )
        rows.append(row)
    return rows


def print_table(rows: list[dict[str, Any]]) -> None:
    """The table of docs/performance.md."""
    head = ("records/s", "ratio", "executed/s", "known", "not in commands", "MiB early", "late")
    print(f"{'':28}" + "".join(f"{name:>17}" for name in head))
    for row in rows:
        cells = (
            f"{row['records_per_second']:.1f}",
            f"{row['against_2_workers']:.2f}",
            f"{row['executed_per_second']:.0f}",
            "-" if row["hit_rate"] is None else f"{100 * row['hit_rate']:.1f}%",
            f"{100 * row['not_in_commands']:.0f}%",
            *(
                "-" if row[name] is None else f"{row[name]:.0f}"
                for name in ("memory_early", "memory_late")
            ),
        )
        print(f"{row['name']:28}" + "".join(f"{cell:>17}" for cell in cells))


def main() -> None:
    """Measures, prints."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=400, help="records in each way")
    parser.add_argument("--budget", type=int, default=64)
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
            turns.append(turn(options.count, options.budget, seed, Path(directory)))
    rows = report(turns)
    facts = {
        "system": f"{system.name} {system.digest[:16]}",
        "machine": f"{len(os.sched_getaffinity(0))} processors, Linux {platform.release()}",
        "load": [round(load, 1), round(os.getloadavg()[0], 1)],
        "count": options.count,
        "budget": options.budget,
        "turns": options.turns,
        "must": MUST,
        "aim": AIM,
    }
    if options.json:
        print(json.dumps({**facts, "rows": rows}))
        return
    for name, value in facts.items():
        print(f"{name:10} {value}")
    print()
    print_table(rows)
    ratio = 1 / rows[0]["against_2_workers"]
    reached = rows[1]["records_per_second"]
    verdict = "reaches the aim" if reached >= AIM else "ok" if reached >= MUST else "MISSED"
    print(f"\n2 workers against 1: {ratio:.2f}")
    print(f"{MUST:.0f} records/s with 2 workers (aim {AIM:.0f}): {reached:.1f}, {verdict}")


if __name__ == "__main__":
    main()
