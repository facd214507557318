"""Inputs of random and learned policies, with and without the grammar's constraint.

These are the four regimes of the paper's first version (UCRT, GCRT, UCPN, GCPN). Actions are
unconstrained or grammar-constrained, and chosen by random trajectories or a policy network.
Networks are trained by sb3-contrib's MaskablePPO.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from shioenv.env.rewards import SEES_ALONE, Gate, necessary
from shioenv.env.vector import EndedEpisode, GrammarVectorEnv
from shioenv.env.wrappers import LocalActions, ProductionHistory
from shioenv_eval.report.chart_style import require_libraries
from shioenv_eval.report.markup import Table
from shioenv_eval.report.means import half_interval
from shioenv_paper.experiment_output import Findings, columns, experiment
from shioenv_paper.setting import ExperimentSetting

NAME = "rl"
EPISODES = 5000
"""Number of executed training episodes of each network."""
SEEDS = 3
EVALUATED = 300
"""Number of evaluation episodes of each policy."""

ENVS: Final = 32
"""Number of inputs written in parallel."""
ROLLOUT: Final = 1024
"""Steps of all environments between two updates, as in the paper's first version."""

USEFUL_ARGUMENTS, USEFUL_SCORE = 3, 0.7

CONSTRAINTS: Final = {"GC": "gcs", "UC": "ucs-universal"}
RANDOM, LEARNED = "RT", "PN"

Choose: TypeAlias = Callable[[Any, Any], Any]


@dataclass(frozen=True, slots=True)
class PolicyEpisode:
    """An executed input of a policy."""

    regime: str
    seed: int
    number: int
    reward: float
    irreducibility: float | None
    necessary: float
    n_arguments: int
    exit_code: int
    volatile: bool
    command: str
    input: str

    @property
    def useful(self) -> bool:
        """Whether it succeeds, is not volatile, has at least 3 arguments, and scores .7 or more."""
        return (
            self.exit_code == 0
            and not self.volatile
            and self.n_arguments >= USEFUL_ARGUMENTS
            and (self.irreducibility or 0.0) >= USEFUL_SCORE
        )


@dataclass(frozen=True, slots=True)
class PolicyRun:
    """A policy's inputs with one seed."""

    regime: str
    seed: int
    episodes: tuple[PolicyEpisode, ...]
    ended: int
    """Number of finished episodes, including those rejected before execution."""


@experiment(NAME)
def run_learners(
    setting: ExperimentSetting,
    *,
    episodes: int = EPISODES,
    seeds: int = SEEDS,
    evaluated: int = EVALUATED,
) -> Findings:
    """Train a network of each constraint with each seed on at least `episodes` executed inputs.

    Each network is evaluated on at least `evaluated` further episodes, including rejected ones. A
    policy that samples actions uniformly is evaluated in the same way. The environment chooses the
    command of each episode. Errors: those of `experiment`; MissingExtraError without the extra
    `rl`.
    """
    require_libraries("this experiment", "rl", "sb3_contrib", "torch", "shioenv_agents")
    from shioenv_paper import experiment_charts

    played: list[PolicyRun] = []
    training: list[PolicyEpisode] = []
    began = time.monotonic()
    for constraint, sampler in CONSTRAINTS.items():
        for seed in range(setting.seed, setting.seed + seeds):
            regime = constraint + RANDOM
            judged = _evaluate(setting, sampler, uniform(seed), evaluated, seed)
            played.append(_policy_run(regime, seed, *judged))
            regime = constraint + LEARNED
            vector = _vector(setting, sampler, Gate(necessary))
            known = len(training)

            def told(ended: Sequence[EndedEpisode], regime: str = regime, seed: int = seed) -> int:
                done = len(training) - known  # noqa: B023 - called before the next round
                training.extend(_episodes(regime, seed, ended, done))
                setting.report(f"training {regime}, seed {seed}", done + len(ended), episodes)
                return done + len(ended)

            choose = train_policy(vector, seed, episodes, told)
            judged = _evaluate(setting, sampler, choose, evaluated, seed)
            played.append(_policy_run(regime, seed, *judged))
    names = [f.name for f in PolicyEpisode.__dataclass_fields__.values()]
    everything = [episode for one in played for episode in one.episodes]
    return Findings(
        title="Random and learned policies compared",
        data={"training": columns(training, *names), "evaluation": columns(everything, *names)},
        tables=(learners_table(played, episodes),),
        chart=experiment_charts.learning(training),
        counts={
            "inputs trained on": len(training),
            "inputs evaluated": len(everything),
            "episodes per second, total": round(
                (len(training) + len(everything)) / (time.monotonic() - began), 2
            ),
        },
        parameters={"episodes": episodes, "seeds": seeds, "evaluated": evaluated},
        summary={
            regime: {name: round(_mean(group, of)[0], 4) for name, of in MEASURES.items()}
            for regime, group in _regimes(played)
        },
    )


MEASURES: Final[dict[str, Callable[[PolicyRun], float]]] = {
    "R": lambda one: _average(one, lambda e: e.irreducibility or 0.0),
    "necessary": lambda one: _average(one, lambda e: e.necessary),
    "arguments": lambda one: _average(one, lambda e: e.n_arguments),
    "failing": lambda one: _average(one, lambda e: e.exit_code != 0),
    "unique": lambda one: len({e.input for e in one.episodes}) / max(len(one.episodes), 1),
    "commands": lambda one: len({e.command for e in one.episodes}),
    "refused": lambda one: 1 - len(one.episodes) / max(one.ended, 1),
    "useful": lambda one: sum(e.useful for e in one.episodes) / max(one.ended, 1),
}
"""The measures for evaluating policies, for each seed."""


def learners_table(played: Sequence[PolicyRun], episodes: int) -> Table:
    """Return a table with one row per regime, with 95% intervals over seeds."""
    rows = [
        (regime, str(len(group)), *(_shown(*_mean(group, of)) for of in MEASURES.values()))
        for regime, group in _regimes(played)
    ]
    note = (
        "Each cell is a mean over seeds, with its 95% interval if there are several seeds. "
        "Regimes: GC and UC are grammar-constrained and unconstrained action spaces (the samplers "
        "`gcs` and `ucs-universal`); RT is a random policy, PN a learned policy network. "
        "*R* is irreducibility, 0 where undefined. *Necessary* is the number of arguments whose "
        "omission alone changes the behavior, divided by the maximum of 12. "
        "*Unique* is the share of distinct inputs among the executed ones, *refused* the share of "
        "episodes without an execution. *Useful* is the share of episodes whose input exits with "
        "0, is not volatile, and has at least three arguments "
        f"and R of .7 or more. Each network was trained on {episodes} inputs. The "
        "environment chooses the command of each episode, uniformly; the policy chooses the rest."
    )
    return Table("Regimes", note, ("regime", "seeds", *MEASURES), rows)


def uniform(seed: int) -> Choose:
    """Return a policy that draws permitted actions uniformly."""
    random = np.random.default_rng(seed)
    return lambda _, masks: [random.choice(np.flatnonzero(mask)) for mask in masks]


def _vector(
    setting: ExperimentSetting, sampler: str, rewards: Callable[..., float]
) -> GrammarVectorEnv:
    return GrammarVectorEnv(
        ENVS,
        setting.system_name,
        sampler=sampler,
        command="uniform",
        rewards=rewards,
        defer=True,
        wrap=[LocalActions, ProductionHistory],
        record=False,
        budget=SEES_ALONE,
        noise_runs=2,
        wall_seconds=0.5,
    )


def train_policy(
    vector: GrammarVectorEnv,
    seed: int,
    episodes: int,
    told: Callable[[Sequence[EndedEpisode]], int],
) -> Choose:
    """Train a policy and return a function from observations and masks to actions. Closes `vector`.

    `told` receives the executed episodes of each rollout, and returns their total over all
    rollouts. Training ends after the rollout in which the total reaches `episodes`.

    Batches, epochs, discount and entropy are those of the paper's first version. The network is
    smaller: two layers of 64 after an embedding. The learning rate is the library's default.
    """
    from sb3_contrib import MaskablePPO

    from shioenv_agents.fronts.stable_baselines import DeferredRewards, StableVecEnv, TokenEmbedding

    env = StableVecEnv(vector)
    try:
        model = MaskablePPO(
            "MlpPolicy",
            env,
            n_steps=max(ROLLOUT // vector.num_envs, 2),
            batch_size=128,
            n_epochs=4,
            gamma=1.0,
            ent_coef=0.01,
            seed=seed,
            policy_kwargs={"features_extractor_class": TokenEmbedding},
        )
        callback = DeferredRewards(lambda ended: told(ended) < episodes)
        model.learn(total_timesteps=1 << 40, callback=callback)
    finally:
        env.close()
    return lambda observations, masks: model.predict(observations, action_masks=masks)[0]


def _evaluate(
    setting: ExperimentSetting, sampler: str, choose: Choose, episodes: int, seed: int
) -> tuple[list[EndedEpisode], int]:
    """Run `episodes` or more episodes. Return the executed ones, and the number of all."""
    vector = _vector(setting, sampler, necessary)
    try:
        observations, _ = vector.reset(seed=1_000_000 + seed)
        ended = 0
        while ended < episodes:
            actions = np.array(choose(observations, vector.action_masks()))
            observations, _, terminated, _, _ = vector.step(actions)
            ended += int(terminated.sum())
        return vector.collect()[1], ended
    finally:
        vector.close()


def _policy_run(regime: str, seed: int, ended: Sequence[EndedEpisode], count: int) -> PolicyRun:
    return PolicyRun(regime, seed, tuple(_episodes(regime, seed, ended, 0)), count)


def _episodes(
    regime: str, seed: int, ended: Sequence[EndedEpisode], done: int
) -> Iterator[PolicyEpisode]:
    for number, one in enumerate(ended, done + 1):
        scored = one.scored
        yield PolicyEpisode(
            regime=regime,
            seed=seed,
            number=number,
            reward=one.reward,
            irreducibility=scored.score.irreducibility,
            necessary=scored.reward(necessary),
            n_arguments=scored.score.n_arguments,
            exit_code=scored.behavior.exit_code,
            volatile=scored.volatile,
            command=scored.session.rows[0].segments[0].command,
            input=scored.session.text,
        )


def _regimes(played: Sequence[PolicyRun]) -> Iterator[tuple[str, list[PolicyRun]]]:
    for regime in dict.fromkeys(one.regime for one in played):
        yield regime, [one for one in played if one.regime == regime]


def _average(one: PolicyRun, of: Callable[[PolicyEpisode], float]) -> float:
    return sum(of(episode) for episode in one.episodes) / max(len(one.episodes), 1)


def _mean(
    group: Sequence[PolicyRun], of: Callable[[PolicyRun], float]
) -> tuple[float, float | None]:
    """Return the mean over seeds, and half of its 95% interval; None for one seed."""
    values = [of(one) for one in group]
    return sum(values) / len(values), half_interval(values)


def _shown(mean: float, half: float | None) -> str:
    digits = 1 if mean >= 2 else 3
    text = f"{mean:.{digits}f}"
    return text if half is None else f"{text} (± {half:.{digits}f})"
