"""A first grammar of a command, written from the target system's own help text.

The draft has every option with values of a likely kind, and operands as the usage line shows them.
It has one example that was run, or two. The draft passes `grammar check`. Its author is left to
choose values that make a difference.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias

from shioenv.errors import GrammarError, nearest
from shioenv.grammar.help import HelpOption, read_help
from shioenv.grammar.library import shipped_headers

Execute: TypeAlias = Callable[[str], tuple[int, str]]
"""Runs an input on the target system: its exit code and its output."""

_VALUES: Mapping[str, str] = {
    metavar: value
    for value, metavars in {
        "<TarFile>": "ARCHIVE",
        "<count>": "BLOCKS COUNT LINES N NUM NUMBER",
        "<bytes>": "BYTES",
        "<delimiter>": "CHAR CHARACTER DELIM",
        "<width>": "COLS COLUMNS WIDTH",
        "<backup>": "CONTROL",
        "<timestamp>": "DATE TIME",
        "<Interface>": "DEV IFNAME INTERFACE",
        "<BlockDevice>": "DEVICE",
        "<Directory>": "DIR DIRECTORY",
        "<TextFile>": "F FILE FILENAME PATH RFILE",
        "<Glob>": "GLOB PATTERN",
        "<Groupname>": "GROUP",
        "<Hostname>": "HOST",
        "<mode>": "MODE",
        "<Pattern>": "PATTERNS",
        "<Pid>": "PID",
        "<small>": "SECONDS",
        "<size>": "SIZE",
        "<stamp>": "STAMP",
        "<suffix>": "SUFFIX",
        "<Username>": "USER",
        "<when>": "WHEN",
    }.items()
    for metavar in metavars.split()
}
"""The shared definition or system token for each name that help texts have for values."""

_OPERANDS: tuple[tuple[str, str, str, str], ...] = (
    (r"FILE|file", "<files>", "documents/notes.txt", "file*"),
    (r"DIR|dir|path|PATH|NAME", "<paths>", "documents", "path*"),
    (r"STRING|string|arg|ARG|TEXT", "<Word>*", "the", "text*"),
    (r"USER|user", "<Username>", "root", "user?"),
    (r"DEV|dev", "<Interface>", "lo", "interface?"),
)
"""Operands that usage lines have.

Each has its names there (a pattern), its notation in the draft, its text in the example, and its
role in the header."""

_INDENT = 38


def _instead(command: str, execute: Execute) -> str:
    """The hint for a command that the system does not have: what to draft instead."""
    name = command.rpartition("/")[2].removesuffix(".grammar")
    if name != command:
        return f"name the command, not a file: shioenv grammar draft {name} > {command}"
    like = nearest(command, execute("compgen -c")[1].split())
    return (
        f"did you mean {like}?" if like else "shioenv run 'compgen -c' lists the system's commands"
    )


def draft(command: str, execute: Execute, *, package: str, version: str) -> str:
    """The text of a first grammar file of `command`.

    `package` is the package that ships the command, `version` that package's version; both are for
    the header. Errors: GrammarError where the system has no command of the name up to its first
    dash.
    """
    known, _ = execute(f"type -t {command.partition('-')[0]}")
    if known:
        raise GrammarError(
            f"the system has no command {command!r}", hint=_instead(command, execute)
        )
    builtin = execute(f"type -t {command}")[1].strip() == "builtin"
    shipped = shipped_headers().get(command)
    asking = f"help {command}" if builtin else f"{command} --help"
    if shipped is not None and shipped.traits.help:
        asking = shipped.traits.help
    _, text = execute(f"{asking} 2>&1")
    return "\n".join(_lines(command, asking, text, execute, package, version)) + "\n"


def _lines(
    command: str, asking: str, text: str, execute: Execute, package: str, version: str
) -> Iterator[str]:
    options = read_help(command, text).options
    operand, example, roles = _operand(command, text)
    token = command.replace("-", " ", 1) if command.startswith("ip-") else command
    dashed = list(_with_names(options, "-"))
    plain = list(_with_names(options, ""))
    start = [token, *(["<word>*"] if plain else []), "<option>*", *([operand] if operand else [])]
    if not dashed:
        start.remove("<option>*")
    yield f"# {_summary(command, text)}"
    yield f"command   {command}"
    yield f"manual    {command}(1), {package} {version}"
    yield f"package   {package}"
    yield "volatile  no"
    if roles:
        yield f"operands  {roles}"
    yield ""
    yield "start     " + " ".join(start)
    values: dict[str, str] = {}
    if dashed:
        yield ""
        yield "options"
        for option in dashed:
            yield from _option_lines(option, values)
    if plain:
        yield ""
        yield "<word> ="
        for option in plain:
            yield f"  {_word(option, values)}"
    if values:
        yield ""
        yield "# Values still to be chosen: what makes a difference on the system?"
        for name, texts in values.items():
            yield f"<{name}> = {texts}"
    yield ""
    yield from _example(token, example, execute)
    if any("--help" in option.names and option.value == "none" for option in dashed):
        yield from _example(token, f"--help {example}".strip(), execute)


def _with_names(options: Iterable[HelpOption], dash: str) -> Iterator[HelpOption]:
    """The options with only their names that begin with a dash, or that do not if `dash` is ""."""
    for option in options:
        names = tuple(name for name in option.names if name.startswith("-") == bool(dash))
        if names:
            yield replace(option, names=names)


def _summary(command: str, text: str) -> str:
    """The sentence of the help text that says what the command does."""
    for line in text.splitlines():
        bare = line.strip()
        if re.match(r"[A-Z][a-z]+ .*[a-z]", bare) and not bare.lower().startswith(("usage", "try")):
            return bare.rstrip(".:") + "."
    return f"What {command} does."


def _operand(command: str, text: str) -> tuple[str, str, str]:
    """The operands behind the options, by the usage line: notation, example's text and roles."""
    usage = next((line for line in text.splitlines() if re.search(rf"\b{command}\b.*\[", line)), "")
    rest = re.sub(r"\[?OPTIONS?\]?|\[options\]", "", usage.partition(command)[2])
    for pattern, items, example, roles in _OPERANDS:
        if re.search(rf"\b(?:{pattern})", rest):
            return items, example, roles
    return "", "", ""


def _option_lines(option: HelpOption, values: dict[str, str]) -> Iterator[str]:
    """The lines of a block for an option; the option `-NUM` has a line of its own."""
    names = [name for name in option.names if name != "-NUM"]
    if option.any_of:
        names = [max(names, key=len)] if len(names[0]) > 2 else names[:1]
    if "-NUM" in option.names:
        yield "  -<count>"
    if not names:
        return
    value = _value(option, values) if option.value != "none" else ""
    long = any(name.startswith("--") for name in names)
    if option.value == "required":
        ending = f"={value}" if long else f" {value}"
    else:
        ending = f"[{'=' if long else ''}{value}]" if value else ""
    line = f"  {', '.join(names)}{ending}"
    rare = {"--help", "--version", "--usage"} & set(names)
    yield f"{line:<{_INDENT}}  %weight 0.15" if rare else line


def _word(option: HelpOption, values: dict[str, str]) -> str:
    """A word without a dash: `bs=<bytes>`, or in braces with its value: `{dev <Interface>}`."""
    name = option.names[0]
    if option.value == "none":
        return name
    value = _value(option, values) if option.metavar else _named(name, values)
    return f"{name}{value}" if name.endswith("=") else f"{{{name} {value}}}"


def _value(option: HelpOption, values: dict[str, str]) -> str:
    """A nonterminal for the value; a nonterminal still to be defined is noted in `values`."""
    metavar = option.metavar.upper()
    if metavar in _VALUES:
        return _VALUES[metavar]
    for part in re.findall(r"[A-Z]+", metavar):
        if part in _VALUES and len(part) > 1:
            return _VALUES[part]
    choices = re.findall(r"[A-Za-z][\w-]*", option.metavar) if "|" in option.metavar else []
    return _named(option.names[-1], values, " | ".join(dict.fromkeys(choices)))


def _named(name: str, values: dict[str, str], texts: str = "") -> str:
    """A nonterminal called after the option, noted in `values` with texts to begin with."""
    base = re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-")
    base = f"{base}-value" if base[:1].isalpha() else f"option-{base}-value".replace("--", "-")
    values.setdefault(base, texts or "<Word> | <count>")
    return f"<{base}>"


def _example(token: str, words: str, execute: Execute) -> Iterator[str]:
    """The lines of an example that was run, with its exit code and a line of its output."""
    text = f"{token} {words}".strip()
    exit_code, output = execute(text)
    yield f"example {text}"
    if exit_code:
        yield f"  exit {exit_code}"
    lines = (line for line in output.splitlines() if line and line == line.strip())
    line = next(lines, "")
    if line and line.isprintable() and len(line) < 60:
        yield f"  prints {line}"
