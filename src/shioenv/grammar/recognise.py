"""Whether a grammar derives finished words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from shioenv.grammar.notation import NO_SPACE
from shioenv.grammar.symbols import Body, Grammar, Nonterminal, Symbol, Terminal


class Recogniser:
    """Answers for one grammar, bound or not; a system token without values takes any word.

    Works top-down on finished words, marks included; grammars have no left recursion (the checker
    refuses it), so it ends.
    """

    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar
        self._bodies = {
            head: tuple(production.body for production in productions)
            for head, productions in grammar.productions.items()
        }
        self._whole = {
            argument
            for head, bodies in self._bodies.items()
            if not head.is_system_token
            for body in bodies
            for argument in body
        }

    def derives(self, words: Sequence[str]) -> bool:
        """Whether some start symbol derives exactly these words, the command first."""
        return any(
            len(words) in _Match(self._bodies, words).arguments(start, 0)
            for start in self.grammar.starts
        )

    def derives_argument(self, word: str) -> bool:
        """Whether some production has an argument that derives this word."""
        match = _Match(self._bodies, (word,))
        return any(match.is_word(argument, 0) for argument in self._whole)


class _Match:
    """One question's memory: where each symbol can end, from each place."""

    def __init__(self, bodies: dict[Nonterminal, tuple[Body, ...]], words: Sequence[str]) -> None:
        self.bodies = bodies
        self.words = words
        self.argument_ends: dict[tuple[Nonterminal, int], frozenset[int]] = {}
        self.text_ends: dict[tuple[Nonterminal, int, int], frozenset[int]] = {}

    def is_open(self, symbol: Nonterminal) -> bool:
        """Whether the symbol is a system token without values, which takes any text."""
        return symbol.is_system_token and symbol not in self.bodies

    @staticmethod
    def open_ends(word: str, offset: int) -> Iterator[int]:
        """Where a value nobody knows can end: not an option, no marks, no bare blank."""
        if word.startswith("-", offset) and not offset:
            return
        quoted = False
        for end in range(offset + 1, len(word) + 1):
            quoted = quoted or word[end - 1] in "'\"\\"
            if word.startswith(NO_SPACE, end - 1) or (word[end - 1] == " " and not quoted):
                return
            yield end

    def arguments(self, symbol: Nonterminal, index: int) -> frozenset[int]:
        """Where whole arguments derived from `symbol` can end, starting at word `index`."""
        key = (symbol, index)
        known = self.argument_ends.get(key)
        if known is not None:
            return known
        found: set[int] = set()
        if self.is_open(symbol) and index < len(self.words):
            word = self.words[index]
            if len(word) in self.open_ends(word, 0):
                found.add(index + 1)
        for body in self.bodies.get(symbol, ()):
            ends = {index}
            for argument in body:
                ends = {after for end in ends for after in self.argument(argument, end)}
                if not ends:
                    break
            found |= ends
        self.argument_ends[key] = frozenset(found)
        return self.argument_ends[key]

    def argument(self, argument: tuple[Symbol, ...], index: int) -> Iterable[int]:
        """Where one argument of a body can end."""
        if len(argument) == 1 and isinstance(argument[0], Nonterminal):
            return self.arguments(argument[0], index)
        return (index + 1,) if self.is_word(argument, index) else ()

    def is_word(self, argument: tuple[Symbol, ...], index: int) -> bool:
        """Whether the symbols make exactly the word at `index`."""
        if index >= len(self.words):
            return False
        return len(self.words[index]) in self.texts(argument, index, 0)

    def texts(self, symbols: tuple[Symbol, ...], index: int, offset: int) -> set[int]:
        """Where the text of these symbols can end within the word at `index`."""
        word = self.words[index]
        ends = {offset}
        for symbol in symbols:
            if isinstance(symbol, Terminal):
                ends = {e + len(symbol.text) for e in ends if word.startswith(symbol.text, e)}
            else:
                ends = {after for end in ends for after in self.text(symbol, index, end)}
            if not ends:
                break
        return ends

    def text(self, symbol: Nonterminal, index: int, offset: int) -> frozenset[int]:
        """Where the text of one nonterminal can end."""
        key = (symbol, index, offset)
        known = self.text_ends.get(key)
        if known is not None:
            return known
        found: set[int] = set()
        if self.is_open(symbol):
            found.update(self.open_ends(self.words[index], offset))
        for body in self.bodies.get(symbol, ()):
            if not body:
                found.add(offset)
            elif len(body) == 1:
                found |= self.texts(body[0], index, offset)
        self.text_ends[key] = frozenset(found)
        return self.text_ends[key]
