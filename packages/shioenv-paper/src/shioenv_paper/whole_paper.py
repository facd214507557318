"""All of the paper's experiments and figures, one after the other, at one of two sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from shioenv_paper.by_length import PAPER_COUNT, run_by_length
from shioenv_paper.estimator_errors import run_estimator_errors
from shioenv_paper.experiment_output import Results
from shioenv_paper.explanatory_figures import draw
from shioenv_paper.sampling_efficiency import run_sampling_efficiency
from shioenv_paper.setting import ExperimentSetting
from shioenv_paper.steps import run_steps
from shioenv_paper.training_sets import run_training_sets


@dataclass(frozen=True, slots=True)
class PaperSize:
    """Numbers of inputs of the experiments."""

    exact: int
    """Inputs of each length from 8 arguments, with all sub-inputs executed."""
    replays: int
    """Estimates of each of these inputs."""
    by_length: int
    """Inputs of each sampler."""
    training: int
    """Scored inputs of each source of training sets."""
    steps: int
    """Inputs of each step from our sampling to the paper's."""
    rules: bool
    """Whether inputs are executed again, to score them by the reference implementation's rules."""


SIZES: Mapping[str, PaperSize] = MappingProxyType(
    {
        "reduced": PaperSize(4, 10, 1_200, 500, 50, rules=False),
        "paper": PaperSize(60, 20, PAPER_COUNT, 500_000, 300, rules=True),
    }
)
"""The reduced size takes under an hour on two idle cores."""


def reproduce_paper(setting: ExperimentSetting, size: PaperSize) -> Iterator[Results]:
    """Run the experiments below `setting.out`, and yield the results of each.

    Sections 4.2, 4.3 and 4.4 of the paper, then our steps, and the figures of the method in
    `figures`. Finished executions are not repeated. Errors: those of the experiments and `draw`.
    """
    draw(setting.out / "figures", seed=setting.seed, system=setting.system_name)
    yield run_sampling_efficiency(setting, count=size.exact, replays=size.replays)
    yield run_estimator_errors(setting, count=size.exact, replays=size.replays)
    yield run_by_length(setting, count=size.by_length, rules=size.rules)
    yield run_training_sets(setting, count=size.training, rules=size.rules)
    yield run_steps(setting, count=size.steps)
