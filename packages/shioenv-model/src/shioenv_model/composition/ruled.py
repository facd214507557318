"""Builtins of the shell, evaluated from a state by Bash's rules, without execution.

Other builtins, and uses that depend on more than the state, are left to a runner.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from shioenv.domain.behavior import Behavior
from shioenv.domain.context import pointer
from shioenv.domain.patch import ContextPatch, Operation
from shioenv.domain.runner import State
from shioenv.errors import Abstained
from shioenv_model.bash.expand import Expander
from shioenv_model.bash.unexpanded import references
from shioenv_model.composition import lookups
from shioenv_model.composition.call import Call
from shioenv_model.composition.conditions import DYNAMIC, Test, Wrong
from shioenv_model.composition.opening import changed_mode
from shioenv_model.composition.printing import printed
from shioenv_model.composition.variables import Variables

_PLACE = "bash: line 1: "
WITHOUT_HELP = frozenset({"[", "echo", "test", "true", "false", ":"})
"""Builtins that treat `--help` like any other argument."""
_ESCAPES = dict(zip("abeEfnrtv\\'\"?", "\a\b\x1b\x1b\f\n\r\t\v\\'\"?", strict=True))
_ENABLING = re.compile(
    r"(?:^|[;&|(){!`\"'\n]|\b(?:then|do|else|elif|if|while|until|time|builtin|command|eval)\s"
    r"|(?:^|[\s;&|(){])\w+=\S*\s)\s*\\?enable(?![\w.-])"
)
"""Matches earlier inputs that may have disabled a builtin: those with `enable` as a command."""
_MASK = re.compile(r"[0-7]{1,4}")
SET_LETTERS: Mapping[str, str] = MappingProxyType(
    {
        "a": "allexport", "e": "errexit", "f": "noglob", "h": "hashall", "k": "keyword",
        "m": "monitor", "u": "nounset", "B": "braceexpand", "C": "noclobber", "E": "errtrace",
        "P": "physical", "T": "functrace", "b": "notify", "x": "xtrace",
    }
)  # fmt: skip
"""The options of `set` without an immediate effect, by letter."""
SET_NAMES = frozenset({*SET_LETTERS.values(), "pipefail", "nolog"})


class _Known(Variables):
    """The variables of a state. Those that a context does not show are unknown."""

    def variable(self, name: str) -> str | None:
        """See `Scope.variable`. In scripts `$0` is expanded before a runner is queried."""
        if name == "0":
            return "bash"
        if name != "OLDPWD" and DYNAMIC.fullmatch(name):
            raise Abstained(f"${name} is unknown")
        return super().variable(name)


def ruled(call: Call, state: State) -> Behavior | None:
    """Return the command's behavior by rule; None if no rule applies."""
    if call.closed or call.opens is not None or call.reads is not None:
        return None
    functions = state.before.document.get("functions", {})
    words = tuple(call.words)
    while words[:1] in (("command",), ("builtin",)) and words[1:2] and words[1] in RULES:
        functions, words = {}, words[1:]
    if not words or words[0] not in RULES or words[0] in functions:
        return None
    if any(_ENABLING.search(text) for text in state.history):
        return None
    try:
        if state.carried.arguments != ():
            for word in words:
                if not all(name.isidentifier() for name in references(word).names):
                    raise Abstained("parameters may have been set")
        expander = Expander(_Known(state))
        fields = [field for word in words for field in expander.fields(word)]
        if fields[1:2] == ["--help"] and fields[0] not in WITHOUT_HELP:
            return None
        return RULES[words[0]](fields, state) if fields[0] == words[0] else None
    except Abstained:
        return None


def _said(text: str, code: int = 0, patch: ContextPatch | None = None) -> Behavior:
    data = os.fsencode(text)
    return Behavior(code, data, patch or ContextPatch(), stdout=data, stderr=b"")


def _refused(text: str, code: int) -> Behavior:
    data = os.fsencode(_PLACE + text + "\n")
    return Behavior(code, data, stdout=b"", stderr=data)


def _ends(code: int) -> Callable[[list[str], State], Behavior]:
    return lambda words, state: _said("", code)


def _test(words: list[str], state: State) -> Behavior:
    name, *arguments = words
    if name == "[":
        if arguments[-1:] != ["]"]:
            return _refused("[: missing `]'", 2)
        arguments = arguments[:-1]
    try:
        return _said("", int(not Test(state, arguments, "]" if name == "[" else None).value()))
    except Wrong as wrong:
        return _refused(f"{name}: {wrong}", 2)


def _wrong_mode(mode: str) -> str:
    """Return the end of the message about an invalid symbolic mode; empty for a valid one."""
    for clause in re.findall("[^,]*,|[^,]+$|^$", f"{mode}") + [""] * mode.endswith(","):
        part = re.match("[ugoa]*(?:([-+=])[rwx]*)?", clause)
        left = clause[part.end() if part else 0 :] or "\0"
        if part and not part[1]:
            return f"{left[0]}': invalid symbolic mode operator"
        if left not in ("\0", ","):
            return f"{left[0]}': invalid symbolic mode character"
    return ""


def _umask(words: list[str], state: State) -> Behavior:
    mask = str(state.before.document["umask"])
    options = [word for word in words[1:] if word in {"-p", "-S"}]
    others = words[1 + len(options) :]
    if others[:1] == ["--"]:
        others = others[1:]
    elif others and re.match("-.", others[0]):
        said = f"{_PLACE}umask: {others[0][:2]}: invalid option\n"
        data = os.fsencode(f"{said}umask: usage: umask [-p] [-S] [mode]\n")
        return Behavior(2, data, stdout=b"", stderr=data)
    if others:
        if options:
            raise Abstained("umask with options and a mask")
        value = others[0]
        if value[:1].isdecimal() and not _MASK.fullmatch(value):
            return _refused(f"umask: {value}: octal number out of range", 1)
        wrong = "" if value[:1].isdecimal() else _wrong_mode(value)
        if wrong:
            return _refused(f"umask: `{wrong}", 1)
        if not _MASK.fullmatch(value):
            granted = changed_mode(value, 0o777 & ~int(mask, 8), 0, directory=False)
            if granted is None or granted > 0o777:
                raise Abstained("a mask that is not supported")
            value = f"{0o777 & ~granted:o}"
        value = f"{int(value, 8):04o}"
        if int(value, 8) > 0o777:
            raise Abstained("a mask that is not supported")
        changed = (("=", "/umask", value),) if value != mask else ()
        return _said("", 0, ContextPatch(changed))
    shown = mask
    if "-S" in options:
        granted = 0o777 & ~int(mask, 8)
        shown = ",".join(
            f"{who}=" + "".join(letter for letter, bit in zip("rwx", (4, 2, 1), strict=True)
                                if granted >> shift & bit)
            for who, shift in (("u", 6), ("g", 3), ("o", 0))
        )  # fmt: skip
    if "-p" in options:
        shown = "umask -S " + shown if "-S" in options else f"umask {shown}"
    return _said(f"{shown}\n")


def option_lines(state: State, *, plain: bool) -> Iterator[str]:
    """Yield the lines of `set -o`, or of `set +o`."""
    settings = state.before.document["settings"]
    for key in sorted(key for key in settings if key.startswith("-o ")):
        name, on = key[3:], bool(settings[key])
        yield (
            f"{name:15}\t{'on' if on else 'off'}\n"
            if plain
            else f"set {'-' if on else '+'}o {name}\n"
        )


def _set(words: list[str], state: State) -> Behavior:
    operations: dict[str, bool] = {}
    rest = words[1:]
    if rest in (["-o"], ["+o"]):
        return _said("".join(option_lines(state, plain=rest == ["-o"])))
    while rest:
        word = rest.pop(0)
        on, letters = word[:1] == "-", word[1:]
        if word[:1] not in {"-", "+"} or not letters:
            raise Abstained("parameters are set")
        for letter in letters:
            name = SET_LETTERS.get(letter, "")
            if letter == "o":
                name = rest.pop(0) if rest else ""
            if name not in SET_NAMES:
                raise Abstained("an option of set that is not supported")
            operations[name] = on
    if not operations:
        raise Abstained("set lists all variables")
    settings = state.before.document["settings"]
    if settings.get("-o posix"):
        raise Abstained("set in another mode")
    changed = tuple(
        ("=", pointer("settings", f"-o {name}"), on)
        for name, on in sorted(operations.items())
        if settings.get(f"-o {name}") != on
    )
    return _said("", 0, ContextPatch(changed))


def _alias(words: list[str], state: State) -> Behavior:
    aliases = state.before.document["aliases"]
    told = words[1:] or sorted(aliases)
    operations: list[Operation] = []
    shown: list[str] = []
    for word in told:
        name, equals, value = word.partition("=")
        if not re.fullmatch(r"[\w.+@%:,!-]+", name) or name.startswith("-"):
            raise Abstained("an alias that is not supported")
        if equals:
            if aliases.get(name) != value:
                code = "=" if name in aliases else "a"
                operations.append((code, pointer("aliases", name), value))
        elif name in aliases:
            escaped = aliases[name].replace("'", "'\\''")
            shown.append(f"alias {name}='{escaped}'\n")
        elif len(told) > 1:
            raise Abstained("one of several aliases is missing")
        else:
            return _refused(f"alias: {name}: not found", 1)
    return _said("".join(shown), 0, ContextPatch(tuple(operations)))


def _unalias(words: list[str], state: State) -> Behavior:
    aliases = state.before.document["aliases"]
    names = sorted(aliases) if words[1:2] == ["-a"] else words[1:]
    if not words[1:] or any(name.startswith("-") for name in names):
        raise Abstained("unalias with options that are not supported")
    gone = tuple(("r", pointer("aliases", name)) for name in names if name in aliases)
    wrong = "".join(
        f"{_PLACE}unalias: {name}: not found\n" for name in names if name not in aliases
    )
    data = os.fsencode(wrong)
    return Behavior(int(bool(wrong)), data, ContextPatch(gone), stdout=b"", stderr=data)


_ECHO_ESCAPE = re.compile(
    r"\\(?:([abeEfnrtv\\])|0([0-7]{0,3})|x([0-9a-fA-F]{1,2})"
    r"|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|(c)|(.?))",
    re.DOTALL,
)


def _echo(words: list[str], state: State) -> Behavior:
    if state.before.document["shell_options"].get("xpg_echo"):
        raise Abstained("echo in another mode")
    rest, newline, escapes = words[1:], "\n", False
    while rest and re.fullmatch("-[neE]+", rest[0]):
        for letter in rest.pop(0)[1:]:
            newline = "" if letter == "n" else newline
            escapes = letter == "e" if letter in "eE" else escapes
    text = " ".join(rest)
    data = echoed(text, newline) if escapes else os.fsencode(text + newline)
    return Behavior(0, data, stdout=data, stderr=b"")


def echoed(text: str, newline: str) -> bytes:
    r"""Return the output of `echo -e`; `\c` ends it. Errors: Abstained."""
    parts: list[bytes] = []
    place = 0
    while match := _ECHO_ESCAPE.search(text, place):
        letter, octal, digits, short, long, ends, other = match.groups()
        parts.append(os.fsencode(text[place : match.start()]))
        if ends:
            return b"".join(parts)
        if letter:
            parts.append(_ESCAPES[letter].encode())
        elif octal is not None or digits:
            code = int(octal or "0", 8) & 255 if octal is not None else int(digits, 16)
            parts.append(bytes([code]))
        elif short or long:
            code = min(int(short or long, 16), 0x10FFFF)
            parts.append(chr(code).encode("utf-8", "surrogatepass"))
        elif other and other in "uU":
            raise Abstained(f"echo -e of \\{other} without digits")
        else:
            parts.append(os.fsencode("\\" + other))
        place = match.end()
    return b"".join((*parts, os.fsencode(text[place:] + newline)))


def refuse_zone(state: State, shape: str) -> None:
    """Abstain if a `printf` format has a time, and a time zone is set."""
    document = state.before.document
    if ")T" in shape and "TZ" in document["env"].keys() | document["settings"].keys():
        raise Abstained("the time in a time zone")


def _printf(words: list[str], state: State) -> Behavior:
    arguments = words[2:] if words[1:2] == ["--"] else words[1:]
    if not arguments or (re.match("-.", arguments[0]) and words[1] != "--"):
        if arguments and not arguments[0][:2].isascii():
            raise Abstained("printf with an option of several bytes")
        said = "" if not arguments else f"{_PLACE}printf: {arguments[0][:2]}: invalid option\n"
        if arguments and arguments[0].startswith("-v"):
            if arguments != ["-v"]:
                raise Abstained("printf into a variable")
            said = f"{_PLACE}printf: -v: option requires an argument\n"
        data = os.fsencode(f"{said}printf: usage: printf [-v var] format [arguments]\n")
        return Behavior(2, data, stdout=b"", stderr=data)
    refuse_zone(state, arguments[0])
    done = printed(arguments)
    place = os.fsencode(f"{_PLACE}printf: ")
    lines = [(error, place + each + b"\n" if error else each) for error, each in done.written]
    parts = [b"".join(each for error, each in lines if error == kind) for kind in (False, True)]
    whole = b"".join(each for _, each in lines)
    return Behavior(int(bool(parts[1])), whole, stdout=parts[0], stderr=parts[1])


RULES: Mapping[str, Callable[[list[str], State], Behavior]] = MappingProxyType(
    {
        "test": _test, "[": _test, "umask": _umask, "type": lookups.type_,
        "command": lookups.command, "compgen": lookups.compgen,
        "alias": _alias, "unalias": _unalias, "echo": _echo, "set": _set,
        "printf": _printf, "true": _ends(0), ":": _ends(0), "false": _ends(1),
    }
)  # fmt: skip
"""Functions that return the behavior of each builtin, by name. Errors: Abstained if it is
unknown."""
