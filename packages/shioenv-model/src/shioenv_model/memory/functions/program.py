"""Interpreter of AWK programs (awk(1))."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from shioenv_model.bash.work import COPIED
from shioenv_model.memory.functions.actions import (
    Node,
    Program,
    read_language,
    unescape_string,
)
from shioenv_model.memory.functions.match import search_steps
from shioenv_model.memory.functions.space import (
    Flags,
    Given,
    Result,
    Roles,
    Steps,
    check_length,
    is_text,
)
from shioenv_model.memory.functions.substitute import replace_matches
from shioenv_model.memory.functions.values import (
    ORDER,
    Elements,
    Field,
    Value,
    as_number,
    check_pattern,
    compiled,
    divided,
    is_true,
    number_in,
    printed_by,
    reckoned,
    replacement,
    split_fields,
    value_string,
)

_MOST_FIELDS = 10_000
_DEEPEST = 60
_UNKNOWN = frozenset(
    ("ENVIRON", "ARGV", "ARGC", "ARGIND", "PROCINFO", "IGNORECASE", "FIELDWIDTHS", "FPAT", "RT",
     "SYMTAB", "FUNCTAB", "BINMODE", "LINT", "TEXTDOMAIN", "ERRNO")
)  # fmt: skip


def run_program(given: Given, roles: Roles, flags: Flags) -> Result | None:
    """Run a program on the text. Return None for programs that use files or the environment.

    Errors: ValueError, and arithmetic errors, for an invalid program.
    """
    program = read_language(roles["program"] if given.text is not None else _only(given.operands))
    texts = given.texts or ((given.text,) if given.text is not None else ())
    if not all(map(is_text, texts)):
        return None
    if not texts and (program.rules or program.last):
        return None
    names = given.operands if len(given.operands) == len(texts) else ("-",) * len(texts)
    run = _Run(program)
    if "separator" in roles:
        if not roles["separator"]:
            return None
        run.variables["FS"] = unescape_string(roles["separator"])
    for each in roles["assigned"].split("\n") if "assigned" in roles else ():
        name, equals, value = each.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise ValueError(each)
        run.variables[name] = Field(unescape_string(value))
    return run.run(tuple(zip(names, texts, strict=True)))


def _only(operands: Sequence[str]) -> str:
    if len(operands) != 1:
        raise ValueError("no program alone")
    return operands[0]


class _NextError(ValueError):
    """Ends the rules for this line; not an error."""


class _BreakError(ValueError):
    """Ends a loop; not an error."""


class _ContinueError(ValueError):
    """Ends a loop's iteration; not an error."""


class _ExitError(ValueError):
    """Ends the program; not an error."""


class _ReturnError(ValueError):
    """Returns a value from a function; not an error."""

    def __init__(self, value: Value) -> None:
        self.value = value


class _Run:
    """One run of a program."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._spend = Steps().spend
        self.variables: dict[str, Value | Elements] = {
            "FS": " ", "OFS": " ", "ORS": "\n", "RS": "\n", "SUBSEP": "\034", "CONVFMT": "%.6g",
            "OFMT": "%.6g", "NR": 0.0, "FNR": 0.0, "FILENAME": "", "RSTART": 0.0, "RLENGTH": -1.0,
        }  # fmt: skip
        self._locals: dict[str, Value | Elements] = {}
        self._deep = 0
        self._record = ""
        self._fields: list[str] | None = []
        self._made: list[str] = []
        self._length = 0
        self._code = 0
        self._open: set[int] = set()

    def run(self, files: Sequence[tuple[str, str]]) -> Result:
        """Run the program; return the output and the exit code."""
        try:
            self._actions(self._program.first)
            if self._program.rules or self._program.last:
                self._read(files)
        except _ExitError:
            pass
        with suppress(_ExitError):
            self._actions(self._program.last)
        return "".join(self._made), self._code

    def _actions(self, actions: Sequence[Node]) -> None:
        for each in actions:
            self._do(each)

    def _read(self, files: Sequence[tuple[str, str]]) -> None:
        for name, text in files:
            self.variables["FILENAME"] = name
            self.variables["FNR"] = 0.0
            rest = text
            while rest:
                record, rest = self._cut(rest)
                if record is None:
                    break
                for each in ("NR", "FNR"):
                    self.variables[each] = self._number(self.variables[each]) + 1
                self._set_record(record)
                try:
                    self._rules()
                except _NextError:
                    continue

    def _cut(self, text: str) -> tuple[str | None, str]:
        """Return the next record of a text, and the rest."""
        ends = self._text(self.variables["RS"])
        self._spend(1 + len(text) // (COPIED * 20))
        if ends == "":
            text = text.lstrip("\n")
            if not text:
                return None, ""
            record, _, rest = text.partition("\n\n")
            return record.removesuffix("\n"), rest.lstrip("\n")
        if len(ends) == 1:
            record, _, rest = text.partition(ends)
            return record, rest
        raise ValueError("records that end in a pattern")

    def _rules(self) -> None:
        for number, (start, end, action) in enumerate(self._program.rules):
            if end is None:
                if start is not None and not self._true(start):
                    continue
            elif number in self._open:
                if self._true(end):
                    self._open.discard(number)
            else:
                if start is None or not self._true(start):
                    continue
                if not self._true(end):
                    self._open.add(number)
            if action is None:
                self._say(self._record + self._text(self.variables["ORS"]))
            else:
                self._do(action)

    def _set_record(self, record: str) -> None:
        self._record, self._fields = record, None

    def _split(self) -> list[str]:
        if self._fields is None:
            separator = self._text(self.variables["FS"])
            lines = self._text(self.variables["RS"]) == "" and separator != " "
            self._fields = split_fields(self._record, separator, self._spend, lines=lines)
        return self._fields

    def _field(self, number: int) -> Value:
        if number < 0:
            raise ValueError("a field before the first")
        if number == 0:
            return Field(self._record)
        fields = self._split()
        return Field(fields[number - 1]) if number <= len(fields) else None

    def _set_field(self, number: int, text: str) -> None:
        if not 0 <= number <= _MOST_FIELDS:
            raise ValueError("no such field")
        if number == 0:
            self._set_record(text)
            return
        fields = self._split()
        fields += [""] * (number - len(fields))
        fields[number - 1] = text
        self._join(fields)

    def _join(self, fields: list[str]) -> None:
        self._record = self._text(self.variables["OFS"]).join(fields)
        check_length(len(self._record))
        self._spend(len(fields))
        self._fields = fields

    def _number(self, value: Value | Elements) -> float:
        return number_in(_single(value))

    def _text(self, value: Value | Elements, form: str = "CONVFMT") -> str:
        if isinstance(value, str):
            return value
        return value_string(_single(value), value_string(_single(self.variables[form]), "%.6g"))

    def _true(self, node: Node) -> bool:
        return is_true(self._value(node))

    def _compare(self, sign: str, left: Value, right: Value) -> bool:
        one, other = as_number(left), as_number(right)
        if one is not None and other is not None:
            return ORDER[sign]((one > other) - (one < other))
        texts = self._text(left), self._text(right)
        return ORDER[sign]((texts[0] > texts[1]) - (texts[0] < texts[1]))

    def _do(self, node: Node) -> None:
        self._spend(3)
        getattr(self, f"_do_{node[0]}")(*node[1:])

    def _do_block(self, statements: tuple[Node, ...]) -> None:
        for each in statements:
            self._do(each)

    def _do_expression(self, node: Node) -> None:
        self._value(node)

    def _do_if(self, test: Node, then: Node, otherwise: Node | None) -> None:
        if self._true(test):
            self._do(then)
        elif otherwise is not None:
            self._do(otherwise)

    def _do_while(self, test: Node, body: Node) -> None:
        while self._true(test):
            if self._ends(body):
                break

    def _do_do(self, test: Node, body: Node) -> None:
        while not self._ends(body) and self._true(test):
            pass

    def _do_for(self, start: Node | None, test: Node | None, step: Node | None, body: Node) -> None:
        if start is not None:
            self._do(start)
        while test is None or self._true(test):
            self._spend(2)
            if self._ends(body):
                break
            if step is not None:
                self._do(step)

    def _do_each(self, name: str, array: str, body: Node) -> None:
        elements = self._array(array)
        self._spend(len(elements))
        for key in elements.order():
            self._assign(("variable", name), Field(key))
            if self._ends(body):
                break

    def _ends(self, body: Node) -> bool:
        """Run the body of a loop; return whether `break` ends the loop."""
        try:
            self._do(body)
        except _BreakError:
            return True
        except _ContinueError:
            pass
        return False

    def _do_break(self) -> None:
        raise _BreakError

    def _do_continue(self) -> None:
        raise _ContinueError

    def _do_next(self) -> None:
        raise _NextError

    def _do_exit(self, node: Node | None) -> None:
        if node is not None:
            self._code = int(self._number(self._value(node))) & 255
        raise _ExitError

    def _do_return(self, node: Node | None) -> None:
        raise _ReturnError(None if node is None else self._value(node))

    def _do_delete(self, name: str, keys: tuple[Node, ...]) -> None:
        if keys:
            self._array(name).pop(self._key(keys))
        else:
            self._array(name).clear()

    def _do_print(self, nodes: tuple[Node, ...]) -> None:
        if nodes:
            texts = [self._text(self._value(each), "OFMT") for each in nodes]
        else:
            texts = [self._record]
        self._say(self._text(self.variables["OFS"]).join(texts) + self._text(self.variables["ORS"]))

    def _do_printf(self, nodes: tuple[Node, ...]) -> None:
        form, *values = [self._value(each) for each in nodes]
        self._say(printed_by(self._text(form), values, self._text(self.variables["CONVFMT"])))

    def _say(self, text: str) -> None:
        self._length += len(text)
        check_length(self._length)
        self._spend(len(text) // COPIED)
        self._made.append(text)

    def _value(self, node: Node) -> Value:
        self._spend(1)
        return getattr(self, f"_{node[0]}_value")(*node[1:])  # type: ignore[no-any-return]

    def _constant_value(self, value: Value) -> Value:
        return value

    def _group_value(self, node: Node) -> Value:
        return self._value(node)

    def _pattern_value(self, source: str) -> Value:
        return float(self._search(self._record, compiled(source)) is not None)

    def _variable_value(self, name: str) -> Value:
        if name == "NF":
            return float(len(self._split()))
        value = self._scope(name).get(name)
        if isinstance(value, Elements):
            raise ValueError("an array stands where a value is asked for")
        return value

    def _element_value(self, name: str, keys: tuple[Node, ...]) -> Value:
        return self._array(name).read(self._key(keys))

    def _field_value(self, node: Node) -> Value:
        return self._field(int(self._number(self._value(node))))

    def _assign_value(self, target: Node, sign: str, node: Node) -> Value:
        value = self._value(node)
        if sign:
            value = reckoned(sign, self._number(self._value(target)), self._number(value))
        return self._assign(target, value)

    def _count_value(self, target: Node, sign: str, before: bool) -> Value:
        old = self._number(self._value(target))
        new = old + 1 if sign == "+" else old - 1
        self._assign(target, new)
        return new if before else old

    def _choice_value(self, test: Node, yes: Node, no: Node) -> Value:
        return self._value(yes if self._true(test) else no)

    def _or_value(self, left: Node, right: Node) -> Value:
        return float(self._true(left) or self._true(right))

    def _and_value(self, left: Node, right: Node) -> Value:
        return float(self._true(left) and self._true(right))

    def _in_value(self, keys: tuple[Node, ...], name: str) -> Value:
        return float(self._key(keys) in self._array(name))

    def _match_value(self, left: Node, right: Node, negated: bool) -> Value:
        text = self._text(self._value(left))
        return float((self._search(text, self._regular(right)) is None) == negated)

    def _compare_value(self, sign: str, left: Node, right: Node) -> Value:
        return float(self._compare(sign, self._value(left), self._value(right)))

    def _join_value(self, left: Node, right: Node) -> Value:
        made = self._text(self._value(left)) + self._text(self._value(right))
        check_length(len(made))
        self._spend(len(made) // COPIED)
        return made

    def _arithmetic_value(self, sign: str, left: Node, right: Node) -> Value:
        return reckoned(sign, self._number(self._value(left)), self._number(self._value(right)))

    def _unary_value(self, sign: str, node: Node) -> Value:
        if sign == "!":
            return float(not self._true(node))
        number = self._number(self._value(node))
        return -number if sign == "-" and number else number

    def _call_value(self, name: str, nodes: tuple[Node, ...]) -> Value:
        function = self._program.functions[name]
        if len(nodes) > len(function.parameters) or self._deep >= _DEEPEST:
            raise ValueError("too many arguments, or calls in each other")
        scope: dict[str, Value | Elements] = {}
        for parameter, node in zip(function.parameters, nodes, strict=False):
            is_array = node[0] == "variable" and isinstance(
                self._scope(node[1]).get(node[1]), Elements
            )
            if is_array or parameter in function.arrays:
                scope[parameter] = self._array(node[1])
            else:
                scope[parameter] = self._value(node)
        scope |= {each: None for each in function.parameters if each not in scope}
        outer, self._locals = self._locals, scope
        self._deep += 1
        try:
            self._do(function.body)
        except _ReturnError as result:
            return result.value
        finally:
            self._locals = outer
            self._deep -= 1
        return None

    def _builtin_value(self, name: str, nodes: tuple[Node, ...]) -> Value:
        if name in _OF_NUMBERS:
            return _OF_NUMBERS[name](self._number(self._value(nodes[0])))
        return getattr(self, f"_call_{name}")(*nodes)  # type: ignore[no-any-return]

    def _scope(self, name: str) -> dict[str, Value | Elements]:
        if name in _UNKNOWN:
            raise ValueError(f"{name} is not known")
        return self._locals if name in self._locals else self.variables

    def _array(self, name: str) -> Elements:
        value = self._scope(name).get(name)
        if value is None:
            value = self._scope(name)[name] = Elements()
        if not isinstance(value, Elements):
            raise ValueError("a value stands where an array is asked for")
        return value

    def _key(self, nodes: tuple[Node, ...]) -> str:
        texts = [self._text(self._value(each)) for each in nodes]
        return self._text(self.variables["SUBSEP"]).join(texts)

    def _assign(self, target: Node, value: Value) -> Value:
        if target[0] == "group":
            raise ValueError("this cannot be assigned to")
        if target[0] == "field":
            self._set_field(int(self._number(self._value(target[1]))), self._text(value))
        elif target[0] == "element":
            self._array(target[1]).write(self._key(target[2]), value)
        elif target[1] == "NF":
            count = int(self._number(value))
            if not 0 <= count <= _MOST_FIELDS:
                raise ValueError("so many fields")
            self._join((self._split() + [""] * count)[:count])
        else:
            scope = self._scope(target[1])
            if isinstance(scope.get(target[1]), Elements):
                raise ValueError("an array cannot be set")
            scope[target[1]] = value
        return value

    def _regular(self, node: Node) -> re.Pattern[str]:
        return compiled(node[1] if node[0] == "pattern" else self._text(self._value(node)))

    def _search(self, text: str, pattern: re.Pattern[str], start: int = 0) -> re.Match[str] | None:
        self._spend(search_steps(text, pattern.pattern))
        return pattern.search(text, start)

    def _call_length(self, node: Node | None = None) -> Value:
        if node is None:
            return float(len(self._record))
        if node[0] == "variable" and isinstance(self._scope(node[1]).get(node[1]), Elements):
            return float(len(self._array(node[1])))
        return float(len(self._text(self._value(node))))

    def _call_substr(self, node: Node, start: Node, count: Node | None = None) -> Value:
        text, first = self._text(self._value(node)), int(self._number(self._value(start)))
        length = len(text) if count is None else int(self._number(self._value(count)))
        first = max(first, 1)
        return text[first - 1 : first - 1 + max(length, 0)]

    def _call_index(self, node: Node, wanted: Node) -> Value:
        return float(self._text(self._value(node)).find(self._text(self._value(wanted))) + 1)

    def _call_split(self, node: Node, array: Node, separator: Node | None = None) -> Value:
        text = self._text(self._value(node))
        if separator is None:
            found = split_fields(text, self._text(self.variables["FS"]), self._spend)
        elif separator[0] == "pattern":
            found = divided(text, compiled(separator[1]), self._spend) if text else []
        else:
            found = split_fields(text, self._text(self._value(separator)), self._spend)
        if array[0] != "variable":
            raise ValueError("no array")
        elements = self._array(array[1])
        elements.clear()
        for number, piece in enumerate(found, 1):
            elements.write(str(number), Field(piece))
        return float(len(found))

    def _call_sub(self, pattern: Node, by: Node, target: Node | None = None) -> Value:
        return self._replace(pattern, by, target, everywhere=False)

    def _call_gsub(self, pattern: Node, by: Node, target: Node | None = None) -> Value:
        return self._replace(pattern, by, target, everywhere=True)

    def _replace(self, pattern: Node, by: Node, target: Node | None, *, everywhere: bool) -> Value:
        found, parts = self._regular(pattern), replacement(self._text(self._value(by)))
        check_pattern(found)
        place = target or ("field", ("constant", 0.0))
        text = self._text(self._value(place))
        made, count = replace_matches(
            text, lambda start: self._search(text, found, start),
            lambda match: "".join(match[0] if each is None else each for each in parts),
            1, everywhere,
        )  # fmt: skip
        check_length(len(made))
        if count and place[0] in ("variable", "element", "field"):
            self._assign(place, made)
        return float(count)

    def _call_gensub(self, pattern: Node, by: Node, how: Node, node: Node | None = None) -> Value:
        found, which = self._regular(pattern), self._text(self._value(how))
        check_pattern(found)
        source = self._text(self._value(by))
        text = self._record if node is None else self._text(self._value(node))

        def made(match: re.Match[str]) -> str:
            def part(mark: re.Match[str]) -> str:
                if mark[0] == "&":
                    return match[0]
                return (match[int(mark[1])] or "") if mark[1].isdigit() else mark[1]

            return re.sub(r"\\(.)|&", part, source)

        everywhere = which[:1] in ("g", "G")
        nth = 1 if everywhere else int(self._number(which))
        return replace_matches(
            text, lambda start: self._search(text, found, start), made, nth, everywhere
        )[0]

    def _call_match(self, node: Node, pattern: Node, array: Node | None = None) -> Value:
        found = self._regular(pattern)
        check_pattern(found)
        match = self._search(self._text(self._value(node)), found)
        start = match.start() + 1 if match else 0
        self.variables["RSTART"] = float(start)
        self.variables["RLENGTH"] = float(len(match[0])) if match else -1.0
        if array is not None:
            elements = self._array(array[1])
            elements.clear()
            for number, piece in enumerate((match[0], *match.groups()) if match else ()):
                if piece is not None:
                    elements.write(str(number), Field(piece))
        return float(start)

    def _call_sprintf(self, *nodes: Node) -> Value:
        form, *values = [self._value(each) for each in nodes]
        return printed_by(self._text(form), values, self._text(self.variables["CONVFMT"]))

    def _call_tolower(self, node: Node) -> Value:
        return self._text(self._value(node)).lower()

    def _call_toupper(self, node: Node) -> Value:
        return self._text(self._value(node)).upper()

    def _call_atan2(self, one: Node, other: Node) -> Value:
        return math.atan2(self._number(self._value(one)), self._number(self._value(other)))


def _single(value: Value | Elements) -> Value:
    """Return the value. Errors: ValueError for an array."""
    if isinstance(value, Elements):
        raise ValueError("an array stands where a value is asked for")
    return value


_OF_NUMBERS: Mapping[str, Callable[[float], float]] = {
    "int": lambda number: float(math.trunc(number)), "sqrt": math.sqrt, "exp": math.exp,
    "log": math.log, "sin": math.sin, "cos": math.cos,
}  # fmt: skip
