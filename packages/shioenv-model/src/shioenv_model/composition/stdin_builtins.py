"""Builtins that read standard input into variables: `read` and `mapfile`."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from shioenv.bash.program import Simple
from shioenv.errors import Abstained
from shioenv_model.bash.arithmetic import Complaint, count
from shioenv_model.bash.arrays import Array
from shioenv_model.composition.environment import Environment
from shioenv_model.composition.frames import Stdin
from shioenv_model.composition.variables import Value, item_of


@dataclass(slots=True)
class _Reading:
    """The options of a `read`."""

    raw: bool = False
    array: str = ""
    end: bytes = b"\n"
    most: int | None = None
    exactly: bool = False
    """Whether `-N` is given: delimiters are read like other characters, and nothing is split."""


def _reading(rest: list[str]) -> tuple[_Reading, list[str]]:
    """Parse the options and operands of `read`. Errors: Abstained; Complaint."""
    options = _Reading()
    while rest and rest[0].startswith("-") and len(rest[0]) > 1:
        word, *rest = rest
        if word == "--":
            break
        for place, letter in enumerate(word[1:], 1):
            if letter == "r":
                options.raw = True
            elif letter == "s":
                continue
            elif letter in "adnNptu":
                value = word[place + 1 :]
                if not value:
                    if not rest:
                        raise Abstained("read without the value of an option")
                    value, *rest = rest
                _set_option(options, letter, value)
                break
            else:
                raise Abstained(f"read -{letter}")
    return options, rest


def _set_option(options: _Reading, letter: str, value: str) -> None:
    if letter == "a":
        options.array = value
    elif letter == "d":
        options.end = os.fsencode(value[:1]) or b"\0"
    elif letter in "nN":
        options.most, options.exactly = count(value), letter == "N"
        if options.most is None:
            raise Complaint(f"read: {value}: invalid number")
    elif letter == "t" and not re.fullmatch(r"0*[1-9]\d*(?:\.\d*)?|0?\.0*[1-9]\d*", value):
        raise Abstained(f"read -t {value:.20}")
    elif letter == "u" and value != "0":
        raise Abstained(f"read -u {value:.20}")


_HIDDEN = 0xF0000
"""Code points from here on stand for escaped characters while a line is split."""


def read(here: Environment, command: Simple, rest: list[str]) -> None:
    """Run `read`: split the next line into variables, or into an array.

    Errors: Abstained for unsupported options, for assignments other than `IFS`, and if the
    remaining standard input is unknown.
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
    ifs = " \t\n" if ifs is None else ifs
    if here.streams.stdin.perhaps:
        raise Abstained("read from an input that others read")
    line, ended = _line(here.streams.stdin, options)
    hidden: list[str] = []

    def hide(match: re.Match[str]) -> str:
        hidden.append(match[1])
        return chr(_HIDDEN + len(hidden) - 1)

    def shown(text: str) -> str:
        return re.sub("[\U000f0000-\U000ffffd]", lambda m: hidden[ord(m[0]) - _HIDDEN], text)

    if not options.raw:
        line = re.sub(r"\\(.)", hide, line, flags=re.DOTALL)
        line = line.removesuffix("\\")
    here.status = int(not ended)
    if options.array:
        words = map(shown, _split(line, ifs, None))
        items = {str(place): word for place, word in enumerate(words)}
        name = here.resolved(options.array)
        old = here.value_of(name) or Value()
        here.store(name, Value(None, Array(items), old.flags))
        return
    if not names:
        here.assign("REPLY", shown(line))
        return
    if options.exactly:
        values = [line, *[""] * (len(names) - 1)]
    else:
        values = _split(line, ifs, len(names))
    for name, value in zip(names, values, strict=True):
        base = item_of(name)[0]
        if not (base.isidentifier() and base.isascii()):
            here.complain(f"read: `{name}': not a valid identifier")
            here.status = 1
            return
        here.assign(here.target(name), shown(value))


def _line(stdin: Stdin, options: _Reading) -> tuple[str, bool]:
    """Take the next line, without its end and NUL bytes. Return it, and whether it had an end."""
    if stdin.endless:
        raise Abstained("read from an input that is known in part")
    if options.most is not None:
        text = stdin.data.decode("utf-8", "surrogateescape")
        if not options.raw and "\\" in text[: options.most]:
            raise Abstained("read of some characters with backslashes")
        taken = text[: options.most]
        if not options.exactly:
            taken, end, _ = taken.partition(os.fsdecode(options.end))
            if end:
                stdin.data = os.fsencode(text[len(taken) + 1 :])
                return taken, True
        stdin.data = os.fsencode(text[len(taken) :])
        return taken, len(taken) == options.most
    parts: list[bytes] = []
    while True:
        line, mark, stdin.data = stdin.data.partition(options.end)
        slashes = len(line) - len(line.rstrip(b"\\"))
        if options.raw or not mark or slashes % 2 == 0:
            parts.append(line)
            break
        # an escaped delimiter: it is part of the line, but a newline is removed
        parts.append(line[:-1] if mark == b"\n" else line + mark)
    data = b"".join(parts)
    return os.fsdecode(data if options.end == b"\0" else data.replace(b"\0", b"")), bool(mark)


def fill(here: Environment, values: list[str]) -> None:
    """Run `mapfile` or `readarray`: read the lines of standard input into an array.

    Errors: Abstained for unsupported options, and if the remaining standard input is unknown.
    """
    rest, chosen = values[1:], {"t": "", "d": "\n", "n": "0", "s": "0", "O": ""}
    while rest and re.match("-.", rest[0]):
        word = rest.pop(0)
        letter = word[1]
        if letter == "t" and len(word) == 2:
            chosen["t"] = "t"
            continue
        if letter not in "dnsO" or not (word[2:] or rest):
            raise Abstained(f"{values[0]} {word}")
        value = word[2:] or rest.pop(0)
        if letter != "d" and not value.isdecimal():
            raise Abstained(f"{values[0]} {word} {value:.20}")
        chosen[letter] = value
    stdin = here.streams.stdin
    if len(rest) > 1 or any(not name.isidentifier() for name in rest):
        raise Abstained("mapfile into something other than one array")
    if stdin.endless or stdin.perhaps:
        raise Abstained("mapfile of an unknown input")
    end = os.fsencode(chosen["d"][:1]) or b"\0"
    lines = [os.fsdecode(part.partition(b"\0")[0] + end) for part in stdin.data.split(end)]
    last = lines.pop().removesuffix(os.fsdecode(end))
    lines += [last] if last else []
    skipped, most = int(chosen["s"]), int(chosen["n"])
    taken = lines[skipped : skipped + most] if most else lines[skipped:]
    left = lines[skipped + len(taken) :]
    stdin.data = os.fsencode("".join(left))
    name = here.resolved(rest[0] if rest else "MAPFILE")
    old = here.array(name)
    items = dict(old.items) if chosen["O"] and old is not None else {}
    for number, line in enumerate(taken, int(chosen["O"] or 0)):
        text = line.removesuffix(os.fsdecode(end)) if chosen["t"] or end == b"\0" else line
        items[str(number)] = text.replace("\0", "")
    ordered = dict(sorted(items.items(), key=lambda item: int(item[0])))
    here.store(name, Value(None, Array(ordered)))
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
    # a single trailing separator does not belong to the last word
    match = pattern.search(rest) if others else None
    if match is not None and match.end() == len(rest):
        rest = rest[: match.start()]
    return [*values, rest]
