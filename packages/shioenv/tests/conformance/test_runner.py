"""The sandbox with its capture is a runner like any other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shioenv.behavior.observe import SandboxRunner
from shioenv.domain.behavior import Behavior
from shioenv.domain.runner import Answer, ScriptedRunner, State, answer_of
from shioenv.errors import Abstained, StartDirectoryError
from support.runner_conformance import CHECKS, run_checks


def test_the_sandbox_passes_every_check(observer: SandboxRunner) -> None:
    results = list(run_checks(observer, observer.state()))
    assert [result.name for result in results] == [check.__name__ for check in CHECKS]
    assert [result for result in results if result.failure or result.abstained] == []


def test_a_runner_that_knows_nothing_abstains(observer: SandboxRunner) -> None:
    results = list(run_checks(ScriptedRunner(), observer.state()))
    assert all(result.abstained for result in results)


class Forgetful:
    """Ignores the state of its question."""

    def __init__(self, observer: SandboxRunner) -> None:
        self._observer = observer

    def answer(self, shell_input: str, state: State | None = None) -> Answer:
        return Answer(self._observer.run(shell_input), 1.5, "a guess")

    def run(self, shell_input: str, state: State | None = None) -> Behavior:
        return self._observer.run(shell_input)


def test_a_runner_that_is_wrong_is_found_out(observer: SandboxRunner) -> None:
    failed = {
        result.name
        for result in run_checks(Forgetful(observer), observer.state())
        if result.failure
    }
    assert failed == {"patches_fit", "answers_say_how_sure"}
    assert answer_of(Forgetful(observer), "true").source == "a guess"


def test_an_input_after_a_history_is_told_from_it(observer: SandboxRunner) -> None:
    state = observer.state()
    texts = ["cd documents", "echo one; echo two > new; x=5", "cat new; echo $x $OLDPWD; false"]
    seen = []
    for text in [*texts, "echo $?; rm new; pwd", "ls new"]:
        behavior = observer.run(text, state)
        seen.append((behavior.output, behavior.exit_code))
        state = state.after(text, behavior)
    assert seen == [
        (b"", 0),
        (b"one\n", 0),
        (b"two\n5 /home/ubuntu\n", 1),
        (b"1\n/home/ubuntu/documents\n", 0),
        (b"ls: cannot access 'new': No such file or directory\n", 2),
    ]
    assert state.before.document["settings"]["x"] == "5"
    assert state.entry("new") is None
    assert state.read("new") is None


def test_an_input_reads_its_standard_input_and_the_next_one_finds_none(
    observer: SandboxRunner,
) -> None:
    state = replace(observer.state(), stdin=b"one\ntwo\n")
    behavior = observer.run("read x; cat", state)
    assert behavior.output == b"two\n"
    following = state.after("read x; cat", behavior)
    assert following.before.document["settings"]["x"] == "one"
    for refused in (following, replace(following, fed=False, stdin=b"three\n")):
        with pytest.raises(Abstained, match="has a history and standard input"):
            observer.run("cat", refused)


def test_a_history_that_never_does_the_same_makes_its_input_volatile(
    observer: SandboxRunner,
) -> None:
    state = observer.state()
    state = state.after("echo $RANDOM$RANDOM", observer.run("echo $RANDOM$RANDOM", state))
    behavior = observer.run("echo after", state)
    assert behavior.output.endswith(b"after\n")
    assert behavior.volatile
    assert not observer.run("echo after", observer.state()).volatile


def test_two_pipes_after_a_history_that_wrote_to_both(observer: SandboxRunner) -> None:
    state = State(cwd="/home/ubuntu", history=("echo told; ls nowhere", "echo more >&2"))
    behavior = observer.execute("echo out; echo bad >&2; echo end", state, separate=True)
    assert (behavior.stdout, behavior.stderr) == (b"out\nend\n", b"bad\n")
    assert behavior.output == b"out\nend\nbad\n"
    assert not behavior.volatile
    drawn = State(cwd="/home/ubuntu", history=("echo $RANDOM$RANDOM$RANDOM >&2",))
    assert observer.execute("echo out", drawn, separate=True).volatile


def test_a_state_reads_the_machine_and_what_was_written(observer: SandboxRunner) -> None:
    state = observer.state()
    assert state.read("/etc/hostname") == observer.run("cat /etc/hostname").output
    assert state.read("latest.log") == observer.run("cat latest.log").output
    assert state.read("/nowhere") is state.read("/etc") is None
    listed = observer.run("ls -A documents").text.split("\n")[:-1]
    assert state.names("documents") == sorted(listed)
    text = "echo new > documents/notes.txt; mv README.md renamed; rm todo.txt"
    state = state.after(text, observer.run(text), written={"documents/notes.txt": b"new\n"})
    assert state.read("documents/notes.txt") == b"new\n"
    assert state.read("renamed") == observer.run("cat README.md").output
    assert state.read("README.md") is None
    assert state.read("/home/ubuntu/documents/../renamed") == state.read("renamed")
    again = state.after("echo x > renamed", observer.run("echo x > renamed", state))
    assert again.read("renamed") is None, "it changed, and nobody knows to what"


@pytest.mark.parametrize("cwd", ["/no/such", "/etc/passwd"])
def test_a_context_needs_a_directory(observer: SandboxRunner, cwd: str) -> None:

    with pytest.raises(StartDirectoryError, match="is not a directory of the system debian-12"):
        observer.context(cwd)


@pytest.mark.parametrize(
    ("text", "processes"),
    [
        ("true", 1),
        ("ls", 1),  # bash becomes its last command
        ("ls; true", 2),
        ("for i in 1 2 3; do /bin/true; done; :", 4),
        ("echo a | cat", 3),
        ("find . -maxdepth 1 -name 'R*' -exec true {} \\; ; :", 3),
        ("(exit 3); :", 2),
        ("if then", 1),
    ],
)
def test_the_processes_of_a_run_are_counted(
    observer: SandboxRunner, text: str, processes: int
) -> None:
    assert [observer.run(text).processes for _ in range(3)] == [processes] * 3
