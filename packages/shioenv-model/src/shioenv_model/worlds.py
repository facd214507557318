"""What is known of a built system, written down."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shioenv.behavior.observe import open_sandbox
from shioenv.system.store import find_system
from shioenv_model.memory.world import World, world_of


def world_called(name: str, start: str | None = None) -> World:
    """The built system of this name as a world, told from a start directory.

    A sandbox of the system is opened for that.

    Errors: those of `open_sandbox`.
    """
    with open_sandbox(name) as sandbox:
        return world_of(find_system(name), sandbox.context(start))


def asked_elsewhere(card: Mapping[str, Any], system: str, start: str) -> World | None:
    """The system that a model is asked about, as a world; None where the model is of that system.

    A model whose card names no system is of any. Errors: those of `world_called`.
    """
    return None if card.get("system", system) == system else world_called(system, start)
