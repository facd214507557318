"""Recipes: how the parts of a material are drawn."""

from __future__ import annotations

from pathlib import Path

import pytest

from shioenv.errors import ModelError
from shioenv_model.training.material import MaterialPart, enlarged, read_recipe
from shioenv_model.training.material_samplers import CROSSED


def test_a_part_without_a_policy_is_drawn_by_the_default_of_its_sampler() -> None:
    chosen = {
        name: MaterialPart(name="one", count=1, seed=1, sampler=name).drawing.policy
        for name in ("gcs", "ucs", "ucs-universal", CROSSED)
    }
    assert chosen == {"gcs": "people", "ucs": "paper", "ucs-universal": "paper", CROSSED: "people"}
    named = MaterialPart(name="one", count=1, seed=1, sampler="ucs", policy="uniform")
    assert named.drawing.policy == "uniform"


@pytest.mark.parametrize("how", ['inputs = "list"', 'sampler = "probes"', 'sampler = "stages"'])
def test_bounds_on_scores_are_refused_where_nothing_is_scored(tmp_path: Path, how: str) -> None:
    recipe = tmp_path / "recipe.toml"
    part = '[[part]]\nname = "few"\ncount = 3\nseed = 1\nmin_irreducibility = 0.5\n'
    recipe.write_text(f"schema = 1\n{part}")
    assert read_recipe(recipe).part[0].selection is not None
    recipe.write_text(f"schema = 1\n{part}{how}\n")
    with pytest.raises(ModelError, match="few has bounds on scores"):
        read_recipe(recipe)


def test_a_count_is_enlarged_until_enough_of_a_kind_are_in_it() -> None:
    assert enlarged(100, 25, 50) == 100 + 105
    assert enlarged(1000, 999, 1000) == 1002
    assert enlarged(10, 0, 3) == 42, "more even where there was none"
