"""`ShIOEnv-Grammar-v0`: an input written production by production, then executed and scored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import Any, Final, SupportsInt, TypeAlias

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from shioenv.domain.inputs import Input, Session
from shioenv.env.base import SessionEnv, Step
from shioenv.env.scorer import RunnerSource, SessionScorer, require_count
from shioenv.env.spaces import MAX_ARGUMENT_LENGTH
from shioenv.errors import ActionError, EnvironmentOptionError, UnboundTokenError, did_you_mean
from shioenv.grammar.bind import bind
from shioenv.grammar.library import load_grammars
from shioenv.grammar.symbols import Grammar, Nonterminal, Production, Symbol
from shioenv.irreducibility.scoring import Scoring
from shioenv.sandbox.base import Limits
from shioenv.synthesis.compose import command_tokens
from shioenv.synthesis.derivation import BREAK, Derivation, ProductionTable
from shioenv.synthesis.partial_input import PartialInput
from shioenv.synthesis.samplers import HORIZON, MAX_EXPANSIONS, united
from shioenv.system.catalogue import catalogue as catalogue_of
from shioenv.system.store import find_system

MAX_SYMBOLS: Final = 128
"""Symbols and argument borders that an observation holds."""

START: Final = Nonterminal("env:input")
"""What every episode starts from: its productions choose the command."""

PADDING: Final = 0
BORDER: Final = 1
"""In an observation: where an argument ends."""

Catalogue: TypeAlias = Mapping[str, Sequence[str]]
Observation: TypeAlias = dict[str, Any]


class ActionFault(StrEnum):
    """Why an action ended the episode without an execution: the codes of `info["error"]`."""

    MASKED_ACTION = "MASKED_ACTION"
    """The production is not one of the leftmost nonterminal's, or makes too many arguments."""
    TOO_LONG = "TOO_LONG"
    """An argument has become longer than a cell of `ShIOEnv-v0` holds."""
    HORIZON = "HORIZON"
    """The derivation has no room left, or takes too many steps. Costs nothing."""


class GrammarEnv(SessionEnv[Observation, SupportsInt]):
    """The leftmost derivation of an input as a Markov decision process (Section 3.2).

    The state is a partly expanded input, an action one of all the productions of the loaded
    grammars, bound to the system; it expands the leftmost nonterminal. The mask (in the observation
    and in `info`) permits those productions of that nonterminal with which what is mandatory still
    fits into `max_arguments`. With the last nonterminal gone the input is executed and scored as in
    `ShIOEnv-v0`: the same reward, the same info. A masked action, and an argument of more than 64
    characters, end the episode at -10.

    Observation: `symbols`, the state as numbers (0 padding, 1 the end of an argument, then
    `vocabulary`'s places), `leftmost`, the number of the nonterminal to expand (0 for none), and
    `action_mask`. `productions[action]` is what an action does; `action_masks()` is the mask as
    booleans. Inputs have one command: operators are `ShIOEnv-v0`'s.
    """

    sampler = "env-grammar"

    def __init__(
        self,
        system: str | None = None,
        *,
        commands: Sequence[str] | None = None,
        max_arguments: int = HORIZON,
        max_symbols: int = MAX_SYMBOLS,
        max_expansions: int = MAX_EXPANSIONS,
        budget: int | None = None,
        scoring: Scoring | None = None,
        limits: Limits | None = None,
        start_directories: Iterable[str] | None = None,
        runner: RunnerSource | None = None,
        grammars: Sequence[Grammar] | None = None,
        catalogue: Catalogue | Callable[[str], Catalogue] | None = None,
        render_mode: str | None = None,
    ) -> None:
        """Make the environment: grammars are loaded and bound, nothing is executed.

        `commands` limits them (default: all shipped), `grammars` replaces them. `catalogue` holds
        the values of system tokens, or gives them for a start directory; by default they are the
        built system's. The rest is as in `ShIOEnv`. Errors: UnknownGrammarError,
        UnboundTokenError where no command is left, SystemNotBuiltError without a catalogue,
        EnvironmentOptionError, UnknownSystemError.
        """
        self.max_arguments = require_count("max_arguments", max_arguments)
        self.max_symbols = require_count("max_symbols", max_symbols)
        self.max_expansions = require_count("max_expansions", max_expansions)
        scorer = SessionScorer(system, scoring=scoring, budget=budget, limits=limits, runner=runner)
        super().__init__(scorer, start_directories, MAX_ARGUMENT_LENGTH, render_mode)
        versions = None
        if catalogue is None:
            built = find_system(system)
            versions = built.versions
            catalogue = partial(catalogue_of, built)
        if isinstance(commands, str):
            raise EnvironmentOptionError(
                f"commands are names, not {commands!r}", hint=f"such as {[commands]!r}"
            )
        loaded = grammars if grammars is not None else load_grammars(commands, versions=versions)
        self._places = _places(loaded, catalogue, self.start_directories)

        every = [p for place in self._places.values() for ps in place.values() for p in ps]
        self.productions: tuple[Production, ...] = tuple(dict.fromkeys(every))
        """What each action does."""
        self.vocabulary: tuple[Symbol, ...] = _vocabulary(self.productions)
        """The symbols of observations: the number of one is its place here, and 2."""
        self._action = {production: number for number, production in enumerate(self.productions)}
        self._number = {symbol: 2 + place for place, symbol in enumerate(self.vocabulary)}
        self._tables = {cwd: ProductionTable(place, place) for cwd, place in self._places.items()}
        heads = sum(isinstance(symbol, Nonterminal) for symbol in self.vocabulary)
        self.action_space = spaces.Discrete(len(self.productions))
        self.observation_space = spaces.Dict(
            {
                "symbols": spaces.Box(0, len(self.vocabulary) + 1, (self.max_symbols,), np.int32),
                "leftmost": spaces.Discrete(heads + 2),
                "action_mask": spaces.MultiBinary(len(self.productions)),
            }
        )
        self._begin(self._cwd)

    def _begin(self, cwd: str) -> None:
        if cwd not in self._tables:
            raise EnvironmentOptionError(
                f"{cwd!r} is none of this environment's start directories",
                hint=did_you_mean(cwd, self.start_directories),
            )
        self._table = self._tables[cwd]
        self._state = PartialInput.initial(START)
        self._derivation = Derivation(self._table, START)
        self._expansions = 0
        self._permit()

    def _take(self, action: SupportsInt) -> Step[Observation]:
        number = _number_of(action, len(self.productions))
        index = self._permitted.get(number)
        if index is None:
            return self._refused(ActionFault.MASKED_ACTION)
        state = self._state.expand(self.productions[number])
        if state.leftmost is None:
            return self._finish(state)
        self._derivation.expand(self._choices, index)
        self._state = state
        self._expansions += 1
        if any(len(word) > MAX_ARGUMENT_LENGTH for word in self._derivation.words):
            return self._refused(ActionFault.TOO_LONG)
        if self._expansions >= self.max_expansions or len(self._numbers()) > self.max_symbols:
            return self._refused(ActionFault.HORIZON)
        self._permit()
        return self._going_on()

    def action_masks(self) -> NDArray[np.bool_]:
        """Which actions are permitted now; none once the episode has ended."""
        return self._mask().astype(np.bool_)

    @property
    def state(self) -> PartialInput:
        """The partly expanded input."""
        return self._state

    def _written(self) -> str:
        if self._scored is None:
            return f"{self._state}\n"
        return f"$ {self._input(self._state).text}\n"

    def _permit(self) -> None:
        """Find the productions that may be taken now."""
        derivation = self._derivation
        assert derivation.leftmost != BREAK
        table = self._table
        choices = table.choices(derivation.leftmost)
        room = self.max_arguments + 1 - derivation.least + table.least[derivation.leftmost]
        if choices.most > room:
            choices = choices.within(room)
        self._choices = choices
        self._permitted = {
            self._action[production]: index for index, production in enumerate(choices.productions)
        }

    def _finish(self, state: PartialInput) -> Step[Observation]:
        if any(len(word) > MAX_ARGUMENT_LENGTH for word in state.words):
            self._state = state
            return self._refused(ActionFault.TOO_LONG)
        scored = self._score(Session(self._cwd, (self._input(state),)))
        self._state = state
        self._expansions += 1
        return self._finished(scored)

    def _input(self, state: PartialInput) -> Input:
        return Input(command_tokens(state.words))

    def _mask(self) -> NDArray[np.int8]:
        mask = np.zeros(len(self.productions), np.int8)  # (actions,)
        if self._running:
            mask[list(self._permitted)] = 1
        return mask

    def _numbers(self) -> list[int]:
        numbers: list[int] = []
        for argument in self._state.arguments:
            numbers.extend(self._number[symbol] for symbol in argument)
            numbers.append(BORDER)
        return numbers

    def _observation(self) -> Observation:
        symbols = np.full(self.max_symbols, PADDING, np.int32)  # (max_symbols,)
        numbers = self._numbers()[: self.max_symbols]
        symbols[: len(numbers)] = numbers
        leftmost = self._state.leftmost
        return {
            "symbols": symbols,
            "leftmost": np.int64(0 if leftmost is None else self._number[leftmost]),
            "action_mask": self._mask(),
        }

    def _facts(self) -> dict[str, Any]:
        leftmost = self._state.leftmost
        return {
            "action_mask": self._mask(),
            "state": str(self._state),
            "leftmost": None if leftmost is None else leftmost.name,
            "expansions": self._expansions,
            "cwd": self._cwd,
        }


def _places(
    grammars: Sequence[Grammar],
    catalogue: Catalogue | Callable[[str], Catalogue],
    directories: Sequence[str],
) -> dict[str, dict[Nonterminal, tuple[Production, ...]]]:
    """Each start directory's productions, `START`'s first. UnboundTokenError where it has none."""
    places = {}
    for cwd in directories:
        values = catalogue(cwd) if callable(catalogue) else catalogue
        bound: list[Grammar] = []
        missing: UnboundTokenError | None = None
        for grammar in grammars:
            try:
                bound.append(bind(grammar, values))
            except UnboundTokenError as error:
                missing = error
        if not bound:
            raise missing or EnvironmentOptionError(
                "there is no grammar to write with", hint="name at least one command"
            )
        starts = tuple(Production(START, ((grammar.start,),)) for grammar in bound)
        places[cwd] = {START: starts, **united(bound)}
    return places


def _vocabulary(productions: Sequence[Production]) -> tuple[Symbol, ...]:
    """Every symbol of these productions, nonterminals first, in the order they occur."""
    occurring: dict[Symbol, None] = {START: None}
    for production in productions:
        occurring.setdefault(production.head)
        for argument in production.body:
            occurring.update(dict.fromkeys(argument))
    return tuple(sorted(occurring, key=lambda symbol: not isinstance(symbol, Nonterminal)))


def _number_of(action: SupportsInt, count: int) -> int:
    value: Any = action.item() if isinstance(action, np.ndarray) and action.ndim == 0 else action
    if isinstance(value, (int, np.integer)) and 0 <= value < count:
        return int(value)
    raise ActionError(f"{action!r} is no action", hint=f"actions are the integers below {count}")
