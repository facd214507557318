"""Shells of one kind for many visitors, and the packages that provide models."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from shioenv.domain.behavior import Behavior
from shioenv.domain.runner import Answer, State
from shioenv.errors import MissingExtraError, StartDirectoryError, UsageError
from shioenv.live import answerer, shells
from shioenv.live.model_shell import HybridShell, ModelShell
from shioenv.live.resident import ResidentShell
from shioenv.live.shells import SPARE, SPARE_SECONDS, Shells, answered_by, interrupt
from support.scripted_machine import ScriptedMachine, scripted_context


class Model:
    """A model that answers `sure` with confidence 1 and all other inputs with .1."""

    system = "of-the-model"

    def __init__(self) -> None:
        self.world = SimpleNamespace(
            has_directory=lambda cwd: cwd == "/there",
            state=lambda cwd: State(cwd=cwd or "/", context=scripted_context("/", {})),
        )

    def answer(self, shell_input: str, state: State | None = None) -> Answer:
        return Answer(Behavior(0, b"model\n"), 1.0 if shell_input == "sure" else 0.1, "memory")

    def run(self, shell_input: str, state: State | None = None) -> Behavior:
        return self.answer(shell_input, state).behavior


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> ScriptedMachine:
    machine = ScriptedMachine()
    machine.opened = []  # type: ignore[attr-defined]

    def open_sandbox(system: str | None, limits: Any) -> ScriptedMachine:
        machine.opened.append(system)  # type: ignore[attr-defined]
        return machine

    monkeypatch.setattr(shells, "open_sandbox", open_sandbox)
    monkeypatch.setattr(shells, "load_model", lambda _: Model())
    return machine


def test_machines_wait_for_the_next_visitors(machine: ScriptedMachine) -> None:
    with Shells(system="small") as opened:
        assert opened.system == "small"
        opened.make_ready()
        opened.make_ready()
        assert len(machine.lent) == SPARE
        first = opened.open()
        assert isinstance(first, ResidentShell)
        assert first._lines is cast("Any", machine.lent[0])
        assert first._idle_seconds == SPARE_SECONDS
        opened.open()
        opened.open()
        assert len(machine.lent) == SPARE + 1
        assert answered_by(first) == ("machine", None)
        interrupt(first)
        assert first.ended
    opened.make_ready()
    assert len(machine.lent) == SPARE + 1
    assert machine.closed == 1


def test_a_model_answers_alone(machine: ScriptedMachine) -> None:
    with Shells("memory", cwd="/there") as opened:
        assert opened.system == "of-the-model"
        opened.make_ready()
        shell = opened.open()
        assert isinstance(shell, ModelShell)
        assert answered_by(shell) == ("model", None)
        shell.run("sure")
        assert answered_by(shell) == ("model", 1.0)
        interrupt(shell)
        assert not shell.ended
    assert machine.opened == []  # type: ignore[attr-defined]
    with pytest.raises(StartDirectoryError, match="'/elsewhere' is not a directory"):
        Shells("memory", cwd="/elsewhere")
    assert Shells("memory", system="named").system == "named"


def test_a_model_above_a_machine(machine: ScriptedMachine) -> None:
    opened = Shells("memory", machine_below=0.5, cwd="/start")
    assert machine.opened == ["of-the-model"]  # type: ignore[attr-defined]
    shell = opened.open()
    assert isinstance(shell, HybridShell)
    shell.run("sure")
    assert answered_by(shell) == ("model", 1.0)
    shell.run("echo")
    assert answered_by(shell) == ("machine", None)
    interrupt(shell)
    assert shell.ended
    opened.close()


def test_wrong_usage_closes_what_was_opened(machine: ScriptedMachine) -> None:
    with pytest.raises(UsageError, match="--machine-below needs a model"):
        Shells(machine_below=0.5)
    machine.keeps_shells = False
    with pytest.raises(UsageError, match="persistent shells"):
        Shells()
    assert machine.closed == 1


def test_models_come_from_an_installed_package(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    point = SimpleNamespace(
        module="guest.models", load=lambda: lambda *given, **named: asked.append((given, named))
    )
    monkeypatch.setattr(answerer, "installed_points", lambda _: {"default": point})
    monkeypatch.setattr(answerer, "find_guest", lambda _, name: lambda: ["b", "a"])
    answerer.load_model("one", abstain_below=0.5, without=["rules"])
    assert asked[0][0] == ("one",)
    assert (asked[0][1]["abstain_below"], asked[0][1]["without"]) == (0.5, ["rules"])
    assert answerer.model_names() == ["a", "b"]
    assert answerer.answerer_package() == "guest"
    monkeypatch.setattr(answerer, "installed_points", lambda _: {})
    monkeypatch.setattr(answerer, "find_guest", lambda *_: None)
    assert answerer.model_names() == []
    with pytest.raises(MissingExtraError, match="a model needs shioenv-model"):
        answerer.answerer_package()
