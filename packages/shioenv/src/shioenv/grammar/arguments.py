"""Grouping of a command's words into arguments, by the options in its grammar."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, cached_property
from typing import TypeAlias

from shioenv.domain.inputs import Argument
from shioenv.grammar.kinds import COMMAND
from shioenv.grammar.notation import NO_SPACE
from shioenv.grammar.spelling import received_form
from shioenv.grammar.symbols import (
    Grammar,
    Nonterminal,
    OptionSpec,
    Symbol,
    TerminalText,
    leading_to,
    show_argument,
)

_PLAIN = re.compile(r"[A-Za-z0-9%/@,.:=_+^]*")
"""Letters, digits and signs without a special meaning to Bash inside a word."""
_HIDDEN = str.maketrans(" \t\n", "\x01\x02\x03")
_WRITTEN_OPTION = re.compile(r"-([A-Za-z])(?=\Z|[ <])|<ns>([A-Za-z])|--([a-z][a-z0-9-]*)")
LONGEST_UNKNOWN = 3
"""Maximum number of letters in a bundle with an unknown letter (our choice).

Longer bundles are mostly words of another program (`-print`, `-maxdepth`)."""

_ANY_WORD = r"[^ ]+"
_ANY_WORDS = r"[^ ]+(?: [^ ]+)*?"
_LONGEST_PATTERN = 20_000
"""Maximum length of the regular expression of a nonterminal (our choice)."""
_DEEPEST_PATTERN = 50
"""Maximum nesting of nonterminals in a regular expression (our choice)."""


_Template: TypeAlias = tuple[str, str]
"""Two patterns of an argument of several words: with the grammar's values, and with any values."""


def ends_command(words: Sequence[str]) -> bool:
    """Whether the last of these words ends a command that `find` runs."""
    last = received_form(words[-1]) if words else ""
    return last == ";" or (last == "+" and len(words) > 1 and words[-2] == "{}")


@cache
def runs_others(grammar: Grammar) -> bool:
    """Whether a command has options that take a nested command (`find -exec`)."""
    return COMMAND in map(grammar.kinds.get, grammar.productions)


def on_files(grammar: Grammar) -> bool:
    """Whether a command runs other commands on files. `env`, which takes assignments, does not."""
    return runs_others(grammar) and "assignment" not in grammar.header.traits.roles


class ArgumentSplitter:
    """Finds the arguments in the words of one command.

    An option is one argument with its value (`-n 5`, `-n5`, `--lines=5`, `--lines 5`). Letters
    bundled after one dash are arguments with no-space marks. After `--` every word is an operand.
    If a program does not accept options after operands (`permutes`), every word after the first
    operand is an operand. Values are not restricted to those of the grammar. Long options may be
    abbreviated. `--` does not end the options of programs whose options have several letters after
    one dash (`find`).
    """

    def __init__(self, grammar: Grammar) -> None:
        self.permutes = grammar.header.permutes
        self.shorts: dict[str, OptionSpec] = {}
        self.longs: dict[str, OptionSpec] = {}
        for spec in (*grammar.options, *_options_in_productions(grammar)):
            for letter in spec.shorts:
                self.shorts.setdefault(letter, spec)
            for name in spec.longs:
                self.longs.setdefault(name, spec)
        self.words = {word: spec for spec in grammar.options for word in spec.words}
        self.bundles = any(spec.clusters and spec.shorts for spec in grammar.options)
        self.literals = frozenset(_literals(grammar))
        self.templates: dict[str, list[_Template]] = {}
        for first, template in _templates(grammar):
            self.templates.setdefault(first, []).append(template)
        self._first_words = tuple(self.templates)
        self._compiled = cache(re.compile)  # compiled on first use: most are never needed
        names = (*self.words, *(first[1:] for first in self.templates if first[0] == "-"))
        self.runs = frozenset(
            name
            for name, symbols in grammar.option_values
            for symbol in (symbols or ())[:1]
            if isinstance(symbol, Nonterminal) and grammar.kinds.get(symbol) == COMMAND
        )
        """The options whose value is a command, up to a `;` or a `+`."""
        self.dashes_end_options = not any(re.match(r"\w\w", name) for name in names)

    def arguments(self, words: Sequence[str]) -> tuple[Argument, ...]:
        """Split the words after the command into arguments."""
        arguments: list[Argument] = []
        index, options_end, endless = 0, False, False
        while index < len(words):
            word, used = words[index], 1
            dashed = word.startswith("-") and word != "-"
            n = 0
            if word not in self.runs or not endless:  # if one has no end, later ones have none
                n = self.run(words, index) if word in self.runs else 0
                endless = endless or (word in self.runs and not n)
                if not n and not (options_end and word.startswith("-")):
                    n = self.templated(words, index)
            if n:
                arguments.append(Argument(" ".join(words[index : index + n])))
                used = n
            elif dashed and word != "--" and not options_end:
                following = words[index + 1] if index + 1 < len(words) else None
                option, used = self.option(word, following)
                arguments += option
            else:
                arguments.append(Argument(word))
                ends = self.dashes_end_options if dashed else not self.permutes
                options_end = options_end or ends
            index += used
        return tuple(arguments)

    @staticmethod
    def run(words: Sequence[str], index: int) -> int:
        """Count the words of the option at `index` and its nested command; 0 if that has no end."""
        for end in range(index + 2, len(words)):
            if ends_command(words[end - 1 : end + 1]):
                return end + 1 - index
        return 0

    def templated(self, words: Sequence[str], index: int) -> int:
        """Count the words of the several-word argument at `index`; 0 if there is none."""
        if not words[index].startswith(self._first_words):
            return 0
        templates = [
            template
            for first, of_first in self.templates.items()
            if words[index].startswith(first)
            for template in of_first
        ]
        line = " ".join(word.translate(_HIDDEN) for word in words[index:]) if templates else ""
        for patterns in zip(*templates, strict=True):
            matches = (self._compiled(pattern).match(line) for pattern in patterns)
            ends = [match.end() for match in matches if match]
            if ends:
                return line[: max(ends)].count(" ") + 1
        return 0

    def option(self, word: str, following: str | None) -> tuple[list[Argument], int]:
        """Return the arguments of a word with a dash, and the number of words used: 1 or 2."""
        if word.startswith("--"):
            name, sign, _ = word[2:].partition("=")
            spec = None if sign else self.long(name)
            takes_next = spec is not None and spec.value == "required" and not spec.joined
        elif word[1:] in self.words:
            takes_next = self.words[word[1:]].value == "required"
        elif word in self.literals:
            takes_next = False
        else:
            return self.bundle(word, following)
        if takes_next and following is not None:
            return [Argument(f"{word} {following}")], 2
        return [Argument(word)], 1

    def long(self, name: str) -> OptionSpec | None:
        """Return the long option of this name or unambiguous abbreviation, or None."""
        if name in self.longs:
            return self.longs[name]
        matches = {id(spec): spec for long, spec in self.longs.items() if long.startswith(name)}
        return next(iter(matches.values())) if name and len(matches) == 1 else None

    def bundle(self, word: str, following: str | None) -> tuple[list[Argument], int]:
        """Return the arguments of letters after one dash, and the number of words used.

        In a bundle of at most `LONGEST_UNKNOWN` letters, an unknown letter counts as an option
        without a value, as in getopt(3). So does a digit or a sign without a meaning to Bash, if it
        follows a known letter. A longer bundle with an unknown letter is one argument.
        """
        whole = [Argument(word)], 1
        members: list[str] = []
        used = 1
        letters = word[1:]
        of_letters = letters.isalpha() or (letters[:1] in self.shorts and _PLAIN.fullmatch(letters))
        may_be_bundle = letters.isascii() and of_letters and len(letters) <= LONGEST_UNKNOWN
        for place, letter in enumerate(letters):
            spec = self.shorts.get(letter)
            rest = letters[place + 1 :]
            if spec is None and not (self.bundles and may_be_bundle):
                return whole
            if spec is None or spec.value == "none":
                if rest and not self.bundles:
                    return whole
                members.append(letter)
                continue
            if rest and spec.separate:
                return whole
            text = letter + rest
            takes_next = not rest and spec.value == "required" and not spec.joined
            if takes_next and following is not None:
                text, used = f"{letter} {following}", 2
            members.append(text)
            break
        if len(members) == 1:
            return [Argument(f"-{members[0]}")], used
        last = len(members) - 1
        return [
            Argument(f"-{text}" if not index else text, bool(index), index < last)
            for index, text in enumerate(members)
        ], used

    def unknown(self, arguments: Iterable[Argument]) -> list[str]:
        """Return the options that the program lacks, as written.

        It is unknown whether a word after such an option is its value.
        """
        return [argument.text for argument in arguments if not self._knows(argument)]

    def _knows(self, argument: Argument) -> bool:
        word = argument.text.partition(" ")[0]
        if argument.joins_left:
            return word[0] in self.shorts
        if not word.startswith("-") or word in {"-", "--"} or self.templated([word], 0):
            return True
        if word.startswith("--"):
            return self.long(word[2:].partition("=")[0]) is not None
        return word[1:] in self.words or word in self.literals or word[1] in self.shorts


def _written_arguments(grammar: Grammar) -> Iterator[tuple[Symbol, ...]]:
    """Yield the productions' arguments that begin with literal text, except parts of bundles."""
    for head, productions in grammar.productions.items():
        if not head.is_system_token and not head.name.endswith((".valued", ".flag")):
            for production in productions:
                for argument in production.body:
                    if argument and isinstance(argument[0], TerminalText):
                        yield argument


def _literals(grammar: Grammar) -> Iterator[str]:
    """Yield literal arguments of the grammar with one dash and several characters after it."""
    for argument in _written_arguments(grammar):
        text = str(argument[0])
        if len(argument) == 1 and len(text) > 2 and text[0] == "-" and NO_SPACE not in text:
            yield text


def _options_in_productions(grammar: Grammar) -> Iterator[OptionSpec]:
    """Yield options written outside option blocks: `-E`, `-u<ns>`, `{-e <x>}`."""
    values: dict[str, set[str]] = {}
    for argument in _written_arguments(grammar):
        text = str(argument[0])
        match = _WRITTEN_OPTION.match(text)
        if match is None:
            continue
        name, rest = match[1] or match[2] or f"--{match[3]}", text[match.end() :]
        if rest in {"", NO_SPACE} and len(argument) == 1:
            values.setdefault(name, set()).add("nothing")
        elif rest.startswith("="):
            values.setdefault(name, set()).add("attached")
        elif rest.startswith(" ") or (not rest and not name.startswith("--")):
            values.setdefault(name, set()).add("word")
    for name, seen in values.items():
        if "word" in seen or "nothing" not in seen:
            value = "required"
        else:
            value = "optional" if "attached" in seen else "none"
        if name.startswith("--"):
            yield OptionSpec(longs=(name[2:],), value=value)
        else:
            yield OptionSpec(shorts=(name,), value=value)


def _templates(grammar: Grammar) -> Iterator[tuple[str, _Template]]:
    """Yield the several-word arguments of productions, each with the start of its first word."""
    patterns = _Patterns(grammar)
    for argument in dict.fromkeys(_written_arguments(grammar)):
        first = re.match(r"[^ '\"\\$`<=]+", str(argument[0]))
        if first is None or NO_SPACE in show_argument(argument):
            continue
        if patterns.has_blank_written(argument):
            loose = patterns.of(argument, loose=True)
            exact = patterns.of(argument)
            exact = exact if len(exact) <= _LONGEST_PATTERN else loose
            ends = r"(?= |\Z)"
            yield first[0], (exact + ends, loose + ends)


class _Patterns:
    """Regular expressions of arguments.

    System tokens and recursive nonterminals match any word. A nonterminal whose expression would be
    too long or too deeply nested matches any text. Blanks inside quotes are replaced, as
    `templated` replaces the blanks within words.
    """

    def __init__(self, grammar: Grammar) -> None:
        self.productions = grammar.productions
        self.memo: dict[tuple[Nonterminal, bool], str] = {}
        self.depth = 0
        """Number of nonterminals whose expressions are under construction."""

    def of(self, argument: Iterable[Symbol], *, loose: bool = False, quoted: bool = False) -> str:
        """Return the pattern of one argument; with `loose`, nonterminals match any value."""
        parts = []
        for piece, inside in _pieces(argument, quoted):
            if isinstance(piece, str):
                parts.append(re.escape(piece))
            elif loose:
                parts.append(self.any(piece, inside))
            else:
                parts.append(self.nonterminal(piece, inside))
        return "".join(parts)

    def nonterminal(self, symbol: Nonterminal, quoted: bool) -> str:
        """Return the pattern of the texts that a nonterminal expands to."""
        key = (symbol, quoted)
        if key not in self.memo:
            if self.depth == _DEEPEST_PATTERN:
                return self.any(symbol, quoted)
            self.memo[key] = _ANY_WORD
            if not symbol.is_system_token:
                self.depth += 1
                self.memo[key] = self.choice(symbol, quoted)
                self.depth -= 1
        return self.memo[key]

    def choice(self, symbol: Nonterminal, quoted: bool) -> str:
        """Return the pattern of a nonterminal's productions."""
        bodies: dict[str, None] = {}
        length = 0
        for production in self.productions.get(symbol, ()):
            body = "".join(self.of(argument, quoted=quoted) for argument in production.body)
            length += len(body)
            bodies[body] = None
            if length > _LONGEST_PATTERN:
                return self.any(symbol, quoted)
        return "(?:" + "|".join(sorted(bodies, key=len, reverse=True)) + ")"

    def any(self, symbol: Nonterminal, quoted: bool) -> str:
        """Return the pattern of any text in place of a nonterminal."""
        return _ANY_WORDS if not quoted and symbol in self.blank else _ANY_WORD

    def has_blank_written(self, argument: Iterable[Symbol]) -> bool:
        """Whether the literal text of an argument has a blank outside quotes."""
        return any(isinstance(piece, str) and " " in piece for piece, _ in _pieces(argument))

    @cached_property
    def blank(self) -> frozenset[Nonterminal]:
        """The nonterminals whose text can contain a blank outside quotes."""
        own = {
            head: bodies for head, bodies in self.productions.items() if not head.is_system_token
        }
        written = [
            head
            for head, bodies in own.items()
            if any(self.has_blank_written(each) for made in bodies for each in made.body)
        ]
        return leading_to(
            written,
            own,
            lambda production: (
                piece
                for argument in production.body
                for piece, inside in _pieces(argument)
                if not inside and isinstance(piece, Nonterminal)
            ),
        )


def _pieces(
    argument: Iterable[Symbol], quoted: bool = False
) -> Iterator[tuple[str | Nonterminal, bool]]:
    """Yield texts (with quoted blanks replaced) and nonterminals, and whether a quote is open."""
    quote = '"' if quoted else ""
    for symbol in argument:
        if not isinstance(symbol, TerminalText):
            yield symbol, bool(quote)
            continue
        text: list[str] = []
        escaped = False
        for character in symbol.text:
            text.append(character.translate(_HIDDEN) if quote or escaped else character)
            if escaped:
                escaped = False
            elif character == "\\" and quote != "'":
                escaped = True
            elif character == quote and not quoted:
                quote = ""
            elif character in "'\"" and not quote:
                quote = character
        yield "".join(text), bool(quote)
