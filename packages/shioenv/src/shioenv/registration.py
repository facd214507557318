"""Registration of the environments' Gymnasium ids.

Since Gymnasium 1.0 there are no entry points for plugins: ids must be registered with `register`.
`import shioenv` does not load Gymnasium. It registers the ids at once if Gymnasium is loaded, and
otherwise when Gymnasium is imported. This module needs only the standard library.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from types import MappingProxyType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

GYMNASIUM = "gymnasium"

ENTRY_POINTS: Mapping[str, str] = MappingProxyType(
    {
        "ShIOEnv-v0": "shioenv.env.shio_env:ShIOEnv",
        "ShIOEnv-Grammar-v0": "shioenv.env.grammar_env:GrammarEnv",
        "ShIOEnv-Task-v0": "shioenv.registration:task_env",
    }
)
"""The class of each environment id (`module:name`), which `gymnasium.make` imports."""

VECTOR_ENTRY_POINTS: Mapping[str, str] = MappingProxyType(
    {
        "ShIOEnv-Grammar-v0": "shioenv.env.vector:GrammarVectorEnv",
        "ShIOEnv-Task-v0": "shioenv.registration:task_vector_env",
    }
)
"""The dedicated vector class of an environment id, which `gymnasium.make_vec` imports."""


TASKS = "ShIOEnv-Task-v0"
"""The id of the environment in `shioenv-agents`."""


def task_env(**options: Any) -> Any:
    """Make an environment of a task. Errors: MissingExtraError without `shioenv-agents`."""
    return _guest_of(TASKS)(**options)


def task_vector_env(**options: Any) -> Any:
    """Make a vector of such environments. Errors: those of `task_env`."""
    return _guest_of(f"{TASKS}.vector")(**options)


def _guest_of(name: str) -> Any:
    from shioenv.guests import load_guest

    return load_guest("shioenv.environments", name, feature=TASKS, extra="agents")


def register_when_loaded() -> None:
    """Register the ids now, or when Gymnasium is imported. May be called repeatedly."""
    if GYMNASIUM in sys.modules:
        register()
    elif _WHEN_LOADED not in sys.meta_path:
        sys.meta_path.insert(0, _WHEN_LOADED)


def register() -> None:
    """Import Gymnasium and register the ids that are not registered yet."""
    from gymnasium.envs import registration

    for name, entry_point in ENTRY_POINTS.items():
        if name not in registration.registry:
            vector = VECTOR_ENTRY_POINTS.get(name)
            registration.register(id=name, entry_point=entry_point, vector_entry_point=vector)


class _WhenLoaded:
    """A meta path finder that registers the ids on the import of Gymnasium, then removes itself."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find Gymnasium with the other finders, and make its loader register the ids."""
        if name != GYMNASIUM:
            return None
        others = [finder for finder in sys.meta_path if finder is not self]
        for find in [getattr(finder, "find_spec", None) for finder in others]:
            spec: ModuleSpec | None = find(name, path, target) if find else None
            if spec is not None:
                _register_after(spec)
                return spec
        return None


_WHEN_LOADED = _WhenLoaded()


def _register_after(spec: ModuleSpec) -> None:
    """Make the loader of a module spec register the ids after executing the module."""
    loader = spec.loader
    execute = getattr(loader, "exec_module", None)
    if execute is None:
        return

    def execute_and_register(module: ModuleType) -> None:
        execute(module)
        register()
        with suppress(ValueError):
            sys.meta_path.remove(_WHEN_LOADED)

    with suppress(AttributeError):  # some loaders do not allow this
        loader.exec_module = execute_and_register  # type: ignore[union-attr, method-assign]
