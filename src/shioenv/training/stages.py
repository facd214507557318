"""Commands behind a pipe as a task of their own: (the command, what it is given) to what it prints.

What it is given is what another executed command printed, so that an input of both, executed, tells
the answer, and what was recorded of the first alone tells the question.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from shioenv.composition.inputs import is_asked_whole
from shioenv.composition.reading import read_program
from shioenv.dataset.read import read_records
from shioenv.domain.inputs import Input, without_start
from shioenv.domain.record import Record
from shioenv.errors import ModelError
from shioenv.seeding import generator
from shioenv.synthesis.drawing import Drawing
from shioenv.synthesis.sample import sample_on
from shioenv.system.store import System

PIPED = "stages"
"""What the records of such inputs say wrote them."""

LONGEST = 2000
"""Bytes that a command is given at most; ours: nine of ten pipes that people write carry less."""

_PIPE = " | "
_DRAWN = 6
"""Composed inputs that are drawn for each command behind a pipe that is wanted, at most."""
_EACH = 200
"""Inputs at least for which commands are drawn."""


def parted(text: str) -> tuple[str, str]:
    """The two commands of an input that `stage_inputs` wrote."""
    first, _, stage = text.rpartition(_PIPE)
    return first, stage


def is_source(record: Record) -> bool:
    """Whether what a record printed is what its input gives into a pipe: it printed something, on
    standard output alone, failed at nothing and changed nothing.
    """
    _, text = without_start(record.input)
    printed = 0 < len(record.output_bytes) <= LONGEST
    done = not (record.exit_code or record.stderr or record.volatile or record.history)
    return printed and done and record.context_patch == "[]" and _is_command(text)


def stage_inputs(
    system: System, datasets: Sequence[Path], count: int, seed: int, policy: str
) -> list[str]:
    """So many inputs of two commands, as lines of a command list: one that datasets have executed,
    and one that a policy writes behind pipes, drawn by the seed. Each output is given as often as
    any other, whoever printed it.

    Errors: ModelError where the datasets hold nothing that could be piped, or nothing is drawn.
    """
    sources = list(_sources(datasets))
    stages = list(_stages(system, max(count // 2, 1), seed, policy))
    if not sources or not stages:
        raise ModelError(
            "there is nothing to be piped", hint="a part of stages stands behind the others"
        )
    rng = generator(seed, PIPED)
    made: dict[str, None] = {}
    for _ in range(4 * count):
        cwd, first = rng.choice(sources)
        line = {"input": f"{first}{_PIPE}{rng.choice(stages)}", "cwd": cwd}
        made[json.dumps(line, ensure_ascii=False)] = None
        if len(made) == count:
            break
    return list(made)


def _sources(datasets: Iterable[Path]) -> Iterator[tuple[str, str]]:
    """Where inputs ran, and their texts; of each output the first that printed it."""
    seen: set[bytes] = set()
    for each in datasets:
        for record in read_records(each):
            if is_source(record) and record.output_bytes not in seen:
                seen.add(record.output_bytes)
                cwd, text = without_start(record.input)
                yield cwd, text


def _stages(system: System, count: int, seed: int, policy: str) -> Iterator[str]:
    drawing = Drawing(policy=policy, seed=seed, composite_share=1.0)
    seen: set[str] = set()
    for sample in sample_on(system, drawing, _EACH + _DRAWN * count):
        for command in behind_pipes(sample.input):
            text = command.text
            if text not in seen and _is_command(text):
                seen.add(text)
                yield text
        if len(seen) >= count:
            return


def behind_pipes(shell_input: Input) -> Iterator[Input]:
    """The commands of an input that stand to the right of a `|`."""
    tokens = shell_input.tokens
    for begin, end in shell_input.spans():
        if begin and tokens[begin - 1].argument.text == "|":
            yield Input(tokens[begin:end])


def _is_command(text: str) -> bool:
    """Whether it is one simple command on one line that tells where it ends behind a pipe."""
    if "\n" in text or _PIPE in text or text.startswith("#"):
        return False
    return is_asked_whole(text) and bool(read_program(text))
