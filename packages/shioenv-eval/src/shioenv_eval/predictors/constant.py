"""Constant predictors: the baseline for judging the scores of other predictors."""

from __future__ import annotations

from shioenv.domain.behavior import Behavior
from shioenv.domain.predictor import PatchLevel, Setting
from shioenv.domain.runner import State
from shioenv_eval.utilities import utilities


class Trivial:
    """Predicts for every input no output, no change and exit code 0."""

    version = "1"
    patch_level = PatchLevel.FULL

    def __init__(self, setting: Setting) -> None:
        pass

    def run(self, shell_input: str, state: State | None = None) -> Behavior:
        """Return exit code 0, no output and no patch."""
        return Behavior(exit_code=0, output=b"")


class Errors:
    """Predicts for every input that its first command is not found."""

    version = "1"
    patch_level = PatchLevel.FULL

    def __init__(self, setting: Setting) -> None:
        pass

    def run(self, shell_input: str, state: State | None = None) -> Behavior:
        """Return exit code 127 and Bash's error message for the input's first command."""
        name = next(iter(utilities(shell_input)), shell_input.split(" ")[0])
        said = f"bash: line 1: {name}: command not found\n"
        return Behavior(exit_code=127, output=said.encode("utf-8", "surrogateescape"))
