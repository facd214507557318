"""Shells answered by a model, shells that repeat all lines, and the combination of both."""

from __future__ import annotations

from typing import Any

import pytest

from shioenv.behavior.typed_rows import Row, RowKind
from shioenv.domain.behavior import Behavior
from shioenv.domain.patch import ContextPatch
from shioenv.domain.runner import Answer, Pristine, ScriptedRunner, State
from shioenv.errors import Abstained, EpisodeError, LimitsError, ShellEndedError
from shioenv.live.model_shell import HybridShell, ModelShell, RepeatedShell
from shioenv.live.resident import ResidentShell
from support.scripted_machine import ScriptedMachine, scripted_context

MOVES = Behavior(3, b"went\n", ContextPatch((("=", "/cwd", "/elsewhere"),)))


class Confident:
    """A model with a fixed confidence."""

    def __init__(self, answers: dict[str, tuple[Behavior, float]]) -> None:
        self.answers = answers
        self.states: list[State | None] = []

    def answer(self, shell_input: str, state: State | None = None) -> Answer:
        self.states.append(state)
        if shell_input not in self.answers:
            raise Abstained("no answer")
        behavior, confidence = self.answers[shell_input]
        return Answer(behavior, confidence, "memory")

    def run(self, shell_input: str, state: State | None = None) -> Behavior:
        return self.answer(shell_input, state).behavior


def start(pristine: Pristine | None = None) -> State:
    return State(cwd="/start", context=scripted_context("/start", {}), pristine=pristine)


def test_a_model_answers_each_line_in_the_state_that_the_lines_before_left() -> None:
    runner = ScriptedRunner(table={"cd elsewhere": MOVES, "pwd": Behavior(0, b"/elsewhere\n")})
    closed: list[bool] = []
    with ModelShell(runner, start(), lambda: closed.append(True)) as shell:
        assert shell.run("cd elsewhere") == MOVES
        assert shell.answer is not None
        shell.run("pwd", timeout=2)
        state = runner.asked[1].state
        assert state is not None
        assert (state.history, state.status) == (("cd elsewhere",), 3)
        assert state.before.document["cwd"] == "/elsewhere"
        assert shell.patch() == MOVES.patch
        with pytest.raises(Abstained):
            shell.run("unknown")
        assert shell.answer is None
        assert shell.state.history == ("cd elsewhere", "pwd")
        assert not shell.ended
    assert shell.ended
    shell.close()
    assert closed == [True]
    with pytest.raises(ShellEndedError, match="'pwd' cannot be run"):
        shell.run("pwd")
    with pytest.raises(EpisodeError, match="ModelShell"):
        shell.__getstate__()


@pytest.mark.parametrize(
    "behavior",
    [Behavior(124, b"", timed_out=True), Behavior(137, b"", died_by_signal=9)],
    ids=["time", "signal"],
)
def test_a_line_that_ends_the_shell_ends_it_in_a_models_answer_too(behavior: Behavior) -> None:
    shell = ModelShell(ScriptedRunner(table={"last": behavior}), start())
    shell.run("last")
    assert shell.ended


def test_a_repeated_shell_runs_all_lines_again_for_each() -> None:
    machine: Any = ScriptedMachine(keeps_shells=False)
    closed: list[bool] = []
    shell = RepeatedShell(machine, "/start", lambda: closed.append(True))
    first = shell.run("put a one")
    assert [each[1] for each in first.patch.operations] == ["/fs/a"]
    second = shell.run("put b two", timeout=5)
    assert [each[1] for each in second.patch.operations] == ["/fs/b"]
    assert [each[1] for each in shell.patch().operations] == ["/fs/a", "/fs/b"]
    kinds = [[(row.how, row.text) for row in rows] for rows in machine.typed]
    again = (RowKind.AGAIN, "put a one")
    assert kinds == [
        [(RowKind.TYPED, "put a one")],
        [again, (RowKind.TYPED, "put b two")],
        [again],
    ]
    lone, both = machine.limits.wall_seconds, 2 * 5
    assert machine.timeouts[0::2][:2] == [lone, both]
    assert shell.state.history == ("put a one", "put b two")
    with pytest.raises(LimitsError):
        shell.run("echo", timeout=0)
    assert shell.run("hang").timed_out
    assert shell.ended
    with pytest.raises(ShellEndedError):
        shell.run("echo")
    shell.close()
    shell.close()
    assert closed == [True]


def test_a_day_is_the_most_that_repeated_lines_are_given() -> None:
    machine: Any = ScriptedMachine(keeps_shells=False)
    shell = RepeatedShell(machine, "/start")
    for _ in range(3):
        shell.run("echo", timeout=40_000)
    assert machine.timeouts[-1] == 86_400.0
    assert machine.typed[-1] == [Row(RowKind.AGAIN, "echo")] * 2


def test_the_model_answers_what_it_is_sure_of_and_the_machine_catches_up() -> None:
    machine = ScriptedMachine()
    made = machine.changed("/start", {}, {"a": "one"}, Behavior(0, b""))
    model = Confident(
        {
            "put a one": (made, 0.9),
            "set x two": (Behavior(0, b""), 0.8),
            "echo $x": (Behavior(0, b"wrong\n"), 0.79),
        }
    )
    below: Any = machine
    with HybridShell(model, ResidentShell(below, "/start"), 0.8) as shell:
        assert shell.run("put a one", timeout=7) == made
        assert shell.answer is not None
        shell.run("set x two")
        assert machine.timeouts == []
        assert [each[1] for each in shell.patch().operations] == ["/fs/a"]
        assert shell.state.history == ("put a one", "set x two")
        assert shell.run("echo $x").output == b"two\n"
        assert shell.answer is None
        assert model.states[-1] is not None
        assert model.states[-1].history == ("put a one", "set x two")
        assert machine.timeouts[0] == 7
        assert shell.state.history == ("put a one", "set x two", "echo $x")
        assert shell.run("other").output == b"other\n"  # the model abstains
        assert len(machine.timeouts) == 4  # each line once
        machine.lent[0].files["b"] = "from outside"
        settled = shell.settled()
        assert isinstance(settled, ResidentShell)
        settled.look()
        assert "b" not in shell.state.before.document["fs"]
        shell.follow()
        assert "b" in shell.state.before.document["fs"]
        shell.run("exit 2")
        assert shell.ended
        with pytest.raises(ShellEndedError):
            shell.run("put a one")
    assert machine.lent[0].given_back


def test_what_the_model_answered_is_not_run_in_a_machine_that_has_ended() -> None:
    machine: Any = ScriptedMachine()
    model = Confident({"exit 0": (Behavior(0, b""), 1.0), "echo x": (Behavior(0, b"x\n"), 1.0)})
    shell = HybridShell(model, ResidentShell(machine, "/start"), 0.5)
    shell.run("exit 0")
    shell.run("echo x")
    with pytest.raises(ShellEndedError):
        shell.run("asked")
    assert len(machine.timeouts) == 1
