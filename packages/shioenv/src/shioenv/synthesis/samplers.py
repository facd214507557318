"""Samplers: action sets of permitted productions, and inputs drawn from them.

`gcs` permits the leftmost nonterminal's own productions (Section 4.3). The paper's unconstrained
sampling has two interpretations, and both are implemented. `ucs` permits every command's options,
but only at option slots, as in the dataset that the paper released. `ucs-universal` permits every
production everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from random import Random
from typing import TypeAlias

from shioenv.errors import GrammarError, UnknownSamplerError, did_you_mean
from shioenv.grammar.notation import NO_SPACE
from shioenv.grammar.symbols import (
    MAX_ARGUMENT_LENGTH,
    Grammar,
    Nonterminal,
    Production,
    Productions,
)
from shioenv.synthesis.derivation import Derivation, Drawn, ProductionTable
from shioenv.synthesis.policy import Policy, WeightedPolicy

HORIZON = 12
"""Maximum number of arguments of one command (Section 4.1), without the command token."""

MAX_EXPANSIONS = 400
"""Expansions after which an input takes the shortest completion (never reached by `gcs`)."""

MAX_ATTEMPTS = 200
"""Number of draws of one input; if all are outside the limits, an error is raised."""

OWN_ATTEMPTS = 8
"""Ordinary draws for an input of a given length. In later draws, repeated arguments (`FILE...`) are
continued until the length is reached (*steered* draws)."""

STEERED_ATTEMPTS = 24
"""Steered draws for an input of a given length, before the command counts as having none."""

UNIVERSAL_ATTEMPTS = 5000
"""Draws of `ucs-universal` for an input of a given length.

Any start symbol can reach any length, but mostly without repeated arguments, so draws cannot be
steered.
The rarest lengths, 9 to 11, occur once in 280 draws.
"""

Permitted: TypeAlias = Mapping[Nonterminal, Sequence[Production]]


def united(grammars: Iterable[Grammar]) -> Productions:
    """Merge the productions of bound grammars, which have the same shared definitions.

    So `gcs` permits each nonterminal its own productions.
    """
    productions: dict[Nonterminal, tuple[Production, ...]] = {}
    for grammar in grammars:
        productions.update(grammar.productions)
    return productions


def ucs(grammars: Sequence[Grammar]) -> Permitted:
    """Permit all commands' option productions at option slots, elsewhere the nonterminal's own."""
    productions = united(grammars)
    slots = dict.fromkeys(
        slot for grammar in grammars for slot in grammar.productions if slot in grammar.option_slots
    )
    options = tuple(production for slot in slots for production in productions[slot])
    return {**productions, **dict.fromkeys(slots, options)}


def ucs_universal(grammars: Sequence[Grammar]) -> Permitted:
    """Permit every production at every nonterminal."""
    productions = united(grammars)
    everything = tuple(chain.from_iterable(productions.values()))
    return dict.fromkeys(productions, everything)


SAMPLERS: Mapping[str, Callable[[Sequence[Grammar]], Permitted]] = {
    "gcs": united,
    "ucs": ucs,
    "ucs-universal": ucs_universal,
}


def check_sampler(name: str) -> None:
    """Raise UnknownSamplerError if no sampler has this name."""
    if name not in SAMPLERS:
        raise UnknownSamplerError(f"unknown sampler {name!r}", hint=did_you_mean(name, SAMPLERS))


def permitted_by(sampler: str, grammars: Sequence[Grammar]) -> Permitted:
    """Return the action set of the named sampler. Errors: UnknownSamplerError."""
    check_sampler(sampler)
    return SAMPLERS[sampler](grammars)


class Sampler:
    """Draws inputs of one command each from bound grammars.

    An input has at most `horizon` arguments. Productions that would make more arguments mandatory
    are skipped. If only such productions remain, the shortest are used. Errors:
    UnknownSamplerError, also for a horizon below 1.
    """

    def __init__(
        self,
        sampler: str,
        grammars: Sequence[Grammar],
        *,
        policy: Policy | None = None,
        horizon: int = HORIZON,
    ) -> None:
        if horizon < 1:
            raise UnknownSamplerError(f"horizon is {horizon}; give at least 1")
        self.name = sampler
        self.horizon = horizon
        self.policy = policy or WeightedPolicy()
        self._grammatical = sampler == "gcs"
        # A part of an argument can become several arguments, which may exceed the horizon.
        self._overflows = sampler == "ucs-universal"
        self.table = ProductionTable(united(grammars), permitted_by(sampler, grammars))

    def draw(self, start: Nonterminal, random: Random) -> Drawn:
        """Draw one input from `start`.

        The draw is repeated if an argument is too long, the input is empty, or `ucs-universal`
        exceeded the horizon. Errors: GrammarError after 200 attempts, which means that the grammar
        of the start symbol is wrong.
        """
        for _ in range(MAX_ATTEMPTS):
            drawn = self._attempt(start, random, self.policy, self.horizon)
            if drawn is not None:
                return drawn
        raise GrammarError(
            f"no input from {start} within {MAX_ARGUMENT_LENGTH} characters an argument "
            f"in {MAX_ATTEMPTS} attempts"
        )

    def draw_length(self, start: Nonterminal, random: Random, length: int) -> Drawn | None:
        """Draw one input with exactly `length` arguments; None if none was found.

        `OWN_ATTEMPTS` draws follow the policy, within the length. Then come `STEERED_ATTEMPTS`
        draws, in which a LengthPolicy continues repeated arguments up to the length. With
        `ucs-universal` there are `UNIVERSAL_ATTEMPTS` draws instead, all by the policy. If `draw`
        would raise an error, this returns None.
        """
        if length > self.horizon:
            return None
        steering = getattr(self.policy, "steering", self.policy)
        own, steered = OWN_ATTEMPTS, STEERED_ATTEMPTS
        if self._overflows:
            own, steered = UNIVERSAL_ATTEMPTS, 0
        for attempt in range(own + steered):
            policy = self.policy if attempt < own else steering
            drawn = self._attempt(start, random, policy, length)
            if drawn is not None and drawn.n_arguments == length:
                return drawn
        return None

    def _attempt(
        self, start: Nonterminal, random: Random, policy: Policy, horizon: int
    ) -> Drawn | None:
        """Draw one input; None if it is outside the limits."""
        derivation = Derivation(self.table, start, horizon + 1)
        drawn = derivation.draw(policy.choose, random, MAX_EXPANSIONS, finishes=True)
        assert drawn is not None, "a policy always chooses"
        if not self._grammatical:
            drawn = Drawn(tidied(drawn.words), drawn.trace, drawn.volatile)
        if not drawn.words or (self._overflows and drawn.n_arguments > horizon):
            return None
        return drawn if max(map(len, drawn.words)) <= MAX_ARGUMENT_LENGTH else None

    def replay(self, start: Nonterminal, trace: Sequence[int | str]) -> tuple[str, ...]:
        """Return the words of a trace: `replay(start, drawn.trace) == drawn.words`.

        Errors: TraceError if the trace is too short, too long, or refers to no production.
        """
        words = Derivation(self.table, start).replay(trace)
        return words if self._grammatical else tidied(words)


def tidied(words: Sequence[str]) -> tuple[str, ...]:
    """Remove no-space marks except at the ends of arguments, where they have a meaning.

    Productions outside their usual place can leave marks inside a word, on the command, or alone.
    """
    kept: list[str] = []
    for word in words:
        text = word.replace(NO_SPACE, "")
        if not text:
            continue
        left = NO_SPACE if kept and word.startswith(NO_SPACE) else ""
        right = NO_SPACE if kept and word.endswith(NO_SPACE) else ""
        kept.append(f"{left}{text}{right}")
    return tuple(kept)
