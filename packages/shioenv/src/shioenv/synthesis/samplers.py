"""Samplers: which productions may be taken where, and inputs drawn by them.

`gcs` permits the leftmost nonterminal's own productions (Section 4.3). The paper's unconstrained
sampling has two readings, and both are here. `ucs` opens only the option slots to every command's
options, which is how the released rows look. `ucs-universal` permits every production everywhere.
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
"""Arguments of one command at most (Section 4.1), the command token not counted."""

MAX_EXPANSIONS = 400
"""Expansions after which an input is finished in the shortest way (never met by `gcs`)."""

MAX_ATTEMPTS = 200
"""Draws of one input, before it is an error that each of them broke a bound."""

OWN_ATTEMPTS = 8
"""Ordinary draws for an input of a given length, before repetitions are steered towards it."""

STEERED_ATTEMPTS = 24
"""Steered draws for an input of a given length, before the command is said to have none."""

UNIVERSAL_ATTEMPTS = 5000
"""Draws of `ucs-universal` for an input of a given length. From any start symbol any length can
come, but hardly by a repetition that could be steered. The rarest lengths, 9 to 11, come once in
280 draws."""

Permitted: TypeAlias = Mapping[Nonterminal, Sequence[Production]]


def united(grammars: Iterable[Grammar]) -> Productions:
    """The productions of several bound grammars; shared nonterminals have the same in all."""
    productions: dict[Nonterminal, tuple[Production, ...]] = {}
    for grammar in grammars:
        productions.update(grammar.productions)
    return productions


def gcs(grammars: Sequence[Grammar]) -> Permitted:
    """At each nonterminal its own productions."""
    return united(grammars)


def ucs(grammars: Sequence[Grammar]) -> Permitted:
    """At each option slot every command's option productions, elsewhere the nonterminal's own."""
    productions = united(grammars)
    slots = dict.fromkeys(
        slot for grammar in grammars for slot in grammar.productions if slot in grammar.option_slots
    )
    options = tuple(production for slot in slots for production in productions[slot])
    return {**productions, **dict.fromkeys(slots, options)}


def ucs_universal(grammars: Sequence[Grammar]) -> Permitted:
    """At each nonterminal every production of every nonterminal."""
    productions = united(grammars)
    everything = tuple(chain.from_iterable(productions.values()))
    return dict.fromkeys(productions, everything)


SAMPLERS: Mapping[str, Callable[[Sequence[Grammar]], Permitted]] = {
    "gcs": gcs,
    "ucs": ucs,
    "ucs-universal": ucs_universal,
}


def check_sampler(name: str) -> None:
    """Raises UnknownSamplerError where no sampler has this name."""
    if name not in SAMPLERS:
        raise UnknownSamplerError(
            f"no sampler is called {name!r}", hint=did_you_mean(name, SAMPLERS)
        )


def permitted_by(sampler: str, grammars: Sequence[Grammar]) -> Permitted:
    """The action set of the sampler with this name. Errors: UnknownSamplerError."""
    check_sampler(sampler)
    return SAMPLERS[sampler](grammars)


class Sampler:
    """Draws inputs of one command each from bound grammars.

    An input has at most `horizon` arguments. A production is not taken where it and the rest of the
    input would make more at least. So repetitions end in time, and everything mandatory still fits;
    where that cannot fit, the shortest productions are taken. Errors: UnknownSamplerError, also for
    a horizon below 1.
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
            raise UnknownSamplerError(f"a horizon of {horizon} arguments leaves no room for any")
        self.name = sampler
        self.horizon = horizon
        self.policy = policy or WeightedPolicy()
        self._grammatical = sampler == "gcs"
        # Where several arguments replace a part of one argument, they are not counted beforehand.
        self._overflows = sampler == "ucs-universal"
        self.table = ProductionTable(united(grammars), permitted_by(sampler, grammars))

    def draw(self, start: Nonterminal, random: Random) -> Drawn:
        """One input derived from `start`.

        It is drawn again as a whole where an argument is over-long, nothing at all was written, or
        `ucs-universal` went past the horizon. After 200 attempts a GrammarError names the start
        symbol: its grammar cannot be right.
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
        """One input with exactly `length` arguments; None where none was found.

        `OWN_ATTEMPTS` draws are the policy's own, none of which goes past the length. Then come
        `STEERED_ATTEMPTS`, whose repetitions are steered where the policy is a LengthPolicy. With
        `ucs-universal` there are `UNIVERSAL_ATTEMPTS` draws instead, all the policy's own. What
        makes `draw` raise an error gives None here.
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
        """One input, None where it breaks a bound."""
        derivation = Derivation(self.table, start, horizon + 1)
        drawn = derivation.draw(policy.choose, random, MAX_EXPANSIONS, finishes=True)
        assert drawn is not None, "a policy always chooses"
        if not self._grammatical:
            drawn = Drawn(tidied(drawn.words), drawn.trace, drawn.volatile)
        if not drawn.words or (self._overflows and drawn.n_arguments > horizon):
            return None
        return drawn if max(map(len, drawn.words)) <= MAX_ARGUMENT_LENGTH else None

    def replay(self, start: Nonterminal, trace: Sequence[int | str]) -> tuple[str, ...]:
        """The words that these choices write: `replay(start, drawn.trace) == drawn.words`.

        Errors: TraceError where the trace is too short, too long, or names no production.
        """
        words = Derivation(self.table, start).replay(trace)
        return words if self._grammatical else tidied(words)


def tidied(words: Sequence[str]) -> tuple[str, ...]:
    """The words with no-space marks only at the ends of arguments, where they mean something.

    Productions taken out of their place can leave marks inside a word, on the command, or alone.
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
