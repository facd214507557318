"""Any Bash input taken apart into commands, operators, redirections and arguments.

A Bash parser (tree-sitter) finds the commands, the grammars their arguments.
What the parser finds no simple command in (a loop, a subshell, a here-document) stays whole as a
command token; what it cannot read at all becomes one command with its words. Never an exception:
bash's own error is then the input's behavior.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import takewhile

import tree_sitter

from shioenv.domain.argument import Argument
from shioenv.domain.inputs import DUPLICATIONS, REDIRECTIONS, SEPARATORS, Input, Role, Token
from shioenv.grammar.arguments import ArgumentSplitter
from shioenv.grammar.symbols import Body, Grammar, Nonterminal, Terminal
from shioenv.grammar.tree import read_tree, source_of, text_of
from shioenv.grammar.words import split_words

_SIMPLE = frozenset(
    {
        "command",
        "declaration_command",
        "unset_command",
        "test_command",
        "variable_assignment",
        "variable_assignments",
    }
)
_REDIRECTS = frozenset({"file_redirect", "herestring_redirect"})
_DESCRIPTOR = re.compile(rb"\d+|\{\w+\}")
_PARTING = frozenset(b" \t\n\r\f\v;&|()<>")
_BLANKS_AFTER_SIGN = re.compile(r"^([^\s<>]*[<>&|]+)[ \t]+")


NESTED_DEPTH = 2
"""How deep commands that others run are taken apart and described."""


class InputParser:
    """Parses inputs with one set of grammars; reuse it for many inputs."""

    def __init__(self, grammars: Iterable[Grammar]) -> None:
        self._grammars: dict[str, list[Grammar]] = {}
        for grammar in grammars:
            for token in grammar.command_tokens:
                self._grammars.setdefault(token, []).append(grammar)
        self.splitter = cache(ArgumentSplitter)
        """What finds the arguments of one grammar's command."""

    def parse(self, text: str) -> Input:
        """The input; its text means to bash what `text` means.

        Blanks between words become one, newlines between commands `;`, and redirections move behind
        the arguments of their command. Comments are dropped.
        """
        return self.take_apart(text)[0]

    def take_apart(self, text: str) -> tuple[Input, bool]:
        """The input as by `parse`, and whether the Bash parser could read all of it."""
        tokens = None
        if "\0" not in text:
            source = source_of(text)
            with suppress(RecursionError):  # brackets nested by the thousand
                root = read_tree(text)
                if root is not None and not _has_heredoc(root):
                    tokens = self._tokens(source, root)
        if tokens:
            return _read_back(tokens), True
        words = split_words(text)
        if not words or "\n" in text.strip():
            return Input.from_marked([Argument(text or " ").marked]), False
        return _read_back(self._command(words)), False

    def arguments(
        self, command: str, words: Sequence[str], depth: int = NESTED_DEPTH
    ) -> tuple[Argument, ...]:
        """The arguments in the words that follow a command; its words where no grammar knows it.

        Those of a command that it runs (`xargs`, `env`) are taken apart by that one's grammar, so
        many commands deep; deeper each word is one.
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
        """The grammar that knows a command with these words; None where none does.

        Grammars that share a command token are told apart by the word they all have (`ip link …`);
        as the program does, an abbreviation of it will do (`ip l`).
        """
        name = command.rpartition("/")[2] if command.startswith("/") else command
        grammars = self._grammars.get(name, ())
        if len(grammars) > 1:
            return min(grammars, key=lambda grammar: self._place_of_fixed(grammar, words))
        return grammars[0] if grammars else None

    def _place_of_fixed(self, grammar: Grammar, words: Sequence[str]) -> tuple[int, bool]:
        """Which argument is the grammar's fixed word, and whether it is an abbreviation of it."""
        known = fixed(grammar)
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
        """The tokens of one simple command; assignments before it belong to the command token."""
        count = n_assignments(words)
        end = count + (2 if " ".join(words[count : count + 2]) in self._grammars else 1)
        yield Token(Argument(" ".join(words[:end])), Role.COMMAND)
        for argument in self.arguments(" ".join(words[count:end]), words[end:]):
            yield Token(argument, Role.ARGUMENT)

    def _piece(self, source: bytes, node: tree_sitter.Node, piece: _Piece) -> list[Token]:
        """The tokens of one command without its redirections.

        One whose arguments look like operators (`[[ a < b ]]`) is taken as it stands.
        """
        if not piece.whole:
            words = split_words(_without_redirects(source, node, piece))
            tokens = list(self._command(words)) if words else []
            if _read_back(tokens).tokens == tuple(tokens):
                return tokens
        return [Token(Argument(text_of(source, node)), Role.COMMAND)]

    def _tokens(self, source: bytes, root: tree_sitter.Node) -> list[Token]:
        """The tokens of a whole program."""
        tokens: list[Token] = []
        for piece in _flat(root):
            if isinstance(piece, str):
                if tokens and not _is_separator(tokens[-1]):
                    tokens.append(Token(Argument(piece), Role.OPERATOR))
                continue
            if piece.node is not None:
                tokens.extend(self._piece(source, piece.node, piece))
            for redirect in piece.redirects:
                tokens.extend(_redirect(source, redirect))
        while tokens and _is_separator(tokens[-1]) and tokens[-1].argument.text == ";":
            tokens.pop()
        return tokens


def _read_back(tokens: Iterable[Token]) -> Input:
    """The input that these tokens are once they are shown as texts."""
    return Input.from_marked([token.argument.marked for token in tokens])


def command_place(grammar: Grammar, arguments: Sequence[Argument]) -> int | None:
    """Which of a command's arguments is the command that it runs; None where it runs none.

    It is the first operand; before it `env` has assignments, and a `-` that is an option.
    """
    if not grammar.header.runs:
        return None
    options_end = False
    for place, argument in enumerate(arguments):
        text = argument.text
        option = argument.joins_left or (text.startswith("-") and not options_end)
        options_end = options_end or text == "--"
        if not option and not is_assignment(text):
            return place
    return None


def parse_input(text: str, grammars: Iterable[Grammar]) -> Input:
    """The input that `text` is (see `InputParser.parse`)."""
    return InputParser(grammars).parse(text)


@cache
def fixed(grammar: Grammar) -> frozenset[str]:
    """The words without a dash one of which every input of a grammar has: `addr` of `ip addr …`."""
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
    """The text of a body of one argument that holds nothing but text, else nothing."""
    if len(body) == 1 and all(isinstance(symbol, Terminal) for symbol in body[0]):
        return "".join(map(str, body[0]))
    return ""


@dataclass(slots=True)
class _Piece:
    """A command of the tree: `whole` where it is taken as it stands, and its redirections.

    `node` is None where there are redirections only.
    """

    node: tree_sitter.Node | None
    whole: bool
    redirects: list[tree_sitter.Node]


def _flat(node: tree_sitter.Node) -> list[_Piece | str]:
    """Commands and the operators between them, from left to right."""
    if node.type in {"program", "list", "pipeline"}:
        pieces: list[_Piece | str] = []
        for child in node.children:
            if child.type == "comment":
                continue
            if child.type in SEPARATORS:
                pieces.append(child.type)
                continue
            if pieces and not isinstance(pieces[-1], str):
                pieces.append(";")  # a newline between two commands
            pieces.extend(_flat(child))
        return pieces
    if node.type == "redirected_statement":
        redirects = node.children_by_field_name("redirect")
        body = node.child_by_field_name("body")
        if body is None:
            return [_Piece(None, False, redirects)]
        pieces = _flat(body)
        last = pieces[-1]
        if isinstance(last, _Piece):
            last.redirects.extend(redirects)
        return pieces
    if node.type in _SIMPLE:
        redirects = [child for child in node.children if child.type in _REDIRECTS]
        return [_Piece(node, False, redirects)]
    return [_Piece(node, True, [])]


def _has_heredoc(node: tree_sitter.Node) -> bool:
    return node.type == "heredoc_redirect" or any(map(_has_heredoc, node.children))


def _without_redirects(source: bytes, node: tree_sitter.Node, piece: _Piece) -> str:
    """The source text of a command with its redirections cut out."""
    parts = []
    start = node.start_byte
    for redirect in piece.redirects:
        begin = _begin(source, redirect)
        if begin < node.end_byte:
            parts.append(source[start:begin])
            start = redirect.end_byte
    parts.append(source[start : node.end_byte])
    for redirect in piece.redirects:
        parts += [source[word.start_byte : word.end_byte] for word in _extra_words(redirect)]
    return b" ".join(parts).decode("utf-8", "surrogateescape")


def _begin(source: bytes, redirect: tree_sitter.Node) -> int:
    """Where a redirection begins, with a descriptor that the parser took for a word (`0<&-`)."""
    begin = redirect.start_byte
    while begin and source[begin - 1] not in _PARTING:
        begin -= 1
    written = _DESCRIPTOR.fullmatch(source, begin, redirect.start_byte)
    return begin if written else redirect.start_byte


def _redirect(source: bytes, node: tree_sitter.Node) -> Iterator[Token]:
    """A redirection as operator and target, or as one operator: `2>&1`, rare kinds (`3>&-`)."""
    extra = _extra_words(node)
    end = extra[0].start_byte if extra else node.end_byte
    text = source[_begin(source, node) : end].decode("utf-8", "surrogateescape").strip()
    if text.replace(" ", "") in DUPLICATIONS:
        yield Token(Argument(text.replace(" ", "")), Role.OPERATOR)
        return
    for operator in sorted(REDIRECTIONS, key=len, reverse=True):
        target = text[len(operator) :].strip()
        plain = target and (target[0] not in "&<>|" or target.startswith(("<(", ">(")))
        if text.startswith(operator) and plain:
            yield Token(Argument(operator), Role.OPERATOR)
            yield Token(Argument(target), Role.TARGET)
            return
    yield Token(Argument(_BLANKS_AFTER_SIGN.sub(r"\1", text)), Role.OPERATOR)


def _is_separator(token: Token) -> bool:
    return token.role is Role.OPERATOR and token.argument.text in SEPARATORS


def is_assignment(word: str) -> bool:
    """Whether a word sets a variable: `LC_ALL=C`, `PATH+=:/opt`."""
    name, sign, _ = word.partition("=")
    return bool(sign) and name.removesuffix("+").isidentifier() and name.isascii()


def n_assignments(words: Sequence[str]) -> int:
    """How many words set a variable before the command, which is the last word at the latest."""
    return len(list(takewhile(is_assignment, words[:-1])))


def without_assignments(command: str) -> str:
    """A command without the assignments before it: `TZ=UTC date` is `date`."""
    words = split_words(command)
    place = 0
    for word in words[: n_assignments(words)]:
        place = command.index(word, place) + len(word)
    return command[place:].lstrip() if place else command


def _extra_words(redirect: tree_sitter.Node) -> list[tree_sitter.Node]:
    """What the parser takes for further targets of a redirection: really arguments after it."""
    closes = any(child.type in {">&-", "<&-"} for child in redirect.children)
    return redirect.children_by_field_name("destination")[0 if closes else 1 :]
