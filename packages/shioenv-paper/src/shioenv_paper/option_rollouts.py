"""The options of Section 3.2 of the paper. Each option expands one nonterminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from shioenv.grammar.symbols import Nonterminal, Production
from shioenv.synthesis.partial_input import PartialInput
from shioenv.synthesis.policy import Choices, Policy


class OptionStep(NamedTuple):
    """One rollout step: new state, option's nonterminal, production, whether the option ended."""

    state: PartialInput
    nonterminal: Nonterminal
    production: Production
    terminated: bool


@dataclass(frozen=True, slots=True)
class Option:
    """The option o_n of one nonterminal n.

    - Initiation set: the states whose leftmost nonterminal is n.
    - Policy: a distribution over the permitted productions. For a grammar-constrained sampler these
      are n's own.
    - Termination: certain as soon as the leftmost nonterminal is not n, impossible before.
    """

    nonterminal: Nonterminal
    choices: Choices
    policy: Policy

    def can_start(self, state: PartialInput) -> bool:
        """Whether the state is in the initiation set."""
        return state.leftmost == self.nonterminal

    def terminates(self, state: PartialInput) -> bool:
        """Whether the option ends in this state: its termination probability is 0 or 1."""
        return state.leftmost != self.nonterminal

    def step(self, state: PartialInput, random: Random) -> OptionStep:
        """Expand the leftmost nonterminal once. ValueError if the option cannot start."""
        if not self.can_start(state):
            raise ValueError(f"the option of {self.nonterminal} cannot start in {state}")
        index = self.policy.choose(state, self.choices, random)
        production = self.choices.productions[index]
        following = state.expand(production)
        return OptionStep(following, self.nonterminal, production, self.terminates(following))


class Options:
    """All options of a sampler; a rollout runs them in turn until no nonterminal is left."""

    def __init__(
        self, permitted: Mapping[Nonterminal, Iterable[Production]], policy: Policy
    ) -> None:
        self._options = {
            nonterminal: Option(nonterminal, Choices(nonterminal, tuple(productions)), policy)
            for nonterminal, productions in permitted.items()
        }

    def __getitem__(self, nonterminal: Nonterminal) -> Option:
        return self._options[nonterminal]

    def __len__(self) -> int:
        return len(self._options)

    def rollout(
        self, state: PartialInput, random: Random, *, max_steps: int | None = None
    ) -> list[OptionStep]:
        """Return all steps from `state` until it has no nonterminal (or `max_steps` steps).

        A step with `terminated` is the last of its option. The next step belongs to the option of
        the new leftmost nonterminal, which may be an earlier option that starts again.
        """
        steps: list[OptionStep] = []
        while (leftmost := state.leftmost) is not None:
            if max_steps is not None and len(steps) >= max_steps:
                break
            steps.append(self._options[leftmost].step(state, random))
            state = steps[-1].state
        return steps
