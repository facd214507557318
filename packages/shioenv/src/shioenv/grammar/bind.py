"""Binding of grammars to one system: system tokens get the values that exist there."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter

from shioenv.bash.words import quoted
from shioenv.errors import UnboundTokenError
from shioenv.grammar.symbols import (
    MAX_ARGUMENT_LENGTH,
    Grammar,
    Nonterminal,
    Production,
    TerminalText,
)
from shioenv.grammar.system_tokens import ALWAYS_QUOTED, FALLBACK, STAND_IN, VOCABULARY
from shioenv.grammar.validation import without_endless

_SAFE_INSIDE_QUOTES = re.compile(r"[\w@%+=:,./ ^\[\]*?~-]+\Z")


def stand_in_catalogue() -> Mapping[str, tuple[str, ...]]:
    """Return a small catalogue for use without a system (checks, documentation, tests)."""
    return {**FALLBACK, **VOCABULARY, **STAND_IN}


def with_vocabulary(catalogue: Mapping[str, Sequence[str]]) -> Mapping[str, Sequence[str]]:
    """Return a system's values by token, with general values for tokens that it lacks."""
    return {
        **FALLBACK,
        **VOCABULARY,
        **{name: values for name, values in catalogue.items() if values},
    }


def values_of(token: Nonterminal, catalogue: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return the values of a system token as shell text, quoted where necessary.

    Inside quotes (`'File`) only values that need no quotes are used. Values that exceed
    `MAX_ARGUMENT_LENGTH` with their quotes are omitted. Empty values and those with unprintable
    characters, such as a newline, are omitted too. A value that begins with a dash gets the prefix
    `./`.
    """
    name = token.token
    values = catalogue.get(name) or VOCABULARY.get(name) or FALLBACK.get(name) or ()
    texts = []
    for plain in values:
        if not plain.isprintable() or not plain:
            continue
        value = f"./{plain}" if plain.startswith("-") else plain
        if token.name.startswith("'"):
            if not _SAFE_INSIDE_QUOTES.match(value):
                continue
            text = value
        elif name in ALWAYS_QUOTED:
            text = quoted(value, always=True)
        else:
            text = quoted(value)
        if len(text) <= MAX_ARGUMENT_LENGTH:
            texts.append(text)
    return tuple(dict.fromkeys(texts))


def bind(grammar: Grammar, catalogue: Mapping[str, Sequence[str]]) -> Grammar:
    """Return the grammar with productions for its system tokens, in the catalogue's order.

    Alternatives with a token for which the system has no value (no socket, no zip archive) are
    omitted. Errors: UnboundTokenError if no input of the command remains.
    """
    productions = dict(grammar.productions)
    missing = []
    for symbol in sorted(grammar.nonterminals, key=attrgetter("name")):
        if symbol.is_system_token and symbol not in productions:
            values = values_of(symbol, catalogue)
            productions[symbol] = tuple(
                Production(symbol, ((TerminalText(value),),)) for value in values
            )
            if not values:
                missing.append(symbol.token)
    kept = without_endless(productions)
    if grammar.start not in kept:
        names = ", ".join(f"<{name}>" for name in dict.fromkeys(missing))
        raise UnboundTokenError(
            f"no input of {grammar.name} can be derived: the system has no value for {names}",
            hint="add such files or names to the system, or an alternative to the grammar",
        )
    pipe = grammar.pipe if grammar.pipe in kept else None
    return replace(grammar, productions=kept, pipe=pipe)
