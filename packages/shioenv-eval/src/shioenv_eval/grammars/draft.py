"""First drafts of grammars, from the target system's help texts and manual pages.

The draft has every option with values of a likely kind, and operands as in the usage lines. It has
one or two examples that were run. Comments mark the guesses. The draft passes `grammar check`. Its
author still has to choose values that make a difference.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from shioenv.bash.words import quoted
from shioenv.errors import GrammarError, nearest
from shioenv.grammar.library import shipped_headers
from shioenv_eval.grammars.help import HelpOption, read_help
from shioenv_eval.grammars.synopsis import UsageForm, named_values, usage_forms

Execute: TypeAlias = Callable[[str], tuple[int, str]]
"""Runs an input on the target system and returns its exit code and its output."""

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
"""The shared definition or system token for each name of a value in help texts."""

_OPERANDS: tuple[tuple[str, str, str, str, str], ...] = (
    (r"OUT(?:FILE|PUT)?|DEST(?:INATION)?|TARGET", "<NewFile>", "<NewFile>+", "new.txt", ""),
    (r"\w*FILE(?:NAME)?|INPUT|SOURCE|SRC", "<TextFile>", "<files>", "documents/notes.txt", "file"),
    (r"DIR(?:ECTORY)?", "<Directory>", "<Directory>+", "documents", ""),
    (r"PATH(?:NAME)?|NAME", "<path-operand>", "<paths>", "documents", "path"),
    (r"STRING|ARG(?:UMENT)?|TEXT|WORD|MESSAGE|SET", "<Word>", "<Word>+", "the", "text"),
    (r"USER(?:NAME)?|LOGIN", "<Username>", "<Username>+", "root", "user"),
    (r"GROUP", "<Groupname>", "<Groupname>+", "root", ""),
    (r"DEV(?:ICE)?|INTERFACE|IFACE", "<Interface>", "<Interface>+", "lo", "interface"),
    (r"HOST(?:NAME)?", "<Hostname>", "<Hostname>+", "localhost", ""),
    (r"PID", "<Pid>", "<Pid>+", "1", ""),
    (r"PATTERN|REGEXP?", "<Pattern>", "<Pattern>+", "the", ""),
    (r"NUM(?:BER)?|N|COUNT|FIRST|LAST|INCREMENT|SKIP|LIMIT|SECONDS?", "<number>", "<number>+", "3",
     "number"),
)  # fmt: skip
"""Operands in usage lines.

Each entry has a pattern of its names, its notation for a single occurrence, and its notation for
repetition. Its text in the example and its role in the header follow."""

_ANYTHING = "<Word> | <count>"

_INDENT = 38


def _instead(command: str, execute: Execute) -> str:
    """Return the hint for a command that the system lacks: what to draft instead."""
    name = command.rpartition("/")[2].removesuffix(".grammar")
    if name != command:
        return f"give the name of the command: shioenv grammar draft {name} > {command}"
    like = nearest(command, execute("compgen -c")[1].split())
    return (
        f"did you mean {like}?"
        if like
        else "shioenv run 'compgen -c' lists all commands of the system"
    )


def draft_grammar(
    command: str, execute: Execute, *, package: str, version: str, manual: str = ""
) -> str:
    """Write the text of a first grammar file for `command`.

    `package` is the command's package, `version` that package's version; both are for the header.
    `manual` is the text of its manual page (`manual_text`), used for operands, options and values
    that the help lacks. Errors: GrammarError if the system has no command of this name, nor of the
    name up to its first dash.
    """
    whole = execute(f"type -t -- {quoted(command)}")[1].strip()
    known = 0 if whole else execute(f"type -t -- {quoted(command.partition('-')[0])}")[0]
    if known:
        raise GrammarError(
            f"the system has no command {command!r}", hint=_instead(command, execute)
        )
    shipped = shipped_headers().get(command)
    asking = [f"help {command}"] if whole == "builtin" else [f"{command} --help", f"{command} -h"]
    if shipped is not None and shipped.traits.help:
        asking = [shipped.traits.help]
    text = ""
    for asked in asking:
        _, told = execute(f"{asked} 2>&1 < /dev/null")
        text = text or told
        if read_help(command, told).options or usage_forms(command, told):
            text = told
            break
    return "\n".join(_lines(command, text, manual, execute, package, version)) + "\n"


def _lines(
    command: str, text: str, manual: str, execute: Execute, package: str, version: str
) -> Iterator[str]:
    guessed: list[str] = []
    options = read_help(command, text).options
    if manual and not options:
        options = read_help(command, manual).options
        if options:
            guessed.append("the options are from the manual page, since the help text lists none")
    values: dict[str, str] = {}
    forms = _forms(command, text, manual, values, guessed)
    token = command.replace("-", " ", 1) if command.startswith("ip-") else command
    dashed = list(_with_names(options, "-"))
    plain = list(_with_names(options, ""))
    fixed = [token, *(["<word>*"] if plain else []), *(["<option>*"] if dashed else [])]
    roles = {form.role for form in forms}
    yield f"# {_summary(command, text)}"
    yield f"command   {command}"
    yield f"manual    {command}(1), {package} {version}"
    yield f"package   {package}"
    yield "volatile  no"
    if len(forms) == 1 and (role := roles.pop()):
        yield f"operands  {role}"
    yield ""
    for form in forms:
        yield "start     " + " ".join([*fixed, *form.notation])
    told = f"{text}\n{manual}"
    blocks: list[str] = []
    if dashed:
        blocks += ["", "options"]
        for option in dashed:
            blocks += _option_lines(option, values, told)
    if plain:
        blocks += ["", "<word> ="]
        blocks += [f"  {_word(option, values, told)}" for option in plain]
    yield from blocks
    if values:
        yield ""
        yield "# To do: choose values that behave differently on the system."
        for name, texts in values.items():
            yield f"<{name}> = {texts}"
            if texts == _ANYTHING:
                guessed.append(f"<{name}> is any word or number")
    if guessed:
        yield ""
        yield "# Guesses, to be checked first:"
        yield from (f"# - {guess}" for guess in guessed)
    example = forms[0].example
    yield ""
    yield from _example(token, example, execute)
    if any("--help" in option.names and option.value == "none" for option in dashed):
        yield from _example(token, f"--help {example}".strip(), execute)


@dataclass(frozen=True, slots=True)
class _DraftedForm:
    """The operands of one start line: notation, texts of the example, role in the header."""

    notation: tuple[str, ...] = ()
    example: str = ""
    role: str = ""


def _forms(
    command: str, text: str, manual: str, values: dict[str, str], guessed: list[str]
) -> list[_DraftedForm]:
    """Return one form per usage line of the help, else of the manual; at least an empty one."""
    usage = usage_forms(command, text)
    if not any(form.operands for form in usage):
        usage = usage_forms(command, manual) or usage
    forms: dict[tuple[str, ...], _DraftedForm] = {}
    for form in usage:
        drafted = _drafted(form, values, guessed)
        if drafted.notation not in forms:
            forms[drafted.notation] = drafted
            said = " ".join(form.text.split())
            if form.operands and len(said) < 120 and said.isprintable():
                guessed.append(
                    f"operands {' '.join(drafted.notation)}, from the usage `{command} {said}`"
                )
    if not usage:
        guessed.append("no operands, since there is no usage line")
    return list(forms.values()) or [_DraftedForm()]


def _drafted(form: UsageForm, values: dict[str, str], guessed: list[str]) -> _DraftedForm:
    notation: list[str] = []
    texts: list[str] = []
    role = ""
    for operand in form.operands:
        name = operand.name.upper().rstrip("S0123456789") or operand.name.upper()
        known = next((row for row in _OPERANDS if re.fullmatch(row[0], name)), None)
        if known is not None:
            _, once, often, example, role = known
        else:
            once = _named(operand.name, values)
            often, example, role = f"{once}+", "the", ""
        if operand.repeated:
            notation.append(often if often.endswith((">", "+")) else f"{often}+")
            if operand.optional and often.endswith("+"):
                notation[-1] = f"{often[:-1]}*"
        else:
            notation.append(f"{once}?" if operand.optional else once)
        if not operand.optional or not texts:
            texts.append(example)
    if len(form.operands) != 1 or not role:
        return _DraftedForm(tuple(notation), " ".join(texts))
    sign = "*" if form.operands[0].repeated else "?"
    return _DraftedForm(tuple(notation), " ".join(texts), f"{role}{sign}")


def _with_names(options: Iterable[HelpOption], dash: str) -> Iterator[HelpOption]:
    """Yield the options with those names that begin with a dash, or, if not `dash`, the others."""
    for option in options:
        names = tuple(name for name in option.names if name.startswith("-") == bool(dash))
        if names:
            yield replace(option, names=names)


def _summary(command: str, text: str) -> str:
    """Return the sentence of the help text that describes the command."""
    for line in text.splitlines():
        bare = line.strip()
        sentence = re.match(r"[A-Z][a-z]+ .*[a-z]", bare) and "\t" not in bare
        if sentence and not bare.lower().startswith(("usage", "try")):
            return bare.rstrip(".:") + "."
    return f"What {command} does."


def _option_lines(option: HelpOption, values: dict[str, str], told: str) -> Iterator[str]:
    """Yield a block's lines for an option; the option `-NUM` has a separate line."""
    names = [name for name in option.names if name != "-NUM"]
    if option.any_of:
        names = [max(names, key=len)] if len(names[0]) > 2 else names[:1]
    if "-NUM" in option.names:
        yield "  -<count>"
    if not names:
        return
    value = _value(option, values, told) if option.value != "none" else ""
    long = any(name.startswith("--") for name in names)
    if option.value == "required":
        ending = f"={value}" if long else f" {value}"
    else:
        ending = f"[{'=' if long else ''}{value}]" if value else ""
    line = f"  {', '.join(names)}{ending}"
    rare = {"--help", "--version", "--usage"} & set(names)
    yield f"{line:<{_INDENT}}  %weight 0.15" if rare else line


def _word(option: HelpOption, values: dict[str, str], told: str) -> str:
    """Return a word without a dash: `bs=<bytes>`, or in braces: `{dev <Interface>}`."""
    name = option.names[0]
    if option.value == "none":
        return name
    value = _value(option, values, told) if option.metavar else _named(name, values)
    return f"{name}{value}" if name.endswith("=") else f"{{{name} {value}}}"


def _value(option: HelpOption, values: dict[str, str], told: str) -> str:
    """Return a nonterminal for the value; record one that needs a definition in `values`.

    `told` is the text of help and manual about all options.
    """
    metavar = option.metavar.upper()
    said = named_values(told, option.names) if "|" not in option.metavar else ()
    if len(said) > 1:
        return _named(option.names[-1], values, " | ".join(said))
    if metavar in _VALUES:
        return _VALUES[metavar]
    for part in re.findall(r"[A-Z]+", metavar):
        if part in _VALUES and len(part) > 1:
            return _VALUES[part]
    choices = re.findall(r"[A-Za-z][\w-]*", option.metavar) if "|" in option.metavar else []
    texts = " | ".join(dict.fromkeys(choices)) or " | ".join([*said, _ANYTHING] if said else [])
    return _named(option.names[-1], values, texts)


def _named(name: str, values: dict[str, str], texts: str = "") -> str:
    """Return a nonterminal named after the option, recorded in `values` with initial texts."""
    base = re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-")
    base = f"{base}-value" if base[:1].isalpha() else f"option-{base}-value".replace("--", "-")
    values.setdefault(base, texts or _ANYTHING)
    return f"<{base}>"


def _example(token: str, words: str, execute: Execute) -> Iterator[str]:
    """Run an example and yield its lines, with its exit code and a line of its output."""
    text = f"{token} {words}".strip()
    exit_code, output = execute(text)
    yield f"example {text}"
    if exit_code:
        yield f"  exit {exit_code}"
    lines = (line for line in output.splitlines() if line and line == line.strip())
    line = next(lines, "")
    if line and line.isprintable() and len(line) < 60:
        yield f"  prints {line}"
