"""Local actions match the numbered productions, and a history tells states apart."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from shioenv.env.grammar_env import GrammarEnv
from shioenv.env.shio_env import ShIOEnv
from shioenv.env.wrappers import (
    ACTION_MASK,
    AHEAD,
    OBSERVATIONS,
    LocalActions,
    MaskedObservation,
    ProductionHistory,
)
from shioenv.errors import ActionError, EnvironmentOptionError
from shioenv.grammar.bind import stand_in_catalogue
from support.scripted_shell import ScriptedShell


def make(**options: Any) -> GrammarEnv:
    options = {"commands": ["df", "ls"], "catalogue": stand_in_catalogue(), **options}
    return GrammarEnv(runner=ScriptedShell(), **options)


def test_local_action_is_the_permitted_one_of_that_number() -> None:
    plain = make()
    local = LocalActions(make())
    for seed in range(20):
        random = np.random.default_rng(seed)
        plain.reset(seed=seed)
        observation, info = local.reset(seed=seed)
        while True:
            count = len(plain.permitted)
            assert info["action_mask"].tolist() == [1] * count + [0] * (local.most - count)
            assert (observation["action_mask"] == info["action_mask"]).all()
            assert (local.action_masks() == info["action_mask"]).all()
            assert local.observation_space.contains(observation)
            chosen = int(random.integers(count))
            expected = plain.step(plain.permitted[chosen])
            observation, *found, info = local.step(chosen)
            assert found == list(expected[1:4])
            assert info["state"] == expected[4]["state"]
            if expected[2]:
                break
        assert not info["action_mask"].any()
        assert not local.action_masks().any()


def test_actions_are_as_many_as_are_ever_permitted() -> None:
    env = make()
    most = 0
    for seed in range(300):
        random = np.random.default_rng(seed)
        env.reset(seed=seed)
        done = False
        while not done:
            most = max(most, len(env.permitted))
            done = env.step(random.choice(env.permitted))[2]
    assert most == LocalActions(env).action_space.n == env.tables.most  # type: ignore[attr-defined]


def test_action_behind_the_permitted_ones_is_masked() -> None:
    env = LocalActions(make())
    _, info = env.reset(seed=0)
    *_, reward, terminated, _, info = env.step(int(info["action_mask"].sum()))
    assert (reward, terminated, info["error"]) == (-10.0, True, "MASKED_ACTION")
    env.reset(seed=0)
    for action in (-1, env.most, "ls", 1.5):
        with pytest.raises(ActionError):
            env.step(action)  # type: ignore[arg-type]


def test_history_shows_what_is_expanded_and_what_was_taken() -> None:
    inner = make()
    env = ProductionHistory(inner, length=4)
    seen: dict[tuple[int, ...], str] = {}
    for seed in range(60):
        random = np.random.default_rng(seed)
        tokens, info = env.reset(seed=seed)
        done = False
        while not done:
            assert env.observation_space.contains(tokens)
            taken = inner.taken[::-1][:4]
            assert (tokens[AHEAD:] > 0).sum() == len(taken)
            key = int(tokens[0]), *map(int, tokens[AHEAD : AHEAD + len(taken)])
            assert seen.setdefault((key[0],), info["leftmost"]) == info["leftmost"]
            tokens, _, done, _, info = env.step(random.choice(inner.permitted))
        assert tokens[0] == 0
        assert tokens[1] - env._productions == inner.taken[0]
    assert len(set(seen.values())) == len(seen) > 5


def test_given_command_is_the_first_production_of_the_history() -> None:
    env = ProductionHistory(make(command="uniform"), length=2)
    commands = {int(env.reset(seed=seed)[0][1]) for seed in range(20)}
    assert len(commands) == 2
    assert 0 not in commands


@pytest.mark.parametrize("wrap", [lambda env: env, LocalActions])
def test_masked_observation_holds_the_observation_as_floats(wrap: Any) -> None:
    plain, masked = wrap(make()), MaskedObservation(wrap(make()))
    inner = make()
    one_hot = inner.tables.nonterminals + 2
    for seed in range(10):
        random = np.random.default_rng(seed)
        expected, _ = plain.reset(seed=seed)
        seen, info = masked.reset(seed=seed)
        done = False
        while not done:
            assert masked.observation_space.contains(seen)
            assert (seen[ACTION_MASK] == expected[ACTION_MASK]).all()
            floats = seen[OBSERVATIONS]
            assert floats[:one_hot].nonzero()[0].tolist() == [expected["leftmost"]]
            symbols = np.rint(floats[one_hot:] * (len(inner.vocabulary) + 1))
            assert (symbols == expected["symbols"]).all()
            action = random.choice(np.flatnonzero(info[ACTION_MASK]))
            expected = plain.step(action)[0]
            seen, _, done, _, info = masked.step(action)
        assert not seen[ACTION_MASK].any()
        assert masked.observation_space.contains(seen)


def test_masked_observation_needs_bounds() -> None:
    unbounded = gymnasium.spaces.Box(-np.inf, np.inf, (2,))
    env = gymnasium.wrappers.TransformObservation(make(), lambda seen: seen, unbounded)
    with pytest.raises(EnvironmentOptionError, match="unbounded"):
        MaskedObservation(env)


@pytest.mark.filterwarnings("ignore:.*different from the unwrapped version")
@pytest.mark.parametrize(
    "wrap",
    [
        LocalActions,
        ProductionHistory,
        lambda env: LocalActions(ProductionHistory(env)),
        lambda env: ProductionHistory(LocalActions(env)),
        MaskedObservation,
        lambda env: MaskedObservation(LocalActions(env)),
        lambda env: MaskedObservation(LocalActions(ProductionHistory(env))),
    ],
)
def test_wrapped_environments_pass_the_checks(wrap: Any) -> None:
    env = wrap(make())
    check_env(env, skip_close_check=True, skip_render_check=True)
    env.reset(seed=0)
    masks = env.action_masks()
    assert masks.shape == (env.action_space.n,)
    assert masks.sum() == 2


@pytest.mark.parametrize("wrap", [LocalActions, ProductionHistory, MaskedObservation])
def test_other_environments_are_refused(wrap: Any) -> None:
    for env in (ShIOEnv(), gymnasium.make("CartPole-v1")):
        with pytest.raises(EnvironmentOptionError, match="has no grammar environment"):
            wrap(env)
    with pytest.raises(EnvironmentOptionError, match="length"):
        ProductionHistory(make(), length=0)
