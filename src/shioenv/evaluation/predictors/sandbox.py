"""The machine itself as a predictor: the ceiling of every suite."""

from __future__ import annotations

from shioenv.bash.words import quoted
from shioenv.behavior.observe import SandboxRunner, open_sandbox
from shioenv.domain.behavior import Behavior
from shioenv.domain.runner import State
from shioenv.evaluation.metrics import PatchLevel
from shioenv.evaluation.predictor import Setting


class SandboxPredictor:
    """Answers by running inputs on the pristine system."""

    patch_level = PatchLevel.FULL

    def __init__(self, runner: SandboxRunner) -> None:
        self._runner = runner
        self.version = f"{runner.system.name} {runner.system.digest[:12]}"
        self.install = f"shioenv system build {quoted(runner.system.name)}"

    def run(self, shell_input: str, state: State | None = None) -> Behavior:
        """What the input does on the machine."""
        return self._runner.run(shell_input, state)

    def close(self) -> None:
        """Closes the sandbox."""
        self._runner.close()


def sandbox(setting: Setting) -> SandboxPredictor:
    """The predictor `sandbox`, or `sandbox:SYSTEM` for another system than the suite's."""
    return SandboxPredictor(open_sandbox(setting.text or setting.system))
