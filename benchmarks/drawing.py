"""Measure the memory that drawing keeps for each input, and the time of an input.

    python benchmarks/drawing.py [--count N] [--policy P] [--mistakes SHARE] [--session-length N]
    python benchmarks/drawing.py --count N --parts 8

Draws N inputs, then N more, and prints the growth of Python's own allocations and of the process's
resident memory in the second half. By then the caches, whose size is bounded, are nearly full.
`--time` measures no allocations, which slows drawing down, and prints the time of an input.
`--parts` prints the processor time of the first of so many parts of N inputs, against all of them.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
import tracemalloc
from itertools import islice
from pathlib import Path

from shioenv.synthesis.drawing import Drawing
from shioenv.synthesis.sample import grammars_for, numbers_of, sample
from shioenv.system.store import find_system


def resident() -> int:
    """Return this process's resident bytes."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/self/status has no VmRSS")


def measure(drawing: Drawing, count: int, *, traced: bool) -> dict[str, float]:
    """Return the figures of a second half of `count` inputs."""
    if traced:
        tracemalloc.start()
    stream = sample(drawing)
    figures = []
    for _ in range(2):
        begun = time.perf_counter()
        for _ in islice(stream, count):
            pass
        took = time.perf_counter() - begun
        gc.collect()
        allocated = tracemalloc.get_traced_memory()[0] if traced else 0
        figures.append((took, allocated, resident()))
    (_, allocated, memory), (took, allocated_then, memory_then) = figures
    shown = {"milliseconds": round(1000 * took / count, 3)}
    if traced:
        shown = {"allocated_bytes": round((allocated_then - allocated) / count, 1)}
    return {
        "inputs": 2 * count,
        **shown,
        "resident_bytes": round((memory_then - memory) / count, 1),
    }


def measure_part(drawing: Drawing, count: int, parts: int) -> dict[str, float]:
    """Return the processor times of a part and of the whole stream, after the first input."""
    system = find_system()
    grammars = grammars_for(system, drawing)
    seconds = []
    for text in (f"1/{parts}", ""):
        drawn = drawing.but(part=text)
        numbers = numbers_of(drawn, count, system=system, grammars=grammars)
        stream = sample(drawn, count=len(numbers), system=system, grammars=grammars)
        next(stream)
        begun = time.process_time()
        for _ in stream:
            pass
        seconds.append(time.process_time() - begun)
    part, whole = seconds
    return {
        "inputs": count,
        "part_seconds": round(part, 2),
        "seconds": round(whole, 2),
        "share_times_parts": round(part / whole * parts, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=40_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--policy", default="default")
    parser.add_argument("--mistakes", type=float, default=0.0)
    parser.add_argument("--session-length", type=int, default=1)
    parser.add_argument("--time", action="store_true", help="measure time, not allocations")
    parser.add_argument("--parts", type=int, help="compare one of so many parts with the whole")
    given = parser.parse_args()
    drawing = Drawing(
        seed=given.seed,
        policy=given.policy,
        mistakes=given.mistakes,
        session_length=given.session_length,
    )
    if given.parts:
        print(json.dumps(measure_part(drawing, given.count, given.parts)))
        return
    print(json.dumps(measure(drawing, given.count, traced=not given.time)))


if __name__ == "__main__":
    main()
