"""Terminals, nonterminals, productions, and the grammar of one command.

A production's body is a tuple of *arguments*, each a tuple of symbols. Section 3.2 types a partly
expanded argument as one nonterminal or one text, but `--block-size=<size>` is both. A body of
several arguments may replace a nonterminal. Its first argument then joins what stands to the left
in the same argument, its last what stands to the right.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from shioenv.domain.argument import Argument
from shioenv.grammar.traits import Traits

MAX_ARGUMENT_LENGTH = 64
"""Characters of a finished argument at most (Section C.1.1)."""


@dataclass(frozen=True, slots=True)
class TerminalText:
    """Finished text: part of an argument, no-space marks included, never expanded."""

    text: str

    def __hash__(self) -> int:
        return hash(self.text)  # which the text keeps

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Nonterminal:
    """A name that productions expand.

    Names are unique over all grammars. `df:option` is df's own (`df:start` is where its inputs
    begin), and `size` is shared. `File` is a system token, since it starts with a capital letter.
    `'File` is the same token where it stands inside quotes, so that its values need none of their
    own.
    """

    name: str

    def __hash__(self) -> int:
        return hash(self.name)  # which the name keeps

    def __str__(self) -> str:
        return f"<{self.name}>"

    @property
    def is_system_token(self) -> bool:
        """Whether the system fills it in, and no grammar file."""
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

    `stops` marks the empty production of a repetition: policies decide about it with a stop
    probability of their own. `volatile` says that two runs of an input it takes part in may differ,
    `wrong` that the program refuses what is written so.
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
    several letters after a single dash. `value` is "none", "required" or "optional". `repeats` says
    that the program takes the option several times, each with a value of its own.
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
    """Options that the grammar leaves out on purpose, or has though no help page shows them."""

    options: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Example:
    """An input inside a grammar file, its arguments told apart, and what it must do."""

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
    (`xargs`, `env`). `runs` is True where these are a command of their own. `version` is the last
    word of the manual line, `clock` says that it tells the time, `traits` is what the command is
    like.
    """

    command: str
    manual: str
    version: str
    package: str
    volatile: bool
    volatile_reason: str = ""
    clock: bool = False
    permutes: bool = True
    runs: bool = False
    traits: Traits = field(default_factory=Traits)


@dataclass(frozen=True, slots=True, eq=False)
class Grammar:
    """The grammar of one command: a start symbol and the productions reachable from it.

    `pipe` is the start symbol of inputs that stand to the right of a `|`, None where the command
    has no business there. `kinds` are the kinds of value by the nonterminals that have one.
    `option_values` are pairs of an option's name and the symbols of a value, None for standing
    alone. Every production's head is in `productions`; system tokens are heads only once bound.
    Compared and hashed by identity.
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
        """The grammar's name, which is the file's: `df`, `ip-addr`."""
        return self.header.command

    @property
    def command_tokens(self) -> tuple[str, ...]:
        """The command tokens an input can start with, mostly one: `df`."""
        inputs = [
            production for start in self.starts for production in self.productions.get(start, ())
        ]
        texts = ("".join(map(str, production.body[0])) for production in inputs if production.body)
        return tuple(dict.fromkeys(texts))

    @property
    def starts(self) -> tuple[Nonterminal, ...]:
        """The start symbols: of an input, and to the right of a pipe where there is one."""
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
    """What is met from `starts` (which are in it) where each nonterminal leads to others."""
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
    """`heads`, and every head one of whose productions has a part that leads to one of them."""
    users: dict[Symbol, set[Nonterminal]] = defaultdict(set)
    for head, bodies in productions.items():
        for production in bodies:
            for symbol in parts(production):
                users[symbol].add(head)
    return closure(heads, lambda head: users[head])


@dataclass(frozen=True, slots=True)
class Counts:
    """How big grammars are (our counting rule; shared definitions count once).

    `nonterminals` includes system tokens, each once. `productions` are the distinct pairs of head
    and body before binding. `grounded` are those that binding to a system adds.
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
