"""Kill the processes behind resident shells: no line is lost, and none is reported twice.

    python soak/lines.py [--count KILLS] [--seed S] [--json]

A process opens a shell, runs numbered lines, and writes down the output of each. At a random moment
one of these is killed: the supervisor, the fork server, the shell, or the process itself. The
written output must be the lines 1 to n, each once, with n of them counted by the machine. The
process must report that the shell is gone, and no part of the machine may remain.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from common import parser
from shioenv.errors import ShioenvError
from shioenv.live.resident import open_shell

TARGETS = ("supervisor", "server", "shell", "process")
PATIENCE = 120.0
"""Time limit in seconds, on the host's clock: under load a process takes half a minute to start."""


def play(told: Path) -> None:
    """Run lines until the shell is gone. The supervisor is written first."""
    with open_shell() as shell, told.open("a", buffering=1) as out:
        print(shell._lines._sandbox._process.pid, file=out)  # type: ignore[attr-defined]
        try:
            for number in range(1, 100_000):
                behavior = shell.run("echo >> count; wc -l < count")
                if shell.ended:
                    break
                print(number, behavior.output.decode().strip(), file=out)
        except ShioenvError:
            pass
        print("gone", file=out)


def below(pid: int) -> dict[int, str]:
    """Return the processes below one, with their names."""
    found: dict[int, str] = {}
    waiting = [pid]
    while waiting:
        parent = waiting.pop()
        try:
            children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        except OSError:
            continue
        for child in map(int, children):
            try:
                found[child] = Path(f"/proc/{child}/comm").read_text().strip()
            except OSError:
                continue
            waiting.append(child)
    return found


def target_of(name: str, process: int, supervisor: int) -> int | None:
    """Return the PID of the target; None where it does not exist now."""
    if name in ("process", "supervisor"):
        return process if name == "process" else supervisor
    inside = below(supervisor)
    servers = [pid for pid, comm in inside.items() if comm == "bash" and has_shell(pid)]
    if not servers:
        return None
    if name == "server":
        return servers[0]
    return next((pid for pid, comm in below(servers[0]).items() if comm == "bash"), None)


def has_shell(pid: int) -> bool:
    """Whether a bash is the fork server: the only one with another as its child."""
    return "bash" in below(pid).values()


def trial(rng: Random, directory: Path) -> tuple[str, int, str]:
    """Return the killed target, the number of reported lines, and the fault."""
    name = rng.choice(TARGETS)
    told = directory / "told"
    told.unlink(missing_ok=True)
    process = subprocess.Popen([sys.executable, __file__, "--play", str(told)])
    wanted, began = rng.randrange(1, 60), time.monotonic()
    lines: list[str] = []
    while len(lines) <= wanted and time.monotonic() - began < PATIENCE:
        lines = told.read_text().splitlines() if told.exists() else []
        time.sleep(0.002)
    time.sleep(rng.random() * 0.004)
    supervisor = int(lines[0])
    everything = {process.pid, supervisor, *below(supervisor)}
    target = None
    while target is None and time.monotonic() - began < PATIENCE:
        target = target_of(name, process.pid, supervisor)
    if target is None:
        process.kill()
        return name, 0, "it was not found"
    os.kill(target, signal.SIGKILL)
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        return name, 0, "the process hangs"
    lines = told.read_text().splitlines()[1:]
    gone = lines[-1:] == ["gone"]
    if not gone and name != "process":
        return name, 0, f"the process did not say that the shell is gone: {process.returncode}"
    counted = [line.split() for line in (lines[:-1] if gone else lines)]
    if name == "process" and counted and len(counted[-1]) < 2:
        counted.pop()  # the write itself was cut
    if counted != [[str(number)] * 2 for number in range(1, len(counted) + 1)]:
        return name, len(counted), f"lines were lost or told twice: {counted[-3:]}"
    began = time.monotonic()
    while stayed := [pid for pid in everything if is_there(pid)]:
        if time.monotonic() - began > PATIENCE:
            break
        time.sleep(0.02)
    else:
        return name, len(counted), ""
    return name, len(counted), f"processes stayed: {stayed}"


def is_there(pid: int) -> bool:
    """Whether a process exists and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def main() -> int:
    """Kill targets, and print the results of the lines."""
    if sys.argv[1:2] == ["--play"]:
        play(Path(sys.argv[2]))
        return 0
    given = parser(__doc__, count=200).parse_args()
    rng, killed, lines = Random(given.seed), Counter[str](), 0
    faults: list[str] = []
    with TemporaryDirectory(prefix="shioenv-shells-") as name:
        for _ in range(given.count):
            target, told, fault = trial(rng, Path(name))
            killed[target] += 1
            lines += told
            if fault:
                faults.append(f"{target}: {fault}")
    report = {"kills": dict(killed), "lines told": lines, "violations": len(faults)}
    if given.json:
        print(json.dumps({**report, "faults": faults}))
    else:
        for key, value in report.items():
            print(f"{key:12}{value}")
        print("\n".join(faults))
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
