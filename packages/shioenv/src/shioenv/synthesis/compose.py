"""Composite inputs: commands joined by operators, output redirected (Appendix A)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from random import Random
from types import MappingProxyType

from shioenv.domain.argument import Argument
from shioenv.domain.inputs import OPERATORS, Input, Role, Token
from shioenv.errors import UsageError

PIPE = "|"
REDIRECTIONS = (">", ">>")
OPERATOR_WEIGHTS: Mapping[str, float] = MappingProxyType(
    {"&&": 1.0, "||": 1.0, "|": 1.5, ";": 1.0, ">": 0.75, ">>": 0.75}
)


@dataclass(frozen=True, slots=True)
class Composites:
    """How inputs are composed.

    `share` (0 to 1) is the probability that an input is composite at all, and that a composite
    input goes on after each further command. Its default, 0.25, is ours: the paper gives none.
    `max_segments` (at least 1) bounds the commands. `operators` weighs what follows a command; a
    redirection always ends the input. Errors: UsageError for values out of range.
    """

    share: float = 0.25
    max_segments: int = 3
    operators: Mapping[str, float] = field(default_factory=lambda: OPERATOR_WEIGHTS)

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise UsageError(f"a composite share of {self.share} is no probability")
        if self.max_segments < 1:
            raise UsageError(f"{self.max_segments} segments: an input has at least one command")


def compose(
    random: Random,
    composites: Composites,
    first: Sequence[str],
    draw: Callable[[bool], Sequence[str]],
    targets: Sequence[str],
    *,
    pipes: bool,
) -> Input:
    """A composite input that begins with the words `first`.

    `draw(piped)` draws a further command, to the right of a pipe or not. Output may be redirected
    to `targets`. Redirections are not used where there are no targets, nor pipes where `pipes` is
    false.
    """
    tokens = list(command_tokens(first))
    operators = {
        operator: weight
        for operator, weight in composites.operators.items()
        if (targets or operator not in REDIRECTIONS) and (pipes or operator != PIPE)
    }
    segments = 1
    while True:
        allowed = [
            operator
            for operator in operators
            if operator in REDIRECTIONS or segments < composites.max_segments
        ]
        if not allowed:
            break
        weights = [operators[operator] for operator in allowed]
        operator = random.choices(allowed, weights)[0]
        tokens.append(token(operator, Role.OPERATOR))
        if operator in REDIRECTIONS:
            tokens.append(token(targets[int(random.random() * len(targets))], Role.TARGET))
            break
        tokens.extend(command_tokens(draw(operator == PIPE)))
        segments += 1
        if random.random() >= composites.share:
            break
    return Input(tuple(tokens))


def command_tokens(words: Sequence[str]) -> tuple[Token, ...]:
    """A drawn command as tokens; redirections that a grammar writes are no arguments."""
    command, *arguments = words
    if not OPERATORS.isdisjoint(arguments):
        return Input.from_marked(words).tokens
    return (
        token(command, Role.COMMAND),
        *[token(argument, Role.ARGUMENT) for argument in arguments],
    )


@lru_cache(maxsize=8192)
def token(marked: str, role: Role) -> Token:
    """The token of a word as written, no-space marks included."""
    return Token(Argument.parse(marked), role)
