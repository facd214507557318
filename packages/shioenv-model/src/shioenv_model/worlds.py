"""Worlds of built systems: recorded descriptions of their files and settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shioenv.behavior.observe import open_sandbox
from shioenv.system.store import find_system
from shioenv_model.memory.world import World, world_of


def world_called(name: str, start: str | None = None) -> World:
    """Build the world of a built system, described from a start directory.

    This opens a sandbox of the system.

    Errors: those of `open_sandbox`.
    """
    with open_sandbox(name) as sandbox:
        return world_of(find_system(name), sandbox.context(start))


def world_of_system(card: Mapping[str, Any], system: str, start: str) -> World | None:
    """Return the world of the requested system; None if it is the model's own system.

    If the model's card names no system, it fits every system. Errors: those of `world_called`.
    """
    return None if card.get("system", system) == system else world_called(system, start)
