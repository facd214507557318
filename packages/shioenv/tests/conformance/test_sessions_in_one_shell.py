"""Rows of a session do in one resident shell what repetition gives, or they are repeated."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace

import pytest

from shioenv.behavior.observe import SandboxRunner, open_sandbox
from shioenv.domain.behavior import Behavior
from shioenv.domain.runner import State
from shioenv.irreducibility.scoring import UNSCORED
from shioenv.recording.passes import JointRuns, SessionPasses
from shioenv.recording.session import SessionRecorder
from shioenv.sandbox.base import Limits
from shioenv.seeding import generator
from shioenv.synthesis.sample import sample
from shioenv.system.store import System

HOME = "/home/ubuntu"


def run_rows(observer: SandboxRunner, rows: Sequence[str]) -> list[Behavior | None]:
    machine = observer.open_session(rows, HOME)
    try:
        return [machine.row(number) for number in range(len(rows))]
    finally:
        machine.close()


def repeated(observer: SandboxRunner, rows: Sequence[str], number: int) -> Behavior:
    return observer.execute(rows[number], State(cwd=HOME, history=tuple(rows[:number])))


@pytest.mark.parametrize(
    ("rows", "carried"),
    [
        (("x=1", "cd /tmp", "touch $x", "echo $x $PWD; ls"), 4),
        (("exit 3", "echo never"), 2),
        (("exec true", "echo never", "ls"), 3),
        (("set -e", "touch in; ls nowhere", "echo never"), 3),
        (("kill -9 $$", "echo never"), 0),
        (("trap 'echo bye' EXIT", "echo in"), 0),
        (("trap 'echo at $BASH_COMMAND' DEBUG", "true"), 1),
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
        (("set -v", "echo one", "echo two"), 1),
        (("echo $$; sh -c 'echo $PPID'", "true"), 2),
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
    passed = run_rows(observer, rows)
    assert len(passed) == len(rows)
    assert sum(behavior is not None for behavior in passed) <= carried
    for number, behavior in enumerate(passed):
        if number and behavior is not None:
            assert behavior == repeated(observer, rows, number), rows[number]


def test_what_shows_the_shell_is_the_last_line_of_a_copy(observer: SandboxRunner) -> None:
    for row in (
        "cat /proc/$$/cmdline",
        "env",
        "ps -eo pid,ppid,args",
        "echo $BASH_EXECUTION_STRING; echo $x",
    ):
        rows = ("x=3", row, "echo after")
        passed = run_rows(observer, rows)
        assert passed[1] == repeated(observer, rows, 1), row
        assert passed[2] is not None


INPUTS = (
    "echo $x $PWD $- $$ $PPID $BASHPID $SHLVL", "ls -la; ls -U /", "ps -eo pid,ppid,args",
    "env", "declare -p",
    "set", "exec true", "exit 3", "echo 'open", "eval ')'", "nowhere",
    "cat made; echo more >> made; cat made", "rm -rf * .b*; ls -a", "mkdir -p d/e; mv made d/e/",
    "f; type f", "umask; ulimit -a; trap; alias", "(exit 4)", "sleep 0 & wait; echo $!",
    "cat /proc/mounts; cat /proc/$$/maps | wc -l", "find . -type d", "jobs -l", "cd -; pwd",
    "grep -v -e Vm -e Rss -e ctxt -e HugetlbPages /proc/$$/status",
)  # fmt: skip


@pytest.mark.parametrize(
    "rows",
    [
        ("x=5; cd /tmp", "f() { echo in f $x; }"),
        ("echo hi > made; mkdir -p q/r", "cp README.md q; rm .bashrc"),
        ("umask 077; ulimit -n 100", "set -f; shopt -s extglob; alias x=y"),
        ("date > /dev/null; y=$(head -c 300000 /dev/zero | tr '\\0' a)", "unset y; ls ~root"),
    ],
)
def test_inputs_in_copies_of_a_shell_do_what_repetition_gives(
    observer: SandboxRunner, rows: tuple[str, ...]
) -> None:
    machine = observer.open_session([*rows, "true"], HOME)
    state = State(cwd=HOME, history=rows)
    for text in INPUTS:
        live, theirs = machine.run(2, text), observer.execute(text, state)
        assert live == theirs, text
        assert live.processes == theirs.processes, text
    machine.close()
    assert not machine.why


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ("sleep 9 &", "other processes are running"),
        ("exec 7< README.md", "other descriptors are open"),
        ("exec > /dev/null", "other descriptors are open"),
        ("renice 5 $$ > /dev/null", "attributes of its process were changed"),
        ("echo other > /proc/$$/comm", "attributes of its process were changed"),
        ("mkdir gone; cd gone; rmdir ../gone", "its files cannot be kept"),
        ("hostname other", "the machine was changed"),
        ("mount -t tmpfs none /mnt", "the machine was changed"),
        ("ipcmk -Q > /dev/null", "the machine was changed"),
        ("ip link set lo down", "the machine was changed"),
        ("trap 'echo bye' EXIT", "an earlier row left more than files and the shell's state"),
        ("RANDOM=5", "an earlier row used random numbers"),
    ],
)
def test_what_a_copy_cannot_carry_is_repeated_and_has_a_reason(
    observer: SandboxRunner, row: str, why: str
) -> None:
    machine = observer.open_session([row, "true"], HOME)
    assert machine.run(1, "true") is None
    machine.close()
    reasons = {why, "an earlier row left more than files and the shell's state"}
    assert machine.why[1] in reasons


@pytest.mark.parametrize(
    "attack",
    [
        "rm -rf --no-preserve-root / 2> /dev/null", "kill -9 -1", "kill -STOP -1", "exec cat",
        "sleep 60 & disown", ":(){ :|:& };:", "ulimit -t 0; ulimit -f 0; ulimit -n 3",
        "chmod -R 0 / 2> /dev/null", "cd /; while mkdir d && cd d; do :; done",
        "mkdir .removed.1 .removed.2; touch .removed.1/x .removed.2/y", "renice 19 $$; nice",
        "hostname attacked", "ipcmk -Q", "mount -t tmpfs none /home", "ip link set lo down",
        "ln README.md two", "exec 2>&-; set -o posix; unset HOME PATH", "ls() { echo forged; }",
        "head -c 5000000 /dev/zero | tr '\\0' a", "while :; do :; done",
    ],
)  # fmt: skip
def test_a_copy_attacks_its_siblings_in_vain(observer: SandboxRunner, attack: str) -> None:
    rows = ("x=5; echo kept > made", "true")
    text = "echo $x; cat made; ls -a; ls / | wc -l; uname -n; ulimit -n; nice; ps -e; ip -br link"
    state = State(cwd=HOME, history=rows[:1])
    machine = observer.open_session(rows, HOME)
    before = machine.run(1, text)
    assert before == observer.execute(text, state)
    machine.run(1, attack, wall_seconds=0.5)
    after = machine.run(1, text)
    assert after is None or after == before
    machine.close()
    other = observer.open_session(rows, HOME)
    assert other.run(1, text) == before
    other.close()


@pytest.mark.parametrize("forks", [False, True])
def test_records_of_drawn_sessions_are_those_of_repetition(
    observer: SandboxRunner, forks: bool
) -> None:
    samples = [*sample(count=32, seed=11, session_length=4, composite_share=0.3)]
    recorder = SessionRecorder(scoring=UNSCORED)
    compared = 0
    for first in range(0, len(samples), 4):
        session = samples[first : first + 4]
        texts = [one.input.text for one in session]
        cwd = session[0].cwd
        passes = SessionPasses(
            observer, texts, partial(observer.open_session, cwd=cwd), forks=forks
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
        passes.close()
    assert compared > 16


@pytest.mark.parametrize("forks", [False, True])
def test_rows_after_one_that_fills_the_output_are_recorded_as_by_repetition(
    observer: SandboxRunner, forks: bool
) -> None:
    rows = ("head -c 65536 /dev/zero", "touch f; ls nowhere")
    opens = partial(observer.open_session, cwd=HOME)
    passes = SessionPasses(observer, rows, opens, forks=forks)
    state = State(cwd=HOME, history=rows[:1])
    for separate in (False, True):
        mine, theirs = (
            one.execute(rows[1], state, separate=separate) for one in (passes, observer)
        )
        assert mine == theirs
    assert passes.repeated == {1: "it may reach a limit of all rows together"}
    passes.close()


def test_rows_after_one_that_never_does_the_same_are_volatile(observer: SandboxRunner) -> None:
    rows = ("true", "echo $RANDOM$RANDOM", "echo after")
    passes = SessionPasses(observer, rows, partial(observer.open_session, cwd=HOME))
    behavior = passes.execute(rows[2], State(cwd=HOME, history=rows[:2]))
    assert behavior.output == b"after\n"
    assert behavior.volatile
    assert not passes.repeated


@pytest.mark.parametrize("text", ["ip -br link", "ip link set lo down; ip -br link"])
def test_copies_after_one_that_used_the_network_have_a_new_one(
    observer: SandboxRunner, text: str
) -> None:
    machine = observer.open_session(("x=1", "true"), HOME)
    first = machine.run(1, text)
    assert first is not None
    assert machine.run(1, text) == first
    machine.close()


LAYERS = (
    "ln README.md second; ln second documents/third; echo more >> README.md",
    "mkdir -p a/b/c; mkfifo a/p; ln -s nowhere a/l; cp README.md a/b; ln a/b/README.md a/c; mv a z",
    "mv data moved; rm -r documents; mkdir documents; touch documents/new; chmod 700 .",
    "truncate -s 5M sparse; printf end >> sparse; chmod 4711 sparse; chown 1:2 .profile",
    "touch {1..40}; rm {3..30}; touch -d 2001-01-01 1; mv README.md /opt/r; rm -rf /srv; > .bashrc",
    "link scripts/setuid_tool tool; chmod u+x scripts/setuid_tool; echo x > s; chmod 7755 s",
    "head -c 6000000 /dev/zero > big; touch small",
    "truncate -s 5M data/numbers.txt",
)
LOOKS = (
    "ls -laRU . /opt /srv", "ls -laU; ls -laU z a /; find . -type f -size -1k",
    "cat second README.md a/c; ls -lU *", "echo in >> second; cat README.md",
    "mv second last; mv z y",
    "rm -rf *; ls -la", "echo over > sparse; mkdir moved/new z/b/d; ls -l z moved", "du -s . /opt",
    "touch README.md; mv small moved; ln 1 one; ln z/b/README.md z/more",
)  # fmt: skip


@pytest.mark.parametrize("row", LAYERS)
def test_files_of_a_copy_are_those_that_the_rows_left(observer: SandboxRunner, row: str) -> None:
    rows = (row, "touch later; echo more >> README.md", "true")
    machine = observer.open_session(rows, HOME)
    for number in (1, 2, 1):
        state = State(cwd=HOME, history=rows[:number])
        for text in LOOKS:
            live, theirs = machine.run(number, text), observer.execute(text, state)
            assert live == theirs, (number, text)
    machine.close()


@pytest.mark.parametrize(
    ("rows", "repeated"),
    [
        (("x=5; cd /tmp", "echo hi > made; ls", "wc -c made $x", "cat made; exit 3", "ls"), 0),
        (("mkdir d", "mv d e; mv data moved; ln README.md e/l", "ls nowhere -a", "rm -r e"), 0),
        (("ls() { echo forged; }; alias cat=no", "ls; rm .bashrc", "export A=b", "f() { ls; }"), 0),
        (("truncate -s 5M data/numbers.txt", "touch --date=@9 copy", "ls -l copy", "ls -a"), 0),
        (("x=5", "echo $((RANDOM % 1)) > r", "cat r", "echo $x"), 6),
        (("sleep 5 &", "jobs", "hostname other", "ls -a"), 9),
        (("x=1; touch f", "exit 3", "echo never", "ls -a"), 0),
        (("touch a", "set -e; echo in", "ls -a nowhere", "echo never"), 0),
        (("true", "{ sleep 30 & }; exec ls -a .", "echo never", "ls x"), 0),
        (("ps -e -o comm=", "exit 4", "ls a"), 6),
        (("wget -qO- http://10.20.30.1/notes.txt | wc -l", "ls -a", "ip -s link", "pwd"), 6),
    ],
)  # fmt: skip
def test_joint_inputs_of_an_episode_do_what_repetition_gives(
    observer: SandboxRunner, rows: tuple[str, ...], repeated: int
) -> None:
    runs = JointRuns(observer, rows, partial(observer.open_session, cwd=HOME))
    alone: list[str] = []

    def execute(text: str, _: State) -> Behavior:
        alone.append(text)
        return Behavior(0, b"")

    runs._runner = SimpleNamespace(execute=execute)
    for number in range(1, len(rows)):
        above = "".join(f"{row}\n" for row in rows[:number])
        words = rows[number].split()
        for text in (*[rows[number]] * 3, words[0], " ".join(words[:-1]), " ".join(words[1:])):
            live = runs.execute(above + text, State(cwd=HOME))
            if not (alone and alone[-1] == above + text):
                assert live == observer.execute(above + text, State(cwd=HOME)), above + text
    runs.close()
    assert len(alone) >= repeated
    assert bool(alone) == bool(repeated)


def test_a_shorter_time_counts_the_rows_until_the_end_of_the_shell(
    observer: SandboxRunner,
) -> None:
    machine = observer.open_session(("sleep .2; touch a", "exit 3", "ls"), HOME, joint=True)
    assert machine.run(2, "ls", wall_seconds=0.1) is None
    ended = machine.run(2, "ls", wall_seconds=4.0)
    assert ended is not None
    assert ended.exit_code == 3
    machine.close()


def test_no_row_after_one_that_takes_all_the_time_runs(system: System) -> None:
    """Each pass waits for the row once, and the time of the rows before counts."""
    rows = ("sleep .1; touch a", "echo in; sleep 60; echo never", "ls -a", "wc -c a")
    with open_sandbox(system, Limits(wall_seconds=0.3)) as runner:
        runs = JointRuns(runner, rows, partial(runner.open_session, cwd=HOME))
        state = State(cwd=HOME)
        whole = runs.execute("\n".join(rows), state)
        assert whole == runner.execute("\n".join(rows), state)
        assert whole.timed_out
        before = runner.seconds
        for number, text in ((2, rows[2]), (2, "ls"), (3, "wc")):
            assert runs.execute("\n".join((*rows[:number], text)), state) == whole
        assert runner.seconds == before
        last = "\n".join(rows[:2])
        assert runs.execute(last, state) == runner.execute(last, state)
        runs.close()
