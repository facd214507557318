"""A memory and a sequence model evaluated on an unseen machine."""

from __future__ import annotations

from pathlib import Path

from shioenv.domain.context import Context
from shioenv.domain.runner import State
from shioenv_model.memory.world import World
from shioenv_model.predictors.memory import Remembering
from support.small_world import entry, small_memory, small_world

ELSEWHERE = "/home/mei"
SAID = b"quite\nanother\n"


def another_world() -> World:
    document = dict(small_world().state().before.document)
    document["fs"] = {**document["fs"], "letter.md": entry(len(SAID))}
    document["cwd"] = ELSEWHERE
    document["env"] = {**document["env"], "PWD": ELSEWHERE}
    return World(Context(document), {f"{ELSEWHERE}/letter.md": SAID})


def test_a_memory_speaks_of_the_files_of_the_machine_that_it_is_asked_about(
    tmp_path: Path,
) -> None:
    memory = small_memory(tmp_path)
    state = State(cwd=ELSEWHERE)
    there = Remembering(memory, "", (), True, another_world())
    assert there.run("cat letter.md", state).output == SAID
    gone = there.run("rm letter.md", state).patch
    assert gone.operations == (("r", "/fs/letter.md"),)
    here = Remembering(memory, "", (), True)
    assert here.run("cat letter.md", State(cwd=memory.world.start)).exit_code == 1
