"""Word expansion by the rules of Bash's manual.

The order: braces, tildes, parameters, substitutions, arithmetic, splitting, path names, quotes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from shioenv.bash.read import Reader
from shioenv.domain.runner import State
from shioenv.errors import Abstained
from shioenv_model.bash.arithmetic import Complaint, evaluate
from shioenv_model.bash.arrays import Array, quote_value
from shioenv_model.bash.modifiers import Modifiers, single_quoted, unescaped_ansi
from shioenv_model.bash.patterns import EXTENDED, SPECIAL, escaped, is_pattern, paths
from shioenv_model.bash.unexpanded import braces
from shioenv_model.bash.work import COPIED, spend

_PARAMETER = re.compile(r"([A-Za-z_]\w*|\d+|[?#@*$!-])(\[(?:[^][]|\[[^][]*\])+\])?", re.ASCII)
_INDIRECT = re.compile(r"[A-Za-z_]\w*(?:\[[^][]+\])?|\d+|[@*#?]", re.ASCII)
_ALL = re.compile(r"\$(?:@|\{!?(?:@|[A-Za-z_]\w*\[@\])[^}]*\})")
"""Expansions that yield any number of words inside double quotes, possibly none."""
_DEFAULT = re.compile(r"(:?)([-=+?])")
_ASSIGNS = re.compile(r"[A-Za-z_]\w*(?:\[[^][]*\])?\+?=", re.ASCII)
"""The prefix of an argument whose tildes are expanded as in an assignment."""
_TILDE = re.compile(r"~([\w.+-]*)(?=/|$)", re.ASCII)
_PLAIN_UNQUOTED = re.compile(r"[^\\'\"`$<>~:]+")
_PLAIN_QUOTED = re.compile(r"[^\\`$\"]+")
_MOST_DIGITS = 18
_FIELD = 10
"""Steps charged for each word, in addition to its length."""


class Scope(Protocol):
    """The context of an expansion: files, variables, and programs to run."""

    @property
    def state(self) -> State:
        """The state with the files and the shell's options."""
        ...

    @property
    def arguments(self) -> Sequence[str]:
        """The positional parameters, from `$1`."""
        ...

    def variable(self, name: str) -> str | None:
        """Return a variable's text, or that of `?`, `$`, `!` or `-`; None if unset.

        `name[key]` is an array element. An array's plain name is its first element.

        Errors: Abstained if the text is unknown.
        """
        ...

    def resolved(self, name: str) -> str:
        """Return the variable or element that a reference (`declare -n`) stands for."""
        ...

    def attributes(self, name: str) -> str:
        """Return the attributes of a variable as letters of `declare`; empty for none."""
        ...

    def array(self, name: str) -> Array | None:
        """Return an array's elements; None for a variable that is no array.

        Errors: those of `variable`.
        """
        ...

    def assign(self, name: str, value: str) -> None:
        """Set a variable, for `${x:=word}` and arithmetic; `name[key]` sets an element."""
        ...

    def substitute(self, source: str) -> str:
        """Return the output of the program `source` for `$(…)`, including trailing newlines."""
        ...

    def connect(self, source: str, *, reading: bool) -> str:
        """Return the path of the process substitution `<(…)` (if `reading`) or `>(…)`."""
        ...


@dataclass(frozen=True, slots=True)
class _Segment:
    """A piece of an expanded word; `text` is None at a word boundary, as in `"$@"`."""

    text: str | None
    quoted: bool
    splits: bool = False


_BREAK = _Segment(None, quoted=True)
_BREAK_OF_STAR = _Segment(None, quoted=False, splits=True)
_BREAK_OF_AT = _Segment(None, quoted=False)
"""Separators of the unquoted `$*` and `$@`."""


class Expander(Modifiers):
    """Expands words against a scope."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    @property
    def _document(self) -> Mapping[str, Any]:
        return self._scope.state.before.document

    def fields(self, word: str) -> list[str]:
        """Expand an argument into words. Errors: Abstained."""
        fields: list[str] = []
        for one in braces(word):
            found = list(self._fields(one))
            spend(len(found))
            fields += found
        return fields

    def text(self, word: str, *, assigned: bool = False) -> str:
        """Expand a word without splitting, as in `case`.

        With `assigned`, the word is the value of an assignment: tildes after `:` are expanded too.
        """
        return self._joined(self._word(word, assigned=assigned))

    def _joined(self, segments: list[_Segment]) -> str:
        star = " "
        if _BREAK_OF_STAR in segments:
            ifs = self._scope.variable("IFS")
            star = " " if ifs is None else ifs[:1]
        return "".join(
            (star if each.splits else " ") if each.text is None else each.text for each in segments
        )

    def pieces(self, word: str) -> list[tuple[str, bool]]:
        """Expand a word without word splitting; return its pieces, and whether each is quoted."""
        return [(each.text or " ", each.quoted) for each in self._word(word) if each.text != ""]

    def pattern(self, word: str) -> str:
        """Expand a word into a pattern. Its quoted characters are escaped."""
        return _pattern(self._word(word))

    def document(self, text: str) -> str:
        """Expand the text of a here-document."""
        return self._joined(self._quoted(text, document=True))

    def number(self, expression: str) -> int:
        """Evaluate an arithmetic expression."""
        text = self.document(expression.replace('"', ""))
        return evaluate(text, self._variable, self._scope.assign)

    def _variable(self, name: str) -> str | None:
        """Return a variable for arithmetic. Errors: Complaint under `set -u`."""
        value = self._scope.variable(name)
        if value is None and self._scope.state.before.document["settings"].get("-o nounset"):
            raise Complaint(f"{name.partition('[')[0]}: unbound variable", ends=True)
        return value

    def _fields(self, word: str) -> Iterator[str]:
        fields: list[list[_Segment]] = []
        current: list[_Segment] | None = None
        spend(_FIELD)
        ifs = self._separators()
        keeps_empty = self._first_separator() not in " \t\n"
        for segment in self._word(word, argument=True):
            if segment.text is None:
                if keeps_empty and not segment.quoted:
                    current = current or []
                fields += [] if current is None else [current]
                current = None
            elif not segment.splits or not ifs:
                if segment.text or segment.quoted:
                    current = current or []
                    current.append(segment)
            else:
                spend(len(segment.text))
                for match in ifs.finditer(segment.text):
                    text, mark = match.groups()
                    if text:
                        current = current or []
                        current.append(_Segment(text, quoted=False))
                    elif mark or current is not None:
                        fields.append(current or [])
                        current = None
        if current is not None:
            fields.append(current)
        for field in fields:
            yield from self._paths(field)

    def _first_separator(self) -> str:
        """Return the first character of `IFS`; a blank if it is unset or empty."""
        return (self._scope.variable("IFS") or " ")[0]

    def _separators(self) -> re.Pattern[str] | None:
        """Return a pattern for text (group 1), a separator and the blanks around it (2), or blanks.

        The separators are the characters of `IFS`. None if `IFS` is empty.
        """
        value = self._scope.variable("IFS")
        value = " \t\n" if value is None else value
        if not value:
            return None
        blanks = "".join(each for each in value if each in " \t\n")
        others = re.escape("".join(each for each in value if each not in " \t\n"))
        blank = f"[{blanks}]" if blanks else "(?!)"
        other = f"{blank}*[{others}]{blank}*" if others else "(?!)"
        return re.compile(f"([^{re.escape(value)}]+)|({other})|{blank}+")

    def _paths(self, field: list[_Segment]) -> list[str]:
        text = "".join(each.text or "" for each in field)
        settings = self._scope.state.before.document["settings"]
        if not (SPECIAL & set(text) or EXTENDED.search(text)) or settings.get("-o noglob"):
            return [text]
        pattern, options = _pattern(field), self._scope.state.before.document["shell_options"]
        if not is_pattern(pattern, extended=bool(options.get("extglob"))):
            return [text]
        if self._scope.variable("GLOBIGNORE"):
            raise Abstained("GLOBIGNORE is set")
        found = paths(pattern, self._scope.state)
        if not found and options.get("failglob"):
            raise Complaint(f"no match: {text}")
        return found or ([] if options.get("nullglob") else [text])

    def _word(
        self, word: str, *, assigned: bool = False, splits: bool = False, argument: bool = False
    ) -> list[_Segment]:
        spend(len(word) + 1)
        assigns = _ASSIGNS.match(word) if argument else None
        value = assigns.end() if assigns else 0
        assigned = assigned or assigns is not None
        segments: list[_Segment] = []
        reader: Reader | None = None
        place = 0
        while place < len(word):
            if plain := _PLAIN_UNQUOTED.match(word, place):
                segments.append(_Segment(plain[0], quoted=False, splits=splits))
                place = plain.end()
                continue
            at_start = place in (0, value) or (
                assigned and place > value and word[place - 1] == ":"
            )
            tilde = _TILDE.match(word, place) if at_start else None
            if assigned and at_start and not tilde:
                tilde = re.compile(r"~([\w.+-]*)(?=[/:]|$)").match(word, place)
            home = self._home(tilde[1]) if tilde else None
            if tilde and home is not None:
                segments.append(_Segment(home, quoted=True))
                place = tilde.end()
                continue
            if word.startswith(("<(", ">("), place):
                spend(len(word) - place)
                end = place + _process_length(word[place:])
                reading = word[place] == "<"
                path = self._scope.connect(word[place + 2 : end - 1], reading=reading)
                segments.append(_Segment(path, quoted=True))
            else:
                reader = reader or Reader(word, extended=True)
                end = reader.unit_end(place)
                segments += self._unit(word[place:end], splits=splits)
            place = end
        return segments

    def _unit(self, unit: str, *, splits: bool) -> list[_Segment]:
        first = unit[0]
        if first == "\\" and len(unit) == 1:
            return [_Segment(unit, quoted=True)]
        if first == "\\":
            return [] if unit == "\\\n" else [_Segment(unit[1:], quoted=True)]
        if first == "'":
            return [_Segment(unit[1:-1], quoted=True)]
        if unit.startswith(('"', '$"')):
            inner = unit[unit.index('"') + 1 : -1]
            found = self._quoted(inner)
            return found if found or _ALL.fullmatch(inner) else [_Segment("", quoted=True)]
        if unit.startswith("$'"):
            return [_Segment(unescaped_ansi(unit[2:-1]), quoted=True)]
        if first in "`$" and len(unit) > 1:
            return self._expansion(unit, quoted=False)
        return [_Segment(unit, quoted=False, splits=splits)]

    def _quoted(self, text: str, *, document: bool = False, inner: bool = False) -> list[_Segment]:
        """Expand the inside of double quotes or of a here-document.

        `inner`: the text is the word of a quoted `${x-…}`, where further double quotes are removed.
        """
        spend(len(text) + 1)
        segments: list[_Segment] = []
        reader: Reader | None = None
        place = 0
        while place < len(text):
            plain = _PLAIN_QUOTED.match(text, place)
            if plain:
                segments.append(_Segment(plain[0], quoted=True))
                place = plain.end()
                continue
            character = text[place]
            if character == "\\" and text[place + 1 : place + 2] in (
                *("$", "`", "\\", "\n"),
                *(() if document else ('"',)),
            ):
                kept = "" if text[place + 1] == "\n" else text[place + 1]
                segments.append(_Segment(kept, quoted=True))
                place += 2
            elif character == "`" or (character == "$" and text[place + 1 : place + 2] != "'"):
                reader = reader or Reader(text, extended=True)
                end = reader.unit_end(place) if character == "`" else reader.expansion_end(place)
                unit = text[place:end]
                if len(unit) > 1:
                    segments += self._expansion(unit, quoted=True)
                else:
                    segments.append(_Segment(unit, quoted=True))
                place = end
            else:
                if not (inner and character == '"'):
                    segments.append(_Segment(character, quoted=True))
                place += 1
        return segments

    def _expansion(self, unit: str, *, quoted: bool) -> list[_Segment]:
        if unit.startswith("`"):
            escapes = r'\\([$`\\"])' if quoted else r"\\([$`\\])"
            return self._result(self._command(re.sub(escapes, r"\1", unit[1:-1])), quoted=quoted)
        if (
            unit.startswith("$((")
            and unit.endswith("))")
            and Reader(unit, extended=True).arithmetic_end(3)
        ):
            return self._result(str(self.number(unit[3:-2])), quoted=quoted)
        if unit.startswith("$("):
            return self._result(self._command(unit[2:-1]), quoted=quoted)
        if unit.startswith("$["):
            return self._result(str(self.number(unit[2:-1])), quoted=quoted)
        if unit.startswith("${"):
            return self._parameter(unit[2:-1], quoted=quoted)
        return self._plain(unit[1:], quoted=quoted)

    def _result(self, text: str, *, quoted: bool) -> list[_Segment]:
        spend(1 + len(text) // COPIED)
        return [_Segment(text, quoted, splits=not quoted)]

    def _command(self, source: str) -> str:
        return self._scope.substitute(source).rstrip("\n")

    def _plain(self, name: str, *, quoted: bool) -> list[_Segment]:
        if name in ("@", "*"):
            return self._list(name, list(self._scope.arguments), quoted=quoted)
        shown = f"${name}" if name.isdigit() or name == "!" else name
        return self._result(self._set(shown, self._value(name)), quoted=quoted)

    def _list(self, name: str, values: list[str], *, quoted: bool) -> list[_Segment]:
        if quoted and name == "*":
            ifs = self._scope.variable("IFS")
            return self._result((" " if ifs is None else ifs[:1]).join(values), quoted=True)
        segments: list[_Segment] = []
        between = _BREAK if quoted else _BREAK_OF_STAR if name == "*" else _BREAK_OF_AT
        for value in values:
            segments += [between] * bool(segments)
            segments += self._result(value, quoted=quoted)
        return segments

    def _value(self, name: str) -> str | None:
        if name == "#":
            return str(len(self._scope.arguments))
        if name.isdigit() and name != "0":
            if len(name) > _MOST_DIGITS:
                raise Abstained(f"${{{name:.40}}} is not supported")
            number = int(name)
            arguments = self._scope.arguments
            return arguments[number - 1] if number <= len(arguments) else None
        return self._scope.variable(name)

    def _parameter(self, inside: str, *, quoted: bool, shown: str = "") -> list[_Segment]:
        """Expand `${…}`, given the text between its braces; errors name it as `shown`."""
        beyond = Abstained(f"the expansion ${{{inside:.40}}} is not supported")
        mark = inside[0] if inside[:1] in ("#", "!") and len(inside) > 1 else ""
        match = _PARAMETER.match(inside, len(mark))
        if mark == "#" and (match is None or match.end() < len(inside)):
            mark, match = "", _PARAMETER.match(inside)  # an operator on `$#`
        bad = Complaint(f"${{{inside}}}: bad substitution")
        if match is None:
            raise beyond if mark else bad
        name, subscript, rest = match[1], (match[2] or "")[1:-1], inside[match.end() :]
        if rest and rest[0] not in ":-=+?#%/^,~@":
            raise beyond if mark == "!" and rest == "*" else bad
        kind = name if name in "@*" else subscript if subscript in ("@", "*") else ""
        if (kind or mark == "#") and name.isidentifier() and "[" in self._scope.resolved(name):
            return self._result("0" if mark == "#" else "", quoted=quoted)
        if mark == "!":
            if kind and name not in "@*" and not rest:
                array = self._scope.array(name)
                value = None if array else self._scope.variable(name)
                return self._list(
                    kind, list(array.items) if array else ["0"] * (value is not None), quoted=quoted
                )
            reference = name if name in "@*" or name.isdigit() else self._scope.resolved(name)
            if reference != name and not subscript and not rest:
                return self._result(reference, quoted=quoted)
            named = self._item(name, subscript)[1]
            if named is None and not kind and name not in "@*#":
                raise Complaint(f"{name}: invalid indirect expansion")
            if kind or (not _INDIRECT.fullmatch(named or "") and "[" in (named or "")):
                raise beyond
            if not _INDIRECT.fullmatch(named or ""):
                raise Complaint(f"{named}: invalid variable name")
            return self._parameter(f"{named}{rest}", quoted=quoted, shown=f"!{name}")
        if kind:
            return self._several(name, kind, mark, rest, inside, quoted=quoted)
        target, value = self._item(name, subscript)
        if mark == "#":
            return self._result(str(len(self._set(target, value))), quoted=quoted)
        default = _DEFAULT.match(rest)
        if default:
            missing = value is None or (default[1] == ":" and not value)
            word = rest[default.end() :]
            if default[2] == "?":
                target = shown or target
            return self._default(target, value, default[0], missing, word, quoted)
        if rest in ("@A", "@a"):
            values = self._described(name, [] if value is None else [value], None, rest[1])
            return self._result("".join(values), quoted=quoted)
        if value is None and rest[:1] == "@":
            return self._result(self._set(target, value), quoted=quoted)
        value = self._set(shown or target, value)
        return self._result(self.edited(value, rest, inside) if rest else value, quoted=quoted)

    def _described(
        self, name: str, values: list[str], array: Array | None, letter: str
    ) -> list[str]:
        """Return the words of `${name@A}`, `@a`, `@K` or `@k`.

        `array` is given if all elements are meant (`${name[@]@A}`).
        """
        if name in "@*" or name.isdigit():
            if letter in "aA":
                raise Abstained(f"${{{name}@{letter}}} is not supported")
            return list(map(single_quoted, values))
        attributes, name = self._scope.attributes(name), self._scope.resolved(name)
        if letter == "a":
            return [attributes] * (len(values) if array else 1)
        if letter == "A" and array is not None:
            return [f"declare -{attributes} {name}={array.text()}"] if array.items else []
        if letter == "A":
            text = f"{name}={single_quoted(values[0])}" if values else name
            if attributes:
                return [f"declare -{attributes} {text}"]
            return [text] if values else []
        if array is None:
            return list(map(single_quoted, values))
        if letter == "k":
            return [each for pair in array.items.items() for each in pair]
        pairs = " ".join(f"{key} {quote_value(one)}" for key, one in array.items.items())
        return [f"{pairs} " if array.associative and pairs else pairs]

    def _item(self, name: str, subscript: str) -> tuple[str, str | None]:
        """Return the name in `Scope`, and the value, of a variable or an array element."""
        if not subscript:
            return name, self._value(name)
        array = self._scope.array(name)
        associative = array is not None and array.associative
        key = self.text(subscript) if associative else str(self.number(subscript))
        if not key:
            raise Abstained("the empty key of an associative array")
        target = f"{name}[{key}]"
        return target, self._scope.variable(target)

    def _set(self, name: str, value: str | None) -> str:
        """Return the value; empty if unset. Errors: Complaint under `set -u`."""
        if value is None and self._scope.state.before.document["settings"].get("-o nounset"):
            raise Complaint(f"{name}: unbound variable", ends=True)
        return value or ""

    def _several(
        self, name: str, kind: str, mark: str, rest: str, inside: str, *, quoted: bool
    ) -> list[_Segment]:
        """Expand `${@…}` and `${name[@]…}`."""
        array = None if name in "@*" else self._scope.array(name)
        if array is not None:
            values = list(array.items.values())
        elif name in "@*":
            values = list(self._scope.arguments)
        else:
            one = self._scope.variable(name)
            values = [] if one is None else [one]
        if mark == "#":
            return self._result(str(len(values)), quoted=quoted)
        default = _DEFAULT.match(rest)
        if default:
            joint = " " if kind == "@" or not quoted else (self._scope.variable("IFS") or " ")[:1]
            if kind == "*" and quoted and self._scope.variable("IFS") == "":
                joint = ""
            missing = not values or (default[1] == ":" and not joint.join(values))
            if missing != (default[2] == "+"):
                word = rest[default.end() :]
                return self._default(name, None, default[0], missing, word, quoted)
            values = [] if default[2] == "+" else values
        elif rest[:1] == ":":
            zero = (lambda: self._scope.variable("0") or "") if name in "@*" else None
            values = self.part(values, array, rest[1:], zero)
        elif rest in ("@A", "@a", "@K", "@k"):
            values = self._described(name, values, array, rest[1])
        elif rest:
            values = [self.edited(value, rest, inside) for value in values]
        return self._list(kind, values, quoted=quoted)

    def _default(
        self, name: str, value: str | None, kind: str, missing: bool, word: str, quoted: bool
    ) -> list[_Segment]:
        if kind[-1] == "?" and missing:
            why = "parameter null or not set" if kind[0] == ":" else "parameter not set"
            raise Complaint(f"{name}: {self.text(word) if word else why}", ends=True)
        if kind[-1] == "=" and missing:
            value = self.text(word)
            self._scope.assign(name, value)
            return self._result(value, quoted=quoted)
        if missing != (kind[-1] == "+"):
            return self._quoted(word, inner=True) if quoted else self._word(word, splits=True)
        return self._result("" if kind[-1] == "+" else value or "", quoted=quoted)

    def _home(self, user: str) -> str | None:
        """Expand `~user`; None if the word remains unchanged."""
        names = {"": "HOME", "+": "PWD", "-": "OLDPWD"}
        if user.lstrip("+-").isdecimal():
            raise Abstained("`~N` for an entry of the directory stack is not supported")
        if user in names:
            value = self._scope.variable(names[user])
            if value is None and not user:
                raise Abstained("HOME is not set")
            return value
        accounts = (self._scope.state.read("/etc/passwd") or b"").decode("utf-8", "replace")
        for line in accounts.splitlines():
            fields = line.split(":")
            if fields[0] == user and len(fields) > 5:
                return fields[5]
        return None


def _pattern(segments: list[_Segment]) -> str:
    """Return a pattern. A backslash from a variable quotes the next character."""
    texts = ((each.text or "", each.quoted) for each in segments)
    return "".join(escaped(text) if quoted else text for text, quoted in texts)


def _process_length(text: str) -> int:
    reader = Reader(text, 2, extended=True)
    reader.program(frozenset({")"}))
    reader.peek()
    return reader.place + 1
