"""Parser of AWK programs, patterns with actions (awk(1), POSIX)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

from shioenv_model.memory.functions.space import ESCAPES

Node: TypeAlias = tuple[Any, ...]
"""A node of the syntax tree: its kind, and its parts."""

LONGEST_PROGRAM = 4_000

KEYWORDS = frozenset((
    "BEGIN", "END", "function", "func", "if", "else", "while", "do", "for", "in", "break",
    "continue", "next", "exit", "return", "delete", "print", "printf", "getline", "nextfile",
    "switch", "case", "default",
))  # fmt: skip

BUILTINS = {
    "length": (0, 1), "substr": (2, 3), "index": (2, 2), "split": (2, 3), "sub": (2, 3),
    "gsub": (2, 3), "match": (2, 3), "sprintf": (1, 100), "tolower": (1, 1), "toupper": (1, 1),
    "int": (1, 1), "sqrt": (1, 1), "exp": (1, 1), "log": (1, 1), "sin": (1, 1), "cos": (1, 1),
    "atan2": (2, 2), "gensub": (3, 4),
}  # fmt: skip
"""Builtin functions, each with its minimum and maximum number of arguments."""

_TOKEN = re.compile(
    r"""(?P<blank>(?:[ \t]|\\\n)+|\#[^\n]*)
    |(?P<newline>\n)
    |(?P<number>(?!0[xX])(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
    |(?P<string>"(?:[^"\\\n]|\\.)*")
    |(?P<name>[A-Za-z_]\w*)
    |(?P<mark>\*\*=|\+\+|--|&&|\|\||\*\*|>>|[-+*/%^<>=!]=|!~|[-+*/%^<>=!~,;:?(){}\[\]$|])""",
    re.VERBOSE | re.DOTALL,
)
_PATTERN = re.compile(r"/((?:\[\^?\]?(?:\[:\w+:\]|[^\]\n])*\]|\\.|[^/\\\n\[])*)/", re.DOTALL)

_ASSIGNMENTS = {"=": "", "+=": "+", "-=": "-", "*=": "*", "/=": "/", "%=": "%", "^=": "^"}
_COMPARISONS = frozenset(("<", "<=", "==", "!=", ">", ">="))
_STRING_ESCAPES = {**ESCAPES, '"': '"', "/": "/"}


@dataclass(frozen=True)
class _Token:
    """A token of a program."""

    kind: str
    text: str
    calls: bool = False
    """Whether an opening parenthesis directly follows the name."""


@dataclass(frozen=True)
class DefinedFunction:
    """A function defined by a program."""

    parameters: tuple[str, ...]
    body: Node
    arrays: frozenset[str]
    """The names of arrays in the function."""


@dataclass(frozen=True)
class Program:
    """Patterns with actions, and functions."""

    first: tuple[Node, ...]
    """Actions before the first line (`BEGIN`)."""
    rules: tuple[tuple[Node | None, Node | None, Node | None], ...]
    """A pattern, the pattern that ends its range, and an action; each is optional."""
    last: tuple[Node, ...]
    """Actions after the last line (`END`)."""
    functions: dict[str, DefinedFunction]


@lru_cache(maxsize=512)
def read_language(text: str) -> Program:
    """Parse a program. Errors: ValueError for invalid programs and unsupported features."""
    if len(text) > LONGEST_PROGRAM:
        raise ValueError("a long program")
    return _Parser(_tokens(text)).program()


def _tokens(text: str) -> list[_Token]:
    made: list[_Token] = []
    at = 0
    while at < len(text):
        ends = made and (
            made[-1].kind in ("number", "string", "pattern")
            or (made[-1].kind == "name" and made[-1].text not in KEYWORDS)
            or made[-1].text in (")", "]", "$", "++", "--")
        )
        found = None if ends or text[at] != "/" else _PATTERN.match(text, at)
        if found:
            made.append(_Token("pattern", found[1].replace("\\/", "/")))
            at = found.end()
            continue
        found = _TOKEN.match(text, at)
        if found is None:
            raise ValueError(f"{text[at]!r} begins no word")
        at = found.end()
        kind = str(found.lastgroup)
        if kind == "blank":
            continue
        word = "^=" if found[0] == "**=" else "^" if found[0] == "**" else found[0]
        if kind == "string":
            word = unescape_string(word[1:-1])
        made.append(_Token(kind, word, text[at : at + 1] == "("))
    return [*made, _Token("end", "")]


def unescape_string(text: str) -> str:
    """Replace the escapes in a string. A backslash before another character is kept."""

    def one(match: re.Match[str]) -> str:
        if match[1]:
            return chr(int(match[1], 8))
        return _STRING_ESCAPES.get(match[2], f"\\{match[2]}")

    return re.sub(r"\\(?:([0-7]{1,3})|(.))", one, text, flags=re.DOTALL)


class _Parser:
    """A recursive-descent parser of tokens."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens, self._at = tokens, 0
        self._bare = True
        """Whether `>` is a comparison, which it is in `print` only inside parentheses."""
        self._in = True
        """Whether `in` tests membership, which it does not at the beginning of `for`."""

    def program(self) -> Program:
        """Parse the whole program."""
        first: list[Node] = []
        last: list[Node] = []
        rules: list[tuple[Node | None, Node | None, Node | None]] = []
        functions: dict[str, DefinedFunction] = {}
        self._lines()
        while self._peek.kind != "end":
            if self._sees("BEGIN", "END"):
                (first if self._next().text == "BEGIN" else last).append(self._block())
            elif self._sees("function", "func"):
                self._next()
                name = self._name()
                functions[name] = self._function()
            else:
                start = end = action = None
                if not self._sees("{"):
                    start = self._expression()
                    if self._takes(","):
                        self._lines(semicolons=False)
                        end = self._expression()
                if self._sees("{"):
                    action = self._block()
                rules.append((start, end, action))
            self._lines()
        return Program(tuple(first), tuple(rules), tuple(last), functions)

    def _function(self) -> DefinedFunction:
        self._expect("(")
        parameters: list[str] = []
        while not self._takes(")"):
            parameters.append(self._name())
            self._takes(",")
            self._lines(semicolons=False)
        self._lines(semicolons=False)
        body = self._block()
        return DefinedFunction(tuple(parameters), body, frozenset(_arrays(body)))

    def _block(self) -> Node:
        self._expect("{")
        found: list[Node] = []
        self._lines()
        while not self._takes("}"):
            found.append(self._statement())
            self._lines()
        return "block", tuple(found)

    def _statement(self) -> Node:
        if self._sees("{"):
            return self._block()
        if self._sees("if", "while", "do", "for"):
            return getattr(self, f"_{self._next().text}")()  # type: ignore[no-any-return]
        if self._takes(";"):
            return "block", ()
        made = self._simple()
        if not self._sees("}") and self._peek.kind not in ("newline", "end"):
            self._expect(";")
        return made

    def _if(self) -> Node:
        test = self._test()
        then = self._body()
        at = self._at
        self._lines()
        if not self._takes("else"):
            self._at = at
            return "if", test, then, None
        return "if", test, then, self._body()

    def _while(self) -> Node:
        test = self._test()
        if self._takes(";"):
            return "while", test, ("block", ())
        return "while", test, self._body()

    def _do(self) -> Node:
        body = self._body()
        self._lines()
        self._expect("while")
        return "do", self._test(), body

    def _for(self) -> Node:
        self._expect("(")
        names = [each.text for each in self._tokens[self._at : self._at + 4]]
        if self._peek.kind == "name" and names[1:4:2] == ["in", ")"]:
            self._at += 4
            return "each", names[0], names[2], self._body()
        start = None if self._sees(";") else self._simple()
        self._expect(";")
        self._lines(semicolons=False)
        test = None if self._sees(";") else self._expression()
        self._expect(";")
        self._lines(semicolons=False)
        step = None if self._sees(")") else self._simple()
        self._expect(")")
        body: Node = ("block", ()) if self._takes(";") else self._body()
        return "for", start, test, step, body

    def _test(self) -> Node:
        self._expect("(")
        test = self._expression()
        self._expect(")")
        return test

    def _body(self) -> Node:
        self._lines(semicolons=False)
        return self._statement()

    def _simple(self) -> Node:
        word = self._peek.text if self._peek.kind == "name" else ""
        if word in ("break", "continue", "next"):
            self._next()
            return (word,)
        if word in ("exit", "return"):
            self._next()
            ends = self._sees(";", "}") or self._peek.kind in ("newline", "end")
            return word, None if ends else self._expression()
        if word == "delete":
            self._next()
            name = self._name()
            keys = self._list("]") if self._takes("[") else ()
            return "delete", name, keys
        if word in ("print", "printf"):
            self._next()
            return word, self._printed()
        return "expression", self._expression()

    def _printed(self) -> tuple[Node, ...]:
        at = self._at
        found: tuple[Node, ...] = ()
        if self._takes("("):
            found = self._list(")")
            if self._is_printed():
                return found
            self._at = at
        if self._is_printed():
            return ()
        bare, self._bare = self._bare, False
        parts = [self._expression()]
        while self._takes(","):
            self._lines(semicolons=False)
            parts.append(self._expression())
        self._bare = bare
        if not self._is_printed():
            raise ValueError(f"{self._peek.text!r} stands behind what is printed")
        return tuple(parts)

    def _is_printed(self) -> bool:
        if self._sees(">", ">>", "|"):
            raise ValueError("what is printed goes to a file or a program")
        return self._sees(";", "}") or self._peek.kind in ("newline", "end")

    def _list(self, end: str) -> tuple[Node, ...]:
        bare, self._bare = self._bare, True
        inner, self._in = self._in, True
        found: list[Node] = []
        self._lines(semicolons=False)
        while not self._takes(end):
            found.append(self._expression())
            self._lines(semicolons=False)
            if not self._sees(end):
                self._expect(",")
                self._lines(semicolons=False)
        self._bare, self._in = bare, inner
        return tuple(found)

    def _expression(self) -> Node:
        left = self._choice()
        if self._peek.kind == "mark" and self._peek.text in _ASSIGNMENTS:
            if left[0] not in ("variable", "element", "field"):
                raise ValueError("this cannot be assigned to")
            sign = _ASSIGNMENTS[self._next().text]
            self._lines(semicolons=False)
            return "assign", left, sign, self._expression()
        return left

    def _choice(self) -> Node:
        test = self._or()
        if not self._takes("?"):
            return test
        self._lines(semicolons=False)
        yes = self._expression()
        self._lines(semicolons=False)
        self._expect(":")
        self._lines(semicolons=False)
        return "choice", test, yes, self._expression()

    def _or(self) -> Node:
        left = self._and()
        while self._takes("||"):
            self._lines(semicolons=False)
            left = "or", left, self._and()
        return left

    def _and(self) -> Node:
        left = self._member()
        while self._takes("&&"):
            self._lines(semicolons=False)
            left = "and", left, self._member()
        return left

    def _member(self) -> Node:
        left = self._match()
        while self._in and self._takes("in"):
            left = "in", (left,), self._name()
        return left

    def _match(self) -> Node:
        left = self._comparison()
        while self._sees("~", "!~"):
            negated = self._next().text == "!~"
            left = "match", left, self._comparison(), negated
        return left

    def _comparison(self) -> Node:
        left = self._concatenation()
        if self._sees(*_COMPARISONS) and (self._bare or not self._sees(">")):
            return "compare", self._next().text, left, self._concatenation()
        if self._sees("|"):
            raise ValueError("a pipe")
        return left

    def _concatenation(self) -> Node:
        left = self._sum()
        while self._begins():
            left = "join", left, self._sum()
        return left

    def _begins(self) -> bool:
        token = self._peek
        if token.kind == "name":
            return token.text not in KEYWORDS
        return token.kind in ("number", "string", "pattern") or token.text in (
            "$",
            "(",
            "!",
            "++",
            "--",
        )

    def _sum(self) -> Node:
        left = self._product()
        while self._sees("+", "-"):
            left = "arithmetic", self._next().text, left, self._product()
        return left

    def _product(self) -> Node:
        left = self._unary()
        while self._sees("*", "/", "%"):
            left = "arithmetic", self._next().text, left, self._unary()
        return left

    def _unary(self) -> Node:
        if self._sees("-", "+", "!"):
            sign = self._next().text
            return "unary", sign, self._unary()
        return self._power()

    def _power(self) -> Node:
        left = self._counted()
        if self._takes("^"):
            right = self._unary() if self._sees("-", "+", "!") else self._power()
            return "arithmetic", "^", left, right
        return left

    def _counted(self) -> Node:
        if self._sees("++", "--"):
            sign = self._next().text[0]
            return "count", self._counted(), sign, True
        made = self._primary()
        if made[0] in ("variable", "element", "field") and self._sees("++", "--"):
            return "count", made, self._next().text[0], False
        return made

    def _primary(self) -> Node:
        token = self._next()
        if token.kind == "number":
            octal = re.fullmatch(r"0[0-7]+", token.text)
            return "constant", float(int(token.text, 8) if octal else token.text)
        if token.kind == "string":
            return "constant", token.text
        if token.kind == "pattern":
            return "pattern", token.text
        if token.text == "$":
            if self._sees("++", "--"):
                return "field", self._counted()
            return "field", ("unary", "-", self._primary()) if self._takes("-") else self._primary()
        if token.text == "(":
            found = self._list(")")
            if len(found) == 1:
                return "group", found[0]
            if found and self._takes("in"):
                return "in", found, self._name()
            raise ValueError("a list stands where one value is asked for")
        if token.kind != "name" or token.text in KEYWORDS:
            raise ValueError(f"{token.text!r} is no value")
        name = token.text
        if name in BUILTINS:
            found = self._list(")") if self._takes("(") else ()
            if not BUILTINS[name][0] <= len(found) <= BUILTINS[name][1]:
                raise ValueError(f"{name} has other arguments")
            return "builtin", name, found
        if token.calls:
            self._next()
            return "call", name, self._list(")")
        if self._takes("["):
            return "element", name, self._list("]")
        return "variable", name

    @property
    def _peek(self) -> _Token:
        return self._tokens[self._at]

    def _sees(self, *texts: str) -> bool:
        token = self._peek
        return token.kind in ("mark", "name") and token.text in texts

    def _next(self) -> _Token:
        token = self._peek
        if token.kind == "end":
            raise ValueError("the program ends too early")
        self._at += 1
        return token

    def _takes(self, text: str) -> bool:
        if not self._sees(text):
            return False
        self._at += 1
        return True

    def _expect(self, text: str) -> None:
        if not self._takes(text):
            raise ValueError(f"{text!r} is missing before {self._peek.text!r}")

    def _name(self) -> str:
        token = self._next()
        if token.kind != "name" or token.text in KEYWORDS | BUILTINS.keys():
            raise ValueError(f"{token.text!r} is no name")
        return token.text

    def _lines(self, *, semicolons: bool = True) -> None:
        while self._peek.kind == "newline" or (semicolons and self._sees(";")):
            self._at += 1


def _arrays(node: Any) -> set[str]:
    """Return the names that a part of a program uses as arrays."""
    if not isinstance(node, tuple):
        return set()
    found: set[str] = set()
    for each in node:
        found |= _arrays(each)
    if node[:1] == ("element",) or node[:1] == ("delete",):
        found.add(node[1])
    elif node[:1] in (("in",), ("each",)):
        found.add(node[2])
    elif node[:2] == ("builtin", "split") and node[2] and len(node[2]) > 1:
        found |= {node[2][1][1]} if node[2][1][0] == "variable" else set()
    return found
