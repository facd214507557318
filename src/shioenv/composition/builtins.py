"""Builtins that steer the shell, or change what no runner knows: parameters, shared input."""

from __future__ import annotations

import os
import re

from shioenv.bash.arithmetic import count
from shioenv.bash.program import Simple
from shioenv.bash.words import quoted
from shioenv.composition.call import Call
from shioenv.composition.environment import Environment, Exit, Loop, Return
from shioenv.composition.replay import fed
from shioenv.errors import Abstained


def become(here: Environment, values: list[str]) -> None:
    """`exec COMMAND`: the shell ends with the command. Errors: Exit; Abstained for options."""
    if len(values) < 2 or values[1].startswith("-"):
        raise Abstained("exec with options")
    here.put(Call(" ".join(map(quoted, values))), "exec")
    raise Exit(here.status)


def leave_loop(name: str, rest: list[str]) -> None:
    """`break` and `continue`. Errors: Loop; Abstained for operands other than one number."""
    levels = count(rest[0]) if rest else 1
    if len(rest) > 1 or not levels:
        raise Abstained(f"{name} {' '.join(rest):.20} is beyond it")
    raise Loop(levels, goes_on=name == "continue")


def end(here: Environment, name: str, values: list[str]) -> None:
    """`exit` and `return`.

    An `exit` with several operands, the first a number, fails and does not end the shell. Errors:
    Exit; Return; Abstained for a `return` outside of a function, or with operands other than one
    number.
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
        if not here.place.calls:
            raise Abstained("return outside of a function")
        raise Return(status)
    raise Exit(status)


def shift(here: Environment, values: list[str]) -> None:
    """`set -- word…` and `shift n`: no runner knows the positional parameters.

    Errors: Abstained for options of `set`, and for operands of `shift` other than one number.
    """
    name, *rest = values
    if name == "set":
        if rest[0] != "--":
            raise Abstained("set with options and parameters")
        here.own.arguments, here.status = tuple(rest[1:]), 0
        return
    by = count(rest[0]) if rest else 1
    if len(rest) > 1 or by is None:
        raise Abstained("shift by what is no number")
    here.status = int(by > len(here.own.arguments))
    if not here.status:
        here.own.arguments = here.own.arguments[by:]


def read(here: Environment, command: Simple, rest: list[str]) -> None:
    """`read`: takes the next line and gives its words to variables.

    Errors: Abstained for options other than `-r`, and for assignments other than `IFS`. Abstained
    for lines that go on or hold NUL bytes, and for input of which an unknown part is left.
    """
    raw = "-r" in rest
    names = [each for each in rest if each != "-r"]
    ifs = here.variable("IFS")
    for assignment in command.assignments:
        if not assignment.startswith("IFS="):
            raise Abstained("read with another assignment before it")
        ifs = here.expander.text(assignment[4:])
    if not all(name.isidentifier() for name in names) or here.streams.stdin.perhaps:
        raise Abstained("read with options, or from an input that others read")
    line, newline, left = here.streams.stdin.data.partition(b"\n")
    if line.endswith(b"\\") or b"\0" in line or here.streams.stdin.endless:
        raise Abstained("read from a line that goes on, or has NUL bytes")
    here.streams.stdin.data = left
    if b"\\" in line and not raw:
        text = " ".join((*command.assignments, "read", *names))
        behavior = here.ask(Call(text), stdin=line + newline)
        here.advance(fed(text, line + newline), behavior)
        here.status = behavior.exit_code
        return
    if not names:
        values, names = [os.fsdecode(line)], ["REPLY"]
    else:
        values = _split(os.fsdecode(line), " \t\n" if ifs is None else ifs, len(names))
    for name, value in zip(names, values, strict=True):
        here.assign(name, value)
    here.status = int(not newline)


def _split(line: str, ifs: str, count: int) -> list[str]:
    """The words that `read` gives to `count` variables: the last variable gets the rest."""
    blanks = "".join(each for each in ifs if each in " \t\n")
    others = "".join(each for each in ifs if each not in " \t\n")
    blank = f"[{re.escape(blanks)}]" if blanks else "(?!)"
    separator = f"{blank}*[{re.escape(others)}]{blank}*" if others else "(?!)"
    pattern = re.compile(f"{separator}|{blank}+")
    rest = line.strip(blanks)
    values: list[str] = []
    while len(values) < count - 1:
        match = pattern.search(rest) if ifs else None
        if match is None:
            values.append(rest)
            rest = ""
            continue
        values.append(rest[: match.start()])
        rest = rest[match.end() :]
    # one separator at the very end is no part of the last word
    match = pattern.search(rest) if others else None
    if match is not None and match.end() == len(rest):
        rest = rest[: match.start()]
    return [*values, rest]
