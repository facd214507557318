"""Evaluation of `test`, `[ … ]` and `[[ … ]]` from a state, by Bash's rules.

Nothing is executed. Conditions that depend on more than the state are left to a runner.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from shioenv.domain.context import MONTHS, FileEntry
from shioenv.domain.runner import State
from shioenv.errors import Abstained
from shioenv_model.bash.expand import Expander
from shioenv_model.bash.patterns import found_groups, matches
from shioenv_model.composition.variables import Value, Variables, element, item_of, resolved


def traced_pattern(pieces: Sequence[tuple[str, bool]]) -> str:
    """Show a pattern as `set -x` does: its quoted characters have backslashes."""
    return "".join(
        "".join(f"\\{each}" for each in text) if quoted else text for text, quoted in pieces
    )


_OF_FILES = frozenset("abcdefghkprsuwxGLNOS")
_UNARY = _OF_FILES | frozenset("nzovRt")
_RELATIONS = frozenset({"=", "==", "!=", "<", ">"})
_NUMBERS = frozenset({"-eq", "-ne", "-lt", "-le", "-gt", "-ge"})
_AGES = frozenset({"-nt", "-ot", "-ef"})
_INTEGER = re.compile(r"[ \t\n\v\f\r]*([+-]?)(\d+)[ \t]*", re.ASCII)
_TYPES = {"f": "-", "d": "d", "b": "b", "c": "c", "p": "p", "S": "s"}
_SET_BITS = {"u": (3, "sS"), "g": (6, "sS"), "k": (9, "tT")}
_ELSEWHERE = ("/proc", "/sys", "/dev")
"""Directories whose files are not all listed in a context."""
DYNAMIC = re.compile(
    r"BASH\w*|COMP_\w*|DIRSTACK|EPOCH\w*|FUNCNAME|GROUPS|HISTCMD|LINENO|MAPFILE|OLDPWD|OPTARG"
    r"|PIPESTATUS|PPID|RANDOM|SECONDS|SHELLOPTS|SRANDOM|_"
)
"""Variables that are not in a context, or that change by themselves."""


class Wrong(Exception):  # noqa: N818 - a condition that Bash refuses
    """Bash rejects the condition; the message is Bash's."""


def is_root(state: State) -> bool:
    """Whether the shell is root's."""
    value = state.before.document["settings"].get("EUID")
    return value is not None and re.search(r'(?<!\d)"?0"?\Z', str(value)) is not None


def is_set(state: State, name: str) -> bool:
    """Whether a variable or an element has a value.

    Errors: Abstained if the context does not show the variable.
    """
    document, scope = state.before.document, Variables(state)
    target = resolved(document, name)
    if target.endswith("]") and not name.endswith("]"):
        return False  # Bash looks for a variable named like the element, with brackets
    name, key = item_of(target)
    if key is not None and re.search(r"[$`'\"\\]", key):
        key = Expander(scope).text(key)
    if not name.isidentifier() or not name.isascii():
        raise Abstained(f"whether {name!r:.40} is set is unknown")
    value = Value.of(document, name)
    if value is None and DYNAMIC.fullmatch(name):
        raise Abstained(f"whether {name!r:.40} is set is unknown")
    if key in ("@", "*") and value is not None and value.array is not None:
        return bool(value.array.items)
    return element(value, key, scope.variable) is not None


def look_up(state: State, path: str, *, follow: bool = True) -> FileEntry | None:
    """Look up the file at a path; None if there is none.

    `follow`: a final link is followed. Errors: Abstained if the context does not show the file.
    """
    if not path:
        return None
    if "\0" in path or len(path) > 1000:
        raise Abstained("a path that no file has")
    document = state.before.document
    whole = posixpath.join(document["cwd"], path)
    parts = whole.split("/")
    for end in range(2, len(parts)):  # every part before a `/` must be a directory
        above = "/".join(parts[:end]) or "/"
        if parts[end - 1] in {"", "."} and end > 2:
            continue
        entry = _known(state, state.resolve(above))
        if entry is None or not entry.perms.startswith("d"):
            return None
    name = parts[-1]
    if follow or name in {"", ".", ".."}:
        return _known(state, state.resolve(whole))
    parent = state.resolve("/".join(parts[:-1]) or "/")
    return _known(state, posixpath.join(parent, name), itself=True)


def _known(state: State, whole: str, *, itself: bool = False) -> FileEntry | None:
    """Look up an absolute path without links. `itself`: its last part may be a link."""
    entry = state.entry_at(whole)
    if entry is None:
        if any(whole == each or whole.startswith(f"{each}/") for each in _ELSEWHERE):
            raise Abstained(f"no known context lists {whole!r:.60}")
        return None
    if entry.target is not None and not itself:
        raise Abstained(f"{whole!r:.60} is a link to an unknown place")
    return entry


def holds(state: State, operator: str, operand: str) -> bool:
    """Whether a unary operator, such as `-f`, is true of an operand. Errors: Abstained."""
    letter = operator[1:]
    if letter in "nz":
        return bool(operand) == (letter == "n")
    if letter == "v":
        return is_set(state, operand)
    if letter == "t":
        return False  # no input has a terminal
    if letter == "R":
        value = Value.of(state.before.document, operand)
        return value is not None and "n" in value.flags
    if letter == "o":
        return bool(state.before.document["settings"].get(f"-o {operand}"))
    if letter not in _OF_FILES or letter == "N":
        raise Abstained(f"{operator} is not supported")
    entry = look_up(state, operand, follow=letter not in "hL")
    if entry is None:
        return False
    if letter in "ae":
        return True
    if letter in "hL":
        return entry.perms.startswith("l")
    if letter in _TYPES:
        return entry.perms.startswith(_TYPES[letter])
    if letter == "s":
        if not entry.perms.startswith("-"):
            raise Abstained("the size of a file that is not regular")
        return entry.size > 0
    if letter in _SET_BITS:
        place, bits = _SET_BITS[letter]
        return entry.perms[place] in bits
    if not is_root(state):
        raise Abstained("permissions of ordinary users are not supported")
    if letter == "x":
        return entry.perms.startswith("d") or any(entry.perms[at] in "xst" for at in (3, 6, 9))
    if letter in "rw":
        return True
    return (entry.owner if letter == "O" else entry.group) == "root"


def _related(state: State, operator: str, left: str, right: str) -> bool:
    """Whether an operator of `_AGES` is true of two files."""
    one, other = look_up(state, left), look_up(state, right)
    if operator == "-ef":
        if one is None or other is None:
            return False
        if state.resolve(left) == state.resolve(right):
            return True
        if one.links > 1 and other.links > 1 and one == other:
            raise Abstained("two names may be of one file")
        return False
    if operator == "-ot":
        one, other = other, one
    if one is None or other is None:
        return one is not None
    ages = [(each.year, MONTHS.index(each.month), each.day, each.time) for each in (one, other)]
    if ages[0] == ages[1]:
        raise Abstained("two times that are equal in the context")
    return ages[0] > ages[1]


def _compared(operator: str, left: int, right: int) -> bool:
    return {
        "-eq": left == right, "-ne": left != right, "-lt": left < right,
        "-le": left <= right, "-gt": left > right, "-ge": left >= right,
    }[operator]  # fmt: skip


def _is_binary(word: str) -> bool:
    return word in _RELATIONS or word in _NUMBERS or word in _AGES


def _is_unary(word: str) -> bool:
    return len(word) == 2 and word[0] == "-" and word[1] in _UNARY


@dataclass(slots=True)
class Test:
    """The arguments of `test`, parsed by their number first, as in `test.c` of Bash 5.2."""

    state: State
    arguments: Sequence[str]
    end: str | None = None
    """The word after the arguments: the `]` of `[ … ]`."""
    is_set: Callable[[str], bool] | None = None
    """Whether a variable has a value. If None, the state is asked."""
    place: int = field(default=0, init=False)

    def value(self) -> bool:
        """Evaluate the condition. Errors: Wrong; Abstained."""
        given = self.arguments
        n = len(given)
        if n <= 1:
            return bool(n and given[0])
        if n == 2:
            return self._two(0)
        if n == 3:
            return self._three(0)
        if n == 4 and given[0] == "!":
            return not self._three(1)
        if n == 4 and given[0] == "(" and given[3] == ")":
            return self._two(1)
        value = self._or()
        if self.place < n:
            left = given[self.place]
            wrong = f"syntax error: `{left}' unexpected"
            raise Wrong(wrong if left.startswith("-") else "too many arguments")
        return value

    def _two(self, at: int) -> bool:
        first, second = self.arguments[at : at + 2]
        if first == "!":
            return not second
        if _is_unary(first):
            return self._unary(first, second)
        raise Wrong(f"{first}: unary operator expected")

    def _three(self, at: int) -> bool:
        first, second, third = self.arguments[at : at + 3]
        if _is_binary(second):
            return self._binary(second, first, third)
        if second in {"-a", "-o"}:
            return bool(first) and bool(third) if second == "-a" else bool(first) or bool(third)
        if first == "!":
            return not self._two(at + 1)
        if first == "(" and third == ")":
            return bool(second)
        raise Wrong(f"{second}: binary operator expected")

    def _or(self) -> bool:
        value = self._and()
        if self._peek() == "-o":
            self.place += 1
            return self._or() or value
        return value

    def _and(self) -> bool:
        value = self._term()
        if self._peek() == "-a":
            self.place += 1
            return self._and() and value
        return value

    def _term(self) -> bool:
        given = self.arguments
        if self.place >= len(given):
            raise Wrong("argument expected")
        first = given[self.place]
        if first == "!":
            self._advance()
            return not self._term()
        if first == "(":
            self._advance()
            value = self._or()
            closing = self.end if self._peek() is None else self._peek()
            if closing is None:
                raise Wrong("`)' expected")
            if closing != ")":
                raise Wrong(f"`)' expected, found {closing}")
            self.place += 1
            return value
        left = len(given) - self.place
        if left >= 3 and _is_binary(given[self.place + 1]):
            operator, second = given[self.place + 1 : self.place + 3]
            self.place += 3
            return self._binary(operator, first, second)
        if left >= 2 and _is_unary(first):
            if first == "-t" and not given[self.place + 1].isdecimal():
                raise Abstained("-t without a number among other conditions")
            self.place += 2
            return self._unary(first, given[self.place - 1])
        self.place += 1
        return bool(first)

    def _peek(self) -> str | None:
        return self.arguments[self.place] if self.place < len(self.arguments) else None

    def _advance(self) -> None:
        self.place += 1
        if self.place >= len(self.arguments):
            raise Wrong("argument expected")

    def _unary(self, operator: str, operand: str) -> bool:
        if operator == "-v" and self.is_set is not None:
            return self.is_set(operand)
        return holds(self.state, operator, operand)

    def _binary(self, operator: str, left: str, right: str) -> bool:
        if operator in _AGES:
            return _related(self.state, operator, left, right)
        if operator in _NUMBERS:
            return _compared(operator, _integer(left), _integer(right))
        if operator in "<>":
            return left < right if operator == "<" else left > right
        return (left == right) == (operator != "!=")


def _integer(text: str) -> int:
    match = _INTEGER.fullmatch(text)
    digits = match[2].lstrip("0") if match else ""
    if match is None or len(digits) > 19:
        raise Wrong(f"{text}: integer expression expected")
    value = int(f"{match[1]}{digits or 0}")
    if not -(2**63) <= value < 2**63:
        raise Wrong(f"{text}: integer expression expected")
    return value


@dataclass(slots=True)
class Conditional:
    """The parts of a `[[ … ]]`, as in `Verbatim.parts`."""

    state: Callable[[], State]
    expander: Expander
    number: Callable[[str], int]
    """Evaluate an arithmetic expression after expanding its words."""
    parts: Sequence[str]
    is_set: Callable[[str], bool]
    """Whether a variable or an element has a value."""
    remember: Callable[[Sequence[str]], None]
    """Set `BASH_REMATCH`."""
    trace: Callable[[str], None] | None = None
    """Print a line of `set -x`; None if it is off."""
    place: int = field(default=0, init=False)

    def value(self) -> bool:
        """Evaluate the condition. Words in branches that are not evaluated are not expanded.

        Errors: Abstained.
        """
        return self._or(counts=True)

    def _peek(self) -> str:
        return self.parts[self.place] if self.place < len(self.parts) else ""

    def _next(self) -> str:
        self.place += 1
        return self.parts[self.place - 1]

    def _or(self, *, counts: bool) -> bool:
        value = self._and(counts=counts)
        while self._peek() == "||":
            self.place += 1
            value = self._and(counts=counts and not value) or value
        return value

    def _and(self, *, counts: bool) -> bool:
        value = self._term(counts=counts)
        while self._peek() == "&&":
            self.place += 1
            value = self._term(counts=counts and value) and value
        return value

    def _shows(self, counts: bool, *words: str) -> None:
        """Trace a term; an empty word is shown as `''`."""
        if self.trace is not None and counts:
            sign = "! " * (
                self.place > len(words) and self.parts[self.place - len(words) - 1] == "!"
            )
            self.trace(f"[[ {sign}{' '.join(word or chr(39) * 2 for word in words)} ]]")

    def _term(self, *, counts: bool) -> bool:
        first = self._next()
        if first == "!":
            return not self._term(counts=counts)
        if first == "(":
            value = self._or(counts=counts)
            self.place += 1
            return value
        if _is_unary(first) and self._peek() not in {"", "&&", "||", ")"}:
            operand = self._next()
            if not counts:
                return False
            text = self.expander.text(operand)
            self._shows(counts, first, text)
            return self.is_set(text) if first == "-v" else holds(self.state(), first, text)
        if self._peek() in {"", "&&", "||", ")"}:
            if not counts:
                return False
            text = self.expander.text(first)
            self._shows(counts, "-n", text)
            return bool(text)
        operator, second = self._next(), self._next()
        return counts and self._binary(operator, first, second)

    def _binary(self, operator: str, first: str, second: str) -> bool:
        left = self.expander.text(first)
        if self.trace is not None:
            pieces = self.expander.pieces(second)
            is_pattern = operator in {"=", "==", "!=", "=~"}
            right = traced_pattern(pieces) if is_pattern else "".join(text for text, _ in pieces)
            self._shows(True, left, operator, right)
        folds = bool(self.state().before.document["shell_options"].get("nocasematch"))
        if operator in {"=", "==", "!="}:
            pattern = self.expander.pattern(second)
            return matches(pattern, left, extended=True, folds=folds) == (operator != "!=")
        if operator == "=~":
            found = found_groups(self.expander.pieces(second), left, folds=folds)
            self.remember(found or [])
            return found is not None
        right = self.expander.text(second)
        if operator in {"<", ">"}:
            return left < right if operator == "<" else left > right
        if operator in _NUMBERS:
            return _compared(operator, self.number(left), self.number(right))
        if operator in _AGES:
            return _related(self.state(), operator, left, right)
        raise Abstained(f"{operator} is not supported")
