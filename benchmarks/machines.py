"""Measure a run's cost in a microVM, beside namespaces: processor time and wall time.

    python benchmarks/machines.py --count 20

Medians in milliseconds of one run after another; of machines also the processor time of QEMU and of
the caller. The ways take turns, so that other load affects all alike.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from shioenv.sandbox.backends import default_sandbox
from shioenv.sandbox.base import Limits, Request
from shioenv.system.store import find_system
from shioenv_backends.microvm.virtual_machine import MicrovmSandbox

INPUTS = ("echo hi", "ls /etc | wc -l", "echo x > /tmp/f")
WAYS = {
    "namespaces": Limits(wall_seconds=60, cpu_seconds=60),
    "microvm --revert never": Limits(wall_seconds=60, cpu_seconds=60, sandbox="microvm", revert=0),
    "microvm --revert input": Limits(wall_seconds=60, cpu_seconds=60, sandbox="microvm"),
}


def used(sandbox: object) -> float:
    """Return the processor seconds of this process, of ended machines, and of the running one."""
    whose = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    total = sum(sum(resource.getrusage(who)[:2]) for who in whose)
    if isinstance(sandbox, MicrovmSandbox) and sandbox._process:
        stat = Path(f"/proc/{sandbox._process.pid}/stat").read_text().rpartition(")")[2].split()
        total += (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")
    return total


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--count", type=int, default=20, help="runs of each input (default: 20)")
    count = options.parse_args().count
    system = find_system()
    times: dict[tuple[str, str], list[tuple[float, float]]] = {}
    with ExitStack() as stack:
        opened = {
            way: stack.enter_context(default_sandbox(system, limits))
            for way, limits in WAYS.items()
        }
        for _ in range(count + 2):
            for text in INPUTS:
                for way, sandbox in opened.items():
                    began, before = time.perf_counter(), used(sandbox)
                    sandbox.run(Request(text))
                    taken = (time.perf_counter() - began, used(sandbox) - before)
                    times.setdefault((way, text), []).append(taken)
    for way, text in sorted(times):
        wall, processor = zip(*times[way, text][2:], strict=True)
        line = f"{way:24} {text:18} wall {1000 * median(wall):7.1f} ms"
        if WAYS[way].sandbox == "microvm":  # with namespaces a running process has used it
            line += f"   processor {1000 * median(processor):7.1f} ms"
        print(line)


if __name__ == "__main__":
    main()
