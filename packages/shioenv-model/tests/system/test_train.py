"""A complete model made from a recipe, with questions."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from shioenv.dataset.record_reader import read_records
from shioenv.domain.inputs import Input
from shioenv.errors import ModelError
from shioenv.execution.local import SerialExecutor
from shioenv.seeding import generator
from shioenv.system.catalogue import catalogue, quoted_name
from shioenv.system.store import System
from shioenv_model.files import load_model, pack
from shioenv_model.training.material import (
    Material,
    datasets_in,
    described,
    find_recipe,
    make_material,
    probe_inputs,
)
from shioenv_model.training.material_samplers import OTHERS, PATHS, crossed, variants
from support.nightly import NIGHTLY

RECIPE = """
schema = 1
[[part]]
name = "people"
count = 30
seed = 3
[[part]]
name = "crossed"
sampler = "crossed"
policy = "people"
count = 20
seed = 3
[[part]]
name = "probes"
sampler = "probes"
count = 30
seed = 3
"""


@dataclass(frozen=True)
class MadeMaterial:
    """A recipe's material and the parts that were reported while it was made."""

    recipe: Path
    directory: Path
    material: Material
    reported: list[str]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, system: System) -> MadeMaterial:
    directory = tmp_path_factory.mktemp("material")
    recipe, reported = directory / "recipe.toml", list[str]()
    recipe.write_text(RECIPE)
    material = make_material(
        find_recipe(recipe),
        directory / "material",
        SerialExecutor(),
        report=lambda part, *counts: reported.append(part),
    )
    return MadeMaterial(recipe, directory / "material", material, reported)


def test_a_model_is_made_from_a_recipe(
    made: MadeMaterial, tmp_path: Path, system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    from shioenv_model.training.memory_training import train_memory

    assert [each.name for each in made.material.directories] == ["people", "crossed", "probes"]
    assert {"people", "crossed", "probes"} <= set(made.reported)
    assert make_material(made.recipe, made.directory, SerialExecutor()) == made.material
    datasets = datasets_in(made.directory)
    card = train_memory(datasets, tmp_path / "made", name="tiny", questions=20, seed=0)
    assert card["system_digest"] == system.digest
    assert [part["sampler"] for part in card["material"]] == ["crossed", "gcs", "probes"]
    assert {part["recipe_sha256"] for part in card["material"]} == {made.material.digest}
    assert all(part["grammar_digest"] and part["version"] for part in card["material"])
    pack(tmp_path / "made", tmp_path / "tiny.model")
    monkeypatch.setenv("SHIOENV_CACHE", str(tmp_path / "cache"))
    model = load_model(tmp_path / "tiny.model")
    text = model.memory.index.entry(0).text
    assert model.answer(text).confidence >= 0.3
    assert system.digest[:12] in model.version


def test_a_dataset_that_no_recipe_made_says_so(made: MadeMaterial, tmp_path: Path) -> None:
    shutil.copytree(made.directory, tmp_path / "material")
    people = tmp_path / "material" / "people"
    assert described(people)["recipe_sha256"] == made.material.digest
    people.rename(tmp_path / "material" / "mine")
    assert described(tmp_path / "material" / "mine")["recipe_sha256"] == ""


REGIMES = """
schema = 1
[[part]]
name = "high"
policy = "paper"
min_irreducibility = 0.5
count = 6
seed = 3
[[part]]
name = "low"
policy = "paper"
max_irreducibility = 0.5
count = 3
seed = 3
[[part]]
name = "typed"
sampler = "nl2cmd"
inputs = "typed.jsonl"
count = 2
seed = 3
[[part]]
name = "sessions"
session_length = 2
count = 4
seed = 3
"""


@NIGHTLY
def test_the_papers_regimes_are_parts_of_a_recipe(tmp_path: Path, system: System) -> None:
    (tmp_path / "recipe.toml").write_text(REGIMES)
    lines = ['{"input": "ls -a", "cwd": "/tmp"}', "", "pwd", "whoami"]
    (tmp_path / "typed.jsonl").write_text("\n".join(lines))
    out = tmp_path / "material"
    made = make_material(tmp_path / "recipe.toml", out, SerialExecutor())
    high, low, typed, sessions = (list(read_records(each)) for each in made.directories)
    assert [len(each) for each in (high, low, typed, sessions)] == [6, 3, 2, 4]
    scores = [[record.irreducibility for record in each] for each in (high, low)]
    assert all(score is not None and score >= 0.5 for score in scores[0])
    assert all(score is not None and score <= 0.5 for score in scores[1])
    assert typed[0].input == "cd /tmp; ls -a"
    assert {len(record.history) for record in sessions} == {0, 1}
    assert len(list((out / "pools").iterdir())) == 1
    assert datasets_in(out) == sorted(made.directories)
    assert make_material(tmp_path / "recipe.toml", out, SerialExecutor()) == made
    (tmp_path / "typed.jsonl").unlink()
    with pytest.raises(ModelError, match=r"typed\.jsonl, which does not exist"):
        make_material(tmp_path / "recipe.toml", tmp_path / "other", SerialExecutor())


def test_crossed_inputs_have_every_class_of_operand_and_every_value(system: System) -> None:
    names = catalogue(system)
    written = Input.from_marked(["head", "-n 5", "--", "data/numbers.txt"])
    texts = list(variants(written, names, generator(1)))
    assert {"head -n 0 -- data/numbers.txt", "head -n 65536 -- data/numbers.txt"} <= set(texts)
    asked = [text.removeprefix("head -n 5 -- ") for text in texts if text.startswith("head -n 5 ")]
    for token in PATHS:
        assert any(each in {quoted_name(name) for name in names[token]} for each in asked), token
    assert set(OTHERS) <= set(asked)
    misspelt = [each for each in asked if system.resolve(f"/home/ubuntu/{each.strip()}") is None]
    assert any(each.startswith("data/") for each in misspelt)
    assert not {quoted_name(name) for name in names["Fifo"]} & set(asked)
    owner = set(variants(Input.from_marked(["chown", "alice", "x"]), names, generator(1)))
    assert {f"chown {name} x" for name in names["Username"] if name != "alice"} <= owner
    modes = list(variants(Input.from_marked(["chmod", "644", "x"]), names, generator(1)))
    assert {"chmod u+x x", "chmod 000 x"} <= set(modes)
    assert "touch -d yesterday x" in list(
        variants(Input.from_marked(["touch", "-d now", "x"]), names, generator(1))
    )


def test_crossed_inputs_are_drawn_by_the_seed(system: System) -> None:
    asked = crossed(system, 400, 5, "people")
    assert len(set(asked)) == 400
    assert asked == crossed(system, 400, 5, "people")
    assert asked[:100] == crossed(system, 100, 5, "people")
    assert asked != crossed(system, 400, 6, "people")


def test_probes_ask_every_command_for_every_letter(system: System) -> None:
    asked = probe_inputs(system, 100_000, 5)
    assert {"ls", "ls --help", "ls -y", "ip addr", "ip addr -Z", "wc -l"} <= set(asked)
    assert asked == probe_inputs(system, 100_000, 5)
    assert asked != probe_inputs(system, 100_000, 6)
    assert probe_inputs(system, 10, 5) == asked[:10]
