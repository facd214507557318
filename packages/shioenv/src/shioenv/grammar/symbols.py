"""Terminals, nonterminals, productions, and the grammar of one command.

A production's body is a tuple of *arguments*, each a tuple of symbols. Section 3.2 types a partly
expanded argument as one nonterminal or one text, but `--block-size=<size>` is both. A body of
several arguments may replace a nonterminal. The body's first argument then joins the symbols to the
nonterminal's left in the same argument, its last argument those to the right.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from shioenv.domain.inputs import Argument
from shioenv.grammar.traits import Traits

MAX_ARGUMENT_LENGTH = 64
"""Characters of a finished argument at most (Section C.1.1)."""


@dataclass(frozen=True, slots=True)
class TerminalText:
    """Finished text, which is never expanded: part of an argument, no-space marks included."""

    text: str

    def __hash__(self) -> int:
        return hash(self.text)  # a text remembers its hash

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Nonterminal:
    """A name that productions expand.

    Names are unique over all grammars. `df:option` is df's own (`df:start` is where its inputs
    begin), and `size` is shared. `File` is a system token, since it starts with a capital letter.
    `'File` is the same token inside quotes, where only values that need no quotes are used.
    """

    name: str

    def __hash__(self) -> int:
        return hash(self.name)  # a text remembers its hash

    def __str__(self) -> str:
        return f"<{self.name}>"

    @property
    def is_system_token(self) -> bool:
        """Whether the nonterminal is a system token, which a system fills in."""
        return self.name.lstrip("'")[:1].isupper()

    @property
    def token(self) -> str:
        """The system token's name without its quoting mark."""
        return self.name.lstrip("'")


Symbol: TypeAlias = TerminalText | Nonterminal
Body: TypeAlias = tuple[tuple[Symbol, ...], ...]


@dataclass(frozen=True, slots=True)
class Production:
    """`head` becomes `body`; `weight` is relative to the head's other productions.

    `stops` marks the empty production of a repetition, for which policies have a stop probability
    of their own. `volatile` says that two runs of an input may differ where the production takes
    part. `wrong` says that the program refuses an input with the production.
    """

    head: Nonterminal
    body: Body
    weight: float = 1.0
    stops: bool = False
    volatile: bool = False
    wrong: bool = False

    def __str__(self) -> str:
        body = " ".join(show_argument(argument) for argument in self.body)
        return f"{self.head} = {body or '()'}"

    @property
    def text(self) -> str | None:
        """The text of a body that is one text and nothing else; None for other bodies."""
        match self.body:
            case ((TerminalText(text),),):
                return text
        return None

    @property
    def nonterminals(self) -> Iterator[Nonterminal]:
        """The nonterminals of the body, from left to right."""
        for argument in self.body:
            for symbol in argument:
                if isinstance(symbol, Nonterminal):
                    yield symbol


Productions: TypeAlias = Mapping[Nonterminal, tuple[Production, ...]]
"""The productions of each head."""


def show_argument(argument: Iterable[Symbol]) -> str:
    """An argument as grammar files write it, in braces where it contains a blank."""
    text = "".join(str(symbol) for symbol in argument)
    return f"{{{text}}}" if " " in text else text


@dataclass(frozen=True, slots=True)
class OptionSpec:
    """One line of an option block: the spellings of one option, and how it takes a value.

    `shorts` are letters without a dash, `longs` names without their two dashes, `words` names of
    several letters after a single dash. `value` is "none", "required" or "optional". `clusters`
    says that the letters may stand in a bundle. `joined` says that a required value has to be
    attached, `separate` that it has to stand behind a blank. `repeats` says that the program takes
    the option several times, each with a value of its own.
    """

    shorts: tuple[str, ...] = ()
    longs: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    value: str = "none"
    clusters: bool = True
    joined: bool = False
    separate: bool = False
    repeats: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """All spellings as a help page shows them: `-a`, `--all`, `-name`."""
        return (
            *(f"-{letter}" for letter in self.shorts),
            *(f"--{name}" for name in self.longs),
            *(f"-{word}" for word in self.words),
        )


@dataclass(frozen=True, slots=True)
class Omission:
    """Options of an `omit` line (left out on purpose) or `undocumented` line (in no help page)."""

    options: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Example:
    """An input inside a grammar file, with its arguments, and what the input must do.

    `line` counts from 1. Each text of `prints` must be a line of the output, each text of
    `contains` must be in the output. `after` is the input left of a pipe before the example's.
    """

    command: str
    arguments: tuple[Argument, ...]
    line: int
    exit_code: int = 0
    prints: tuple[str, ...] = ()
    contains: tuple[str, ...] = ()
    after: str | None = None


@dataclass(frozen=True, slots=True)
class Header:
    """What a grammar file says about its command.

    `permutes` is False for programs that take everything after their first operand as operands
    (`xargs`, `env`). `runs` says after how many operands the others are a command of their own
    (`timeout`: 1), None where they are none. `version` is the last word of the manual line.
    `volatile` says that two runs may differ, `volatile_reason` why. `clock` says that the command
    tells the time. `traits` is what the command is like.
    """

    command: str
    manual: str
    version: str
    package: str
    volatile: bool
    volatile_reason: str = ""
    clock: bool = False
    permutes: bool = True
    runs: int | None = None
    traits: Traits = field(default_factory=Traits)


@dataclass(frozen=True, slots=True, eq=False)
class Grammar:
    """The grammar of one command: a start symbol and the productions reachable from it.

    `pipe` is the start symbol of inputs to the right of a `|`, None where no input of the command
    stands there. `kinds` are the names of kinds of value, by the nonterminals that have a kind.
    `option_slots` are the heads of option blocks. `option_values` are pairs of an option's name and
    the symbols of a value, or None where the option may stand alone. System tokens are heads of
    `productions` only once the grammar is bound. `source` is the file's name in faults. Grammars
    are compared and hashed by identity.
    """

    header: Header
    start: Nonterminal
    pipe: Nonterminal | None
    productions: Productions
    options: tuple[OptionSpec, ...]
    option_slots: frozenset[Nonterminal]
    option_values: tuple[tuple[str, tuple[Symbol, ...] | None], ...]
    kinds: Mapping[Nonterminal, str]
    omissions: tuple[Omission, ...]
    undocumented: tuple[Omission, ...]
    examples: tuple[Example, ...]
    source: str

    @property
    def name(self) -> str:
        """The grammar's name, which is that of its file: `df`, `ip-addr`."""
        return self.header.command

    @property
    def command_tokens(self) -> tuple[str, ...]:
        """The command tokens that an input can start with, mostly one token: `df`."""
        inputs = [
            production for start in self.starts for production in self.productions.get(start, ())
        ]
        texts = ("".join(map(str, production.body[0])) for production in inputs if production.body)
        return tuple(dict.fromkeys(texts))

    @property
    def starts(self) -> tuple[Nonterminal, ...]:
        """The start symbols: that of an input, and that of inputs to the right of a `|`, if any."""
        return (self.start,) if self.pipe is None else (self.start, self.pipe)

    @property
    def own(self) -> Productions:
        """The productions of the heads that the file itself defines."""
        prefix = f"{self.name}:"
        return {
            head: bodies
            for head, bodies in self.productions.items()
            if head.name.startswith(prefix)
        }

    @property
    def nonterminals(self) -> frozenset[Nonterminal]:
        """Every nonterminal that is a head or stands in a body, system tokens included."""
        return reachable(self.productions, self.productions)


def closure(
    starts: Iterable[Nonterminal], leads: Callable[[Nonterminal], Iterable[Nonterminal]]
) -> frozenset[Nonterminal]:
    """The nonterminals that are met from `starts`, which are included, by following `leads`."""
    met: set[Nonterminal] = set()
    pending = list(starts)
    while pending:
        symbol = pending.pop()
        if symbol not in met:
            met.add(symbol)
            pending.extend(leads(symbol))
    return frozenset(met)


def reachable(productions: Productions, starts: Iterable[Nonterminal]) -> frozenset[Nonterminal]:
    """The nonterminals that derivations from `starts` can meet."""
    return closure(
        starts,
        lambda head: (
            symbol for production in productions.get(head, ()) for symbol in production.nonterminals
        ),
    )


def leading_to(
    heads: Iterable[Nonterminal],
    productions: Productions,
    parts: Callable[[Production], Iterable[Symbol]],
) -> frozenset[Nonterminal]:
    """`heads`, and every head with a production of which one of the `parts` leads to `heads`."""
    users: dict[Symbol, set[Nonterminal]] = defaultdict(set)
    for head, bodies in productions.items():
        for production in bodies:
            for symbol in parts(production):
                users[symbol].add(head)
    return closure(heads, lambda head: users[head])


@dataclass(frozen=True, slots=True)
class Counts:
    """The size of grammars (our counting rule; shared definitions count once).

    `nonterminals` counts system tokens too, each once. `productions` counts the distinct pairs of
    head and body before binding. `grounded` counts the pairs that binding to a system adds.
    """

    nonterminals: int
    productions: int
    grounded: int


def count(grammars: Iterable[Grammar]) -> Counts:
    """The size of several grammars together."""
    nonterminals: set[str] = set()
    productions: set[tuple[Nonterminal, Body]] = set()
    for grammar in grammars:
        nonterminals.update(symbol.token for symbol in grammar.nonterminals)
        for head, bodies in grammar.productions.items():
            productions.update((head, production.body) for production in bodies)
    grounded = sum(head.is_system_token for head, _ in productions)
    return Counts(len(nonterminals), len(productions) - grounded, grounded)
