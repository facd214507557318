"""Builtins of the shell, evaluated from a state by Bash's rules, without execution.

Other builtins, and uses that depend on more than the state, are left to a runner.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from types import MappingProxyType

from shioenv.bash.builtins import BUILTINS, KEYWORDS
from shioenv.domain.behavior import Behavior
from shioenv.domain.modes import changed_mode
from shioenv.domain.patch import ContextPatch, Operation
from shioenv.domain.pointer import pointer
from shioenv.domain.runner import State
from shioenv.errors import Abstained
from shioenv_model.bash.expand import Expander
from shioenv_model.bash.references import references
from shioenv_model.bash.work import spend
from shioenv_model.composition.call import Call
from shioenv_model.composition.conditions import DYNAMIC, Test, Wrong, is_root
from shioenv_model.composition.variables import Variables

_PLACE = "bash: line 1: "
_ESCAPE = re.compile(r"\\(?:([abeEfnrtv\\'\"?])|([0-7]{1,3})|x([0-9a-fA-F]{1,2})|(.?))", re.DOTALL)
_ESCAPES = dict(zip("abeEfnrtv\\'\"?", "\a\b\x1b\x1b\f\n\r\t\v\\'\"?", strict=True))
_DIRECTIVE = re.compile(r"%(?:%|([-0+ #]*)(\d{0,3})(?:\.(\d{0,2}))?([a-zA-Z]))")
_NUMERAL = re.compile(r"[+-]?(?:0[xX][0-9a-fA-F]+|0[0-7]*|[1-9]\d*)", re.ASCII)
_FRACTION = re.compile(r"[+-]?\d{1,12}(?:\.\d{1,12})?", re.ASCII)
_MOST_DIGITS = 64
"""Maximum digits of a number, our own limit; a 64-bit number has 22 in octal."""
_EXACT_DIGITS = 18
"""Significant decimal digits of Bash's `long double` (`LDBL_DIG` on x86-64)."""
_PLAIN = re.compile(r"[^\\%]+")
_ENABLING = re.compile(
    r"(?:^|[;&|(){!`\"'\n]|\b(?:then|do|else|elif|if|while|until|time|builtin|command|eval)\s"
    r"|(?:^|[\s;&|(){])\w+=\S*\s)\s*\\?enable(?![\w.-])"
)
"""Commands in earlier inputs that may disable a builtin: `enable` as a command."""
_MASK = re.compile(r"[0-7]{1,4}")
_SET_LETTERS: Mapping[str, str] = MappingProxyType(
    {
        "a": "allexport", "e": "errexit", "f": "noglob", "h": "hashall", "k": "keyword",
        "m": "monitor", "u": "nounset", "B": "braceexpand", "C": "noclobber", "E": "errtrace",
        "P": "physical", "T": "functrace",
    }
)  # fmt: skip
"""The options of `set` without an immediate effect, by letter."""
_SET_NAMES = frozenset({*_SET_LETTERS.values(), "pipefail", "nolog"})


class _Known(Variables):
    """The variables of a state, without those that a context does not show."""

    def variable(self, name: str) -> str | None:
        """See `Scope.variable`. Scripts expand `$0` before a command is queried."""
        if name == "0":
            return "bash"
        if name != "OLDPWD" and DYNAMIC.fullmatch(name):
            raise Abstained(f"${name} is not known")
        return super().variable(name)


def ruled(call: Call, state: State) -> Behavior | None:
    """Return the command's behavior by rule; None if no rule applies."""
    if call.closed or call.opens is not None or call.reads is not None:
        return None
    functions = state.before.document["functions"]
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


def _umask(words: list[str], state: State) -> Behavior:
    mask = str(state.before.document["umask"])
    options = [word for word in words[1:] if word in {"-p", "-S"}]
    others = words[1 + len(options) :]
    if others:
        if options or len(others) > 1:
            raise Abstained("a mask that is beyond it")
        value = others[0]
        if not _MASK.fullmatch(value):
            granted = changed_mode(value, 0o777 & ~int(mask, 8), 0, directory=False)
            if granted is None or granted > 0o777:
                raise Abstained("a mask that is beyond it")
            value = f"{0o777 & ~granted:o}"
        value = f"{int(value, 8):04o}"
        if int(value, 8) > 0o777:
            raise Abstained("a mask that is beyond it")
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


def _type(words: list[str], state: State) -> Behavior:
    options = [word for word in words[1:2] if word in {"-t"}]
    names = words[1 + len(options) :]
    if not names or any(name.startswith("-") for name in names):
        raise Abstained("options of type that are beyond it")
    parts: list[str] = []
    wrong: list[str] = []
    for name in names:
        kind, shown = _kind(name, state)
        if not kind:
            wrong.append("" if options else f"{_PLACE}type: {name}: not found\n")
        elif options:
            parts.append(f"{kind}\n")
        elif kind == "function":
            parts.append(f"{name} is a function\n{name} () \n{shown}\n")
        else:
            parts.append(f"{name} is {shown}\n")
    said, complaint = os.fsencode("".join(parts)), os.fsencode("".join(wrong))
    if said and complaint and not _kind(names[0], state)[0]:
        raise Abstained("a message between what is printed")
    return Behavior(int(bool(wrong)), said + complaint, stdout=said, stderr=complaint)


def _kind(name: str, state: State) -> tuple[str, str]:
    """Return a name's type and description, as in `type -t` and `type`; "" if not found."""
    document = state.before.document
    if name in document["aliases"] and document["shell_options"].get("expand_aliases"):
        raise Abstained("an alias")
    if name in KEYWORDS:
        return "keyword", "a shell keyword"
    if name in document["functions"]:
        return "function", document["functions"][name]
    if name in BUILTINS:
        return "builtin", "a shell builtin"
    path = _program(name, state)
    called = re.compile(rf"(?:^|[;&|(){{\n]|\b(?:then|do|else|!)\s)\s*{re.escape(name)}(?![\w./-])")
    if path and any(called.search(text) for text in state.history):
        raise Abstained("the shell may remember where a program is")
    return ("file", path) if path else ("", "")


def _program(name: str, state: State) -> str:
    """Return the file that a PATH lookup finds for a name; "" if there is none."""
    if not is_root(state) or not name:
        raise Abstained("what an ordinary user may run is beyond it")
    if "/" in name:
        return name if Test(state, ("-x", name)).value() and _is_file(name, state) else ""
    for directory in str(state.before.document["env"].get("PATH", "")).split(":"):
        if not directory.startswith("/"):
            raise Abstained("PATH names a directory by another one")
        path = f"{directory}/{name}"
        if _is_file(path, state):
            if not Test(state, ("-x", path)).value():
                raise Abstained(f"{path} is no program")
            return path
    return ""


def _is_file(path: str, state: State) -> bool:
    return Test(state, ("-f", path)).value()


def _command(words: list[str], state: State) -> Behavior:
    if words[1:2] != ["-v"]:
        raise Abstained("more than command -v NAME")
    shown = []
    for name in words[2:]:
        kind, path = _kind(name, state)
        if kind == "file" and "/" in name:
            raise Abstained("a path is shown whole")
        if kind:
            shown.append(f"{path if kind == 'file' else name}\n")
    return _said("".join(shown), int(not shown))


def _set(words: list[str], state: State) -> Behavior:
    operations: dict[str, bool] = {}
    rest = words[1:]
    while rest:
        word = rest.pop(0)
        on, letters = word[:1] == "-", word[1:]
        if word[:1] not in {"-", "+"} or not letters:
            raise Abstained("parameters are set")
        for letter in letters:
            name = _SET_LETTERS.get(letter, "")
            if letter == "o":
                name = rest.pop(0) if rest else ""
            if name not in _SET_NAMES:
                raise Abstained("an option of set that is beyond it")
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
            raise Abstained("an alias that is beyond it")
        if equals:
            if aliases.get(name) != value:
                code = "=" if name in aliases else "a"
                operations.append((code, pointer("aliases", name), value))
        elif name in aliases:
            escaped = aliases[name].replace("'", "'\\''")
            shown.append(f"alias {name}='{escaped}'\n")
        elif len(told) > 1:
            raise Abstained("one of several aliases is not there")
        else:
            return _refused(f"alias: {name}: not found", 1)
    return _said("".join(shown), 0, ContextPatch(tuple(operations)))


def _unalias(words: list[str], state: State) -> Behavior:
    aliases = state.before.document["aliases"]
    names = sorted(aliases) if words[1:] == ["-a"] else words[1:]
    if not words[1:] or any(name.startswith("-") for name in names):
        raise Abstained("unalias with options that are beyond it")
    gone = tuple(("r", pointer("aliases", name)) for name in names if name in aliases)
    wrong = "".join(
        f"{_PLACE}unalias: {name}: not found\n" for name in names if name not in aliases
    )
    data = os.fsencode(wrong)
    return Behavior(int(bool(wrong)), data, ContextPatch(gone), stdout=b"", stderr=data)


_ECHO_ESCAPE = re.compile(
    r"\\(?:([abeEfnrtv\\])|0([0-7]{0,3})|x([0-9a-fA-F]{1,2})|(c)|(.?))", re.DOTALL
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
    return _said(echoed(text, newline) if escapes else text + newline)


def echoed(text: str, newline: str) -> str:
    r"""Return the output of `echo -e`; `\c` ends it. Errors: Abstained."""
    parts: list[str] = []
    place = 0
    while match := _ECHO_ESCAPE.search(text, place):
        letter, octal, digits, ends, other = match.groups()
        parts.append(text[place : match.start()])
        if ends:
            return "".join(parts)
        if letter:
            parts.append(_ESCAPES[letter])
        elif octal is not None or digits:
            code = int(octal or "0", 8) & 255 if octal is not None else int(digits, 16)
            if not 0 < code < 128:
                raise Abstained("a byte that is no character")
            parts.append(chr(code))
        elif other and other in "uU":
            raise Abstained("an escape that is beyond it")
        else:
            parts.append("\\" + other)
        place = match.end()
    return "".join(parts) + text[place:] + newline


def _printf(words: list[str], state: State) -> Behavior:
    return _said(formatted(words[2:] if words[1:2] == ["--"] else words[1:], words[1:2] == ["--"]))


def formatted(arguments: Sequence[str], after_options: bool = False) -> str:
    """Return the text that `printf` prints for a format and its values. Errors: Abstained."""
    if not arguments or (arguments[0].startswith("-") and not after_options):
        raise Abstained("printf with options")
    shape, *values = arguments
    if not shape.isascii() and "%" in shape:
        raise Abstained("a format that is beyond it")
    parts: list[str] = []
    taken = 0
    while True:
        before, taken = taken, _formatted(shape, values, taken, parts)
        if taken >= len(values) or taken == before:
            return "".join(parts)


def _formatted(shape: str, values: Sequence[str], taken: int, parts: list[str]) -> int:
    """Apply the format once, appending to `parts`; return how many of `values` are consumed.

    Errors: Abstained.
    """
    place = 0
    while place < len(shape):
        character = shape[place]
        if character == "\\":
            match = _ESCAPE.match(shape, place)
            assert match is not None
            parts.append(_escaped(match))
        elif character == "%":
            match = _DIRECTIVE.match(shape, place)
            if match is None:
                raise Abstained("a directive that is beyond it")
            value = values[taken] if taken < len(values) else None
            parts.append(_directed(match, value))
            taken += match[0] != "%%" and value is not None
        else:
            match = _PLAIN.match(shape, place)
            assert match is not None
            parts.append(match[0])
        spend(1 + len(parts[-1]))
        place = match.end()
    return taken


def _escaped(match: re.Match[str]) -> str:
    """Return the character of an escape in a format."""
    letter, octal, digits, other = match.groups()
    if letter:
        return _ESCAPES[letter]
    code = int(octal, 8) & 255 if octal else int(digits, 16) if digits else None
    if code is None:
        if other and other not in "cuUx":
            return "\\" + other
        raise Abstained("an escape that is beyond it")
    if not 0 < code < 128:
        raise Abstained("a byte that is no character")
    return chr(code)


def _directed(match: re.Match[str], value: str | None) -> str:
    if match[0] == "%%":
        return "%"
    flags, width, precision, letter = match.groups()
    number = int(width or 0)
    if letter in "sc":
        text = value or ""
        if letter == "c" and (flags or width or precision or not text):
            raise Abstained("a character that is beyond it")
        text = text[:1] if letter == "c" else text
        if (width or precision is not None) and not text.isascii():
            raise Abstained("a width of more than bytes")
        if set(flags) - {"-"}:
            raise Abstained("flags that a text does not take")
        text = text if precision is None else text[: int(precision or 0)]
        return text.ljust(number) if "-" in flags else text.rjust(number)
    if letter in "diouxX":
        if precision is not None:
            raise Abstained("a number with a precision")
        amount = _whole(value)
        if letter in "ouxX":
            if set(flags) - {"-", "0"}:
                raise Abstained("flags that are beyond it")
            amount %= 2**64
        return _numeral(flags, width, "d" if letter in "iu" else letter, amount)
    if letter in "fF":
        return _fixed(flags, width, 6 if precision is None else int(precision or 0), value)
    raise Abstained(f"%{letter} is beyond it")


def _numeral(flags: str, width: str, letter: str, amount: int) -> str:
    if "#" in flags:
        raise Abstained("a flag that is beyond it")
    return f"%{flags}{width}{letter}" % amount


def _whole(value: str | None) -> int:
    if not value:
        if value is None:
            return 0
        raise Abstained("a number without digits")
    if value[0] in "'\"" and len(value) == 2 and value.isascii():
        return ord(value[1])
    if not _NUMERAL.fullmatch(value):
        raise Abstained("a number that Bash refuses")
    sign, digits = (-1 if value[0] == "-" else 1), value.lstrip("+-")
    if len(digits) > _MOST_DIGITS:
        raise Abstained("a number that is too long")
    octal = digits.startswith("0") and digits[1:2] not in {"x", "X"}
    amount = sign * int(digits, 8 if octal else 0)
    if not -(2**63) <= amount < 2**63:
        raise Abstained("a number that is too large")
    return amount


def _fixed(flags: str, width: str, places: int, value: str | None) -> str:
    text = "0" if value is None else value
    if not _FRACTION.fullmatch(text) or "#" in flags:
        raise Abstained("a fraction that is beyond it")
    exact = Decimal(text)
    if max(len(exact.as_tuple().digits), exact.adjusted() + 1 + places) > _EXACT_DIGITS:
        raise Abstained("more digits than Bash keeps")
    scaled = exact.scaleb(places)
    if scaled % 1 in {Decimal("0.5"), Decimal("-0.5")} or not exact:
        raise Abstained("a fraction halfway between two")
    rounded = f"{exact:.{places}f}"
    return rounded.rjust(int(width or 0)) if not flags else _flagged(flags, width, rounded)


def _flagged(flags: str, width: str, text: str) -> str:
    sign = "" if text.startswith("-") else "+" if "+" in flags else " " if " " in flags else ""
    text, number = sign + text, int(width or 0)
    if "-" in flags:
        return text.ljust(number)
    return text.zfill(number) if "0" in flags else text.rjust(number)


RULES: Mapping[str, Callable[[list[str], State], Behavior]] = MappingProxyType(
    {
        "test": _test, "[": _test, "umask": _umask, "type": _type, "command": _command,
        "alias": _alias, "unalias": _unalias, "echo": _echo, "set": _set,
        "printf": _printf, "true": _ends(0), ":": _ends(0), "false": _ends(1),
    }
)  # fmt: skip
"""Return the behavior of each builtin, by name. Errors: Abstained if undecided."""
