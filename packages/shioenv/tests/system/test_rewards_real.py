"""Tricks of learners: what is rewarded under R earns nothing with the gate before `necessary`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from shioenv.env.grammar_env import GrammarEnv
from shioenv.env.rewards import Gate, irreducibility, necessary
from shioenv.env.shio_env import ShIOEnv
from shioenv.system.store import System

HORIZON = 12


@pytest.fixture(scope="module")
def env(system: System) -> Iterator[ShIOEnv]:
    made = ShIOEnv(
        max_segments=1, max_arguments=HORIZON, record=False, budget=32, noise_runs=2,
        rewards=Gate(necessary),
    )  # fmt: skip
    yield made
    made.close()


def paid(env: ShIOEnv, text: str) -> float:
    env.reset(seed=0, options={"cwd": "/home/ubuntu"})
    for number, word in enumerate(text.split()):
        env.step((word, 0, int(number == 0)))
    return float(env.step(("", 1, 0))[1])


def r(env: ShIOEnv) -> float:
    assert env.scored is not None
    return env.scored.reward(irreducibility)


def test_one_argument_that_matters_pays_a_twelfth_and_only_once(env: ShIOEnv) -> None:
    rewards = [paid(env, "unlink --version") for _ in range(3)]
    assert r(env) == 1.0
    assert rewards == [1 / HORIZON, 0, 0]


def test_failing_input_pays_nothing(env: ShIOEnv) -> None:
    assert paid(env, "scripts/deploy.sh scripts/deploy-v2.sh") == 0
    assert env.scored is not None
    assert env.scored.behavior.exit_code == 2
    assert r(env) == 1.0


def test_padding_pays_nothing(env: ShIOEnv) -> None:
    plain = paid(env, "ip -j -6 -o address show dev lo")
    padded = paid(env, "ip -r -j -s -6 -ts -o address show dev lo")
    assert env.scored is not None
    assert r(env) > 0.95
    assert env.scored.score.n_arguments == 10
    assert 0 < padded == plain


def test_volatile_input_pays_nothing(env: ShIOEnv) -> None:
    assert paid(env, "mktemp -u /tmp/XXXXXX") == 0
    assert r(env) > 0


def test_same_arguments_in_another_order_pay_nothing(env: ShIOEnv) -> None:
    assert paid(env, "ls -l -a") > 0
    assert paid(env, "ls -a -l") == 0


def test_policy_that_has_found_one_command_is_given_others() -> None:
    """A novelty bonus alone does not ensure this: commands come evenly, whatever the policy
    chooses."""
    env = GrammarEnv(commands=["df", "ls", "unlink", "wc"], command="uniform", runner=Silent())
    drawn: Counter[str] = Counter()
    for seed in range(200):
        env.reset(seed=seed)
        while not (step := env.step(int(np.min(env.permitted))))[2]:
            pass
        drawn[step[4]["input_args"][0]] += 1
    assert set(drawn) == {"df", "ls", "unlink", "wc"}
    assert max(drawn.values()) < 90


class Silent:
    """A runner without any output."""

    def run(self, shell_input: str, state: Any = None) -> Any:
        from shioenv.domain.behavior import Behavior

        return Behavior(0, b"")
