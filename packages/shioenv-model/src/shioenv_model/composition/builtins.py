"""Builtins for control flow, positional parameters and shared standard input."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from shioenv.bash.program import Simple
from shioenv.bash.words import quoted
from shioenv.errors import Abstained
from shioenv_model.bash.arithmetic import Complaint, count, evaluate
from shioenv_model.bash.arrays import Array
from shioenv_model.composition.call import Call
from shioenv_model.composition.environment import Environment
from shioenv_model.composition.frames import Exit, Loop, Return
from shioenv_model.composition.replay import fed
from shioenv_model.composition.ruled import echoed
from shioenv_model.composition.variables import Value


def become(here: Environment, values: list[str]) -> None:
    """Run `exec COMMAND` and end the shell. Errors: Exit; Abstained for options."""
    if len(values) < 2 or values[1].startswith("-"):
        raise Abstained("exec with options")
    here.put(Call(" ".join(map(quoted, values))), "exec")
    raise Exit(here.status)


def leave_loop(here: Environment, name: str, rest: list[str]) -> None:
    """Run `break` or `continue`. Errors: Loop; Abstained for operands other than one number."""
    if not here.place.loops:
        here.complain(f"{name}: only meaningful in a `for', `while', or `until' loop")
        here.status = 0
        return
    levels = count(rest[0]) if rest else 1
    if len(rest) > 1 or not levels:
        raise Abstained(f"{name} {' '.join(rest):.20} is beyond it")
    raise Loop(min(levels, here.place.loops), goes_on=name == "continue")


def end(here: Environment, name: str, values: list[str]) -> None:
    """Run `exit` or `return`.

    `exit` with several operands, the first a number, fails without ending the shell. Errors: Exit;
    Return; Abstained for a `return` outside of functions, or with operands other than one number.
    """
    if len(values) > 2 or (len(values) == 2 and not re.fullmatch(r"-?\d{1,18}", values[1])):
        if name == "return":
            raise Abstained("this return is beyond it")
        here.put(Call(" ".join(map(quoted, values))), name)
        if len(values) > 2 and re.fullmatch(r"-?\d{1,18}", values[1]):
            return
        raise Exit(here.status)
    status = int(values[1]) & 255 if len(values) == 2 else here.status
    if name == "return":
        if not (here.place.calls or here.place.is_read):
            raise Abstained("return outside of a function")
        raise Return(status)
    raise Exit(status)


def shift(here: Environment, values: list[str]) -> None:
    """Run `set -- word…` or `shift n`, which change the positional parameters.

    Errors: Abstained for options of `set`, and for operands of `shift` other than one number.
    """
    name, *rest = values
    if name == "set":
        if rest[0] != "--":
            raise Abstained("set with options and parameters")
        here.carry(arguments=tuple(rest[1:]))
        here.status = 0
        return
    by = count(rest[0]) if rest else 1
    if len(rest) > 1 or by is None:
        raise Abstained("shift by what is no number")
    here.status = int(by > len(here.arguments))
    if not here.status:
        here.carry(arguments=tuple(here.arguments[by:]))


def getopts(here: Environment, rest: list[str]) -> None:
    """Run `getopts LETTERS NAME [WORD…]`: parse the next option of the words or parameters.

    `OPTIND` is the index of the next word, and `Own.cluster` the offset within it. Errors:
    Abstained for an invalid name, for letters that begin with `-`, and for an unknown offset.
    """
    letters, name, *words = rest if len(rest) > 1 else ("-", "")
    if letters.startswith("-") or not name.isidentifier() or here.place.is_dash:
        raise Abstained("getopts without letters and a name")
    if here.own.cluster < 0:
        raise Abstained("nobody knows where in a word getopts is")
    number = _LEADING.match(here.variable("OPTERR") or "1")  # parsed like atoi(3)
    silent = letters.startswith(":") or number is None or not int(number[0])
    asked = letters.removeprefix(":")
    taken = _next_option(here, asked, words or list(here.arguments))
    here.assign("OPTIND", str(taken.index))
    here.own.cluster = taken.place
    here.status = int(taken.letter is None)
    said, value = taken.letter or "?", taken.value
    if taken.fault:
        if not silent:
            text = f"{here.own.name}: {taken.fault} -- {taken.letter}\n"
            here.write(here.streams.fds[2], os.fsencode(text))
        missing = taken.fault == _MISSING and letters.startswith(":")
        said, value = ":" if missing else "?", taken.letter if letters.startswith(":") else None
    old = Value.of(here.state.before.document, "OPTARG")
    if value is not None:
        here.assign("OPTARG", value)
    elif taken.fault or taken.letter is None:
        if old is not None:
            here.store("OPTARG", None)
    else:  # the variable is declared, but unset
        here.store("OPTARG", Value(None, None, old.flags if old else frozenset()))
    here.assign(name, said)


_LEADING = re.compile(r"[ \t\n\v\f\r]*[+-]?[0-9]+")
_ILLEGAL, _MISSING = "illegal option", "option requires an argument"


@dataclass(frozen=True, slots=True)
class _Option:
    """The result of `getopts`; `letter` is None at the end of the options."""

    index: int
    """The index of the next word, from 1."""
    place: int = 0
    """The offset of the next letter in that word; 0 at its beginning."""
    letter: str | None = None
    value: str | None = None
    fault: str = ""


def _next_option(here: Environment, letters: str, words: list[str]) -> _Option:
    """Parse the next option. Errors: Abstained where the words were changed meanwhile."""
    said = here.variable("OPTIND") or ""
    index, place = max(1, int(said) if re.fullmatch(r"-?\d{1,9}", said) else 1), here.own.cluster
    if index > len(words):
        return _Option(len(words) + 1)
    word = words[index - 1]
    if not place:
        if word == "--":
            return _Option(index + 1)
        if not word.startswith("-") or word == "-":
            return _Option(index)
        place = 1
    if place >= len(word) or not word[place].isascii():
        raise Abstained("getopts in other words than before")
    letter, place = word[place], place + 1
    rest = word[place:]
    if not rest:
        index, place = index + 1, 0
    known = letters.find(letter)
    if known < 0 or letter == ":":
        return _Option(index, place, letter, fault=_ILLEGAL)
    if letters[known + 1 : known + 2] != ":":
        return _Option(index, place, letter)
    if rest:
        return _Option(index + 1, 0, letter, rest)
    if index > len(words):
        return _Option(index, 0, letter, fault=_MISSING)
    return _Option(index + 1, 0, letter, words[index - 1])


_COLUMNS = 80
"""The default terminal width."""


@dataclass(slots=True)
class _Reading:
    """The options of a `read`."""

    raw: bool = False
    array: str = ""
    end: bytes = b"\n"
    most: int | None = None


def _reading(rest: list[str]) -> tuple[_Reading, list[str]]:
    """Parse the options and operands of `read`. Errors: Abstained for unsupported options."""
    options = _Reading()
    while rest and rest[0].startswith("-") and len(rest[0]) > 1:
        word, *rest = rest
        for place, letter in enumerate(word[1:], 1):
            if letter == "r":
                options.raw = True
            elif letter == "s":
                continue
            elif letter in "adnp":
                value = word[place + 1 :]
                if not value:
                    if not rest:
                        raise Abstained("read without the value of an option")
                    value, *rest = rest
                if letter == "a":
                    options.array = value
                elif letter == "d":
                    options.end = os.fsencode(value[:1]) or b"\0"
                elif letter == "n":
                    options.most = count(value)
                break
            else:
                raise Abstained(f"read -{letter} is beyond it")
    return options, rest


def read(here: Environment, command: Simple, rest: list[str]) -> None:
    """Run `read`: split the next line into variables, or into an array.

    Errors: Abstained for options other than `-r`, `-s`, `-a`, `-d`, `-n` and `-p`, and for
    assignments other than `IFS`. Abstained for continued lines, NUL bytes, and an input with an
    unknown rest.
    """
    options, names = _reading(rest)
    ifs = here.variable("IFS")
    for assignment in command.assignments:
        if not assignment.startswith("IFS="):
            raise Abstained("read with another assignment before it")
        ifs = here.expander.text(assignment[4:])
    if not all(name.isidentifier() for name in names) or here.streams.stdin.perhaps:
        raise Abstained("read with options, or from an input that others read")
    stdin = here.streams.stdin
    line, newline, left = stdin.data.partition(options.end)
    if options.most is not None and len(line) >= options.most:
        if not line.isascii():
            raise Abstained("characters of more than a byte")
        line, newline, left = line[: options.most], b"\n", stdin.data[options.most :]
    if line.endswith(b"\\") or b"\0" in line or stdin.endless:
        raise Abstained("read from a line that goes on, or has NUL bytes")
    stdin.data = left
    ifs = " \t\n" if ifs is None else ifs
    if b"\\" in line and not options.raw:
        if options != _Reading():
            raise Abstained("read of backslashes with options")
        text = " ".join((*command.assignments, "read", *names))
        behavior = here.ask(Call(text), stdin=line + newline)
        here.advance(fed(text, line + newline), behavior)
        here.status = behavior.exit_code
        return
    if options.array:
        words = _split(os.fsdecode(line), ifs, None)
        items = {str(place): word for place, word in enumerate(words)}
        old = Value.of(here.state.before.document, options.array) or Value()
        here.store(options.array, Value(None, Array(items), old.flags))
    elif not names:
        here.assign("REPLY", os.fsdecode(line))
    else:
        values = _split(os.fsdecode(line), ifs, len(names))
        for name, value in zip(names, values, strict=True):
            here.assign(name, value)
    here.status = int(not newline)


def echo_of_dash(here: Environment, rest: list[str]) -> None:
    """Run dash's `echo`: escapes are always interpreted, and `-n` is the only option."""
    newline = "" if rest[:1] == ["-n"] else "\n"
    said = echoed(" ".join(rest[not newline :]), newline)
    here.write(here.streams.fds[1], os.fsencode(said))
    here.status = 0


def compute(here: Environment, expressions: list[str]) -> None:
    """Run `let`; the exit status is 1 if the last expression is 0. Errors: Abstained."""
    if not expressions or expressions[0].startswith("-"):
        raise Abstained("let without an expression")
    value = 0
    try:
        for expression in expressions:
            if not expression.strip():
                raise Abstained("let with nothing to evaluate")
            value = evaluate(expression, here.variable, here.assign)
    except Complaint as wrong:
        here.complain(f"let: {wrong.said}")
        value = 0
    here.status = int(value == 0)


def fill(here: Environment, rest: list[str]) -> None:
    """Run `mapfile` or `readarray`: read the lines of standard input into an array.

    Errors: Abstained for options other than `-t`, and for an input with an unknown rest.
    """
    keeps = rest[:1] != ["-t"]
    names = rest if keeps else rest[1:]
    stdin = here.streams.stdin
    if len(names) > 1 or any(not name.isidentifier() for name in names):
        raise Abstained("mapfile with options that are beyond it")
    if stdin.endless or stdin.perhaps or b"\0" in stdin.data:
        raise Abstained("mapfile of an input that is not known")
    lines = os.fsdecode(stdin.data).splitlines(keepends=True)
    if "".join(lines).count("\n") != len(lines) - (not stdin.data.endswith(b"\n") and bool(lines)):
        raise Abstained("lines that end in other characters")
    stdin.data = b""
    items = {str(n): line if keeps else line.rstrip("\n") for n, line in enumerate(lines)}
    here.store(names[0] if names else "MAPFILE", Value(None, Array(items)))
    here.status = 0


def menu(values: Sequence[str]) -> str:
    """Format the menu of `select`, one item per line. Errors: Abstained for several columns."""
    width = len(str(len(values))) + 2 + max(map(len, values)) + 2
    if len(values) > max(1, _COLUMNS // width) or not all(map(str.isascii, values)):
        raise Abstained("a menu of several columns")
    number = len(str(len(values)))
    return "".join(f"{place:{number}d}) {value}\n" for place, value in enumerate(values, 1))


def _split(line: str, ifs: str, count: int | None) -> list[str]:
    """Split a line for `count` variables of `read`; the last variable gets the rest.

    `None` means as many words as there are.
    """
    blanks = "".join(each for each in ifs if each in " \t\n")
    others = "".join(each for each in ifs if each not in " \t\n")
    blank = f"[{re.escape(blanks)}]" if blanks else "(?!)"
    separator = f"{blank}*[{re.escape(others)}]{blank}*" if others else "(?!)"
    pattern = re.compile(f"{separator}|{blank}+")
    rest = line.strip(blanks)
    values: list[str] = []
    while count is None or len(values) < count - 1:
        match = pattern.search(rest) if ifs else None
        if count is None and (match is None or not rest):
            return [*values, rest] if rest else values
        if match is None:
            values.append(rest)
            rest = ""
            continue
        values.append(rest[: match.start()])
        rest = rest[match.end() :]
    # one trailing separator does not belong to the last word
    match = pattern.search(rest) if others else None
    if match is not None and match.end() == len(rest):
        rest = rest[: match.start()]
    return [*values, rest]
