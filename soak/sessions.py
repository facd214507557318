"""Check that rows of sessions are recorded alike by resident shells and by repetition.

    python soak/sessions.py [--count ROWS] [--seed S] [--channels] [--forks] [--json]

Sessions of 2 to 8 rows are drawn as `shioenv generate --session-length` draws them. A resident
shell runs all rows of a session. The oracle runs each row with its history on a pristine machine.
A row differs if exit code, output, patch, digests or flags differ in three attempts, and three
repetitions and two in other orders agree with each other. Rows that are volatile by these or by
declaration do not count.
With --channels both have two output channels. With --forks the shell is copied before each row. A
copy runs the row, and another one the row without one of its words, chosen at random.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from random import Random
from typing import Any, TypeAlias

from common import parser
from shioenv.behavior.observe import SandboxRunner, open_sandbox
from shioenv.behavior.sessions import SessionMachine
from shioenv.domain.behavior import Behavior
from shioenv.domain.runner import State
from shioenv.recording.session import ORDERS
from shioenv.recording.volatility import disagree
from shioenv.synthesis.sample import sample
from shioenv.synthesis.traces import Sample

LENGTHS = range(2, 9)
ATTEMPTS = 3


def sessions(length: int, rows: int, seed: int, system: str | None) -> Iterator[list[Sample]]:
    """Yield sessions of a length, with so many rows together."""
    stream = sample(count=rows, seed=seed, session_length=length, system=system)
    while session := list(islice(stream, length)):
        yield session


Live: TypeAlias = Callable[[], Behavior | None]
"""Runs an input in its session's machine."""


def difference(
    runner: SandboxRunner, row: Sample, text: str, live: Live, how: dict[str, Any]
) -> tuple[str, tuple[Behavior, Behavior] | None]:
    """Compare an input in a session's machine with repetition.

    Return a word for the result, and both behaviors if they differ for an input that is steady.
    """
    mine = live()
    if mine is None:
        return "repeated", None
    if row.volatile:
        return "volatile", None
    state = State(cwd=row.cwd, history=row.history)
    oracle = runner.execute(text, state, **how)
    if oracle == mine:
        return "same", None
    for _ in range(ATTEMPTS - 1):
        again, other = live(), runner.execute(text, state, **how)
        if other.volatile or disagree(oracle, other, ordered=True) or again == other:
            return "unsteady", None
    ordered = (runner.execute(text, state, order=order, **how) for order in ORDERS)
    if oracle.volatile or any(disagree(oracle, other, ordered=True) for other in ordered):
        return "unsteady", None
    return "different", (mine, oracle)


def inputs(session: list[Sample], number: int, rng: Random, *, forks: bool) -> Iterator[str]:
    """Yield the row and, with forks, the row without one of its words."""
    text = session[number].input.text
    yield text
    words = text.split(" ")
    if forks and len(words) > 1:
        del words[rng.randrange(len(words))]
        yield " ".join(words)


def compare(
    runner: SandboxRunner, session: list[Sample], given: Any, counts: Counter[str], rng: Random
) -> None:
    """Compare the rows of a session, and print those that differ."""
    how: dict[str, Any] = {"separate": True} if given.channels else {}
    texts = [row.input.text for row in session]
    machines = [runner.open_session(texts, session[0].cwd, **({} if given.forks else how))]

    def again() -> SessionMachine:
        machines.append(runner.open_session(texts, session[0].cwd, **how))
        return machines[-1]

    def live(number: int, text: str) -> Live:
        if given.forks:
            return lambda: machines[0].run(number, text, **how)
        first = [machines[0].row(number)]
        return lambda: first.pop() if first else again().row(number)

    for number, row in enumerate(session):
        counts["rows"] += 1
        for text in inputs(session, number, rng, forks=given.forks):
            result, found = difference(runner, row, text, live(number, text), how)
            counts[result] += 1
            if result == "repeated":
                counts[machines[0].why.get(number, "unknown")] += 1
            if found:
                print(f"{row.cwd}: {[*row.history, text]}")
                for name in ("exit_code", "output", "patch", "content_digests"):
                    mine, theirs = (getattr(one, name) for one in found)
                    if mine != theirs:
                        print(f"  {name}: {mine!r:.300}\n  instead of {theirs!r:.300}")
    for machine in machines:
        machine.close()


def main() -> int:
    """Compare rows, and print those that differ."""
    arguments = parser(__doc__, count=5_000)
    arguments.add_argument("--channels", action="store_true", help="two output channels")
    arguments.add_argument("--forks", action="store_true", help="run copies of the shell")
    given = arguments.parse_args()
    counts: Counter[str] = Counter()
    rng = Random(given.seed)
    with open_sandbox(given.system) as runner:
        for length in LENGTHS:
            rows = given.count // len(LENGTHS) // length * length
            for session in sessions(length, rows, given.seed + length, given.system):
                compare(runner, session, given, counts, rng)
    print(json.dumps(counts) if given.json else dict(counts))
    return bool(counts["different"])


if __name__ == "__main__":
    raise SystemExit(main())
