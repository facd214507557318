"""`ShIOEnv-Grammar-v0`: derive an input production by production, then execute and score it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, Final, SupportsInt, TypeAlias, Unpack

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from shioenv.domain.inputs import Input, Session
from shioenv.env.scorer import require_count
from shioenv.env.session_env import EpisodeOptions, SessionEnv, Step
from shioenv.env.spaces import MAX_ARGUMENT_LENGTH
from shioenv.errors import ActionError, EnvironmentOptionError, UnboundTokenError, did_you_mean
from shioenv.grammar.bind import bind
from shioenv.grammar.library import OwnGrammars, chosen_grammars, load_grammars, own_grammars
from shioenv.grammar.symbols import Grammar, Nonterminal, Production, Symbol
from shioenv.synthesis.compose import command_tokens
from shioenv.synthesis.derivation import (
    BREAK,
    CompiledChoices,
    Derivation,
    PartialInput,
    ProductionTable,
)
from shioenv.synthesis.drawing import Drawing
from shioenv.synthesis.sample import grammars_for
from shioenv.synthesis.samplers import HORIZON, MAX_EXPANSIONS, permitted_by, tidied, united
from shioenv.system.catalogue import catalogue as catalogue_of
from shioenv.system.store import System, find_system

MAX_SYMBOLS: Final = 128
"""Maximum number of symbols and argument borders in an observation."""

PADDING: Final = 0
BORDER: Final = 1
"""The number that marks the end of an argument in an observation."""

GCS: Final = "gcs"
"""The sampler that permits only grammatical inputs."""

UNIFORM: Final = "uniform"
"""The value of `command` with which each episode draws a command uniformly."""

Observation: TypeAlias = dict[str, Any]

START: Final = Nonterminal("env:input")
"""The start symbol of every episode: its productions choose the command."""

SHARED: Final = 8
"""Number of cached sets of tables; the least recently used are dropped first."""

Catalogue: TypeAlias = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Permitted:
    """The actions that are permitted at one nonterminal, in the order of its productions."""

    actions: NDArray[np.int64]
    """The numbers of these actions, (permitted,)."""
    index: Mapping[int, int]
    """The index of each number in `actions`."""
    productions: Sequence[Production]


@dataclass(frozen=True, slots=True)
class Place:
    """The permitted productions in one start directory."""

    table: ProductionTable
    commands: Mapping[str, int]
    """Index of each command's production among those of `START`."""


class GrammarTables:
    """The productions of grammars in some start directories, numbered as actions.

    The tables never change, except for cached results. Errors: UnboundTokenError if no grammar can
    be bound in a directory; UnknownSamplerError; EnvironmentOptionError if there is no grammar.
    """

    def __init__(
        self,
        grammars: Sequence[Grammar],
        catalogue: Catalogue | Callable[[str], Catalogue],
        directories: Sequence[str],
        sampler: str,
    ) -> None:
        self.places: dict[str, Place] = {}
        """The permitted productions by start directory."""
        every: dict[Production, None] = {}
        for cwd in directories:
            values = catalogue(cwd) if callable(catalogue) else catalogue
            bound = _bound(grammars, values)
            starts = tuple(Production(START, ((grammar.start,),)) for grammar in bound)
            own = {START: starts, **united(bound)}
            permitted = {START: starts, **permitted_by(sampler, bound)}
            commands = {grammar.name: number for number, grammar in enumerate(bound)}
            self.places[cwd] = Place(ProductionTable(own, permitted), commands)
            every.update((production, None) for ps in own.values() for production in ps)
        self.productions: tuple[Production, ...] = tuple(every)
        """The production of each action."""
        self.vocabulary: tuple[Symbol, ...] = _vocabulary(self.productions)
        """The symbols of observations, nonterminals first."""
        self.number = {symbol: 2 + place for place, symbol in enumerate(self.vocabulary)}
        """The number of each symbol in observations, from 2 up."""
        self.nonterminals = sum(isinstance(symbol, Nonterminal) for symbol in self.vocabulary)
        """The number of nonterminals in `vocabulary`."""
        self.most = max(
            len(place.table.choices(place.table.code(symbol)).productions)
            for place in self.places.values()
            for symbol in place.table.nonterminals
        )
        """The maximum number of actions that are permitted at once."""
        self._action = {production: number for number, production in enumerate(self.productions)}
        self._permitted: dict[int, Permitted] = {}

    def permitted(self, choices: CompiledChoices) -> Permitted:
        """Return the actions for these choices."""
        productions = choices.productions
        known = self._permitted.get(id(productions))
        if known is None:
            numbers = [self._action[production] for production in productions]
            index = {number: place for place, number in enumerate(numbers)}
            known = Permitted(np.array(numbers, np.int64), index, productions)
            self._permitted[id(productions)] = known  # keeps `productions`, so the id stays unique
        return known


_shared: OrderedDict[tuple[object, ...], GrammarTables] = OrderedDict()
_lock: Final = threading.Lock()


def shared_tables(
    system: System,
    commands: Sequence[str] | None,
    directories: Sequence[str],
    sampler: str,
    own: OwnGrammars | None = None,
) -> GrammarTables:
    """Return the tables of grammars on a built system; the latest `SHARED` sets are cached.

    `commands` names grammars and grammar sets, as in a `Drawing` (None: the default). Errors:
    UnknownGrammarError, UsageError if the system lacks a named command, and those of
    `GrammarTables`.
    """
    names = None if commands is None else tuple(commands)
    key = (system.digest, names, tuple(directories), sampler, own)
    with _lock:
        if key not in _shared:
            drawing = Drawing(commands=names or (), own_grammars=str(own.directory) if own else "")
            loaded = () if names == () else grammars_for(system, drawing)
            _shared[key] = GrammarTables(
                loaded, partial(catalogue_of, system), directories, sampler
            )
            if len(_shared) > SHARED:
                _shared.popitem(last=False)
        _shared.move_to_end(key)
        return _shared[key]


def _bound(grammars: Sequence[Grammar], values: Catalogue) -> list[Grammar]:
    bound: list[Grammar] = []
    missing: UnboundTokenError | None = None
    for grammar in grammars:
        try:
            bound.append(bind(grammar, values))
        except UnboundTokenError as error:
            missing = error
    if not bound:
        raise missing or EnvironmentOptionError(
            "no grammar was chosen", hint="give at least one command"
        )
    return bound


def _vocabulary(productions: Sequence[Production]) -> tuple[Symbol, ...]:
    """Return every symbol of the productions, nonterminals first, then in order of occurrence."""
    occurring: dict[Symbol, None] = {START: None}
    for production in productions:
        occurring.setdefault(production.head)
        for argument in production.body:
            occurring.update(dict.fromkeys(argument))
    return tuple(sorted(occurring, key=lambda symbol: not isinstance(symbol, Nonterminal)))


class ActionFault(StrEnum):
    """The reasons that end an episode without an execution: the codes of `info["error"]`."""

    MASKED_ACTION = "MASKED_ACTION"
    """The mask forbids the production: it is not permitted here, or adds too many arguments."""
    TOO_LONG = "TOO_LONG"
    """An argument has more than 64 characters, the limit of `ShIOEnv-v0`."""
    EMPTY_INPUT = "EMPTY_INPUT"
    """The finished input is empty; only unconstrained samplers permit that."""
    HORIZON = "HORIZON"
    """The state has too many symbols, arguments or steps. There is no penalty."""


class GrammarEnv(SessionEnv[Observation, SupportsInt]):
    """The leftmost derivation of an input as a Markov decision process (Section 3.2).

    The state is a partly expanded input. An action is the number of a production, among all
    productions of the loaded grammars. The production expands the leftmost nonterminal.

    The mask (in the observation and in `info`) permits the productions that the sampler permits
    next:

    - `gcs`: the productions of the leftmost nonterminal;
    - `ucs`: the options of every command, if the leftmost nonterminal is an option;
    - `ucs-universal`: every production at every nonterminal of a grammar.

    The mask never permits a production after which the mandatory arguments exceed `max_arguments`.

    Once no nonterminal is left, the input is executed and scored as in `ShIOEnv-v0`, with the same
    reward and info. The episode ends with reward -10 after a masked action, an argument of more
    than 64 characters, or an empty input. It ends with reward 0 if the state has too many symbols,
    arguments or steps (`ActionFault`).

    The observation has three parts. `symbols` is the state as numbers: 0 is padding, 1 the end of
    an argument, and from 2 up come the symbols of `vocabulary`. `leftmost` is the number of the
    nonterminal to expand, 0 for none. `action_mask` is the mask as 0 and 1.

    `productions[action]` is the production of an action; `action_masks()` is the mask as booleans.
    Inputs have one command; only `ShIOEnv-v0` has operators.
    """

    resets_with = ("cwd", "command")

    def __init__(
        self,
        system: str | None = None,
        *,
        sampler: str = GCS,
        commands: Sequence[str] | None = None,
        command: str | None = None,
        max_arguments: int = HORIZON,
        max_symbols: int = MAX_SYMBOLS,
        max_expansions: int = MAX_EXPANSIONS,
        grammars: Sequence[Grammar] | None = None,
        catalogue: Catalogue | Callable[[str], Catalogue] | None = None,
        **options: Unpack[EpisodeOptions],
    ) -> None:
        """Load and bind grammars; nothing is executed.

        Environments in one process share the tables of equal grammars. `commands` names the
        grammars and grammar sets to load (default: `paper` and own grammars). `grammars` are
        used instead of loaded ones. `command` fixes the command of every episode; with `uniform`,
        each reset samples one. `catalogue` contains the values of system tokens such as `<File>`,
        or is a callable that returns them for a start directory. By default they are those of the
        built system. The other options are as in `ShIOEnv`. Errors: UnknownGrammarError,
        UnknownSamplerError, EnvironmentOptionError, UnknownSystemError, UsageError.
        UnboundTokenError if no command is left. SystemNotBuiltError without a catalogue.
        """
        self.max_arguments = require_count("max_arguments", max_arguments)
        self.max_symbols = require_count("max_symbols", max_symbols)
        self.max_expansions = require_count("max_expansions", max_expansions)
        super().__init__(system, MAX_ARGUMENT_LENGTH, self.max_arguments, **options)
        if isinstance(commands, str):
            raise EnvironmentOptionError(
                f"commands must be a list, got {commands!r}", hint=f"such as {[commands]!r}"
            )
        self.sampler = "env-grammar" if sampler == GCS else f"env-grammar-{sampler}"
        self._grammatical = sampler == GCS
        directories = self.start_directories
        own = own_grammars(options.get("own_grammars"))
        if grammars is None and catalogue is None:
            self.tables = shared_tables(find_system(system), commands, directories, sampler, own)
        else:
            host_clock = False
            if catalogue is None:
                built = find_system(system)
                host_clock, catalogue = built.host_clock, partial(catalogue_of, built)
            loaded = grammars
            if loaded is None:
                names = () if commands == () else chosen_grammars(commands or (), own)
                loaded = load_grammars(names, host_clock=host_clock, own=own)
            self.tables = GrammarTables(loaded, catalogue, directories, sampler)
        self.productions: tuple[Production, ...] = self.tables.productions
        """The production of each action."""
        self.vocabulary: tuple[Symbol, ...] = self.tables.vocabulary
        """The symbols of observations: the number of a symbol is its index here plus 2."""
        self._number = self.tables.number
        self._command = self._checked_command(command)
        self.action_space = spaces.Discrete(len(self.productions))
        self.observation_space = spaces.Dict(
            {
                "symbols": spaces.Box(0, len(self.vocabulary) + 1, (self.max_symbols,), np.int32),
                "leftmost": spaces.Discrete(self.tables.nonterminals + 2),
                "action_mask": spaces.MultiBinary(len(self.productions)),
            }
        )
        self._begin(self._cwd, {})

    def _begin(self, cwd: str, options: Mapping[str, Any]) -> None:
        place = self.tables.places.get(cwd)
        if place is None:
            raise EnvironmentOptionError(
                f"{cwd!r} is not a start directory of this environment",
                hint=did_you_mean(cwd, self.tables.places),
            )
        command = self._command
        if "command" in options:
            command = self._checked_command(options["command"])
        if UNIFORM in (self._command, command):  # draw even if `options` names a command
            drawn = int(self.np_random.integers(len(place.commands)))
            if command == UNIFORM:
                command = list(place.commands)[drawn]
        if command is not None and command not in place.commands:
            raise EnvironmentOptionError(f"no input with {command} can be derived in {cwd}")
        self._table = place.table
        self._state = PartialInput.initial(START)
        self._derivation = Derivation(self._table, START)
        self._expansions = 0
        self.taken: list[int] = []
        """The actions of this episode. The first one chooses the command, even a fixed one."""
        self._permit()
        if command is not None:
            self._expand(int(self.permitted[place.commands[command]]))
            self._permit()

    def _checked_command(self, command: str | None) -> str | None:
        names = {name for place in self.tables.places.values() for name in place.commands}
        if command is None or command in {*names, UNIFORM}:
            return command
        hint = did_you_mean(str(command), [*names, UNIFORM])
        raise EnvironmentOptionError(f"unknown command {command!r}", hint=hint)

    def _take(self, action: SupportsInt) -> Step[Observation]:
        number = number_of(action, len(self.productions))
        if number not in self._permitted.index:
            return self._refused(ActionFault.MASKED_ACTION)
        state = self._state.expand(self.productions[number])
        if state.leftmost is None:
            return self._finish(state, number)
        self._expand(number)
        self._expansions += 1
        if any(len(word) > MAX_ARGUMENT_LENGTH for word in self._derivation.words):
            return self._refused(ActionFault.TOO_LONG)
        if self._expansions >= self.max_expansions or len(self._numbers()) > self.max_symbols:
            return self._refused(ActionFault.HORIZON)
        self._permit()
        return self._going_on()

    def _expand(self, number: int) -> None:
        self._state = self._state.expand(self.productions[number])
        self._derivation.expand(self._choices, self._permitted.index[number])
        self.taken.append(number)

    @property
    def permitted(self) -> NDArray[np.int64]:
        """The actions that are permitted at the leftmost nonterminal, (permitted,)."""
        return self._permitted.actions

    @property
    def n_permitted(self) -> int:
        """The number of permitted actions; 0 while no episode is running."""
        return len(self._permitted.actions) if self._running else 0

    def action_masks(self) -> NDArray[np.bool_]:
        """Return the mask of permitted actions, (actions,); all False if no episode is running."""
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
        """Find the productions that are permitted now."""
        derivation = self._derivation
        assert derivation.leftmost != BREAK
        table = self._table
        choices = table.choices(derivation.leftmost)
        room = self.max_arguments + 1 - derivation.least + table.least[derivation.leftmost]
        if choices.most > room:
            choices = choices.within(room)
        self._choices = choices
        self._permitted = self.tables.permitted(choices)

    def _finish(self, state: PartialInput, number: int) -> Step[Observation]:
        words = self._words(state)
        fault = None
        if not words:
            fault = ActionFault.EMPTY_INPUT
        elif any(len(word) > MAX_ARGUMENT_LENGTH for word in words):
            fault = ActionFault.TOO_LONG
        elif len(words) > self.max_arguments + 1:
            fault = ActionFault.HORIZON
        scored = None
        if fault is None:
            scored = self._score(Session(self._cwd, (self._input(state),)))
        self._state = state
        self._expansions += 1
        self.taken.append(number)
        if scored is None:
            assert fault is not None
            return self._refused(fault)
        return self._finished(scored)

    def _words(self, state: PartialInput) -> tuple[str, ...]:
        return state.words if self._grammatical else tidied(state.words)

    def _input(self, state: PartialInput) -> Input:
        return Input(command_tokens(self._words(state)))

    def _mask(self) -> NDArray[np.int8]:
        mask = np.zeros(len(self.productions), np.int8)  # (actions,)
        if self._running:
            mask[self.permitted] = 1
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


def number_of(action: SupportsInt, count: int) -> int:
    """Return the action as an integer below `count`. Errors: ActionError for another value."""
    value: Any = action.item() if isinstance(action, np.ndarray) and action.ndim == 0 else action
    if isinstance(value, (int, np.integer)) and 0 <= value < count:
        return int(value)
    raise ActionError(
        f"{action!r} is not an action", hint=f"actions are the integers below {count}"
    )
