import pickle
from copy import deepcopy

import pytest

from shioenv.env.spaces import ShellText, action_space, grid_space

TEXTS = ["", "ls", "x" * 64, "naïve", "漢字😀", "\t", "'\"`$\\"]


@pytest.mark.parametrize("text", TEXTS)
def test_texts_of_the_space(text: str) -> None:
    assert ShellText().contains(text)


@pytest.mark.parametrize("text", ["x" * 65, "a\0", "a\n", "\ud800", 3, None, b"ls"])
def test_texts_that_are_none_of_its(text: object) -> None:
    assert not ShellText().contains(text)


def test_samples_are_members_and_seeded() -> None:
    space = action_space()
    space.seed(3)
    drawn = [space.sample() for _ in range(200)]
    assert all(space.contains(action) for action in drawn)
    space.seed(3)
    assert drawn == [space.sample() for _ in range(200)]
    lengths = {len(action["input_addition"]) for action in drawn}
    assert 0 in lengths
    assert 64 in lengths


def test_spaces_compare_copy_and_pickle() -> None:
    space = grid_space(2, 3, 16)
    assert space == deepcopy(space) == pickle.loads(pickle.dumps(space))
    assert space != grid_space(2, 3, 17)
    assert len(pickle.dumps(grid_space(11, 48))) < 2_000_000
