"""Compare composed answers to inputs of several commands with whole runs on the machine.

Each input of several commands is run whole in the sandbox, three times, and answered by
`Composition`, which runs single commands in the same sandbox. Exit code, output and patch are
compared; values that vary between the three runs are volatile and not compared. An abstention
counts as a disagreement.

Inputs are drawn by `gcs` (every one with several commands). With --programs they are random small
programs instead, with loops, functions and substitutions; with --inputs they come from a file: JSON
lines with an `input` each. If they have `steps`, only those with `multi` are used.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from random import Random

from common import Progress, parser, report
from programs import Programs
from shioenv.behavior.observe import SandboxRunner, open_sandbox
from shioenv.domain.behavior import Behavior
from shioenv.errors import Abstained
from shioenv.sandbox.base import MEBIBYTE, Limits
from shioenv.synthesis.drawing import Drawing
from shioenv.synthesis.sample import sample
from shioenv.system.store import System
from shioenv_model.composition.command_replay import Replay
from shioenv_model.composition.composed_inputs import Composition

RUNS = 3
WANTED = 0.97
FIELDS = ("exit_code", "output", "patch")


@dataclass(frozen=True, slots=True)
class Compared:
    """The result of one input."""

    text: str
    abstained: str = ""
    differs: tuple[str, ...] = ()
    volatile: tuple[str, ...] = ()
    shown: str = ""


def main() -> int:
    """Print the table, abstentions and disagreements; return 1 where fewer than `WANTED` agree."""
    options = parser(__doc__, count=1_000)
    options.add_argument("--inputs", type=Path, help="a file of inputs instead of drawn ones")
    options.add_argument("--programs", action="store_true", help="random programs instead")
    arguments = options.parse_args()
    limits = Limits(output_bytes=MEBIBYTE, wall_seconds=1 if arguments.programs else 5)
    with open_sandbox(arguments.system, limits) as sandbox:
        if arguments.inputs:
            inputs: Iterator[tuple[str, str | None]] = (
                (text, None) for text in told(arguments.inputs)
            )
        elif arguments.programs:
            inputs = programs(arguments.seed)
        else:
            inputs = drawn(sandbox.system, arguments.seed)
        chosen = list(islice(inputs, arguments.count))
        compared = list(compare(sandbox, chosen))
    agreeing = sum(not each.differs and not each.abstained for each in compared)
    share = agreeing / max(1, len(compared))
    facts = {
        "inputs": len(compared),
        "agree": agreeing,
        "share": f"{share:.3f}",
        "abstained": sum(bool(each.abstained) for each in compared),
        "with volatile parts": sum(bool(each.volatile) for each in compared),
    }
    reasons = Counter(each.abstained for each in compared if each.abstained)
    fields = Counter(field for each in compared for field in each.differs)
    wrong = [
        {"input": each.text, "why": each.abstained or each.shown}
        for each in compared
        if each.differs or each.abstained
    ]
    report(
        facts,
        wrong,
        as_json=arguments.json,
        tables=[
            ("differing", ("field", "inputs"), list(fields.items())),
            ("abstentions", ("reason", "inputs"), reasons.most_common()),
        ],
    )
    return int(share < WANTED)


def drawn(system: System, seed: int) -> Iterator[tuple[str, str | None]]:
    """Composite inputs drawn by `gcs`, with their start directories."""
    for one in sample(Drawing(seed=seed, composite_share=1.0), system=system, count=10**6):
        if one.input.operators:
            yield one.input.text, one.cwd


def programs(seed: int) -> Iterator[tuple[str, str | None]]:
    """Random programs, one for each number from the seed on."""
    for number in count():
        yield Programs(Random(f"{seed} {number}")).program(), None


def told(path: Path) -> Iterator[str]:
    """The inputs of a file."""
    for line in path.read_text(encoding="utf-8").splitlines():
        given = json.loads(line)
        if given.get("steps", "multi") == "multi":
            yield given["input"]


def compare(sandbox: SandboxRunner, inputs: list[tuple[str, str | None]]) -> Iterator[Compared]:
    """Compare each input's whole run with its composed answer."""
    composition = Composition(Replay(sandbox), sandbox.state())
    progress = Progress("inputs", len(inputs))
    for text, cwd in inputs:
        state = sandbox.state(cwd)
        runs = [sandbox.execute(text, state) for _ in range(RUNS)]
        if runs[0].timed_out and sandbox.limits.wall_seconds < 5:
            continue
        try:
            answer = composition.run(text, state)
        except Abstained as abstained:
            yield Compared(text, abstained=abstained.message.partition(" at '")[0])
        else:
            yield compared_with(text, runs, answer)
        progress.step()


def compared_with(text: str, runs: list[Behavior], answer: Behavior) -> Compared:
    """Compare an answer with the results common to all runs."""
    first = runs[0]
    volatile = [
        field
        for field in FIELDS
        if any(getattr(run, field) != getattr(first, field) for run in runs)
    ]
    if first.timed_out != answer.timed_out:
        volatile = []
    differs = [
        field
        for field in FIELDS
        if field not in volatile and getattr(answer, field) != getattr(first, field)
    ]
    shown = [shown_field(field, first, answer) for field in differs]
    return Compared(text, "", tuple(differs), tuple(volatile), "\n".join(shown))


def shown_field(field: str, run: Behavior, answer: Behavior) -> str:
    """Summarise the difference in one field."""
    old, new = getattr(run, field), getattr(answer, field)
    if field == "patch":
        lines = [[json.dumps(each) for each in patch.operations] for patch in (old, new)]
    elif field == "output":
        lines = [repr(each)[2:-1].split("\\n") for each in (old, new)]
    else:
        return f"  {field}: {old}, composed {new}"
    return f"  {field}: {only(lines[0], lines[1])}, composed {only(lines[1], lines[0])}"


def only(lines: Iterable[str], others: Iterable[str]) -> str:
    """Join the lines that only the first has."""
    known = set(others)
    return "; ".join(line[:150] for line in lines if line not in known)[:400]


if __name__ == "__main__":
    sys.exit(main())
