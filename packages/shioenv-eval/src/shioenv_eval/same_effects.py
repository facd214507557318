"""Comparison of two inputs: whether both do the same on the machine, apart from what varies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from shioenv.behavior.compare import NoisyNames
from shioenv.behavior.observe import SandboxRunner
from shioenv.domain.answer_json import behavior_json
from shioenv.domain.behavior import Behavior
from shioenv.domain.runner import State
from shioenv_eval.conform.verdicts import compared_digests
from shioenv_eval.mask import Mask, output_text_of
from shioenv_eval.patches import operations
from shioenv_eval.suite import moved_in

RUNS = 3
"""Runs of each input, which show what varies."""

CHANNELS = ("output", "exit_code", "patch", "contents")


@dataclass(frozen=True)
class EffectsComparison:
    """The runs of two inputs from one state."""

    first: tuple[Behavior, ...]
    second: tuple[Behavior, ...]
    moved: Mapping[str, Any]
    """Values before the runs at the source paths of move operations, by path."""

    @cached_property
    def masks(self) -> tuple[Mask, Mask]:
        """The variation between the runs of each input."""
        return Mask.of(self.first, self.moved), Mask.of(self.second, self.moved)

    @cached_property
    def differs(self) -> tuple[str, ...]:
        """The channels of `CHANNELS` in which the inputs differ.

        A channel is the same if a run of one input agrees with a run of the other, apart from the
        masks.
        """
        pairs = [(one, other) for one in self.first for other in self.second]
        same = (self._same_output, _same_exit, self._same_patch, self._same_contents)
        return tuple(
            name
            for name, is_same in zip(CHANNELS, same, strict=True)
            if not any(is_same(one, other) for one, other in pairs)
        )

    def _same_output(self, one: Behavior, other: Behavior) -> bool:
        first, second = self.masks
        equal = output_text_of(one.output) == output_text_of(other.output)
        return equal or first.fits(other.output) or second.fits(one.output)

    def _same_patch(self, one: Behavior, other: Behavior) -> bool:
        sides = [operations(run.patch, self.moved, frozenset()) for run in (one, other)]
        for mask in self.masks:
            sides = [mask.operations(side) for side in sides]
        return sides[0] == sides[1]

    def _same_contents(self, one: Behavior, other: Behavior) -> bool:
        varies = [
            NoisyNames.of([run.content_digests for run in runs])
            for runs in (self.first, self.second)
        ]
        first, second = (
            {name: digest for name, digest in digests.items()
             if not any(name in names for names in varies)}
            for digests in (compared_digests(one, other), compared_digests(other, one))
        )  # fmt: skip
        return first == second

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as a JSON object, with the first run of each input."""
        return {
            "same": not self.differs,
            "differs": list(self.differs),
            "varies": [list(mask.channels) for mask in self.masks],
            "runs": len(self.first),
            "behaviors": [behavior_json(runs[0]) for runs in (self.first, self.second)],
        }


def _same_exit(one: Behavior, other: Behavior) -> bool:
    return one.exit_code == other.exit_code and one.timed_out == other.timed_out


def compare_effects(
    sandbox: SandboxRunner, inputs: Sequence[str], state: State, runs: int = RUNS
) -> EffectsComparison:
    """Run two inputs from one state, `runs` times each. Errors: those of the sandbox."""
    first, second = (tuple(sandbox.run(text, state) for _ in range(runs)) for text in inputs)
    return EffectsComparison(first, second, moved_in(first + second, state.before.document))
