"""Composed patches equal the patch of all changes."""

from __future__ import annotations

from typing import Any

from shioenv.domain.patch import ContextPatch, Operation
from shioenv_model.composition.changes import Changes, composed

FILE = {"perms": "-rw-r--r--", "size": 3, "time": "10:00"}
DIRECTORY = {"perms": "drwxr-xr-x", "size": 4096, "time": "10:00"}
START: dict[str, Any] = {
    "cwd": "/h",
    "env": {"A": "1"},
    "fs": {".": DIRECTORY, "a": FILE, "d": DIRECTORY, "d/f": FILE, "d/g": FILE, "/t": DIRECTORY},
}


def together(*patches: tuple[Operation, ...]) -> list[Operation]:
    made = composed(START, [ContextPatch(each) for each in patches], "/h")
    document: Any = START
    for each in patches:
        document = ContextPatch(each).apply(document)
    done = made.apply(START)
    assert done["fs"].keys() == document["fs"].keys()
    return list(made.operations)


def test_what_comes_and_goes_is_nothing() -> None:
    assert together((("a", "/fs/n", FILE),), (("r", "/fs/n"),)) == []
    assert together((("=", "/cwd", "/t"),), (("=", "/cwd", "/h"),)) == []


def test_two_moves_are_one() -> None:
    assert together((("m", "/fs/a", "/fs/b"),), (("m", "/fs/b", "/fs/c"),)) == [
        ("m", "/fs/a", "/fs/c")
    ]
    assert together((("m", "/fs/a", "/fs/b"),), (("m", "/fs/b", "/fs/a"),)) == []


def test_what_was_moved_and_changed_is_another_file() -> None:
    changed = (("=", "/fs/b/size", 4),)
    assert together((("m", "/fs/a", "/fs/b"),), changed) == [
        ("r", "/fs/a"),
        ("a", "/fs/b", FILE | {"size": 4}),
    ]


def test_a_file_whose_content_alone_changed_is_still_the_same_file() -> None:
    changed, there, back = ("=", "/fs/a", FILE), ("m", "/fs/a", "/fs/b"), ("m", "/fs/b", "/fs/a")
    assert together((changed,), (there,)) == [there]
    assert together((there,), (("=", "/fs/b", FILE),)) == [there]
    assert together((there,), (("=", "/fs/b", FILE),), (back,)) == []
    assert together(
        (("m", "/fs/d", "/fs/e"), ("m", "/fs/d~1f", "/fs/e~1f"), ("m", "/fs/d~1g", "/fs/e~1g")),
        (("=", "/fs/e~1f", FILE),),
    ) == [
        ("m", "/fs/d", "/fs/e"),
        ("m", "/fs/d~1f", "/fs/e~1f"),
        ("m", "/fs/d~1g", "/fs/e~1g"),
    ]
    removed = (("r", "/fs/a"),)
    assert together(removed, (("a", "/fs/a", FILE),), (there,)) == [*removed, ("a", "/fs/b", FILE)]


def test_a_new_file_that_is_moved_is_new_where_it_went() -> None:
    assert together((("a", "/fs/n", FILE),), (("m", "/fs/n", "/fs/o"),)) == [("a", "/fs/o", FILE)]


def test_of_a_directory_in_which_something_came_no_time_is_told() -> None:
    touched = (
        ("a", "/fs/d~1n", FILE),
        ("=", "/fs/d/time", "11:00"),
        ("=", "/fs/~1t/time", "12:00"),
    )
    assert together(touched) == [("a", "/fs/d~1n", FILE), ("=", "/fs/~1t/time", "12:00")]
    assert together(touched, (("r", "/fs/d~1n"),)) == [
        ("=", "/fs/d/time", "11:00"),
        ("=", "/fs/~1t/time", "12:00"),
    ]


MOVED = (
    ("m", "/fs/d", "/fs/e"),
    ("m", "/fs/d~1f", "/fs/e~1f"),
    ("m", "/fs/d~1g", "/fs/e~1g"),
)


def test_a_moved_directory_is_one_while_all_of_it_is_there() -> None:
    assert together(MOVED) == list(MOVED)
    more = together(MOVED, (("a", "/fs/e~1n", FILE),))
    assert sorted(each[:2] for each in more if each[0] != "m") == [
        ("a", "/fs/e"), ("a", "/fs/e~1n"), ("r", "/fs/d")
    ]  # fmt: skip
    assert all(each in more for each in MOVED[1:])
    less = together(MOVED, (("r", "/fs/e~1g"),))
    assert ("r", "/fs/d~1g") in less
    assert [each for each in less if each[0] == "m"] == [MOVED[1]]


def test_a_file_moved_before_its_directory_went_was_moved() -> None:
    first = (("m", "/fs/d~1f", "/fs/n"),)
    gone = (("r", "/fs/d"), ("r", "/fs/d~1g"))
    assert ("m", "/fs/d~1f", "/fs/n") in together(first, gone)


def test_the_difference_of_two_ends_keeps_moves() -> None:
    before = Changes(START).add(ContextPatch((("m", "/fs/a", "/fs/b"),)))
    after = Changes(START).add(ContextPatch((("m", "/fs/a", "/fs/c"), ("=", "/env/A", "2"))))
    assert after.since(before).operations == (("=", "/env/A", "2"), ("m", "/fs/b", "/fs/c"))
    assert after.since(after).operations == ()
