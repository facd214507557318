"""Descriptions of the outputs of commands, by a template for each command.

A template describes everything that the output depends on. Templates of filters describe a step on
lines, in the imperative, so that a pipeline is described step by step.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from shioenv_agents.tasks.prompt import number_of, word


@dataclass(frozen=True, slots=True)
class DescribedRequest:
    """A command parsed into options and operands."""

    options: Mapping[str, str]
    """Values by the option's short name; "" for one without a value."""
    operands: Sequence[str]
    piped: bool
    """Whether the command reads the lines of the command before it."""

    def has(self, *names: str) -> bool:
        """Whether one of these options is given."""
        return any(name in self.options for name in names)


Describe: TypeAlias = Callable[[DescribedRequest], str | None]


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    """The description of one command's output."""

    describe: Describe
    letters: str
    """The options that the template supports, by their short names."""
    filters: bool
    """Whether the operands are files, and the template describes the effect on their lines."""
    reads_pipes: bool
    """For a template that is no filter: whether it also describes lines from a pipe."""
    patterns: int
    """For a filter, the number of operands before the files."""


TEMPLATES: Final[dict[str, PromptTemplate]] = {}
"""The templates of supported commands.

`find` has none: its options follow its operands, so `found_paths` parses it.
"""


def template(
    name: str,
    letters: str = "",
    *,
    filters: bool = False,
    reads_pipes: bool = False,
    patterns: int = 0,
) -> Callable[[Describe], Describe]:
    """Return a decorator that registers a function as the template of a command."""

    def decorate(describe: Describe) -> Describe:
        TEMPLATES[name] = PromptTemplate(describe, letters, filters, reads_pipes, patterns)
        return describe

    return decorate


def listed(names: Iterable[str], between: str = ", ") -> str:
    """Return words in backquotes, with a text between them."""
    return between.join(f"`{word(name)}`" for name in names)


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"\d{1,6}", text) else None


def _lines(count: int) -> str:
    return "line" if count == 1 else f"{count} lines"


@template("cat", "n", filters=True)
def _cat(asked: DescribedRequest) -> str | None:
    return "put its number and a space before each line" if asked.has("n") else ""


@template("head", "qn", filters=True)
def _head(asked: DescribedRequest) -> str | None:
    text = asked.options.get("n", "10")
    if len(asked.operands) > 1:
        return None
    if text.startswith("-") and (count := _number(text[1:])):
        return f"drop the last {_lines(count)}"
    count = _number(text)
    return f"keep only the first {_lines(count)}" if count else None


@template("tail", "qn", filters=True)
def _tail(asked: DescribedRequest) -> str | None:
    text = asked.options.get("n", "10")
    if len(asked.operands) > 1:
        return None
    if text.startswith("+") and (count := _number(text[1:])):
        return f"keep only the lines from line {count} on"
    count = _number(text.removeprefix("-"))
    return f"keep only the last {_lines(count)}" if count else None


_KEY = re.compile(r"(\d)(?:,(\d))?([nr]*)")


@template("sort", "rungfhMVdbskt", filters=True)
def _sort(asked: DescribedRequest) -> str | None:
    wording = ["sort the lines"]
    if key := asked.options.get("k"):
        match = _KEY.fullmatch(key)
        if match is None or match[1] == "0" or match[2] == "0":
            return None
        if match[2] is None:
            by = f"the text from field {match[1]} to the end of the line"
        elif match[2] == match[1]:
            by = f"field {match[1]}"
        else:
            by = f"fields {match[1]} to {match[2]}"
        wording[0] += f" by {by}"
        wording += ["as numbers"] if "n" in match[3] else []
        wording += ["in reverse order"] if "r" in match[3] else []
        if match[3] and asked.has(*"nghMVfdbr"):  # the key does not inherit these
            return None
    if "t" in asked.options:
        if "k" not in asked.options:
            return None
        wording.append(f"with `{word(asked.options['t'])}` between fields")
    kinds = {
        "n": "as numbers", "g": "as numbers that may have an exponent",
        "h": "as sizes such as 2K and 1G", "M": "as names of months", "V": "as version numbers",
        "f": "ignoring case", "d": "comparing only letters, digits and blanks",
        "b": "ignoring leading blanks",
    }  # fmt: skip
    wording += [text for letter, text in kinds.items() if asked.has(letter)]
    if asked.has("r"):
        wording.append("in reverse order")
    if asked.has("s"):
        wording.append("leaving equal lines in their original order")
    if asked.has("u"):
        wording.append("keeping only the first of equal lines")
    return ", ".join(wording)


@template("uniq", "cdui", filters=True)
def _uniq(asked: DescribedRequest) -> str | None:
    if len(asked.operands) > 1 or (asked.has("d") and asked.has("u")):
        return None
    case = ", ignoring case" if asked.has("i") else ""
    wording = f"merge adjacent equal lines into one{case}"
    if asked.has("d"):
        wording += ", and drop the lines that were not repeated"
    elif asked.has("u"):
        wording = f"keep only the lines that equal neither adjacent line{case}"
    return (
        f"{wording}, with the number of merged lines and a space before each"
        if asked.has("c")
        else wording
    )


_COUNTED = {
    "l": "lines", "w": "words", "m": "characters", "c": "bytes", "L": "columns of the longest line",
}  # fmt: skip


@template("wc", "lwmcL", reads_pipes=True)
def _wc(asked: DescribedRequest) -> str | None:
    chosen = [text for letter, text in _COUNTED.items() if asked.has(letter)]
    what = _and(chosen or ["lines", "words", "bytes"])
    number = "number" if len(chosen) == 1 else "numbers"
    if "-" in asked.operands:
        return None
    if asked.piped or not asked.operands:
        if asked.operands or not asked.piped:
            return None
        return (
            f"replace everything by the {number} of {what}{', on one line' * (number[-1] == 's')}"
        )
    if len(asked.operands) == 1:
        return f"the {number} of {what} in {listed(asked.operands)}, then its name, on one line"
    return (
        f"the {number} of {what} in each of {listed(asked.operands)}, one line per file, each "
        "ending with the file's name, and then a line with the sums, ending with `total`"
    )


def _and(parts: Sequence[str]) -> str:
    """Join parts as an enumeration in English."""
    return " and ".join((", ".join(parts[:-1]), parts[-1])) if len(parts) > 1 else parts[0]


@template("cut", "sdfcb", filters=True)
def _cut(asked: DescribedRequest) -> str | None:
    kinds = [(letter, asked.options[letter]) for letter in "fcb" if asked.has(letter)]
    if len(kinds) != 1 or not re.fullmatch(r"[\d,-]+", kinds[0][1]):
        return None
    letter, which = kinds[0]
    noun = {"f": "field", "c": "character", "b": "byte"}[letter]
    wording = f"keep only {noun if which.isdecimal() else f'{noun}s'} {which} of each line"
    if letter != "f":
        return None if asked.has("d", "s") else wording
    delimiter = asked.options.get("d", "\t")
    if not delimiter:  # a NUL
        return None
    named = "a tab" if delimiter == "\t" else f"`{word(delimiter)}`"
    rest = "dropping lines without it" if asked.has("s") else "leaving lines without it as they are"
    return f"{wording}, with {named} between fields, {rest}"


@template("grep", "ivxwEFPcnohm", filters=True, patterns=1)
def _grep(asked: DescribedRequest) -> str | None:
    """The first operand is the pattern; the second is a file, unless lines are piped."""
    if len(asked.operands) > 2 or sum(map(asked.has, "EPF")) > 1:
        return None
    kind = "basic regular expression"
    if asked.has("E"):
        kind = "extended regular expression"
    if asked.has("P"):
        kind = "Perl-compatible regular expression"
    verb = ("match", "do not match")[asked.has("v")]
    if asked.has("F"):
        kind = "text"
        verb = ("contain", "do not contain")[asked.has("v")]
    if asked.has("x") and asked.has("F"):
        verb = ("are exactly", "are not exactly")[asked.has("v")]
    wording = f"that {verb} the {kind} `{word(asked.operands[0])}`"
    if asked.has("x") and not asked.has("F"):
        wording += " as a whole"
    elif asked.has("w") and not asked.has("x"):
        wording += " as a whole word"
    if asked.has("i"):
        wording += ", ignoring case"
    if "m" in asked.options:
        count = _number(asked.options["m"])
        if not count:
            return None
        wording += ", at most the first one" if count == 1 else f", at most the first {count}"
    if asked.has("c"):
        return (
            None if asked.has("o", "n") else f"replace everything by the number of lines {wording}"
        )
    wording = f"keep only the lines {wording}"
    if asked.has("o"):
        wording += ", and of these only the matching parts, one per line"
    if asked.has("n"):
        wording += ", with the number of the original line and a colon before each"
    return wording


@template("rev", filters=True)
def _rev(asked: DescribedRequest) -> str | None:
    return "reverse the order of the characters in each line"


@template("fold", "sw", filters=True)
def _fold(asked: DescribedRequest) -> str | None:
    width = _number(asked.options.get("w", "80"))
    if not width:
        return None
    where = ", at blanks if possible" if asked.has("s") else ""
    return f"break each line into pieces of at most {number_of(width, 'column')}{where}"


@template("tr", "ds", reads_pipes=True)
def _tr(asked: DescribedRequest) -> str | None:
    sets = [f"`{word(one)}`" for one in asked.operands]
    if not asked.piped or (asked.has("d") and asked.has("s")):
        return None
    if asked.has("d"):
        return f"delete the characters of the set {sets[0]}" if len(sets) == 1 else None
    if asked.has("s"):
        if len(sets) != 1:
            return None
        return f"replace repetitions of a character of the set {sets[0]} by that character"
    if len(sets) != 2:
        return None
    return f"replace the characters of the set {sets[0]} by those of the set {sets[1]}, in order"


@template("ls", "aAtSrd1p")
def _ls(asked: DescribedRequest) -> str | None:
    if asked.has("t") and asked.has("S"):
        return None
    if asked.has("d"):
        if not asked.operands:
            return None
        what = f"the names {listed(asked.operands)}"
    elif len(asked.operands) > 1:
        return None
    else:
        what = f"the names of the entries of `{word((asked.operands or ['.'])[0])}`, "
        if asked.has("a"):
            what += "including `.`, `..` and others that begin with a dot"
        else:
            what += f"{'in' if asked.has('A') else 'ex'}cluding those that begin with a dot"
    orders = ("in alphabetical order", "in reverse alphabetical order")
    if asked.has("t"):
        orders = ("the newest first", "the oldest first")
    elif asked.has("S"):
        orders = ("the largest first", "the smallest first")
    wording = f"{what}, one per line, {orders[asked.has('r')]}"
    if asked.has("p"):
        wording += ", with a slash after each directory's name"
    return wording


_TYPES = {"f": "regular files", "d": "directories", "l": "symbolic links"}


def found_paths(arguments: Sequence[str]) -> str | None:
    """Return the description of the paths that a search prints; None if it is not supported."""
    words, places = list(arguments), []
    while words and not words[0].startswith("-"):
        places.append(words.pop(0))
    if len(places) > 1:
        return None
    where = f"`{word((places or ['.'])[0])}`"
    wording, what = [], "all files of any type"
    while words:
        name = words.pop(0)
        if name == "-print" and not words:
            break
        if name == "-empty":
            wording.append("that are empty")
            continue
        if not words:
            return None
        value = words.pop(0)
        if name == "-type" and value in _TYPES and what not in _TYPES.values():
            what = _TYPES[value]
        elif name in ("-name", "-iname"):
            case = " (ignoring case)" if name == "-iname" else ""
            wording.append(f"whose names match the shell pattern `{word(value)}`{case}")
        elif name == "-maxdepth" and _number(value) is not None:
            wording.append(f"at most {number_of(int(value), 'level')} below it")
        elif name == "-mindepth" and _number(value) is not None:
            wording.append(f"at least {number_of(int(value), 'level')} below it")
        elif name == "-user":
            wording.append(f"that belong to the user `{word(value)}`")
        else:
            return None
    what = what if what.startswith("all") else f"all {what}"
    return (
        f"the paths of {what} among {where} and everything below it"
        f"{''.join(f', {one}' for one in wording)}, each path beginning with {where}, one per "
        "line, unsorted, in directory order"
    )


@template("basename", "as")
def _basename(asked: DescribedRequest) -> str | None:
    names = list(asked.operands)
    suffix = asked.options.get("s", "")
    if not names:
        return None
    if not asked.has("a", "s"):
        if len(names) > 2:
            return None
        suffix = names.pop() if len(names) == 2 else ""
    end = f", without `{word(suffix)}` at its end" if suffix else ""
    return f"the last component of {_paths(names)}{end}"


def _paths(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"the path `{word(names[0])}`"
    return f"each of the paths {listed(names)}, one per line"


@template("dirname")
def _dirname(asked: DescribedRequest) -> str | None:
    if not asked.operands:
        return None
    if len(asked.operands) == 1:
        return f"{_paths(asked.operands)} without its last component"
    return f"the paths {listed(asked.operands)} without their last components, one per line"


@template("readlink", "femnqsv")
def _readlink(asked: DescribedRequest) -> str | None:
    if len(asked.operands) != 1:
        return None
    name = f"`{word(asked.operands[0])}`"
    if asked.has("f", "e", "m"):
        exists = ", which need not exist" if asked.has("m") else ""
        return f"the absolute path of {name}{exists}, with all symbolic links resolved"
    return f"the target of the symbolic link {name}"


@template("du", "sbhkm")
def _du(asked: DescribedRequest) -> str | None:
    if len(asked.operands) > 1 or (asked.has("b") and asked.has("h", "k", "m")):
        return None
    if not asked.has("s", "b") or sum(map(asked.has, "bhkm")) != 1:
        return None
    units = {
        "b": "in bytes", "h": "in powers of 1024 with a unit letter, such as 1.5K",
        "k": "in units of 1024 bytes", "m": "in units of 1048576 bytes, rounded up",
    }  # fmt: skip
    unit = next(text for letter, text in units.items() if asked.has(letter))
    size = "total apparent size" if asked.has("b") else "total disk usage"
    name = f"`{word((asked.operands or ['.'])[0])}`"
    if asked.has("s"):
        return f"the {size} of {name}, {unit}, then its path, on one line"
    return (
        f"the {size} of each directory in {name} and of {name} itself, {unit}, then its path, one "
        "line each, in directory order, each directory after those that it contains"
    )


_STAT = {
    "n": "name", "s": "size in bytes", "a": "permissions in octal", "A": "permissions in letters",
    "U": "owner", "G": "group", "u": "user ID of the owner", "g": "group ID",
    "h": "number of hard links", "F": "file type in words", "y": "modification time",
    "Y": "modification time in seconds since 1970",
}  # fmt: skip


@template("stat", "Lc")
def _stat(asked: DescribedRequest) -> str | None:
    form = asked.options.get("c")
    if not form or not form.isprintable() or not asked.operands or asked.has("L"):
        return None
    parts = re.split(r"%(.)", form)
    if any(letter not in _STAT for letter in parts[1::2]) or len(parts) < 3:
        return None
    shown = "".join(part if place % 2 == 0 else f"<{_STAT[part]}>" for place, part in
                    enumerate(parts))  # fmt: skip
    each = "each of " if len(asked.operands) > 1 else ""
    return f'one line of the form "{shown}" for {each}{listed(asked.operands)}'


def _fixed(text: str) -> Describe:
    return lambda asked: None if asked.operands else text


template("pwd", "LP")(_fixed("the absolute path of the working directory"))
template("whoami")(_fixed("your user name"))
template("logname")(_fixed("the name of the user who logged in"))
template("arch")(_fixed("the hardware architecture of the machine"))
template("nproc")(_fixed("the number of available processors"))


_UNAME = {
    "s": "the name of the kernel", "n": "the host name", "r": "the release of the kernel",
    "v": "the version of the kernel", "m": "the hardware architecture of the machine",
    "o": "the name of the operating system",
}  # fmt: skip


@template("uname", "snrvmo")
def _uname(asked: DescribedRequest) -> str | None:
    chosen = [text for letter, text in _UNAME.items() if asked.has(letter)] or [_UNAME["s"]]
    if asked.operands:
        return None
    return _and(chosen) + (", in this order on one line" if len(chosen) > 1 else "")


@template("id", "ugGn")
def _id(asked: DescribedRequest) -> str | None:
    kinds = [letter for letter in "ugG" if asked.has(letter)]
    if len(kinds) != 1 or len(asked.operands) > 1:
        return None
    whom = f" of the user `{word(asked.operands[0])}`" if asked.operands else ""
    kind, whose = "name" if asked.has("n") else "numeric ID", "the" if whom else "your"
    if kinds[0] == "u":
        return f"the {kind}{whom}" if whom else f"your user {kind.removeprefix('numeric ')}"
    if kinds[0] == "g":
        return f"the {kind} of {whose} primary group{whom}"
    return f"the {kind}s of {whose} groups{whom}, the primary group first, on one line"


@template("printenv")
def _printenv(asked: DescribedRequest) -> str | None:
    if not asked.operands:
        return None
    if len(asked.operands) == 1:
        return f"the value of the environment variable {listed(asked.operands)}"
    named = listed(asked.operands)
    return f"the values of the environment variables {named}, in this order, one per line"


@template("groups")
def _groups(asked: DescribedRequest) -> str | None:
    if len(asked.operands) > 1:
        return None
    if asked.operands:
        name = word(asked.operands[0])
        return (
            f"the user name `{name}`, a colon, and the names of that user's groups, the primary "
            "group first, on one line"
        )
    return "the names of your groups, the primary group first, on one line"


@template("file", "b")
def _file(asked: DescribedRequest) -> str | None:
    if not asked.operands or "-" in asked.operands:
        return None
    how = "" if asked.has("b") else ", after its name and a colon"
    if len(asked.operands) == 1:
        return f"the type of {listed(asked.operands)}, as determined from its content{how}"
    return (
        f"the type of each of {listed(asked.operands)}, as determined from its content, one per "
        f"line{how}"
    )


@template("comm", "123")
def _comm(asked: DescribedRequest) -> str | None:
    chosen = "".join(letter for letter in "123" if asked.has(letter))
    if len(asked.operands) != 2 or "-" in asked.operands:
        return None
    one, other = (f"`{word(name)}`" for name in asked.operands)
    which = {"12": "in both", "23": f"only in {one}", "13": f"only in {other}"}.get(chosen)
    return which and f"the lines of the sorted files {one} and {other} that are {which}"
