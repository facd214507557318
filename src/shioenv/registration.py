"""The environments' Gymnasium ids.

Gymnasium has no entry points for plugins: an id exists once somebody has called `register`. Its own
idiom imports the module that registers: `gymnasium.make("shioenv.env:ShIOEnv-v0")` works whatever
was imported before. `import shioenv` does not load Gymnasium: it registers the ids where Gymnasium
is loaded already. This module needs the standard library alone.
"""

from __future__ import annotations

import sys
from types import MappingProxyType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

GYMNASIUM = "gymnasium"

ENTRY_POINTS: Mapping[str, str] = MappingProxyType(
    {
        "ShIOEnv-v0": "shioenv.env.shio_env:ShIOEnv",
        "ShIOEnv-Grammar-v0": "shioenv.env.grammar_env:GrammarEnv",
        "ShIOEnv-Task-v0": "shioenv.tasks.env:TaskEnv",
    }
)
"""Where the class of each id is; imported by `gymnasium.make`."""

VECTOR_ENTRY_POINTS: Mapping[str, str] = MappingProxyType(
    {"ShIOEnv-Grammar-v0": "shioenv.env.vector:GrammarVectorEnv"}
)
"""Where the class of each id's own vector is; imported by `gymnasium.make_vec`."""


def register_where_loaded() -> None:
    """Register the ids if Gymnasium is loaded; else nothing. Any number of calls."""
    if GYMNASIUM in sys.modules:
        register()


def register() -> None:
    """Register the ids with Gymnasium, which is imported; what is registered already stays."""
    from gymnasium.envs import registration

    for name, entry_point in ENTRY_POINTS.items():
        if name not in registration.registry:
            vector = VECTOR_ENTRY_POINTS.get(name)
            registration.register(id=name, entry_point=entry_point, vector_entry_point=vector)
