"""Forged rewards are never paid. The soak tries the same list on 50 tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

import pytest

from shioenv.behavior.observe import SandboxRunner, open_sandbox
from shioenv.domain.inputs import Session
from shioenv.irreducibility.scoring import Scoring
from shioenv.live.entered import close
from shioenv.recording.session import SessionRecorder
from shioenv.recording.text_score import read_arguments
from shioenv.system.store import System
from shioenv_agents.tasks.attacks import ATTACKS, HARM, Attack, forgeries
from shioenv_agents.tasks.entered_machine import Command
from shioenv_agents.tasks.episode import Episode
from shioenv_agents.tasks.make import make_task
from shioenv_agents.tasks.task import Task
from shioenv_agents.tasks.terminal import for_rows

pytestmark = pytest.mark.xdist_group("forged")

TEXTS = ("chmod 600 data/numbers.txt", "sort documents/names.txt", "export DB_PORT=100")


@pytest.fixture(scope="module")
def machine(system: System) -> Iterator[SandboxRunner]:
    with open_sandbox(system, for_rows(None)) as machine:
        yield machine


@pytest.fixture(scope="module")
def task(machine: SandboxRunner) -> Callable[[str], Task]:
    made: dict[str, Task] = {}

    def of(text: str) -> Task:
        if text not in made:
            recorder = SessionRecorder(scoring=Scoring(budget=8))
            session = Session("/home/ubuntu", (read_arguments(text, machine.system).input,))
            recorded = recorder.record(session, machine, Random(0))
            record = recorded.record(1, system=machine.system.name, sampler="test")
            found = make_task(record, machine)
            assert isinstance(found, Task), found
            made[text] = found
        return made[text]

    return of


@pytest.mark.parametrize("number", range(len(ATTACKS)), ids=[one.kind for one in ATTACKS])
def test_no_reward_is_forged(
    number: int, machine: SandboxRunner, task: Callable[[str], Task]
) -> None:
    """Each attack meets one of the tasks; which one changes from attack to attack."""
    made = task(TEXTS[number % len(TEXTS)])
    assert forgeries(made, machine, [ATTACKS[number]]) == []


@pytest.mark.parametrize("number", range(0, len(ATTACKS), 6), ids=lambda n: ATTACKS[n].kind)
def test_no_reward_is_forged_beside_a_command_that_entered(
    number: int, machine: SandboxRunner, task: Callable[[str], Task]
) -> None:
    made = task(TEXTS[0])
    rows = ATTACKS[number].on(made)
    episode = Episode(made, machine, len(rows))
    close(episode.terminal.enter(Command(text="sleep 1000")))
    for row in rows:
        assert not episode.act(row).done
    assert episode.terminal.entered


def test_the_list_has_kinds_enough() -> None:
    assert len({one.kind for one in ATTACKS}) == len(ATTACKS) >= 40
    assert len({one.rows for one in ATTACKS}) == len(ATTACKS)
    for attack in ATTACKS:
        rows = "\n".join(attack.rows)
        assert "SOLUTION" not in rows or "HARM" in rows, attack.kind


def test_whoever_does_the_task_would_be_found(
    machine: SandboxRunner, task: Callable[[str], Task]
) -> None:
    honest = Attack("honest work", ("SOLUTION",))
    for text in TEXTS:
        assert forgeries(task(text), machine, [honest]) == ["honest work"]


def test_words_of_an_attack_are_filled_in_once(task: Callable[[str], Task]) -> None:
    made = task(TEXTS[0])
    rows = Attack("all words", ("HARM; SOLUTION", "echo GOAL PROMPT")).on(made)
    assert rows[0] == f"{HARM}; {made.solution}"
    assert rows[1].count("numbers.txt") >= 2
