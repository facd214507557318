"""`shioenv evaluate`: evaluate predictors on a suite."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shioenv.cli import printing, shared
from shioenv.cli.progress import Meter
from shioenv.text import fixed

if TYPE_CHECKING:
    from rich.table import Table

    from shioenv_eval.evaluate import Evaluation

app = typer.Typer(name="evaluate", help="Judge predictors by what a suite's inputs really do.")


AnswerSeconds = Annotated[
    float, typer.Option(min=0.1, metavar="SECONDS", help="How long an answer may take.")
]


@shared.group(app, "shioenv evaluate --predictor trivial --suite dev.suite --out ./evaluation")
def evaluate(
    predictor: Annotated[
        list[str] | None,
        typer.Option(
            "--predictor",
            metavar="NAME[:ARGS]",
            autocompletion=shared.completing("shioenv.domain.predictor:predictor_names"),
            help="What is judged: sandbox, trivial, errors, recording:FILE, command:PROG, "
            "default, memory:DATASET, bashkit, just-bash, cowrie, llm:MODEL, or one of "
            "another package. The option may be given again.",
        ),
    ] = None,
    suite: Annotated[
        Path | None, typer.Option(metavar="SUITE", help="The suite that predictors are judged by.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Answers and results are kept in DIR. The same command goes on where an "
            "earlier one was stopped, and adds predictors.",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="W", help="Processes of each predictor (default: one per processor)."
        ),
    ] = None,
    timeout: AnswerSeconds = 30.0,
    start_timeout: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            metavar="SECONDS",
            help="How long a predictor may take to be ready (default: 900). A program has 120 "
            "of them to answer its first line.",
        ),
    ] = None,
) -> shared.Printout:
    """Ask predictors about every input of a suite, and tell how right they are.

    Each metric comes with a 95% interval, for single-step inputs, multi-step inputs and all. Pairs
    of predictors come with their differences. A predictor that dies, answers too late, or gives
    something else than an answer counts as wrong there. A predictor without any answer is not
    judged. The exit status is 1 where a predictor could not run here, or gave no answer.
    """
    from shioenv.errors import UsageError
    from shioenv_eval.evaluate import evaluate as evaluate_predictors

    if not predictor or suite is None:
        raise UsageError(
            "an evaluation needs a predictor and a suite",
            hint="shioenv evaluate --predictor sandbox --suite FILE",
        )
    stopped = "stopped" if out is None else f"stopped; answers are kept in {out}: run this again"
    with Meter(lasting=True, stopped=stopped) as meter:
        done = evaluate_predictors(
            suite,
            predictor,
            out,
            workers=workers,
            timeout=timeout,
            start_timeout=start_timeout,
            report=lambda name, *counts: meter.tell(f"answers of {name}", *counts),
            tell=meter.say,
        )
    for line in _unanswered(done):
        printing.note(line)
    document = done.document
    status = 1 if done.unable else 0
    return shared.Printout(document, _parts(done, document), indent=2, status=status)


def _parts(done: Evaluation, document: dict[str, Any]) -> Iterator[Table | str]:
    """Yield a table for each group of inputs, then each predictor's training data and costs."""
    from shioenv_eval.results import SHOWN

    for group in ("single", "multi", "all") if done.predictors else ():
        table = printing.table((group, *SHOWN.values(), "ms"), left=1)
        for name, facts in document["predictors"].items():
            values = [fixed(facts[group][metric][0]) for metric in SHOWN]
            label = f"{printing.printable(name)} ({facts['patch_level']})"
            table.add_row(label, *values, fixed(facts[group]["ms_p50"][0], 1))
        yield table
        yield ""
    for name, facts in document["predictors"].items():
        if "training" in facts:
            known, everything = facts["training"], facts["all"]
            yield (
                f"{name}: trained on the text of {known['text']:.1%} of the inputs, on the form of "
                f"{known['form']:.1%}; EM of the others {fixed(everything['em_new_text'][0])} and "
                f"{fixed(everything['em_new_form'][0])}"
            )
        if "tokens" in facts:
            asked, answered = facts["tokens"].values()
            price = "" if facts["cost"] is None else f", {facts['cost']:.4f} dollars"
            yield f"{name}: {asked:,} tokens of prompts and {answered:,} of replies{price}"


def _unanswered(done: Evaluation) -> Iterator[str]:
    """Yield a line for each predictor that lacks answers or could not run, with a reason."""
    from collections import Counter

    from shioenv_eval.results import NO_ANSWERS

    for one in done.predictors:
        pairs = zip(done.suite.cases, one.said, strict=True)
        lacking = [(case.question.input, said) for case, said in pairs if said.status in NO_ANSWERS]
        if lacking:
            text, first = lacking[0]
            kinds = Counter(said.status.value.replace("_", " ") for _, said in lacking)
            counted = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
            yield (
                f"warning: {printing.printable(one.name)}: {len(lacking)} of {len(one.said)} "
                f"answers are none and count as wrong ({counted}); the first, to "
                f"{printing.printable(text)!r:.80}: {printing.printable(first.why)}"
            )
    for name, why in done.unable.items():
        yield f"error: {printing.printable(name)}: {printing.printable(why)}"


@shared.command(app, "shioenv evaluate report ./evaluation")
def report(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where an evaluation was kept.")],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.html", help="Where the page is written (default: report.html in DIR)."
        ),
    ] = None,
) -> shared.Printout:
    """Show an evaluation as one HTML page: scores, utilities, and every answer beside the gold.

    The page needs no network and no other file. The page shows each mistake of a predictor, since
    mistakes tell what to make better.
    """
    from shioenv_eval.evaluation_page import write_page
    from shioenv_eval.report.template import FILE

    done = write_page(directory, out)
    path = directory / FILE if out is None else out
    size = path.stat().st_size / 1e6
    line = f"{path}: {len(done.predictors)} predictors, {size:.1f} MB"
    return shared.Printout(done.document, [line], indent=2)


@shared.command(app, "shioenv evaluate table ./evaluation")
def table(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where an evaluation was kept.")],
) -> shared.Printout:
    """Print an evaluation as Markdown, with the paper's numbers beside ours."""
    from shioenv_eval.evaluate import read_evaluation
    from shioenv_eval.evaluation_page import markdown

    done = read_evaluation(directory)
    return shared.Printout(done.document, [markdown(done).rstrip()], indent=2)


@shared.command(app, "shioenv evaluate prepare cowrie just-bash")
def prepare(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help="Predictors, as `--predictor` has them.")
    ],
    system: shared.SystemName = None,
) -> shared.Printout:
    """Prepare predictors before an evaluation: their installation, and what they make of a system.

    The exit status is 3 where a predictor cannot run here.
    """
    from shioenv.domain.predictor import make_predictor
    from shioenv.system.store import find_system

    built = find_system(system)
    ready = {}
    for name in names:
        made = make_predictor(name, system or built.name, built.declaration.start_directory)
        ready[name] = str(made.version)
        close = getattr(made, "close", None)
        if close is not None:
            close()
    lines = [f"{printing.printable(name)} is ready: {version}" for name, version in ready.items()]
    return shared.Printout(ready, lines)
