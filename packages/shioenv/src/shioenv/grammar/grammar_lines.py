"""A line-by-line parser for grammar files, without name resolution."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from shioenv.domain.inputs import Argument
from shioenv.errors import InputError
from shioenv.files.regular import lines_of
from shioenv.grammar.kinds import CLOSED, KINDS
from shioenv.grammar.notation import (
    Alternative,
    Attributes,
    Fault,
    FaultKind,
    LiteralText,
    NotationReader,
    NotationWord,
    Piece,
    suggestion,
)
from shioenv.grammar.symbols import Avoidance, Example, Omission, OptionSpec
from shioenv.grammar.traits import RoleChange, read_effect

HEADER = (
    "command", "manual", "package", "volatile", "permutes", "runs", "operands", "implied", "makes",
    "changes", "removes", "opens", "ordered", "shows", "help",
)  # fmt: skip
"""The keywords of header lines. Each occurs at most once, except `with`."""
MOST_COMPARED = 100_000
"""Limit on comparisons of names for the hints of one file (our choice). A comparison takes
microseconds."""
LONGEST_HINTED = 100
"""Maximum length of an unknown name that is compared with known ones (our choice)."""
MOST_INHERITED = 10_000
"""Limit on option lines that the blocks of one file inherit (our choice)."""

WITH = "with"
REASONED = ("omit", "undocumented", "refused")
"""The keywords of lines with options and a reason."""

_KEYWORDS = (*HEADER, WITH, "start", "pipe", "options", *REASONED, "avoid", "example")
AVOIDED_WHEN = ("@missing", "@existing", "@after-pipe", "@before-pipe")
"""The conditions of `avoid` lines."""
_DEFINE = re.compile(r"<([A-Za-z][A-Za-z0-9-]*)>\s*(?::\s*([A-Za-z]+)\s*)?=")
_BLOCK = re.compile(r"<([a-z][A-Za-z0-9-]*)>\s*")
_REPEATED_VALUE = re.compile(r"(\[[^\]]*\]|=[^\s,]+| <[^>]*>)(?=,\s*-)")
_COMMA = re.compile(r",\s*(?=-)")
_OPTION = re.compile(r"(--?)([^\s,=\[\]<>(){}|'\"\\%-][^\s,=\[\]<>(){}|'\"\\%]*)")


@dataclass(slots=True)
class PlacedAlternative:
    """An alternative and its line number."""

    number: int
    alternative: Alternative


@dataclass(slots=True)
class Definition:
    """`<name> : kind = …`: the alternatives, the line, and the kind if there is one."""

    name: str
    line: int
    kind: str | None
    lines: list[PlacedAlternative] = field(default_factory=list)


@dataclass(slots=True)
class OptionLine:
    """An option as written, with its value's pieces.

    An optional value (`--classify[=<when>]`) belongs only to the long form, unless the short form
    is written with it too (`-i[<suffix>], --in-place[=<suffix>]`). `optional_short`: whether the
    short form is written with it.
    """

    number: int
    spec: OptionSpec
    optional_short: bool
    value: list[Piece] = field(default_factory=list)
    attributes: Attributes = field(default_factory=Attributes)


@dataclass(slots=True)
class Block:
    """An option block: its options, and its other lines, which are ordinary alternatives."""

    name: str
    line: int
    clusters: bool = True
    options: list[OptionLine] = field(default_factory=list)
    others: list[PlacedAlternative] = field(default_factory=list)


@dataclass(slots=True)
class GrammarSource:
    """The parsed lines of a file, with the faults found in them. Names are not resolved yet."""

    path: str
    header: dict[str, tuple[str, int]] = field(default_factory=dict)
    starts: list[PlacedAlternative] = field(default_factory=list)
    pipes: list[PlacedAlternative] = field(default_factory=list)
    definitions: dict[str, Definition] = field(default_factory=dict)
    blocks: dict[str, Block] = field(default_factory=dict)
    effects: list[RoleChange] = field(default_factory=list)
    reasoned: dict[str, list[Omission]] = field(
        default_factory=lambda: {one: [] for one in REASONED}
    )
    avoided: list[Avoidance] = field(default_factory=list)
    examples: list[Example] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    compared: int = 0
    """Number of known names compared with unknown ones so far."""
    inherited: int = 0
    """Number of option lines inherited from other blocks so far."""

    def report(self, line: int, column: int, kind: FaultKind, message: str) -> None:
        """Record a fault."""
        self.faults.append(Fault(self.path, line, column, message, kind))

    def suggestion(self, word: str, known: Collection[str], show: str = "{}") -> str:
        """Suggest a known name, as `notation.suggestion` does; "" for a word over `LONGEST_HINTED`.

        The result is also "" once `MOST_COMPARED` names have been compared for the file.
        """
        if len(word) > LONGEST_HINTED:
            return ""
        self.compared += len(known)
        return suggestion(word, known, show) if self.compared <= MOST_COMPARED else ""

    def reader(self, line: int, text: str, position: int) -> NotationReader:
        """Return a reader of one line from `position` on. It records faults in this source."""

        def report(kind: FaultKind, message: str, column: int) -> None:
            self.report(line, column, kind, message)

        return NotationReader(text, position, report)


class LineParser:
    """Parses a file line by line."""

    def __init__(self, path: str, text: str) -> None:
        self.source = GrammarSource(path)
        self.open: Definition | Block | list[PlacedAlternative] | str | None = None
        self.expectations: dict[str, list[str]] = {}
        self.example: tuple[int, list[NotationWord]] | None = None
        for number, line in enumerate(lines_of(text), start=1):
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
        """Record a syntax fault."""
        self.source.report(line, column, FaultKind.SYNTAX, message)

    def first(self, number: int, line: str) -> None:
        """Parse a line that starts in the first column."""
        self.open = None
        if match := _DEFINE.match(line):
            self.definition(number, line, match)
            return
        keyword, _, _ = line.partition(" ")
        position = min(len(keyword) + 1, len(line))
        rest = line[position:].strip()
        if keyword in HEADER:
            if keyword in self.source.header:
                self.fault(number, 1, f"{keyword} is given twice")
            comment = re.search(r"\s#\s.*$", line[position:])
            value = rest if comment is None else line[position:][: comment.start()].strip()
            self.source.header[keyword] = (value, number)
        elif keyword == WITH:
            self.effect(number, rest)
        elif keyword in {"start", "pipe"}:
            self.open = self.source.starts if keyword == "start" else self.source.pipes
            self.read_lines(number, line, position, self.open)
        elif keyword == "options":
            self.block(number, line, position)
        elif keyword in REASONED:
            self.reasoned(number, keyword, rest)
        elif keyword == "avoid":
            self.avoided(number, rest)
        elif keyword == "example":
            words, _ = self.source.reader(number, line, position).sequence()
            self.example, self.open = (number, words), "example"
        else:
            known = [*_KEYWORDS, "<name> ="]
            hint = suggestion(keyword, known) or f"; known: {', '.join(known)}"
            self.fault(number, 1, f"unknown keyword `{keyword}`{hint}")

    def definition(self, number: int, line: str, match: re.Match[str]) -> None:
        """Parse `<name> =` or `<name> : kind =` with the alternatives on its line."""
        name = match[1]
        definition = Definition(name, number, match[2])
        if match[2] and match[2] not in {*KINDS, CLOSED}:
            hint = suggestion(match[2], (*KINDS, CLOSED))
            self.fault(number, match.start(2) + 1, f"unknown kind of value `{match[2]}`{hint}")
            definition.kind = None
        if name[0].isupper():
            message = "capitalised names are system tokens and cannot be defined"
            self.fault(number, 2, f"<{name}> cannot be defined: {message}")
        elif name in {"ns", "start", "pipe"}:
            self.fault(number, 2, f"<{name}> is predefined and cannot be defined")
        elif name in self.source.definitions or name in self.source.blocks:
            self.fault(number, 2, f"<{name}> is defined twice")
        else:
            self.source.definitions[name] = definition
        self.open = definition
        self.read_lines(number, line, match.end(), definition.lines)

    def block(self, number: int, line: str, position: int) -> None:
        """Parse `options`, optionally with a name."""
        reader = self.source.reader(number, line, position)
        reader.skip_blanks()
        name = "option"
        if match := _BLOCK.match(line, reader.position):
            name = match[1]
            reader.position = match.end()
        inherited = self.inherited(number, reader)
        words, attributes = reader.sequence()
        if words:
            self.fault(number, words[0].column, "expected a name after `options`: options <mode>")
        self.known_flags(number, attributes, {"no-clusters"})
        block = Block(name, number, clusters="no-clusters" not in attributes.flags)
        block.options.extend(inherited)
        if name in self.source.definitions or name in self.source.blocks:
            self.fault(number, 1, f"<{name}> is defined twice")
        else:
            self.source.blocks[name] = block
        self.open = block

    def inherited(self, number: int, reader: NotationReader) -> list[OptionLine]:
        """Return the option lines inherited by `= <option> without -i, -P`."""
        match = re.match(r"=\s*<([^>]*)>\s*(?:without\s+([^%#]*))?", reader.rest)
        if match is None:
            return []
        column = reader.column
        reader.position += match.end()
        base = self.source.blocks.get(match[1])
        if base is None:
            hint = self.source.suggestion(match[1], self.source.blocks, "<{}>")
            self.fault(number, column, f"no option block <{match[1]}> above this one{hint}")
            return []
        without = {name.strip() for name in (match[2] or "").split(",") if name.strip()}
        self.source.inherited += len(base.options)
        if self.source.inherited > MOST_INHERITED:
            message = f"the blocks of a file inherit at most {MOST_INHERITED:,} option lines"
            self.fault(number, column, message)
            return []
        kept = [option for option in base.options if without.isdisjoint(option.spec.names)]
        known = {name for option in base.options for name in option.spec.names}
        for name in sorted(without - known):
            hint = self.source.suggestion(name, known)
            self.fault(number, column, f"{name} is not in <{match[1]}>{hint}")
        return kept

    def avoided(self, number: int, rest: str) -> None:
        """Parse `avoid PATTERNS: REASON`."""
        patterns, _, reason = rest.partition(": ")
        if not patterns.strip() or not reason.strip():
            self.fault(number, 1, "avoid needs patterns and a reason: avoid -c: it makes no file")
            return
        words = patterns.split()
        when = next((word[1:] for word in words if word in AVOIDED_WHEN), "")
        try:
            present = [re.compile(one) for one in words if one[0] not in "!@"]
            absent = [re.compile(one[1:]) for one in words if one[0] == "!"]
        except re.error as error:
            self.fault(number, 1, f"`{patterns}` has an invalid regular expression: {error}")
            return
        self.source.avoided.append(Avoidance(tuple(present), tuple(absent), when))

    def reasoned(self, number: int, keyword: str, rest: str) -> None:
        """Parse a line of `REASONED`: `omit OPTIONS: REASON`."""
        names, colon, reason = rest.partition(": ")
        options = tuple(name.strip() for name in names.split(",") if name.strip())
        if not colon or not reason.strip() or not options:
            message = f"{keyword} needs options and a reason: {keyword} -i, --ask: it waits"
            self.fault(number, 1, message)
            return
        self.source.reasoned[keyword].append(Omission(options, reason.strip()))

    def effect(self, number: int, rest: str) -> None:
        """Parse `with OPTIONS: EFFECT`, the effect of options on operands."""
        names, _, text = re.sub(r"\s#\s.*$", "", rest).partition(":")
        options = tuple(name.strip() for name in names.split(",") if name.strip())
        effect = read_effect(options, text.strip(), KINDS)
        if isinstance(effect, str) or not options:
            message = effect if isinstance(effect, str) else "with needs options: with -r: no path"
            self.source.report(number, 1, FaultKind.HEADER, message)
            return
        self.source.header.setdefault(WITH, ("", number))
        self.source.effects.append(effect)

    def continued(self, number: int, line: str) -> None:
        """Parse an indented line, which continues the line above."""
        position = len(line) - len(line.lstrip())
        if isinstance(self.open, Definition):
            self.read_lines(number, line, position, self.open.lines)
        elif isinstance(self.open, Block):
            self.option_line(number, line, position, self.open)
        elif isinstance(self.open, list):
            self.input_line(number, line, position, self.open)
        elif self.open == "example":
            self.expectation(number, line, position)
        else:
            self.fault(number, position + 1, "nothing above this indented line can be continued")

    def input_line(
        self, number: int, line: str, position: int, into: list[PlacedAlternative]
    ) -> None:
        """Parse an indented line below `start` or `pipe`: more words of the input."""
        if not into:
            self.read_lines(number, line, position, into)
            return
        reader = self.source.reader(number, line, position)
        words, attributes = reader.sequence()
        if reader.peek():
            message = "an indented line continues one input; write another `start` or `pipe` line"
            self.fault(number, reader.column, message)
        if attributes != Attributes():
            message = "attributes of an input must be on its first line, not on an indented one"
            self.fault(number, 1, message)
        into[-1].alternative.words.extend(words)

    def read_lines(
        self, number: int, line: str, position: int, into: list[PlacedAlternative]
    ) -> None:
        """Parse the alternatives from `position` to the end of the line."""
        for alternative in self.source.reader(number, line, position).alternatives():
            self.known_flags(number, alternative.attributes, {"volatile", "clock", "wrong"})
            into.append(PlacedAlternative(number, alternative))

    def known_flags(self, number: int, attributes: Attributes, known: set[str]) -> None:
        """Record a fault for each attribute that is not valid in its place."""
        for flag in sorted(attributes.flags - known):
            self.fault(number, 1, f"%{flag} is not valid here")

    def option_line(self, number: int, line: str, position: int, block: Block) -> None:
        """Parse one line of an option block: an option, or an ordinary alternative."""
        start = position
        names: list[tuple[str, str]] = []
        shown = False  # whether a short form is written with the optional value too
        while match := _OPTION.match(line, position):
            names.append((match[1], match[2]))
            position = match.end()
            if own := _REPEATED_VALUE.match(line, position):
                shown = shown or (match[1] == "-" and own[1].startswith("["))
                position = own.end()
            comma = _COMMA.match(line, position)
            if not comma:
                break
            position = comma.end()
        if not names:
            self.read_lines(number, line, start, block.others)
            return
        reader = self.source.reader(number, line, position)
        single = [name for dashes, name in names if dashes == "-"]
        spec = OptionSpec(
            shorts=tuple(name for name in single if len(name) == 1),
            longs=tuple(name for dashes, name in names if dashes == "--"),
            words=tuple(name for name in single if len(name) > 1),
        )
        option = OptionLine(number, spec, shown)
        self.option_value(reader, option)
        if spec.words and option.spec.joined:
            message = f"-{spec.words[0]} has several letters: write a blank before its value"
            self.fault(number, position + 1, message)
            option.spec = replace(option.spec, joined=False)
        words, option.attributes = reader.sequence()
        if (
            option.spec.separate and words
        ):  # an option with several values: -fprintf <file> <format>
            for word in words:
                option.value += [LiteralText(" "), *word.pieces]
        elif words or reader.peek():
            self.fault(number, reader.column, "cannot parse this option; write one option per line")
        known = {"alone", "separate", "joined", "repeats", "volatile", "clock"}
        self.known_flags(number, option.attributes, known)
        flags = option.attributes.flags
        option.spec = replace(
            option.spec,
            clusters="alone" not in flags,
            joined=option.spec.joined or "joined" in flags,
            # a long option defined with `=` or with a blank may be written in both ways
            separate="separate" in flags or bool(spec.words),
            repeats="repeats" in flags,
        )
        block.options.append(option)

    def option_value(self, reader: NotationReader, option: OptionLine) -> None:
        """Parse `=<v>`, `[=<v>]`, `[<v>]`, `<v>` or ` <v>` directly after the last name."""
        if reader.peek() == "[":
            option.optional_short |= reader.peek(1) != "="
            reader.position += 2 if reader.peek(1) == "=" else 1
            option.value = reader.word(stop="]").pieces
            option.spec = replace(option.spec, value="optional")
            if reader.peek() != "]":
                reader.report(FaultKind.SYNTAX, "`[` is not closed", reader.column)
            reader.position += 1
            return
        attached, joined = reader.peek() == "=", reader.peek() in {"<", "("}
        if attached:
            reader.position += 1
        elif not joined:
            reader.skip_blanks()
            if reader.peek() in {"", "|"} or re.match(r"%[a-z][a-z-]", reader.rest):
                return
        option.value = reader.word().pieces
        option.spec = replace(
            option.spec, value="required", joined=joined, separate=not (attached or joined)
        )

    def expectation(self, number: int, line: str, position: int) -> None:
        """Parse an indented line under an example."""
        keyword, _, rest = line[position:].rstrip().partition(" ")
        if keyword not in {"exit", "prints", "contains", "after"}:
            hint = suggestion(keyword, ("exit", "prints", "contains", "after"))
            self.fault(number, position + 1, f"unknown expectation `{keyword}`{hint}")
        elif keyword == "exit" and not rest.strip().isdigit():
            self.fault(number, position + 1, "exit needs a number: exit 1")
        else:
            self.expectations.setdefault(keyword, []).append(rest)

    def finish_example(self) -> None:
        """Convert the example that has just ended into an `Example`."""
        if self.example is None:
            return
        number, words = self.example
        expectations, self.expectations, self.example = self.expectations, {}, None
        texts: list[str] = []
        for word in words:
            if not all(isinstance(piece, LiteralText) for piece in word.pieces):
                message = "an example must be plain text, without nonterminals and groups"
                self.source.report(number, word.column, FaultKind.EXAMPLE, message)
                return
            texts.append(
                "".join(piece.text for piece in word.pieces if isinstance(piece, LiteralText))
            )
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
