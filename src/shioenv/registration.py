"""The environments' Gymnasium ids.

Gymnasium has no entry points for plugins: an id exists once somebody has called `register`.
Gymnasium's own idiom names the module that registers: `gymnasium.make("shioenv.env:ShIOEnv-v0")`
works whatever was imported before. `import shioenv` does not load Gymnasium; it registers the ids
where Gymnasium is loaded already. This module needs only the standard library.
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
"""By id: the environment's class as `module:name`, which `gymnasium.make` imports."""

VECTOR_ENTRY_POINTS: Mapping[str, str] = MappingProxyType(
    {
        "ShIOEnv-Grammar-v0": "shioenv.env.vector:GrammarVectorEnv",
        "ShIOEnv-Task-v0": "shioenv.tasks.vector:TaskVectorEnv",
    }
)
"""By id, where it has a vector of its own: the class, which `gymnasium.make_vec` imports."""


def register_where_loaded() -> None:
    """Register the ids if Gymnasium is loaded, else do nothing; any number of calls."""
    if GYMNASIUM in sys.modules:
        register()


def register() -> None:
    """Import Gymnasium and register the ids; an id that is registered already stays as it is."""
    from gymnasium.envs import registration

    for name, entry_point in ENTRY_POINTS.items():
        if name not in registration.registry:
            vector = VECTOR_ENTRY_POINTS.get(name)
            registration.register(id=name, entry_point=entry_point, vector_entry_point=vector)
