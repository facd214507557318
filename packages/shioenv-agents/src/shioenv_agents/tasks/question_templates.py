"""Requests for the output of an input, in plain English, by templates for some commands.

A template describes everything that the output depends on. If it does not support an option, there
is no request. Templates of filters describe the effect on lines, so that a pipeline is described
step by step.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, TypeAlias

from shioenv.bash.read import read
from shioenv.bash.scan import Refused
from shioenv.bash.words import plain_words
from shioenv.domain.inputs import Input, Role
from shioenv.grammar.arguments import ArgumentSplitter
from shioenv.grammar.library import load_grammar

_BARE: Final = re.compile(r"[$`\\~{}*?\[\]<>|&;()#!^]")
"""Characters that the shell interprets outside single quotes."""

_QUOTED: Final = re.compile(r"'[^']*'")


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


TEMPLATES: Final[dict[str, PromptTemplate]] = {}
"""The templates of supported commands.

`find` has none: its options follow its operands, so `_find` parses it.
"""


def _tells(
    name: str, letters: str = "", *, filters: bool = False, reads_pipes: bool = False
) -> Callable[[Describe], Describe]:
    """Return a decorator that registers a function as the template of a command."""

    def decorate(describe: Describe) -> Describe:
        TEMPLATES[name] = PromptTemplate(describe, letters, filters, reads_pipes)
        return describe

    return decorate


def asks(shell_input: Input) -> str | None:
    """Return a description of the input's output, as the end of `Print …`.

    None if the templates do not cover all of it. The input is one command, or several joined by
    pipes, without redirections.
    """
    if set(shell_input.operators) - {"|"}:
        return None
    steps: list[str] = []
    for number, (start, stop) in enumerate(shell_input.spans()):
        tokens = shell_input.tokens[start:stop]
        if any(token.role not in (Role.COMMAND, Role.ARGUMENT) for token in tokens):
            return None
        words = _words(Input(tokens).text)
        told = _told(words, number > 0) if words else None
        if told is None:
            return None
        steps.append(told)
    return "; ".join(steps) + "." if steps else None


def _words(text: str) -> list[str] | None:
    """Return the words of a command without shell expansions; None for any other.

    None also for a text that Bash rejects.
    """
    if _BARE.search(_QUOTED.sub("", text)):
        return None
    try:
        read(text)
    except Refused:
        return None
    return plain_words(text)


def _told(words: Sequence[str], piped: bool) -> str | None:
    if words[0] == "find":
        return None if piped else _find(words[1:])
    template = TEMPLATES.get(words[0])
    if template is None:
        return None
    taken = _taken(words[0], words[1:])
    if taken is None or not set(template.letters).issuperset(taken[0]):
        return None
    options, operands = taken
    asked = DescribedRequest(options, operands, piped)
    if not template.filters:
        return None if piped and not template.reads_pipes else template.describe(asked)
    if piped == bool(operands) or "-" in operands:
        return None
    step = template.describe(asked)
    if step is None:
        return None
    if piped:
        return f"of these {step}" if step else None
    whole = ", then those of ".join(f"`{name}`" for name in operands)
    return f"the lines of {whole}; of these {step}" if step else f"the lines of {whole}"


_BLANK, _EMPTY = "\x01", "\x02"
"""Placeholders in words that a grammar parses.

The first represents a space inside a word, which does not separate a name from its value. The
second represents an empty word.
"""


@cache
def _splitter(name: str) -> ArgumentSplitter:
    return ArgumentSplitter(load_grammar(name))


def _taken(name: str, words: Sequence[str]) -> tuple[dict[str, str], list[str]] | None:
    """Parse words into options by short name, and operands, by the command's grammar.

    None for an option that the grammar lacks, and for an option given twice with two values.
    """
    splitter = _splitter(name)
    options: dict[str, str] = {}
    operands: list[str] = []
    ended = False
    hidden = [word.replace(" ", _BLANK) or _EMPTY for word in words]
    for argument in splitter.arguments(hidden):
        text = argument.text
        if argument.joins_left or (text.startswith("-") and text != "-" and not ended):
            if text == "--":
                ended = True
                continue
            option = _option(splitter, text if text[0] == "-" else f"-{text}")
            if option is None or options.get(option[0], _shown(option[1])) != _shown(option[1]):
                return None
            options[option[0]] = _shown(option[1])
        else:
            operands.append(_shown(text))
            ended = ended or not splitter.permutes
    return options, operands


def _shown(text: str) -> str:
    return text.replace(_BLANK, " ").replace(_EMPTY, "")


def _option(splitter: ArgumentSplitter, text: str) -> tuple[str, str] | None:
    """Return the short name of an option, and its value ("" without one).

    None for an option without a short name. None also for a missing or a superfluous value.
    """
    if text.startswith("--"):
        name, sign, value = text[2:].replace(" ", "=", 1).partition("=")
        spec, given = splitter.long(name), bool(sign)
    else:
        spec, value = splitter.shorts.get(text[1]), text[2:].removeprefix(" ")
        given = len(text) > 2
    if spec is None or not spec.shorts or (given, spec.value) in _IMPOSSIBLE:
        return None
    return spec.shorts[0], value


_IMPOSSIBLE = frozenset({(True, "none"), (False, "required")})
"""Invalid pairs: whether a value is given, and whether the option takes one."""


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"\d{1,6}", text) else None


def _lines(count: int) -> str:
    return "line" if count == 1 else f"{count} lines"


@_tells("cat", "n", filters=True)
def _cat(asked: DescribedRequest) -> str | None:
    return "each behind its number and a blank" if asked.has("n") else ""


@_tells("head", "qn", filters=True)
def _head(asked: DescribedRequest) -> str | None:
    text = asked.options.get("n", "10")
    if len(asked.operands) > 1:
        return None
    if text.startswith("-") and (count := _number(text[1:])):
        return f"all but the last {_lines(count)}"
    count = _number(text)
    return f"only the first {_lines(count)}" if count else None


@_tells("tail", "qn", filters=True)
def _tail(asked: DescribedRequest) -> str | None:
    text = asked.options.get("n", "10")
    if len(asked.operands) > 1:
        return None
    if text.startswith("+") and (count := _number(text[1:])):
        return f"those from line {count} on"
    count = _number(text.removeprefix("-"))
    return f"only the last {_lines(count)}" if count else None


_KEY = re.compile(r"(\d)(?:,(\d))?([nr]*)")


@_tells("sort", "rungfhMVdbskt", filters=True)
def _sort(asked: DescribedRequest) -> str | None:
    said = ["in order"]
    if key := asked.options.get("k"):
        match = _KEY.fullmatch(key)
        if match is None or match[1] == "0" or match[2] == "0":
            return None
        end = match[2] or "the last one"
        by = f"field {match[1]}" if end == match[1] else f"the fields {match[1]} to {end}"
        if "n" in match[3]:
            by += ", as numbers"
        if "r" in match[3]:
            by += ", backwards"
        said.append(f"by {by}")
    if "t" in asked.options:
        if "k" not in asked.options:
            return None
        said.append(f"fields end at `{asked.options['t']}`")
    kinds = {
        "n": "as numbers", "g": "as numbers that may have an exponent", "h": "as sizes like 2K",
        "M": "as names of months", "V": "as versions", "f": "ignoring case",
        "d": "by letters, digits and blanks alone", "b": "ignoring blanks in front",
    }  # fmt: skip
    said += [text for letter, text in kinds.items() if asked.has(letter)]
    if asked.has("r"):
        said.append("backwards")
    if asked.has("u"):
        said.append("equal ones only once")
    return ", ".join(said)


@_tells("uniq", "cdui", filters=True)
def _uniq(asked: DescribedRequest) -> str | None:
    if len(asked.operands) > 1:
        return None
    like = ", ignoring case," if asked.has("i") else ""
    if asked.has("d") and asked.has("u"):
        return None
    said = f"neighbours that are equal{like} only once"
    if asked.has("d"):
        said = f"one of all neighbours that are equal{like} and no other"
    elif asked.has("u"):
        said = f"only those that are not equal{like} to a neighbour"
    return f"{said}, each behind how many there were" if asked.has("c") else said


_COUNTED = {"l": "lines", "w": "words", "m": "characters", "c": "bytes", "L": "columns at most"}


@_tells("wc", "lwmcL", reads_pipes=True)
def _wc(asked: DescribedRequest) -> str | None:
    chosen = [word for letter, word in _COUNTED.items() if asked.has(letter)]
    what = " and ".join(chosen or ["lines", "words", "bytes"])
    if asked.piped or not asked.operands:
        return None if asked.operands or not asked.piped else f"of these only how many: {what}"
    names = ", ".join(f"`{name}`" for name in asked.operands)
    total = ", and in the end the total" if len(asked.operands) > 1 else ""
    return f"how many {what} there are in {names}: numbers, then the name, a line each{total}"


@_tells("cut", "sdfcb", filters=True)
def _cut(asked: DescribedRequest) -> str | None:
    kinds = [(letter, asked.options[letter]) for letter in "fcb" if asked.has(letter)]
    if len(kinds) != 1 or not re.fullmatch(r"[\d,-]+", kinds[0][1]):
        return None
    letter, which = kinds[0]
    if letter != "f":
        word = "characters" if letter == "c" else "bytes"
        return None if asked.has("d", "s") else f"only the {word} {which}"
    delimiter = asked.options.get("d", "\t")
    named = "tabs" if delimiter == "\t" else f"`{delimiter}`"
    rest = ", lines without any left out" if asked.has("s") else ""
    return f"only the fields {which}, which are separated by {named}{rest}"


@_tells("grep", "ivxwEFPcnohm", reads_pipes=True)
def _grep(asked: DescribedRequest) -> str | None:
    """The first operand is the pattern; the second is a file, unless lines are piped."""
    if not asked.operands or len(asked.operands) > 2 or asked.operands[-1] == "-":
        return None
    pattern, *files = asked.operands
    if asked.piped == bool(files):
        return None
    step = _matching(asked, pattern)
    if step is None:
        return None
    return f"of these {step}" if asked.piped else f"the lines of `{files[0]}`; of these {step}"


def _matching(asked: DescribedRequest, pattern: str) -> str | None:
    if sum(map(asked.has, "EPF")) > 1:
        return None
    kind = "the text" if asked.has("F") else "the regular expression"
    if asked.has("E"):
        kind = "the extended regular expression"
    if asked.has("P"):
        kind = "the Perl regular expression"
    verb = "do not contain" if asked.has("v") else "contain"
    if asked.has("x"):
        verb = "are not as a whole" if asked.has("v") else "are as a whole"
    said = f"only those that {verb} {kind} `{pattern}`"
    if asked.has("w"):
        said += " as a whole word"
    if asked.has("i"):
        said += ", in capitals or small letters"
    if "m" in asked.options:
        if not _number(asked.options["m"]):
            return None
        said += f", the first {asked.options['m']} at most"
    if asked.has("c"):
        return None if asked.has("o", "n") else f"{said}, and of them only how many they are"
    if asked.has("o"):
        said += ", and of each only the parts that match, a line each"
    if asked.has("n"):
        said += ", each behind its number and a colon"
    return said


@_tells("rev", filters=True)
def _rev(asked: DescribedRequest) -> str | None:
    return "each one backwards, from its last character to its first"


@_tells("fold", "sw", filters=True)
def _fold(asked: DescribedRequest) -> str | None:
    width = _number(asked.options.get("w", "80"))
    if not width:
        return None
    where = "characters, at blanks where there are any" if asked.has("s") else "characters"
    return f"each broken after at most {width} {where}"


@_tells("tr", "ds", reads_pipes=True)
def _tr(asked: DescribedRequest) -> str | None:
    sets = [f"`{one}`" for one in asked.operands]
    if not asked.piped or (asked.has("d") and asked.has("s")):
        return None
    if asked.has("d"):
        return f"of these all without the characters {sets[0]}" if len(sets) == 1 else None
    if asked.has("s"):
        return f"of these all, runs of one of {sets[0]} as a single one" if len(sets) == 1 else None
    return f"of these all with {sets[0]} turned into {sets[1]}" if len(sets) == 2 else None


@_tells("ls", "aAtSrd1p")
def _ls(asked: DescribedRequest) -> str | None:
    if asked.has("t") and asked.has("S"):
        return None
    if asked.has("d"):
        if not asked.operands:
            return None
        what = "the names " + ", ".join(f"`{name}`" for name in asked.operands)
    elif len(asked.operands) > 1:
        return None
    else:
        what = f"the names of what is in `{(asked.operands or ['.'])[0]}`"
    if asked.has("a"):
        what += ", those that begin with a dot and the directory and its parent (`.` and `..`) too"
    elif asked.has("A"):
        what += ", those that begin with a dot too"
    order = "the newest first" if asked.has("t") else "in alphabetical order"
    order = "the largest first" if asked.has("S") else order
    said = f"{what}, a line each, {order}"
    if asked.has("r"):
        said += ", and that backwards"
    if asked.has("p"):
        said += ", a slash behind directories"
    return said


_TYPES = {"f": "regular files", "d": "directories", "l": "symbolic links"}


def _find(arguments: Sequence[str]) -> str | None:
    words, places = list(arguments), []
    while words and not words[0].startswith("-"):
        places.append(words.pop(0))
    if len(places) > 1:
        return None
    said, what = [], "everything"
    while words:
        name = words.pop(0)
        if name == "-print" and not words:
            break
        if name == "-empty":
            said.append("that is empty")
            continue
        if not words:
            return None
        value = words.pop(0)
        if name == "-type" and value in _TYPES and what == "everything":
            what = f"all {_TYPES[value]}"
        elif name in ("-name", "-iname"):
            case = ", in capitals or small letters" if name == "-iname" else ""
            said.append(f"whose name matches the pattern `{value}`{case}")
        elif name == "-maxdepth" and _number(value) is not None:
            said.append(f"at most {value} levels down")
        elif name == "-mindepth" and _number(value) is not None:
            said.append(f"at least {value} levels down")
        elif name == "-user":
            said.append(f"that belongs to {value}")
        else:
            return None
    where = f"`{places[0]}`" if places else "the working directory"
    begins = places[0] if places else "."
    rest = ", ".join(said)
    return (
        f"the paths of {what} in {where} and below, beginning with `{begins}`"
        f"{f', {rest}' if rest else ''}, a line each, in the order in which directories hold them"
    )


@_tells("basename", "as")
def _basename(asked: DescribedRequest) -> str | None:
    names = list(asked.operands)
    suffix = asked.options.get("s", "")
    if not names:
        return None
    if not asked.has("a", "s"):
        if len(names) > 2:
            return None
        suffix = names.pop() if len(names) == 2 else ""
    named = ", ".join(f"`{name}`" for name in names)
    end = f", without `{suffix}` at its end" if suffix else ""
    return f"the last part of the path {named}{end}, a line each"


@_tells("dirname")
def _dirname(asked: DescribedRequest) -> str | None:
    if not asked.operands:
        return None
    named = ", ".join(f"`{name}`" for name in asked.operands)
    return f"the path {named} without its last part, a line each"


@_tells("readlink", "femnqsv")
def _readlink(asked: DescribedRequest) -> str | None:
    if len(asked.operands) != 1:
        return None
    name = f"`{asked.operands[0]}`"
    if asked.has("f", "e", "m"):
        return f"the absolute path that {name} leads to once every symbolic link is followed"
    return f"what the symbolic link {name} holds"


@_tells("du", "sbhkm")
def _du(asked: DescribedRequest) -> str | None:
    if len(asked.operands) > 1 or (asked.has("b") and asked.has("h", "k", "m")):
        return None
    if not asked.has("s", "b") or sum(map(asked.has, "bhkm")) != 1:
        return None
    unit = {"b": "in bytes, as their sizes say", "h": "in powers of 1024, with a letter",
            "k": "in units of 1024 bytes", "m": "in units of 1024 * 1024 bytes"}  # fmt: skip
    letter = next(letter for letter in "bhkm" if asked.has(letter))
    which = "all in" if asked.has("s") else "every directory in"
    name = (asked.operands or ["."])[0]
    return f"how much room {which} `{name}` takes, {unit[letter]}: the number, then the path"


_STAT = {
    "n": "name", "s": "size in bytes", "a": "permissions in octal", "A": "permissions in letters",
    "U": "owner", "G": "group", "u": "owner's number", "g": "group's number",
    "h": "number of hard links", "F": "kind of file in words", "y": "time of last change",
    "Y": "time of last change in seconds since 1970",
}  # fmt: skip


@_tells("stat", "Lc")
def _stat(asked: DescribedRequest) -> str | None:
    form = asked.options.get("c")
    if not form or not asked.operands or asked.has("L"):
        return None
    parts = re.split(r"%(.)", form)
    if any(letter not in _STAT for letter in parts[1::2]) or len(parts) < 3:
        return None
    shown = "".join(part if place % 2 == 0 else f"<{_STAT[part]}>" for place, part in
                    enumerate(parts))  # fmt: skip
    named = ", ".join(f"`{name}`" for name in asked.operands)
    return f"for {named} a line each of this form: `{shown}`"


def _fixed(text: str) -> Describe:
    return lambda asked: None if asked.operands else text


_tells("pwd", "LP")(_fixed("the absolute path of the working directory"))
_tells("whoami")(_fixed("the name of whoever runs this shell"))
_tells("logname")(_fixed("the name of who logged in"))
_tells("arch")(_fixed("the machine's architecture"))
_tells("nproc")(_fixed("the number of processors that can be used"))


_UNAME = {
    "s": "the kernel's name", "n": "the host's name", "r": "the kernel's release",
    "v": "the kernel's version", "m": "the machine's architecture", "o": "the operating system",
}  # fmt: skip


@_tells("uname", "snrvmo")
def _uname(asked: DescribedRequest) -> str | None:
    chosen = [text for letter, text in _UNAME.items() if asked.has(letter)]
    if asked.operands:
        return None
    return f"{' and '.join(chosen or [_UNAME['s']])}, on one line"


@_tells("id", "ugGn")
def _id(asked: DescribedRequest) -> str | None:
    kinds = [letter for letter in "ugG" if asked.has(letter)]
    if len(kinds) != 1 or len(asked.operands) > 1:
        return None
    what = {"u": "user", "g": "group", "G": "groups"}[kinds[0]]
    whom = f"the user {asked.operands[0]}" if asked.operands else "whoever runs this shell"
    kind = "name" if asked.has("n") else "number"
    return f"the {kind} of the {what} of {whom}, on one line"


@_tells("printenv")
def _printenv(asked: DescribedRequest) -> str | None:
    if not asked.operands:
        return None
    named = ", ".join(asked.operands)
    return f"the values of the environment variables {named}, in this order, a line each"


@_tells("groups")
def _groups(asked: DescribedRequest) -> str | None:
    if len(asked.operands) > 1:
        return None
    if asked.operands:
        name = asked.operands[0]
        return f"the user's name `{name}`, a blank, a colon, and the groups of that user"
    return "the names of the groups of whoever runs this shell, on one line"


@_tells("file", "b")
def _file(asked: DescribedRequest) -> str | None:
    if not asked.operands:
        return None
    named = ", ".join(f"`{name}`" for name in asked.operands)
    how = "" if asked.has("b") else ", behind its name and a colon"
    return f"what kind of content {named} holds, as the machine's magic numbers say{how}"


@_tells("comm", "123")
def _comm(asked: DescribedRequest) -> str | None:
    chosen = "".join(letter for letter in "123" if asked.has(letter))
    if len(asked.operands) != 2 or "-" in asked.operands:
        return None
    one, other = asked.operands
    which = {"12": "in both", "23": f"only in `{one}`", "13": f"only in `{other}`"}.get(chosen)
    return which and f"the lines of the sorted files `{one}` and `{other}` that are {which}"
