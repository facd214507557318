"""The commands that `xargs` and `find -exec` run are derived completely, or not at all."""

from __future__ import annotations

import shlex

import pytest

from shioenv_model.composition.callers import arguments_passed, parse_find


@pytest.mark.parametrize(
    ("words", "data", "calls"),
    [
        ("xargs", b"a b\n c\n", ["echo a b c"]),
        ("xargs wc -l", b"a\nb\n", ["wc -l a b"]),
        ("xargs -n 2 wc", b"a b c", ["wc a b", "wc c"]),
        ("xargs -n1 wc", b"a b", ["wc a", "wc b"]),
        ("xargs -0 rm -f", b"a b\0c\0", ["rm -f 'a b' c"]),
        ("xargs -d , ls", b"a b,c", ["ls 'a b' c"]),
        ("xargs -I {} mv {} x/{}", b"a\n  b c\n\n", ["mv a x/a", "mv 'b c' 'x/b c'"]),
        ("xargs -r ls", b" \n", []),
        ("xargs ls", b"", ["ls"]),
        ("xargs ls", b"it's", None),
        ("xargs -P 2 ls", b"a", None),
        ("xargs -t ls", b"a", None),
        ("xargs cd", b"a", None),
        ("xargs printf x", b"a", None),
        ("xargs -n 0 ls", b"a", None),
        ("xargs -n 1 ls", b"a " * 100, None),
        ("xargs ls", b"a " * 60_000, None),
    ],
)
def test_arguments_are_passed_as_xargs_does(
    words: str, data: bytes, calls: list[str] | None
) -> None:
    passed = arguments_passed(words.split(), data)
    assert passed == (None if calls is None else [tuple(shlex.split(call)) for call in calls])


def test_a_find_lists_what_it_runs_a_command_for() -> None:
    search = parse_find(["find", ".", "-name", "*.c", "-exec", "cp", "{}", "{}.old", ";"])
    assert search is not None
    assert search.listing == ("find", ".", "-name", "*.c", "-print0")
    assert search.calls(b"./a.c\0./b c.c\0") == [
        ("cp", "./a.c", "./a.c.old"),
        ("cp", "./b c.c", "./b c.c.old"),
    ]
    together = parse_find(["find", "d", "-exec", "wc", "-l", "{}", "+"])
    assert together is not None
    assert together.calls(b"d\0d/e\0") == [("wc", "-l", "d", "d/e")]
    assert together.calls(b"") == []


@pytest.mark.parametrize(
    "words",
    [
        "find . -exec ls {} ; -print",
        "find . -name a -o -exec ls {} ;",
        "find . -delete -exec ls {} ;",
        "find . ! -exec ls {} ;",
        "find . -exec ls {} a +",
        "find . -exec pwd ;",
        "find . -exec ls {}",
        "find . -exec ls {} ; -exec wc {} ;",
        "find . -execdir ls {} ;",
    ],
)
def test_a_find_that_does_more_is_left_whole(words: str) -> None:
    assert parse_find(words.split()) is None
