"""The form of a rule: it answers some commands, and may ask about others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from shioenv.domain.behavior import Behavior
from shioenv.domain.runner import Answer, State
from shioenv_model.composition.call import Call
from shioenv_model.memory.rewrite import Taken
from shioenv_model.memory.world import World


@dataclass(frozen=True, slots=True)
class Step:
    """One command that was asked about on the way to an answer."""

    input: str
    answer: Answer
    nearest: tuple[tuple[str, float], ...] = ()
    """Executed inputs that speak for the answer, each with its distance."""
    alternatives: tuple[tuple[Behavior, float], ...] = ()
    """Other answers, each with a probability or a confidence, 0 to 1."""
    asked: tuple[str, ...] = ()
    """The answerers that were asked, in order; the last one answered."""


class Respondent(Protocol):
    """Answers the questions of a rule: about the machine, and about other commands."""

    @property
    def world(self) -> World:
        """The machine that is asked about."""
        ...

    def parse(self, call: Call, state: State) -> Taken | None:
        """Parse a command by its grammar; None where there is no command."""
        ...

    def ask(self, call: Call, state: State) -> Step:
        """Return the answer of the first answerer that knows the command."""
        ...

    def look_up(self, call: Call, state: State) -> Step | None:
        """Return what a record of the same command did; None without one."""
        ...

    def remember(self, call: Call, state: State) -> Step | None:
        """Return what records and functions say of a command that was not looked up."""
        ...


class Rule(Protocol):
    """Answers a command in the state that the commands before it left."""

    def __call__(self, call: Call, state: State, respondent: Respondent) -> Step | None:
        """Return the answer; None for an unknown command."""
        ...


Changed: TypeAlias = tuple[Behavior, Mapping[str, bytes]]
"""What a command does, and the contents of the files that it writes."""
