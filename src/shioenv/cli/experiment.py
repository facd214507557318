"""`shioenv experiment`: the paper's experiments and more, with data, pictures and tables."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shioenv.cli import shared
from shioenv.cli.progress import counting
from shioenv.errors import UsageError

if TYPE_CHECKING:
    from shioenv.experiments.results import Results
    from shioenv.experiments.setting import Setting

app = typer.Typer(
    no_args_is_help=True,
    help="Run the paper's sampling experiments, and three more, on this machine.",
)

Out = Annotated[
    Path,
    typer.Option(
        "--out",
        metavar="DIR",
        help="Results go to a directory in it, named after the experiment; the same command goes "
        "on where an earlier one was stopped.",
    ),
]
Seed = Annotated[int, typer.Option(help="The same seed gives the same inputs.")]
Workers = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="W",
        help="Processes (default: one per processor).",
        show_default=False,
    ),
]
ExactCount = Annotated[
    int,
    typer.Option(
        min=1,
        metavar="N",
        help="Inputs of each length from 8 arguments on; of shorter ones four times as many.",
    ),
]
Longest = Annotated[int, typer.Option(min=2, max=12, metavar="N", help="Arguments at most.")]
Replays = Annotated[
    int,
    typer.Option(
        min=1, metavar="N", help="Estimates of each input by each estimator at each budget."
    ),
]
Budget = Annotated[
    int, typer.Option(min=1, metavar="M", help="Sub-inputs executed at most, per input.")
]


@shared.command(
    app,
    "shioenv experiment sampling-efficiency --out ./experiments --count 5 --longest 8",
    name="sampling-efficiency",
)
def sampling_efficiency(
    out: Out,
    count: ExactCount = 60,
    longest: Longest = 12,
    replays: Replays = 20,
    seed: Seed = 0,
    workers: Workers = None,
    system: shared.SystemName = None,
    json: shared.Json = False,
) -> None:
    """How far estimates are from exact scores, by budget, number of arguments and estimator.

    Every sub-input of every input is executed: 4,094 of an input of 12 arguments.
    """
    from shioenv.experiments import sampling_efficiency as experiment

    _run(
        lambda setting: experiment.run(setting, count=count, longest=longest, replays=replays),
        out,
        seed,
        workers,
        system,
        json=json,
    )


@shared.command(
    app,
    "shioenv experiment estimators --out ./experiments --count 5 --longest 9",
    name="estimators",
)
def estimators(
    out: Out,
    count: ExactCount = 60,
    longest: Longest = 12,
    replays: Replays = 20,
    seed: Seed = 0,
    workers: Workers = None,
    system: shared.SystemName = None,
    json: shared.Json = False,
) -> None:
    """Error against executions spent, for every estimator: what to choose.

    What `sampling-efficiency` executed in the same directory is not executed again.
    """
    from shioenv.experiments import estimators as experiment

    _run(
        lambda setting: experiment.run(setting, count=count, longest=longest, replays=replays),
        out,
        seed,
        workers,
        system,
        json=json,
    )


@shared.command(
    app,
    "shioenv experiment irreducibility-by-length --out ./experiments --count 2000",
    name="irreducibility-by-length",
)
def irreducibility_by_length(
    out: Out,
    count: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Inputs of each sampler.", show_default="50000"),
    ] = None,
    paper_size: Annotated[
        bool, typer.Option("--paper-size", help="250,000 of each, as in the paper.")
    ] = False,
    budget: Budget = 64,
    estimator: shared.EstimatorName = "paper",
    seed: Seed = 0,
    workers: Workers = None,
    system: shared.SystemName = None,
    json: shared.Json = False,
) -> None:
    """Irreducibility by number of arguments, of inputs written by GCS, UCS and UCS universal.

    Single commands, every number of arguments from 1 to 12 equally often.
    """
    from shioenv.experiments import by_length as experiment
    from shioenv.irreducibility.scoring import Scoring

    if paper_size and count is not None:
        raise UsageError("--paper-size is a count by itself", hint="leave --count out")
    size = experiment.PAPER_COUNT if paper_size else count or experiment.COUNT
    _run(
        lambda setting: experiment.run(
            setting, count=size, scoring=Scoring(budget=budget, estimator=estimator)
        ),
        out,
        seed,
        workers,
        system,
        json=json,
    )


@shared.command(
    app,
    "shioenv experiment training-sets --out ./experiments --count 2000",
    name="training-sets",
)
def training_sets(
    out: Out,
    count: Annotated[
        int, typer.Option(min=1, metavar="N", help="Inputs with a score, of UCS and of GCS.")
    ] = 50000,
    budget: Budget = 64,
    estimator: shared.EstimatorName = "paper",
    seed: Seed = 0,
    workers: Workers = None,
    system: shared.SystemName = None,
    json: shared.Json = False,
) -> None:
    """Mean and standard deviation of the scores of the paper's four training sets."""
    from shioenv.experiments import training_sets as experiment
    from shioenv.irreducibility.scoring import Scoring

    _run(
        lambda setting: experiment.run(
            setting, count=count, scoring=Scoring(budget=budget, estimator=estimator)
        ),
        out,
        seed,
        workers,
        system,
        json=json,
    )


@shared.command(
    app,
    "shioenv experiment determinism --out ./experiments --count 500 --passes 3",
    name="determinism",
)
def determinism(
    out: Out,
    count: Annotated[int, typer.Option(min=1, metavar="N", help="Inputs.")] = 5000,
    passes: Annotated[
        int,
        typer.Option(
            min=2,
            metavar="N",
            help="How often they run: in other sandboxes, processes and orders, on busy "
            "processors (the fourth time), in another minute (the fifth).",
        ),
    ] = 5,
    seed: Seed = 0,
    system: shared.SystemName = None,
    json: shared.Json = False,
) -> None:
    """Share of inputs that do the same, byte for byte, however often; and why others do not."""
    from shioenv.experiments import determinism as experiment

    _run(
        lambda setting: experiment.run(setting, count=count, number_of_passes=passes),
        out,
        seed,
        None,
        system,
        json=json,
    )


def _run(
    experiment: Callable[[Setting], Results],
    out: Path,
    seed: int,
    workers: int | None,
    system: str | None,
    *,
    json: bool,
) -> None:
    from shioenv.execution.local import LocalExecutor
    from shioenv.experiments.results import shown_command
    from shioenv.experiments.setting import Setting
    from shioenv.recording.cache import CACHE_BYTES

    try:
        with _Meter() as meter:
            setting = Setting(
                out=out,
                seed=seed,
                system_name=system,
                executor=LocalExecutor(workers, cache_bytes=CACHE_BYTES),
                command=shown_command(),
                report=meter.report,
            )
            results = experiment(setting)
    except KeyboardInterrupt:
        shared.note(f"stopped; what is finished is kept in {out}, the same command goes on")
        raise
    _print(results, json=json)


def _print(results: Results, *, json: bool) -> None:
    """The tables and where everything lies; as JSON what `run.json` holds."""
    if json:
        shared.print_json({"directory": str(results.directory), **results.document}, indent=2)
        return
    for table in results.tables:
        print(table.markdown)
    seconds = results.document["wall_seconds"]
    print(f"{results.directory}: {', '.join(results.document['files'])} ({seconds} s)")


class _Meter:
    """Progress on standard error, of one thing after the other."""

    def __init__(self) -> None:
        self._shown = ExitStack()
        self._what = ""
        self._tell: Callable[[int, int], None]

    def __enter__(self) -> _Meter:
        return self

    def __exit__(self, *exception: object) -> None:
        self._shown.close()

    def report(self, what: str, done: int, total: int) -> None:
        """Shows how far it has come."""
        if what != self._what:
            self._shown.close()
            self._what, self._tell = what, self._shown.enter_context(counting(what))
        self._tell(done, total)
