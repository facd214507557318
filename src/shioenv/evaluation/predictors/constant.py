"""Predictors that look at nothing: without them no number can be read."""

from __future__ import annotations

from shioenv.domain.behavior import Behavior
from shioenv.domain.runner import State
from shioenv.evaluation.metrics import PatchLevel
from shioenv.evaluation.predictor import Setting
from shioenv.evaluation.utilities import utilities


class Trivial:
    """Nothing is printed, nothing is changed, and all went well."""

    version = "1"
    patch_level = PatchLevel.FULL

    def __init__(self, setting: Setting) -> None:
        pass

    def run(self, shell_input: str, state: State | None = None) -> Behavior:
        """Always the same."""
        return Behavior(exit_code=0, output=b"")


class Errors:
    """No command is ever found."""

    version = "1"
    patch_level = PatchLevel.FULL

    def __init__(self, setting: Setting) -> None:
        pass

    def run(self, shell_input: str, state: State | None = None) -> Behavior:
        """Bash's own message, of the first command."""
        name = next(iter(utilities(shell_input)), shell_input.split(" ")[0])
        said = f"bash: line 1: {name}: command not found\n"
        return Behavior(exit_code=127, output=said.encode("utf-8", "surrogateescape"))
