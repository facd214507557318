"""Terminals, nonterminals, productions, and the grammar of one command.

A production's body is a tuple of *arguments*, each a tuple of symbols. Section 3.2 of the paper
defines a partly expanded argument as one nonterminal or one text, but `--block-size=<size>` is
both. A body of several arguments may replace a nonterminal inside an argument. Then the body's
first argument is joined with the symbols to the left of the nonterminal, the body's last argument
with those to the right.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from shioenv.domain.inputs import Argument, render
from shioenv.grammar.traits import Traits

MAX_ARGUMENT_LENGTH = 64
"""Maximum length of a complete argument in characters (Section C.1.1)."""


@dataclass(frozen=True, slots=True)
class TerminalText:
    """Literal text, which is never expanded: part of an argument, including no-space marks."""

    text: str

    def __hash__(self) -> int:
        return hash(self.text)  # a string caches its hash

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Nonterminal:
    """A name that productions expand.

    Names are unique over all grammars. `df:option` belongs to df (`df:start` is its start symbol),
    and `size` is shared. `File` is a system token, since it starts with a capital letter. `'File`
    is the same token inside quotes, with only those values that need no quotes.
    """

    name: str

    def __hash__(self) -> int:
        return hash(self.name)  # a string caches its hash

    def __str__(self) -> str:
        return f"<{self.name}>"

    @property
    def is_system_token(self) -> bool:
        """Whether the nonterminal is a system token, whose values come from a system."""
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

    `stops` marks the empty production of a repetition, for which policies have a separate stop
    probability. `volatile`: two runs of an input derived with the production may differ. `wrong`:
    the program refuses such an input.
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
        """The text of a body that consists of one text; None for other bodies."""
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
    """Format an argument as in grammar files, in braces if it contains a blank."""
    text = "".join(str(symbol) for symbol in argument)
    return f"{{{text}}}" if " " in text else text


@dataclass(frozen=True, slots=True)
class OptionSpec:
    """One line of an option block: the spellings of one option, and how it takes a value.

    `shorts` are letters without a dash, `longs` names without their two dashes, `words` names of
    several letters after a single dash. `value` is "none", "required" or "optional". `clusters`:
    the letters may be bundled. `joined`: a required value must be attached. `separate`: a required
    value must follow a blank. `repeats`: the program accepts the option several times, each time
    with its own value.
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
        """All spellings as on a help page: `-a`, `--all`, `-name`."""
        return (
            *(f"-{letter}" for letter in self.shorts),
            *(f"--{name}" for name in self.longs),
            *(f"-{word}" for word in self.words),
        )


@dataclass(frozen=True, slots=True)
class Omission:
    """The options of an `omit`, `undocumented` or `refused` line, with the reason.

    `omit`: omitted on purpose, `undocumented`: not in the help, `refused`: no input with them runs.
    """

    options: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Avoidance:
    """An `avoid` line: inputs that print and change nothing, or that the program refuses.

    Each pattern of `present` matches an argument of such an input; no pattern of `absent` does.
    `when` is "missing" if none of its operands may name a file, "existing" if all must. It is
    "after-pipe" for inputs that ignore their standard input, if they get one, and "before-pipe" for
    inputs whose output is read by another command. Else it is "".
    """

    present: tuple[re.Pattern[str], ...]
    absent: tuple[re.Pattern[str], ...]
    when: str = ""

    def matches(self, words: Sequence[str], exists: Callable[[str], bool]) -> bool:
        """Whether this is such an input. `words` are its arguments, with no-space marks."""
        arguments = list(map(apart, words))
        given = [exists(word) for word in arguments if not word.startswith("-")]
        return (
            all(any(map(one.fullmatch, arguments)) for one in self.present)
            and not any(any(map(one.fullmatch, arguments)) for one in self.absent)
            and (self.when != "missing" or not any(given))
            and (self.when != "existing" or all(given))
        )


def apart(word: str) -> str:
    """Return an argument without no-space marks; a letter of a bundle gets a dash."""
    return re.sub("^<ns>(?!-)", "-", word).replace("<ns>", "")


@dataclass(frozen=True, slots=True)
class Example:
    """An example input in a grammar file, with its arguments and expected result.

    `line` counts from 1. Each text of `prints` must be a line of the output, each text of
    `contains` must be in the output. `after` is the input whose output is piped into the example.
    """

    command: str
    arguments: tuple[Argument, ...]
    line: int
    exit_code: int = 0
    prints: tuple[str, ...] = ()
    contains: tuple[str, ...] = ()
    after: str | None = None

    @property
    def text(self) -> str:
        """The whole input: `after` and a pipe, if any, then the example."""
        text = render(self.command, self.arguments)
        return text if self.after is None else f"{self.after} | {text}"


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a grammar file, which describes the command.

    `permutes` is False for programs that treat everything after their first operand as operands
    (`xargs`, `env`). `runs` is the number of operands before a nested command (`timeout`: 1), or
    None. `version` is the last word of the manual line. `volatile`: two runs may differ, for the
    reason in `volatile_reason`. `clock`: the command prints the time. `traits` describes how the
    command uses its operands and options.
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

    `pipe` is the start symbol of commands to the right of a `|`, or None if the grammar has none.
    `kinds` maps nonterminals to the name of the kind of value that they derive, such as `size`.
    `option_slots` are the heads of option blocks. `option_values` are pairs of an option's name and
    the symbols of its value; the second is None for the option without a value. System tokens are
    heads of `productions` only if the grammar is bound. `source` is the file's name in faults.
    Grammars are compared and hashed by identity.
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
    refusals: tuple[Omission, ...]
    avoided: tuple[Avoidance, ...]
    examples: tuple[Example, ...]
    source: str

    @property
    def name(self) -> str:
        """The grammar's name, taken from its file: `df`, `ip-addr`."""
        return self.header.command

    @property
    def command_tokens(self) -> tuple[str, ...]:
        """The command tokens that can begin an input, usually one: `df`."""
        inputs = [
            production for start in self.starts for production in self.productions.get(start, ())
        ]
        texts = ("".join(map(str, production.body[0])) for production in inputs if production.body)
        return tuple(dict.fromkeys(texts))

    @property
    def starts(self) -> tuple[Nonterminal, ...]:
        """The start symbol of inputs, and the one of inputs to the right of a `|`, if it exists."""
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
        """All nonterminals in heads and bodies, including system tokens."""
        return reachable(self.productions, self.productions)


def closure(
    starts: Iterable[Nonterminal], leads: Callable[[Nonterminal], Iterable[Nonterminal]]
) -> frozenset[Nonterminal]:
    """Return the nonterminals reachable from `starts` by following `leads`, including `starts`."""
    met: set[Nonterminal] = set()
    pending = list(starts)
    while pending:
        symbol = pending.pop()
        if symbol not in met:
            met.add(symbol)
            pending.extend(leads(symbol))
    return frozenset(met)


def reachable(productions: Productions, starts: Iterable[Nonterminal]) -> frozenset[Nonterminal]:
    """Return the nonterminals that are reachable in derivations from `starts`."""
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
    """Return `heads` and all heads that derive one of them, using only the symbols in `parts`."""
    users: dict[Nonterminal, set[Nonterminal]] = defaultdict(set)
    for head, bodies in productions.items():
        for production in bodies:
            for symbol in parts(production):
                if isinstance(symbol, Nonterminal):
                    users[symbol].add(head)
    return closure(heads, lambda head: users[head])
