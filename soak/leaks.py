"""Measure leaks on the host after tens of thousands of inputs: descriptors, processes, memory,
time.

    python soak/leaks.py --count 50000
    python soak/leaks.py --count 5000 --files 0

A mix of inputs (60% read, 30% write, 5% leave processes or run out of time, 5% touch network, host
name or IPC and so have the sandbox opened anew) goes to two sandboxes: those 5% to one that is
opened over and over, all others to one that lives through everything. Every tenth of the way,
this process and everything below it are counted; figures of the whole host (its unreclaimable
kernel memory, namespaces, shared memory) are printed beside, for others may use the host.

The cost of an input: 200 runs in the long-lived sandbox, each with one in a sandbox opened just
before, so that whatever else the host does hits both; near the start, at input 10,000 and at the
end. `--files`: the same two ways on a system whose home tree holds that many files more.
"""

from __future__ import annotations

import gc
import io
import os
import re
import statistics
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from random import Random
from typing import Any

from common import Progress, drawn, parser, report
from faults import descendants
from shioenv.behavior.observe import SandboxRunner
from shioenv.errors import SandboxError
from shioenv.files.durable import cache_directory
from shioenv.sandbox.base import Limits
from shioenv.sandbox.namespaces.backend import NamespaceSandbox
from shioenv.system.declare import read_text
from shioenv.system.store import System, build_system, find_system, remove_system

LIMITS = Limits(wall_seconds=0.3, background_seconds=0.05)
WRITING = (
    "echo {n} > new{n}; cat new{n}",
    "mkdir -p a/b/c; touch a/b/c/{n}",
    "cp documents/report.txt copy{n}; chmod 600 copy{n}",
    "rm -r logs; mv documents moved{n}",
    "sort data/numbers.txt > sorted; ln sorted other; ln -s sorted third",
    "head -c {n} /dev/zero > zeros; truncate -s 1M zeros",
    "tar xf archives/archive.tar; rm -rf config",
    "x={n}; export y=2; f() {{ :; }}; cd /tmp; umask 077; echo > {n}",
    "for i in {{1..40}}; do echo $i > file$i; done",
)
LASTING = (
    "sleep 9 &",
    "setsid sleep 9 > /dev/null 2>&1 & exit 3",
    "while :; do :; done & sleep 0.01",
    "sleep 9",
    "mkfifo p; cat p",
    "yes | head -c 100000; kill -9 $$",
    "coproc cat; exec 7<&${{COPROC[0]}}",
)
DIRTY = (
    "ip link add d{n} type dummy; ip link set lo down",
    "hostname host{n}",
    "ip addr add 10.9.8.7/24 dev eth0; ip route",
    "nft add table inet t{n}; nft list ruleset",
    "ipcmk -M 4096 -Q -S 2",
    "ping -c 1 -W 1 127.0.0.1",
    "domainname d{n}; ip link set eth0 mtu 900",
    "curl -s http://localhost/ | head -c 99; exec 5<> /dev/tcp/10.20.30.1/80",
)
TIMED = (
    "true",
    "ls -la documents",
    "grep -n the documents/report.txt",
    "sort data/numbers.txt | uniq -c | head -3",
    "echo line >> documents/notes.txt",
    "mkdir -p a/b; mv data/data.csv a/b",
)
"""Inputs of known cost; none of them lists the whole home tree."""

MAX_RATIO = 1.05
ALLOWED = {"descriptors": 0, "processes": 0, "mounts": 0, "namespaces": 0, "resident_kib": 8192}
"""Most by which a figure of this process may be higher at the end than at the first sample."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Figures of one moment. The first five are this process and those below it."""

    inputs: int
    descriptors: int
    processes: int
    mounts: int
    """Lines of mountinfo of this process alone."""
    namespaces: int
    """Different namespaces of those processes."""
    resident_kib: int
    """Memory of those processes; shared pages count in each."""
    host_unreclaimable_kib: int
    """The kernel's own memory that it cannot give back."""
    host_shared_kib: int
    """Memory of all tmpfs and shared memory."""
    host_net_namespaces: int
    """Objects in the kernel's cache of network namespaces; -1 where this user may not know."""


def family(pid: int) -> list[int]:
    """Return the process and all its descendants."""
    return [pid, *descendants(pid)]


def look(inputs: int, reopened: SandboxRunner | None = None) -> Sample:
    """Count, once this sandbox is open too."""
    for _ in range(50):
        if reopened is None:
            break
        assert isinstance(reopened._sandbox, NamespaceSandbox)
        if reopened._sandbox._process is not None:
            break
        reopened.run("true")
    gc.collect()
    pids = family(os.getpid())
    descriptors, resident, namespaces = 0, 0, set()
    for pid in pids:
        try:
            descriptors += len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208
            namespaces |= {str(link.readlink()) for link in Path(f"/proc/{pid}/ns").iterdir()}
            resident += int(
                re.findall(r"VmRSS:\s*(\d+)", Path(f"/proc/{pid}/status").read_text())[0]
            )
        except (OSError, IndexError):
            continue
    memory = dict(re.findall(r"(\w+):\s+(\d+)", Path("/proc/meminfo").read_text()))
    return Sample(
        inputs=inputs,
        descriptors=descriptors,
        processes=len(pids),
        mounts=len(Path("/proc/self/mountinfo").read_text().splitlines()),
        namespaces=len(namespaces),
        resident_kib=resident,
        host_unreclaimable_kib=int(memory["SUnreclaim"]),
        host_shared_kib=int(memory["Shmem"]),
        host_net_namespaces=_net_namespaces(),
    )


def _net_namespaces() -> int:
    try:
        slabs = Path("/proc/slabinfo").read_text()
    except OSError:
        return -1
    found = re.search(r"^net_namespace\s+(\d+)", slabs, re.MULTILINE)
    return int(found[1]) if found else -1


def mix(system: System, seed: int, count: int) -> Iterator[tuple[bool, str, str | None]]:
    """Yield whether the sandbox is reopened after an input, the input, and its start directory."""
    rng = Random(seed)
    reading = [
        (one.text, one.cwd)
        for one in drawn(system=system, seed=seed, count=3000)
        if ">" not in one.text
    ]
    for n in range(count):
        (kind,) = rng.choices(("read", "write", "last", "dirt"), (60, 30, 5, 5))
        if kind == "read":
            text, cwd = rng.choice(reading)
            yield False, text, cwd
        else:
            texts = {"write": WRITING, "last": LASTING, "dirt": DIRTY}[kind]
            yield kind == "dirt", rng.choice(texts).format(n=n), None


def ratio(one: SandboxRunner, other: SandboxRunner, runs: int) -> tuple[float, float, float]:
    """Return the median milliseconds of each, and the median of the pairs' ratios."""

    def timed(observer: SandboxRunner, text: str) -> float:
        start = time.perf_counter()
        observer.execute(text, wall_seconds=10.0)
        return (time.perf_counter() - start) * 1000

    for text in TIMED:
        timed(one, text), timed(other, text)
    pairs = []
    for i in range(runs):
        text = TIMED[i % len(TIMED)]
        if i // len(TIMED) % 2:
            second = timed(other, text)
            pairs.append((timed(one, text), second))
        else:
            pairs.append((timed(one, text), timed(other, text)))
    mine, theirs = zip(*pairs, strict=True)
    quotients = [a / b for a, b in pairs]
    return statistics.median(mine), statistics.median(theirs), statistics.median(quotients)


def larger_system(system: System, files: int, work: Path) -> System:
    """Build the same system with so many files more in its home tree, in a separate cache."""
    base = min((cache_directory() / "bases").glob("*.tar"))
    home = system.declaration.start_directory.lstrip("/").split("/")
    top = "/".join([*home, "many"])
    directories = ["/".join(home[: i + 1]) for i in range(len(home))]
    directories += [top, *(f"{top}/{i}" for i in range(-(-files // 100)))]
    with tarfile.open(base) as source, tarfile.open(work / "base.tar", "w") as out:
        for member in source:
            out.addfile(member, source.extractfile(member) if member.isreg() else None)
        for name in directories:
            entry = tarfile.TarInfo(f"./{name}")
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            out.addfile(entry)
        for i in range(files):
            entry, content = tarfile.TarInfo(f"./{top}/{i // 100}/{i}.txt"), f"{i}\n".encode()
            entry.size = len(content)
            out.addfile(entry, io.BytesIO(content))
    text = read_text(str(system.path / "declaration.toml"))
    declaration = work / "larger.toml"
    declaration.write_text(re.sub('(?m)^name = ".*"', 'name = "larger"', text, count=1))
    os.environ["SHIOENV_CACHE"] = str(work / "cache")
    return build_system(str(declaration), rootfs_tar=work / "base.tar")


def measure_tree(system: System, files: int) -> dict[str, Any]:
    """Compare the cost of an input on the system with one with a larger home tree."""
    with tempfile.TemporaryDirectory(prefix="soak-", dir=cache_directory().parent) as directory:
        larger = larger_system(system, files, Path(directory))
        with SandboxRunner(larger, LIMITS) as large, SandboxRunner(system, LIMITS) as small:
            found = large.execute("find many -type f | wc -l", wall_seconds=60.0)
            many, few, quotient = ratio(large, small, runs=1200)
        remove_system(larger.name)  # its files may belong to ids that only this can remove
    return {
        "files more": int(found.output),
        "ms per input": round(few, 3),
        "ms per input with them": round(many, 3),
        "ratio": round(quotient, 3),
    }


def main() -> int:
    """Run the check; exit status 1 for any violation."""
    options = parser(__doc__, count=50_000)
    options.add_argument(
        "--files", type=int, default=100_000, help="files more in the home tree (0: not measured)"
    )
    options.add_argument("--runs", type=int, default=200, help="of each cost (0: not measured)")
    options.add_argument("--seconds", type=float, help="run no more inputs after so long")
    asked = options.parse_args()
    system = find_system(asked.system)
    started = time.monotonic()
    steady, reopened = SandboxRunner(system, LIMITS), SandboxRunner(system, LIMITS)
    progress = Progress("inputs", asked.count)
    samples, costs, broken = [], [], 0
    every = max(1, asked.count // 10)
    when = {10, min(10_000, asked.count // 2), asked.count}
    for n, (dirties, text, cwd) in enumerate(mix(system, asked.seed, asked.count), start=1):
        try:
            (reopened if dirties else steady).run(text, steady.state(cwd))
        except SandboxError:  # a busy host; the next run reopens it
            broken += 1
        progress.step()
        if asked.runs and n in when:
            with SandboxRunner(system, LIMITS) as new:
                old_ms, new_ms, quotient = ratio(steady, new, asked.runs)
            costs.append((n, round(old_ms, 3), round(new_ms, 3), round(quotient, 3)))
        out_of_time = bool(asked.seconds) and time.monotonic() - started > asked.seconds
        if n in (200, asked.count) or n % every == 0 or out_of_time:
            samples.append(look(n, reopened))
        if out_of_time:
            break
    seconds = time.monotonic() - started
    steady.close()
    reopened.close()
    closed = look(samples[-1].inputs)
    violations: list[dict[str, Any]] = []
    first, last = samples[0], samples[-1]
    for name, allowed in ALLOWED.items():
        grown = getattr(last, name) - getattr(first, name)
        if grown > allowed:
            violations.append({"what": name, "grown by": grown, "allowed": allowed})
    if closed.processes != 1:
        violations.append({"what": "processes left", "count": closed.processes - 1})
    for n, _, _, quotient in costs[1:]:
        if quotient / costs[0][3] > MAX_RATIO:
            violations.append({"what": "an input costs more", "at": n, "ratio": quotient})
    facts: dict[str, Any] = {
        "inputs": closed.inputs,
        "asked for": asked.count,
        "seed": asked.seed,
        "seconds": round(seconds, 1),
        "sandboxes that broke": broken,
    }
    if costs:
        facts["growth of an input's cost"] = round(costs[-1][3] / costs[0][3], 3)
    if asked.files:
        tree = measure_tree(system, asked.files)
        facts |= {f"larger tree: {name}": value for name, value in tree.items()}
        if tree["ratio"] > MAX_RATIO:
            violations.append({"what": "a larger home tree costs more", "ratio": tree["ratio"]})
    names = [each.name for each in fields(Sample)]
    return report(
        facts,
        violations,
        as_json=asked.json,
        tables=[
            (
                "what is there (the last line: after closing)",
                names,
                [[getattr(sample, name) for name in names] for sample in [*samples, closed]],
            ),
            ("cost of an input", ("at input", "ms", "ms in a new sandbox", "ratio"), costs),
        ],
    )


if __name__ == "__main__":
    sys.exit(main())
