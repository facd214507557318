"""`shioenv experiment`: the paper's experiments and more, with data, pictures and tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from shioenv.cli import shared
from shioenv.cli.progress import Meter
from shioenv.errors import UsageError
from shioenv.irreducibility.scoring import THE_PAPERS, Scoring

if TYPE_CHECKING:
    from shioenv.sandbox.base import Limits
    from shioenv_paper.experiment_output import Results
    from shioenv_paper.regimes import RegimeTraining
    from shioenv_paper.setting import ExperimentSetting

app = typer.Typer(
    name="experiment",
    no_args_is_help=True,
    help="Run the paper's sampling experiments, and six more, on this machine.",
)

Experiment: TypeAlias = "Callable[[ExperimentSetting], Results]"

Out = Annotated[
    Path,
    typer.Option(
        metavar="DIR",
        help="Results go to a directory in DIR that has the experiment's name. The same "
        "command goes on where an earlier one was stopped.",
    ),
]
Workers = Annotated[
    int | None, typer.Option(min=1, metavar="W", help="Processes (default: one per processor).")
]
ExactCount = Annotated[
    int,
    typer.Option(
        min=1,
        metavar="N",
        help="Inputs of each length from 8 arguments up. Shorter lengths have four times as many.",
    ),
]
Longest = Annotated[
    int,
    typer.Option(
        "--max-arguments", min=2, max=12, metavar="N", help="Arguments of an input at most."
    ),
]
Replays = Annotated[
    int,
    typer.Option(
        "--estimates",
        min=1,
        metavar="N",
        help="Estimates of each input by each estimator at each budget.",
    ),
]


@dataclass(frozen=True, slots=True)
class PaperScoring:
    """Options of the paper's scoring."""

    budget: shared.Budget = THE_PAPERS.budget
    estimator: shared.EstimatorName = THE_PAPERS.estimator

    def scoring(self) -> Scoring:
        """Return the paper's scoring, with these options."""
        return replace(THE_PAPERS, budget=self.budget, estimator=self.estimator)


@dataclass(frozen=True, slots=True)
class ExactOptions:
    """Options of experiments with exact scores."""

    count: ExactCount = 60
    longest: Longest = 12
    replays: Replays = 20


@dataclass(frozen=True, slots=True)
class Run:
    """Options of every experiment."""

    seed: shared.Seed = 0
    workers: Workers = None
    without_shell_state: shared.WithoutShellState = False
    system: shared.SystemName = None
    sandbox: shared.SandboxName = "namespaces"
    revert: shared.Revert = "input"

    def __call__(self, out: Path, experiment: Experiment) -> shared.Printout:
        """Run the experiment, and return its printout."""
        limits = shared.RecordLimits(None, self.without_shell_state, self.sandbox, self.revert)
        return _run(
            out,
            experiment,
            seed=self.seed,
            workers=self.workers,
            limits=limits.limits(),
            system=self.system,
        )


@dataclass(frozen=True, slots=True)
class RunOften:
    """Like `Run`, for experiments that set the number of processes themselves."""

    seed: shared.Seed = 0
    without_shell_state: shared.WithoutShellState = False
    system: shared.SystemName = None
    sandbox: shared.SandboxName = "namespaces"
    revert: shared.Revert = "input"

    def __call__(self, out: Path, experiment: Experiment) -> shared.Printout:
        """Run the experiment, and return its printout."""
        return Run(**asdict(self))(out, experiment)


@shared.command(
    app, "shioenv experiment sampling-efficiency --out ./experiments --count 5 --max-arguments 8"
)
def sampling_efficiency(out: Out, exact: ExactOptions, run: Run) -> shared.Printout:
    """How far estimates are from exact scores, by budget, number of arguments and estimator.

    Every sub-input of every input is executed: 4,094 of an input of 12 arguments.
    """
    from shioenv_paper import sampling_efficiency as experiment

    return run(out, lambda setting: experiment.run_sampling_efficiency(setting, **asdict(exact)))


@shared.command(
    app, "shioenv experiment estimators --out ./experiments --count 5 --max-arguments 9"
)
def estimators(out: Out, exact: ExactOptions, run: Run) -> shared.Printout:
    """Error of every estimator, by the executions that were spent: which estimator to choose.

    What `sampling-efficiency` executed in the same directory is not executed again.
    """
    from shioenv_paper import estimator_errors as experiment

    return run(out, lambda setting: experiment.run_estimator_errors(setting, **asdict(exact)))


@shared.command(app, "shioenv experiment irreducibility-by-length --out ./experiments --count 2000")
def irreducibility_by_length(
    out: Out,
    *,
    count: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Inputs of each sampler (default: 50000)."),
    ] = None,
    paper_size: Annotated[
        bool, typer.Option("--paper-size", help="250,000 of each, as in the paper.")
    ] = False,
    scoring: PaperScoring,
    run: Run,
) -> shared.Printout:
    """Irreducibility by number of arguments, of inputs written by GCS, UCS and UCS universal.

    Single commands, every number of arguments from 1 to 12 equally often.
    """
    from shioenv_paper import by_length as experiment

    if paper_size and count is not None:
        raise UsageError("--paper-size and --count exclude each other", hint="give one of them")
    size = experiment.PAPER_COUNT if paper_size else count or experiment.COUNT
    return run(
        out,
        lambda setting: experiment.run_by_length(setting, count=size, scoring=scoring.scoring()),
    )


@shared.command(app, "shioenv experiment training-sets --out ./experiments --count 2000")
def training_sets(
    out: Out,
    *,
    count: Annotated[
        int, typer.Option(min=1, metavar="N", help="Inputs with a score, of UCS and of GCS.")
    ] = 50000,
    pool: Annotated[
        str | None,
        typer.Option(
            metavar="NAME=DIR", help="A dataset of what people wrote, to stand beside the others."
        ),
    ] = None,
    scoring: PaperScoring,
    run: Run,
) -> shared.Printout:
    """Mean and standard deviation of the scores of the paper's four training sets.

    NL2CMD holds commands that people wrote, which nobody can generate. `shioenv suite adapt`
    rewrites such commands to the system, and `shioenv dataset import` executes and scores them.
    """
    from shioenv_paper import training_sets as experiment

    nl2cmd = None if pool is None else _pool(pool, [experiment.GIVEN])[1]
    return run(
        out,
        lambda setting: experiment.run_training_sets(
            setting, count=count, scoring=scoring.scoring(), nl2cmd=nl2cmd
        ),
    )


@shared.command(app, "shioenv experiment policies --out ./experiments --count 500")
def policies(
    out: Out,
    *,
    count: Annotated[int, typer.Option(min=1, metavar="N", help="Inputs of each policy.")] = 2000,
    scoring: PaperScoring,
    run: Run,
) -> shared.Printout:
    """Irreducibility of what GCS writes by the policies paper, people and mixed."""
    from shioenv_paper import policies as experiment

    return run(
        out,
        lambda setting: experiment.run_policies(setting, count=count, scoring=scoring.scoring()),
    )


@shared.command(app, "shioenv experiment determinism --out ./experiments --count 500 --runs 3")
def determinism(
    out: Out,
    *,
    count: Annotated[int, typer.Option(min=1, metavar="N", help="Inputs.")] = 5000,
    runs: Annotated[
        int,
        typer.Option(
            min=2,
            metavar="N",
            help="How often each input runs, each time in other sandboxes, processes and "
            "orders. The fourth time processors are busy, the fifth is in another minute.",
        ),
    ] = 5,
    run: RunOften,
) -> shared.Printout:
    """Share of inputs that do the same in every run, byte for byte, and why other inputs do not."""
    from shioenv_paper import determinism as experiment

    return run(
        out, lambda setting: experiment.run_determinism(setting, count=count, number_of_passes=runs)
    )


@shared.command(app, "shioenv experiment rl --out ./experiments --episodes 5000 --seeds 3")
def rl(
    out: Out,
    *,
    episodes: Annotated[
        int, typer.Option(min=1, metavar="N", help="Executed inputs of each training.")
    ] = 5000,
    seeds: Annotated[
        int, typer.Option(min=1, metavar="N", help="Trainings of each kind, from --seed up.")
    ] = 3,
    evaluated: Annotated[
        int, typer.Option(min=1, metavar="N", help="Episodes that each policy is judged by.")
    ] = 300,
    run: RunOften,
) -> shared.Printout:
    """What random and learned policies write, constrained by the grammars or not.

    Networks are trained by MaskablePPO (extra `rl`). An experiment that was stopped begins anew.
    """
    from shioenv_paper import learners as experiment

    return run(
        out,
        lambda setting: experiment.run_learners(
            setting, episodes=episodes, seeds=seeds, evaluated=evaluated
        ),
    )


@shared.command(
    app, "shioenv experiment regimes --out ./experiments --suite public.suite --memory-sizes 500"
)
def regimes(
    out: Out,
    *,
    suite: Annotated[
        list[Path],
        typer.Option(metavar="SUITE", help="A recorded suite to ask about; several may be given."),
    ],
    memory_sizes: Annotated[
        str, typer.Option(metavar="N,N", help="Records of each memory.")
    ] = "10000,30000",
    seeds: Annotated[
        int, typer.Option(min=1, metavar="N", help="Draws of each size, from --seed up.")
    ] = 1,
    pool: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=DIR",
            help="Draw the records of ucs, gcs (with scores), people or nl2cmd from this "
            "dataset. Without one, nl2cmd is left out and the others are generated.",
        ),
    ] = None,
    questions: Annotated[
        int,
        typer.Option(
            min=10,
            metavar="N",
            help="Records that are left out, and that each memory is asked about.",
        ),
    ] = 2000,
    seq2seq_size: Annotated[
        str | None,
        typer.Option(
            metavar="tiny|mini|small|base",
            help="Train a sequence model of this size of the same records, beside each memory.",
        ),
    ] = None,
    minutes: Annotated[
        float, typer.Option(min=0, metavar="MINUTES", help="Of training, for each sequence model.")
    ] = 9.0,
    steps: Annotated[
        int, typer.Option(min=1, metavar="N", help="Of training, for each sequence model.")
    ] = 20_000,
    device: Annotated[
        str,
        typer.Option(
            metavar="cpu|cuda|elsewhere",
            help="What sequence models are trained on. For elsewhere their examples are made, and "
            "answers that are there are judged (scripts/train_elsewhere.py).",
        ),
    ] = "cpu",
    scoring: PaperScoring,
    run: Run,
) -> shared.Printout:
    """How right the models of each of the paper's five regimes are, by number of records.

    The five are UCS, GCS, GCS with scores of at least 0.5, GCS with scores of at most 0.5, and
    NL2CMD. Two regimes of ours are added. One is GCS with at least half of the arguments
    necessary; the other is inputs drawn by what people use. Each regime gives a memory of equally
    many inputs, and with --seq2seq-size a sequence model.
    """
    from shioenv_paper import regimes as experiment

    pools = dict(_pool(text, experiment.POOLS) for text in pool or ())
    if not all(size.isdigit() and int(size) for size in memory_sizes.split(",")):
        raise UsageError(
            f"--memory-sizes takes numbers above 0, not {memory_sizes!r}",
            hint="--memory-sizes 10000,30000",
        )
    numbers = sorted({int(size) for size in memory_sizes.split(",")})
    training = None if seq2seq_size is None else _training(seq2seq_size, minutes, steps, device)
    return run(
        out,
        lambda setting: experiment.run_regimes(
            setting,
            training=training,
            suites=suite,
            pools=pools,
            sizes=numbers,
            seeds=seeds,
            questions=questions,
            scoring=scoring.scoring(),
        ),
    )


def _training(size: str, minutes: float, steps: int, device: str) -> RegimeTraining:
    from shioenv.errors import MissingExtraError
    from shioenv_paper.regimes import RegimeTraining

    try:
        from shioenv_model.training.sequence import SIZES, TrainingPlan
    except ImportError:
        raise MissingExtraError("training", "train", "torch", "transformers") from None
    if size not in SIZES:
        raise UsageError(f"no sequence model is called {size!r}", hint=", ".join(SIZES))
    # a short training needs dev losses, too
    every = max(1, min(500, steps // 4))
    tokens = 2048 if device == "cpu" else 32_768
    plan = TrainingPlan(size=size, steps=steps, every=every, batch_tokens=tokens, minutes=minutes)
    return RegimeTraining(plan, minutes, device)


def _pool(text: str, names: Sequence[str]) -> tuple[str, Path]:
    name, sign, directory = text.partition("=")
    if name not in names or not sign or not directory:
        raise UsageError(
            f"--pool takes NAME=DIR, not {text!r}",
            hint=f"{names[0]}=DIR; names: {', '.join(names)}",
        )
    return name, Path(directory)


def _run(
    out: Path,
    experiment: Experiment,
    *,
    seed: int,
    workers: int | None,
    limits: Limits,
    system: str | None,
) -> shared.Printout:
    from shioenv.execution.local import LocalExecutor
    from shioenv.recording.execution_cache import CACHE_BYTES
    from shioenv_paper.experiment_output import shown_command
    from shioenv_paper.setting import ExperimentSetting

    stopped = f"stopped; what is finished is kept in {out}, the same command goes on"
    with Meter(stopped=stopped) as meter:
        setting = ExperimentSetting(
            out=out,
            seed=seed,
            system_name=system,
            limits=limits,
            executor=LocalExecutor(workers, cache_bytes=CACHE_BYTES),
            command=shown_command(),
            report=meter.tell,
        )
        results = experiment(setting)
    document = {"directory": str(results.directory), **results.document}
    return shared.Printout(document, _lines(results), indent=2)


def _lines(results: Results) -> Iterator[str]:
    """Yield the tables, then a line with the results' directory, files and run time in seconds."""
    for table in results.tables:
        yield table.markdown
    seconds = results.document["wall_seconds"]
    yield f"{results.directory}: {', '.join(results.document['files'])} ({seconds} s)"


@shared.command(app, "shioenv experiment figures --out ./figures --seed 0")
def figures(
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Where the pictures go; made where it is missing.")
    ],
    seed: shared.Seed = 0,
    system: shared.SystemName = None,
) -> shared.Printout:
    """Draw the paper's figures of its method from live data, for light and for dark pages.

    There are three pictures, as SVG: the life of an input, one option's expansion, and the files
    that a session finds.
    """
    from shioenv_paper.explanatory_figures import draw

    paths = draw(out, seed=seed, system=system)
    return shared.Printout({"files": list(map(str, paths))}, map(str, paths))
