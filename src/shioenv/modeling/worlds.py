"""What is known of a built system, written down."""

from __future__ import annotations

from shioenv.domain.context import Context
from shioenv.modeling.learning import _shown_in_proc, reader
from shioenv.modeling.world import World
from shioenv.system.store import System


def world_of(system: System, context: Context) -> World:
    """A built system as a world, told from where the context is."""
    return World.of(context, reader(system), _shown_in_proc(system))
