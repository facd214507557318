"""Scores and environments accept any runner, even one that executes nothing."""

from __future__ import annotations

import shioenv
from shioenv.domain.behavior import Behavior
from shioenv.domain.runner import Answer, State, answer_of
from shioenv.env.shio_env import ShIOEnv


class Predicted:
    """Predicts that an input prints its words, with a confidence below 1."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, State | None]] = []

    def answer(self, shell_input: str, state: State | None = None) -> Answer:
        self.asked.append((shell_input, state))
        words = "".join(f"{word * 50}\n" for word in shell_input.split())
        return Answer(Behavior(0, words.encode()), 0.5, "its words")

    def run(self, shell_input: str, state: State | None = None) -> Behavior:
        return self.answer(shell_input, state).behavior


def test_a_score_of_what_a_runner_predicts() -> None:
    runner = Predicted()
    assert shioenv.score("ls -l documents", runner=runner, cwd="/tmp").irreducibility == 1.0
    assert {state.cwd for _, state in runner.asked if state} == {"/tmp"}
    assert answer_of(runner, "ls").confidence == 0.5


def test_an_episode_of_what_a_runner_predicts() -> None:
    env = ShIOEnv(runner=Predicted(), budget=8)
    env.reset(seed=1, options={"cwd": "/tmp"})
    for action in (("ls", 0, 1), ("-l", 0, 0), ("", 1, 0)):
        _, reward, terminated, _, info = env.step(action)
    assert (reward, terminated, info["exit_code"]) == (1.0, True, 0)
    assert info["stdout"] is None, "nobody knows what a prediction's channels hold"
