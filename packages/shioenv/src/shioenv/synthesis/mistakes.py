"""Typical user mistakes, inserted into drawn inputs to produce error messages.

A mistake belongs to one class and changes one command of an input. If a class does not apply to the
command, another is tried. For example, there may be no option with a value, or no file name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from types import MappingProxyType
from typing import TypeAlias

from shioenv.bash.builtins import BUILTINS, KEYWORDS
from shioenv.domain.inputs import OPERATORS, Argument, Input, Role, Token
from shioenv.grammar.library import shipped_headers
from shioenv.grammar.parts import Names
from shioenv.grammar.symbols import Grammar, OptionSpec
from shioenv.grammar.traits import OF_FILES, Traits

REFUSED = ("/proc/version", "/proc/cpuinfo", "/proc/meminfo", "/sys/kernel", "/proc/1/status")
"""Paths that cannot be modified, even by root."""

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_UNCLOSED = ("[a-z", "[0-9", "[[:alpha:]", "x[abc", "[^a")
_TAKEN = (
    KEYWORDS
    | BUILTINS
    | {*("ar", "as", "bc", "dc", "di", "ed", "fd", "mesg", "mt", "shasum", "sp", "tset", "zip")}
)
"""Existing commands without a grammar. A misspelt command name must not be one of them. They are
Bash's own, and programs of common systems that a typing error can produce (our choice)."""


@dataclass(frozen=True, slots=True)
class _Command:
    """One command of an input: its name, grammar and arguments, and the system's names."""

    name: str
    grammar: Grammar
    arguments: tuple[Argument, ...]
    names: Names

    @property
    def plain(self) -> list[int]:
        """The indices of operands that are simple names, without quotes or expansions."""
        return [
            place
            for place, argument in enumerate(self.arguments)
            if not argument.joins_left
            and not argument.joins_right
            and argument.text[:1] not in "-'\"\\"
            and not set(argument.text) & set(" $`*?[]{}()<>|;&=\"'\\")
        ]

    @property
    def traits(self) -> Traits:
        """The traits of the command."""
        return self.grammar.header.traits

    @property
    def options(self) -> Sequence[OptionSpec]:
        """The options of the grammar."""
        return self.grammar.options


Made: TypeAlias = "tuple[str, tuple[Argument, ...]] | None"
"""The command's name and arguments with the mistake; None if it does not apply."""


def _unknown_option(command: _Command, random: Random) -> Made:
    longs = [f"--{name}" for spec in command.options for name in spec.longs]
    if longs and random.random() < 0.4:
        option = slip(_pick(random, longs), random)
        known = any(name.startswith(option) for name in longs)
    else:
        shorts = {letter for spec in command.options for letter in spec.shorts}
        free = [letter for letter in _LETTERS if letter not in shorts]
        if not free or _takes_anything(command.grammar):
            return None
        option, known = f"-{_pick(random, free)}", False
    return None if known else (command.name, (Argument(option), *command.arguments))


def _takes_anything(grammar: Grammar) -> bool:
    """Whether a command accepts every word, so that an unknown option is no mistake."""
    traits = grammar.header.traits
    return traits.roles == {"text"} and traits.operands[-1].many and not traits.least


def _missing_value(command: _Command, random: Random) -> Made:
    wanted = [
        f"-{letter}"
        for spec in command.options
        if spec.value == "required" and not spec.joined
        for letter in spec.shorts
    ]
    there = [
        place
        for place, argument in enumerate(command.arguments)
        if argument.text.partition(" ")[0] in wanted and " " in argument.text
    ]
    if there:
        place = there[int(random.random() * len(there))]
        option = command.arguments[place].text.partition(" ")[0]
        rest = (*command.arguments[:place], *command.arguments[place + 1 :])
    elif wanted:
        option, rest = _pick(random, wanted), command.arguments
    else:
        return None
    return command.name, (*rest, Argument(option))


def _missing_operand(command: _Command, random: Random) -> Made:
    if not command.traits.least or not command.plain:
        return None
    kept = [one for one in command.arguments if one.text.startswith("-") or one.joins_left]
    return command.name, tuple(kept)


def _misspelt_name(command: _Command, random: Random) -> Made:
    known = {*command.names.get("File", ()), *command.names.get("Directory", ())}
    places = [place for place in command.plain if command.arguments[place].text in known]
    if not places:
        return None
    place = places[int(random.random() * len(places))]
    text = slip(command.arguments[place].text, random)
    return None if text in known else _with(command, place, text)


def _wrong_type(command: _Command, random: Random) -> Made:
    files, directories = command.names.get("TextFile", ()), command.names.get("Directory", ())
    there, wanted = (files, directories)
    if "directory" in {*command.traits.roles, command.traits.makes}:
        there, wanted = directories, files
    places = [place for place in command.plain if command.arguments[place].text in set(there)]
    if not places or not wanted:
        return None
    return _with(command, places[int(random.random() * len(places))], _pick(random, wanted))


def _refused_permission(command: _Command, random: Random) -> Made:
    traits = command.traits
    writes = bool(traits.paths) and traits.paths[0].role == "output"
    if not (writes or traits.removes or traits.changes in OF_FILES):
        return None
    known = {*command.names.get("File", ()), *command.names.get("Directory", ())}
    places = [place for place in command.plain if command.arguments[place].text in known]
    if not places:
        return None
    return _with(command, places[int(random.random() * len(places))], _pick(random, REFUSED))


def _absent_command(command: _Command, random: Random) -> Made:
    """Misspell the command's name; None if the result is the name of an existing command."""
    name = slip(command.name, random)
    there = name == command.name or name in _TAKEN or name in shipped_headers()
    return None if there else (name, command.arguments)


def _unclosed_class(command: _Command, random: Random) -> Made:
    if "pattern" not in command.traits.roles or not command.plain:
        return None
    return _with(command, command.plain[0], f"'{_pick(random, _UNCLOSED)}'")


def _option_after_dashes(command: _Command, random: Random) -> Made:
    first = [one for one in command.arguments if one.text.startswith("-") or one.joins_left]
    if not first or any(spec.words for spec in command.options) or _takes_anything(command.grammar):
        return None
    if any(one.text == "--" for one in first):
        return None
    rest = [one for one in command.arguments if one not in first]
    return command.name, (Argument("--"), *rest, *first)


MISTAKES: Mapping[str, Callable[[_Command, Random], Made]] = MappingProxyType(
    {
        "unknown option": _unknown_option,
        "missing value": _missing_value,
        "missing operand": _missing_operand,
        "misspelt name": _misspelt_name,
        "wrong type of file": _wrong_type,
        "refused permission": _refused_permission,
        "absent command": _absent_command,
        "unclosed class": _unclosed_class,
        "option after --": _option_after_dashes,
    }
)
"""The classes of mistakes, each with the function that makes one."""


_FIRST: Mapping[str, float] = MappingProxyType(
    {
        "missing operand": 3.0, "misspelt name": 4.0, "wrong type of file": 4.0,
        "refused permission": 6.0, "unclosed class": 8.0,
    }
)  # fmt: skip
"""Weights of classes that are tried first more often, because they rarely apply (else 1)."""


def mistaken(
    shell_input: Input, grammars: Mapping[str, Grammar], names: Names, random: Random
) -> tuple[Input, str] | None:
    """Put one mistake into one command of an input; return the input and the mistake's class.

    `grammars` maps the first word of each command to its grammar; `names` are the system's names.
    Classes are tried in a random order that favours those of `_FIRST`. None if the chosen command
    has no grammar, or no class applies.
    """
    spans = list(shell_input.spans())
    start, end = spans[int(random.random() * len(spans))]
    tokens = shell_input.tokens[start:end]
    commands = [token for token in tokens if token.role is Role.COMMAND]
    if not commands or commands[0].argument.text not in grammars:
        return None
    name = commands[0].argument.text
    arguments = tuple(token.argument for token in tokens if token.role is Role.ARGUMENT)
    command = _Command(name, grammars[name], arguments, names)
    order = {kind: random.random() ** (1 / _FIRST.get(kind, 1.0)) for kind in MISTAKES}
    for kind in sorted(order, key=order.__getitem__, reverse=True):
        made = MISTAKES[kind](command, random)
        if made is not None and made != (name, arguments):
            written, changed = made
            rest = [t for t in tokens if t.role not in {Role.COMMAND, Role.ARGUMENT}]
            new = (
                replace(commands[0], argument=Argument(written)),
                *(Token(argument, Role.ARGUMENT) for argument in changed),
                *rest,
            )
            whole = (*shell_input.tokens[:start], *new, *shell_input.tokens[end:])
            return Input(whole), kind
    return None


MUST_EXIST = frozenset({"file", "path", "tree", "directory"})
"""Roles of operands that must exist."""

_NAMED = frozenset({"user", "group", "url", "host"})
"""Kinds of operands that name something outside the file system."""


def failing(
    words: Sequence[str], grammar: Grammar, names: Names, random: Random
) -> Sequence[str] | None:
    """Change an operand of a drawn command so that the command most likely fails.

    `words` begin with the command. The new operand names a missing thing, or an existing one if the
    command creates what it names. None if no operand can be changed in this way.
    """
    command = _Command(words[0], grammar, tuple(map(Argument.parse, words[1:])), names)
    if not OPERATORS.isdisjoint(words):
        return None
    known = {*names.get("File", ()), *names.get("Directory", ()), *names.get("TextFile", ())}
    operands = [
        place
        for place, argument in enumerate(command.arguments)
        if not argument.joins_left and not argument.text.startswith("-")
    ]
    roles = dict(zip(operands, command.traits.roles_of(len(operands)), strict=True))
    plain = command.plain
    random.shuffle(plain)
    for place in plain:
        text, role = command.arguments[place].text, roles.get(place, "")
        if role == "new":
            made = _pick(random, names.get("Directory") or ("/tmp",))
        elif role in MUST_EXIST | _NAMED or (text in known and role == "text"):
            made = _astray(text, random)
        else:
            continue
        if made not in known or role == "new":
            _, changed = _with(command, place, made)
            return (words[0], *(argument.marked for argument in changed))
    return None


def _astray(text: str, random: Random) -> str:
    """Misspell a text: the host of a URL, otherwise the last part of a path."""
    before, slashes, rest = text.rpartition("//") if "://" in text else ("", "", text)
    if slashes:
        host, slash, path = rest.partition("/")
        return f"{before}{slashes}{slip(host, random)}{slash}{path}"
    above, slash, name = text.rstrip("/").rpartition("/")
    return f"{above}{slash}{slip(name, random) if name.strip('.') else 'nowhere'}"


def _with(command: _Command, place: int, text: str) -> tuple[str, tuple[Argument, ...]]:
    arguments = list(command.arguments)
    arguments[place] = Argument(text)
    return command.name, tuple(arguments)


def slip(text: str, random: Random) -> str:
    """Swap two neighbouring letters of a text, omit one, or double one.

    Leading hyphens are not changed.
    """
    stem = len(text) - len(text.lstrip("-"))
    place = stem + int(random.random() * max(1, len(text) - stem - 1))
    how = random.random()
    if how < 0.5 and place + 1 < len(text) and text[place] != text[place + 1]:
        return f"{text[:place]}{text[place + 1]}{text[place]}{text[place + 2 :]}"
    if how < 0.75 and len(text) - stem > 2:
        return text[:place] + text[place + 1 :]
    return text[: place + 1] + text[place:]


def _pick(random: Random, values: Sequence[str]) -> str:
    return values[int(random.random() * len(values))]
