"""Draw learning curves: python examples/rl/plot.py runs/*/log.csv --out curve.png"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
from matplotlib import pyplot as plt


def main() -> None:
    """Draw the mean reward of each log, over so many episodes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("logs", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=Path("curve.png"))
    parser.add_argument("--window", type=int, default=200, help="episodes that a point is of")
    given = parser.parse_args()
    figure, axes = plt.subplots(figsize=(7, 4))
    for path in given.logs:
        with path.open(newline="") as file:
            rewards = [float(line["reward"]) for line in csv.DictReader(file)]
        window = max(1, min(given.window, len(rewards) // 4))
        means = np.convolve(rewards, np.full(window, 1 / window), mode="valid")
        axes.plot(np.arange(len(means)) + window, means, label=path.parent.name)
    axes.set(xlabel="episodes", ylabel=f"reward, mean of {window} episodes")
    axes.legend()
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(given.out, dpi=150)
    print(given.out)


if __name__ == "__main__":
    main()
