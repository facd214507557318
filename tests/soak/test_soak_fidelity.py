"""The comparison with a plain copy: equal, explained and unexplained results."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from fidelity import Answer, Cause, Comparison, Node, Trial, Verdict, judge
from shioenv.system.store import System
from support.needs import needs

LOWER = {
    b"/": Node(0o40755, 0, 0, 4096, 17, 2, 0, 0, 0),
    b"/d": Node(0o40755, 0, 0, 4096, 3, 500, 0, 0, 0),
    b"/f": Node(0o100644, 0, 0, 10, 1, 501, 0, 0, 0),
}
OTHER = {
    b"/": Node(0o40755, 0, 0, 4096, 17, 2, 0, 0, 0),
    b"/d": Node(0o40755, 0, 0, 4096, 3, 900, 0, 0, 0),
    b"/f": Node(0o100644, 0, 0, 10, 1, 901, 0, 0, 0),
}


def verdict(text: str, mine: bytes, theirs: bytes) -> tuple[Verdict, set[Cause]]:
    """Return the verdict on stable outputs, with /d written to."""
    here = Answer(0, mine, {}, {b"/d": (500, 1, 60)})
    there = Answer(0, theirs, {}, {b"/d": (900, 3, 4096)})
    return judge(Trial(text, "/", (here, here), (here, here), (there, there)), LOWER, OTHER)


@pytest.mark.parametrize(
    ("text", "mine", "theirs", "cause"),
    [
        ("stat -c %h d", b"1", b"3", Cause.LINKS),
        ("ls -ld d", b"drwxr-xr-x 3 60 d", b"drwxr-xr-x 3 4096 d", Cause.SIZE),
        ("ls -i f", b"501 f", b"901 f", Cause.INODE),
        ("ls -i f", b"9223372036854776309 f", b"901 f", Cause.INODE),
        ("ls -l", b"total 8\nf", b"total 12\nf", Cause.BLOCKS),
        ("ls -U", b"a\nb\n", b"b\na\n", Cause.ORDER),
        ("ls -l", b" 1 f", b"  1 f", Cause.WIDTH),
        ("date +%T", b"10:00:01", b"10:00:02", Cause.TIME),
    ],
)
def test_a_number_that_the_file_system_made_is_explained(
    text: str, mine: bytes, theirs: bytes, cause: Cause
) -> None:
    assert verdict(text, mine, theirs) == (Verdict.KNOWN, {cause})


@pytest.mark.parametrize(
    ("text", "mine", "theirs"),
    [
        ("cat f", b"one", b"two"),
        ("stat -c %h f", b"1", b"2"),
        ("wc -c f", b"60 f", b"61 f"),
        ("cat f", b"a", b"a\nb"),
    ],
)
def test_any_other_difference_is_not(text: str, mine: bytes, theirs: bytes) -> None:
    assert verdict(text, mine, theirs) == (Verdict.UNKNOWN, set())


def test_another_exit_code_or_another_file_is_not_explained_by_nothing() -> None:
    plain = Answer(0, b"", {}, {})
    for other in (Answer(1, b"", {}, {}), Answer(0, b"", {b"/f": None}, {})):
        trial = Trial("true", "/", (plain, plain), (plain, plain), (other, other))
        assert judge(trial, LOWER, OTHER)[0] is Verdict.UNKNOWN


def test_what_one_side_does_not_repeat_is_set_aside() -> None:
    one, two, there = (Answer(0, text, {}, {}) for text in (b"1", b"2", b"3"))
    trial = Trial("true", "/", (one, one), (one, two), (there, there))
    assert judge(trial, LOWER, OTHER)[0] is Verdict.UNSTEADY


def test_a_shell_that_differs_from_a_fresh_one_is_a_finding_of_its_own() -> None:
    served, fresh = Answer(0, b"1", {}, {}), Answer(0, b"2", {}, {})
    trial = Trial("true", "/", (served, served), (fresh, fresh), (fresh, fresh))
    assert judge(trial, LOWER, OTHER)[0] is Verdict.SHELL


@needs("root")
def test_the_plain_copy_is_put_right_after_each_input(system: System) -> None:
    home = system.declaration.session.start_directories[0]
    spoiled = (
        "rm -r documents; mv data x; chmod 0 README.md; echo y >> x/ids.txt; ln -s a .profile2",
        "mkdir -p a/b; mv a /etc/a; truncate -s 0 README.md; chown 1 . ; rm .bashrc",
    )
    look = (
        "ls -R; find -type f -printf '%p %M %u %s %T@\\n' | sort; cat README.md .bashrc data/ids*"
    )
    with ExitStack() as stack:
        comparison = Comparison(system, stack, lower=None)
        for text in spoiled:
            assert comparison.run(text, home).oracle[0].changed
            trial = comparison.run(look, home)
            assert judge(trial, comparison.lower, comparison.other) == (Verdict.SAME, set())
