"""Parsing of any Bash input into commands, operators, redirections and arguments.

Bash's parser finds the commands, and the grammars find their arguments. A command that is not
simple (a loop, a subshell) is kept whole as a command token. An input with a here-document becomes
one command with its words, and so does an input that Bash refuses. No exception is raised: bash's
error message is the input's behavior.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache

from shioenv.bash.program import Redirect, Redirected, Simple, Source
from shioenv.bash.read import read
from shioenv.bash.scan import Refused
from shioenv.bash.walk import Piece, commands, pieces, redirects_of
from shioenv.bash.words import is_assignment, n_assignments, split_words
from shioenv.domain.inputs import REDIRECTIONS, Argument, Input, Role, Token
from shioenv.grammar.arguments import ArgumentSplitter
from shioenv.grammar.symbols import Body, Grammar, Nonterminal, TerminalText

NESTED_DEPTH = 2
"""Maximum depth to which nested commands are split into arguments."""


class InputParser:
    """Parses inputs with one set of grammars; reuse it for many inputs."""

    def __init__(self, grammars: Iterable[Grammar]) -> None:
        self._grammars: dict[str, list[Grammar]] = {}
        for grammar in grammars:
            for token in grammar.command_tokens:
                self._grammars.setdefault(token, []).append(grammar)
        self.splitter = cache(ArgumentSplitter)
        """Return the splitter of a grammar, cached."""

    def parse(self, text: str) -> Input:
        """Parse a text into an input whose text has the same meaning to bash.

        Blanks between words become one blank. Newlines between commands become `;`. Redirections
        move after the arguments of their command. Comments are dropped.
        """
        return self.take_apart(text)[0]

    def take_apart(self, text: str) -> tuple[Input, bool]:
        """Return the input as from `parse`, and whether it was parsed by Bash's grammar.

        The latter is False if Bash refuses the text, or if it has a here-document or no command.
        """
        if "\0" not in text:
            try:
                source = read(text)
            except Refused:
                pass
            else:
                tokens = [] if _has_document(source) else self._tokens(source)
                if tokens:
                    return _read_back(tokens), True
        words = split_words(text)
        if not words or "\n" in text.strip():
            return Input.from_marked([Argument(text or " ").marked]), False
        return _read_back(self._command(words)), False

    def arguments(
        self, command: str, words: Sequence[str], depth: int = NESTED_DEPTH
    ) -> tuple[Argument, ...]:
        """Return the arguments in the words that follow a command.

        If the command has no grammar, each word is an argument. The arguments of a nested command
        (`xargs`, `env`) are split by its own grammar, up to `depth` levels deep.
        """
        grammar = self.grammar(command, words)
        if grammar is None:
            return tuple(map(Argument, words))
        arguments = self.splitter(grammar).arguments(words)
        place = command_place(grammar, arguments) if depth else None
        if place is None:
            return arguments
        inner = [word for argument in arguments[place + 1 :] for word in split_words(argument.text)]
        own = arguments[: place + 1]
        return (*own, *self.arguments(arguments[place].text, inner, depth - 1))

    def grammar(self, command: str, words: Sequence[str]) -> Grammar | None:
        """Return the grammar of a command with these words, or None.

        Grammars of one command (`ip`) are distinguished by a word that every input of a grammar
        contains (`ip link …`). As in the program, the word may be abbreviated (`ip l`).
        """
        name = command.rpartition("/")[2] if command.startswith("/") else command
        grammars = self._grammars.get(name, ())
        if len(grammars) > 1:
            return min(grammars, key=lambda grammar: self._place_of_fixed(grammar, words))
        return grammars[0] if grammars else None

    def _place_of_fixed(self, grammar: Grammar, words: Sequence[str]) -> tuple[int, bool]:
        """Return the index of the word that identifies a grammar, and whether it is abbreviated."""
        known = fixed_words(grammar)
        for place, argument in enumerate(self.splitter(grammar).arguments(words)):
            text = argument.text
            if text in known:
                return place, False
            if text[:1].isalpha() and any(
                word.startswith(text) or text.startswith(word) for word in known
            ):
                return place, True
        return len(words), True

    def _command(self, words: list[str]) -> Iterator[Token]:
        """Yield the tokens of a simple command. Assignments are part of the command token."""
        count = n_assignments(words)
        end = count + (2 if " ".join(words[count : count + 2]) in self._grammars else 1)
        yield Token(Argument(" ".join(words[:end])), Role.COMMAND)
        for argument in self.arguments(" ".join(words[count:end]), words[end:]):
            yield Token(argument, Role.ARGUMENT)

    def _piece(self, text: str, piece: Piece) -> list[Token]:
        """Return the tokens of one command without its redirections.

        A command whose arguments look like operators (`[[ a < b ]]`) is one command token. A
        command after a `!` is one command token with its redirections.
        """
        command = piece.command
        if command is None or (piece.prefixed and text[piece.start] == "!"):
            return [Token(Argument(text[piece.start : piece.end]), Role.COMMAND)]
        if isinstance(command, Simple):
            words = split_words(_without_redirects(text, piece.start, command))
            tokens = list(self._command(words)) if words else []
            if _read_back(tokens).tokens == tuple(tokens):
                return tokens
        inner = command.command if isinstance(command, Redirected) else command
        return [Token(Argument(text[piece.start : inner.end]), Role.COMMAND)]

    def _tokens(self, source: Source) -> list[Token]:
        """Return the tokens of a whole program."""
        tokens: list[Token] = []
        for piece in pieces(source.program):
            if isinstance(piece, str):
                tokens.append(Token(Argument(piece), Role.OPERATOR))
                continue
            tokens += self._piece(source.text, piece)
            if piece.command is not None:
                for redirect in redirects_of(piece.command):
                    tokens += _redirect(redirect)
        return tokens


def _read_back(tokens: Iterable[Token]) -> Input:
    """Return the input with the texts of these tokens, which determine their roles."""
    return Input.from_marked([token.argument.marked for token in tokens])


def command_place(grammar: Grammar, arguments: Sequence[Argument]) -> int | None:
    """Return the index of the argument that is a nested command's name, or None.

    The name is the first operand after the `runs` operands that the header declares (`timeout`: 1,
    the time). In `env`, assignments come before the name, and a `-` is an option.
    """
    return None if grammar.header.runs is None else operand_place(arguments, grammar.header.runs)


def operand_place(arguments: Sequence[Argument], before: int) -> int | None:
    """Return the index of the operand that follows `before` others, or None."""
    options_end = False
    for place, argument in enumerate(arguments):
        text = argument.text
        option = argument.joins_left or (text.startswith("-") and not options_end)
        options_end = options_end or text == "--"
        if not option and not is_assignment(text.lstrip("\"'")):
            if not before:
                return place
            before -= 1
    return None


@cache
def fixed_words(grammar: Grammar) -> frozenset[str]:
    """Return words without a dash. Every input has one of them: `addr` for `ip addr`."""
    by_start: list[frozenset[str]] = []
    for start in grammar.starts:
        for production in grammar.productions.get(start, ()):
            words: set[str] = set()
            for argument in production.body[1:]:
                if len(argument) != 1:
                    continue
                bodies: list[Body] = [(argument,)]
                if isinstance(argument[0], Nonterminal):
                    bodies = [made.body for made in grammar.productions.get(argument[0], ())]
                texts = [_literal(body) for body in bodies]
                if texts and all(text[:1].isalpha() for text in texts):
                    words.update(texts)
            by_start.append(frozenset(words))
    return frozenset.intersection(*by_start) if by_start else frozenset()


def _literal(body: Body) -> str:
    """Return the text of a body that is one literal argument; "" for another body."""
    if len(body) == 1 and all(isinstance(symbol, TerminalText) for symbol in body[0]):
        return "".join(map(str, body[0]))
    return ""


def _has_document(source: Source) -> bool:
    return any(
        redirect.operator == "<<"
        for command, _ in commands(source)
        for redirect in redirects_of(command)
    )


def _without_redirects(text: str, start: int, command: Simple) -> str:
    """Return the text of a command with its redirections removed."""
    parts = []
    for redirect in command.redirects:
        parts.append(text[start : redirect.start])
        start = redirect.end
    return " ".join([*parts, text[start : command.end]])


def _redirect(redirect: Redirect) -> Iterator[Token]:
    """Yield a redirection's operator and target; one token for `2>&1` and rare kinds (`3>&-`)."""
    name = redirect.descriptor
    before = "" if name is None else f"{{{name}}}" if isinstance(name, str) else str(name)
    operator = before + redirect.operator
    if operator in REDIRECTIONS:
        yield Token(Argument(operator), Role.OPERATOR)
        yield Token(Argument(redirect.target), Role.TARGET)
    else:
        yield Token(Argument(operator + redirect.target), Role.OPERATOR)
