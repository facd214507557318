"""Break down the time of a run.

    python benchmarks/steps.py [--times N] [--system NAME] [--json]

Three tables, none of which looks into a run while it happens:

1. Variants of a run that differ by one step, one of each in turn.
2. Processor time by process, which other programs on the machine hardly change.
3. What the kernel charges for the primitives a run is made of (primitives.c, compiled here).

Needs root (bare bash in a chroot, mounts).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from bench import Bare, plain_copy
from shioenv.behavior.observe import SandboxRunner, open_sandbox
from shioenv.errors import StartDirectoryError
from shioenv.sandbox.base import Request, ShellMode
from shioenv.sandbox.namespaces.backend import NamespaceSandbox
from shioenv.system.store import System, find_system
from spawner import Overlay, Spawner

Figures = dict[str, list[float]]


def quiet(values: list[float]) -> float:
    """Return the 10th percentile: the time without interference from other load."""
    return statistics.quantiles(values, n=10, method="inclusive")[0]


def timed(step: Callable[[], object]) -> float:
    begun = time.perf_counter()
    step()
    return (time.perf_counter() - begun) * 1000


def in_turn(steps: dict[str, Callable[[], float]], times: int) -> Figures:
    figures: Figures = {name: [] for name in steps}
    for count in range(-5, times):
        for name, step in steps.items():
            taken = step()
            if count >= 0:
                figures[name].append(taken)
    return figures


# ---- 1: variants ------------------------------------------------------------------------------


def variants(system: System, root: Path, where: Path, times: int) -> Figures:
    """Time the variants. `root` is a plain copy of the system, `where` a directory."""
    with ExitStack() as stack:
        bare = _bare(system, stack.enter_context(Spawner(root)))
        for path in ("layers", "merged"):
            (where / path).mkdir()
        overlay = Overlay(str(root), str(where / "layers"), str(where / "merged"))
        overlay.mount()
        stack.callback(overlay.unmount)
        layered = _bare(system, stack.enter_context(Spawner(where / "merged")))
        observer = stack.enter_context(open_sandbox(system))
        raw = {mode: stack.enter_context(NamespaceSandbox(system, mode=mode)) for mode in ShellMode}
        late = raw[ShellMode.LATE]
        execution = late.run(Request("touch x; A=1"))
        start = system.declaration.start_directory
        observer.run(":")
        recorder = observer._recorders[start]

        def refused() -> None:
            try:
                late.run(Request(":", cwd="/nowhere"))
            except StartDirectoryError:
                return
            raise AssertionError("there is no such directory")

        def twice(step: Callable[[], object]) -> float:
            step()
            return timed(step)

        return in_turn(
            {
                "bare bash -c :": lambda: bare.milliseconds(":"),
                "bare bash -c /bin/true": lambda: bare.milliseconds("/bin/true"),
                "bare bash -c 'ls -la'": lambda: bare.milliseconds("ls -la"),
                "the same on an overlay": lambda: layered.milliseconds("ls -la"),
                "`:` refused: no such directory": lambda: timed(refused),
                "`:` late": lambda: timed(lambda: late.run(Request(":"))),
                "`:` main": lambda: timed(lambda: raw[ShellMode.MAIN].run(Request(":"))),
                "`:` fresh": lambda: timed(lambda: raw[ShellMode.FRESH].run(Request(":"))),
                "`:` late, two pipes": lambda: timed(lambda: late.run(Request(":", separate=True))),
                "`:` late, behavior": lambda: timed(lambda: observer.run(":")),
                "`/bin/true` late": lambda: timed(lambda: late.run(Request("/bin/true"))),
                "`ls -la` late": lambda: timed(lambda: late.run(Request("ls -la"))),
                "`: > x` late": lambda: timed(lambda: late.run(Request(": > x"))),
                "`: > x` late, after another": lambda: twice(lambda: late.run(Request(": > x"))),
                "`: > x` late, behavior, after another": lambda: twice(
                    lambda: observer.run(": > x")
                ),
                "behavior of `touch x; A=1` alone": lambda: timed(
                    lambda: recorder.behavior(execution)
                ),
            },
            times,
        )


def _bare(system: System, spawner: Spawner) -> Bare:
    session = system.declaration.session
    return Bare(spawner, system.declaration.start_directory, dict(session.environment))


# ---- 2: processor time ------------------------------------------------------------------------

INPUTS = (":", "/bin/true", "ls -la", "cat /etc/passwd | sort", "touch x")


def processor_time(system: System, root: Path, times: int) -> dict[str, dict[str, float]]:
    """Return milliseconds of processor time per run, without the kernel's own threads."""
    table = {}
    with ExitStack() as stack:
        spawner = stack.enter_context(Spawner(root))
        observer = stack.enter_context(open_sandbox(system))
        session = system.declaration.session
        for text in INPUTS:
            spent = dict.fromkeys(("bare", "Python", "supervisor", "fork server", "input"), 0.0)
            command = ("bash", "--norc", "--noprofile", "-c", text)
            for _ in range(times):
                done = spawner.spawn(
                    command, dict(session.environment), system.declaration.start_directory
                )
                spent["bare"] += done.cpu_seconds
            before = spent_by_processes(observer)
            for _ in range(times):
                observer.run(text)
            after = spent_by_processes(observer)
            for name, value in after.items():
                spent[name] = value - before[name]
            table[text] = {name: value * 1000 / times for name, value in spent.items()}
    return table


def spent_by_processes(observer: SandboxRunner) -> dict[str, float]:
    """Return seconds so far. The fork server waits for every input, so its time includes theirs."""
    sandbox = observer._sandbox
    assert isinstance(sandbox, NamespaceSandbox)
    process = sandbox._process
    assert process is not None
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    server = next(
        child for child in children if Path(f"/proc/{child}/comm").read_text().strip() == "bash"
    )
    fields = Path(f"/proc/{server}/stat").read_text().rpartition(")")[2].split()
    return {
        "Python": time.process_time(),
        "supervisor": _own_seconds(process.pid),
        "fork server": _own_seconds(int(server)),
        "input": (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK"),
    }


def _own_seconds(pid: int) -> float:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


# ---- 3: primitives ----------------------------------------------------------------------------


def primitives(times: int) -> dict[str, tuple[float, float]]:
    """Time the primitives: milliseconds, 10th percentile and median."""
    with tempfile.TemporaryDirectory(prefix="shioenv-bench-") as directory:
        program, scratch = f"{directory}/primitives", Path(directory, "scratch")
        scratch.mkdir()
        source = Path(__file__).with_name("primitives.c")
        subprocess.run(["cc", "-O2", "-o", program, source], check=True)
        printed = subprocess.run(
            ["unshare", "--mount", program, str(times), scratch],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        shutil.rmtree(scratch)
    rows = (line.split(" ", 2) for line in printed.splitlines())
    return {name: (int(low) / 1e6, int(middle) / 1e6) for low, middle, name in rows}


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the parts of a run's time.")
    parser.add_argument("--times", type=int, default=300, help="samples per figure (default 300)")
    parser.add_argument("--system", help="a built system (default: debian-12)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("steps.py needs root: it compares with bare bash in a chroot")
    system = find_system(options.system)
    with tempfile.TemporaryDirectory(
        prefix="bench-", dir=system.path.parent.parent, ignore_cleanup_errors=True
    ) as directory:
        root = plain_copy(system, Path(directory))
        by_variant = {
            name: (quiet(values), statistics.median(values))
            for name, values in variants(system, root, Path(directory), options.times).items()
        }
        by_process = processor_time(system, root, options.times)
    by_primitive = primitives(options.times)
    if options.json:
        json.dump(
            {"variants": by_variant, "processor_time": by_process, "primitives": by_primitive},
            sys.stdout,
            indent=2,
        )
        print()
        return
    for title, table in (("variants of a run", by_variant), ("primitives", by_primitive)):
        print(f"{title + ', ms':50}{'10%':>8}{'median':>8}")
        for name, (low, middle) in table.items():
            print(f"  {name:48}{low:8.3f}{middle:8.3f}")
        print()
    print(f"{'processor time of a run, ms':28}{'bare':>8}{'here':>8}{'ratio':>7}", end="")
    print("   Python  supervisor  fork server   input")
    for text, spent in by_process.items():
        bare = spent["bare"]
        here = sum(spent.values()) - bare
        print(
            f"  {text:26}{bare:8.3f}{here:8.3f}{here / bare:7.2f}{spent['Python']:9.3f}"
            f"{spent['supervisor']:12.3f}{spent['fork server']:13.3f}{spent['input']:8.3f}"
        )


if __name__ == "__main__":
    main()
