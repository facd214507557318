"""Grammar files read into `Grammar` objects, every fault of a file reported at once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from shioenv.domain.argument import Argument
from shioenv.errors import InputError
from shioenv.grammar.faults import Fault, FaultKind, FaultyGrammarError, suggestion
from shioenv.grammar.notation import (
    Alternative,
    Attributes,
    Group,
    Piece,
    Reader,
    Reference,
    Text,
    Word,
)
from shioenv.grammar.symbols import (
    Example,
    Grammar,
    Header,
    Nonterminal,
    Omission,
    OptionSpec,
    Production,
    Symbol,
    Terminal,
)
from shioenv.grammar.tokens import SYSTEM_TOKENS

SHARED = Path(__file__).parent / "shared"

CLUSTER_SHARE = 0.2
"""Weight of clusters relative to all other forms of a block: about one option in six."""

_HEADER = ("command", "manual", "package", "volatile", "permutes")
_KEYWORDS = (*_HEADER, "start", "pipe", "options", "omit", "example")
_DEFINITION = re.compile(r"<([A-Za-z][A-Za-z0-9-]*)>\s*=")
_BLOCK = re.compile(r"<([a-z][A-Za-z0-9-]*)>\s*")
_OPTION = re.compile(r"(--?)([^\s,=\[\]<>(){}|'\"\\%-][^\s,=\[\]<>(){}|'\"\\%]*)")
_BLOCK_PARTS = ("flag", "valued", "long", "cluster", "rest")


@dataclass(slots=True)
class _Line:
    """An alternative and the line it stands on."""

    number: int
    alternative: Alternative


@dataclass(slots=True)
class _Definition:
    name: str
    line: int
    column: int
    lines: list[_Line] = field(default_factory=list)


@dataclass(slots=True)
class _OptionLine:
    """An option as written: its names, its value's pieces and how it is attached."""

    number: int
    shorts: list[str]
    longs: list[str]
    words: list[str]
    value: list[Piece]
    style: str  # "none", "required" or "optional"
    separate: bool
    joined: bool
    attributes: Attributes


@dataclass(slots=True)
class _Block:
    name: str
    line: int
    column: int
    clusters: bool = True
    options: list[_OptionLine] = field(default_factory=list)
    others: list[_Line] = field(default_factory=list)


@dataclass(slots=True)
class _Source:
    """A file's lines taken apart, nothing resolved yet."""

    path: str
    header: dict[str, tuple[str, int]] = field(default_factory=dict)
    starts: list[_Line] = field(default_factory=list)
    pipes: list[_Line] = field(default_factory=list)
    definitions: dict[str, _Definition] = field(default_factory=dict)
    blocks: dict[str, _Block] = field(default_factory=dict)
    omissions: list[Omission] = field(default_factory=list)
    examples: list[Example] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)

    def report(self, line: int, column: int, kind: FaultKind, message: str) -> None:
        """Note a fault."""
        self.faults.append(Fault(self.path, line, column, message, kind))

    def reader(self, line: int, text: str, position: int) -> Reader:
        """A reader of one line that notes its faults here."""

        def report(kind: FaultKind, message: str, column: int) -> None:
            self.report(line, column, kind, message)

        return Reader(text, position, report)


class _LineParser:
    """Takes a file apart line by line."""

    def __init__(self, path: str, text: str) -> None:
        self.source = _Source(path)
        self.open: _Definition | _Block | list[_Line] | str | None = None
        self.expectations: dict[str, list[str]] = {}
        self.example: tuple[int, list[Word]] | None = None
        for number, line in enumerate(text.splitlines(), start=1):
            stripped = line.strip()
            if not stripped or stripped.startswith("#"):
                continue
            if line[0] in " \t":
                self.continued(number, line)
            else:
                self.finish_example()
                self.first(number, line)
        self.finish_example()

    def fault(self, line: int, column: int, message: str) -> None:
        self.source.report(line, column, FaultKind.SYNTAX, message)

    def first(self, number: int, line: str) -> None:
        """A line that starts in the first column."""
        self.open = None
        if match := _DEFINITION.match(line):
            self.definition(number, line, match)
            return
        keyword, _, _ = line.partition(" ")
        position = min(len(keyword) + 1, len(line))
        rest = line[position:].strip()
        if keyword in _HEADER:
            if keyword in self.source.header:
                self.fault(number, 1, f"{keyword} is given twice")
            comment = re.search(r"\s#\s.*$", line[position:])
            value = rest if comment is None else line[position:][: comment.start()].strip()
            self.source.header[keyword] = (value, number)
        elif keyword in {"start", "pipe"}:
            self.open = self.source.starts if keyword == "start" else self.source.pipes
            self.read_lines(number, line, position, self.open)
        elif keyword == "options":
            self.block(number, line, position)
        elif keyword == "omit":
            self.omit(number, rest)
        elif keyword == "example":
            words, _ = self.source.reader(number, line, position).sequence()
            self.example, self.open = (number, words), "example"
        else:
            known = [*_KEYWORDS, "<name> ="]
            hint = suggestion(keyword, known) or f"; a line begins with {', '.join(known)}"
            self.fault(number, 1, f"`{keyword}` begins no line{hint}")

    def definition(self, number: int, line: str, match: re.Match[str]) -> None:
        name = match[1]
        definition = _Definition(name, number, 1)
        if name[0].isupper():
            message = "capitalised names are system tokens and cannot be defined"
            self.fault(number, 2, f"<{name}> cannot be defined: {message}")
        elif name == "ns":
            self.fault(number, 2, "<ns> is the no-space mark and cannot be defined")
        elif name in self.source.definitions or name in self.source.blocks:
            self.fault(number, 2, f"<{name}> is defined twice")
        else:
            self.source.definitions[name] = definition
        self.open = definition
        self.read_lines(number, line, match.end(), definition.lines)

    def block(self, number: int, line: str, position: int) -> None:
        reader = self.source.reader(number, line, position)
        reader.skip_blanks()
        name = "option"
        if match := _BLOCK.match(line, reader.position):
            name = match[1]
            reader.position = match.end()
        words, attributes = reader.sequence()
        if words:
            self.fault(number, words[0].column, "after `options` comes a name: options <mode>")
        self.known_flags(number, attributes, {"no-clusters"})
        block = _Block(name, number, 1, clusters="no-clusters" not in attributes.flags)
        if name in self.source.definitions or name in self.source.blocks:
            self.fault(number, 1, f"<{name}> is defined twice")
        else:
            self.source.blocks[name] = block
        self.open = block

    def omit(self, number: int, rest: str) -> None:
        names, colon, reason = rest.partition(": ")
        options = tuple(name.strip() for name in names.split(",") if name.strip())
        if not colon or not reason.strip() or not options:
            message = "omit needs options and a reason: omit -i, --ask: waits for a terminal"
            self.fault(number, 1, message)
            return
        self.source.omissions.append(Omission(options, reason.strip()))

    def continued(self, number: int, line: str) -> None:
        """An indented line: it belongs to the line above."""
        position = len(line) - len(line.lstrip())
        if isinstance(self.open, _Definition):
            self.read_lines(number, line, position, self.open.lines)
        elif isinstance(self.open, _Block):
            self.option_line(number, line, position, self.open)
        elif isinstance(self.open, list):
            extra = self.source.reader(number, line, position).alternatives()
            if self.open and len(extra) == 1:
                self.open[-1].alternative.words.extend(extra[0].words)
        elif self.open == "example":
            self.expectation(number, line, position)
        else:
            self.fault(number, position + 1, "nothing above this indented line can be continued")

    def read_lines(self, number: int, line: str, position: int, into: list[_Line]) -> None:
        for alternative in self.source.reader(number, line, position).alternatives():
            self.known_flags(number, alternative.attributes, set())
            into.append(_Line(number, alternative))

    def known_flags(self, number: int, attributes: Attributes, known: set[str]) -> None:
        for flag in sorted(attributes.flags - known):
            self.fault(number, 1, f"%{flag} means nothing here")

    def option_line(self, number: int, line: str, position: int, block: _Block) -> None:
        """One line of an option block; what is no option is an ordinary alternative."""
        start = position
        names: list[tuple[str, str]] = []
        while match := _OPTION.match(line, position):
            names.append((match[1], match[2]))
            position = match.end()
            comma = re.match(r",\s*(?=-)", line[position:])
            if not comma:
                break
            position += comma.end()
        if not names:
            self.read_lines(number, line, start, block.others)
            return
        reader = self.source.reader(number, line, position)
        option = _OptionLine(number, [], [], [], [], "none", False, False, Attributes())
        for dashes, name in names:
            kind = option.longs if dashes == "--" else option.shorts
            (option.words if dashes == "-" and len(name) > 1 else kind).append(name)
        self.option_value(reader, option)
        words, option.attributes = reader.sequence()
        if option.separate and words:  # an option with several values: -fprintf <file> <format>
            for word in words:
                option.value += [Text(" "), *word.pieces]
        elif words or reader.peek():
            self.fault(number, reader.column, "cannot read this option; one option to a line")
        self.known_flags(number, option.attributes, {"alone", "separate", "joined"})
        flags = option.attributes.flags
        option.joined = option.joined or "joined" in flags
        # A long option is shown with `=` or with a blank; both forms are then possible.
        option.separate = "separate" in flags or bool(option.words)
        block.options.append(option)

    def option_value(self, reader: Reader, option: _OptionLine) -> None:
        """Read `=<v>`, `[=<v>]`, `[<v>]`, `<v>` or ` <v>` right after the last name."""
        if reader.peek() == "=":
            reader.position += 1
            option.style, option.value = "required", reader.word().pieces
        elif reader.peek() == "[":
            reader.position += 2 if reader.peek(1) == "=" else 1
            option.style, option.value = "optional", reader.word(stop="]").pieces
            if reader.peek() != "]":
                reader.report(FaultKind.SYNTAX, "`[` is never closed", reader.column)
            reader.position += 1
        elif reader.peek() in {"<", "("}:
            option.style, option.value, option.joined = "required", reader.word().pieces, True
        else:
            reader.skip_blanks()
            if reader.peek() and not re.match(r"%[a-z]", reader.rest) and reader.peek() != "|":
                option.style, option.value = "required", reader.word().pieces
                option.separate = True

    def expectation(self, number: int, line: str, position: int) -> None:
        keyword, _, rest = line[position:].rstrip().partition(" ")
        if keyword not in {"exit", "prints", "contains", "after"}:
            hint = suggestion(keyword, ("exit", "prints", "contains", "after"))
            self.fault(number, position + 1, f"`{keyword}` is no expectation{hint}")
        elif keyword == "exit" and not rest.strip().isdigit():
            self.fault(number, position + 1, "exit needs a number: exit 1")
        else:
            self.expectations.setdefault(keyword, []).append(rest)

    def finish_example(self) -> None:
        """Turn the example that has just ended into an `Example`."""
        if self.example is None:
            return
        number, words = self.example
        expectations, self.expectations, self.example = self.expectations, {}, None
        texts: list[str] = []
        for word in words:
            if not all(isinstance(piece, Text) for piece in word.pieces):
                message = "an example is finished text: no nonterminal, no group"
                self.source.report(number, word.column, FaultKind.EXAMPLE, message)
                return
            texts.append("".join(piece.text for piece in word.pieces if isinstance(piece, Text)))
        if not texts:
            self.fault(number, 1, "an example needs a command")
            return
        try:
            arguments = tuple(Argument.parse(text) for text in texts[1:])
        except InputError as error:
            self.source.report(number, 1, FaultKind.EXAMPLE, error.message)
            return
        self.source.examples.append(
            Example(
                command=texts[0],
                arguments=arguments,
                line=number,
                exit_code=int(expectations.get("exit", ["0"])[-1]),
                prints=tuple(expectations.get("prints", ())),
                contains=tuple(expectations.get("contains", ())),
                after=expectations.get("after", [None])[-1],
            )
        )


@dataclass(slots=True)
class _Scope:
    """Names of one file resolved into productions, its faults noted on the way."""

    source: _Source
    prefix: str
    version: str
    shared: Mapping[str, Nonterminal]
    productions: dict[Nonterminal, list[Production]] = field(default_factory=dict)
    slots: set[Nonterminal] = field(default_factory=set)
    specs: list[OptionSpec] = field(default_factory=list)
    lines: dict[Nonterminal, tuple[int, int]] = field(default_factory=dict)

    def own(self, name: str) -> Nonterminal:
        """The nonterminal of a name this file defines."""
        return Nonterminal(f"{self.prefix}:{name}" if self.prefix else name)

    def compile(self) -> None:
        """Resolve everything the file defines."""
        for definition in self.source.definitions.values():
            head = self.own(definition.name)
            self.lines[head] = (definition.line, definition.column)
            if not definition.lines:
                message = f"<{definition.name}> has no alternative"
                self.source.report(definition.line, 1, FaultKind.SYNTAX, message)
            self.add(head, definition.lines)
        for block in self.source.blocks.values():
            _BlockCompiler(self, block).compile()

    def add(self, head: Nonterminal, lines: Iterable[_Line]) -> None:
        """Productions of `head`, one for each alternative whose guard holds."""
        for line in lines:
            alternative = line.alternative
            guard = alternative.attributes.guard
            if guard is None or guard.holds(self.version):
                body = list(self.words(alternative.words, line.number, head))
                self.produce(
                    head, body, alternative.attributes.weight, (line.number, alternative.column)
                )

    def produce(
        self,
        head: Nonterminal,
        body: Sequence[Sequence[Symbol]],
        weight: float = 1.0,
        place: tuple[int, int] | None = None,
        *,
        stops: bool = False,
    ) -> None:
        """Add one production; an equal one before it is a fault at `place`."""
        production = Production(head, tuple(map(tuple, body)), weight, stops)
        existing = self.productions.setdefault(head, [])
        if any(other.body == production.body for other in existing):
            if place is not None:
                message = f"{production} is there twice"
                self.source.report(*place, FaultKind.DUPLICATE, message)
            return
        existing.append(production)

    def words(
        self, words: Iterable[Word], line: int, head: Nonterminal
    ) -> Iterator[tuple[Symbol, ...]]:
        """The arguments of a body; `()` is none."""
        for word in words:
            alone = len(word.pieces) == 1
            if alone and isinstance(word.pieces[0], Group) and _is_nothing(word.pieces[0]):
                continue
            yield self.pieces(word.pieces, line, head, alone=alone)

    def pieces(
        self, pieces: Sequence[Piece], line: int, head: Nonterminal, *, alone: bool = False
    ) -> tuple[Symbol, ...]:
        """The symbols of one argument. `alone` repetitions make arguments, others make text."""
        symbols: list[Symbol] = []
        for piece in pieces:
            if isinstance(piece, Text):
                symbols.append(Terminal(piece.text))
                continue
            if isinstance(piece, Reference):
                symbol = self.resolve(piece, line)
            else:
                count = sum(name.name.startswith(f"{head.name}.") for name in self.productions)
                symbol = Nonterminal(f"{head.name}.{count + 1}")
                self.productions[symbol] = []
                self.lines[symbol] = (line, piece.column)
                self.add(symbol, [_Line(line, one) for one in piece.alternatives])
            symbols.append(self.repeated(symbol, piece.repeat, alone=alone))
        return tuple(symbols)

    def resolve(self, reference: Reference, line: int) -> Nonterminal:
        """The nonterminal a reference means; an unknown one is noted as a fault."""
        name = reference.name
        if name[0].isupper():
            if name not in SYSTEM_TOKENS:
                hint = suggestion(name, SYSTEM_TOKENS, "<{}>")
                self.undefined(line, reference, f"is no system token{hint}")
            return Nonterminal(f"'{name}" if reference.quoted else name)
        base, dot, part = name.partition(".")
        if name in self.source.definitions or name in self.source.blocks:
            return self.own(name)
        if dot and base in self.source.blocks and part in _BLOCK_PARTS:
            return self.own(name)
        if name in self.shared:
            return self.shared[name]
        known = {*self.source.definitions, *self.source.blocks, *self.shared}
        known |= {f"{block}.{part}" for block in self.source.blocks for part in _BLOCK_PARTS}
        hint = suggestion(name, known, "<{}>")
        if not hint and name[0].islower():
            hint = suggestion(name.capitalize(), SYSTEM_TOKENS, "<{}>")
        self.undefined(line, reference, f"is not defined{hint}")
        return self.own(name)

    def undefined(self, line: int, reference: Reference, message: str) -> None:
        text = f"<{reference.name}> {message}"
        self.source.report(line, reference.column, FaultKind.UNDEFINED, text)

    def repeated(self, symbol: Nonterminal, sign: str, *, alone: bool) -> Nonterminal:
        """`X*`, `X+` or `X?` as a nonterminal with productions of its own."""
        if not sign:
            return symbol
        suffix = sign if alone else f"~{sign}"
        repeated = Nonterminal(symbol.name + suffix)
        if repeated in self.productions:
            return repeated
        self.productions[repeated] = []
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


def _is_nothing(group: Group) -> bool:
    """Whether the group is `()`."""
    return (
        not group.repeat and len(group.alternatives) == 1 and not group.alternatives[0].words
    )


class _BlockCompiler:
    """Writes out the forms of an option block (the table in docs/reference/grammar-format.md).

    Weights make every line as likely as the next, and the forms of a line as likely as each other.
    """

    def __init__(self, scope: _Scope, block: _Block) -> None:
        self.scope = scope
        self.block = block
        self.head = scope.own(block.name)
        self.part = {name: scope.own(f"{block.name}.{name}") for name in _BLOCK_PARTS}
        self.total = dict.fromkeys(_BLOCK_PARTS, 0.0)

    def compile(self) -> None:
        scope, block = self.scope, self.block
        scope.lines[self.head] = (block.line, block.column)
        scope.slots.add(self.head)
        scope.productions.setdefault(self.head, [])
        self.seen: dict[str, int] = {}
        for option in block.options:
            guard = option.attributes.guard
            if guard is None or guard.holds(scope.version):
                self.option(option)
        scope.add(self.head, block.others)
        self.assemble()

    def option(self, option: _OptionLine) -> None:
        """Spread one line's weight over its forms."""
        place = (option.number, 1)
        spec = OptionSpec(
            shorts=tuple(option.shorts),
            longs=tuple(option.longs),
            words=tuple(option.words),
            value=option.style,
            clusters=self.block.clusters and "alone" not in option.attributes.flags,
            joined=option.joined,
            separate=option.separate,
        )
        self.scope.specs.append(spec)
        for name in spec.names:
            if name in self.seen:
                message = f"{name} is there twice, first on line {self.seen[name]}"
                self.scope.source.report(*place, FaultKind.DUPLICATE, message)
            self.seen[name] = option.number
        value = self.scope.pieces(option.value, option.number, self.head)
        forms: list[tuple[str, tuple[Symbol, ...]]] = []
        for letter in option.shorts:
            where = "valued" if spec.value != "none" else "flag"
            dash = "" if spec.clusters else "-"
            where = where if spec.clusters else "alone"
            for text, ending in self.endings(spec, value, " ", ""):
                forms.append((where, _symbols(f"{dash}{letter}{text}", ending)))
        for name in option.longs:
            for text, ending in self.endings(spec, value, " ", "="):
                forms.append(("long", _symbols(f"--{name}{text}", ending)))
        for word in option.words:
            for text, ending in self.endings(spec, value, " ", "="):
                forms.append(("alone", _symbols(f"-{word}{text}", ending)))
        weight = option.attributes.weight / len(forms)
        for where, symbols in forms:
            head = self.head if where == "alone" else self.part[where]
            self.scope.produce(head, [symbols], weight, place)
            if where != "alone":
                self.total[where] += weight

    @staticmethod
    def endings(
        spec: OptionSpec, value: tuple[Symbol, ...], blank: str, sign: str
    ) -> list[tuple[str, tuple[Symbol, ...]]]:
        """What can follow a name: nothing, a blank and the value, or the value attached."""
        if spec.value == "none":
            return [("", ())]
        if spec.value == "optional":
            return [("", ()), (sign, value)]
        found = [] if spec.joined else [(blank, value)]
        return found if spec.separate else [*found, (sign, value)]

    def assemble(self) -> None:
        """The block's own productions, from its parts."""
        produce, part, total = self.scope.produce, self.part, self.total
        dash, mark = Terminal("-"), Terminal("<ns>")
        if total["flag"]:
            produce(self.head, [(dash, part["flag"])], total["flag"])
        if total["valued"]:
            produce(self.head, [(dash, part["valued"])], total["valued"])
        if total["long"]:
            produce(self.head, [(part["long"],)], total["long"])
        if not total["flag"]:
            return
        flag, rest = part["flag"], part["rest"]
        produce(rest, [(mark, flag, mark), (rest,)], 1.0)
        produce(rest, [(mark, flag)], 2.0)
        if total["valued"]:
            produce(rest, [(mark, part["valued"])], 1.0)
        produce(part["cluster"], [(dash, flag, mark), (rest,)])
        everything = sum(one.weight for one in self.scope.productions[self.head])
        produce(self.head, [(part["cluster"],)], CLUSTER_SHARE * everything)


def _symbols(text: str, ending: tuple[Symbol, ...]) -> tuple[Symbol, ...]:
    """Literal text followed by symbols, neighbouring texts made one."""
    if ending and isinstance(ending[0], Terminal):
        return (Terminal(text + ending[0].text), *ending[1:])
    return (Terminal(text), *ending) if text else ending


@cache
def _shared() -> tuple[Mapping[str, Nonterminal], Mapping[Nonterminal, tuple[Production, ...]]]:
    """The shared definitions, read once; FaultyGrammarError where their files have faults."""
    sources = [
        _LineParser(f"shared/{path.name}", path.read_text()).source
        for path in sorted(SHARED.glob("*.grammar"))
    ]
    names = {name: Nonterminal(name) for source in sources for name in source.definitions}
    productions: dict[Nonterminal, list[Production]] = {}
    for source in sources:
        scope = _Scope(source, "", "0", names, productions)
        scope.compile()
    faults = [fault for source in sources for fault in source.faults]
    if faults:
        raise FaultyGrammarError(faults)
    return names, {head: tuple(bodies) for head, bodies in productions.items()}


def shared_productions() -> Mapping[Nonterminal, tuple[Production, ...]]:
    """The productions of all shared definitions."""
    return _shared()[1]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A grammar file as read: the grammar, its faults so far, where each name is defined."""

    grammar: Grammar
    faults: tuple[Fault, ...]
    lines: Mapping[Nonterminal, tuple[int, int]]


def read_grammar(text: str, path: str, version: str | None = None) -> Loaded:
    """The grammar in `text` with the faults that reading it showed, never an exception.

    `path` is what faults call the file; its stem must be the command's name. `version` is that of
    the package on the target system, which guards compare with (default: the manual line's).
    """
    source = _LineParser(path, text).source
    header = _header(source)
    names, shared = _shared()
    prefix = Path(path).stem
    scope = _Scope(source, prefix, version or header.version, names)
    start, pipe = Nonterminal(prefix), Nonterminal(f"{prefix}|")
    scope.compile()
    scope.add(start, source.starts)
    scope.add(pipe, source.pipes)
    if not source.starts:
        source.report(1, 1, FaultKind.HEADER, "a grammar needs a start line: start ls <option>*")
    productions = {head: tuple(bodies) for head, bodies in scope.productions.items()}
    grammar = Grammar(
        header=header,
        start=start,
        pipe=pipe if source.pipes else None,
        productions=_reachable({**shared, **productions}, (start, pipe), productions),
        options=tuple(scope.specs),
        option_slots=frozenset(scope.slots),
        omissions=tuple(source.omissions),
        examples=tuple(source.examples),
        source=path,
    )
    return Loaded(grammar, tuple(source.faults), scope.lines)


def _header(source: _Source) -> Header:
    """The header, with a fault for each line it lacks."""

    def value(keyword: str, example: str) -> str:
        if keyword not in source.header:
            message = f"the header lacks `{keyword}`, for example: {keyword} {example}"
            source.report(1, 1, FaultKind.HEADER, message)
            return ""
        return source.header[keyword][0]

    def fault(keyword: str, message: str) -> None:
        source.report(source.header[keyword][1], 1, FaultKind.HEADER, message)

    command = value("command", "ls")
    manual = value("manual", "ls(1), GNU coreutils 9.1")
    package = value("package", "coreutils")
    answer, _, reason = value("volatile", "no").partition(":")
    permutes = source.header.get("permutes", ("yes", 0))[0]
    stem = Path(source.path).stem
    if command and command != stem:
        fault("command", f"the command is {command} but the file is called {stem}.grammar")
    version = manual.split()[-1] if manual else "0"
    if manual and not version[0].isdigit():
        fault("manual", "the manual line ends with a version: ls(1), GNU coreutils 9.1")
    if answer.strip() not in {"", "yes", "no"} or (answer.strip() == "yes" and not reason.strip()):
        fault("volatile", "volatile is `no` or `yes: REASON`")
    if permutes not in {"yes", "no"}:
        fault("permutes", "permutes is `yes` or `no`")
    return Header(
        command=stem,
        manual=manual,
        version=version,
        package=package,
        volatile=answer.strip() == "yes",
        volatile_reason=reason.strip(),
        permutes=permutes != "no",
    )


def _reachable(
    productions: Mapping[Nonterminal, tuple[Production, ...]],
    starts: Iterable[Nonterminal],
    own: Mapping[Nonterminal, tuple[Production, ...]],
) -> Mapping[Nonterminal, tuple[Production, ...]]:
    """The file's own productions and those shared ones that it uses."""
    kept: dict[Nonterminal, tuple[Production, ...]] = {}
    pending = [*starts, *own]
    while pending:
        head = pending.pop()
        if head not in kept and head in productions:
            kept[head] = productions[head]
            for production in productions[head]:
                pending.extend(production.nonterminals)
    order = [head for head in productions if head in kept]
    return {head: kept[head] for head in order}
