"""Loading of grammar files into `Grammar` objects, with all faults of a file at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from shioenv.grammar.grammar_lines import (
    HEADER,
    WITH,
    Block,
    GrammarSource,
    LineParser,
    OptionLine,
    PlacedAlternative,
)
from shioenv.grammar.kinds import KINDS
from shioenv.grammar.notation import (
    ChoiceGroup,
    Fault,
    FaultKind,
    FaultyGrammarError,
    LiteralText,
    NotationWord,
    Piece,
    Reference,
    suggestion,
)
from shioenv.grammar.symbols import (
    Body,
    Grammar,
    Header,
    Nonterminal,
    OptionSpec,
    Production,
    Productions,
    Symbol,
    TerminalText,
    reachable,
)
from shioenv.grammar.system_tokens import SYSTEM_TOKENS
from shioenv.grammar.traits import CHANGES, MAKES, SHOWS, OperandSpec, Traits, read_operands

SHARED = Path(__file__).parent / "shared"

CLUSTER_SHARE = 0.2
"""Weight of clusters (`-la`) relative to all other forms of a block: one option in six.

Only a block with at least `FULL_CLUSTERS` short options gets the whole weight. With one or two
letters, clusters would repeat these letters (`-nnn`).
"""

FULL_CLUSTERS = 6

_BLOCK_PARTS = ("flag", "valued", "long", "cluster", "rest")


@dataclass(slots=True)
class _Scope:
    """Resolves the names of one file into productions, and records faults."""

    source: GrammarSource
    prefix: str
    volatile: frozenset[str]
    """The attributes that mark an alternative as volatile: two runs may differ."""
    shared: Mapping[str, Nonterminal]
    productions: dict[Nonterminal, list[Production]] = field(default_factory=dict)
    slots: set[Nonterminal] = field(default_factory=set)
    specs: dict[OptionSpec, None] = field(default_factory=dict)
    kinds: dict[Nonterminal, str] = field(default_factory=dict)
    option_values: dict[tuple[str, tuple[Symbol, ...] | None], None] = field(default_factory=dict)
    lines: dict[Nonterminal, tuple[int, int]] = field(default_factory=dict)
    places: dict[tuple[Nonterminal, Body], tuple[int, int]] = field(default_factory=dict)
    bodies: set[tuple[Nonterminal, Body]] = field(default_factory=set)
    """The productions so far."""
    inside: Counter[str] = field(default_factory=Counter)
    """The number of generated heads so far, by the part of their names before a dot."""
    _known: tuple[str, ...] = ()

    @property
    def known(self) -> tuple[str, ...]:
        """All names that references in this file may use, except system tokens."""
        if not self._known:
            source = self.source
            parts = (f"{block}.{part}" for block in source.blocks for part in _BLOCK_PARTS)
            self._known = (*source.definitions, *source.blocks, *self.shared, *parts)
        return self._known

    def own(self, name: str) -> Nonterminal:
        """Return the nonterminal of a name that this file defines."""
        return Nonterminal(f"{self.prefix}:{name}" if self.prefix else name)

    def compile(self) -> None:
        """Resolve all definitions of the file."""
        for definition in self.source.definitions.values():
            head = self.own(definition.name)
            self.lines[head] = (definition.line, 1)
            if definition.kind is not None:
                self.kinds[head] = definition.kind
            if not definition.lines:
                message = f"<{definition.name}> has no alternative"
                self.source.report(definition.line, 1, FaultKind.SYNTAX, message)
            self.add(head, definition.lines)
        for block in self.source.blocks.values():
            _BlockCompiler(self, block).compile()

    def add(self, head: Nonterminal, lines: Iterable[PlacedAlternative]) -> None:
        """Add productions of `head`, one for each alternative."""
        for line in lines:
            alternative = line.alternative
            body = list(self.words(alternative.words, line.number, head))
            self.produce(
                head,
                body,
                alternative.attributes.weight,
                (line.number, alternative.column),
                volatile=not self.volatile.isdisjoint(alternative.attributes.flags),
                wrong="wrong" in alternative.attributes.flags,
            )

    def produce(
        self,
        head: Nonterminal,
        body: Sequence[Sequence[Symbol]],
        weight: float = 1.0,
        place: tuple[int, int] | None = None,
        *,
        stops: bool = False,
        volatile: bool = False,
        wrong: bool = False,
    ) -> None:
        """Add one production; a duplicate is a fault at `place`."""
        production = Production(head, tuple(map(tuple, body)), weight, stops, volatile, wrong)
        existing = self.head(head)
        if (head, production.body) in self.bodies:
            if place is not None:
                message = f"duplicate production {production}"
                self.source.report(*place, FaultKind.DUPLICATE, message)
            return
        existing.append(production)
        self.bodies.add((head, production.body))
        if place is not None:
            self.places[head, production.body] = place

    def head(self, symbol: Nonterminal) -> list[Production]:
        """Return the productions of a head so far; a new head has none."""
        if symbol not in self.productions:
            self.productions[symbol] = []
            parts = symbol.name.split(".")
            self.inside.update(".".join(parts[:number]) for number in range(1, len(parts)))
        return self.productions[symbol]

    def words(
        self, words: Iterable[NotationWord], line: int, head: Nonterminal
    ) -> Iterator[tuple[Symbol, ...]]:
        """Yield the arguments of a body; a word `()` is no argument."""
        for word in words:
            alone = len(word.pieces) == 1
            if alone and isinstance(word.pieces[0], ChoiceGroup) and _is_nothing(word.pieces[0]):
                continue
            yield self.pieces(word.pieces, line, head, alone=alone)

    def pieces(
        self, pieces: Sequence[Piece], line: int, head: Nonterminal, *, alone: bool = False
    ) -> tuple[Symbol, ...]:
        """Return the symbols of one argument. `alone`: repeated items are separate arguments."""
        symbols: list[Symbol] = []
        for piece in pieces:
            if isinstance(piece, LiteralText):
                symbols.append(TerminalText(piece.text))
                continue
            if isinstance(piece, Reference):
                symbol = self.resolve(piece, line)
            else:
                symbol = Nonterminal(f"{head.name}.{self.inside[head.name] + 1}")
                self.head(symbol)
                self.lines[symbol] = (line, piece.column)
                self.add(symbol, [PlacedAlternative(line, inner) for inner in piece.alternatives])
            symbols.append(self.repeated(symbol, piece.repeat, alone=alone))
        return tuple(symbols)

    def resolve(self, reference: Reference, line: int) -> Nonterminal:
        """Return the nonterminal of a reference; record a fault for an unknown name."""
        name = reference.name
        if name[0].isupper():
            if name not in SYSTEM_TOKENS:
                hint = self.source.suggestion(name, SYSTEM_TOKENS, "<{}>")
                self.undefined(line, reference, f"is not a system token{hint}")
            return Nonterminal(f"'{name}" if reference.quoted else name)
        base, dot, part = name.partition(".")
        if name in self.source.definitions or name in self.source.blocks:
            return self.own(name)
        if dot and base in self.source.blocks and part in _BLOCK_PARTS:
            return self.own(name)
        if name in self.shared:
            return self.shared[name]
        hint = self.source.suggestion(name, self.known, "<{}>")
        if not hint and name[0].islower():
            hint = self.source.suggestion(name.capitalize(), SYSTEM_TOKENS, "<{}>")
        self.undefined(line, reference, f"is not defined{hint}")
        return self.own(name)

    def undefined(self, line: int, reference: Reference, message: str) -> None:
        text = f"<{reference.name}> {message}"
        self.source.report(line, reference.column, FaultKind.UNDEFINED, text)

    def repeated(self, symbol: Nonterminal, sign: str, *, alone: bool) -> Nonterminal:
        """Return `X*`, `X+` or `X?` as a nonterminal with productions."""
        if not sign:
            return symbol
        suffix = sign if alone else f"~{sign}"
        repeated = Nonterminal(symbol.name + suffix)
        if repeated in self.productions:
            return repeated
        self.head(repeated)
        if sign == "?":
            self.produce(repeated, ())
            self.produce(repeated, [(symbol,)])
            return repeated
        more = Nonterminal(symbol.name + suffix.replace("+", "*"))
        body = [(symbol,), (more,)] if alone else [(symbol, more)]
        if sign == "*":
            self.produce(repeated, (), stops=True)
        else:
            self.repeated(symbol, "*", alone=alone)
        self.produce(repeated, body)
        return repeated


def _is_nothing(group: ChoiceGroup) -> bool:
    """Whether the group is `()`."""
    return not group.repeat and len(group.alternatives) == 1 and not group.alternatives[0].words


class _BlockCompiler:
    """Generates the forms of an option block (the table in docs/reference/grammar-format.md).

    All lines are equally likely, and so are all forms of one line.
    """

    def __init__(self, scope: _Scope, block: Block) -> None:
        self.scope = scope
        self.block = block
        self.head = scope.own(block.name)
        parts = {name: scope.own(f"{block.name}.{name}") for name in _BLOCK_PARTS}
        self.part = {"alone": self.head, **parts}
        self.total = dict.fromkeys(self.part, 0.0)

    def compile(self) -> None:
        scope, block = self.scope, self.block
        scope.lines[self.head] = (block.line, 1)
        scope.slots.add(self.head)
        scope.head(self.head)
        self.seen: dict[str, int] = {}
        for option in block.options:
            self.option(option)
        scope.add(self.head, block.others)
        self.assemble()

    def option(self, option: OptionLine) -> None:
        """Divide one line's weight among its forms."""
        place: tuple[int, int] | None = (option.number, 1)
        spec = replace(option.spec, clusters=option.spec.clusters and self.block.clusters)
        specs = [spec]
        if spec.value == "optional" and not option.optional_short:
            specs = [replace(spec, shorts=(), words=()), replace(spec, longs=(), value="none")]
        self.scope.specs |= dict.fromkeys(form for form in specs if form.names)
        for name in spec.names:
            if name in self.seen:
                message = f"duplicate option {name}, first on line {self.seen[name]}"
                self.scope.source.report(option.number, 1, FaultKind.DUPLICATE, message)
                place = None  # report faults only once
            self.seen[name] = option.number
        value = self.scope.pieces(option.value, option.number, self.head)
        for form in specs:
            for name in form.names:
                if form.value != "required":
                    self.scope.option_values[name, None] = None
                if form.value != "none":
                    self.scope.option_values[name, value] = None
        forms = [form for spec in specs for form in self.forms(spec, value)]
        weight = option.attributes.weight / len(forms)
        for where, symbols in forms:
            volatile = not self.scope.volatile.isdisjoint(option.attributes.flags)
            self.scope.produce(self.part[where], [symbols], weight, place, volatile=volatile)
            self.total[where] += weight

    def forms(
        self, spec: OptionSpec, value: tuple[Symbol, ...]
    ) -> Iterator[tuple[str, tuple[Symbol, ...]]]:
        """Yield the arguments of a line, each with the part of the block that it belongs to."""
        for letter in spec.shorts:
            part = "valued" if spec.value != "none" else "flag"
            dash, where = ("", part) if spec.clusters else ("-", "alone")
            for text, ending in self.endings(spec, value, ""):
                yield where, _symbols(f"{dash}{letter}{text}", ending)
        long = [("long", f"--{name}") for name in spec.longs]
        for where, name in [*long, *(("alone", f"-{word}") for word in spec.words)]:
            for text, ending in self.endings(spec, value, "="):
                yield where, _symbols(name + text, ending)

    @staticmethod
    def endings(
        spec: OptionSpec, value: tuple[Symbol, ...], sign: str
    ) -> list[tuple[str, tuple[Symbol, ...]]]:
        """Return the endings of a name: none, a blank and the value, or the value attached."""
        if spec.value == "none":
            return [("", ())]
        if spec.value == "optional":
            return [("", ()), (sign, value)]
        endings = [] if spec.joined else [(" ", value)]
        return endings if spec.separate else [*endings, (sign, value)]

    def assemble(self) -> None:
        """Add the block's own productions, built from its parts."""
        produce, part, total = self.scope.produce, self.part, self.total
        dash, mark = TerminalText("-"), TerminalText("<ns>")
        for kind in ("flag", "valued"):
            if total[kind]:
                produce(self.head, [(dash, part[kind])], total[kind])
        if total["long"]:
            produce(self.head, [(part["long"],)], total["long"])
        if not total["flag"]:
            return
        flag, rest = part["flag"], part["rest"]
        letters = len(self.scope.productions[flag])
        if total["valued"]:
            valued = self.scope.productions[part["valued"]]
            letters += len({str(production.body[0][0])[0] for production in valued})
        variety = min(1.0, (letters - 1) / (FULL_CLUSTERS - 1)) or 0.01
        produce(rest, [(mark, flag, mark), (rest,)], variety)
        produce(rest, [(mark, flag)], 2.0)
        if total["valued"]:
            produce(rest, [(mark, part["valued"])], 1.0)
        produce(part["cluster"], [(dash, flag, mark), (rest,)])
        everything = sum(production.weight for production in self.scope.productions[self.head])
        produce(self.head, [(part["cluster"],)], CLUSTER_SHARE * variety * everything)


def _symbols(text: str, ending: tuple[Symbol, ...]) -> tuple[Symbol, ...]:
    """Return literal text followed by symbols, with adjacent texts merged."""
    if ending and isinstance(ending[0], TerminalText):
        return (TerminalText(text + ending[0].text), *ending[1:])
    return (TerminalText(text), *ending) if text else ending


@cache
def _shared() -> tuple[Mapping[str, Nonterminal], Productions, Mapping[Nonterminal, str]]:
    """Load the shared definitions, cached; FaultyGrammarError if their files have faults."""
    sources = [
        LineParser(f"shared/{path.name}", path.read_text()).source
        for path in sorted(SHARED.glob("*.grammar"))
    ]
    names = {name: Nonterminal(name) for source in sources for name in source.definitions}
    productions: dict[Nonterminal, list[Production]] = {}
    kinds: dict[Nonterminal, str] = {}
    for source in sources:
        scope = _Scope(source, "", frozenset({"volatile"}), names, productions, kinds=kinds)
        scope.compile()
    faults = [fault for source in sources for fault in source.faults]
    if faults:
        raise FaultyGrammarError(faults)
    return names, {head: tuple(bodies) for head, bodies in productions.items()}, kinds


@dataclass(frozen=True, slots=True)
class Loaded:
    """A loaded grammar file: the grammar and its faults so far.

    `lines` has the line and column of each definition, `places` those of each production.
    """

    grammar: Grammar
    faults: tuple[Fault, ...]
    lines: Mapping[Nonterminal, tuple[int, int]]
    places: Mapping[tuple[Nonterminal, Body], tuple[int, int]]


def read_grammar(text: str, path: str, *, host_clock: bool = False) -> Loaded:
    """Parse a grammar in `text`; faults are returned rather than raised.

    `path` is the file's name in faults; its stem must be the command's name. `host_clock` is
    `System.host_clock` of the target system. Errors: FaultyGrammarError if the shared definitions
    have faults.
    """
    source = LineParser(path, text).source
    volatile = frozenset({"volatile", "clock"} if host_clock else {"volatile"})
    header = _header(source, host_clock)
    names, shared, shared_kinds = _shared()
    prefix = Path(path).stem
    scope = _Scope(source, prefix, volatile, names)
    start, pipe = Nonterminal(f"{prefix}:start"), Nonterminal(f"{prefix}:pipe")
    scope.compile()
    scope.add(start, source.starts)
    scope.add(pipe, source.pipes)
    if not source.starts:
        source.report(1, 1, FaultKind.HEADER, "a grammar needs a start line: start ls <option>*")
    productions = {head: tuple(bodies) for head, bodies in scope.productions.items()}
    known = {**shared, **productions}
    used = reachable(known, (start, pipe, *productions))
    grammar = Grammar(
        header=header,
        start=start,
        pipe=pipe if source.pipes else None,
        productions={head: bodies for head, bodies in known.items() if head in used},
        options=tuple(scope.specs),
        option_slots=frozenset(scope.slots),
        option_values=tuple(scope.option_values),
        kinds={**shared_kinds, **scope.kinds},
        omissions=tuple(source.reasoned["omit"]),
        undocumented=tuple(source.reasoned["undocumented"]),
        refusals=tuple(source.reasoned["refused"]),
        avoided=tuple(source.avoided),
        examples=tuple(source.examples),
        source=path,
    )
    return Loaded(grammar, tuple(source.faults), scope.lines, scope.places)


def _header(source: GrammarSource, host_clock: bool) -> Header:
    """Parse the header; record a fault for each missing line."""

    def value(keyword: str, example: str) -> str:
        if keyword not in source.header:
            message = f"the header has no `{keyword}`; example: {keyword} {example}"
            source.report(1, 1, FaultKind.HEADER, message)
            return ""
        return source.header[keyword][0]

    def fault(keyword: str, message: str) -> None:
        source.report(source.header[keyword][1], 1, FaultKind.HEADER, message)

    command = value("command", "ls")
    manual = value("manual", "ls(1), GNU coreutils 9.1")
    package = value("package", "coreutils")
    answer, _, reason = value("volatile", "no").partition(":")
    stem = Path(source.path).stem
    if command and command != stem:
        fault("command", f"the command is {command}, but the file name is {stem}.grammar")
    version = manual.split()[-1] if manual else "0"
    if manual and not version[0].isdigit():
        fault("manual", "the manual line must end with a version: ls(1), GNU coreutils 9.1")
    answer, reason = answer.strip(), reason.strip()
    if answer not in {"", "no", "yes", "clock"} or (answer in {"yes", "clock"} and not reason):
        fault("volatile", "volatile must be `no`, `yes: REASON` or `clock: REASON`")
    return Header(
        command=stem,
        manual=manual,
        version=version,
        package=package,
        volatile=answer == "yes" or (host_clock and answer == "clock"),
        volatile_reason=reason,
        clock=answer == "clock",
        permutes=_is_yes(source, "permutes", "yes"),
        runs=_runs(source),
        traits=_traits(source),
    )


def _is_yes(source: GrammarSource, keyword: str, otherwise: str = "no") -> bool:
    """Whether a line has the value `yes`; record a fault for values other than yes and no."""
    answer, line = source.header.get(keyword, (otherwise, 0))
    if answer not in {"yes", "no"}:
        source.report(line, 1, FaultKind.HEADER, f"{keyword} must be `yes` or `no`")
    return answer == "yes"


def _runs(source: GrammarSource) -> int | None:
    """Return the number of operands before a nested command; record a fault if it is invalid."""
    answer, line = source.header.get("runs", ("no", 0))
    word, _, count = answer.partition(" ")
    if word == "after" and count.isdecimal():
        return int(count)
    if answer not in {"yes", "no"}:
        source.report(line, 1, FaultKind.HEADER, "runs must be `yes`, `no` or `after N` (operands)")
    return 0 if answer == "yes" else None


def _traits(source: GrammarSource) -> Traits:
    """Parse the traits in the header; record a fault for an invalid line."""

    def one_of(keyword: str, known: Collection[str]) -> str:
        answer, line = source.header.get(keyword, ("", 0))
        if keyword in source.header and answer not in known:
            hint = suggestion(answer, known) or f"; known: {', '.join(known)}"
            source.report(
                line, 1, FaultKind.HEADER, f"unknown value `{answer}` of `{keyword}`{hint}"
            )
        return answer

    operands: tuple[OperandSpec, ...] = ()
    if "operands" in source.header:
        answer, line = source.header["operands"]
        read = read_operands(answer, KINDS)
        if isinstance(read, str):
            source.report(line, 1, FaultKind.HEADER, read)
        else:
            operands = read
    return Traits(
        operands=operands,
        effects=tuple(source.effects),
        implied=source.header.get("implied", ("", 0))[0],
        makes=one_of("makes", MAKES),
        changes=one_of("changes", CHANGES),
        removes=_is_yes(source, "removes"),
        opens=_is_yes(source, "opens"),
        ordered=_is_yes(source, "ordered"),
        shows=one_of("shows", SHOWS),
        help=source.header.get("help", ("", 0))[0],
        lines={keyword: line for keyword, (_, line) in source.header.items()},
    )


def read_header(text: str, path: str) -> Header:
    """Parse only the header of a grammar's text, and ignore faults."""
    lines = (line for line in text.splitlines() if line.partition(" ")[0] in _OF_HEADER)
    return _header(LineParser(path, "\n".join(lines)).source, host_clock=False)


_OF_HEADER = frozenset({*HEADER, WITH})
