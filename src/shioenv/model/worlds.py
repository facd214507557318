"""What is known of a built system, written down."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shioenv.behavior.observe import open_sandbox
from shioenv.system.store import find_system
from shioenv.system.world import World, world_of


def world_called(name: str, start: str | None = None) -> World:
    """A built system of this name as a world, told from a start directory. It is opened for that.

    Errors: those of `open_sandbox`.
    """
    with open_sandbox(name) as sandbox:
        return world_of(find_system(name), sandbox.context(start))


def asked_elsewhere(card: Mapping[str, Any], system: str, start: str) -> World | None:
    """The machine that a model is asked about, by its name; None where its card says that it is of
    that one, or of none. Errors: those of `world_called`.
    """
    return None if card.get("system", system) == system else world_called(system, start)
