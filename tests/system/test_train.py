"""A model made from a recipe to the end, and asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from shioenv.execution.local import SerialExecutor
from shioenv.modeling.material import datasets_in, find_recipe, make_material, probes
from shioenv.modeling.model import load_model, pack
from shioenv.system.store import System

RECIPE = """
schema = 1
[[part]]
name = "people"
count = 30
seed = 3
[[part]]
name = "probes"
sampler = "probes"
count = 30
seed = 3
"""


def test_a_model_is_made_from_a_recipe(
    tmp_path: Path, system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sklearn", reason="needs the extra shioenv[train]")
    from shioenv.modeling.learning import train_memory

    (tmp_path / "recipe.toml").write_text(RECIPE)
    told: list[str] = []
    made = make_material(
        find_recipe(tmp_path / "recipe.toml"),
        tmp_path / "material",
        SerialExecutor(),
        report=lambda part, *counts: told.append(part),
    )
    assert [each.name for each in made.directories] == ["people", "probes"]
    assert {"people", "probes"} <= set(told)
    again = make_material(tmp_path / "recipe.toml", tmp_path / "material", SerialExecutor())
    assert again == made
    datasets = datasets_in(tmp_path / "material")
    card = train_memory(datasets, tmp_path / "made", name="tiny", questions=20, seed=0)
    assert card["system_digest"] == system.digest
    assert [part["sampler"] for part in card["material"]] == ["gcs", "probes"]
    pack(tmp_path / "made", tmp_path / "tiny.model")
    monkeypatch.setenv("SHIOENV_CACHE", str(tmp_path / "cache"))
    model = load_model(tmp_path / "tiny.model")
    text = model.memory.index.entry(0).text
    assert model.answer(text).confidence >= 0.3
    assert system.digest[:12] in model.version


def test_probes_ask_every_command_for_every_letter(system: System) -> None:
    asked = probes(system, 100_000, 5)
    assert {"ls", "ls --help", "ls -y", "ip addr", "ip addr -Z", "wc -l"} <= set(asked)
    assert asked == probes(system, 100_000, 5)
    assert asked != probes(system, 100_000, 6)
    assert probes(system, 10, 5) == asked[:10]
