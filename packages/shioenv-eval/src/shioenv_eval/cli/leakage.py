"""`shioenv dataset leakage`: how much of a test set a training set gives away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shioenv.cli import printing, shared
from shioenv.cli.progress import counting
from shioenv.text import share

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from shioenv_eval.leakage import Leakage

app = typer.Typer()

SHOWN = 10
"""Leaks printed at most; `--json` has all of them."""


@shared.command(app, "shioenv dataset leakage ./train ./test --threshold 0.9")
def leakage(
    train: Annotated[
        Path,
        typer.Argument(
            metavar="TRAIN",
            help="A dataset, or a file with an input (or a record) on each line (- is stdin).",
        ),
    ],
    test: Annotated[
        Path,
        typer.Argument(
            metavar="TEST",
            help="The test set: a dataset, or a file with an input (or a record) on each line.",
        ),
    ],
    threshold: Annotated[
        float,
        typer.Option(
            min=0.01, max=1, metavar="X", help="Similarity from which an input is a near duplicate."
        ),
    ] = 0.9,
) -> shared.Printout:
    """Tell how many inputs of a test set a training set gives away.

    There are four levels. exact: the same line in the same start directory, where both are known.
    reordered: the same arguments in another order, or elsewhere. near: the same commands and a
    similar line. form: the same but for numbers and names. Each test input counts once, for the
    strongest level. The exit status is 1 where an input is exact, else 0.
    """
    from shioenv.errors import UsageError
    from shioenv_eval.leakage import leakage as find_leakage

    if str(train) == str(test) == "-":
        raise UsageError("both sets cannot be standard input", hint="name a file for one of them")
    train, test = shared.given(train), shared.given(test)
    with counting("training inputs") as report:
        leaking = find_leakage(train, test, threshold=threshold, report=report)
    status = 0 if leaking.ok else 1
    return shared.Printout(leaking.to_json(), _leaking(leaking), indent=2, status=status)


def _leaking(leaking: Leakage) -> Iterator[Text | Table]:
    from rich.text import Text

    from shioenv_eval.leakage import LeakLevel

    table = printing.table(("test inputs", "count", "share"), min_width=24)
    rows = {level.value: leaking.count(level) for level in LeakLevel}
    rows[f"near ({leaking.threshold:g} and above)"] = rows.pop("near")
    rows["not given away"] = leaking.test - len(leaking.leaks)
    rows["all"] = leaking.test
    for name, count in rows.items():
        table.add_row(name, f"{count:,}", share(count, leaking.test))
    yield table
    known = share(leaking.known_commands, leaking.test)
    yield Text(
        f"{leaking.train:,} training inputs; the commands of {known} of the test inputs occur "
        "among them"
    )
    order = list(LeakLevel)
    worst = sorted(leaking.leaks, key=lambda leak: (order.index(leak.level), -leak.similarity))
    for leak in worst[:SHOWN]:
        yield Text(
            f"{leak.level.value:9} {leak.similarity:.2f}  {printing.printable(leak.test_input)}"
        )
        if leak.level is not LeakLevel.EXACT:
            yield Text(f"{'':16}{printing.printable(leak.train_input)}", style="dim")
    if len(worst) > SHOWN:
        yield Text(f"and {len(worst) - SHOWN} more (--json)", style="dim")
