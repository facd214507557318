"""How many inputs do the same, byte for byte, in several passes, by command, and why others do not.

Ours; the paper takes it for granted. What a pass saw is kept as digests, one file a pass.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from shioenv.domain.behavior import Behavior
from shioenv.errors import UsageError
from shioenv.execution.job import Executor, Job
from shioenv.experiments.repeats import (
    REASONS,
    Cause,
    Pass,
    Verdict,
    cause_of,
    commands_of,
    executor_of,
    marked,
    masked,
    passes,
    shows_clock,
    volatile_commands,
)
from shioenv.experiments.results import (
    Findings,
    Outcome,
    agree,
    check_libraries,
    read_columns,
    write,
    write_columns,
)
from shioenv.experiments.setting import Setting, stream_of
from shioenv.files.durable import locked, storage_errors
from shioenv.report.tables import Table
from shioenv.synthesis.drawing import Drawing
from shioenv.synthesis.sample import Sample

NAME = "determinism"
COUNT = 5000
PASSES = 5
"""Of these inputs at full size."""

AIM = 0.97
"""Share of the inputs that are to be identical, every other one explained."""

MASKED = "masked"
"""The digest of a behavior with every clock in its output replaced."""

CHANNELS = tuple(item.name for item in fields(Behavior))

Digests = Mapping[str, str]
"""What a pass saw of an input: a digest of each of `CHANNELS`, and of `MASKED`."""


def run(
    setting: Setting,
    *,
    count: int = COUNT,
    number_of_passes: int = PASSES,
    executors: Callable[[int], Executor] = executor_of,
) -> Outcome:
    """Runs `count` inputs in each of the passes that are not there yet and writes what came out.

    `executors` gives what executes the pass of a number, and as that of 0 what is to be explained.

    Errors: UsageError for fewer than two passes, MissingExtraError before anything is executed;
    DatasetMismatchError where the passes that are there are of other inputs, DatasetBusyError,
    DatasetCorruptError, DatasetStorageError; those of `passes`.
    """
    if number_of_passes < 2:
        raise UsageError("one pass has nothing to be compared with", hint="two at least")
    check_libraries()
    from shioenv.experiments import charts

    started = time.monotonic()
    drawn = stream_of(setting.system, Drawing(seed=setting.seed), count)
    samples = list(drawn.samples)
    plan = {**drawn.origin, "inputs": len(samples)}
    seen, reused = _seen(setting, plan, samples, number_of_passes, executors)
    verdicts = list(_verdicts(setting, samples, seen, executors(0)))
    findings = Findings(
        title="Determinism: the same inputs again",
        data={"inputs": _columns(verdicts)},
        tables=[
            _share_table(verdicts, number_of_passes),
            _command_table(verdicts),
            _cause_table(verdicts),
            _open_table(verdicts),
        ],
        chart=charts.determinism(
            _by_command(verdicts),
            _shares(verdicts),
            f"{count:,} inputs are byte-identical in {number_of_passes} passes",
        ),
        counts={"inputs": count, "passes": number_of_passes, "passes of earlier calls": reused},
        parameters={"inputs": count, "passes": number_of_passes, "sampler": "gcs"},
        summary={name: round(share, 5) for name, share in _shares(verdicts).items()},
    )
    return write(setting, NAME, findings, started=started)


# ---- the passes ----


def _seen(
    setting: Setting,
    plan: Mapping[str, Any],
    samples: Sequence[Sample],
    wanted: int,
    executors: Callable[[int], Executor],
) -> tuple[list[list[Digests]], int]:
    """By pass and number, what was seen; and how many passes were there."""
    directory = setting.data / NAME
    with storage_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
        with locked(directory):
            agree(directory / "plan.json", plan)
            there = {
                number: path
                for number in range(1, wanted + 1)
                if (path := directory / f"pass-{number}.parquet").exists()
            }
            missing = [number for number in range(1, wanted + 1) if number not in there]
            name = setting.system_name or plan["system"]
            for number, found in passes(
                samples, name, setting.seed, missing, setting.report, executors
            ):
                path = directory / f"pass-{number}.parquet"
                write_columns(path, _digested(found))
            paths = [directory / f"pass-{number}.parquet" for number in range(1, wanted + 1)]
            return [_read(path, len(samples)) for path in paths], len(there)


def _digested(found: Pass) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = defaultdict(list)
    for number, behavior in found:
        columns["number"].append(number)
        for name, digest in digests(behavior).items():
            columns[name].append(digest)
    return columns


def digests(behavior: Behavior) -> dict[str, str]:
    """A digest of each of a behavior's fields, and of the whole with its clocks masked."""
    whole = masked(behavior)
    return {
        **{name: _digest(getattr(behavior, name)) for name in CHANNELS},
        MASKED: _digest([_plain(getattr(whole, name)) for name in CHANNELS]),
    }


def _digest(value: object) -> str:
    return hashlib.sha256(repr(_plain(value)).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _plain(value: object) -> object:
    return sorted(value.items()) if isinstance(value, Mapping) else value


def _read(path: Path, count: int) -> list[Digests]:
    columns = read_columns(path)
    names = [name for name in columns if name != "number"]
    rows: list[Digests] = [{} for _ in range(count)]
    for place, number in enumerate(columns["number"]):
        rows[number] = {name: columns[name][place] for name in names}
    return rows


# ---- what they say ----


def _verdicts(
    setting: Setting,
    samples: Sequence[Sample],
    seen: Sequence[Sequence[Digests]],
    executor: Executor,
) -> Iterator[Verdict]:
    declared = volatile_commands()
    differing = [n for n in range(len(samples)) if any(one[n] != seen[0][n] for one in seen)]
    explained: dict[int, Cause] = {}
    job = Job(
        partial(cause_of, volatile=declared),
        system=setting.system_name or setting.system.name,
        what="input",
    )
    with executor:
        for number, cause in executor.map(job, ((n, samples[n]) for n in differing)):
            explained[number] = cause
            setting.report("differences explained", len(explained), len(differing))
    for number, one in enumerate(samples):
        first = seen[0][number]
        others = [digests[number] for digests in seen[1:] if digests[number] != first]
        channels = tuple(
            name for name in CHANNELS if any(other[name] != first[name] for other in others)
        )
        clock = all(other[MASKED] == first[MASKED] for other in others)
        yield Verdict(
            number=number,
            sample=one,
            channels=channels,
            differing=len(others),
            time_of_day=clock or shows_clock(one, declared),
            cause=explained.get(number),
            command=(marked(one, declared) or commands_of(one))[0],
        )


def _shares(verdicts: Sequence[Verdict]) -> dict[str, float]:
    same = sum(one.identical for one in verdicts)
    timed = sum(one.reason == "time of day" for one in verdicts)
    quiet = [one for one in verdicts if not one.sample.volatile]
    explained = sum(one.reason != "not explained" for one in verdicts)
    return {
        "identical, of all inputs": same / len(verdicts),
        "identical, of those that do not differ by the time of day alone": same
        / max(1, len(verdicts) - timed),
        "identical, of those not declared volatile": sum(one.identical for one in quiet)
        / max(1, len(quiet)),
        "identical or explained, of all inputs": explained / len(verdicts),
    }


def _columns(verdicts: Sequence[Verdict]) -> dict[str, list[Any]]:
    return {
        "number": [one.number for one in verdicts],
        "input": [one.sample.input.text for one in verdicts],
        "cwd": [one.sample.cwd for one in verdicts],
        "command": [one.command for one in verdicts],
        "commands": [list(commands_of(one.sample)) for one in verdicts],
        "declared_volatile": [one.sample.volatile for one in verdicts],
        "identical": [one.identical for one in verdicts],
        "differing_passes": [one.differing for one in verdicts],
        "channels": ["+".join(one.channels) for one in verdicts],
        "reason": [one.reason for one in verdicts],
        "mark": [one.cause.mark if one.cause else "" for one in verdicts],
        "cause": [one.cause.text if one.cause else "" for one in verdicts],
    }


def _share_table(verdicts: Sequence[Verdict], passes: int) -> Table:
    return Table(
        "Shares",
        f"{len(verdicts):,} inputs, GCS with composites, in {passes} passes: other sandboxes, "
        "other processes, other orders, busy processors, another minute. Identical: exit code, "
        f"output, patch, content and flags are the same bytes in all. The aim is {AIM:.0%} of "
        "all, and a cause for each of the others.",
        ("share", ""),
        [(name, f"{share:.2%}") for name, share in _shares(verdicts).items()],
    )


def _by_command(verdicts: Sequence[Verdict]) -> list[tuple[str, list[Verdict]]]:
    """Commands with inputs that differ, those with the most of them first."""
    groups: dict[str, list[Verdict]] = defaultdict(list)
    for one in verdicts:
        groups[one.command].append(one)
    differing = {name: sum(not one.identical for one in group) for name, group in groups.items()}
    names = sorted((name for name, some in differing.items() if some),
                   key=lambda name: (-differing[name], name))  # fmt: skip
    return [(name, groups[name]) for name in names]


def _command_table(verdicts: Sequence[Verdict]) -> Table:
    groups = _by_command(verdicts)
    rows = []
    for name, group in groups:
        reasons = Counter(one.reason for one in group)
        same = sum(one.identical for one in group)
        rows.append(
            (
                f"`{name}`",
                str(len(group)),
                f"{same / len(group):.1%}",
                *(str(reasons[reason] or "") for reason in REASONS),
            )
        )
    named = {name for name, _ in groups}
    others = [one for one in verdicts if one.command not in named]
    count = len({one.command for one in others})
    rows.append((f"{count} others", str(len(others)), "100%", *("" for _ in REASONS)))
    return Table(
        "By command",
        "An input of several commands is counted under the first that its grammar declares "
        "volatile, by itself or by an option or operand it has, else under the first.",
        ("command", "inputs", "identical", *REASONS),
        rows,
    )


def _cause_table(verdicts: Sequence[Verdict]) -> Table:
    found = Counter(
        (one.cause.text, "+".join(one.channels), one.reason) for one in verdicts if one.cause
    )
    return Table(
        "By cause",
        "What a grammar's header, or the recording of the input, says.",
        ("cause", "differs in", "counted as", "inputs"),
        [(*key, str(number)) for key, number in found.most_common()],
    )


def _open_table(verdicts: Sequence[Verdict]) -> Table:
    found = [one for one in verdicts if one.reason == "not explained"]
    return Table(
        "Not explained",
        "Inputs that differ and of which nobody who reads their record is warned."
        if found
        else "None.",
        ("input", "directory", "differs in"),
        [(f"`{one.sample.input.text}`", one.sample.cwd, "+".join(one.channels)) for one in found],
    )
