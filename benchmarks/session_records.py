"""Measure the processor time of a record in a session: by resident shells, and by repetition.

    python benchmarks/session_records.py [--rows 160] [--length 8] [--seed 5] [--rounds 2] [--json]

Each measurement is a process that draws all rows, opens a sandbox, records the rows as `shioenv
generate` does in one lane, and closes it. Its processor time includes that of all processes below
it, without that of a process that draws the same rows and records nothing. The measurements
alternate. `episodes` counts the episodes of `ShIOEnv-v0` a second, each of so many lines of one
session, with a budget of 16.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any

from shioenv.behavior.observe import SandboxRunner, open_sandbox
from shioenv.dataset.record_tasks import Recording, Wanted, in_sessions
from shioenv.domain.inputs import Input, Session
from shioenv.domain.record import SCHEMA_VERSION
from shioenv.env.scorer import SessionScorer
from shioenv.execution.lanes import Lane
from shioenv.irreducibility.scoring import UNSCORED, Scoring
from shioenv.synthesis.sample import sample
from shioenv.synthesis.traces import Sample
from shioenv.system.store import find_system

PR_SET_CHILD_SUBREAPER = 36
WAYS = (
    "resident", "repeated", "scored", "scored repeated", "episodes", "episodes repeated",
)  # fmt: skip


def record(way: str, samples: list[Sample], seed: int) -> None:
    """Record rows in this process."""
    scoring = Scoring() if way.startswith("scored") else UNSCORED
    numbered = [(number, Wanted.of(one)) for number, one in enumerate(samples)]
    tasks: Any = numbered if way.endswith("repeated") else in_sessions(numbered)
    recording = Recording("gcs", seed, scoring, SCHEMA_VERSION)
    lane = Lane(open_sandbox)
    for task in tasks:
        recording(lane, task)
    if not samples:
        lane.context("/")
        if not way.endswith("repeated"):
            lane.open_session(["true"], "/").close()
    lane.close()


class Repeating(SandboxRunner):
    """A runner that repeats a session's rows for each input."""

    keeps_shells = False


def play(way: str, samples: list[Sample], length: int) -> None:
    """Score sessions of so many lines each, as the episodes of an environment do."""

    def opens() -> SandboxRunner:
        return (Repeating if way.endswith("repeated") else SandboxRunner)(find_system())

    scorer = SessionScorer(None, budget=16, record=False, runner=opens)
    warm = Session("/", (Input.from_marked(["true"]), Input.from_marked(["ls", "-l"])))
    scorer.score(warm, 0, session_id=0, sampler="gcs", horizon=12)
    for number in range(0, len(samples), length):
        rows = samples[number : number + length]
        session = Session(rows[0].cwd, tuple(one.input for one in rows))
        scorer.score(session, number, session_id=number, sampler="gcs", horizon=12)
    scorer.close()


def processor_seconds(
    way: str, given: argparse.Namespace, *, nothing: bool = False
) -> tuple[float, float]:
    """Return the processor and wall seconds of a process that records, with all below it."""
    began, before = time.perf_counter(), _used()
    command = [sys.executable, __file__, "--record", way]
    options = {"rows": given.rows, "length": given.length, "seed": given.seed}
    command += ["--nothing"] if nothing else []
    command += [part for name, value in options.items() for part in (f"--{name}", str(value))]
    subprocess.run(command, check=True)
    took = time.perf_counter() - began
    with suppress(ChildProcessError):
        while True:
            os.wait()  # processes whose parent ended before it waited for them
    return _used() - before, took


def _used() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Print milliseconds of processor time a record, the median of the rounds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in (("rows", 160), ("length", 8), ("seed", 5), ("rounds", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--ways", nargs="*", choices=WAYS, default=WAYS)
    parser.add_argument("--record", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--nothing", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if given.record:
        drawn = [*sample(count=given.rows, seed=given.seed, session_length=given.length)]
        samples = [] if given.nothing else drawn
        if given.record.startswith("episodes"):
            return play(given.record, samples, given.length)
        return record(given.record, samples, given.seed)
    if ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        parser.error("this process cannot become a subreaper")
    found: dict[str, list[float]] = {way: [] for way in given.ways}
    for _ in range(given.rounds):
        for way in given.ways:
            nothing = processor_seconds(way, given, nothing=True)
            spent, took = processor_seconds(way, given)
            found[way].append(1000 * (spent - nothing[0]) / given.rows)
            if way.startswith("episodes"):
                found.setdefault(f"{way} a second", []).append(
                    given.rows / given.length / (took - nothing[1])
                )
    figures = {way: round(statistics.median(each), 1) for way, each in found.items()}
    machine = f"{len(os.sched_getaffinity(0))} processors, Linux {platform.release()}"
    print(json.dumps(figures) if given.json else f"{machine}: ms a record {figures}")
    return None


if __name__ == "__main__":
    main()
