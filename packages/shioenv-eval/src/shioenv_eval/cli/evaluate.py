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
    from shioenv_eval.suite import Suite

app = typer.Typer(name="evaluate", help="Evaluate predictors on a suite and report accuracy.")


AnswerSeconds = Annotated[
    float, typer.Option(min=0.1, metavar="SECONDS", help="Time limit for an answer.")
]


@shared.group(app, "shioenv evaluate --predictor trivial --suite dev.suite --out ./evaluation")
def evaluate(
    predictor: Annotated[
        list[str] | None,
        typer.Option(
            "--predictor",
            metavar="NAME[:ARGS]",
            autocompletion=shared.completing("shioenv.domain.predictor:predictor_names"),
            help="sandbox, trivial, errors, recording:FILE, command:PROG, default, memory:DATASET, "
            "bashkit, just-bash, cowrie, llm:MODEL, or a predictor of another package. "
            "Repeatable.",
        ),
    ] = None,
    suite: Annotated[
        Path | None,
        typer.Option(
            metavar="SUITE",
            autocompletion=shared.completing("shioenv_eval.suite:FROZEN"),
            help="The suite with the ground truth: a file, or the included public-test, "
            "sessions-200 or conformance.",
        ),
    ] = None,
    run_again: Annotated[
        bool,
        typer.Option(
            "--run-again", help="First record the suite's inputs again on the built system."
        ),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Directory for answers and results. The same command resumes, and adds "
            "predictors.",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="W", help="Processes per predictor (default: one per processor)."
        ),
    ] = None,
    timeout: AnswerSeconds = 30.0,
    start_timeout: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            metavar="SECONDS",
            help="Time limit for a predictor to start (default: 900); a program must answer its "
            "first line within 120.",
        ),
    ] = None,
) -> shared.Printout:
    """Evaluate predictors on a suite and report accuracy.

    Each metric has a 95% interval, for single-step inputs, multi-step inputs and all. Differences
    between predictors are reported too. A crash, a late answer and an invalid answer count as
    wrong. A predictor without any answer is not evaluated. The exit status is 1 if a predictor
    could not run here, or gave no answer. An included suite needs no built system.
    """
    from shioenv.errors import UsageError
    from shioenv_eval.evaluate import evaluate as evaluate_predictors

    if not predictor or suite is None:
        raise UsageError(
            "--predictor and --suite are required",
            hint="shioenv evaluate --predictor sandbox --suite FILE",
        )
    stopped = "stopped" if out is None else f"stopped; answers are saved in {out}: run this again"
    with Meter(lasting=True, stopped=stopped) as meter:
        done = evaluate_predictors(
            _run_again(suite, out, workers, meter) if run_again else suite,
            predictor,
            out,
            workers=workers,
            timeout=timeout,
            start_timeout=start_timeout,
            report=lambda name, *counts: meter.update(f"answers of {name}", *counts),
            tell=meter.print_note,
        )
    for line in _unanswered(done):
        printing.note(line)
    document = done.document
    status = 1 if done.unable else 0
    return shared.Printout(document, _parts(done, document), indent=2, status=status)


def _run_again(suite: Path, out: Path | None, workers: int | None, meter: Meter) -> Suite:
    """Record a suite's inputs anew, or return the recording that `out` has from an earlier call."""
    from dataclasses import replace

    from shioenv.sandbox.base import Limits
    from shioenv_eval.evaluate import SUITE
    from shioenv_eval.suite import read_suite, write_suite
    from shioenv_eval.suite_recorder import recorded_suite

    given = read_suite(suite)
    head, questions = given.head, [case.question for case in given.cases]
    if out is not None and (out / SUITE).exists():
        kept = read_suite(out / SUITE)
        if [case.question for case in kept.cases] == questions:
            return kept
    with recorded_suite(
        questions,
        system=head.system,
        limits=Limits(**head.limits),
        runs=head.runs,
        seconds_apart=head.seconds_apart,
        workers=workers,
        report=lambda done, total: meter.update("runs", done, total),
    ) as recorded:
        again = replace(recorded, head=replace(recorded.head, name=head.name))
        if out is not None:
            write_suite(again, out / SUITE)
            return read_suite(out / SUITE)
        return again


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
                f"{name}: its training data has the text of {known['text']:.1%} of the inputs, and "
                f"the normal form of {known['form']:.1%}; EM of the remaining inputs: "
                f"{fixed(everything['em_new_text'][0])} and {fixed(everything['em_new_form'][0])}"
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
                f"answers are missing or invalid, and count as wrong ({counted}); the first, to "
                f"{printing.printable(text)!r:.80}: {printing.printable(first.why)}"
            )
    for name, why in done.unable.items():
        yield f"error: {printing.printable(name)}: {printing.printable(why)}"


@shared.command(app, "shioenv evaluate report ./evaluation")
def report(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Directory of an evaluation.")],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE.html", help="File to write (default: report.html in DIR)."),
    ] = None,
) -> shared.Printout:
    """Write an evaluation as one HTML page.

    It shows scores, utilities, and each answer next to the ground truth. The page needs no network
    and no other file.
    """
    from shioenv_eval.evaluation_page import write_page
    from shioenv_eval.report.markup import FILE

    done = write_page(directory, out)
    path = directory / FILE if out is None else out
    size = path.stat().st_size / 1e6
    line = f"{path}: {len(done.predictors)} predictors, {size:.1f} MB"
    return shared.Printout(done.document, [line], indent=2)


@shared.command(app, "shioenv evaluate table ./evaluation")
def table(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Directory of an evaluation.")],
) -> shared.Printout:
    """Print an evaluation as Markdown, next to the paper's results."""
    from shioenv_eval.evaluate import read_evaluation
    from shioenv_eval.evaluation_page import markdown

    done = read_evaluation(directory)
    return shared.Printout(done.document, [markdown(done).rstrip()], indent=2)


@shared.command(
    app, "shioenv evaluate answers ./evaluation --predictor trivial --out answers.jsonl", "answers"
)
def write_answers(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Directory of an evaluation.")],
    name: Annotated[
        str, typer.Option("--predictor", metavar="NAME[:ARGS]", help="One of its predictors.")
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="File to write, as JSON Lines.")],
) -> shared.Printout:
    """Write a predictor's answers to a file of JSON Lines.

    The predictor `recording:FILE` reads it, and so does the checker `judge.py`.
    """
    import json

    from shioenv.errors import UsageError
    from shioenv.files.durable import atomic_write, storage_errors
    from shioenv_eval.evaluate import read_evaluation
    from shioenv_eval.predictors.recording import recorded_lines

    done = read_evaluation(directory)
    judged = next((one for one in done.predictors if one.name == name), None)
    if judged is None:
        known = ", ".join(one.name for one in done.predictors)
        raise UsageError(f"{directory} has no answers of {name}", hint=f"it has: {known}")
    lines = [json.dumps(line) for line in recorded_lines(done.suite, judged)]
    with storage_errors(out):
        atomic_write(out, "".join(f"{line}\n" for line in lines).encode())
    return shared.Printout({"answers": len(lines) - 1}, [f"{out}: {len(lines) - 1} answers"])


@shared.command(app, "shioenv evaluate prepare cowrie just-bash")
def prepare(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help="Predictors, as for --predictor.")
    ],
    system: shared.SystemName = None,
) -> shared.Printout:
    """Install predictors and prepare their data for a system.

    The exit status is 3 if a predictor cannot run here.
    """
    from shioenv.domain.predictor import find_predictor, make_predictor
    from shioenv.system.store import find_system

    for name in names:
        find_predictor(name)
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
