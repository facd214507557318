"""Check that a record's flag `volatile` is the same each time its dataset is generated.

    python soak/flags.py [--count 400] [--seed 11] [--times 20] [--system NAME] [--json]

The same seed is generated `--times` times with one, two and three workers in turn, without scores
and without shared executions. A record is *unsteady* where its flag `volatile` is not the same in
all generations, and a *violation* where two generations' records differ though one of them is not
flagged. The exit status is 1 for either.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common import Progress, parser, report
from shioenv.dataset.generate import generate
from shioenv.dataset.record_reader import read_records
from shioenv.domain.record import NAMES, Record
from shioenv.execution.local import LocalExecutor
from shioenv.irreducibility.scoring import UNSCORED
from shioenv.synthesis.drawing import Drawing
from shioenv.system.store import find_system

TIMES = 20


def main() -> int:
    """Generate, compare and return the exit status."""
    options = parser(__doc__, count=400)
    options.set_defaults(seed=11)
    options.add_argument("--times", type=int, default=TIMES, help="generations (default: 20)")
    chosen = options.parse_args()
    system = find_system(chosen.system)
    progress = Progress("generations", chosen.times)
    generations: list[list[Record]] = []
    executions: Counter[int] = Counter()
    with tempfile.TemporaryDirectory(prefix="flags-") as top:
        for number in range(chosen.times):
            directory = Path(top, str(number))
            done = generate(
                directory,
                system=system.name,
                drawing=Drawing(seed=chosen.seed),
                count=chosen.count,
                scoring=UNSCORED,
                executor=LocalExecutor(number % 3 + 1),
            )
            executions[done.effort.ran] += 1
            generations.append(list(read_records(directory)))
            progress.step()
    found = [unsteady(records) for records in zip(*generations, strict=True)]
    facts = {
        "system": system.digest,
        "records": chosen.count,
        "generations": chosen.times,
        "executions, at most": max(executions),
        "volatile in all": sum(
            all(one.volatile for one in records) for records in zip(*generations, strict=True)
        ),
        "volatile in some": sum("volatile" in each["differs in"] for each in found if each),
        "another one, and not volatile": sum(bool(each and each["unsaid"]) for each in found),
    }
    return report(facts, [each for each in found if each], as_json=chosen.json)


def unsteady(records: Sequence[Record]) -> dict[str, Any] | None:
    """Return the fault in one number's records, one from each generation."""
    differing = [
        name
        for name in NAMES
        if any(getattr(one, name) != getattr(records[0], name) for one in records)
    ]
    flagged = sum(one.volatile for one in records)
    if not differing or (flagged == len(records)):
        return None
    return {
        "record": records[0].session_id,
        "input": records[0].input,
        "flagged": flagged,
        "differs in": " ".join(differing),
        "unsaid": differing != ["volatile"],
    }


if __name__ == "__main__":
    sys.exit(main())
