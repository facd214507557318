"""The numbered productions of `ShIOEnv-Grammar-v0`, shared by its environments."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shioenv.errors import EnvironmentOptionError, UnboundTokenError, did_you_mean
from shioenv.grammar.bind import bind
from shioenv.grammar.library import OwnGrammars
from shioenv.grammar.symbols import Grammar, Nonterminal, Production, Symbol
from shioenv.synthesis.derivation import CompiledChoices, ProductionTable
from shioenv.synthesis.drawing import Drawing
from shioenv.synthesis.sample import grammars_for
from shioenv.synthesis.samplers import permitted_by, united
from shioenv.system.catalogue import catalogue as catalogue_of
from shioenv.system.store import System

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


def place_named(places: Mapping[str, Place], cwd: str) -> Place:
    """Return the place of a start directory. Errors: EnvironmentOptionError if there is none."""
    if cwd not in places:
        raise EnvironmentOptionError(
            f"{cwd!r} is not a start directory of this environment",
            hint=did_you_mean(cwd, places),
        )
    return places[cwd]
