"""`shioenv train`: what models learn from, and models made of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shioenv.cli import shared
from shioenv.cli.progress import Meter, counting

app = typer.Typer(no_args_is_help=True, help="Make models that answer without executing.")


@shared.command(app, "shioenv train material small --out ./material")
def material(
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE",
            autocompletion=shared.completing("shioenv.modeling.material:recipe_names"),
            help="A recipe that comes with shioenv (default, small), or a TOML file.",
        ),
    ],
    *,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Made where it is missing.")],
    workers: shared.Workers = None,
    system: shared.SystemName = None,
) -> shared.Printout:
    """Execute what models learn from, as a recipe says; run again to go on.

    Each part of the recipe becomes a dataset of executions without scores. What of the public suite
    stands in them is printed: nothing of a suite was looked at when they were drawn.
    """
    from shioenv.execution.engines import executor_named
    from shioenv.modeling.material import make_material

    stopped = f"stopped; what is finished is kept in {out}, the same command goes on"
    with Meter(lasting=True, stopped=stopped) as meter:
        made = make_material(
            recipe,
            out,
            executor_named("local", workers),
            system,
            report=lambda part, done, total, kept: meter.tell(
                f"records of {part}", done, total, kept
            ),
        )
    known = _known(made.directories)
    document = {
        "directory": str(out),
        "datasets": [str(each) for each in made.directories],
        "recipe_sha256": made.digest,
        "public": known,
    }
    lines = shared.rows(
        {
            "material": str(out),
            "parts": ", ".join(each.name for each in made.directories),
            "recipe": made.digest[:12],
            "public suite": f"{known['text']} of {known['inputs']} inputs stand in it, "
            f"{known['form']} by their normal form",
        },
        13,
    )
    return shared.Printout(document, lines)


@shared.command(app, "shioenv train memory ./material --out my.model")
def memory(
    datasets: Annotated[
        list[Path],
        typer.Argument(metavar="DIR", help="Material, or datasets of one system; several add up."),
    ],
    *,
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="The model: one file of at most 16 MB.")
    ],
    questions: Annotated[
        int, typer.Option(min=10, metavar="N", help="Records it asks itself about, left out.")
    ] = 4000,
    seed: Annotated[int, typer.Option(help="Of what it asks itself about.")] = 0,
) -> shared.Printout:
    """Make a model that answers by the nearest executed inputs, rewritten.

    It needs the extra shioenv[train]; asking the model does not.
    """
    import tempfile

    from shioenv.modeling.learning import train_memory
    from shioenv.modeling.material import datasets_in
    from shioenv.modeling.model import pack

    found = [each for directory in datasets for each in datasets_in(directory)]
    name = out.name.partition(".")[0]
    with tempfile.TemporaryDirectory(prefix="shioenv-train-") as making, Meter() as meter:
        directory = Path(making) / "model"
        card = train_memory(
            found, directory, name=name, questions=questions, seed=seed, report=meter.tell
        )
        size = pack(directory, out)
    learned = card["learned"]
    lines = shared.rows(
        {
            "model": f"{out}, {size / 1e6:.1f} MB",
            "records": f"{card['records']} of {card['system']} {card['system_digest'][:12]}",
            "right": f"{learned['right']:.3f} of {learned['held_back']} inputs that were left out "
            f"({learned['right_among_candidates']:.3f} anywhere among what was found)",
        }
    )
    return shared.Printout({**card, "file": str(out), "bytes": size}, lines)


def _known(directories: tuple[Path, ...]) -> dict[str, int]:
    """How many inputs of the public suite stand in datasets, by text and by normal form."""
    from shioenv.dataset.leakage import inputs_of
    from shioenv.evaluation.questions import PUBLIC, read_questions
    from shioenv.grammar.normal import normal

    texts: set[str] = set()
    with counting("inputs compared") as report:
        for directory in directories:
            for text in inputs_of(directory):
                texts.add(text.strip())
                report(len(texts))
    forms = {normal(text) for text in texts} - {None}
    questions = read_questions(PUBLIC)
    return {
        "inputs": len(questions),
        "text": sum(question.input.strip() in texts for question in questions),
        "form": sum(normal(question.input) in forms for question in questions),
    }
