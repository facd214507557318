"""Rows of a session do in one resident shell what repetition gives, or they are repeated."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from shioenv.behavior.observe import SandboxRunner
from shioenv.domain.behavior import Behavior
from shioenv.domain.runner import State
from shioenv.irreducibility.scoring import UNSCORED
from shioenv.recording.passes import SessionPasses
from shioenv.recording.session import SessionRecorder
from shioenv.seeding import generator
from shioenv.synthesis.sample import sample

HOME = "/home/ubuntu"


def repeated(observer: SandboxRunner, rows: Sequence[str], number: int) -> Behavior:
    return observer.execute(rows[number], State(cwd=HOME, history=tuple(rows[:number])))


@pytest.mark.parametrize(
    ("rows", "carried"),
    [
        (("x=1", "cd /tmp", "touch $x", "echo $x $PWD; ls"), 4),
        (("exit 3", "echo never"), 1),
        (("exec true", "echo never"), 1),
        (("set -e", "false", "echo never"), 2),
        (("kill -9 $$", "echo never"), 0),
        (("trap 'echo bye' EXIT", "echo in"), 0),
        (("trap 'echo at $BASH_COMMAND' DEBUG", "true"), 0),
        (("PATH=/nowhere; hash -r", "ls", "echo $PATH"), 3),
        (("ls() { echo forged; }", "ls", "unset -f ls; ls README.md"), 3),
        (("alias ls='echo no'; shopt -s expand_aliases", "ls"), 2),
        (("exec > out", "echo in the file", "cat out >&2"), 3),
        (("exec 2>&-", "ls nowhere", "echo $?"), 3),
        (("exec >&-", "echo lost", "true"), 3),
        (("exec 7< README.md", "read -u 7 line", 'echo "$line"'), 3),
        (("sleep 5 &", "jobs", "echo $?"), 0),
        (("(sleep .05; touch late) &", "ls late"), 0),
        (("echo 'open", "echo after"), 0),
        (("cat <<END", "in", "END"), 0),
        (("echo a \\", "echo b"), 0),
        (("if true", "then echo in; fi"), 0),
        (("eval 'echo )'", "echo after"), 0),
        (("set -v", "echo one", "echo two"), 0),
        (("echo $$; sh -c 'echo $PPID'", "true"), 1),
        (("nowhere_at_all", "cd nowhere", "echo $((1 / 0))", "echo ${x:?gone}"), 4),
        (("head -c 40000 /dev/zero", "head -c 40000 /dev/zero", "echo after"), 1),
        (("ulimit -n 20", "exec 9< README.md; ls", "ulimit -n"), 3),
        (("umask 077; cd ..", "touch mine", "cd -"), 3),
        (("dd if=/dev/zero of=big bs=1M 2> /dev/null", "touch more", "rm big"), 0),
        (("hostname other", "uname -n"), 0),
        (("mount -t tmpfs none /mnt", "touch /mnt/f; ls /mnt", "umount /mnt"), 3),
    ],
)
def test_a_row_that_attacks_the_next_one_is_carried_or_repeated(
    observer: SandboxRunner, rows: tuple[str, ...], carried: int
) -> None:
    passed = observer.run_rows(rows, HOME)
    assert len(passed) == len(rows)
    assert sum(behavior is not None for behavior in passed) <= carried
    for number, behavior in enumerate(passed):
        if number and behavior is not None:
            assert behavior == repeated(observer, rows, number), rows[number]


def test_what_shows_the_shell_is_repeated_alone(observer: SandboxRunner) -> None:
    rows = ("true", "cat /proc/$$/cmdline", "env", "echo after")
    passed = observer.run_rows(rows, HOME)
    assert [behavior is None for behavior in passed] == [False, True, True, False]


def test_records_of_drawn_sessions_are_those_of_repetition(observer: SandboxRunner) -> None:
    samples = [*sample(count=32, seed=11, session_length=4, composite_share=0.3)]
    recorder = SessionRecorder(scoring=UNSCORED)
    compared = 0
    for first in range(0, len(samples), 4):
        session = samples[first : first + 4]
        texts = [one.input.text for one in session]
        cwd = session[0].cwd
        passes = SessionPasses(
            observer, texts, lambda rows, cwd=cwd, **how: observer.run_rows(rows, cwd, **how)
        )
        for one in session:
            mine, theirs = (
                recorder.record(
                    one.session, runner, generator(0, "score", 0), volatile=one.volatile
                )
                for runner in (passes, observer)
            )
            if not (mine.behavior.volatile and theirs.behavior.volatile):
                compared += 1
                assert mine.behavior == theirs.behavior, [*one.history, one.input.text]
    assert compared > 16


def test_rows_after_one_that_never_does_the_same_are_volatile(observer: SandboxRunner) -> None:
    rows = ("true", "echo $RANDOM$RANDOM", "echo after")
    passes = SessionPasses(observer, rows, lambda r, **how: observer.run_rows(r, HOME, **how))
    behavior = passes.execute(rows[2], State(cwd=HOME, history=rows[:2]))
    assert behavior.output == b"after\n"
    assert behavior.volatile
    assert not passes.repeated
