"""Check that two further runs of a racing input find what more runs find.

    python soak/orders.py [--count 2000] [--seed 0] [--extra 6] [--json]

`count` inputs are drawn whose shell has concurrent processes. Each input runs once, once with two
pipes, once in each order (eager, lazy), and `extra` times more as it comes. An input is unsteady
where one of these runs differs from the first. Inputs that a grammar declares volatile are left
out, and those whose first run is volatile by itself.

The table has the number of unsteady inputs that each set of runs finds. The exit status is 1 where
the runs of records (`shioenv.recording.session.ORDERS`) miss one.
"""

from __future__ import annotations

import sys

from common import Progress, drawn, parser, report
from shioenv.behavior.observe import open_sandbox
from shioenv.domain.behavior import Behavior
from shioenv.domain.runner import State
from shioenv.errors import SandboxError
from shioenv.recording.session import ORDERS
from shioenv.recording.volatility import disagree, races, unsettled
from shioenv.sandbox.base import LIMITS
from shioenv.system.store import find_system

RUNS = ("two pipes", "eager", "lazy", "as it comes")
SETS = (RUNS[:1], ("two pipes", "eager"), ("two pipes", "lazy"), RUNS[:3], RUNS)
"""Sets of runs besides the first one."""


def main() -> int:
    """Run the inputs and print the results; the exit status is 0."""
    options = parser(__doc__, count=2000)
    options.add_argument("--extra", type=int, default=6, help="runs more (default: 6)")
    chosen = options.parse_args()
    system = find_system(chosen.system)
    progress = Progress("inputs", chosen.count)
    missed: dict[tuple[str, ...], list[str]] = {runs: [] for runs in SETS}
    done = unsteady = 0
    with open_sandbox(system, LIMITS) as sandbox:
        for one in drawn(system=system, seed=chosen.seed, count=100 * chosen.count):
            text = one.sample.input.text
            if one.volatile or not races(text):
                continue
            state = State(cwd=one.cwd)
            try:
                first = sandbox.execute(text, state)
                if first.volatile or first.limits_hit or unsettled(first.output, text):
                    continue
                other: dict[str, Behavior] = {
                    "two pipes": sandbox.execute(text, state, separate=True),
                    "eager": sandbox.execute(text, state, order="eager"),
                    "lazy": sandbox.execute(text, state, order="lazy"),
                    "as it comes": sandbox.execute(text, state),
                }
                more = [sandbox.execute(text, state) for _ in range(chosen.extra)]
            except SandboxError as error:
                print(f"{text!r}: {error}", file=sys.stderr)
                continue
            done += 1
            progress.step()
            differing = {
                name for name, behavior in other.items()
                if disagree(first, behavior, ordered=name != "two pipes")
            }  # fmt: skip
            if differing or any(disagree(first, each, ordered=True) for each in more):
                unsteady += 1
                for runs in SETS:
                    if differing.isdisjoint(runs):
                        missed[runs].append(text)
            if done == chosen.count:
                break
    found = [(", ".join(runs), unsteady - len(missed[runs])) for runs in SETS]
    return report(
        {"inputs": done, "unsteady": unsteady},
        [{"input": text} for text in missed["two pipes", *ORDERS]],
        as_json=chosen.json,
        tables=[("unsteady inputs found by", ("runs beside the first", "inputs"), found)],
    )


if __name__ == "__main__":
    sys.exit(main())
