"""`shioenv suite`: inputs with recorded ground truth, for evaluating predictors."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shioenv.cli import printing, shared, stdin
from shioenv.cli.progress import Meter, counting
from shioenv.text import share

if TYPE_CHECKING:
    from shioenv_eval.suite import SuiteCase

app = typer.Typer(
    name="suite",
    no_args_is_help=True,
    help="Record and inspect suites: inputs with ground truth, for evaluation.",
)

SHOWN = 20
"""Maximum number of printed utilities of a suite, and of output lines and changes of a case."""

File = Annotated[Path, typer.Argument(metavar="SUITE", help="File of the suite.")]


@shared.command(app, "shioenv suite record public-dev --out dev.suite")
def record(
    inputs: Annotated[
        Path,
        typer.Argument(
            metavar="INPUTS",
            autocompletion=shared.completing("public", "public-dev", "shioenv_eval.suite:FROZEN"),
            help="A file with an input on each line, as text or JSON (- is stdin), or the included "
            "public, public-dev, public-test, sessions-200 or conformance.",
        ),
    ],
    *,
    out: Annotated[Path, typer.Option(metavar="SUITE", help="File to write.")],
    runs: Annotated[int, typer.Option(min=2, metavar="N", help="Runs of each input.")] = 5,
    workers: shared.Workers = None,
    limits: shared.LimitsOptions,
    system: shared.SystemName = None,
) -> shared.Printout:
    """Record a suite: run each input several times.

    The last run is in another sandbox, at least 61 seconds after the others, to find effects that
    vary. A JSON line has `input`, and optionally `id`, `cwd`, `kind`, `steps` and `history`.
    `steps` is single or multi; `history` has the earlier inputs of the same shell. Other fields are
    kept. The same command resumes an interrupted one.
    """
    from shioenv.files.durable import refuse_unwritable
    from shioenv_eval.suite import write_suite
    from shioenv_eval.suite_recorder import recorded_suite

    inputs = stdin.given(inputs)
    refuse_unwritable(out)
    stopped = "stopped; finished runs are saved: run the same command to resume"
    with Meter("runs", lasting=True, stopped=stopped) as meter:

        def waits(seconds: float) -> None:
            meter.print_note(
                f"waiting {seconds:.0f} s, so that the last runs have another time of day"
            )

        with recorded_suite(
            inputs,
            system=system,
            limits=limits.limits(),
            runs=runs,
            workers=workers,
            report=partial(meter.update, "runs"),
            waits=waits,
        ) as suite:
            write_suite(suite, out)
    facts = suite.stats()
    varying = share(facts["volatile"], facts["inputs"])
    recorded = printing.counted(facts["inputs"], "input")
    line = f"{out}: {recorded}, {facts['volatile']} of them volatile ({varying})"
    return shared.Printout(facts, [line], indent=2)


@shared.command(app, "shioenv suite adapt commands.txt --out adapted.jsonl --count 10000")
def adapt(
    inputs: Annotated[
        Path,
        typer.Argument(
            metavar="INPUTS",
            help="A file with an input on each line, as text or JSON (- is stdin).",
        ),
    ],
    *,
    out: Annotated[Path, typer.Option(metavar="FILE", help="File to write, as JSON Lines.")],
    count: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Number of inputs (default: one per line). A line with placeholders can give "
            "several.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed for the choice of names.")] = 0,
    system: shared.SystemName = None,
) -> shared.Printout:
    """Adapt inputs to the files, users and hosts of a system.

    A file that the system lacks is replaced by an existing file of the same type. The same holds
    for directories, users, groups, hosts, interfaces and placeholders (File, <file name>, $FILE).
    Equal words of an input are replaced equally; sudo is removed. Inputs that are dangerous,
    endless, or have unclear placeholders are written to FILE.aside, with the reason. The result can
    be recorded as a suite, or imported as a dataset.
    """
    from shioenv.dataset.questions import read_questions
    from shioenv.system.store import find_system
    from shioenv_eval.adapting.adapt import adapt_inputs as adapt_questions
    from shioenv_eval.adapting.adapt import write_adapted

    questions = read_questions(stdin.given(inputs))
    with counting("inputs") as report:
        adapted = adapt_questions(
            questions, find_system(system), count=count, seed=seed, report=report
        )
    beside = write_adapted(adapted, out)
    facts = {
        "inputs": len(adapted.questions),
        "of": len(questions),
        "set_aside": len(adapted.aside),
        "reasons": adapted.reasons,
    }
    lines = [f"{out}: {printing.counted(len(adapted.questions), 'input')} of {facts['of']:,}"]
    if adapted.aside:
        lines.append(f"{beside}: {len(adapted.aside):,} set aside")
    lines += [f"{number:7,} {reason}" for reason, number in adapted.reasons.items()]
    return shared.Printout(facts, lines, indent=2)


@shared.command(app, "shioenv suite stats dev.suite")
def stats(file: File) -> shared.Printout:
    """Print statistics: steps, kinds, utilities, volatility."""
    from shioenv_eval.suite import read_suite

    facts = read_suite(file).stats()
    used = list(facts["utilities"].items())
    shown = {
        **{name.replace("_", " "): value for name, value in facts.items() if name != "utilities"},
        "steps": ", ".join(f"{count} {name}" for name, count in facts["steps"].items()),
        "kinds": ", ".join(f"{count} {name or '(none)'}" for name, count in facts["kinds"].items()),
        "volatile channels": ", ".join(
            f"{count} {name}" for name, count in facts["volatile_channels"].items()
        )
        or "none",
        "utilities": ", ".join(f"{name} {count}" for name, count in used[:SHOWN])
        + (f" and {len(used) - SHOWN} more" if used[SHOWN:] else ""),
    }
    return shared.Printout(facts, printing.rows(shown, 18), indent=2)


@shared.command(app, "shioenv suite show dev.suite --volatile")
def show(
    file: File,
    count: Annotated[int, typer.Option(min=1, metavar="N", help="Maximum number of cases.")] = 10,
    case: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="Only the case with this id.")
    ] = None,
    volatile: Annotated[
        bool, typer.Option("--volatile", help="Only cases with varying effects.")
    ] = False,
) -> shared.Printout:
    """Show inputs of a suite with their effects."""
    from shioenv_eval.suite import read_suite

    cases = [
        each
        for each in read_suite(file).cases
        if (case is None or each.question.id == case) and (not volatile or each.mask.volatile)
    ][:count]
    lines = (line for each in cases for line in _shown(each))
    return shared.Printout([each.to_json() for each in cases], lines, indent=2)


@shared.command(app, "shioenv suite check dev.suite")
def check(file: File, workers: shared.Workers = None) -> shared.Printout:
    """Check a suite, and measure the sandbox's own accuracy on it.

    Each input is run once more on the system. Differences other than volatile ones are printed. The
    exit status is 1 if the accuracy is below 0.99.
    """
    from shioenv_eval.ceiling import AIM, ceiling
    from shioenv_eval.suite import read_suite

    suite = read_suite(file)
    with counting("inputs") as report:
        found = ceiling(suite, workers=workers, report=report)
    lines = [f"{miss.id}: {printing.printable(miss.input)}: {miss.why}" for miss in found.misses]
    verdict = "passed" if found.ok else f"failed, the minimum is {AIM}"
    lines.append(f"{found.right} of {found.inputs} right, apart from volatile parts: {verdict}")
    return shared.Printout(found.to_json(), lines, indent=2, status=0 if found.ok else 1)


def _shown(case: SuiteCase) -> Iterator[str]:
    from shioenv.domain.readable import changes

    question, gold = case.question, case.gold
    varies = f", varies: {', '.join(case.mask.channels)}" if case.mask.volatile else ""
    yield f"{question.id} ({question.steps}{varies})"
    yield from (f"  (before) {printing.printable(text)}" for text in question.history)
    yield f"  $ {printing.printable(question.input)}"
    yield from (f"  {printing.printable(line)}" for line in gold[0].text.splitlines()[:SHOWN])
    yield f"  exit code {gold[0].exit_code}"
    operations = gold[0].patch.operations[:SHOWN]
    yield from (f"  {change}" for change in changes(operations, question.cwd or ""))
    yield ""
