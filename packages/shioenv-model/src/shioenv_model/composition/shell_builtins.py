"""Builtins that change the shell: its control flow, parameters, variables, options, traps."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from shioenv.bash.words import quoted
from shioenv.domain.behavior import Behavior
from shioenv.domain.context import pointer
from shioenv.domain.patch import ContextPatch
from shioenv.errors import Abstained
from shioenv_model.bash.arithmetic import Complaint, count, evaluate
from shioenv_model.composition.call import Call
from shioenv_model.composition.conditions import DYNAMIC, Test, Wrong
from shioenv_model.composition.environment import Environment
from shioenv_model.composition.frames import Exit, Loop, Return
from shioenv_model.composition.printing import printed
from shioenv_model.composition.ruled import (
    SET_LETTERS,
    SET_NAMES,
    echoed,
    option_lines,
    refuse_zone,
)
from shioenv_model.composition.scoping import UNKNOWN
from shioenv_model.composition.stdin_builtins import fill
from shioenv_model.composition.variables import Value, item_of


def become(here: Environment, values: list[str]) -> None:
    """Run `exec COMMAND` and end the shell. Errors: Exit; Abstained for options."""
    if len(values) < 2 or values[1].startswith("-"):
        raise Abstained("exec with options")
    here.put(Call(" ".join(map(quoted, values))), "exec")
    raise Exit(here.status)


def leave_loop(here: Environment, name: str, rest: list[str]) -> None:
    """Run `break` or `continue`. Errors: Loop; Abstained for operands other than one number."""
    if not here.place.loops:
        here.complain(f"{name}: only meaningful in a `for', `while', or `until' loop")
        here.status = 0
        return
    levels = count(rest[0]) if rest else 1
    if len(rest) > 1 or not levels:
        raise Abstained(f"{name} {' '.join(rest):.20} is not supported")
    raise Loop(min(levels, here.place.loops), goes_on=name == "continue")


def end(here: Environment, name: str, values: list[str]) -> None:
    """Run `exit` or `return`.

    If `exit` has several operands and the first is a number, it fails without ending the shell.
    Errors: Exit; Return; Abstained for a `return` outside of functions, or with operands other than
    one number.
    """
    if name == "return" and _return_fails(here, values):
        return
    if len(values) > 2 or (len(values) == 2 and not re.fullmatch(r"-?\d{1,18}", values[1])):
        if name == "return" and len(values) == 2:
            raise Return(2)
        if name == "return":
            raise Abstained("return with several operands")
        here.put(Call(" ".join(map(quoted, values))), name)
        if len(values) > 2 and re.fullmatch(r"-?\d{1,18}", values[1]):
            return
        raise Exit(here.status)
    status = int(values[1]) & 255 if len(values) == 2 else here.status
    if name == "return":
        raise Return(status)
    raise Exit(status)


def _return_fails(here: Environment, values: list[str]) -> bool:
    """Report a `return` with a word or outside of functions; return whether the shell continues."""
    if len(values) == 2 and not re.fullmatch(r"-?\d{1,18}", values[1]):
        here.complain(f"return: {values[1]}: numeric argument required")
    if here.place.calls or here.place.is_read:
        return False
    here.complain("return: can only `return' from a function or sourced script")
    here.status = 2
    return True


def set_options(here: Environment, values: list[str]) -> None:
    """Run `set` with options, positional parameters, or both. Errors: Abstained."""
    rest, options, listed = values[1:], dict[str, bool](), False
    arguments: tuple[str, ...] | None = None
    here.status = 0
    while rest and arguments is None:
        word = rest.pop(0)
        if word in ("-", "--"):
            options |= dict.fromkeys(("xtrace", "verbose"), False) if word == "-" else {}
            arguments = tuple(rest) if rest or word == "--" else None
            break
        if word[:1] not in ("-", "+") or len(word) < 2:
            arguments = (word, *rest)
            break
        for letter in word[1:]:
            if letter == "o" and not rest:
                if word[0] == "+":
                    raise Abstained("set +o without a name")
                listed = True
                continue
            name = rest.pop(0) if letter == "o" else SET_LETTERS.get(letter, "")
            if letter == "o" and f"-o {name}" not in here.state.before.document["settings"]:
                here.complain(f"set: {name}: invalid option name")
                here.status = 2
                return
            if letter not in "abefhkmnoptuvxBCEHPT":
                usage = "set [-abefhkmnptuvxBCEHPT] [-o option-name] [--] [-] [arg ...]"
                here.usage("set", f"{word[0]}{letter}", usage)
                return
            if name not in SET_NAMES and name not in _EDITORS:
                raise Abstained(f"set {word} {name}")
            options[name] = word[0] == "-"
    if here.is_on("posix"):
        raise Abstained("set in another mode")
    if arguments is not None:
        here.carry(arguments=arguments)
    for name, on in options.items():
        if name in _EDITORS:
            _set_option(here, name, on, True)
        elif here.is_on(name) != on:
            patch = ContextPatch((("=", pointer("settings", f"-o {name}"), on),))
            # `shopt -o` is used because `set` may change the positional parameters
            here.advance(f"shopt -{'s' if on else 'u'}o {name}", Behavior(0, b"", patch))
    if listed:
        here.write(here.streams.fds[1], "".join(option_lines(here.state, plain=True)).encode())


def check(here: Environment, values: list[str]) -> None:
    """Run a `test` or `[` that uses `-v`.

    The runner cannot: its context lacks variables that `here` knows, such as arrays.
    """
    name, *words = values
    if name == "[" and words[-1:] != ["]"]:
        raise Abstained("[ without ]")
    arguments = words[:-1] if name == "[" else words
    end = "]" if name == "[" else None
    try:
        value = Test(here.state, arguments, end, here.is_set).value()
    except Wrong as wrong:
        here.complain(f"{name}: {wrong}")
        here.status = 2
    else:
        here.status = int(not value)


def shift(here: Environment, values: list[str]) -> None:
    """Run `shift n`. Errors: Abstained for operands other than one number."""
    rest = values[1:]
    by = count(rest[0]) if rest else 1
    if len(rest) > 1 or by is None:
        raise Abstained("shift with an operand that is not a number")
    here.status = int(by > len(here.arguments))
    if not here.status:
        here.carry(arguments=tuple(here.arguments[by:]))


def getopts(here: Environment, values: list[str]) -> None:
    """Run `getopts LETTERS NAME [WORD…]`: parse the next option of the words or parameters.

    `OPTIND` is the index of the next word, and `Own.cluster` the offset within it. Errors:
    Abstained for an invalid name, for letters that begin with `-`, and if the offset is unknown.
    """
    letters, name, *words = values[1:] if len(values) > 2 else ("-", "")
    if letters.startswith("-") or not name.isidentifier() or here.place.is_dash:
        raise Abstained("getopts without letters and a name")
    if here.own.cluster < 0:
        raise Abstained("the position of getopts in a word is unknown")
    number = _LEADING.match(here.variable("OPTERR") or "1")  # parsed like atoi(3)
    silent = letters.startswith(":") or number is None or not int(number[0])
    asked = letters.removeprefix(":")
    taken = _next_option(here, asked, words or list(here.arguments))
    here.assign("OPTIND", str(taken.index))
    here.own.cluster = taken.place
    here.status = int(taken.letter is None)
    said, value = taken.letter or "?", taken.value
    if taken.fault:
        if not silent:
            text = f"{here.own.name}: {taken.fault} -- {taken.letter}\n"
            here.write(here.streams.fds[2], os.fsencode(text))
        missing = taken.fault == _MISSING and letters.startswith(":")
        said, value = ":" if missing else "?", taken.letter if letters.startswith(":") else None
    old = Value.of(here.state.before.document, "OPTARG")
    if value is not None:
        here.assign("OPTARG", value)
    elif taken.fault or taken.letter is None:
        if old is not None:
            here.store("OPTARG", None)
    else:  # the variable is declared, but unset
        here.store("OPTARG", Value(None, None, old.flags if old else frozenset()))
    here.assign(name, said)


_LEADING = re.compile(r"[ \t\n\v\f\r]*[+-]?[0-9]+")
_ILLEGAL, _MISSING = "illegal option", "option requires an argument"


@dataclass(frozen=True, slots=True)
class _Option:
    """The result of `getopts`; `letter` is None at the end of the options."""

    index: int
    """The index of the next word, from 1."""
    place: int = 0
    """The offset of the next letter in that word; 0 at its beginning."""
    letter: str | None = None
    value: str | None = None
    fault: str = ""


def _next_option(here: Environment, letters: str, words: list[str]) -> _Option:
    """Parse the next option. Errors: Abstained if the words were changed meanwhile."""
    said = here.variable("OPTIND") or ""
    index, place = max(1, int(said) if re.fullmatch(r"-?\d{1,9}", said) else 1), here.own.cluster
    if index > len(words):
        return _Option(len(words) + 1)
    word = words[index - 1]
    if not place:
        if word == "--":
            return _Option(index + 1)
        if not word.startswith("-") or word == "-":
            return _Option(index)
        place = 1
    if place >= len(word) or not word[place].isascii():
        raise Abstained("getopts in other words than before")
    letter, place = word[place], place + 1
    rest = word[place:]
    if not rest:
        index, place = index + 1, 0
    known = letters.find(letter)
    if known < 0 or letter == ":":
        return _Option(index, place, letter, fault=_ILLEGAL)
    if letters[known + 1 : known + 2] != ":":
        return _Option(index, place, letter)
    if rest:
        return _Option(index + 1, 0, letter, rest)
    if index > len(words):
        return _Option(index, 0, letter, fault=_MISSING)
    return _Option(index + 1, 0, letter, words[index - 1])


_COLUMNS = 80
"""The default terminal width."""


def echo_of_dash(here: Environment, values: list[str]) -> None:
    """Run dash's `echo`: escapes are always interpreted, and `-n` is the only option."""
    rest = values[1:]
    newline = "" if rest[:1] == ["-n"] else "\n"
    said = echoed(" ".join(rest[not newline :]), newline)
    here.write(here.streams.fds[1], said)
    here.status = 0


def compute(here: Environment, values: list[str]) -> None:
    """Run `let`; the exit status is 1 if the last expression is 0. Errors: Abstained."""
    expressions = values[2:] if values[1:2] == ["--"] else values[1:]
    if not expressions:
        here.complain("let: expression expected")
        here.status = 1
        return
    value = 0
    try:
        for expression in expressions:
            value = evaluate(expression, here.variable, here.assign)
    except Complaint as wrong:
        here.complain(f"let: {wrong.said}")
        value = 0
    here.status = int(value == 0)


def menu(values: Sequence[str]) -> str:
    """Format the menu of `select`, one item per line. Errors: Abstained for several columns."""
    width = len(str(len(values))) + 2 + max(map(len, values)) + 2
    if len(values) > max(1, _COLUMNS // width) or not all(map(str.isascii, values)):
        raise Abstained("a menu of several columns")
    number = len(str(len(values)))
    return "".join(f"{place:{number}d}) {value}\n" for place, value in enumerate(values, 1))


def unset(here: Environment, values: list[str]) -> None:
    """Run `unset`, which removes variables, elements of arrays, and functions.

    Errors: Abstained for variables that control the shell.
    """
    words, letters = values[1:], ""
    while words and re.fullmatch(r"-[vfn]+|--", words[0]):
        letters += words.pop(0)[1:]
    here.status = 0
    if words and words[0].startswith("-") and len(words[0]) > 1:
        here.usage("unset", words[0], "unset [-f] [-v] [-n] [name ...]")
    elif "f" in letters and "v" in letters:
        here.complain("unset: cannot simultaneously unset a function and a variable")
        here.status = 1
    else:
        for word in words:
            _unset_one(here, word, letters)


def _unset_one(here: Environment, word: str, letters: str) -> None:
    if "f" in letters:
        _unset_function(here, word)
        return
    itself = item_of(word)[0]
    if not (itself.isidentifier() and itself.isascii()):
        if "v" in letters or word.endswith("]"):
            here.complain(f"unset: `{word}': not a valid identifier")
            here.status = 1
        else:
            _unset_function(here, word)
        return
    if "n" in letters:
        own = here.value_of(word)
        if own is None or "n" not in own.flags:
            return
    name, key = item_of(word if "n" in letters else here.target(here.resolved(word)))
    if re.fullmatch(r"BASH\w*|_|OPTIND|.*HIST.*", name) or name in UNKNOWN:
        raise Abstained(f"unset of {name}, which is more than a variable")
    value = here.value_of(name)
    if value is None:
        is_shown = name != "IFS" and DYNAMIC.fullmatch(name) is None
        if not is_shown and name not in here.asking.set_here:
            raise Abstained(f"whether {name} is set is unknown")
        if "v" not in letters and name == word:
            _unset_function(here, name)
    elif "r" in value.flags:
        here.complain(f"unset: {name}: cannot unset: readonly variable")
        here.status = 1
    elif key is None or "n" in letters:
        here.forget(name)
    elif value.array is None:
        if here.number(key):
            here.complain(f"unset: {name}: not an array variable")
            here.status = 1
        else:
            here.forget(name)
    elif key in ("@", "*"):
        if value.array.associative:
            raise Abstained("unset of the key @ of an associative array")
        here.forget(name)
    else:
        array = value.array
        key = key if array.associative else array.subscript(here.number(key))
        here.store(name, replace(value, array=array.without(key)))


def _unset_function(here: Environment, name: str) -> None:
    here.own.functions.pop(name, None)
    if name in here.state.before.document["functions"]:
        patch = ContextPatch((("r", pointer("functions", name)),))
        here.advance(f"unset -f {quoted(name)}", Behavior(0, b"", patch))


def format_into(here: Environment, values: list[str]) -> None:
    """Run `printf -v NAME`. Errors: Abstained."""
    name, rest = (values[1][2:], values[2:]) if values[1] != "-v" else (values[2], values[3:])
    rest = rest[1:] if rest[:1] == ["--"] else rest
    if not (item_of(name)[0].isidentifier() and rest):
        raise Abstained("printf -v without a name or a format")
    refuse_zone(here.state, rest[0])
    done = printed(rest)
    errors = done.told(errors=True)
    for each in errors:
        here.complain(f"printf: {os.fsdecode(each)}")
    try:
        here.assign(
            here.target(name), b"".join(done.told(errors=False)).partition(b"\0")[0].decode()
        )
    except UnicodeDecodeError:
        raise Abstained("bytes that are not text") from None
    here.status = int(bool(errors))


def shopt(here: Environment, values: list[str]) -> None:
    """Run `shopt`, which shows and changes the shell's options."""
    words, letters = values[1:], ""
    while words and words[0].startswith("-") and len(words[0]) > 1:
        letters += words.pop(0)[1:]
    unknown = letters.strip("suqpo")
    if unknown:
        here.usage("shopt", f"-{unknown}", "shopt [-pqsu] [-o] [optname ...]")
        return
    here.status = 0
    if "s" in letters and "u" in letters:
        here.complain("shopt: cannot set and unset shell options simultaneously")
        here.status = 1
        return
    document = here.state.before.document
    options = {
        name: bool(on) for name, on in document["shell_options"].items()
    } if "o" not in letters else {
        name[3:]: bool(on) for name, on in document["settings"].items() if name.startswith("-o ")
    }  # fmt: skip
    wanted = "s" in letters
    changes = wanted or "u" in letters
    if changes and not words:
        words = sorted(name for name, on in options.items() if on == wanted)
        changes = False
    for name in words or sorted(options):
        if name not in options:
            kind = "option name" if "o" in letters else "shell option name"
            here.complain(f"shopt: {name}: invalid {kind}")
            here.status = 1
        elif changes:
            _set_option(here, name, wanted, "o" in letters)
        else:
            if words and not options[name] and not set("su") & set(letters):
                here.status = 1
            if "q" not in letters:
                here.write(here.streams.fds[1], _option_line(name, options[name], letters))


def _option_line(name: str, on: bool, letters: str) -> bytes:
    if "p" in letters and "o" in letters:
        return f"set {'-' if on else '+'}o {name}\n".encode()
    if "p" in letters:
        return f"shopt -{'s' if on else 'u'} {name}\n".encode()
    return f"{name:15}\t{'on' if on else 'off'}\n".encode()


_STAYING_OPTIONS = frozenset({"login_shell", "restricted_shell"})
"""Options that `shopt` cannot change."""


def _set_option(here: Environment, name: str, on: bool, of_set: bool) -> None:
    if name in _STAYING_OPTIONS:
        here.complain(f"shopt: {name}: cannot set option")
        here.status = 1
        return
    if of_set and name in _AT_ONCE:
        raise Abstained(f"set -o {name} is not supported")
    area, key = ("settings", f"-o {name}") if of_set else ("shell_options", name)
    if bool(here.state.before.document[area].get(key)) != on:
        patch = ContextPatch((("=", pointer(area, key), on),))
        text = f"shopt -{'o' * of_set}{'s' if on else 'u'} {name}"
        here.advance(text, Behavior(0, b"", patch))
    other = _EDITORS.get(name)
    if on and other is not None and here.is_on(other):
        _set_option(here, other, False, True)


_EDITORS = {"emacs": "vi", "vi": "emacs"}
"""Options of `set -o` that exclude each other."""

_AT_ONCE = frozenset({"posix", "history", "histexpand", "noexec"})
"""Options of `set -o` that change more than their own value."""


_EVENTS = ("EXIT", "DEBUG", "ERR", "RETURN")
"""The traps that are not signals."""
_SIGNALS = {
    "HUP": 1, "INT": 2, "QUIT": 3, "ILL": 4, "TRAP": 5, "ABRT": 6, "BUS": 7, "FPE": 8, "KILL": 9,
    "USR1": 10, "SEGV": 11, "USR2": 12, "PIPE": 13, "ALRM": 14, "TERM": 15, "STKFLT": 16,
    "CHLD": 17, "CONT": 18, "STOP": 19, "TSTP": 20, "TTIN": 21, "TTOU": 22, "URG": 23, "XCPU": 24,
    "XFSZ": 25, "VTALRM": 26, "PROF": 27, "WINCH": 28, "IO": 29, "PWR": 30, "SYS": 31,
}  # fmt: skip
"""The numbers of signals on x86-64."""
_SIGNAL_NAMES = {str(number): name for name, number in _SIGNALS.items()}
_PRINTED = ("EXIT", *(f"SIG{name}" for name in _SIGNALS), "DEBUG", "ERR", "RETURN")
"""The order of `trap -p`."""


def _signal_name(word: str) -> str | None:
    """Return a signal's name as in `trap -p`; None for an unknown one."""
    bare = word.upper().removeprefix("SIG")
    if word == "0" or bare in _EVENTS:
        return "EXIT" if word == "0" else bare
    name = _SIGNAL_NAMES.get(word, bare)
    return f"SIG{name}" if name in _SIGNALS else None


def trap(here: Environment, values: list[str]) -> None:
    """Run `trap`: set, remove or print traps. Errors: Abstained for the list of signals."""
    words = values[1:]
    prints = False
    here.status = 0
    while words and re.fullmatch(r"-[lp]+|--", words[0]):
        option = words.pop(0)
        if "l" in option:
            raise Abstained("trap -l")
        prints |= "p" in option
        if option == "--":
            break
    else:
        if words and re.match("-.", words[0]):
            here.usage("trap", words[0], "trap [-lp] [[arg] signal_spec ...]")
            return
    if prints or not words:
        _print_traps(here, words)
        return
    action: str | None
    if len(words) == 1 or words[0].isdecimal():
        action = None
        if len(words) == 1 and _signal_name(words[0]) is None:
            here.report(b"trap: usage: trap [-lp] [[arg] signal_spec ...]\n")
            here.status = 2
            return
    else:
        action = words.pop(0)
    for word in words:
        name = _signal_name(word)
        if name is None:
            here.complain(f"trap: {word}: invalid signal specification")
            here.status = 1
        elif name not in ("SIGKILL", "SIGSTOP"):
            _set_trap(here, name, None if action == "-" else action)


def _set_trap(here: Environment, name: str, action: str | None) -> None:
    old = here.own.traps.pop(name, None)
    here.own.inherited = {}
    if action is not None:
        here.own.traps[name] = action
    path = pointer("settings", f"trap {name}")
    known = f"trap {name}" in here.state.before.document["settings"]
    if old == action or (action is None and not known):
        return
    patch = ("r", path) if action is None else ("=" if known else "a", path, action)
    text = f"trap {quoted('-' if action is None else action)} {name}"
    here.advance(text, Behavior(0, b"", ContextPatch((patch,))))


def _print_traps(here: Environment, words: Sequence[str]) -> None:
    shown = {**here.own.inherited, **here.own.traps}
    names = []
    for word in words:
        name = _signal_name(word)
        if name is None:
            here.complain(f"trap: {word}: invalid signal specification")
            here.status = 1
        else:
            names.append(name)
    for name in names if words else _PRINTED:
        if name in shown:
            text = shown[name].replace("'", "'\\''")
            here.write(here.streams.fds[1], os.fsencode(f"trap -- '{text}' {name}\n"))


RULES: Mapping[str, Callable[[Environment, list[str]], None]] = MappingProxyType(
    {
        "[": check, "echo": echo_of_dash, "exec": become, "getopts": getopts, "let": compute,
        "mapfile": fill, "printf": format_into, "readarray": fill, "set": set_options,
        "shift": shift, "shopt": shopt, "test": check, "trap": trap, "unset": unset,
    }
)  # fmt: skip
"""Functions that evaluate these builtins, by the builtin's name."""
