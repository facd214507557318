"""The comparison with a real machine: equal and explained results, and the sandbox's faults."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from machine import STOPPED, UNKNOWN, Answer, Pair, Verdict, judge, read_inputs
from shioenv.system.store import System
from shioenv_backends.microvm.boot import build_microvm
from support.needs import MICROVM, needs
from support.nightly import NIGHTLY

FILE = {"perms": "-rw-r--r--", "size": 1, "month": "Oct", "day": 16, "digest": "a"}


def verdict(text: str, mine: Answer, theirs: Answer) -> tuple[Verdict, list[str]]:
    """Return the verdict on stable answers."""
    return judge(text, (mine, mine), (theirs, theirs))


@pytest.mark.parametrize(
    ("text", "mine", "theirs", "cause"),
    [
        ("ls -f", b"a\nb\n", b"b\na\n", "order of directory entries"),
        ("find -print0", b"./a b\0./c\0", b"./c\0./a b\0", "order of directory entries"),
        ("find | paste -sd:", b"b:a/x:c\n", b"a/x:b:c\n", "order of directory entries"),
        (
            "ls -la",
            b"total 4\ndrwxr-xr-x 1 root root   40 Oct 16 19:43 .",
            b"total 8\ndrwxr-xr-x 3 root root 4096 Oct 16 19:43 .",
            "link counts, sizes and blocks of directories",
        ),
        ("ls -i f", b"9223372036854776309 f", b"901 f", "inode and device numbers, blocks"),
        ("date", b"Thu Oct 16 19:43:00 UTC 2025", b"Thu Oct 16 19:43:02 UTC 2025", "seconds"),
        ("echo $$", b"1000", b"97", "process numbers"),
        ("uname -r", b"6.1.0-28", b"6.1.0-56", "the kernel's name"),
        ("free", b"Mem: 1", b"Mem: 2", "hardware"),
        ("ps aux | head", b"1", b"2", "processes"),
        ("curl -s http://10.20.30.1", b"page", b"", "who answers on the network"),
    ],
)
def test_what_this_machine_is_like_is_explained(
    text: str, mine: bytes, theirs: bytes, cause: str
) -> None:
    found = verdict(text, Answer(0, mine, {}), Answer(0, theirs, {}))
    assert found == (Verdict.EXPLAINED, [cause])


@pytest.mark.parametrize(
    ("text", "mine", "theirs", "cause"),
    [
        ("date", b"Sun Nov 22 15:59:26 UTC 2026", b"Thu Oct 16 19:43:00 UTC 2025", "the clock"),
        ("ls -l f", b"root 1 Oct 11  2025 f", b"root 1 Oct 11 10:00 f", "the clock"),
        ("df /", b"60%", b"76%", "mounts and disks"),
        ("ip link", b"2: eth0@if2:", b"2: eth0:", "the network"),
        ("find / -name f", b"find: '/x': Permission denied\n/f\n", b"/f\n", "refusals"),
        ("cat f", b"one", b"two", UNKNOWN),
        ("ls -l f", b"root 1 f", b"root 2 g", UNKNOWN),
        ("find | paste -sd:", b"b:a\n", b"a:c\n", UNKNOWN),
        ("last", b"gone - no logout", b"still logged in", "who is logged in"),
    ],
)
def test_what_a_machine_would_not_do_is_ours(
    text: str, mine: bytes, theirs: bytes, cause: str
) -> None:
    found = verdict(text, Answer(0, mine, {}), Answer(0, theirs, {}))
    assert found == (Verdict.OURS, [cause])


def test_a_changed_file_that_the_patch_does_not_tell_is_ours() -> None:
    same, other = (
        Answer(0, b"", {"f": FILE}),
        Answer(0, b"", {"f": {**FILE, "perms": "-rw-------"}}),
    )
    for theirs in (other, Answer(0, b"", {}), Answer(0, b"", {"f": None})):
        assert verdict("chmod f", same, theirs) == (Verdict.OURS, ["changed files"])
    assert verdict("free > f", same, other)[0] is Verdict.OURS
    late = Answer(0, b"", {"f": {**FILE, "day": 17}})
    assert verdict("touch f", same, late) == (Verdict.OURS, ["the clock"])


def test_what_an_input_wrote_of_what_is_explained_is_explained() -> None:
    mine, theirs = (Answer(0, b"", {"f": {**FILE, "digest": digest}}) for digest in "ab")
    assert verdict("free > f", mine, theirs) == (Verdict.EXPLAINED, ["hardware"])
    assert verdict("echo > f", mine, theirs) == (Verdict.OURS, ["changed files"])


def test_several_causes_are_told_and_none_to_spare() -> None:
    mine = Answer(0, b"b Oct 11  2025\na Oct 11  2025\n", {})
    theirs = Answer(0, b"a Oct 11 10:00\nb Oct 11 10:00\n", {})
    found = verdict("ls -lf", mine, theirs)
    assert found == (Verdict.OURS, ["order of directory entries", "the clock"])


def test_what_differs_by_itself_is_volatile() -> None:
    one, two, three = (Answer(0, text, {}) for text in (b"1", b"2", b"3"))
    assert judge("true", (one, two), (three, three))[0] is Verdict.VOLATILE
    assert judge("true", (three, three), (one, two))[0] is Verdict.VOLATILE
    assert judge("true", (one, two), (two, three)) == (Verdict.IDENTICAL, [])


def test_limits_and_a_machine_that_stops_are_explained() -> None:
    ended = Answer(124, b"", {}, bounded=True)
    assert verdict("yes", ended, Answer(124, b"y", {}, bounded=True))[0] is Verdict.EXPLAINED
    assert verdict("yes", ended, Answer(0, b"y", {}))[0] is Verdict.OURS
    assert verdict("reboot -f", Answer(1, b"", {}), STOPPED)[0] is Verdict.OURS


def test_inputs_are_read_from_json_lines() -> None:
    assert read_inputs(['{"input": "ls", "id": 1}', "", '"pwd"']) == ["ls", "pwd"]


@pytest.fixture(scope="module")
def pair(system: System) -> Iterator[Pair]:
    """The sandbox and a machine."""
    build_microvm(system)
    with ExitStack() as stack:
        yield Pair(system, stack)


@NIGHTLY
@needs(*MICROVM)
def test_a_real_machine_does_the_same_and_is_put_right(pair: Pair) -> None:
    home = "/home/ubuntu"
    for text in (
        "rm -r documents; echo x > data/new; chmod 600 README.md; ln -s a b; mkdir -p q/r; exit 3",
        "mv README.md x; cp data/ids.txt y; touch -d 2001-01-01 z; echo $OLDPWD $PWD; umask",
        "hostname other; kill -9 $$",
        "ls; cat README.md; hostname; ls -d documents/*",
        "who; last; kill -0 655 && echo there",
    ):
        sandbox, machine = pair.run(text, home)
        assert judge(text, sandbox, machine) == (Verdict.IDENTICAL, [])
    changed = pair.real("mkdir d; rm README.md; echo x > /dev/shm/y", home).files
    assert changed.keys() == {"d", "README.md", "/dev/shm/y"}
    assert changed["README.md"] is None
    assert pair.real("date +%Y-%m-%dT%H:%M", home).output == b"2025-10-16T19:43\n"


@NIGHTLY
@needs(*MICROVM)
def test_a_machine_that_was_halted_starts_again(pair: Pair) -> None:
    assert pair.real("echo o > /proc/sysrq-trigger; sleep 20", "/home/ubuntu") == STOPPED
    assert pair.real("echo here", "/home/ubuntu").output == b"here\n"
