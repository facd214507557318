"""Rewards are functions of a session's behavior and scores, with a gate before them."""

from __future__ import annotations

import pickle
from hashlib import sha256
from typing import Any

import pytest

from shioenv.domain.behavior import Behavior
from shioenv.domain.runner import ScriptedCall
from shioenv.env.rewards import SEES_ALONE, Gate, Reward, irreducibility, necessary
from shioenv.env.scorer import ScoredSession
from shioenv.env.shio_env import ShIOEnv
from support.scripted_shell import ScriptedShell

SAME = Behavior(0, b"same")
TABLE = {
    "ls a b": SAME,
    "ls a": Behavior(0, b"other"),
    "ls b": SAME,
    "ls": Behavior(0, b"others still"),
    "ls a a": Behavior(2, b"no such file"),
}


class Hashing(ScriptedShell):
    """Prints another text for every line."""

    def answer_to(self, asked: ScriptedCall) -> Behavior:
        return Behavior(0, sha256(asked.text.encode()).digest())


def made(rewards: Reward | None = None, *, arguments: int = 4, **options: Any) -> ShIOEnv:
    options |= {} if rewards is None else {"rewards": rewards}
    options.setdefault("runner", ScriptedShell(TABLE))
    return ShIOEnv(
        max_segments=1,
        max_arguments=arguments,
        record=False,
        **options,
    )


def write(env: ShIOEnv, *words: str) -> float:
    env.reset(seed=0)
    for number, word in enumerate(words):
        env.step((word, 0, int(number == 0)))
    return float(env.step(("", 1, 0))[1])


def test_irreducibility_is_the_default() -> None:
    assert write(made(), "ls", "a", "b") == write(made(irreducibility), "ls", "a", "b") == 0.5
    assert write(made(), "ls") == 0.0


def test_necessary_counts_arguments_over_the_horizon() -> None:
    assert write(made(necessary), "ls", "a", "b") == 1 / 4
    assert write(made(necessary, arguments=8), "ls", "a", "b") == 1 / 8
    assert write(made(necessary), "echo", "a", "b", "c", "d") == 1.0
    assert write(made(necessary), "ls") == 0.0


@pytest.mark.parametrize("estimator", ["balanced", "stratified"])
@pytest.mark.parametrize("count", [1, 4, 5, 6, 9, 12])
def test_necessary_sees_every_argument_with_the_budget_that_learners_have(
    count: int, estimator: str
) -> None:
    words = ["echo", *"abcdefghijkl"[:count]]
    scoring = {"noise_runs": 2, "budget": SEES_ALONE, "estimator": estimator}
    env = made(necessary, arguments=12, runner=Hashing(), **scoring)
    assert write(env, *words) == pytest.approx(count / 12)


def test_necessary_does_not_see_them_with_less() -> None:
    """By the reference: a learner would learn short inputs."""
    env = made(necessary, arguments=12, runner=Hashing(), noise_runs=2, budget=16)
    assert write(env, "echo", *"abcdefgh") < 0.5 * 8 / 12


def test_gate_pays_for_what_succeeds() -> None:
    assert write(made(irreducibility), "ls", "a", "a") > 0
    assert write(made(Gate(irreducibility)), "ls", "a", "a") == 0
    assert write(made(Gate(irreducibility, success=False)), "ls", "a", "a") > 0


def test_gate_pays_for_what_is_steady() -> None:
    words = ("mktemp", "-u")  # its grammar declares that two runs differ
    assert write(made(Gate(necessary)), *words) == 0
    assert write(made(Gate(necessary, steady=False)), *words) == 1 / 4


def test_gate_pays_once_however_the_words_are_cut() -> None:
    env = made(Gate(necessary))
    assert write(env, "echo", "a", "b") > 0
    for words in (("echo", "a<ns>", "b"), ("echo", "a", "b<ns>"), ("echo<ns>", "a", "b")):
        assert write(env, *words) == 0


@pytest.mark.parametrize("word", ['"a"', "'a'", "\\a", "''a", "a''"])
def test_gate_pays_once_however_a_word_is_quoted(word: str) -> None:
    env = made(Gate(necessary))
    assert write(env, "echo", "a", "b") > 0
    assert write(env, "echo", word, "b") == 0
    assert write(env, "echo", "'a b'") > 0


def test_gate_pays_once_whatever_the_order() -> None:
    env = made(Gate(necessary))
    paid = [write(env, *words) for words in (("echo", "a", "b"), ("echo", "a", "b"))]
    assert paid == [1 / 2, 0]
    assert write(env, "echo", "b", "a") == 0
    assert write(env, "echo", "b", "c") == 1 / 2
    env = made(Gate(necessary, unseen=False))
    assert [write(env, "echo", "a"), write(env, "echo", "a")] == [1 / 4, 1 / 4]


def test_any_function_is_a_reward() -> None:
    def length(scored: ScoredSession) -> float:
        return float(len(scored.session.text))

    assert write(made(length), "ls", "b") == len("cd /home/ubuntu; ls b")


def test_rewards_can_be_pickled() -> None:
    for reward in (irreducibility, necessary, Gate(unseen=False)):
        again = pickle.loads(pickle.dumps(reward))
        assert write(made(again), "ls", "a", "b") == write(made(reward), "ls", "a", "b")
