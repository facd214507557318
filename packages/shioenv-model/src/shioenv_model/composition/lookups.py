"""Builtins that look names up: `type`, `command -v` and `-V`, and `compgen`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from shioenv.bash.builtins import BUILTINS, KEYWORDS
from shioenv.domain.behavior import Behavior
from shioenv.domain.runner import State
from shioenv.errors import Abstained
from shioenv_model.composition.conditions import Test, is_root

_PLACE = "bash: line 1: "
_TYPE_USAGE = "type: usage: type [-afptP] name [name ...]\n"
_COMMAND_USAGE = "command: usage: command [-pVv] command [arg ...]\n"


def _kinds(name: str, state: State, *, functions: bool = True) -> Iterator[tuple[str, str]]:
    """Yield type and description of each meaning of a name, in the shell's lookup order."""
    document = state.before.document
    if name in document["aliases"] and document["shell_options"].get("expand_aliases"):
        yield "alias", document["aliases"][name]
    if name in KEYWORDS:
        yield "keyword", "a shell keyword"
    if functions and name in document["functions"]:
        yield "function", document["functions"][name]
    if name in BUILTINS:
        yield "builtin", "a shell builtin"
    for path in _programs(name, state):
        yield "file", path


def _programs(name: str, state: State) -> Iterator[str]:
    """Yield the files that a PATH lookup finds for a name."""
    if not is_root(state) or not name:
        raise Abstained("permissions of ordinary users are not supported")
    if "/" in name:
        if Test(state, ("-x", name)).value() and _is_file(name, state):
            yield name
        return
    for directory in str(state.before.document["env"].get("PATH", "")).split(":"):
        if not directory.startswith("/"):
            raise Abstained("PATH contains a relative directory")
        path = f"{directory}/{name}"
        if _is_file(path, state):
            if not Test(state, ("-x", path)).value():
                raise Abstained(f"{path} is not a program")
            yield path


def _is_file(path: str, state: State) -> bool:
    return Test(state, ("-f", path)).value()


def _refuse_remembered(name: str, state: State) -> None:
    """Abstain for a program that the shell has run, because the shell may have cached its path."""
    begin = r"(?:^|[;&|()\n]|(?:\{|\b(?:then|do|else|!))\s)\s*"
    called = re.compile(rf"{begin}{re.escape(name)}(?![\w./-])")
    if any(called.search(text) for text in state.history):
        raise Abstained("the shell may have cached the program's path")


def _described(name: str, kind: str, shown: str) -> str:
    if kind == "function":
        return f"{name} is a function\n{name} () \n{shown}\n"
    return f"{name} is {f'aliased to `{shown}' + chr(39) if kind == 'alias' else shown}\n"


def _answer(parts: list[tuple[bool, str]], status: int) -> Behavior:
    """Return the behavior that prints lines in order. The flag of a line means standard error."""
    texts = ["".join(text for error, text in parts if error == kind) for kind in (False, True)]
    stdout, stderr = (os.fsencode(text) for text in texts)
    return Behavior(
        status, os.fsencode("".join(text for _, text in parts)), stdout=stdout, stderr=stderr
    )


def _letters(words: list[str], known: str, usage: str) -> tuple[str, list[str]] | Behavior:
    """Return option letters and operands, or the error behavior for an unknown letter."""
    letters, rest = "", words[1:]
    while rest and len(rest[0]) > 1 and rest[0].startswith("-"):
        word = rest.pop(0)
        if word == "--":
            break
        unknown = word[1:].lstrip(known)
        if unknown:
            said = f"{_PLACE}{words[0]}: -{unknown[0]}: invalid option\n"
            return _answer([(True, said + usage)], 2)
        letters += word[1:]
    return letters, rest


def type_(words: list[str], state: State) -> Behavior:
    """Run `type`. Errors: Abstained."""
    parsed = _letters(words, "afptP", _TYPE_USAGE)
    if isinstance(parsed, Behavior):
        return parsed
    letters, names = parsed
    parts: list[tuple[bool, str]] = []
    status = 0
    for name in names:
        found = list(_kinds(name, state, functions="f" not in letters))
        if any(kind == "file" for kind, _ in found) and "/" not in name:
            _refuse_remembered(name, state)
        if "P" in letters:
            found = [("file", path) for path in _programs(name, state)]
        elif "p" in letters and "a" not in letters and found and found[0][0] != "file":
            continue
        if not found:
            status = 1
            if not set("tpP") & set(letters):
                parts.append((True, f"{_PLACE}type: {name}: not found\n"))
        for kind, shown in found if "a" in letters else found[:1]:
            if "t" in letters:
                parts.append((False, f"{kind}\n"))
            elif set("pP") & set(letters):
                parts += [(False, f"{shown}\n")] if kind == "file" else []
            else:
                parts.append((False, _described(name, kind, shown)))
    return _answer(parts, status)


def command(words: list[str], state: State) -> Behavior:
    """Run `command -v` or `command -V`. Errors: Abstained if `command` is to run a command."""
    parsed = _letters(words, "pVv", _COMMAND_USAGE)
    if isinstance(parsed, Behavior):
        return parsed
    letters, names = parsed
    if not names:
        return _answer([], 0)
    if not set("vV") & set(letters):
        raise Abstained("command with a command to run")
    parts: list[tuple[bool, str]] = []
    status = 1
    for name in names:
        kind, shown = next(_kinds(name, state), ("", ""))
        if kind == "file" and "V" in letters and "/" not in name:
            _refuse_remembered(name, state)
        if kind:
            status = 0
            plain = f"{shown if kind == 'file' else name}\n"
            if kind == "alias":
                escaped = shown.replace("'", "'\\''")
                plain = f"alias {name}='{escaped}'\n"
            parts.append((False, _described(name, kind, shown) if "V" in letters else plain))
        elif "V" in letters:
            parts.append((True, f"{_PLACE}command: {name}: not found\n"))
    return _answer(parts, status)


def _variables(state: State, area: str) -> list[str]:
    names = [name for name in state.before.document[area] if name.isidentifier()]
    if area == "settings":
        names += _variables(state, "env")
    return sorted(names)


_LISTS: Mapping[str, Callable[[State], list[str]]] = MappingProxyType(
    {
        "alias": lambda state: sorted(state.before.document["aliases"]),
        "builtin": lambda state: sorted(BUILTINS),
        "export": lambda state: _variables(state, "env"),
        "function": lambda state: sorted(state.before.document["functions"]),
        "keyword": lambda state: sorted(KEYWORDS),
        "shopt": lambda state: sorted(state.before.document["shell_options"]),
        "variable": lambda state: _variables(state, "settings"),
    }
)
_SHORT = {"a": "alias", "b": "builtin", "e": "export", "k": "keyword", "v": "variable"}


def compgen(words: list[str], state: State) -> Behavior:
    """Run `compgen` if it lists names or words. Errors: Abstained for all other uses."""
    rest, found = words[1:], list[str]()
    before = after = ""
    chosen = False
    while rest and rest[0].startswith("-") and len(rest[0]) > 1:
        option = rest.pop(0)
        if option == "--":
            break
        letter = option[1]
        if len(option) == 2 and letter in _SHORT:
            value = _SHORT[letter]
        elif letter in "AWPS":
            value = option[2:] or (rest.pop(0) if rest else "")
        else:
            raise Abstained(f"compgen {option}")
        if letter == "P":
            before = value
        elif letter == "S":
            after = value
        elif letter == "W":
            if re.search(r"[$`'\"\\]", value):
                raise Abstained("compgen -W with expansions")
            found, chosen = found + value.split(), True
        elif value in _LISTS:
            found, chosen = found + _LISTS[value](state), True
        else:
            raise Abstained(f"compgen -A {value}")
    if len(rest) > 1 or not chosen:
        raise Abstained("compgen without a list")
    prefix = rest[0] if rest else ""
    if not prefix and any(option in words for option in ("-v", "-e", "variable", "export")):
        raise Abstained("compgen of all variables")
    if not prefix and any(option in words for option in ("-b", "-k", "builtin", "keyword")):
        raise Abstained("compgen of all builtins")
    lines = [f"{before}{each}{after}\n" for each in found if each.startswith(prefix)]
    return _answer([(False, line) for line in lines], int(not lines))
