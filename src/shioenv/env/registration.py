"""The environments' Gymnasium ids, registered as soon as Gymnasium is there and never before.

Gymnasium 1.x has no entry points for plugins: an id exists once somebody has called `register`.
`import shioenv` must not load Gymnasium, so `announce` registers at once where it is loaded already
and otherwise when it is imported. This module needs the standard library alone.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType, ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.abc import Loader
    from importlib.machinery import ModuleSpec

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


def announce() -> None:
    """Register the ids now if Gymnasium is loaded, else once it is. Any number of calls."""
    if GYMNASIUM in sys.modules:
        register()
    elif not any(isinstance(finder, _Watcher) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Watcher())


def register() -> None:
    """Register the ids with Gymnasium, which is imported; what is registered already stays."""
    from gymnasium.envs import registration

    for name, entry_point in ENTRY_POINTS.items():
        if name not in registration.registry:
            vector = VECTOR_ENTRY_POINTS.get(name)
            registration.register(id=name, entry_point=entry_point, vector_entry_point=vector)


class _Watcher:
    """Finds Gymnasium by the other finders, and gives it a loader that registers afterwards."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != GYMNASIUM:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Registering(spec.loader, self)  # type: ignore[assignment]
                return spec
        return None


class _Registering:
    """Loads Gymnasium as its own loader does, then registers and leaves no trace of itself."""

    def __init__(self, loader: Loader, watcher: _Watcher) -> None:
        self._loader = loader
        self._watcher = watcher

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        if self._watcher in sys.meta_path:
            sys.meta_path.remove(self._watcher)
        register()
