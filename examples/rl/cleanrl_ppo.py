"""PPO in one file, after CleanRL's `ppo.py`, with masked actions and delayed rewards.

    pip install 'shioenv[rl]'
    python examples/rl/cleanrl_ppo.py --episodes 5000 --out runs/cleanrl

It needs only PyTorch and the vector environment: a starting point for changes of the algorithm.
Inputs are scored while the next ones are written; `envs.collect()` gives a rollout's rewards.
Writes OUT/log.csv (a line an executed input) and OUT/agent.pt after each update.
"""

from __future__ import annotations

import argparse
import csv
import time
from pathlib import Path

import gymnasium
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

import shioenv  # noqa: F401 - registers the environments
from shioenv.env.rewards import SEES_ALONE, Gate, necessary
from shioenv.env.wrappers import LocalActions, ProductionHistory

COLUMNS = ("episode", "seconds", "reward", "irreducibility", "n_arguments", "exit_code", "input")


class Agent(nn.Module):
    """An embedding of the history's numbers, then an actor and a critic."""

    def __init__(self, size: int, tokens: int, actions: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(size, 32, padding_idx=0)
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(32 * tokens, 128), nn.Tanh())
        self.actor, self.critic = nn.Linear(128, actions), nn.Linear(128, 1)
        nn.init.orthogonal_(self.actor.weight, 0.01)

    def value(self, observations: torch.Tensor) -> torch.Tensor:
        """Return the estimated remaining return, (batch,)."""
        return self.critic(self.body(self.embedding(observations))).flatten()

    def forward(
        self, observations: torch.Tensor, masks: torch.Tensor, taken: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return actions, their log probabilities, the entropy, and the value."""
        hidden = self.body(self.embedding(observations))
        logits = self.actor(hidden).masked_fill(~masks, -1e8)
        chosen = Categorical(logits=logits)
        actions = chosen.sample() if taken is None else taken
        value = self.critic(hidden).flatten()
        return actions, chosen.log_prob(actions), chosen.entropy(), value


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=5000)
    parser.add_argument("--out", type=Path, default=Path("runs/cleanrl"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--envs", type=int, default=32)
    parser.add_argument("--steps", type=int, default=32, help="of each environment in a rollout")
    parser.add_argument("--commands", nargs="*", help="default: all")
    parser.add_argument("--learning-rate", type=float, default=5e-4)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--clip", type=float, default=0.2)
    parser.add_argument("--gae", type=float, default=0.95)
    parser.add_argument("--entropy", type=float, default=0.01)
    given = parser.parse_args()
    torch.set_num_threads(1)  # the policy is small, and the sandboxes need the processors
    given.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(given.seed)
    envs = gymnasium.make_vec(
        "ShIOEnv-Grammar-v0", num_envs=given.envs, commands=given.commands, command="uniform",
        defer=True, wrap=[LocalActions, ProductionHistory], rewards=Gate(necessary),
        record=False, budget=SEES_ALONE, noise_runs=2, wall_seconds=0.5,
    )  # fmt: skip
    space = envs.single_observation_space
    agent = Agent(int(space.high.max()) + 1, space.shape[0], envs.single_action_space.n)
    optimizer = torch.optim.Adam(agent.parameters(), lr=given.learning_rate, eps=1e-5)
    shape = (given.steps, given.envs)
    observations = torch.zeros((*shape, *space.shape), dtype=torch.long)
    masks = torch.zeros((*shape, envs.single_action_space.n), dtype=torch.bool)
    actions = torch.zeros(shape, dtype=torch.long)
    log_probs, values, dones = torch.zeros(shape), torch.zeros(shape), torch.zeros(shape)

    now, _ = envs.reset(seed=given.seed)
    done, began = 0, time.monotonic()
    with (given.out / "log.csv").open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(COLUMNS)
        while done < given.episodes:
            later = np.zeros(shape)
            for step in range(given.steps):
                observations[step] = torch.as_tensor(now, dtype=torch.long)
                masks[step] = torch.as_tensor(envs.unwrapped.action_masks())
                with torch.no_grad():
                    actions[step], log_probs[step], _, values[step] = agent(
                        observations[step], masks[step]
                    )
                now, later[step], ended, _, _ = envs.step(actions[step].numpy())
                dones[step] = torch.as_tensor(ended, dtype=torch.float)

            earned, episodes = envs.unwrapped.collect()
            rewards = torch.as_tensor(later + earned, dtype=torch.float)
            for episode in episodes:
                done += 1
                scored = episode.scored
                lines.writerow((
                    done, round(time.monotonic() - began, 1), episode.reward,
                    scored.score.irreducibility, scored.score.n_arguments,
                    scored.behavior.exit_code, scored.session.text,
                ))  # fmt: skip
            file.flush()

            # generalised advantages without discounting; there is no value after an end
            advantages, last = torch.zeros(shape), torch.zeros(given.envs)
            with torch.no_grad():
                following = agent.value(torch.as_tensor(now, dtype=torch.long))
            for step in reversed(range(given.steps)):
                going_on = 1 - dones[step]
                delta = rewards[step] + following * going_on - values[step]
                advantages[step] = last = delta + given.gae * going_on * last
                following = values[step]
            returns = advantages + values

            flat = [
                part.flatten(0, 1)
                for part in (observations, masks, actions, log_probs, advantages, returns)
            ]
            for _ in range(given.epochs):
                for batch in torch.randperm(given.steps * given.envs).split(given.batch):
                    seen, allowed, taken, before, gains, targets = (part[batch] for part in flat)
                    _, after, entropy, value = agent(seen, allowed, taken)
                    ratio = (after - before).exp()
                    gains = (gains - gains.mean()) / (gains.std() + 1e-8)
                    clipped = ratio.clamp(1 - given.clip, 1 + given.clip)
                    loss = -torch.min(gains * ratio, gains * clipped).mean()
                    loss = loss + 0.5 * (value - targets).pow(2).mean()
                    loss = loss - given.entropy * entropy.mean()
                    optimizer.zero_grad()
                    loss.backward()
                    nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                    optimizer.step()
            torch.save(agent.state_dict(), given.out / "agent.pt")
            mean = np.mean([episode.reward for episode in episodes]) if episodes else 0.0
            rate = done / (time.monotonic() - began)
            print(f"{done} episodes, {rate:.1f} a second, mean reward {mean:.3f}", flush=True)
    envs.close()


if __name__ == "__main__":
    main()
