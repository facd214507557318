"""Another system drawn from a declared one."""

from __future__ import annotations

from pathlib import Path

import pytest

from shioenv.errors import OutputExistsError
from shioenv.system.declare import load_declaration
from shioenv.system.derive import derive
from shioenv.system.home import load_home


@pytest.mark.parametrize("base", ["debian-12", "ubuntu-24.04"])
@pytest.mark.parametrize("seed", range(4))
def test_it_is_a_declaration_whose_tree_can_be_read(base: str, seed: int, tmp_path: Path) -> None:
    file = derive(base, "another", seed, tmp_path / "another")
    before, after = load_declaration(base), load_declaration(str(file))
    assert after.name == "another"
    assert after.distribution == before.distribution
    assert not {user.name for user in after.users} & {user.name for user in before.users}
    assert [user.uid for user in after.users] == [user.uid for user in before.users]
    assert after.start_directory == after.home.target != before.start_directory
    assert after.machine.hostname != before.machine.hostname
    assert after.instant != before.instant
    old, new = load_home(before), load_home(after)
    shared = {entry.path for entry in old} & {entry.path for entry in new}
    assert len(shared) < len(old) / 2
    assert len(new) > len(old) * 0.7
    contents = {entry.data for entry in old if entry.data}
    assert sum(entry.data in contents for entry in new) < len(new) * 0.7


def test_the_same_seed_gives_the_same_system_and_another_another(tmp_path: Path) -> None:
    places = [("one", 1), ("two", 1), ("three", 2)]
    made = [load_home(load_declaration(str(derive(None, "x", seed, tmp_path / name))))
            for name, seed in places]  # fmt: skip
    assert made[0] == made[1]
    assert made[0] != made[2]


def test_names_of_the_first_system_are_gone(tmp_path: Path) -> None:
    file = derive(None, "another", 5, tmp_path)
    text = file.read_text()
    home = text.partition("[machine.kernel]")[0].partition("[session]")[2]
    assert "ubuntu" not in home
    assert "alice" not in text


def test_a_directory_with_a_system_is_left_alone(tmp_path: Path) -> None:
    derive(None, "another", 5, tmp_path)
    with pytest.raises(OutputExistsError, match="has a system already"):
        derive(None, "another", 6, tmp_path)
