"""Subcommands of `shioenv train`: training material, and models trained on it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from shioenv.cli import printing, shared, stdin
from shioenv.cli.progress import Meter, counting

if TYPE_CHECKING:
    from shioenv_model.memory.memory import Memory

app = typer.Typer(
    name="train", no_args_is_help=True, help="Train models that predict the effects of inputs."
)

Material: TypeAlias = Annotated[
    list[str],
    typer.Argument(metavar="MATERIAL", help="Material, or datasets, of one or more systems."),
]
Checkpoint: TypeAlias = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Fine-tune this T5 or CodeT5 model, with its tokenizer."),
]


@shared.command(app, "shioenv train material small --out ./material")
def material(
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE",
            autocompletion=shared.completing("shioenv_model.training.material:recipe_names"),
            help="An included recipe (default, small), or a TOML file.",
        ),
    ],
    *,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Directory for the material, created if missing.")
    ],
    workers: shared.Workers = None,
    against: Annotated[
        list[Path] | None,
        typer.Option(
            "--compare-with",
            metavar="INPUTS",
            help="Count the inputs of this file that the material contains: one a line, as text or "
            "as JSON (- is stdin). Repeatable.",
        ),
    ] = None,
    system: shared.SystemName = None,
) -> shared.Printout:
    """Generate training data by a recipe.

    Each part of the recipe becomes a dataset. The numbers of inputs that succeed, and of inputs
    that are also in the public suite, are printed. Sampling does not use any suite. The same
    command resumes an interrupted one.
    """
    from shioenv.dataset.questions import PUBLIC
    from shioenv.execution.local import executor_named
    from shioenv_model.training.material import make_material

    lists = [str(stdin.given(each)) for each in against or ()]
    stopped = f"stopped; finished parts are saved in {out}: run the same command to resume"
    with Meter(lasting=True, stopped=stopped) as meter:
        made = make_material(
            recipe,
            out,
            executor_named("local", workers),
            system,
            report=lambda part, done, total, kept: meter.update(
                f"records of {part}", done, total, kept
            ),
        )
    found = _compared(made.directories, [PUBLIC, *lists])
    document = {
        "directory": str(out),
        "datasets": [str(each) for each in made.directories],
        "recipe_sha256": made.digest,
        **found,
    }
    lines = {
        "material": str(out),
        "parts": ", ".join(each.name for each in made.directories),
        "recipe": made.digest[:12],
        "succeed": f"{found['succeed']:.1%} of {found['inputs']:,} inputs",
    }
    for name, known in found["held"].items():
        lines[name] = (
            f"{known['text']} of its {known['inputs']} inputs are in the material, and "
            f"{known['form']} by normal form"
        )
    return shared.Printout(document, printing.rows(lines, max(map(len, lines)) + 1))


@shared.command(app, "shioenv train memory ./material --out my.model")
def memory(
    datasets: Annotated[
        list[Path],
        typer.Argument(metavar="DIR", help="Material, or one or more datasets of one system."),
    ],
    *,
    out: Annotated[Path, typer.Option(metavar="FILE", help="File for the model, at most 64 MB.")],
    questions: Annotated[
        int,
        typer.Option(
            min=10,
            metavar="N",
            help="Number of held-out records, for evaluation.",
        ),
    ] = 4000,
    seed: Annotated[int, typer.Option(help="Random seed for the choice of held-out records.")] = 0,
    onto: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            autocompletion=shared.completing("shioenv_model.files:model_names"),
            help="Add the records to this model, without training it again. For records of another "
            "system, the new model answers for that system and needs this one to be loaded.",
        ),
    ] = None,
) -> shared.Printout:
    """Train a model that adapts the nearest recorded inputs.

    Training needs the extra shioenv[train], except with --onto; predicting does not. The same
    command resumes an interrupted one, except with --onto.
    """
    import tempfile

    from shioenv.files.durable import refuse_unwritable
    from shioenv_model.files import pack
    from shioenv_model.training.material import datasets_in
    from shioenv_model.training.memory_training import extend_memory, train_memory

    refuse_unwritable(out)
    found = [each for directory in datasets for each in datasets_in(directory)]
    name = out.name.partition(".")[0]
    stopped = "stopped; finished parts are saved: run the same command to resume"
    making_in = tempfile.TemporaryDirectory(prefix="shioenv-train-")
    with making_in as making, Meter(lasting=True, stopped=stopped) as meter:
        directory = Path(making) / "model"
        if onto:
            card = extend_memory(onto, found, directory, name=name, report=meter.update)
            pack(directory, out)
        else:
            card = train_memory(
                found, directory, name=name, questions=questions, seed=seed, report=meter.update,
                write=partial(pack, file=out),
            )  # fmt: skip
    size = out.stat().st_size
    rows: dict[str, object] = {
        "model": f"{out}, {size / 1e6:.1f} MB",
        "records": f"{card['records']} of {card['system']} {card['system_digest'][:12]}",
    }
    if learned := card.get("learned"):
        rows["accuracy"] = (
            f"{learned['right']:.3f} of {learned['held_back']} held-out inputs "
            f"({learned['right_among_candidates']:.3f} if any candidate counts)"
        )
    if other := card.get("base"):
        rows["adds to"] = f"{other['name']} {other['digest']}"
    lines = printing.rows(rows)
    return shared.Printout({**card, "file": str(out), "bytes": size}, lines)


@shared.command(app, "shioenv train examples ./material --out my.examples")
def examples(
    material: Material,
    *,
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="File for the examples, at most 64 MB.")
    ],
    checkpoint: Checkpoint = None,
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL", help="A memory; its nearest records are added to each prompt."
        ),
    ] = None,
    neighbours: Annotated[
        int,
        typer.Option(
            min=0,
            max=5,
            metavar="N",
            help="Number of records of the memory in each prompt.",
        ),
    ] = 0,
) -> shared.Printout:
    """Prepare tokenized examples for training a sequence model.

    Training on another machine needs only this file, no system and no records. Needs the extra
    shioenv[train].
    """
    import tempfile

    from shioenv_model.files import load_memory, located, opened, pack
    from shioenv_model.training.token_examples import Examples

    kept = load_memory(opened(located(memory))) if memory else None
    with tempfile.TemporaryDirectory(prefix="shioenv-examples-") as making, Meter() as meter:
        directory = Path(making) / "examples"
        _prepare(material, directory, checkpoint, kept, neighbours, meter)
        size = pack(directory, out)
        facts = Examples(directory).facts
    lines = printing.rows(
        {
            "examples": f"{out}, {size / 1e6:.1f} MB",
            "learned from": facts["examples"] - facts["dev"],
            "judged by": facts["dev"],
            "tokens": facts["tokens"],
            "systems": ", ".join(facts["systems"]),
            "left out": ", ".join(f"{count} {why}" for why, count in facts["left_out"].items()),
        },
        13,
    )
    return shared.Printout({**facts, "file": str(out), "bytes": size}, lines)


@shared.command(app, "shioenv train model ./material --out ./run --minutes 9")
def model(
    material: Material,
    *,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Directory of the run, created if missing.")
    ],
    device: Annotated[
        str,
        typer.Option(
            metavar="cpu|cuda",
            autocompletion=shared.completing("cpu", "cuda"),
            help="Device for training.",
        ),
    ] = "cpu",
    minutes: Annotated[
        float,
        typer.Option(
            min=0, metavar="MINUTES", help="Minutes of this call; the same command resumes."
        ),
    ] = 9.0,
    size: Annotated[
        str,
        typer.Option(
            metavar="tiny|mini|small|base",
            autocompletion=shared.completing("tiny", "mini", "small", "base"),
            help="Size of a model trained from scratch.",
        ),
    ] = "small",
    checkpoint: Checkpoint = None,
    steps: Annotated[
        int, typer.Option(min=1, metavar="N", help="Steps of the whole run.")
    ] = 20_000,
    within: Annotated[
        float,
        typer.Option(
            "--total-minutes",
            min=0,
            metavar="MINUTES",
            help="Minutes of the whole run; the learning rate decays until then. 0: --steps "
            "decides.",
        ),
    ] = 0.0,
    batch_tokens: Annotated[
        int, typer.Option(min=256, metavar="N", help="Tokens of prompts and targets per step.")
    ] = 32_768,
    learning_rate: Annotated[
        float,
        typer.Option(min=0, help="Peak learning rate, relative to the weights."),
    ] = 0.02,
    every: Annotated[
        int,
        typer.Option(
            min=1, metavar="N", help="Steps between checkpoints and evaluations of the dev loss."
        ),
    ] = 500,
    patience: Annotated[
        int,
        typer.Option(
            min=1, metavar="N", help="Stop after N evaluations without a better dev loss."
        ),
    ] = 8,
    seed: Annotated[int, typer.Option(help="Random seed for weights, order and dropout.")] = 0,
) -> shared.Printout:
    """Train a sequence model; run again to resume.

    MATERIAL is a file of examples, material, or a recipe, whose material is generated first. The
    directory has checkpoints, a learning curve (curve.csv) and the best model so far. Needs the
    extra shioenv[train].
    """
    import shutil

    from shioenv.errors import MissingExtraError

    try:
        from shioenv_model.training.sequence import TrainingPlan, train
    except ImportError:
        raise MissingExtraError("training", "train", "torch", "transformers") from None
    from shioenv_model.files import opened, pack
    from shioenv_model.training.token_examples import Examples

    kept = out / "examples"
    plan = TrainingPlan(
        size=size,
        checkpoint=str(checkpoint or ""),
        steps=steps,
        minutes=within,
        batch_tokens=batch_tokens,
        learning_rate=learning_rate,
        every=every,
        patience=patience,
        seed=seed,
    )
    stopped = f"stopped; run the same command to resume from the newest checkpoint in {out}"
    with Meter(lasting=True, stopped=stopped) as meter:
        if len(material) == 1 and Path(material[0]).is_file() and not _is_recipe(material[0]):
            kept = opened(Path(material[0]))
        elif not kept.exists():
            making = out / "examples.new"
            shutil.rmtree(making, ignore_errors=True)
            _prepare(material, making, checkpoint, None, 0, meter, out)
            making.rename(kept)
        piece = train(
            out, Examples(kept), plan, device=device, minutes=minutes,
            report=lambda what, done, of: meter.update(what, done, of),
        )  # fmt: skip
    file = out / f"{out.resolve().name}.model"
    packed = pack(out / "model", file, hint="--size small")
    document = {
        "step": piece.step, "steps": piece.steps, "ended": piece.ended,
        "dev_loss": piece.best_loss, "curve": piece.curve, "file": str(file), "bytes": packed,
    }  # fmt: skip
    again = "finished" if piece.ended else "run the same command to continue"
    lines = printing.rows(
        {
            "model": f"{file}, {packed / 1e6:.1f} MB",
            "steps": f"{piece.step} of {piece.steps}, {again}",
            "dev loss": piece.best_loss,
            "curve": out / "curve.csv",
        }
    )
    return shared.Printout(document, lines)


def _is_recipe(name: str) -> bool:
    return name.endswith(".toml")


def _prepare(
    material: list[str],
    directory: Path,
    checkpoint: Path | None,
    memory: Memory | None,
    neighbours: int,
    meter: Meter,
    beside: Path | None = None,
) -> None:
    """Make examples of material in `directory`.

    With `beside`, the material may be a recipe: its material is first made in `material` of the
    directory `beside`.
    """
    from shioenv.errors import MissingExtraError
    from shioenv_model.training.material import datasets_in, recipe_names

    try:
        from shioenv_model.training.preparing import Shape, prepare
    except ImportError:
        raise MissingExtraError("training", "train", "tokenizers") from None
    datasets: list[Path] = []
    for name in material:
        if beside and not Path(name).is_dir() and (_is_recipe(name) or name in recipe_names()):
            from shioenv.execution.local import executor_named
            from shioenv_model.training.material import make_material

            made = make_material(name, beside / "material", executor_named("local", None))
            datasets += made.directories
        else:
            datasets += datasets_in(Path(name))
    shape = Shape(neighbours=neighbours)
    prepare(datasets, directory, shape, checkpoint=checkpoint, memory=memory, report=meter.update)


def _compared(directories: Sequence[Path], files: Sequence[str]) -> dict[str, Any]:
    """Return the share of inputs that succeed, and the overlap of the datasets with the files.

    An input in a file counts if the datasets contain its text or its normal form.
    """
    from shioenv.bash.normal import normal
    from shioenv.dataset.questions import read_questions
    from shioenv.dataset.record_reader import read_records
    from shioenv.domain.inputs import without_start

    wanted = {name: [question.input for question in read_questions(name)] for name in files}
    texts: set[str] = set()
    count = succeed = 0
    with counting("inputs compared") as report:
        for directory in directories:
            for record in read_records(directory):
                texts.add(without_start(record.input)[1].strip())
                succeed += record.exit_code == 0
                count += 1
                report(count)
    forms = {normal(text) for text in texts} - {None}
    known = {
        name: {
            "inputs": len(inputs),
            "text": sum(text.strip() in texts for text in inputs),
            "form": sum(normal(text) in forms for text in inputs),
        }
        for name, inputs in wanted.items()
    }
    return {"inputs": count, "succeed": round(succeed / max(count, 1), 4), "held": known}
