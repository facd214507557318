"""Measure the cost of resident shells: a line, a fork, many of them alive, an episode.

    python benchmarks/shells.py [--rounds N] [--shells N] [--forks N] [--seconds S] [--json]

Ratios are of the same round: a line in a resident shell, and the same input as a separate run.
Episodes are played in resident shells, by repetition, and in a vector, one after the other.
docs/performance.md explains the lines.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, closing
from itertools import count
from pathlib import Path

from shioenv.behavior.observe import SandboxRunner, open_sandbox
from shioenv.live.resident import ResidentShell
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
        before = available()
        for _ in range(forks):
            stack.enter_context(shell.fork())
        found["MB a fork, all alive"] = (before - available()) / forks
    return found


def of_many_shells(runner: SandboxRunner, count: int, seconds: float) -> dict[str, float]:
    """Return the share of one processor that many shells take, each with a line a second."""
    kinds = ("true", "a=1", "ls -la", "touch x")
    with ExitStack() as stack:
        shells = [
            stack.enter_context(ResidentShell(runner, start_of(runner))) for _ in range(count)
        ]
        began, before, rounds = time.perf_counter(), processor_seconds(), 0
        while time.perf_counter() - began < seconds:
            due = began + rounds
            for number, shell in enumerate(shells):
                at = due + number / count
                time.sleep(max(0.0, at - time.perf_counter()))
                shell.run(kinds[number % len(kinds)])
            rounds += 1
        passed = time.perf_counter() - began
        used = processor_seconds() - before
    return {f"{count} shells with a line a second, % of a processor": 100 * used / passed}


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


def available() -> float:
    """Return the free MB of memory on this host."""
    text = Path("/proc/meminfo").read_text()
    return int(text.split("MemAvailable:")[1].split()[0]) / 1024


def processor_seconds() -> float:
    """Return the processor seconds that this host has used, without idle time."""
    ticks = [int(each) for each in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--shells", type=int, default=200)
    parser.add_argument("--forks", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--json", action="store_true", help="one object of JSON and nothing else")
    given = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    found: dict[str, float] = {}
    measures: tuple[Callable[[SandboxRunner], dict[str, float]], ...] = (
        lambda runner: of_lines(runner, given.rounds),
        lambda runner: of_many_changes(runner, given.rounds),
        lambda runner: of_episodes(runner, max(3, given.rounds // 10)),
        lambda runner: of_forks(runner, given.forks),
        lambda runner: of_many_shells(runner, given.shells, given.seconds),
    )
    for measure in measures:
        with open_sandbox() as runner:
            runner.run("true")
            found |= measure(runner)
    if given.json:
        print(json.dumps({name: round(value, 3) for name, value in found.items()}))
        return
    print(f"machine  {os.cpu_count()} processors, Linux {platform.release()}, {soft} open files")
    for name, value in found.items():
        print(f"{name:56}{value:10.2f}")


if __name__ == "__main__":
    main()
