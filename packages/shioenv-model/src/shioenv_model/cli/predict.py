"""The command `shioenv predict`: predict an input's behavior with a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shioenv.cli import printing, shared, stdin

if TYPE_CHECKING:
    from shioenv.domain.runner import Answer, Runner, State
    from shioenv_model.memory.world import World
    from shioenv_model.model import Model
    from shioenv_model.rules.registry import Step

app = typer.Typer()


@shared.command(app, "shioenv predict 'wc -l scripts/*.sh | tail -1'", cls=shared.InputCommand)
def predict(
    shell_input: shared.InputArgument,
    *,
    history: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File of earlier inputs in the same shell, one a line (- is stdin).",
        ),
    ] = None,
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Show the sources of each command's answer."),
    ] = False,
    cwd: shared.StartDirectory = None,
    model: Annotated[
        str,
        typer.Option(
            metavar="MODEL",
            autocompletion=shared.completing("shioenv_model.files:model_names"),
            help="A model by name or file.",
        ),
    ] = "default",
    seq2seq: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL", help="Also use this sequence model; the more confident answer wins."
        ),
    ] = None,
    stages: Annotated[
        str | None,
        typer.Option(
            metavar="EMULATOR",
            autocompletion=shared.completing("bashkit"),
            help="Emulator (bashkit) for commands that read a pipe. Answers name it. Needs the "
            "model's system built.",
        ),
    ] = None,
    system: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            autocompletion=shared.complete_systems,
            help="Predict for this built system (default: the model's own, which need not be built"
            ").",
        ),
    ] = None,
    without: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SOURCE",
            autocompletion=shared.completing("shioenv_model.memory.sources:NAMES"),
            help="Do not use a source of answers: rules, functions or records. Repeatable.",
        ),
    ] = None,
    abstain_below: Annotated[
        float,
        typer.Option(min=0, max=1, metavar="P", help="Abstain if the confidence is below P."),
    ] = 0.0,
) -> shared.Printout:
    """Predict the effects of an input without executing anything.

    The output goes to standard output, the rest to standard error. The confidence, 0 to 1, is the
    expected accuracy of such answers. Only --stages and --system need a built system.

    With `-`, each line of standard input is an input, as text or as JSON: {"input": "pwd", "cwd":
    "/tmp", "history": ["x=1"]}. One line of JSON is printed for each, at once and in order. A line
    without an answer gets an object with `error`, and the exit status is then 1.
    """
    from shioenv.errors import UsageError
    from shioenv_model.files import card_of, load_model

    card = card_of(model)
    loaded = load_model(
        model,
        seq2seq=seq2seq,
        stages=_emulator(stages, system or card.get("system")) if stages else None,
        stages_name=stages or "",
        abstain_below=abstain_below,
        world=_asked(card, system) if system else None,
        without=without or (),
    )
    if shell_input == "-" == str(history):
        raise UsageError(
            "standard input (-) is given for INPUT and for --history",
            hint="use a file for the history",
        )
    typed = () if history is None else tuple(_inputs(stdin.given(history)))

    def answer(line: stdin.GivenInput) -> tuple[Answer, dict[str, Any]]:
        state = _state(loaded.world, line.cwd or cwd, line.history or typed)
        answer = loaded.answer(line.input, state)
        steps = [_step(each) for each in loaded.steps]
        return answer, {**_document(line.input, state.cwd, loaded, answer), "steps": steps}

    if shell_input == "-":
        return stdin.answer_lines(lambda line: answer(line)[1])
    given, document = answer(stdin.GivenInput(shell_input))
    parts = _parts(given, loaded, document["cwd"], explain=explain)
    return shared.Printout(document, parts, indent=2)


def _state(world: World, cwd: str | None, history: tuple[str, ...]) -> State:
    """Return the state after a history. Errors: StartDirectoryError."""
    from shioenv.errors import StartDirectoryError

    if cwd is not None and not world.has_directory(cwd):
        raise StartDirectoryError(f"{cwd!r} is not a directory of the model's system")
    return replace(world.state(cwd), history=history)


def _emulator(name: str, system: str | None) -> Runner:
    """Return the emulator, with the files of `system`, that answers commands after a pipe."""
    from shioenv_model.predictors.default import emulator

    return emulator(name, system)


def _asked(card: Mapping[str, Any], name: str) -> World | None:
    """Return the world of the requested system; None for the model's own system."""
    from shioenv.system.store import find_system
    from shioenv_model.memory.world import world_of_system

    system = find_system(name)
    return world_of_system(card, system.name, system.declaration.start_directory)


def _inputs(path: Path) -> Iterator[str]:
    from shioenv.errors import UsageError
    from shioenv.files.regular import LARGEST_LIST, lines_of, read_regular

    try:
        text = read_regular(path, LARGEST_LIST).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from None
    yield from (line for line in lines_of(text) if line.strip())


def _document(text: str, cwd: str, model: Model, answer: Answer) -> dict[str, Any]:
    return {
        "input": text,
        "cwd": cwd,
        "model": model.version,
        **_behavior(answer),
    }


def _behavior(answer: Answer) -> dict[str, Any]:
    from shioenv.domain.answer_json import behavior_json

    return {
        **behavior_json(answer.behavior),
        "confidence": round(answer.confidence, 4),
        "source": answer.source,
    }


def _step(step: Step) -> dict[str, Any]:
    from shioenv.domain.runner import Answer

    return {
        "input": step.input,
        **_behavior(step.answer),
        "asked": list(step.asked),
        "nearest": [
            {"input": text, "distance": round(distance, 3)} for text, distance in step.nearest
        ],
        "alternatives": [
            _behavior(Answer(behavior, score, "another neighbour"))
            for behavior, score in step.alternatives
        ],
    }


def _parts(answer: Answer, model: Model, start: str, *, explain: bool) -> Iterator[bytes]:
    from shioenv.domain.readable import changes

    yield answer.behavior.output

    printing.end_line(answer.behavior.output)
    code, confidence = answer.behavior.exit_code, answer.confidence
    printing.remark(f"exit code {code}, confidence {confidence:.2f}, {answer.source}")
    for change in changes(answer.behavior.patch.operations, start):
        printing.remark(f"  {change}")
    for step in model.steps if explain else ():
        told = f"{step.answer.confidence:.2f}  {step.input}  ({step.answer.source})"
        printing.remark(told, dim=False)
        printing.remark(f"      sources: {', '.join(step.asked)}")
        for text, distance in step.nearest:
            printing.remark(f"      {distance:.2f} away: {text}")
        for behavior, score in step.alternatives:
            first = behavior.text[:60]
            printing.remark(f"      or, {score:.2f}: exit code {behavior.exit_code}, {first}")
