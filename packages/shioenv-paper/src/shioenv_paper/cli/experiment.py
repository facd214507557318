"""`shioenv experiment`: the paper's experiments and more, with data, pictures and tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from shioenv.cli import shared
from shioenv.cli.progress import Meter
from shioenv.errors import UsageError
from shioenv.irreducibility.scoring import THE_PAPERS, Scoring

if TYPE_CHECKING:
    from shioenv_paper.experiment_output import Results
    from shioenv_paper.regimes import RegimeTraining
    from shioenv_paper.setting import ExperimentSetting

app = typer.Typer(
    name="experiment",
    no_args_is_help=True,
    help="Run the paper's experiments and others.",
)

Experiment: TypeAlias = "Callable[[ExperimentSetting], Results]"

Out = Annotated[
    Path,
    typer.Option(
        metavar="DIR",
        help="Directory for results. The same command resumes.",
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(min=1, metavar="W", help="Workers (default: one per processor)."),
]
ExactCount = Annotated[
    int,
    typer.Option(
        min=1,
        metavar="N",
        help="Inputs per length from 8 arguments up; shorter lengths have four times as many.",
    ),
]
Longest = Annotated[
    int,
    typer.Option(
        "--max-arguments", min=2, max=12, metavar="N", help="Maximum number of arguments."
    ),
]
Replays = Annotated[
    int,
    typer.Option(
        "--estimates",
        min=1,
        metavar="N",
        help="Estimates per input, estimator and budget.",
    ),
]


WithoutRules = Annotated[
    bool,
    typer.Option(
        "--without-rules",
        help="Do not execute inputs again to score them by the reference implementation's rules.",
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
    engine: shared.EngineName = "local"
    address: shared.Address = None
    without_shell_state: shared.WithoutShellState = False
    system: shared.SystemName = None
    sandbox: shared.SandboxName = "namespaces"
    revert: shared.Revert = "input"

    def __call__(self, out: Path, experiment: Experiment) -> shared.Printout:
        """Run the experiment, and return its printout."""
        with self.setting(out) as setting:
            results = experiment(setting)
        document = {"directory": str(results.directory), **results.document}
        return shared.Printout(document, experiment_lines(results), indent=2)

    @contextmanager
    def setting(self, out: Path) -> Iterator[ExperimentSetting]:
        """Provide the setting of experiments, which reports their progress."""
        from shioenv.execution.local import executor_named
        from shioenv.recording.execution_cache import CACHE_BYTES
        from shioenv_paper.experiment_output import format_command
        from shioenv_paper.setting import ExperimentSetting

        limits = shared.RecordLimits(None, self.without_shell_state, self.sandbox, self.revert)
        stopped = f"stopped; finished parts are saved in {out}: run the same command to resume"
        with Meter(stopped=stopped) as meter:
            yield ExperimentSetting(
                out=out,
                seed=self.seed,
                system_name=self.system,
                limits=limits.limits(),
                executor=executor_named(
                    self.engine, self.workers, self.address, cache_bytes=CACHE_BYTES
                ),
                command=format_command(),
                report=meter.update,
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
    """Measure the error of estimated scores.

    The table has the errors by budget, number of arguments and estimator. All sub-inputs are
    executed.
    """
    from shioenv_paper import sampling_efficiency as experiment

    return run(out, lambda setting: experiment.run_sampling_efficiency(setting, **asdict(exact)))


@shared.command(
    app, "shioenv experiment estimators --out ./experiments --count 5 --max-arguments 9"
)
def estimators(out: Out, exact: ExactOptions, run: Run) -> shared.Printout:
    """Compare the errors of all estimators at equal cost.

    Executions of `sampling-efficiency` in the same directory are reused.
    """
    from shioenv_paper import estimator_errors as experiment

    return run(out, lambda setting: experiment.run_estimator_errors(setting, **asdict(exact)))


@shared.command(app, "shioenv experiment irreducibility-by-length --out ./experiments --count 2000")
def irreducibility_by_length(
    out: Out,
    *,
    count: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Inputs per sampler (default: 50000).",
        ),
    ] = None,
    paper_size: Annotated[
        bool, typer.Option("--paper-size", help="250,000 inputs per sampler, as in the paper.")
    ] = False,
    without_rules: WithoutRules = False,
    scoring: PaperScoring,
    run: Run,
) -> shared.Printout:
    """Measure irreducibility by number of arguments.

    The inputs are single commands of the samplers gcs, ucs and ucs-universal, with 1 to 12
    arguments equally often.
    """
    from shioenv_paper import by_length as experiment

    if paper_size and count is not None:
        raise UsageError("--paper-size and --count exclude each other", hint="use only one of them")
    size = experiment.PAPER_COUNT if paper_size else count or experiment.COUNT
    return run(
        out,
        lambda setting: experiment.run_by_length(
            setting, count=size, scoring=scoring.scoring(), rules=not without_rules
        ),
    )


@shared.command(app, "shioenv experiment training-sets --out ./experiments --count 2000")
def training_sets(
    out: Out,
    *,
    count: Annotated[
        int, typer.Option(min=1, metavar="N", help="Scored inputs of UCS, and of GCS.")
    ] = 50000,
    pool: Annotated[
        str | None,
        typer.Option(metavar="NAME=DIR", help="Dataset for nl2cmd, written by people."),
    ] = None,
    without_rules: WithoutRules = False,
    scoring: PaperScoring,
    run: Run,
) -> shared.Printout:
    """Compare the scores of the paper's four training sets.

    Means and standard deviations are reported. NL2CMD has commands written by people: use `shioenv
    suite adapt` to adapt them to the system, and `shioenv dataset import` to score them.
    """
    from shioenv_paper import training_sets as experiment

    nl2cmd = None if pool is None else _pool(pool, [experiment.GIVEN])[1]
    return run(
        out,
        lambda setting: experiment.run_training_sets(
            setting,
            count=count,
            scoring=scoring.scoring(),
            nl2cmd=nl2cmd,
            rules=not without_rules,
        ),
    )


@shared.command(app, "shioenv experiment policies --out ./experiments --count 500")
def policies(
    out: Out,
    *,
    count: Annotated[int, typer.Option(min=1, metavar="N", help="Inputs per policy.")] = 2000,
    scoring: PaperScoring,
    run: Run,
) -> shared.Printout:
    """Compare scores of inputs by sampling policy: paper, people, mixed."""
    from shioenv_paper import policies as experiment

    return run(
        out,
        lambda setting: experiment.run_policies(setting, count=count, scoring=scoring.scoring()),
    )


@shared.command(app, "shioenv experiment steps --out ./experiments --count 50")
def steps(
    out: Out,
    *,
    count: Annotated[int, typer.Option(min=1, metavar="N", help="Inputs per step.")] = 300,
    published: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Inputs of the reference implementation, one a line."),
    ] = None,
    scoring: PaperScoring,
    run: Run,
) -> shared.Printout:
    """Change our sampling and score to the paper's, one setting at a time.

    The inputs have 9 to 11 arguments.
    """
    from shioenv_paper import steps as experiment

    return run(
        out,
        lambda setting: experiment.run_steps(
            setting, count=count, inputs=published, scoring=scoring.scoring()
        ),
    )


@shared.command(app, "shioenv experiment determinism --out ./experiments --count 500 --runs 3")
def determinism(
    out: Out,
    *,
    count: Annotated[int, typer.Option(min=1, metavar="N", help="Number of inputs.")] = 5000,
    runs: Annotated[
        int,
        typer.Option(
            min=2,
            metavar="N",
            help="Runs of each input, in different sandboxes, processes and orders; the fourth "
            "on busy processors, the fifth a minute later.",
        ),
    ] = 5,
    run: RunOften,
) -> shared.Printout:
    """Measure the share of inputs with equal effects in all runs."""
    from shioenv_paper import determinism as experiment

    return run(
        out, lambda setting: experiment.run_determinism(setting, count=count, number_of_passes=runs)
    )


@shared.command(app, "shioenv experiment rl --out ./experiments --episodes 5000 --seeds 3")
def rl(
    out: Out,
    *,
    episodes: Annotated[
        int, typer.Option(min=1, metavar="N", help="Executed inputs per training.")
    ] = 5000,
    seeds: Annotated[
        int,
        typer.Option(min=1, metavar="N", help="Trainings per kind; seeds count up from --seed."),
    ] = 3,
    evaluated: Annotated[
        int, typer.Option(min=1, metavar="N", help="Episodes for evaluating each policy.")
    ] = 300,
    run: RunOften,
) -> shared.Printout:
    """Compare random and learned policies, with and without grammars.

    Networks are trained by MaskablePPO (extra `rl`). An interrupted experiment starts again.
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
        typer.Option(metavar="SUITE", help="A recorded suite for evaluation. Repeatable."),
    ],
    memory_sizes: Annotated[
        str, typer.Option(metavar="N,N", help="Sizes of the memories, in records.")
    ] = "10000,30000",
    seeds: Annotated[
        int, typer.Option(min=1, metavar="N", help="Samples per size; seeds count up from --seed.")
    ] = 1,
    pool: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=DIR",
            help="Dataset for ucs, gcs (scored), people or nl2cmd. By default, nl2cmd is omitted "
            "and the others are generated.",
        ),
    ] = None,
    questions: Annotated[
        int,
        typer.Option(
            min=10,
            metavar="N",
            help="Number of held-out records per memory.",
        ),
    ] = 2000,
    seq2seq_size: Annotated[
        str | None,
        typer.Option(
            metavar="tiny|mini|small|base",
            autocompletion=shared.completing("tiny", "mini", "small", "base"),
            help="Also train a sequence model of this size on the same records.",
        ),
    ] = None,
    minutes: Annotated[
        float, typer.Option(min=0, metavar="MINUTES", help="Training time of each sequence model.")
    ] = 9.0,
    steps: Annotated[
        int, typer.Option(min=1, metavar="N", help="Training steps of each sequence model.")
    ] = 20_000,
    device: Annotated[
        str,
        typer.Option(
            metavar="cpu|cuda",
            autocompletion=shared.completing("cpu", "cuda"),
            help="Device for training.",
        ),
    ] = "cpu",
    scoring: PaperScoring,
    run: Run,
) -> shared.Printout:
    """Compare the accuracy of models trained on the paper's five regimes.

    The five are UCS, GCS, GCS with scores of at least 0.5, GCS with scores of at most 0.5, and
    NL2CMD. We add GCS inputs with at least half of their arguments necessary, and inputs of the
    policy `people`. Each regime trains a memory of the same size, and with --seq2seq-size a
    sequence model.
    """
    from shioenv_paper import regimes as experiment

    pools = dict(_pool(text, experiment.POOLS) for text in pool or ())
    if not all(size.isdigit() and int(size) for size in memory_sizes.split(",")):
        raise UsageError(
            f"--memory-sizes {memory_sizes!r}: expected numbers above 0, separated by commas",
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


@shared.command(
    app, "shioenv experiment networks --out ./experiments --suite public-test --records 30000"
)
def networks(
    out: Out,
    *,
    suite: Annotated[
        list[str],
        typer.Option(metavar="SUITE", help="A suite for evaluation: file or name. Repeatable."),
    ],
    records: Annotated[
        int, typer.Option(min=1, metavar="N", help="Scored records of each regime.")
    ] = 30_000,
    pool: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=DIR",
            help="Scored dataset for ucs, gcs or nl2cmd. By default, nl2cmd is omitted and the "
            "others are generated.",
        ),
    ] = None,
    results: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Evaluate this results.json of the other machine."),
    ] = None,
    scoring: PaperScoring,
    run: Run,
) -> shared.Printout:
    """Pack training data for a machine with a GPU, or evaluate its results.

    Without --results, each regime's dataset is executed, scored and packed in DIR/pack/carried.
    Carry that directory to a machine with PyTorch, and run it there as the output shows.
    """
    from shioenv_eval.suite import read_suite
    from shioenv_paper import network_pack, network_results

    suites = [read_suite(each) for each in suite]
    carried = out / "pack" / "carried"
    if results is not None:
        return run(
            out,
            lambda setting: network_results.run_networks(
                setting, suites=suites, carried=carried, results=results
            ),
        )
    pools = dict(_pool(text, network_pack.POOLS) for text in pool or ())
    with run.setting(out) as setting:
        found = network_pack.pack_networks(
            setting,
            network_pack.scored_pools(setting, pools, records, scoring.scoring()),
            suites,
            records,
            carried,
        )
    lines = [
        *(
            f"{name}: {count['records']:,} records, {count['examples']:,} examples"
            for name, count in found["counts"].items()
        ),
        f"{carried}: {found['bytes'] / 2**20:.1f} MiB, {found['questions']} questions; there: "
        f"python3 {carried.name} OUT --seconds {found['plan']['seconds']}",
    ]
    return shared.Printout({"directory": str(carried), **found}, lines, indent=2)


def _training(size: str, minutes: float, steps: int, device: str) -> RegimeTraining:
    from shioenv.errors import MissingExtraError
    from shioenv_paper.regimes import RegimeTraining

    try:
        from shioenv_model.training.sequence import SIZES, TrainingPlan
    except ImportError:
        raise MissingExtraError("training", "train", "torch", "transformers") from None
    if size not in SIZES:
        raise UsageError(
            f"--seq2seq-size {size!r}: unknown size", hint=f"choose from {', '.join(SIZES)}"
        )
    # a short training also measures several dev losses
    every = max(1, min(500, steps // 4))
    tokens = 2048 if device == "cpu" else 32_768
    plan = TrainingPlan(size=size, steps=steps, every=every, batch_tokens=tokens, minutes=minutes)
    return RegimeTraining(plan, minutes, device)


def _pool(text: str, names: Sequence[str]) -> tuple[str, Path]:
    name, sign, directory = text.partition("=")
    if name not in names or not sign or not directory:
        raise UsageError(
            f"--pool {text!r}: expected NAME=DIR",
            hint=f"{names[0]}=DIR; names: {', '.join(names)}",
        )
    return name, Path(directory)


def experiment_lines(results: Results) -> Iterator[str]:
    """Yield the tables, then a line with the results' directory, files and run time in seconds."""
    for table in results.tables:
        yield table.markdown
    seconds = results.document["wall_seconds"]
    yield f"{results.directory}: {', '.join(results.document['files'])} ({seconds} s)"


@shared.command(app, "shioenv experiment figures --out ./figures --seed 0")
def figures(
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Directory for the figures, created if missing.")
    ],
    seed: shared.Seed = 0,
    system: shared.SystemName = None,
) -> shared.Printout:
    """Draw the paper's method figures from live data.

    Three SVG figures, for light and dark pages, show the life of an input, an option's
    expansion, and the files that a session finds.
    """
    from shioenv_paper.explanatory_figures import draw

    paths = draw(out, seed=seed, system=system)
    return shared.Printout({"files": list(map(str, paths))}, map(str, paths))
