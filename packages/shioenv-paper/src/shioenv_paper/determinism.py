"""The share of inputs with byte-identical results in several passes, and reasons for differences.

The experiment is our addition; the paper assumes that inputs are deterministic. Each pass is saved
as digests, in a separate file.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

from shioenv.domain.behavior import Behavior
from shioenv.domain.patch import ContextPatch
from shioenv.errors import UsageError
from shioenv.execution.job import Executor
from shioenv.files.durable import locked, storage_errors
from shioenv.synthesis.drawing import Drawing
from shioenv.synthesis.traces import Sample
from shioenv_eval.report.markup import Table, grouped
from shioenv_paper.experiment_journal import agree
from shioenv_paper.experiment_output import (
    Findings,
    columns,
    experiment,
    read_columns,
    write_columns,
)
from shioenv_paper.repeats import (
    NO_CAUSE,
    REASONS,
    Cause,
    Pass,
    RepeatVerdict,
    cause_of,
    executor_of,
    marked,
    masked,
    passes,
    sample_commands,
    shows_clock,
    volatile_commands,
)
from shioenv_paper.setting import ExperimentSetting, answers, stream_of

NAME = "determinism"
COUNT = 5000
"""Number of inputs at full size."""
PASSES = 5
"""Number of passes at full size."""

AIM = 0.97
"""Target share of identical inputs; every other input must be explained."""

MASKED = "masked"
"""The name of the digest of a behavior with all clock times in its output masked."""

CHANNELS = tuple(item.name for item in fields(Behavior))

DIGESTS = (*CHANNELS, MASKED)

Digests = Mapping[str, str]
"""The digests of an input's behavior in one pass, by the names in `DIGESTS`."""


@experiment(NAME)
def run_determinism(
    setting: ExperimentSetting,
    *,
    count: int = COUNT,
    number_of_passes: int = PASSES,
    executors: Callable[[int], Executor] = executor_of,
) -> Findings:
    """Run `count` inputs in each missing pass, and write the results.

    `executors` returns the executor of each pass by its number; that of number 0 is used to find
    the reasons for differences.

    Errors: UsageError for fewer than two passes; those of `experiment` and `passes`;
    DatasetBusyError; DatasetCorruptError. DatasetMismatchError if existing passes have other
    inputs.
    """
    from shioenv_paper import experiment_charts

    if number_of_passes < 2:
        raise UsageError("one pass has nothing to be compared with", hint="give at least 2 passes")
    drawn = stream_of(setting.system, Drawing(policy="paper", seed=setting.seed), count)
    samples = list(drawn.samples)
    plan = {**drawn.origin, **setting.origin, "inputs": len(samples)}
    seen, reused = _run_passes(setting, plan, samples, number_of_passes, executors)
    verdicts = list(_verdicts(setting, samples, seen, executors(0)))
    groups, shares = _by_command(verdicts), _shares(verdicts)
    return Findings(
        title="Determinism: repeated executions of the same inputs",
        data={"inputs": columns(verdicts, **COLUMNS)},
        tables=[
            _share_table(shares, len(verdicts), number_of_passes),
            _command_table(verdicts, groups),
            _cause_table(verdicts),
            _open_table(verdicts),
        ],
        chart=experiment_charts.draw_determinism(
            groups, shares, f"{count:,} inputs are byte-identical in {number_of_passes} passes"
        ),
        counts={"inputs": count, "passes": number_of_passes, "passes of earlier calls": reused},
        parameters={"inputs": count, "passes": number_of_passes, "sampler": "gcs"},
        summary={name: round(share, 5) for name, share in shares.items()},
    )


# ---- the passes ----


def _run_passes(
    setting: ExperimentSetting,
    plan: Mapping[str, Any],
    samples: Sequence[Sample],
    wanted: int,
    executors: Callable[[int], Executor],
) -> tuple[list[tuple[Digests, ...]], int]:
    """Return each input's digests of all passes, and the number of passes that already existed."""
    directory = setting.data / NAME
    setting.check(directory, executors(1))
    paths = {number: directory / f"pass-{number}.parquet" for number in range(1, wanted + 1)}
    with storage_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
        with locked(directory):
            agree(directory / "plan.json", plan)
            missing = [number for number, path in paths.items() if not path.exists()]
            for number, behaviors in passes(setting, samples, missing, executors):
                write_columns(paths[number], _digested(behaviors))
            by_pass = [_read(path) for path in paths.values()]
    return list(zip(*by_pass, strict=True)), wanted - len(missing)


def _digested(behaviors: Pass) -> dict[str, list[Any]]:
    rows = [{"number": number, **digests(behavior)} for number, behavior in behaviors]
    return {name: [row[name] for row in rows] for name in ("number", *DIGESTS)}


def digests(behavior: Behavior) -> dict[str, str]:
    """Return a digest of each field of a behavior, and of all fields with masked clock times."""
    whole = masked(behavior)
    return {
        **{name: _digest(getattr(behavior, name)) for name in CHANNELS},
        MASKED: _digest([_plain(getattr(whole, name)) for name in CHANNELS]),
    }


def _digest(value: object) -> str:
    return hashlib.sha256(repr(_plain(value)).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _plain(value: object) -> object:
    if isinstance(value, ContextPatch):
        return value.operations
    return sorted(value.items()) if isinstance(value, Mapping) else value


def _read(path: Path) -> list[Digests]:
    seen = read_columns(path)
    rows = sorted(zip(seen["number"], *(seen[name] for name in DIGESTS), strict=True))
    return [dict(zip(DIGESTS, row, strict=True)) for _, *row in rows]


# ---- verdicts ----


def _verdicts(
    setting: ExperimentSetting,
    samples: Sequence[Sample],
    seen: Sequence[tuple[Digests, ...]],
    executor: Executor,
) -> Iterator[RepeatVerdict]:
    declared = volatile_commands()
    differing = [
        (number, samples[number])
        for number, (first, *others) in enumerate(seen)
        if any(other != first for other in others)
    ]
    causes: dict[int, Cause] = dict(
        answers(
            executor,
            setting.job(partial(cause_of, volatile=declared)),
            differing,
            lambda done: setting.report("differences explained", done, len(differing)),
        )
    )
    for number, (sample, (first, *others)) in enumerate(zip(samples, seen, strict=True)):
        different = [other for other in others if other != first]
        clock = all(other[MASKED] == first[MASKED] for other in different)
        yield RepeatVerdict(
            number=number,
            sample=sample,
            channels=tuple(
                name for name in CHANNELS if any(other[name] != first[name] for other in different)
            ),
            differing=len(different),
            time_of_day=clock or shows_clock(sample, declared),
            cause=causes.get(number, NO_CAUSE),
            command=(marked(sample, declared) or sample_commands(sample))[0],
        )


def _shares(verdicts: Sequence[RepeatVerdict]) -> dict[str, float]:
    same = sum(verdict.identical for verdict in verdicts)
    reasons = Counter(verdict.reason for verdict in verdicts)
    quiet = [verdict.identical for verdict in verdicts if not verdict.sample.volatile]
    total = len(verdicts)
    return {
        "identical, of all inputs": same / total,
        "identical, without inputs that differ only by the time of day": same
        / max(1, total - reasons["time of day"]),
        "identical, of those not declared volatile": sum(quiet) / max(1, len(quiet)),
        "identical or explained, of all inputs": (total - reasons["not explained"]) / total,
    }


COLUMNS = {
    "number": "number",
    "input": "sample.input.text",
    "cwd": "sample.cwd",
    "command": "command",
    "commands": "commands",
    "declared_volatile": "sample.volatile",
    "identical": "identical",
    "differing_passes": "differing",
    "channels": "different",
    "reason": "reason",
    "mark": "cause.mark",
    "cause": "cause.text",
}
"""The columns of the data, each with its attribute of a verdict."""


def _share_table(shares: Mapping[str, float], inputs: int, passes: int) -> Table:
    return Table(
        "Shares",
        f"{inputs:,} inputs, sampled with GCS (grammar-constrained sampling), including composite "
        f"inputs, were executed in {passes} passes. The passes differ in sandboxes, processes, "
        "order, processor load and time. An input is identical if exit code, output, patch, "
        f"content and flags have the same bytes in all passes. The target is that {AIM:.0%} of all "
        "inputs are identical, and that each other input has a known cause.",
        ("share", ""),
        [(name, f"{share:.2%}") for name, share in shares.items()],
    )


def _by_command(verdicts: Sequence[RepeatVerdict]) -> dict[str, list[RepeatVerdict]]:
    """Group the inputs of commands that have differing ones, most differences first."""
    groups = grouped(verdicts, attrgetter("command"))
    same = Counter(verdict.command for verdict in verdicts if verdict.identical)
    differing = {name: len(group) - same[name] for name, group in groups.items()}
    names = sorted(filter(differing.get, groups), key=lambda name: (-differing[name], name))
    return {name: groups[name] for name in names}


def _command_table(
    verdicts: Sequence[RepeatVerdict], groups: Mapping[str, Sequence[RepeatVerdict]]
) -> Table:
    rows = []
    for name, group in groups.items():
        reasons = Counter(verdict.reason for verdict in group)
        counts = (str(reasons[reason] or "") for reason in REASONS)
        rows.append((f"`{name}`", str(len(group)), f"{reasons[''] / len(group):.1%}", *counts))
    others = [verdict.command for verdict in verdicts if verdict.command not in groups]
    nothing = ("" for _ in REASONS)
    rows.append((f"{len(set(others))} others", str(len(others)), "100%", *nothing))
    return Table(
        "By command",
        "An input with several commands is counted under the first command whose grammar declares "
        "it volatile, always or for an option or operand of this input. If there is none, the "
        "input is counted under its first command.",
        ("command", "inputs", "identical", *REASONS),
        rows,
    )


def _cause_table(verdicts: Sequence[RepeatVerdict]) -> Table:
    counted = Counter((v.cause.text, v.different, v.reason) for v in verdicts if v.reason)
    return Table(
        "By cause",
        "The cause comes from the header of the grammar, or from the recording of the input.",
        ("cause", "differs in", "counted as", "inputs"),
        [(*cause, str(inputs)) for cause, inputs in counted.most_common()],
    )


def _open_table(verdicts: Sequence[RepeatVerdict]) -> Table:
    unexplained = [verdict for verdict in verdicts if verdict.reason == "not explained"]
    note = "Inputs that differ although their records are not marked as volatile."
    return Table(
        "Not explained",
        note if unexplained else "None.",
        ("input", "directory", "differs in"),
        [(f"`{v.sample.input.text}`", v.sample.cwd, v.different) for v in unexplained],
    )
