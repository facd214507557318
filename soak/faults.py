"""Make datasets while processes are killed, disks fill up, and a second run interferes.

    python soak/faults.py --kills 200
    python soak/faults.py --kills 20 --count 60

`--count` records are made once undisturbed, then again and again by two workers while a supervisor,
a fork server, a process 1 or a worker is killed (SIGKILL) at random moments, and now and then the
generator itself, after which the same command is run again. Then: a disk that fills up (a tmpfs in
a new mount namespace; root only), a directory that cannot be written, two runs in one directory.

A violation is a record that is not byte for byte the undisturbed one (of volatile records: another
number, input or argument), a record that is missing or there twice, a process left behind, an error
without its code.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

from common import Progress, parser, report
from shioenv.dataset.manifest import MANIFEST
from shioenv.dataset.record_reader import read_records
from shioenv.dataset.verify import verify
from shioenv.domain.record import NAMES

VICTIMS = {"supervisor": 32, "fork server": 30, "process 1": 10, "worker": 22, "generator": 6}
"""The killed processes, and the share of each in percent."""
PAUSE_SECONDS = 0.5
"""Between two kills, on average."""
GONE_SECONDS = 30.0
"""Time limit for the end of all processes of a killed generator."""


class Generation:
    """`shioenv generate` into one directory, run as a command."""

    def __init__(self, directory: Path, asked: Any, count: int, *options: str) -> None:
        program = "from shioenv.cli.main import main; main()"
        self.directory = directory
        self.command = [sys.executable, "-c", program, "generate", str(directory), "--json"]
        self.command += ["--count", str(count), "--seed", str(asked.seed)]
        self.command += options or ("--budget", "8", "--workers", "2")
        if asked.system:
            self.command += ["--system", asked.system]

    def start(self) -> subprocess.Popen[str]:
        """Start the command."""
        return subprocess.Popen(
            self.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def run(self) -> subprocess.CompletedProcess[str]:
        """Run the command to its end."""
        return subprocess.run(self.command, capture_output=True, text=True, check=False)


def children(pid: int) -> list[int]:
    """Return the children of a process that may be gone."""
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):  # this thread alone is gone
                found += map(int, (task / "children").read_text().split())
    return found


def descendants(pid: int) -> list[int]:
    """Return all processes below one."""
    found = []
    for child in children(pid):
        found += [child, *descendants(child)]
    return found


def victims(generator: int) -> dict[str, list[int]]:
    """Return the processes that could be killed, by kind."""
    found: dict[str, list[int]] = {"generator": [generator], "worker": children(generator)}
    for worker in found["worker"]:
        for supervisor in children(worker):
            found.setdefault("supervisor", []).append(supervisor)
            for child in children(supervisor):
                try:
                    status = Path(f"/proc/{child}/status").read_text()
                except OSError:
                    continue
                numbers = next(x for x in status.splitlines() if x.startswith("NSpid")).split()[1:]
                if len(numbers) > 1 and numbers[-1] == "1":
                    found.setdefault("process 1", []).append(child)
                elif "Name:\tbash" in status:
                    found.setdefault("fork server", []).append(child)
    return found


def is_alive(pid: int, started: str) -> bool:
    """Whether this very process still runs."""
    return started != "" and birth(pid) == started


def birth(pid: int) -> str:
    """Return a process's start time, which distinguishes it from a later one with the same PID;
    empty once it is gone.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def disturbed(
    generation: Generation, rng: Random, wanted: int, kills: Counter[str], counts: Counter[str]
) -> list[dict[str, Any]]:
    """Make the whole dataset, with at most this number of kills; return the faults."""
    wrong: list[dict[str, Any]] = []
    seen: dict[int, str] = {}
    while True:
        process = generation.start()
        killed = False
        while process.poll() is None:
            try:
                process.wait(rng.expovariate(1 / PAUSE_SECONDS))
                break
            except subprocess.TimeoutExpired:
                pass
            if kills.total() >= wanted:
                process.wait()
                break
            (kind,) = rng.choices(list(VICTIMS), list(VICTIMS.values()))
            found = victims(process.pid)
            there = found.get(kind)
            if not there or "fork server" not in found:  # still starting
                continue
            family = {pid: birth(pid) for pid in descendants(process.pid)}
            seen |= family
            try:
                os.kill(rng.choice(there), signal.SIGKILL)
            except ProcessLookupError:
                continue
            kills[kind] += 1
            if kind == "generator":
                killed = True
                process.wait()
                wrong += left_behind(family)
        output, errors = process.communicate()
        if killed:
            counts["resumed"] += 1
        elif process.returncode == 0:
            facts = json.loads(output)
            counts["retried"] += facts["retried"]
            counts["restarts"] += facts["restarts"]
            return wrong + left_behind(seen)
        elif "SHIO-D05" in errors:  # one record, or the start of a worker, was hit again and again
            counts["gave up"] += 1
        else:
            wrong.append({"what": "failed", "status": process.returncode, "errors": errors[-800:]})
            return wrong


def left_behind(family: dict[int, str]) -> list[dict[str, Any]]:
    """Return the processes that outlive their generator."""
    end = time.monotonic() + GONE_SECONDS
    while left := [pid for pid, started in family.items() if is_alive(pid, started)]:
        if time.monotonic() > end:
            return [{"what": "processes left", "processes": left}]
        time.sleep(0.02)
    return []


def differing(whole: Path, other: Path, counts: Counter[str]) -> list[dict[str, Any]]:
    """Return every record that differs from the undisturbed run's."""
    wrong: list[dict[str, Any]] = []
    report = verify(other)
    if not report.ok:
        wrong.append({"what": "does not verify", "problems": str(report.problems)[:800]})
    one, two = list(read_records(whole)), list(read_records(other))
    if len(one) != len(two):
        wrong.append({"what": "records missing", "wanted": len(one), "there": len(two)})
    for a, b in zip(one, two, strict=False):
        counts["records"] += 1
        same = (a.session_id, a.input, a.input_args) == (b.session_id, b.input, b.input_args)
        if same and (a.volatile or b.volatile):
            counts["volatile records"] += 1
        elif a != b:
            names = [name for name in NAMES if getattr(a, name) != getattr(b, name)]
            wrong.append({"what": "record differs", "record": a.session_id, "input": a.input})
            wrong[-1] |= {
                name: f"{getattr(a, name)!r:.200} / {getattr(b, name)!r:.200}" for name in names
            }
    return wrong


def full_disk(
    generation: Generation, whole: Path, counts: Counter[str]
) -> tuple[str, list[dict[str, Any]]]:
    """Fill a disk, make it unwritable for a while, then free space; return events and
    violations.
    """
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return "not tried: needs root and unshare", []
    where, copy = generation.directory, generation.directory.with_name("copied")
    where.mkdir()
    size = sum(each.stat().st_size for each in whole.rglob("*")) // 2
    script = """
        set -e; mount --make-rprivate /; mount -t tmpfs -o size=$1 none "$2"
        where=$2 copy=$3; shift 3
        status=0; "$@" > /dev/null 2> "$copy.full" || status=$?; echo $status
        mount -o remount,ro "$where"
        status=0; "$@" > /dev/null 2> "$copy.ro" || status=$?; echo $status
        mount -o remount,rw,size=64m "$where"
        status=0; "$@" > /dev/null 2> "$copy.room" || status=$?; echo $status
        cp -r "$where" "$copy"
    """
    own_mounts = ["unshare", "-m", "sh", "-c", script, "sh"]
    done = subprocess.run(
        [*own_mounts, str(size), str(where), str(copy), *generation.command],
        capture_output=True,
        text=True,
        check=False,
    )
    wrong: list[dict[str, Any]] = []
    statuses = done.stdout.split()
    expected = {"full": ("1", "SHIO-D04"), "ro": ("1", "SHIO-D04"), "room": ("0", "")}
    for (name, (status, code)), found in zip(expected.items(), statuses, strict=False):
        said = Path(f"{copy}.{name}").read_text()
        if found != status or code not in said or "Traceback" in said:
            wrong.append({"what": f"disk {name}", "status": found, "errors": said[-600:]})
    if len(statuses) != len(expected):
        wrong.append({"what": "disk", "errors": done.stderr[-600:]})
    else:
        wrong += differing(whole, copy, counts)
    return "full: SHIO-D04, read-only: SHIO-D04, room again: finished", wrong


def two_at_once(
    generation: Generation, whole: Path, counts: Counter[str]
) -> tuple[str, list[dict[str, Any]]]:
    """Start a second run in the directory; return its error and the violations."""
    first = generation.start()
    manifest = generation.directory / MANIFEST
    while not manifest.exists() and first.poll() is None:  # where it is, the directory is locked
        time.sleep(0.01)
    first.send_signal(signal.SIGSTOP)
    second = generation.run()
    first.send_signal(signal.SIGCONT)
    _, errors = first.communicate()
    wrong: list[dict[str, Any]] = []
    if second.returncode != 1 or "SHIO-D03" not in second.stderr:
        wrong.append({"what": "two at once", "status": second.returncode})
        wrong[-1]["errors"] = second.stderr[-600:]
    if first.returncode != 0:
        wrong.append({"what": "first of two", "errors": errors[-600:]})
    else:
        wrong += differing(whole, generation.directory, counts)
    return "the second is refused: SHIO-D03", wrong


def main() -> int:
    """Run the check; exit status 1 for any violation."""
    options = parser(__doc__, count=400)
    options.add_argument("--kills", type=int, default=200, help="processes killed (default: 200)")
    asked = options.parse_args()
    rng = Random(asked.seed)
    started = time.monotonic()
    kills: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    violations: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="soak-") as directory:
        work = Path(directory)
        whole = Generation(work / "whole", asked, asked.count)
        if (done := whole.run()).returncode != 0:
            raise SystemExit(f"the undisturbed run failed: {done.stderr}")
        undisturbed = time.monotonic() - started
        progress, rounds = Progress("kills", asked.kills), 0
        while kills.total() < asked.kills:
            before = kills.total()
            generation = Generation(work / f"round{rounds}", asked, asked.count)
            violations += disturbed(generation, rng, asked.kills, kills, counts)
            violations += differing(whole.directory, generation.directory, counts)
            shutil.rmtree(generation.directory)
            rounds += 1
            progress.step(kills.total() - before)
        killing = time.monotonic() - started - undisturbed
        disk, wrong = full_disk(
            Generation(work / "disk", asked, asked.count), whole.directory, counts
        )
        violations += wrong
        two, wrong = two_at_once(
            Generation(work / "two", asked, asked.count), whole.directory, counts
        )
        violations += wrong
    return report(
        {
            "records in a dataset": asked.count,
            "seed": asked.seed,
            "seconds undisturbed": round(undisturbed, 1),
            "datasets made while killing": rounds,
            "seconds while killing": round(killing, 1),
            "kills": kills.total(),
            "records begun again, as far as told": counts["retried"],
            "workers started again, as far as told": counts["restarts"],
            "generators started again": counts["resumed"],
            "gave up and started again": counts["gave up"],
            "records compared": counts["records"],
            "of them volatile": counts["volatile records"],
            "disk": disk,
            "two runs at once": two,
        },
        violations,
        as_json=asked.json,
        tables=[("killed", ("who", "times"), kills.most_common())],
    )


if __name__ == "__main__":
    sys.exit(main())
