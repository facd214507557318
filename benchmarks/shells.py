"""Measure the cost of resident shells: many of them alive, a line, a fork, an episode.

    python benchmarks/shells.py [--counts N...] [--rounds N] [--forks N] [--seconds S] [--json]
    python benchmarks/shells.py --counts 1 10 100 300 1000 --rounds 0

Many shells are compared with Bash on pipes, and with Bash in bubblewrap if that is installed. A
thousand shells take 10 GB. The other ratios are of the same round: a line in a resident shell, and
the same input as a separate run. Episodes are played in resident shells, by repetition, and in a
vector, one after the other. docs/performance.md explains the lines.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from itertools import count
from pathlib import Path
from typing import Any

from shioenv.behavior.observe import SandboxRunner, open_sandbox
from shioenv.live.resident import ResidentShell, open_shell
from shioenv.system.store import find_system
from shioenv_agents.tasks.env import Beginnings, TaskEnv, TaskVectorEnv
from shioenv_agents.tasks.task import Goal, Task

BUILTINS = ("cd documents", "cd ..", "a=$((a + 1))", "true", "export B=$a")
PROGRAMS = ("ls -la", "touch x")
EPISODE = (
    "ls -la", "cd data", "cat numbers.txt | head -3", "wc -l *", "x=5", "grep -c 1 numbers.txt",
    "cd ..", "chmod 600 data/numbers.txt",
)  # fmt: skip
MANY = 10_000
"""Files to change before a line, for measuring lines after many changes."""


THREADS = 4
"""Threads that run the lines of many shells."""

ROLLOUTS = 4
"""Rollouts in each of many shells."""


def took(action: Callable[[], object]) -> float:
    """Return seconds."""
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def median_ms(seconds: Iterable[float]) -> float:
    """Return the median, in milliseconds."""
    return 1000 * statistics.median(seconds)


def of_lines(runner: SandboxRunner, rounds: int) -> dict[str, float]:
    """Time lines that run no program, and lines that run one, against the same input as a run."""
    found: dict[str, float] = {}
    with ResidentShell(runner, start_of(runner)) as shell:
        for _ in range(100):
            shell.run("true")
        lines = [took(lambda line=line: shell.run(line)) for line in BUILTINS * rounds]  # type: ignore[misc]
        found["line without a program, ms"] = median_ms(lines)
        for line in PROGRAMS:
            pairs = [
                (took(lambda: shell.run(line)), took(lambda: runner.run(line)))  # noqa: B023
                for _ in range(rounds)
            ]
            found[f"{line}, ms"] = median_ms(mine for mine, _ in pairs)
            found[f"{line}, ratio to a run"] = statistics.median(a / b for a, b in pairs)
    return found


def of_many_changes(runner: SandboxRunner, rounds: int) -> dict[str, float]:
    """Compare a line after 10,000 changed files with one in a new shell."""
    with (
        ResidentShell(runner, start_of(runner)) as new,
        ResidentShell(runner, start_of(runner)) as old,
    ):
        old.run(f"mkdir many; cd many; touch $(seq {MANY}); cd ..")
        pairs = [
            (took(lambda: old.run("touch x")), took(lambda: new.run("touch x")))
            for _ in range(min(rounds, 20))
        ]
    return {
        "touch after 10,000 changed files, ms": median_ms(old for old, _ in pairs),
        "touch after 10,000 changed files, ratio": statistics.median(a / b for a, b in pairs),
    }


def of_forks(runner: SandboxRunner, forks: int) -> dict[str, float]:
    """Time a fork after 10 changed files, and measure each of many live forks."""
    histories = {
        "one line": ["for i in {0..9}; do echo $i > f$i; done"],
        "ten lines": [f"echo {number} > f{number}" for number in range(10)],
    }
    found = {}
    for name, lines in histories.items():
        with ResidentShell(runner, start_of(runner)) as shell:
            for line in lines:
                shell.run(line)
            for fork in (shell.fork(), shell.fork()):  # while one is made pristine, the other forks
                fork.close()
            seconds = []
            for _ in range(forks):
                began = time.perf_counter()
                fork = shell.fork()
                seconds.append(time.perf_counter() - began)
                fork.close()
            found[f"fork after 10 files changed by {name}, ms"] = median_ms(seconds)
            mark = shell.mark()
            seconds = [took(lambda: shell.rollback(mark)) for _ in range(forks)]  # noqa: B023
            found[f"rollback after 10 files changed by {name}, ms"] = median_ms(seconds)
    with ExitStack() as stack:
        shell = stack.enter_context(ResidentShell(runner, start_of(runner)))
        shell.run(histories["one line"][0])
        before = sum(memory().values())
        for _ in range(forks):
            stack.enter_context(shell.fork())
        found["MB a fork, all alive"] = (sum(memory().values()) - before) / forks
    return found


class PlainShell:
    """A Bash of this host on pipes, without capture; `prefix` is a program that starts it."""

    def __init__(self, home: str, prefix: Sequence[str] = ()) -> None:
        self._process = subprocess.Popen(
            [*prefix, "bash", "--norc", "--noprofile"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=home,
        )
        self.run("true")

    def run(self, line: str) -> None:
        """Run a line and wait for its end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{line}\necho; echo end of line\n".encode())
        self._process.stdin.flush()
        while self._process.stdout.readline() != b"end of line\n":
            pass

    def close(self) -> None:
        """End the shell."""
        self._process.communicate()


def kinds_of_shells(home: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield a name for each kind of shell that this host has, with a function that opens one."""
    yield "shioenv", open_shell
    yield "bash", lambda: PlainShell(home)
    if shutil.which("bwrap"):
        mounts = ("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--bind", home, home)
        yield "bubblewrap", lambda: PlainShell(home, ("bwrap", "--unshare-all", *mounts))


def of_many_shells(
    opens: Callable[[], Any], count: int, seconds: float
) -> Iterator[tuple[str, float]]:
    """Measure shells that are open at the same time, each opened by itself."""
    lines = ("true", "a=1", "ls -la", "touch x")
    with ExitStack() as stack, closing(opens()):  # the first one loads what all share
        before = memory()
        opening = []
        shells = []
        for _ in range(count):
            began = time.perf_counter()
            shells.append(opens())
            opening.append(time.perf_counter() - began)
            stack.callback(shells[-1].close)
        yield "opening p50, ms", median_ms(opening)
        yield "… p90, ms", 1000 * sorted(opening)[int(0.9 * count)]
        yield "… p50 of the last tenth, ms", median_ms(opening[-max(1, count // 10) :])
        for name, value in memory().items():
            yield f"{name} of a shell", (value - before[name]) / count

        def take_turns(part: int) -> list[float]:
            """Run a line a second in each of a part of the shells; return seconds since due."""
            late, began = [], time.perf_counter()
            for second in range(max(1, round(seconds))):
                for number in range(part, count, THREADS):
                    due = began + second + number / count
                    time.sleep(max(0.0, due - time.perf_counter()))
                    shells[number].run(lines[(number + second) % len(lines)])
                    late.append(time.perf_counter() - due)
            return late

        def roll_out(part: int) -> int:
            """Run lines in each of a part of the shells from the same state; return how often."""
            numbers = range(part, count, THREADS)
            for number in numbers:
                shell = shells[number]
                mark = shell.mark() if isinstance(shell, ResidentShell) else None
                for _ in range(ROLLOUTS):
                    for line in EPISODE:
                        shell.run(line)
                    if mark is not None:
                        shell.rollback(mark)
                    else:
                        shell.close()
                        shell = opens()
                shells[number] = shell
                stack.callback(shell.close)
            return ROLLOUTS * len(numbers)

        with ThreadPoolExecutor(THREADS) as threads:
            used, began = processor_seconds(), time.perf_counter()
            late = sorted(each for part in threads.map(take_turns, range(THREADS)) for each in part)
            used, began = processor_seconds() - used, time.perf_counter() - began
            yield "a line each second: latency p50, ms", median_ms(late)
            yield "… p99, ms", 1000 * late[int(0.99 * len(late))]
            yield "… % of a processor, whole host", 100 * used / began
            began = time.perf_counter()
            rollouts = sum(threads.map(roll_out, range(THREADS)))
            yield "rollouts of 8 lines a second", rollouts / (time.perf_counter() - began)


def of_episodes(runner: SandboxRunner, rounds: int) -> dict[str, float]:
    """Time episodes of a task in eight lines: in resident shells, in a vector, and by repetition.

    No two episodes type the same lines, as no two agents do. Repetition remembers what it ran.
    """

    class Repeating(SandboxRunner):
        keeps_shells = False

    task = Task(
        id="1", prompt="`data/numbers.txt` is private", cwd=start_of(runner),
        goal=Goal(patch=[["=", "/fs/data~1numbers.txt/perms", "-rw-------"]]),
        solution=EPISODE[-1], reduced="true", commands=["chmod"], irreducibility=1.0,
        n_arguments=2, record=1, system=runner.system.name, system_digest=runner.system.digest,
    )  # fmt: skip
    numbers = count()

    def lines() -> list[str]:
        number = next(numbers)
        return [f"{line} # {number}" for line in EPISODE]

    def play(env: TaskEnv) -> None:
        env.reset()
        ended = [env.step(line)[2] for line in lines()]
        assert ended == [False] * 7 + [True]

    def play_all(envs: TaskVectorEnv) -> None:
        envs.reset()
        each = [lines() for _ in range(envs.num_envs)]
        ended = [envs.step(row)[2].all() for row in zip(*each, strict=True)]
        assert ended[-1]

    rates = []
    with Repeating(runner.system, runner.limits) as repeating, closing(TaskEnv([task])) as live:
        old, many = TaskEnv([task]), TaskVectorEnv(8, [task])
        old.beginnings = Beginnings(repeating, old.max_turns)
        for number in range(rounds + 1):  # the first one opens machines
            triple = (
                took(lambda: play(live)),
                took(lambda: play(old)),
                took(lambda: play_all(many)) / 8,
            )
            if number:
                rates.append(triple)
        many.close()
    return {
        "episodes of 8 lines a second": 1 / statistics.median(mine for mine, _, _ in rates),
        "episodes, ratio to repetition": statistics.median(b / a for a, b, _ in rates),
        "episodes of a vector of 8 a second": 1 / statistics.median(one for _, _, one in rates),
        "episodes of a vector, ratio to repetition": statistics.median(b / c for _, b, c in rates),
    }


def start_of(runner: SandboxRunner) -> str:
    """Return the start directory of shells."""
    return runner.system.declaration.start_directory


def memory() -> dict[str, float]:
    """Return the MB of memory in use and the processes: PSS of this process's, others of the host.

    A memory that several processes share counts once.
    """
    kernel = ("Slab:", "PageTables:", "VmallocUsed:", "Percpu:")
    rows = (row.split() for row in Path("/proc/meminfo").read_text().splitlines())
    values = {row[0]: int(row[1]) for row in rows}
    family = descendants()
    own = [pid for at, pid in enumerate(family) if not at or not shares_memory(pid, family[at - 1])]
    return {
        "processes": len(family),
        "PSS, MB": sum(map(pss, own)) / 1024,
        "tmpfs, MB": values["Shmem:"] / 1024,
        "memory of the kernel, MB": sum(values[name] for name in kernel) / 1024,
    }


def descendants() -> list[int]:
    """Return the processes below this one, those of a parent one after the other."""
    found: list[int] = []
    waiting = [os.getpid()]
    while waiting:
        for task in Path(f"/proc/{waiting.pop()}/task").glob("*/children"):
            with suppress(OSError):
                children = [int(pid) for pid in task.read_text().split()]
                found += children
                waiting += children
    return found


def shares_memory(pid: int, other: int) -> bool:
    """Whether two processes have one memory."""
    of_x86, kcmp_vm = 312, 1
    return int(ctypes.CDLL(None).syscall(of_x86, pid, other, kcmp_vm, 0, 0)) == 0


def pss(pid: int) -> int:
    """Return the KB of a process's memory, with its share of what others use as well."""
    with suppress(OSError):
        for row in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if row.startswith("Pss:"):
                return int(row.split()[1])
    return 0


def processor_seconds() -> float:
    """Return the processor seconds that this host has used, without idle time."""
    ticks = [int(each) for each in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Print the table of many shells, then the figures of one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--counts", type=int, nargs="*", default=[1, 10, 100])
    parser.add_argument("--rounds", type=int, default=200, help="0: only the table of many shells")
    parser.add_argument("--forks", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--json", action="store_true", help="one object of JSON and nothing else")
    given = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    load = os.getloadavg()[0]
    found: dict[str, float] = {}
    if not given.json:
        release = platform.release()
        print(
            f"machine  {os.cpu_count()} processors, Linux {release}, {soft} open files, load {load}"
        )

    def add(more: Iterable[tuple[str, float]]) -> None:
        for name, value in more:
            found[name] = value
            if not given.json:
                print(f"{name:72}{value:10.2f}", flush=True)

    with tempfile.TemporaryDirectory() as scratch:
        system = find_system(None)
        start = system.declaration.start_directory
        home = shutil.copytree(
            f"{system.rootfs}{start}",
            f"{scratch}/home",
            symlinks=True,
            ignore=shutil.ignore_patterns("pipe"),
        )
        for many in given.counts:
            for kind, opens in kinds_of_shells(home):
                figures = of_many_shells(opens, many, given.seconds)
                add((f"{many} x {kind}: {name}", value) for name, value in figures)
    measures: tuple[Callable[[SandboxRunner], dict[str, float]], ...] = (
        lambda runner: of_lines(runner, given.rounds),
        lambda runner: of_many_changes(runner, given.rounds),
        lambda runner: of_episodes(runner, max(3, given.rounds // 10)),
        lambda runner: of_forks(runner, given.forks),
    )
    for measure in measures if given.rounds else ():
        with open_sandbox() as runner:
            runner.run("true")
            add(measure(runner).items())
    if given.json:
        print(json.dumps({name: round(value, 3) for name, value in found.items()} | {"load": load}))


if __name__ == "__main__":
    main()
