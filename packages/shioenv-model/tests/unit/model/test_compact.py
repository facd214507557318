"""Patches as lines: parsing inverts formatting, and nothing inconsistent is ever generated."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shioenv.domain.behavior import Behavior
from shioenv.domain.context import Context
from shioenv.domain.patch import ContextPatch
from shioenv_model.sequence.compact import (
    ERRORS,
    OUTPUT,
    Acceptor,
    DocumentNames,
    Now,
    accepts,
    operations_of,
    patch_lines,
    target_of,
)
from support.small_world import entry, small_world

NOW = Now("Oct", 16, 2025, "19:43")
LATER = Now("Nov", 2, 2025, "08:00")
BEFORE: dict[str, Any] = {
    **small_world().state().before.document,
    "user": "root",
    "umask": "0022",
    "limits": {"open files": "1024"},
    "shell_options": {"dotglob": False},
}
NAMES = DocumentNames(BEFORE)
NEW = entry(0)


def back(lines: str, now: Now = NOW) -> ContextPatch:
    return ContextPatch(tuple(operations_of(lines, BEFORE, now)))


@pytest.mark.parametrize(
    ("operations", "lines"),
    [
        ([("a", "/fs/new", NEW)], "+new -rw-r--r-- 1 0\n"),
        (
            [("a", "/fs/new", {**NEW, "owner": "bob", "size": 7})],
            "+new -rw-r--r-- 1 7 bob:root\n",
        ),
        ([("a", "/fs/b c", NEW)], "+b\\x20c -rw-r--r-- 1 0\n"),
        ([("a", "/fs/ä\\\\b", NEW)], "+ä\\\\b -rw-r--r-- 1 0\n"),
        (
            [("a", "/fs/~1tmp~1s", {**NEW, "perms": "lrwxrwxrwx", "target": "a.txt"})],
            "+/tmp/s lrwxrwxrwx 1 0 >a.txt\n",
        ),
        ([("r", "/fs/a.txt")], "-a.txt\n"),
        ([("m", "/fs/a.txt", "/fs/sub~1a.txt")], ">a.txt sub/a.txt\n"),
        ([("=", "/fs/a.txt/perms", "-rwx------")], "=a.txt perms -rwx------\n"),
        ([("=", "/cwd", "/tmp")], 's /cwd "/tmp"\n'),
        ([("=", "/limits/open files", "100")], 's /limits/open\\x20files "100"\n'),
        ([("=", "/shell_options/dotglob", True)], "s /shell_options/dotglob true\n"),
        ([("a", "/env/X", "1 2")], 'a /env/X "1 2"\n'),
        ([("r", "/env/HOME")], "r /env/HOME\n"),
        ([("=", "/fs/link/target", "b.txt")], "=link target b.txt\n"),
        ([("=", "/fs/link/target", "@")], "=link target @\n"),
        ([("a", "/fs/a.txt/target", "b.txt")], "=a.txt target b.txt\n"),
    ],
)
def test_a_patch_is_said_in_lines_and_read_back(
    operations: list[tuple[Any, ...]], lines: str
) -> None:
    patch = ContextPatch(tuple(operations))
    assert patch_lines(patch, NAMES, NOW) == lines
    assert back(lines) == patch


def test_what_is_changed_now_says_so_and_nothing_of_the_date_that_was_the_same() -> None:
    patch = ContextPatch(
        (
            ("=", "/fs/a.txt/size", 9),
            ("=", "/fs/a.txt/month", "Nov"),
            ("=", "/fs/a.txt/day", 2),
            ("=", "/fs/a.txt/time", "08:00"),
        )
    )
    assert patch_lines(patch, NAMES, LATER) == "=a.txt size 9 @\n"
    assert back("=a.txt size 9 @\n", LATER) == patch


def test_what_lines_cannot_say_is_not_said() -> None:
    for operation in [
        ("a", "/fs/new", {"size": 1}),
        ("m", "/env/HOME", "/env/X"),
        ("r", "/fs/link/target"),
        ("r", "/fs/gone"),
    ]:
        assert patch_lines(ContextPatch((operation,)), NAMES, NOW) is None


@pytest.mark.parametrize(
    "lines",
    [
        "-gone\n", "-\n", "\n", "-a.txt\n-a.txt\n", ">a.txt b\n=a.txt size 1\n", "=a.txt\n",
        "=a.txt size -1\n", "=a.txt day 32\n", "=a.txt perms drwx\n", "+x -rw-r--r-- 1\n",
        "+a b -rw-r--r-- 1 0\n", 's /cwd 7\n', 's /env {}\n', 's /nothing "x"\n', "r /cwd\n",
        'a /fs/x {"size":1}\n', "s /shell_options/dotglob 1\n", "+x -rw-r--r-- 1 0 >\n", "q\n",
        "r /env/HOME\nr /env/HOME\n", "-a.txt",
    ],
)  # fmt: skip
def test_what_does_not_fit_cannot_be_written(lines: str) -> None:
    assert not accepts(lines, NAMES)


def test_what_is_made_can_be_changed_and_what_is_moved_has_its_new_name() -> None:
    assert accepts("+new -rw-r--r-- 1 0\n=new size 3\n-new\n", NAMES)
    assert accepts(">a.txt c.txt\n=c.txt size 3 @\n", NAMES)


LETTERS = [bytes([each]) for each in b'+->=sra /.\n0124"\\x{}:,@abcdeknortuvwfimzOSNH_-TAR']


@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.5]))
@settings(max_examples=60, deadline=None)
def test_whatever_is_written_letter_by_letter_fits_and_can_be_completed(
    seed: int, bias: float
) -> None:
    """Every prefix has a permitted next letter, and the patch applies at the end of each line."""
    rng = random.Random(seed)
    state = Acceptor(NAMES)
    written = b""
    for _ in range(120):
        order = rng.sample(LETTERS, len(LETTERS))
        if rng.random() < bias:
            order.insert(0, b"\n")
        every = (bytes([byte]) for byte in range(256))
        for letter in (*order, *every):
            after = state.after(letter)
            if after is not None:
                break
        assert after is not None, written
        state, written = after, written + letter
        if not state.line:
            patch = ContextPatch(tuple(operations_of(written.decode(), BEFORE, NOW)))
            Context(patch.apply(BEFORE))


def test_a_target_tells_the_channels_apart_in_the_order_they_arrived() -> None:
    behavior = Behavior(1, b"a\nbad\nb\n", stdout=b"a\nb\n", stderr=b"bad\n")
    target = target_of(behavior, NAMES, NOW)
    assert target is not None
    assert target.printed == ((OUTPUT, b"a\n"), (ERRORS, b"bad\n"), (OUTPUT, b"b\n"))
    again = target.behavior(ContextPatch())
    assert (again.output, again.stdout, again.stderr) == (b"a\nbad\nb\n", b"a\nb\n", b"bad\n")
