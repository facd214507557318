"""Check that an input's result does not depend on the time, the place or the order of runs.

    python soak/determinism.py [--count 5000] [--seed 0] [--passes 5] [--kept FILE] [--json]

The same inputs run in five passes, each in a different order:

    1  a sandbox of this process, in the order in which they were drawn
    2  another sandbox of this process
    3  a sandbox of a new process
    4  sandboxes of two processes at once, on processors that are busy with something else
    5  a new process again, in another minute than the first pass

Behaviors are compared as wholes: exit code, output, context patch, digests of contents, flags. An
input is *identical* where all passes agree byte for byte.

It depends on the *time of day* where the passes agree once dates, clock times and seconds since
1970 are masked in the output, or where one of its commands prints the clock, the load or how long
the system is up (date, ps, uptime, w). Each of the rest needs a mark: *declared* volatile by a
grammar, or *noticed* by `record_session`, which makes the records of datasets. Without a mark the
record gives no warning: that is a violation.

With `--kept FILE` the first pass's behaviors are kept in FILE; if it exists already, it is compared
as one more pass. Two calls on two days thus show changes over a day.

Three shares are printed: identical of all inputs, of those that do not depend on the time of day,
and of those not declared volatile. The exit status is 1 for a violation, or where the last share is
below 99%: the first two depend mostly on the number of drawn commands that never repeat themselves.
"""

from __future__ import annotations

import pickle
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from common import Drawn, Progress, drawn, parser, report
from shioenv.behavior.observe import open_sandbox
from shioenv.domain.behavior import Behavior
from shioenv.domain.inputs import Session
from shioenv.sandbox.base import LIMITS
from shioenv.system.store import find_system
from shioenv_paper.repeats import (
    cause_of,
    masked,
    passes,
    shows_clock,
    volatile_commands,
)
from shioenv_paper.setting import ExperimentSetting

Task: TypeAlias = tuple[int, str, str]
"""An input's number, its text, its start directory."""

PASSES = 5
WANTED = 0.99
"""Share of the inputs not declared volatile that are identical in all passes."""


@dataclass(frozen=True)
class Verdict:
    """Why an input's behaviors differ between passes."""

    number: int
    drawn: Drawn
    channels: tuple[str, ...]
    time_of_day: bool
    mark: str
    """`declared`, `noticed`, or `none`."""
    cause: str
    values: tuple[Any, Any]
    """The values of two passes in the first of the channels."""


def main() -> int:
    """Run the passes, print the results and return the exit status."""
    options = parser(__doc__, count=5000)
    options.add_argument("--passes", type=int, default=PASSES, help="how many of them (default: 5)")
    options.add_argument("--kept", type=Path, help="file of a pass of an earlier day")
    chosen = options.parse_args()
    system = find_system(chosen.system)
    inputs = list(drawn(system=system, seed=chosen.seed, count=chosen.count))
    tasks = [
        (number, Session(one.cwd, (one.sample.input,)).text, one.cwd)
        for number, one in enumerate(inputs)
    ]
    numbers = range(1, chosen.passes + 1)
    setting = ExperimentSetting(
        out=Path(), system_name=system.name, seed=chosen.seed, report=_Shown()
    )
    found = passes(setting, [one.sample for one in inputs], numbers)
    first = dict(next(found)[1])
    others = [
        {number: other for number, other in one if other != first[number]} for _, one in found
    ]
    if chosen.kept is not None and chosen.kept.exists():
        others.append(_kept(chosen.kept, tasks, first))
    elif chosen.kept is not None:
        chosen.kept.write_bytes(pickle.dumps((tasks, first)))
    verdicts = _verdicts(inputs, first, others, system.name)
    return _report(verdicts, inputs, others, system.digest, as_json=chosen.json)


class _Shown:
    """Progress lines by task."""

    def __init__(self) -> None:
        self._lines: dict[str, Progress] = {}

    def __call__(self, what: str, done: int, total: int) -> None:
        self._lines.setdefault(what, Progress(what, total)).step()


def _kept(path: Path, tasks: Sequence[Task], first: dict[int, Behavior]) -> dict[int, Behavior]:
    """Return the behaviors of the file that have changed."""
    before: tuple[Sequence[Task], dict[int, Behavior]] = pickle.loads(path.read_bytes())
    earlier = {(text, cwd): before[1][number] for number, text, cwd in before[0]}
    found = {number: earlier.get((text, cwd)) for number, text, cwd in tasks}
    common = {number: other for number, other in found.items() if other is not None}
    print(f"{len(common):,} inputs are in {path} as well", file=sys.stderr)
    return {number: other for number, other in common.items() if other != first[number]}


# ---- what differs, and why ----


def _verdicts(
    inputs: Sequence[Drawn],
    first: dict[int, Behavior],
    others: Sequence[dict[int, Behavior]],
    system: str,
) -> list[Verdict]:
    differing = sorted(set().union(*others)) if others else []
    verdicts = []
    declared = volatile_commands()
    with open_sandbox(system, LIMITS) as observer:
        for number in differing:
            one, base = inputs[number], first[number]
            seen = [other[number] for other in others if number in other]
            channels = tuple(dict.fromkeys(name for other in seen for name in _other(base, other)))
            clock = all(masked(base) == masked(other) for other in seen)
            clock = clock or shows_clock(one.sample, declared)
            cause = cause_of(observer, (number, one.sample), volatile=declared)
            values = getattr(base, channels[0]), getattr(seen[0], channels[0])
            verdicts.append(Verdict(number, one, channels, clock, cause.mark, cause.text, values))
    return verdicts


def _other(a: Behavior, b: Behavior) -> list[str]:
    """Return the names of the fields in which two behaviors differ."""
    return [name for name in a.__slots__ if getattr(a, name) != getattr(b, name)]


def _report(
    verdicts: Sequence[Verdict],
    inputs: Sequence[Drawn],
    others: Sequence[dict[int, Behavior]],
    digest: str,
    *,
    as_json: bool,
) -> int:
    count, timed = len(inputs), sum(one.time_of_day for one in verdicts)
    identical = 1 - len(verdicts) / count
    besides = (count - len(verdicts)) / max(1, count - timed)
    declared = sum(one.volatile for one in inputs)
    unexpected = sum(not one.drawn.volatile for one in verdicts)
    promised = 1 - unexpected / max(1, count - declared)
    facts = {
        "system": digest,
        "inputs": count,
        "passes": len(others) + 1,
        "identical": f"{identical:.2%}",
        "identical, time of day set aside": f"{besides:.2%}",
        "identical, declared volatile set aside": f"{promised:.2%}",
        "differing": len(verdicts),
        "differing by the time of day": timed,
        "differing, declared volatile": sum(one.mark == "declared" for one in verdicts),
        "differing, noticed when recorded": sum(one.mark == "noticed" for one in verdicts),
        "declared volatile in all": declared,
        "differing per later pass": " ".join(str(len(other)) for other in others),
    }
    causes = Counter(
        (one.cause, "+".join(one.channels), "yes" if one.time_of_day else "no", one.mark)
        for one in verdicts
    )
    rows = [(*key, number) for key, number in sorted(causes.items())]
    by_command = Counter((" ".join(one.drawn.commands), one.mark) for one in verdicts)
    noticed = [
        (one.drawn.text, one.drawn.cwd, "+".join(one.channels), "yes" if one.time_of_day else "no")
        for one in verdicts
        if one.mark == "noticed"
    ]
    violations: list[dict[str, object]] = [
        {
            "input": one.drawn.text,
            "cwd": one.drawn.cwd,
            "differs in": "+".join(one.channels),
            "first": _around(one.values[0], one.values[1]),
            "other": _around(one.values[1], one.values[0]),
        }
        for one in verdicts
        if one.mark == "none"
    ]
    if promised < WANTED:
        violations.append({"identical, declared volatile set aside": promised})
    return report(
        facts,
        violations,
        as_json=as_json,
        tables=[
            ("causes", ("cause", "differs in", "time of day", "mark", "inputs"), rows),
            (
                "commands",
                ("commands", "mark", "inputs"),
                [(*key, number) for key, number in by_command.most_common()],
            ),
            ("noticed when recorded", ("input", "cwd", "differs in", "time of day"), noticed),
        ],
    )


def _around(value: object, other: object) -> str:
    """Return the value from shortly before its first difference."""
    text, against = str(value), str(other)
    pairs = zip(text, against, strict=False)
    at = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(text), len(against)))
    return text[max(0, at - 60) : at + 100]


if __name__ == "__main__":
    sys.exit(main())
