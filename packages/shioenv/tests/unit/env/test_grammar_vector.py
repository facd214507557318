"""The native vector: the episodes of single environments, scored concurrently or in one batch."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import wrappers
from gymnasium.wrappers.vector import RecordEpisodeStatistics as VectorStatistics

from shioenv import registration
from shioenv.domain.behavior import Behavior
from shioenv.domain.runner import ScriptedCall
from shioenv.env.grammar_env import GrammarEnv
from shioenv.env.rewards import Gate, irreducibility, necessary
from shioenv.env.vector import GrammarVectorEnv
from shioenv.env.wrappers import LocalActions, ProductionHistory
from shioenv.errors import ActionError, EnvironmentOptionError, EpisodeError, SandboxError
from shioenv.grammar.bind import stand_in_catalogue
from support.scripted_shell import Opener, ScriptedShell

registration.register()

OPTIONS: dict[str, Any] = {"commands": ["df", "ls"], "catalogue": stand_in_catalogue()}


def make(**options: Any) -> GrammarVectorEnv:
    options = {"num_envs": 3, "runner": ScriptedShell, "sandboxes": 2, **OPTIONS, **options}
    return GrammarVectorEnv(**options)


def roll(vector: GrammarVectorEnv, steps: int) -> tuple[list[Any], list[str]]:
    """Return the results of so many steps of actions drawn with a fixed seed, and the written
    records."""
    random = np.random.default_rng(0)
    _, infos = vector.reset(seed=0)
    results, written = [], []
    for _ in range(steps):
        actions = [random.choice(np.flatnonzero(mask)) for mask in infos["action_mask"]]
        observations, rewards, terminated, truncated, infos = vector.step(np.array(actions))
        results.append((observations, rewards, terminated, truncated))
        for number in np.flatnonzero(terminated):
            written.append(infos["final_info"]["state"][number])
    return results, written


def test_episodes_are_those_of_single_environments() -> None:
    vector = make()
    singles = [GrammarEnv(runner=ScriptedShell(), **OPTIONS) for _ in range(3)]
    expected = [env.reset(seed=5 + number) for number, env in enumerate(singles)]
    observations, infos = vector.reset(seed=5)
    random = np.random.default_rng(0)
    ended = 0
    for _ in range(150):
        assert vector.observation_space.contains(observations)
        for number, (observation, info) in enumerate(expected):
            for name, value in observation.items():
                assert (observations[name][number] == value).all()
            assert infos["state"][number] == info["state"]
        actions = np.array([random.choice(env.permitted) for env in singles])
        observations, rewards, terminated, _, infos = vector.step(actions)
        for number, env in enumerate(singles):
            observation, reward, done, _, info = env.step(actions[number])
            assert (rewards[number], terminated[number]) == (reward, done)
            if done:
                ended += 1
                assert infos["final_info"]["input"][number] == info["input"]
                assert infos["final_info"]["irreducibility"][number] == info["irreducibility"]
                final = infos["final_obs"][number]
                assert (final["symbols"] == observation["symbols"]).all()
                observation, info = env.reset()
            expected[number] = observation, info
    assert ended > 5
    vector.close()


def test_deferred_rewards_are_those_of_the_steps() -> None:
    plain, written = roll(vector := make(rewards=Gate(necessary), noise_runs=2), 100)
    vector.close()
    vector = make(rewards=Gate(necessary), noise_runs=2, defer=True)
    later, written_later = roll(vector, 100)
    assert written == written_later
    rewards, episodes = vector.collect()
    vector.close()
    assert rewards.shape == (100, 3)
    assert rewards.any()
    for step, (now, then) in enumerate(zip(plain, later, strict=True)):
        assert (now[1] == then[1] + rewards[step]).all()
        assert (now[2] == then[2]).all()
    assert [episode.reward for episode in episodes] == [
        rewards[episode.step, episode.env] for episode in episodes
    ]
    assert episodes == sorted(episodes, key=lambda episode: (episode.step, episode.env))


def test_collecting_twice_gives_each_episode_once() -> None:
    vector = make(defer=True)
    roll(vector, 60)
    first = vector.collect()
    again = vector.collect()
    assert len(first[1]) > 0
    assert (again[0].shape, again[1]) == ((0, 3), [])
    roll(vector, 10)
    vector.reset(seed=1)
    assert vector.collect()[0].shape == (0, 3)
    vector.close()


def test_step_that_defers_waits_for_no_execution() -> None:
    gate = threading.Event()

    class Waiting(ScriptedShell):
        def answer_to(self, asked: ScriptedCall) -> Behavior | None:
            assert gate.wait(60)
            return super().answer_to(asked)

    vector = make(runner=Waiting, defer=True)
    roll(vector, 80)
    gate.set()
    assert vector.collect()[1]
    vector.close()


def test_reset_scores_nothing_more_of_what_was_written_before() -> None:
    gate = threading.Event()
    started: list[str] = []

    class Waiting(ScriptedShell):
        def answer_to(self, asked: ScriptedCall) -> Behavior | None:
            started.append(asked.text)
            assert gate.wait(60)
            return super().answer_to(asked)

    vector = make(runner=Waiting, defer=True, sandboxes=1, budget=1, noise_runs=1)
    _, written = roll(vector, 80)
    vector.reset(seed=1)
    gate.set()
    _, again = roll(vector, 12)
    assert vector.collect()[1]
    vector.close()
    inputs, later = ({one.strip("()").replace(", ", " ") for one in of} for of in (written, again))
    forgotten = inputs - later
    assert len(forgotten) > 6
    # one was being executed, and one may be a part of a later batch
    assert len(forgotten & set(started)) <= 2


def test_sessions_are_scored_side_by_side_in_so_many_sandboxes() -> None:
    """Each waits until the other one has begun: with one sandbox this would deadlock."""
    both = threading.Barrier(2)
    begun: list[int] = []

    class Meeting(ScriptedShell):
        met = False

        def answer_to(self, asked: ScriptedCall) -> Behavior | None:
            if not self.met:
                self.met = True
                begun.append(both.wait(60))
            return super().answer_to(asked)

    opener = Opener(Meeting)
    vector = make(runner=opener, defer=True)
    roll(vector, 80)
    vector.collect()
    assert len(begun) == len(opener.opened) == 2
    assert all(isinstance(one, Meeting) for one in opener.opened)
    vector.close()
    assert [one.closed for one in opener.opened] == [1, 1]


def test_broken_sandbox_is_replaced_and_a_second_break_is_told() -> None:
    opener = Opener()
    opener.make = lambda: ScriptedShell(
        fails=SandboxError("gone") if len(opener.opened) < 1 else None
    )
    vector = make(runner=opener, sandboxes=1, defer=True)
    roll(vector, 60)
    assert vector.collect()[1]
    vector.close()
    vector = make(runner=lambda: ScriptedShell(fails=SandboxError("gone")), defer=True)
    roll(vector, 60)
    with pytest.raises(SandboxError):
        vector.collect()
    vector.close()


@pytest.mark.parametrize(
    "wrap",
    [
        (LocalActions,),
        (ProductionHistory,),
        (LocalActions, ProductionHistory),
        (ProductionHistory, LocalActions),
    ],
)
def test_wrappers_go_around_each_environment(wrap: tuple[Callable[..., Any], ...]) -> None:
    vector = make(wrap=wrap)
    results, _ = roll(vector, 40)
    assert any(result[2].any() for result in results)
    assert vector.action_masks().shape == (3, vector.single_action_space.n)  # type: ignore[attr-defined]
    assert (vector.action_masks().sum(axis=1) > 0).all()
    vector.close()


class Discounted(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A wrapper that is no `RewardWrapper`, and uses the reward in `step`."""

    def step(self, action: Any) -> Any:
        observation, reward, ended, cut, info = self.env.step(action)
        return observation, 0.5 * float(reward), ended, cut, info


class Bounded(gymnasium.RewardWrapper[Any, Any]):
    """A wrapper that only compares the reward."""

    def reward(self, reward: Any) -> Any:
        return max(reward, -1)


USERS: dict[str, Callable[..., Any]] = {
    "statistics": wrappers.RecordEpisodeStatistics,
    "transform": lambda env: wrappers.TransformReward(env, lambda reward: 100 * float(reward)),
    "constant": lambda env: wrappers.TransformReward(env, lambda reward: 1.0),
    "equal constant": lambda env: wrappers.TransformReward(env, lambda reward: 0.0),
    "clip": lambda env: wrappers.ClipReward(env, -1, 1),
    "normalize": wrappers.NormalizeReward,
    "own step": Discounted,
    "own comparison": Bounded,
}


@pytest.mark.parametrize("defer", [False, True])
@pytest.mark.parametrize("name", USERS)
def test_wrappers_that_use_rewards_are_refused(name: str, defer: bool) -> None:
    """A session is scored later: such a wrapper would use a wrong reward."""
    vector = make(wrap=[USERS[name]], defer=defer)
    with pytest.raises(EnvironmentOptionError, match="not scored yet"):
        roll(vector, 80)
    vector.close()


def test_wrappers_that_pass_rewards_on_change_none() -> None:
    plain, wrapped = (make(wrap=wrap) for wrap in ((), (wrappers.OrderEnforcing,)))
    results, others = (roll(vector, 40)[0] for vector in (plain, wrapped))
    assert any(one[1].any() for one in results)
    assert all(np.array_equal(one[1], other[1]) for one, other in zip(results, others, strict=True))
    for vector in (plain, wrapped):
        vector.close()


def test_a_wrapper_of_the_vector_has_the_true_rewards() -> None:
    vector = VectorStatistics(make())
    vector.reset(seed=7)
    sums, seen = np.zeros(3), 0
    masks = vector.env.action_masks  # type: ignore[attr-defined]
    for _ in range(80):
        _, rewards, ended, cut, info = vector.step(masks().argmax(axis=1))
        sums += rewards
        for number in np.flatnonzero(ended | cut):
            assert info["episode"]["r"][number] == pytest.approx(sums[number])
            sums[number], seen = 0, seen + 1
    assert seen
    vector.close()


@pytest.mark.filterwarnings("error")
def test_gymnasium_makes_it() -> None:
    vector = gymnasium.make_vec(
        "ShIOEnv-Grammar-v0", num_envs=2, runner=ScriptedShell, sandboxes=1, **OPTIONS
    )
    assert isinstance(vector, GrammarVectorEnv)
    observations, _ = vector.reset(seed=[3, None])
    assert observations["symbols"].shape == (2, 128)
    vector.close()
    with pytest.raises(EpisodeError):
        make().step(np.zeros(3, np.int64))


def test_what_makes_no_sense_is_refused() -> None:
    for options in ({"num_envs": 0}, {"sandboxes": 0}, {"runner": ScriptedShell()}):
        with pytest.raises(EnvironmentOptionError):
            make(**options)
    with pytest.raises(EnvironmentOptionError, match="rendered"):
        make(render_mode="ansi")
    vector = make()
    with pytest.raises(EnvironmentOptionError, match="2 seeds for 3"):
        vector.reset(seed=[1, 2])
    assert vector.rewards is irreducibility


@pytest.mark.parametrize("defer", [False, True])
def test_an_action_that_cannot_be_read_leaves_no_episode_behind(defer: bool) -> None:
    """An episode that ends in the step of such an action is scored in no later step."""
    vector = make(num_envs=2, defer=defer)
    _, infos = vector.reset(seed=0)
    random = np.random.default_rng(0)
    single = GrammarEnv(runner=ScriptedShell(), **OPTIONS)
    single.reset(seed=0)
    ended = False
    while not ended:
        first, other = (random.choice(np.flatnonzero(mask)) for mask in infos["action_mask"])
        _, _, ended, _, _ = single.step(first)
        if ended:
            with pytest.raises(ActionError):
                vector.step(np.array([first, -7]))
            other = random.choice(np.flatnonzero(vector.action_masks()[1]))
            first = random.choice(np.flatnonzero(vector.action_masks()[0]))
        _, _, terminated, _, infos = vector.step(np.array([first, other]))
    _, episodes = vector.collect() if defer else (None, [])
    assert not [one for one in episodes if one.env == 0 and not terminated[0]]
    vector.close()
