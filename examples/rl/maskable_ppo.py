"""Train MaskablePPO (sb3-contrib) to write inputs in which every argument matters.

    pip install 'shioenv[rl]'
    python examples/rl/maskable_ppo.py --episodes 5000 --out runs/maskable

Each episode has a given command, all commands equally likely. It rewards the arguments that change
the result of a new, steady and successful input. Writes OUT/log.csv (a line an executed input),
checkpoints by Stable-Baselines3 in OUT/checkpoints, and OUT/model.zip for `evaluate.py` and
`plot.py`.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Sequence
from pathlib import Path

from sb3_contrib import MaskablePPO
from stable_baselines3.common.callbacks import CheckpointCallback

from shioenv.env.rewards import SEES_ALONE, Gate, necessary
from shioenv.env.vector import EndedEpisode, GrammarVectorEnv
from shioenv.env.wrappers import LocalActions, ProductionHistory
from shioenv_agents.fronts.stable_baselines import DeferredRewards, StableVecEnv, TokenEmbedding

COLUMNS = ("episode", "seconds", "reward", "irreducibility", "n_arguments", "exit_code",
           "input")  # fmt: skip


def make(sampler: str, commands: list[str] | None, envs: int) -> StableVecEnv:
    """Make the training environments."""
    return StableVecEnv(
        GrammarVectorEnv(
            envs,
            sampler=sampler,
            commands=commands,
            command="uniform",
            defer=True,
            rewards=Gate(necessary),
            wrap=[LocalActions, ProductionHistory],
            record=False,
            budget=SEES_ALONE,
            noise_runs=2,
            wall_seconds=0.5,
        )
    )


class Log:
    """A line of CSV for each executed input; training ends after a number of them."""

    def __init__(self, path: Path, episodes: int) -> None:
        self.file = path.open("w", newline="")
        self.lines = csv.writer(self.file)
        self.lines.writerow(COLUMNS)
        self.episodes, self.done, self.began = episodes, 0, time.monotonic()
        self.means: list[float] = []

    def tell(self, ended: Sequence[EndedEpisode]) -> bool:
        """Keep the inputs of a rollout, and return whether to go on."""
        seconds = round(time.monotonic() - self.began, 1)
        for episode in ended:
            self.done += 1
            score, behavior = episode.scored.score, episode.scored.behavior
            values = (score.irreducibility, score.n_arguments, behavior.exit_code)
            text = episode.scored.session.text
            self.lines.writerow((self.done, seconds, episode.reward, *values, text))
        self.file.flush()
        if ended:
            self.means.append(sum(episode.reward for episode in ended) / len(ended))
            print(f"{self.done:6} episodes, {seconds:6} s, mean reward {self.means[-1]:.3f}")
        return self.done < self.episodes


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--episodes", type=int, default=5000, help="inputs to execute")
    parser.add_argument("--out", type=Path, default=Path("runs/maskable"), help="directory")
    parser.add_argument("--seed", type=int, default=0, help="of the network and its actions")
    parser.add_argument("--envs", type=int, default=32, help="environments in parallel")
    parser.add_argument("--sampler", default="gcs", help="gcs, ucs or ucs-universal")
    parser.add_argument("--commands", nargs="*", help="these only; else all")
    parser.add_argument("--tensorboard", action="store_true", help="log there as well")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    env = make(given.sampler, given.commands, given.envs)
    model = MaskablePPO(
        "MlpPolicy",
        env,
        n_steps=max(1024 // given.envs, 2),
        batch_size=128,
        n_epochs=4,
        gamma=1.0,
        ent_coef=0.01,
        seed=given.seed,
        policy_kwargs={"features_extractor_class": TokenEmbedding},
        tensorboard_log=str(given.out / "tensorboard") if given.tensorboard else None,
        verbose=0,
    )
    checkpoints = CheckpointCallback(max(20_000 // given.envs, 1), str(given.out / "checkpoints"))
    log = Log(given.out / "log.csv", given.episodes)
    model.learn(total_timesteps=1 << 40, callback=[DeferredRewards(log.tell), checkpoints])
    model.save(given.out / "model")
    env.close()
    first, last = log.means[0], log.means[-1]
    print(f"mean reward {first:.3f} in the first rollout, {last:.3f} in the last")
    print(f"{log.done} episodes, {given.out / 'model.zip'}")


if __name__ == "__main__":
    main()
