"""Recipes: how the parts of a material are drawn."""

from __future__ import annotations

from shioenv.training.material import MaterialPart
from shioenv.training.samplers import CROSSED


def test_a_part_without_a_policy_is_drawn_by_the_default_of_its_sampler() -> None:
    chosen = {
        name: MaterialPart(name="one", count=1, seed=1, sampler=name).drawing.policy
        for name in ("gcs", "ucs", "ucs-universal", CROSSED)
    }
    assert chosen == {"gcs": "people", "ucs": "paper", "ucs-universal": "paper", CROSSED: "people"}
    named = MaterialPart(name="one", count=1, seed=1, sampler="ucs", policy="uniform")
    assert named.drawing.policy == "uniform"
