"""Measure the cost of a run against bare bash and other sandboxes, with more workers, over time.

    python benchmarks/bench.py [--pairs N] [--system NAME] [--full] [--json]

One table; every line of it is measured in the same run, one of each in turn, so that other load
affects all alike. A ratio is measured / base, pair by pair; the table shows the median and the 95th
percentile of the pairs. docs/performance.md explains the lines and the base of each.

`--full` adds a system whose home tree has 100,000 files more, which takes two minutes to build.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

import peers
from shioenv.behavior.observe import SandboxRunner, open_sandbox
from shioenv.files.durable import cache_directory
from shioenv.system.idmap import find_idmap
from shioenv.system.store import System, build_system, find_system
from spawner import Spawner

READING = (
    "true",
    "ls -la",
    "df -h",
    "grep -c root /etc/passwd",
    "cat /etc/passwd | sort",
)
WRITING = (
    "touch x",
    "mkdir -p a/b; mv a c",
    "tar xf archives/archive.tar",
    "sed -i s/a/b/ documents/notes.txt",
    "rm -r documents",
)
WARM_UP = 5
"""Turns that are not counted."""

PEER_TURN = 5
"""The other sandboxes are measured in every fifth turn: some take a fifth of a second."""


@dataclass
class Row:
    """One line of the table: pairs of a base and the value compared with it, or that value
    alone."""

    group: str
    name: str
    unit: str = "ms"
    base: list[float] = field(default_factory=list)
    measured: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    must: float | None = None
    aim: float | None = None
    failure: str | None = None
    beside_built: list[float] = field(default_factory=list)
    """Ratios to bare bash of the built system, where that is not the base."""

    def add(self, base: float, measured: float) -> None:
        self.base.append(base)
        self.measured.append(measured)
        self.ratios.append(measured / base)

    def figures(self) -> dict[str, object]:
        """Return the printed figures; None where a line has no such figure."""
        return {
            "group": self.group,
            "name": self.name,
            "unit": self.unit,
            "n": len(self.ratios or self.measured),
            "base_median": _median(self.base),
            "base_p95": _percentile95(self.base),
            "median": _median(self.measured),
            "p95": _percentile95(self.measured),
            "ratio_median": _median(self.ratios),
            "ratio_p95": _percentile95(self.ratios),
            "must": self.must,
            "aim": self.aim,
            "verdict": self.verdict(),
            "failure": self.failure,
        }

    def verdict(self) -> str:
        """Return whether the bounds hold; where the aim is above the must, more is better."""
        value = _median(self.ratios or self.measured)
        if self.failure is not None or value is None or self.must is None:
            return ""
        sign = -1 if self.aim is not None and self.aim > self.must else 1
        if self.aim is not None and sign * value <= sign * self.aim:
            return "reaches the aim"
        return "good enough" if sign * value <= sign * self.must else "MISSED"


def _median(values: list[float]) -> float | None:
    return round(statistics.median(values), 3) if values else None


def _percentile95(values: list[float]) -> float | None:
    if len(values) < 2:
        return None
    return round(statistics.quantiles(values, n=100, method="inclusive")[94], 3)


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# ---- bare bash --------------------------------------------------------------------------------


class Bare:
    """`bash --norc --noprofile -c INPUT` without any isolation, in a copy of the system."""

    def __init__(self, spawner: Spawner, home: str, environment: dict[str, str]) -> None:
        self.spawner, self.home, self._environment = spawner, home, environment

    def milliseconds(self, text: str, directory: str | None = None) -> float:
        command = ("bash", "--norc", "--noprofile", "-c", text)
        done = self.spawner.spawn(command, self._environment, directory or self.home)
        return done.seconds * 1000

    def restore(self) -> None:
        self.spawner.restore(self.home)


def plain_copy(system: System, where: Path) -> Path:
    """Copy the system's root filesystem to files of the host, owned by its accounts' ids."""
    root = where / "root"
    subprocess.run(["cp", "-a", system.rootfs, root], check=True)
    idmap = find_idmap()
    for path in (root, *root.rglob("*")):
        original = (system.rootfs / path.relative_to(root)).lstat()
        os.lchown(path, original.st_uid - idmap.first_uid, original.st_gid - idmap.first_gid)
        if not path.is_symlink():
            path.chmod(original.st_mode & 0o7777)
    return root


def distributions_own(system: System, built: Path, where: Path) -> Path | None:
    """Make the same copy with the distribution's own C library and loader, which start every
    program.

    The built system's libraries replace the answers of the kernel and the processor. None where the
    original files were not kept.
    """
    key = system.source.partition("mmdebstrap:")[2]
    base = next((cache_directory() / "bases").glob(f"*-{key}.tar"), None) if key else None
    if base is None:
        return None
    root, home = where / "own", system.declaration.start_directory.lstrip("/")
    subprocess.run(["cp", "-al", built, root], check=True)  # a gigabyte need not be copied again
    subprocess.run(["rm", "-r", root / home], check=True)
    subprocess.run(["cp", "-a", built / home, root / home], check=True)
    with tarfile.open(base) as tar:
        for name in ORIGINALS:
            file = root / name
            mode = file.stat().st_mode
            file.unlink()
            found = tar.extractfile(f"./{name}")
            assert found is not None
            file.write_bytes(found.read())
            file.chmod(mode)
    return root


ORIGINALS = tuple(
    f"usr/lib/x86_64-linux-gnu/{name}" for name in ("libc.so.6", "ld-linux-x86-64.so.2")
)


@dataclass
class Bares:
    """Runners of bare inputs, and their description."""

    own: Bare | None
    """With the distribution's C library."""
    built: Bare
    """With the built system's C library."""
    root: Path | None
    """The root directory of the latter's programs; None for the host's own."""
    how: str

    @property
    def base(self) -> Bare:
        """Return the base of a run's ratio."""
        return self.own or self.built


@contextmanager
def bare_bash(system: System) -> Iterator[Bares]:
    """Open bare bash in every way that this host supports.

    Only root can chroot; other users get the host's own bash in a copy of the home tree.
    """
    session = system.declaration.session
    environment, home = dict(session.environment), system.declaration.start_directory
    with (
        tempfile.TemporaryDirectory(
            prefix="bench-", dir=system.path.parent.parent, ignore_cleanup_errors=True
        ) as directory,
        ExitStack() as stack,
    ):
        where = Path(directory)
        if os.geteuid() == 0:
            root = plain_copy(system, where)
            original = distributions_own(system, root, where)
            built = Bare(stack.enter_context(Spawner(root)), home, environment)
            if original is None:
                yield Bares(None, built, root, "the built system's, in a plain copy (chroot)")
                return
            own = Bare(stack.enter_context(Spawner(original)), home, environment)
            how = "the distribution's, and the built system's; in plain copies (chroot)"
            yield Bares(own, built, root, how)
        else:
            copy = where / "home"
            subprocess.run(  # unreadable files are left out
                ["cp", "-r", f"{system.rootfs}{home}", copy], check=False, stderr=subprocess.DEVNULL
            )
            subprocess.run(["chmod", "-R", "u+rwX", copy], check=True)  # it is copied again
            built = Bare(stack.enter_context(Spawner()), str(copy), environment)
            yield Bares(None, built, None, "the HOST's bash and programs (not root: no chroot)")


# ---- the lines --------------------------------------------------------------------------------


def sandbox_milliseconds(sandbox: SandboxRunner, text: str, cwd: str | None = None) -> float:
    """Time one run right after another of the same input, which includes the reset after it."""
    state = sandbox.state(cwd)
    sandbox.run(text, state)
    begun = time.perf_counter()
    sandbox.run(text, state)
    return (time.perf_counter() - begun) * 1000


def measure_inputs(
    rows: list[Row], others: list[tuple[Row, peers.Peer | None]], turns: int, context: Context
) -> None:
    bares, sandbox = context.bares, context.sandbox
    sides = [bares.base, None] if bares.own is None else [bares.own, None, bares.built]
    for turn in range(-min(WARM_UP, turns), turns):
        for one in filter(None, sides):
            one.spawner.copy(one.home, 2 * len(WRITING))
        for row in rows:
            writes = row.name in WRITING
            taken = [0.0] * len(sides)
            for side in range(len(sides)) if turn % 2 else reversed(range(len(sides))):
                bare = sides[side]
                if bare is None:
                    taken[side] = sandbox_milliseconds(sandbox, row.name)
                    continue
                for _ in range(2):  # twice as well: as warm as the other
                    if writes:
                        bare.restore()
                    taken[side] = bare.milliseconds(row.name)
            if turn >= 0:
                row.add(taken[0], taken[1])
                if len(taken) > 2:
                    row.beside_built.append(taken[1] / taken[2])
        if turn == -1 or (turn >= 0 and turn % PEER_TURN == 0):
            measure_peers(others, context, counts=turn >= 0)


def measure_peers(
    others: list[tuple[Row, peers.Peer | None]], context: Context, *, counts: bool
) -> None:
    """Measure one of each, and bare bash once: it is not pristine, so that it has least to do."""
    base = context.bares.base.milliseconds(peers.TEXT, "/")
    for row, peer in others:
        if row.failure is not None:
            continue
        try:
            if peer is None:
                taken = sandbox_milliseconds(context.sandbox, peers.TEXT, "/")
            else:
                taken = peer.seconds(context.spawner) * 1000
        except RuntimeError as error:
            row.failure = f"failed: {error}"
            continue
        if counts:
            row.add(base, taken)


@dataclass
class Context:
    system: System
    bares: Bares
    sandbox: SandboxRunner
    spawner: Spawner


def together(rows: Iterable[Row], group: str, must: float, aim: float) -> Row:
    """Return the line about all pairs of a group."""
    row = Row(group, f"all inputs: {group}", must=must, aim=aim)
    row.ratios = [ratio for each in rows if each.group == group for ratio in each.ratios]
    return row


def beside_built(rows: Iterable[Row], group: str) -> Row:
    """Return the same, compared with bare bash of the built system."""
    row = Row(group, f"{group}, compared with the built system's bash")
    row.ratios = [ratio for each in rows if each.group == group for ratio in each.beside_built]
    if not row.ratios:
        row.failure = "only one bare bash is available"
    return row


def openings(system: System, times: int) -> tuple[Row, Row, Row]:
    """Time the opening of a sandbox with one run: alone, next to another sandbox, and reopened.

    Reopened means after an input that changed state which is not reset in place. The program is
    loaded already.
    """
    first = Row("opening", "the only sandbox, run `true`", must=150, aim=60)
    beside = Row("opening", "a second sandbox, run `true`")
    again = Row("opening", "reopen it, run `true`", must=25, aim=10)
    for count in range(times + 1):
        begun = time.perf_counter()
        with open_sandbox(system) as sandbox:
            sandbox.run("true")
            opened = time.perf_counter()
            sandbox.run("hostname other")
            closed = time.perf_counter()
            sandbox.run("true")
            ended = time.perf_counter()
            with open_sandbox(system) as another:
                another.run("true")
                shared = time.perf_counter()
        if count:
            first.measured.append((opened - begun) * 1000)
            beside.measured.append((shared - ended) * 1000)
            again.measured.append((ended - closed) * 1000)
    return first, beside, again


def aged(system: System, runs: int, pairs: int) -> Row:
    """Compare a sandbox after `runs` inputs with one after ten, in turn."""
    mix = (*READING, *WRITING)
    row = Row("growth", f"input {runs:,} against input 10", must=1.05)
    with open_sandbox(system) as old, open_sandbox(system) as new:
        for count in range(runs):
            old.run(mix[count % len(mix)])
        for count in range(10):
            new.run(mix[count])
        for count in range(pairs):
            text = mix[count % len(mix)]
            row.add(sandbox_milliseconds(new, text), sandbox_milliseconds(old, text))
    return row


def _work(connection: Connection, name: str) -> None:
    """Run a worker: for each requested window, send its inputs a second."""
    mix = (*READING, *WRITING)
    with open_sandbox(name) as sandbox:
        for text in mix:
            sandbox.run(text)
        connection.send(0.0)
        while (seconds := connection.recv()) > 0:
            begun, count = time.perf_counter(), 0
            while time.perf_counter() - begun < seconds:
                sandbox.run(mix[count % len(mix)])
                count += 1
            connection.send(count / (time.perf_counter() - begun))


def two_workers(system: System, windows: int, seconds: float) -> Row:
    """Measure the inputs a second of one process, then of two at once, in short alternating
    windows."""
    row = Row("workers", "two processes against one", unit="inputs/s", must=1.8, aim=1.9)
    if len(os.sched_getaffinity(0)) < 2:
        row.failure = "needs two processors"
        return row
    spawning = multiprocessing.get_context("spawn")
    with ExitStack() as stack:
        workers = []
        for _ in range(2):
            ours, theirs = spawning.Pipe()
            process = spawning.Process(target=_work, args=(theirs, system.name))
            process.start()
            stack.callback(process.join)
            stack.callback(ours.send, 0.0)
            workers.append(ours)
        for worker in workers:
            worker.recv()
        for window in range(windows):
            counts = []
            for busy in ([workers[window % 2]], workers):
                for worker in busy:
                    worker.send(seconds)
                counts.append(sum(worker.recv() for worker in busy))
            row.add(*counts)
    return row


# ---- a large home tree ------------------------------------------------------------------------

_READS_LITTLE = ("true", "cat /etc/passwd | sort", "touch x", "sed -i s/a/b/ documents/notes.txt")


def large_tree(system: System, files: int, pairs: int) -> Row:
    """Run the same inputs on the same system with so many files more in the home tree."""
    row = Row("tree", f"{files:,} files more in the home tree", must=1.05)
    before = os.environ.get("SHIOENV_CACHE")
    with tempfile.TemporaryDirectory(
        prefix="bench-", dir=system.path.parent.parent, ignore_cleanup_errors=True
    ) as directory:
        where = Path(directory)
        where.chmod(0o755)
        tar = where / "base.tar"
        _large_tar(system, tar, files)
        os.environ["SHIOENV_CACHE"] = str(where / "cache")
        try:
            large = build_system(system.name, rootfs_tar=tar)
            with open_sandbox(large) as many, open_sandbox(system) as few:
                for count in range(-WARM_UP, pairs):
                    text = _READS_LITTLE[count % len(_READS_LITTLE)]
                    pair = sandbox_milliseconds(few, text), sandbox_milliseconds(many, text)
                    if count >= 0:
                        row.add(*pair)
        finally:
            del os.environ["SHIOENV_CACHE"]
            if before is not None:
                os.environ["SHIOENV_CACHE"] = before
    return row


def _large_tar(system: System, path: Path, files: int) -> None:
    """Make the system's own root filesystem with directories of 1,000 files each in its home."""
    idmap, home = find_idmap(), system.declaration.start_directory.lstrip("/")

    def system_ids(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid, entry.gid = entry.uid - idmap.first_uid, entry.gid - idmap.first_gid
        return entry

    with tarfile.open(path, "w") as tar:
        tar.add(system.rootfs, ".", filter=system_ids)
        for number in range(files):
            if number % 1000 == 0:
                entry = tarfile.TarInfo(f"./{home}/many{number // 1000:03}")
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(entry)
            tar.addfile(tarfile.TarInfo(f"./{home}/many{number // 1000:03}/file{number:06}"))


# ---- the table --------------------------------------------------------------------------------


def facts(system: System, bare: str) -> dict[str, object]:
    cpu = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return {
        "system": f"{system.name} {system.digest[:16]}",
        "bare bash": bare,
        "machine": f"{cpu}, {len(os.sched_getaffinity(0))} processors, Linux {platform.release()}",
        "kernel.printk": Path("/proc/sys/kernel/printk").read_text().split()[0],
        "load at start": os.getloadavg()[0],
    }


def print_table(rows: list[Row]) -> None:
    print(f"{'':46}{'base':>17}{'measured':>18}{'ratio':>15}")
    print(f"{'':38}{'pairs':>6}{'median':>11}{'95%':>8}{'median':>10}{'95%':>8}", end="")
    print(f"{'median':>9}{'95%':>6}{'must':>7}{'aim':>6}")
    group = None
    for row in rows:
        if row.group != group:
            group = row.group
            print(f"\n{group}{'' if row.unit == 'ms' else ', ' + row.unit}")
        line = f"  {row.name:36}"
        if row.failure is not None:
            print(f"{line}{'':8}{row.failure}")
            continue
        figures = row.figures()
        line += f"{figures['n']:6}"
        for key, width, digits in (
            ("base_median", 11, 2),
            ("base_p95", 8, 2),
            ("median", 10, 2),
            ("p95", 8, 2),
            ("ratio_median", 9, 2),
            ("ratio_p95", 6, 2),
            ("must", 7, 2),
            ("aim", 6, 2),
        ):
            value = figures[key]
            line += " " * width if value is None else f"{value:{width}.{digits}f}"
        print(f"{line}  {figures['verdict']}".rstrip())


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the time of a run.")
    parser.add_argument("--pairs", type=int, default=200, help="pairs of each input (default 200)")
    parser.add_argument("--system", help="a built system (default: debian-12)")
    parser.add_argument("--full", action="store_true", help="with a home tree of 100,000 files")
    parser.add_argument("--aged", type=int, default=10_000, help=argparse.SUPPRESS)
    parser.add_argument("--files", type=int, default=100_000, help=argparse.SUPPRESS)
    parser.add_argument("--window", type=float, default=0.5, help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    system = find_system(options.system)
    few = max(2, options.pairs // 10)
    with ExitStack() as stack:
        progress("copying the system for bare bash")
        bares = stack.enter_context(bare_bash(system))
        root = bares.root
        about = facts(system, bares.how)
        sandbox = stack.enter_context(open_sandbox(system))
        spawner = stack.enter_context(Spawner())
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="shioenv-bench-")))
        stack.callback(peers.forget_docker_image)
        found = peers.peers(root, work, spawner) if root else peers.none("needs root")
        others: list[tuple[Row, peers.Peer | None]] = [(Row("sandboxes", "shioenv"), None)]
        others += [(Row("sandboxes", peer.name, failure=peer.failure), peer) for peer in found]
        rows = [Row("reads", text) for text in READING] + [Row("writes", text) for text in WRITING]
        progress(f"measuring {len(rows)} inputs and {len(others)} sandboxes")
        measure_inputs(rows, others, options.pairs, Context(system, bares, sandbox, spawner))
        reads, writes = together(rows, "reads", 0.97, 0.85), together(rows, "writes", 1.05, 0.95)
        many = len(READING)
        rows = [
            *[*rows[:many], reads, beside_built(rows, "reads")],
            *[*rows[many:], writes, beside_built(rows, "writes")],
        ]
        rows += [row for row, _ in others]
    progress("measuring openings, later runs and a second worker")
    rows += openings(system, few)
    rows.append(two_workers(system, few, options.window))
    rows.append(aged(system, options.aged, options.pairs))
    if options.full:
        progress("building a system with a large home tree")
        rows.append(large_tree(system, options.files, options.pairs))
    about["load at end"] = os.getloadavg()[0]
    if options.json:
        json.dump({**about, "rows": [row.figures() for row in rows]}, sys.stdout, indent=2)
        print()
        return
    for key, value in about.items():
        print(f"{key:14} {value}")
    print()
    print_table(rows)


if __name__ == "__main__":
    main()
