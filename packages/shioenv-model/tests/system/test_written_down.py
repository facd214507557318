"""A built system, serialised for a model."""

from __future__ import annotations

from shioenv.behavior.observe import SandboxRunner
from shioenv.system.store import System
from shioenv_model.memory.world import World, world_of


def test_a_world_knows_what_a_file_looks_like_that_is_made_now(
    observer: SandboxRunner, system: System
) -> None:
    world = world_of(system, observer.context())
    ((_, path, entry),) = observer.run("touch a-new-file").patch.operations
    assert (path, entry) == ("/fs/a-new-file", world.made)
    assert World.from_json(world.to_json()).made == world.made
