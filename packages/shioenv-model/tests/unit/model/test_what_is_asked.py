"""Questions of a composition to its runner, and its use of the answers."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Mapping
from typing import Any, NoReturn

import pytest

from shioenv.domain.behavior import Behavior
from shioenv.domain.context import Context
from shioenv.domain.patch import ContextPatch
from shioenv.domain.runner import Answer, ScriptedRunner, State
from shioenv.errors import Abstained
from shioenv_model.composition.composed_inputs import Composition

FILE = {"perms": "-rw-r--r--", "links": 1, "owner": "root", "group": "root", "size": 0}
FILE |= {"month": "Jan", "day": 1, "year": 2025, "time": "00:00"}
EMPTY = hashlib.sha256(b"").hexdigest()


def said(stdout: bytes = b"", exit_code: int = 0, stderr: bytes = b"", **more: Any) -> Behavior:
    return Behavior(exit_code, stdout + stderr, stdout=stdout, stderr=stderr, **more)


class Model:
    """Answers from a table and executes nothing, with a low confidence in every answer."""

    def __init__(self, table: Mapping[str, Behavior]) -> None:
        self.table = table
        self.asked: list[tuple[str, bytes]] = []
        self.states: list[State] = []

    def run(self, shell_input: str, state: State | None = None) -> Behavior:
        return self.answer(shell_input, state).behavior

    def answer(self, shell_input: str, state: State | None = None) -> Answer:
        assert state is not None
        self.asked.append((shell_input, state.stdin))
        self.states.append(state)
        if shell_input not in self.table:
            raise Abstained(f"no answer to {shell_input}")
        return Answer(self.table[shell_input], 0.5, "a table")


def start() -> State:
    document: dict[str, Any] = dict(ScriptedRunner().context("/h").document)
    document |= {"fs": {".": FILE | {"perms": "drwxr-xr-x"}}, "shell_options": {}}
    return State(cwd="/h", context=Context(document))


def composed(text: str, **table: Behavior) -> tuple[Answer, Model]:
    model = Model({name.replace("_", " "): behavior for name, behavior in table.items()})
    return Composition(model, start()).answer(text), model


@pytest.fixture(autouse=True)
def no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setattr(os, "fork", refuse)
    monkeypatch.setattr(os, "posix_spawn", refuse)


def test_text_goes_through_pipes_and_confidences_multiply() -> None:
    answer, model = composed(
        "ls x | sort; id", ls_x=said(b"b\na\n"), sort=said(b"a\nb\n"), id=said()
    )
    assert model.asked == [("ls x", b""), ("sort", b"b\na\n"), ("id", b"")]
    assert (answer.behavior.output, answer.confidence) == (b"a\nb\n", 0.125)


def test_one_command_is_the_runners_own_answer() -> None:
    answer, model = composed("ls x", ls_x=said(b"x\n"))
    assert answer == Answer(said(b"x\n"), 0.5, "a table")
    assert len(model.asked) == 1


def test_channels_part_where_they_go_to_different_places() -> None:
    both = said(b"out\n", 2, b"err\n")
    assert composed("a | b", a=both, b=said(b"B"))[0].behavior.output == b"err\nB"
    assert composed("a 2>/dev/null; c", a=both, c=said())[0].behavior.output == b"out\n"
    assert composed("a |& b", a=both, b=said(b"B"))[1].asked[1] == ("b", b"out\nerr\n")
    assert composed("a 2>&1 >/dev/null | b", a=both, b=said())[1].asked[1] == ("b", b"err\n")


def test_channels_that_nobody_knows_are_abstained_from() -> None:
    with pytest.raises(Abstained, match="the channel that"):
        composed("a | b", a=Behavior(0, b"something"), b=said())


def test_what_is_written_is_known_to_later_commands() -> None:
    made = said(patch=ContextPatch((("a", "/fs/f", FILE),)), content_digests={"f": EMPTY})
    table = {": > f": made, "a": said(b"hello\n"), "cat f": said(b"hello\n")}
    model = Model(table)
    behavior = Composition(model, start()).run("a > f && cat f")
    assert [text for text, _ in model.asked] == [": > f", "a", "cat f"]
    assert model.states[2].read("f") == b"hello\n"
    assert model.states[2].history == (": > f", "a", "printf %s 'hello\n' >> /h/f")
    assert behavior.patch.operations == (("a", "/fs/f", FILE | {"size": 6}),)
    assert behavior.content_digests == {"f": hashlib.sha256(b"hello\n").hexdigest()}


def test_variables_and_substitutions_are_expanded_before_anybody_is_asked() -> None:
    table = {"date +%Y": said(b"2025\n"), "echo '2025 x' 2": said(b"2025 x 2\n")}
    model = Model(table)
    behavior = Composition(model, start()).run('y=x; echo "$(date +%Y) $y" $((1+1))$z')
    assert behavior.output == b"2025 x 2\n"
    assert behavior.patch.operations == (("a", "/settings/y", "x"),)


def test_loops_ask_about_each_turn() -> None:
    table = {"wc a": said(b"1\n"), "wc 'b c'": said(b"2\n", 1), "true": said()}
    model = Model(table)
    answer = Composition(model, start()).run("for f in a 'b c'; do wc \"$f\"; done; true")
    assert (answer.output, answer.exit_code) == (b"1\n2\n", 0)


def test_what_a_subshell_sets_stays_there() -> None:
    moved = said(patch=ContextPatch((("=", "/cwd", "/"),)))
    model = Model({"cd /": moved, "ls": said()})
    behavior = Composition(model, start()).run("(cd /; ls); ls")
    assert [state.before.document["cwd"] for state in model.states] == ["/h", "/", "/h"]
    assert not behavior.patch


def test_a_process_substitution_is_a_file_of_the_state() -> None:
    model = Model(
        {"ls a": said(b"A"), "ls b": said(b"B"), "diff /dev/fd/63 /dev/fd/62": said(b"D")}
    )
    assert Composition(model, start()).run("diff <(ls a) <(ls b)").output == b"D"
    assert {name: model.states[2].written[name] for name in ("/dev/fd/63", "/dev/fd/62")} == {
        "/dev/fd/63": b"A",
        "/dev/fd/62": b"B",
    }


def test_xargs_asks_about_each_call() -> None:
    model = Model(
        {"ls": said(b"a\nb\n"), "wc -l a": said(b"1\n"), "wc -l b": said(b"", 1, b"no\n")}
    )
    behavior = Composition(model, start()).run("ls | xargs -n1 wc -l")
    assert (behavior.output, behavior.exit_code) == (b"1\nno\n", 123)


def test_commands_that_do_not_end_are_not_waited_for() -> None:
    full = said(b"y\n" * 9, output_truncated=True)
    assert composed("yes | head", yes=full, head=said(b"y\n"))[0].behavior.output == b"y\n"

    class Counting(Model):
        def answer(self, shell_input: str, state: State | None = None) -> Answer:
            if shell_input == "wc":
                assert state is not None
                return Answer(said(b"%d" % len(state.stdin)))
            return super().answer(shell_input, state)

    with pytest.raises(Abstained, match="more comes through a pipe"):
        Composition(Counting({"yes": full}), start()).run("yes | wc")


def test_an_endless_loop_is_abstained_from() -> None:
    with pytest.raises(Abstained):
        composed("while true; do true; done", true=said())


def test_a_runner_that_abstains_is_abstained_with() -> None:
    with pytest.raises(Abstained, match="no answer to b"):
        composed("a && b", a=said())


def test_a_run_out_of_time_is_over() -> None:
    late = said(b"1", 124, timed_out=True)
    answer, model = composed("a; b; c", a=said(b"0"), b=late, c=said())
    assert (answer.behavior.output, answer.behavior.exit_code) == (b"01", 124)
    assert answer.behavior.timed_out
    assert len(model.asked) == 2


def test_a_value_of_several_lines_is_set_by_rule() -> None:
    answer, model = composed('x=$(a); b "$x"', a=said(b"1\n\t2\n"), **{"b_'1\n\t2'": said(b"B")})
    assert [text for text, _ in model.asked] == ["a", "b '1\n\t2'"]
    assert answer.behavior.patch.operations == (("a", "/settings/x", "1\n\t2"),)
