"""Builtins that read standard input into variables: `read` and `mapfile`."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from shioenv.bash.program import Simple
from shioenv.errors import Abstained
from shioenv_model.bash.arithmetic import Complaint, count
from shioenv_model.bash.arrays import Array
from shioenv_model.composition.call import Call
from shioenv_model.composition.command_replay import fed
from shioenv_model.composition.environment import Environment
from shioenv_model.composition.variables import Value


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
                    if options.most is None:
                        raise Complaint(f"read: {value}: invalid number")
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
    try:
        options, names = _reading(rest)
    except Complaint as wrong:
        here.complain(wrong.said)
        here.status = 1
        return
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
        name = here.resolved(options.array)
        old = here.value_of(name) or Value()
        here.store(name, Value(None, Array(items), old.flags))
    elif not names:
        here.assign("REPLY", os.fsdecode(line))
    else:
        values = _split(os.fsdecode(line), ifs, len(names))
        for name, value in zip(names, values, strict=True):
            here.assign(name, value)
    here.status = int(not newline)


def fill(here: Environment, values: list[str]) -> None:
    """Run `mapfile` or `readarray`: read the lines of standard input into an array.

    Errors: Abstained for options other than `-t`, and for an input with an unknown rest.
    """
    rest = values[1:]
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
    here.store(here.resolved(names[0] if names else "MAPFILE"), Value(None, Array(items)))
    here.status = 0


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
