"""The score of an input given as text: its arguments found, its sub-inputs run on a system."""

from __future__ import annotations

import re

from shioenv.behavior.observe import open_sandbox
from shioenv.domain.inputs import Input
from shioenv.domain.runner import Runner, State
from shioenv.grammar.library import load_grammars, names_of_grammars
from shioenv.grammar.parse import parse_input
from shioenv.irreducibility.score import Score, estimate_irreducibility
from shioenv.irreducibility.scoring import Scoring
from shioenv.sandbox.base import Limits
from shioenv.seeding import generator
from shioenv.system.store import System, find_system


def find_arguments(text: str, system: System | None = None) -> Input:
    """The input that a line is, with its arguments told apart.

    By the grammar of each command where there is one (in the version that `system` has), by shell
    words otherwise. Never fails: what bash will refuse is an input too.
    """
    words = {word.rpartition("/")[2] for word in re.findall(r"[\w./-]+", text)}
    names = [name for name in names_of_grammars() if name in words or name.split("-")[0] in words]
    return parse_input(text, load_grammars(names, versions=system.packages if system else None))


def score(
    shell_input: str | Input,
    *,
    system: str | System | None = None,
    cwd: str | None = None,
    scoring: Scoring = Scoring(),
    seed: int = 0,
    limits: Limits | None = None,
    explain: bool = True,
    runner: Runner | None = None,
) -> Score:
    """The irreducibility of an input on a system, with each argument's own effect.

    Exact where the budget covers every sub-input, else estimated from so many of them at most,
    drawn by `seed` (`estimate_irreducibility`). `cwd` is a start directory. A sandbox is opened for
    the call unless an open `observer` is given (then `system` and `limits` are its own). Errors:
    UsageError, and those of `open_sandbox` and its `run`.
    """
    if runner is None:
        with open_sandbox(system, limits) as opened:
            return score(
                shell_input, system=opened.system, cwd=cwd, scoring=scoring, seed=seed,
                explain=explain, runner=opened,
            )  # fmt: skip
    if isinstance(shell_input, str):
        shell_input = find_arguments(
            shell_input, find_system(system) if isinstance(system, str) else system
        )
    state = None if cwd is None else State(cwd=cwd)
    return estimate_irreducibility(
        shell_input,
        lambda text: runner.run(text, state),
        scoring,
        rng=generator(seed, "score"),
        explain=explain,
        cache={},
    )
