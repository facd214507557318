"""Parts of killed work: continued by the same plan alone, and only if they are complete."""

from __future__ import annotations

import fcntl
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from shioenv.files.unfinished import Parts, unfinished


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SHIOENV_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "unfinished"


class _Killed(BaseException):
    pass


def parts(directory: Path) -> Parts[int]:
    return Parts(directory, "squares", encode=lambda part: {"square": part}, decode=_square)


def _square(document: dict[str, int]) -> int:
    if document["square"] < 0:
        raise ValueError
    return document["square"]


def begun(plan: object, numbers: range) -> Path:
    """Return work that is killed after these parts."""
    with suppress(_Killed), unfinished("work", plan) as directory, parts(directory) as made:
        for number in numbers:
            made.add(str(number), number**2)
        raise _Killed
    return directory


def kept(plan: object) -> dict[str, int]:
    """Return the files that a second call takes over; it is killed as well."""
    with suppress(_Killed), unfinished("work", plan) as directory, parts(directory) as made:
        found = dict(made.values)
        assert made.kept == len(found)
        raise _Killed
    return found


def test_the_same_plan_goes_on_and_another_begins(cache: Path) -> None:
    begun({"seed": 1}, range(3))
    assert kept({"seed": 1}) == {"0": 0, "1": 1, "2": 4}
    assert kept({"seed": 2}) == {}
    begun({"seed": 1}, range(3, 5))
    assert len(kept({"seed": 1})) == 5


def test_what_ends_leaves_nothing(cache: Path) -> None:
    begun([1], range(3))
    with unfinished("work", [1]) as directory, parts(directory) as made:
        assert made.add("x", 9) == 9
    assert not list(cache.iterdir())


@pytest.mark.parametrize(
    "damage",
    [
        lambda lines: [*lines[:-1], lines[-1][:-5]],
        lambda lines: [*lines[:-1], lines[-1].replace(b"4", b"5")],
        lambda lines: [*lines[:-1], lines[-1].replace(b"square", b"cube")],
        lambda lines: [*lines[:-1], b"\0" * 40],
    ],
)
def test_damaged_parts_are_made_again(damage) -> None:  # type: ignore[no-untyped-def]
    (journal,) = begun([1], range(3)).iterdir()
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(damage(lines)))
    assert kept([1]) == {"0": 0, "1": 1}


def test_a_part_that_is_no_longer_read_is_made_again() -> None:
    with suppress(_Killed), unfinished("work", 1) as directory:
        with Parts[int](directory, "squares", encode=lambda part: part, decode=int) as made:
            made.add("a", 1)
        raise _Killed
    assert kept(1) == {}


def test_a_second_call_beside_the_first_shares_nothing(cache: Path) -> None:
    with unfinished("work", 1) as first, parts(first) as made:
        made.add("a", 1)
        with unfinished("work", 1) as second, parts(second) as others:
            assert others.values == {}
        assert not second.exists()
        assert first.exists()


def test_a_directory_that_was_removed_before_its_lock_is_not_shared(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The previous call ends between opening and locking, and removes the directory."""
    lock = fcntl.flock
    ended: list[bool] = []

    def removed_first(handle: int, how: int) -> None:
        if not ended:
            ended.append(True)
            for directory in cache.iterdir():
                directory.rmdir()
        lock(handle, how)

    monkeypatch.setattr(fcntl, "flock", removed_first)
    with unfinished("work", 1) as first:
        assert first.is_dir()
        with unfinished("work", 1) as second:
            assert second != first
    assert not list(cache.iterdir())


def test_only_missing_parts_are_made(tmp_path: Path) -> None:
    made: list[int] = []

    def squared(tasks: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        for number, task in tasks:
            made.append(number)
            yield number, task**2

    tasks = [(number, number) for number in range(5)]
    with parts(tmp_path) as first:
        assert dict(first.completed(squared, tasks[1:3])) == {1: 1, 2: 4}
    with parts(tmp_path) as second:
        assert dict(second.completed(squared, tasks)) == {0: 0, 1: 1, 2: 4, 3: 9, 4: 16}
    assert made == [1, 2, 0, 3, 4]
