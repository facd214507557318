"""Check that rows of sessions are recorded alike by resident shells and by repetition.

    python soak/sessions.py [--count ROWS] [--seed S] [--channels] [--json]

Sessions of 2 to 8 rows are drawn as `shioenv generate --session-length` draws them. A resident
shell runs all rows of a session. The oracle runs each row with its history on a pristine machine.
A row differs if exit code, output, patch, digests or flags differ in three attempts, and three
repetitions agree with each other. Rows that are volatile by these or by declaration do not count.
With --channels both have two output channels.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

from common import parser
from shioenv.behavior.observe import SandboxRunner, open_sandbox
from shioenv.domain.behavior import Behavior
from shioenv.domain.runner import State
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


def repeated(runner: SandboxRunner, row: Sample, how: dict[str, Any]) -> Behavior:
    """Run a row after its history."""
    return runner.execute(row.input.text, State(cwd=row.cwd, history=row.history), **how)


def difference(
    runner: SandboxRunner, session: list[Sample], number: int, live: Behavior, how: dict[str, Any]
) -> tuple[Behavior, Behavior] | None:
    """Return what a resident shell and the oracle did, if they differ for a steady row."""
    row = session[number]
    rows = [each.input.text for each in session]
    oracle = repeated(runner, row, how)
    if oracle == live:
        return None
    for _ in range(ATTEMPTS - 1):
        again = runner.run_rows(rows, row.cwd, **how)[number]
        other = repeated(runner, row, how)
        if other.volatile or disagree(oracle, other, ordered=True) or again == other:
            return None
    return None if oracle.volatile else (live, oracle)


def main() -> int:
    """Compare rows, and print those that differ."""
    arguments = parser(__doc__, count=5_000)
    arguments.add_argument("--channels", action="store_true", help="two output channels")
    given = arguments.parse_args()
    how: dict[str, Any] = {"separate": True} if given.channels else {}
    counts: Counter[str] = Counter()
    with open_sandbox(given.system) as runner:
        for length in LENGTHS:
            rows = given.count // len(LENGTHS) // length * length
            for session in sessions(length, rows, given.seed + length, given.system):
                texts = [row.input.text for row in session]
                passed = runner.run_rows(texts, session[0].cwd, **how)
                for number, (row, live) in enumerate(zip(session, passed, strict=True)):
                    counts["rows"] += 1
                    if live is None:
                        counts["repeated"] += 1
                    elif not number:
                        counts["first"] += 1  # recorded without a history
                    elif row.volatile:
                        counts["volatile"] += 1
                    elif found := difference(runner, session, number, live, how):
                        counts["different"] += 1
                        print(f"{row.cwd}: {[*row.history, row.input.text]}")
                        for name in ("exit_code", "output", "patch", "content_digests"):
                            mine, theirs = (getattr(one, name) for one in found)
                            if mine != theirs:
                                print(f"  {name}: {mine!r:.300}\n  instead of {theirs!r:.300}")
                    else:
                        counts["same"] += 1
    print(json.dumps(counts) if given.json else dict(counts))
    return bool(counts["different"])


if __name__ == "__main__":
    raise SystemExit(main())
