"""The output of `diff`, derived by rule, matches the machine."""

from __future__ import annotations

import shlex
from dataclasses import replace
from random import Random

import pytest

from shioenv.behavior.observe import SandboxRunner
from shioenv.domain.runner import State
from shioenv_model.composition.call import Call
from shioenv_model.rules.programs import printed
from support.nightly import by_day

ORDINARY = (
    "diff data/ids.txt data/ids_copy.txt",
    "diff documents/words_sorted.txt documents/words_unsorted.txt",
    "diff -q documents/words_sorted.txt documents/words_other.txt",
    "diff -s data/ids.txt data/ids.txt",
    "diff documents/notes.txt missing",
    "diff missing/x documents/nothing",
    "diff documents data",
    "diff -r documents data",
    "diff -rq documents/ documents",
    "diff -s -r data documents/old",
    "diff --brief /etc/passwd /etc/group",
    "diff /etc/hosts /etc/hostname",
    "diff archives/backup.tar.gz documents/notes.txt",
    "diff documents documents/notes.txt",
    "diff -u data/ids.txt documents/notes.txt",
    "diff README.md/x README.md",
)


def edited(lines: list[str], random: Random) -> list[str]:
    """Return the lines after a few edits."""
    lines = list(lines)
    for _ in range(random.choice((0, 1, 1, 2, 3))):
        place = random.randrange(len(lines) + 1)
        count = random.choice((0, 0, 1, 2))
        lines[place : place + count] = random.choices("abcdefg{}", k=random.choice((0, 1, 2)))
    return lines


def contents(random: Random) -> tuple[str, str]:
    letters = random.choice(("abc", "abcdefghij", "ab{}xyzuvw"))
    before = random.choices(letters, k=random.randrange(12))
    after = edited(before, random)
    one, other = ("".join(f"{line}\n" for line in lines) for lines in (before, after))
    return one[: random.choice((None, None, -1))], other[: random.choice((None, None, -1))]


def written(state: State, observer: SandboxRunner, one: str, other: str) -> State:
    """Return the state in which the files `one` and `other` hold these texts."""
    text = f"printf %s {shlex.quote(one)} > one; printf %s {shlex.quote(other)} > other"
    after = state.after(text, observer.run(text, state))
    return replace(after, written={"one": one.encode(), "other": other.encode()})


def is_right(text: str, state: State, observer: SandboxRunner) -> bool:
    """Whether a rule derives the output. The derived output must be right."""
    said = printed(Call.parse(text), state)
    if said is None:
        return False
    right = observer.run(f"{text}; (exit $?)", state)
    assert (said.output, said.exit_code) == (right.output, right.exit_code), (text, state.written)
    return True


@pytest.mark.parametrize("seed", by_day(range(8), 3))
def test_differences_of_texts(seed: int, observer: SandboxRunner) -> None:
    random, told = Random(seed), 0
    for _ in range(25):
        state = written(observer.state(), observer, *contents(random))
        told += is_right(
            random.choice(("diff", "diff", "diff -q", "diff -s")) + " one other", state, observer
        )
    assert told > 12


def test_differences_of_the_machine(observer: SandboxRunner) -> None:
    assert sum(is_right(text, observer.state(), observer) for text in ORDINARY) >= 11
