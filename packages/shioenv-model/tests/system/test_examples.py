# ruff: noqa: E402 - what is imported needs what may not be installed
"""Examples made of executions: of single commands, and of those behind a pipe."""

from __future__ import annotations

from pathlib import Path

from support.needs import needed_module

needed_module("tokenizers")

from shioenv.dataset.record_reader import read_records
from shioenv.domain.inputs import without_start
from shioenv.domain.record import Record
from shioenv.execution.local import SerialExecutor
from shioenv.system.store import System
from shioenv_model.memory.world import World
from shioenv_model.sequence.codec import Codec
from shioenv_model.sequence.compact import DocumentNames
from shioenv_model.training.material import make_material
from shioenv_model.training.material_samplers import PIPED, is_source, parted
from shioenv_model.training.preparing import Shape, prepare
from shioenv_model.training.token_examples import Examples

RECIPE = """
schema = 1
[[part]]
name = "people"
policy = "people"
count = 60
seed = 3
[[part]]
name = "stages"
sampler = "stages"
policy = "people"
count = 12
seed = 3
"""


def text_of(codec: Codec, numbers: list[int]) -> str:
    return b"".join(codec.data[number] or b"" for number in numbers).decode()


def test_examples_say_what_was_executed(tmp_path: Path, system: System) -> None:
    (tmp_path / "recipe.toml").write_text(RECIPE)
    made = make_material(tmp_path / "recipe.toml", tmp_path / "material", SerialExecutor())
    people, stages = made.directories
    printed = {without_start(each.input)[1]: each for each in read_records(people)}
    records = list(read_records(stages))
    assert len(records) == 12
    assert {each.sampler for each in records} == {PIPED}
    piped: dict[str, dict[str, Record]] = {}
    for record in records:
        first, stage = parted(without_start(record.input)[1])
        assert is_source(printed[first])
        given_to_it = printed[first].output_bytes.decode("utf-8", "replace")
        piped.setdefault(stage, {})[given_to_it.replace("\r", "\\r")] = record
    directory = tmp_path / "examples"
    count = prepare(list(made.directories), directory, Shape(vocabulary=400, source_tokens=4000))
    examples = Examples(directory)
    left_out = sum(examples.facts["left_out"].values())
    assert count + left_out == 72
    assert count > 30
    some = prepare(
        list(made.directories)[:1],
        tmp_path / "some",
        Shape(vocabulary=400),
        chosen=range(20, 40),
    )
    of_some = Examples(tmp_path / "some")
    texts = {text_of(of_some.codec, of_some.source(number).tolist()) for number in range(some)}
    asked = {text.partition("\n")[0].removeprefix("$ ") for text in texts}
    assert 0 < len(asked) <= 20
    assert asked <= {without_start(each.input)[1] for each in list(read_records(people))[20:40]}
    assert examples.facts["systems"][system.name]["digest"] == system.digest
    world = World.from_json((directory / "world.json").read_bytes())
    assert DocumentNames(world.state().before.document).files
    given = 0
    for number in range(count):
        prompt = text_of(examples.codec, examples.source(number).tolist())
        target = examples.codec.decode_target(examples.target(number).tolist())
        assert target is not None
        text = prompt.partition("\n")[0].removeprefix("$ ")
        if "\nx" in prompt and text in piped:
            shown = prompt.partition("\nx")[2].partition("\n")[2].split("\n")
            stdin = "".join(line[1:] + "\n" * line.startswith("|") for line in shown)
            record = piped[text][stdin]
            given += 1
        elif text in printed:
            record = printed[text]
        else:
            continue
        assert target.exit_code == record.exit_code
        assert b"".join(data for _, data in target.printed) == record.output_bytes
        assert bool(target.patch) == (record.context_patch != "[]")
    assert given >= 5


SESSIONS = """
schema = 1
[[part]]
name = "sessions"
policy = "people"
session_length = 3
count = 60
seed = 4
"""


def test_what_is_typed_in_a_row_is_asked_about_where_it_led(tmp_path: Path, system: System) -> None:
    (tmp_path / "recipe.toml").write_text(SESSIONS)
    made = make_material(tmp_path / "recipe.toml", tmp_path / "material", SerialExecutor())
    records = list(read_records(made.directories[0]))
    directory = tmp_path / "examples"
    prepare(list(made.directories), directory, Shape(vocabulary=400, source_tokens=4000))
    examples = Examples(directory)
    cut = [one for one in records if one.timed_out or one.volatile or one.output_truncated]
    assert sum(bool(one.history) for one in records) >= 20
    unknown = examples.facts["left_out"].get("after an unknown history", 0)
    assert unknown <= 2 * len(cut), "only what follows such a record is not known"
    prompts = {
        text_of(examples.codec, examples.source(number).tolist()): number
        for number in range(len(examples))
    }
    told = 0
    for record in records:
        *_, last = ["", *record.history]
        if not last.startswith(("touch ", "mkdir ", "cp ")) or record in cut:
            continue
        made_by_it = last.split()[-1]
        text = without_start(record.input)[1]
        named = [one for one in prompts if one.startswith(f"$ {text}\n")]
        told += any(f" {made_by_it} " in line for one in named for line in one.splitlines()[2:])
    assert told >= 1, "the prompt describes what the input before it made"
