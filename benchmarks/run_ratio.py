"""How long a run takes compared with a bare `bash -c` of the same input.

    python benchmarks/run_ratio.py [--pairs N] [--system NAME] [--json]

Sandbox: `open_sandbox(...).run(INPUT)` with everything on: limits, system-call filter, checks for
what is left over, reset, shell state, behavior with its context patch.

Bare: posix_spawn of `bash --norc --noprofile -c INPUT`, output through a pipe, nothing else. As
root it runs in a plain copy of the same root filesystem (chroot); an ordinary user cannot chroot:
there it is the host's own bash and programs in a copy of the home tree, which the report states.

One of each in turn, so that whatever else the machine does hits both. A ratio below 1 means that
the sandbox is faster; `ratio` is the median of the pairs' ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from shioenv.behavior.observe import open_sandbox
from shioenv.system.store import System, find_system

READING = (
    "true",
    "echo hello",
    "ls -la",
    "cat documents/notes.txt",
    "grep -n the documents/report.txt",
    "sort data/numbers.txt | uniq -c | head -3",
    "wc -l logs/app.log data/*.csv",
    "find . -name '*.txt'",
)
WRITING = (
    "touch new.txt",
    "echo line >> documents/notes.txt",
    "mkdir -p a/b/c",
    "sort documents/names.txt > sorted.txt",
    "cp documents/report.txt copy.txt && chmod 600 copy.txt",
)


@dataclass(frozen=True)
class Row:
    """One input's times, in milliseconds."""

    kind: str
    text: str
    sandbox: list[float]
    bare: list[float]

    def figures(self) -> dict[str, object]:
        pairs = [a / b for a, b in zip(self.sandbox, self.bare, strict=True)]
        return {
            "kind": self.kind,
            "input": self.text,
            "n": len(pairs),
            "sandbox_median_ms": round(statistics.median(self.sandbox), 3),
            "sandbox_p95_ms": round(percentile(self.sandbox, 95), 3),
            "bare_median_ms": round(statistics.median(self.bare), 3),
            "bare_p95_ms": round(percentile(self.bare, 95), 3),
            "ratio": round(statistics.median(pairs), 3),
        }


def percentile(values: list[float], percent: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


class Bare:
    """A process that runs inputs with a bare bash and tells how long each took."""

    def __init__(self, root: Path | None, directory: str, environment: dict[str, str]) -> None:
        ask, self._ask = os.pipe()
        self._answer, answer = os.pipe()
        self._pid = os.fork()
        if self._pid:
            os.close(ask)
            os.close(answer)
            self._lines = os.fdopen(self._answer, "rb")
            return
        status = 1
        try:
            os.close(self._ask)
            os.close(self._answer)
            null = os.open(os.devnull, os.O_RDONLY)
            os.dup2(null, 0)
            if root is not None:
                os.chroot(root)
            os.chdir(directory)
            shell = "/bin/bash"
            questions, answers = os.fdopen(ask, "rb"), os.fdopen(answer, "wb", buffering=0)
            for line in questions:
                text = json.loads(line)
                begun = time.perf_counter()
                reading, writing = os.pipe()
                pid = os.posix_spawn(
                    shell,
                    ["bash", "--norc", "--noprofile", "-c", text],
                    environment,
                    file_actions=[
                        (os.POSIX_SPAWN_DUP2, writing, 1),
                        (os.POSIX_SPAWN_DUP2, writing, 2),
                    ],
                )
                os.close(writing)
                while os.read(reading, 1 << 16):
                    pass
                os.close(reading)
                os.waitpid(pid, 0)
                answers.write(f"{time.perf_counter() - begun}\n".encode())
            status = 0
        finally:
            os._exit(status)

    def seconds(self, text: str) -> float:
        os.write(self._ask, json.dumps(text).encode() + b"\n")
        return float(self._lines.readline())

    def close(self) -> None:
        os.close(self._ask)
        os.waitpid(self._pid, 0)


@contextmanager
def bare_bash(system: System) -> Iterator[tuple[Bare, str]]:
    """What runs bare inputs, and how to describe it."""
    session = system.declaration.session
    environment = dict(session.environment)
    start = session.start_directories[0]
    where = Path(tempfile.mkdtemp(prefix="shioenv-bare-", dir=system.path.parent.parent))
    copy = where / "root"
    try:
        if os.geteuid() == 0:
            subprocess.run(["cp", "-a", "--reflink=auto", system.rootfs, copy], check=True)
            bare = Bare(copy, start, environment)
            how = "bash of the same system, chroot into a plain copy of its root filesystem"
        else:
            home = system.rootfs / start.lstrip("/")
            subprocess.run(["cp", "-r", home, copy], check=False, stderr=subprocess.DEVNULL)
            bare = Bare(None, str(copy), dict(os.environ, **environment))
            how = "the HOST's bash and programs in a copy of the home tree (not root: no chroot)"
        try:
            yield bare, how
        finally:
            bare.close()
    finally:
        shutil.rmtree(where, ignore_errors=True)


def measured(
    texts: tuple[str, ...], kind: str, pairs: int, run: Callable[[str], object], bare: Bare
) -> Iterator[Row]:
    for text in texts:
        for _ in range(5):
            run(text)
            bare.seconds(text)
        row = Row(kind, text, [], [])
        for _ in range(pairs):
            begun = time.perf_counter()
            run(text)
            row.sandbox.append((time.perf_counter() - begun) * 1000)
            row.bare.append(bare.seconds(text) * 1000)
        yield row


def main() -> None:
    parser = argparse.ArgumentParser(description="How long a run takes compared with bare bash.")
    parser.add_argument("--pairs", type=int, default=200, help="pairs of each input (default 200)")
    parser.add_argument("--system", help="a built system (default: debian-12)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    system = find_system(options.system)
    rows: list[Row] = []
    with bare_bash(system) as (bare, how), open_sandbox(system) as sandbox:
        for texts, kind in ((READING, "reads"), (WRITING, "writes")):
            for row in measured(texts, kind, options.pairs, sandbox.run, bare):
                rows.append(row)
    figures = [row.figures() for row in rows]
    together = {
        kind: round(
            statistics.median(
                a / b
                for row in rows
                if row.kind == kind
                for a, b in zip(row.sandbox, row.bare, strict=True)
            ),
            3,
        )
        for kind in ("reads", "writes")
    }
    facts = {
        "system": system.name,
        "bare": how,
        "kernel": platform.release(),
        "processors": len(os.sched_getaffinity(0)),
        "pairs": options.pairs,
    }
    if options.json:
        json.dump({**facts, "inputs": figures, "median_ratio": together}, sys.stdout, indent=2)
        print()
        return
    for key, value in facts.items():
        print(f"{key:11} {value}")
    print()
    print("           sandbox ms        bare ms      ")
    print("        median     p95   median     p95   ratio  input")
    for one in figures:
        print(
            f"{one['kind']:6}{one['sandbox_median_ms']:8.2f}{one['sandbox_p95_ms']:8.2f}"
            f"{one['bare_median_ms']:9.2f}{one['bare_p95_ms']:8.2f}{one['ratio']:8.2f}"
            f"  {one['input']}"
        )
    print()
    for kind, value in together.items():
        print(f"median ratio of all pairs, input {kind}: {value:.2f}")


if __name__ == "__main__":
    main()
