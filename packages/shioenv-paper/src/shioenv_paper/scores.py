"""Datasets that experiments generate, and the scores in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from itertools import islice
from pathlib import Path
from typing import Any

from shioenv.dataset.generate import generate
from shioenv.dataset.manifest import read_manifest
from shioenv.dataset.record_reader import read_records
from shioenv.domain.inputs import Input
from shioenv.domain.record import Record
from shioenv.errors import UnknownDatasetError
from shioenv.irreducibility.scoring import Scoring
from shioenv.synthesis.drawing import Drawing
from shioenv_eval.report.statistics import command_of
from shioenv_paper.setting import ExperimentSetting

NAMES = {"gcs": "GCS", "ucs": "UCS", "ucs-universal": "UCS universal"}
"""The names of samplers in pictures and tables."""


PAPER_TRAINING = {
    "UCS, R* ≥ 0": (0.31, 0.32),
    "GCS, R* ≥ 0": (0.58, 0.31),
    "GCS, R* ≥ 0.5": (0.78, 0.19),
    "GCS, R* ≤ 0.5": (0.31, 0.17),
}
"""Mean and standard deviation of the scores of the paper's four training sets (Section 4.4)."""


@dataclass(frozen=True, slots=True)
class ScoredRecord:
    """The fields of a record that these experiments use."""

    session_id: int
    sampler: str
    command: str
    n_arguments: int
    n_operands: int
    """Arguments that neither begin with a hyphen nor continue a bundle of options."""
    exit_code: int
    volatile: bool
    exact: bool
    n_executions: int
    irreducibility: float | None
    irreducibility_strict: float | None
    necessary: float | None


COLUMNS = tuple(item.name for item in fields(ScoredRecord))


@dataclass(frozen=True, slots=True)
class ScoredDataset:
    """A dataset that this call generated or reused."""

    directory: Path
    new: int
    """Number of records that this call executed, also those that complete a larger dataset."""
    scores: list[ScoredRecord]

    @property
    def counts(self) -> dict[str, Any]:
        """The counts for `run.json`."""
        return {
            "inputs": len(self.scores),
            "executed by this call": self.new,
            "volatile": sum(score.volatile for score in self.scores),
            "fail": sum(score.exit_code != 0 for score in self.scores),
        }


def make_dataset(
    setting: ExperimentSetting, name: str, count: int, drawing: Drawing, scoring: Scoring
) -> ScoredDataset:
    """Generate or reuse the dataset of this name in the setting's data.

    The scores are those of its first `count` records. Existing records are not executed again. A
    dataset that was begun there with more inputs is finished first. Errors: those of `generate`.
    """
    directory, begun = setting.data / name, 0
    with suppress(UnknownDatasetError):
        begun = read_manifest(directory).count
    summary = generate(
        directory,
        count=max(count, begun),
        drawing=replace(drawing, seed=setting.seed),
        scoring=scoring,
        system=setting.system_name,
        limits=setting.limits,
        executor=setting.executor,
        report=lambda progress: setting.report(f"{name} inputs", progress.done, progress.count),
    )
    return ScoredDataset(directory, summary.new, list(islice(scores_of(directory), count)))


def scores_of(directory: Path) -> Iterator[ScoredRecord]:
    """Yield the scores of all records of a dataset, in order. Errors: those of reading records."""
    for record in read_records(directory):
        same = {name: getattr(record, name) for name in COLUMNS if hasattr(record, name)}
        yield ScoredRecord(**same, command=command_of(record), n_operands=_operands(record))


def _operands(record: Record) -> int:
    return sum(
        not (argument.joins_left or argument.text.startswith("-"))
        for segment in Input.from_marked(record.input_args).segments
        for argument in segment.arguments
    )


def ones(values: Iterable[float]) -> int:
    """Return the number of scores that are exactly 1."""
    return sum(value >= 1 for value in values)


def values(
    scores: Iterable[ScoredRecord], keep: Callable[[ScoredRecord], bool] = lambda score: True
) -> list[float]:
    """Return the irreducibility of the records that have one and satisfy `keep`."""
    kept = (score.irreducibility for score in scores if keep(score))
    return [value for value in kept if value is not None]
