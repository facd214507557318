"""Output of read-only programs, computed from their arguments and the state.

The programs are `base64 -d`, `basename`, `bc`, `cat /dev/null`, `comm`, `diff`, `dirname`, `env`,
`expr`, and `groups`, `id`, `printenv`, `readlink`, `seq`, `sort`, `wc`, `which` and `yes`. Their
common options are supported. Other uses are left to a runner.
"""

from __future__ import annotations

import base64
import binascii
import os
import posixpath
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from shioenv.domain.behavior import Behavior
from shioenv.domain.readable import mode_of
from shioenv.domain.runner import State
from shioenv.errors import Abstained
from shioenv_model.bash.arithmetic import evaluate
from shioenv_model.bash.patterns import translated
from shioenv_model.bash.work import spend
from shioenv_model.composition.call import Call
from shioenv_model.composition.opening import NULL
from shioenv_model.composition.variables import Variables
from shioenv_model.memory.functions.counting import figures, row
from shioenv_model.memory.functions.families import above, last_part
from shioenv_model.rules.accounts import groups_of_users, id_lines
from shioenv_model.rules.differences import run_diff
from shioenv_model.rules.sorting import common_lines, sorted_text
from shioenv_model.rules.words import options_of, parse_options, words_of

KILLED = 137
"""Exit code of a program killed for exceeding the output limit."""
_PRINTED = 64 * 1024
"""Number of bytes that are kept of output beyond the limit."""
_BUCKETS = 1024
"""Number of buckets of Bash's hash table of variables (`VARIABLES_HASH_BUCKETS`, `variables.c`)."""
_WHOLE = re.compile(r"-?\d{1,15}", re.ASCII)
_MOST_NUMBERS = 20_000
"""Maximum number of numbers printed by `seq` (our choice)."""
_OF_SEQ = {"equal-width": "w", "separator": "s"}
_SHORT = re.compile(r"-?(?:0|[1-9]\d{0,8})", re.ASCII)
"""Numbers so short that the product of two fits 64 bits."""
_SIGNS = frozenset({"+", "-", "*", "/", "%", "<", "<=", ">", ">=", "==", "!="})
_PLAIN = re.compile(r"(?!length|index|match|substr)[a-zA-Z]\w*|\d+\.\d+", re.ASCII)
"""Words that are neither integers nor functions or operators of `expr`."""
_TOKEN = r"\d+|[<>=!]=?|[-+*/%()]"
_IN_TURN = re.compile(r"\(*n\)*(?:s\(*n\)*)*")
"""Alternating numbers and operators, with or without parentheses."""


def printed(call: Call, state: State) -> Behavior | None:
    """Return the behavior of a supported program; None if no rule applies."""
    try:
        name, *words = words_of(call, state, PROGRAMS)
        return PROGRAMS[name](words, state)
    except Abstained:
        return None


def _said(lines: Iterable[str], code: int = 0) -> Behavior:
    return _output(os.fsencode("".join(f"{line}\n" for line in lines)), code)


def _output(data: bytes, code: int = 0) -> Behavior:
    return Behavior(code, data, stdout=data, stderr=b"")


def _pieces(pieces: Sequence[tuple[str, bool]], code: int) -> Behavior:
    """Assemble a behavior from pieces of output, each with whether it goes to standard error."""
    shown, out, errors = (
        os.fsencode("".join(text for text, is_error in pieces if is_error in which))
        for which in ((False, True), (False,), (True,))
    )
    return Behavior(code, shown, stdout=out, stderr=errors)


def _refused(text: str, code: int) -> Behavior:
    data = os.fsencode(f"{text}\n")
    return Behavior(code, data, stdout=b"", stderr=data)


def _leading(words: Sequence[str], letters: str) -> tuple[set[str], list[str]]:
    """Parse options like `options_of`, but only before the operands."""
    options, operands = parse_options(words, letters, permutes=False)
    return {letter for letter, _ in options}, operands


def _basename(words: Sequence[str], state: State) -> Behavior:
    options, names = _leading(words, "a")
    suffix = ""
    if not names:
        raise Abstained("too few names")
    if not options:
        if len(names) > 2:
            raise Abstained("too many names")
        suffix = names.pop() if len(names) == 2 else ""
    found = map(last_part, names)
    return _said(one.removesuffix(suffix) or one for one in found)


def _dirname(words: Sequence[str], state: State) -> Behavior:
    _, names = options_of(words, "")
    if not names or not all(names):
        raise Abstained("too few names")
    return _said(map(above, names))


def _bc(words: Sequence[str], state: State) -> Behavior:
    options, files = options_of(words, "q")
    text = os.fsdecode(state.stdin)
    if files or options - {"q"} or not re.fullmatch(r"[-\d+*/%<>=!() \t;\n]+", text):
        raise Abstained("more than whole numbers")
    statements = filter(None, (re.findall(_TOKEN, each) for each in re.split("[;\n]", text)))
    return _said([str(_computed(statement)) for statement in statements])


def _base64(words: Sequence[str], state: State) -> Behavior:
    if words not in (["-d"], ["--decode"]):
        raise Abstained("a form that is left to records")
    try:
        return _output(base64.b64decode(state.stdin.replace(b"\n", b""), validate=True))
    except binascii.Error:
        raise Abstained("invalid base64") from None


def _cat(words: Sequence[str], state: State) -> Behavior:
    if not words or set(words) != {NULL}:
        raise Abstained("a form that is left to records")
    return _output(b"")


def _of_users(
    told: Callable[[Sequence[str], State], Iterable[tuple[str, str]]],
) -> Callable[[Sequence[str], State], Behavior]:
    def said(words: Sequence[str], state: State) -> Behavior:
        lines = [(f"{line or wrong}\n", bool(wrong)) for line, wrong in told(words, state)]
        return _pieces(lines, int(any(wrong for _, wrong in lines)))

    return said


def _which(words: Sequence[str], state: State) -> Behavior:
    options, names = _leading(words, "a")
    path = str(state.before.document["env"].get("PATH", ""))
    found: list[str] = []
    missing = not names
    for name in names:
        places = [name] if "/" in name else [f"{each or '.'}/{name}" for each in path.split(":")]
        there = [place for place in places if _is_program(place, state)]
        found += there if "a" in options else there[:1]
        missing = missing or not there
    return _said(found, int(missing))


def _is_program(path: str, state: State) -> bool:
    entry = state.entry(state.resolve(path))
    return entry is not None and entry.perms[0] == "-" and bool(mode_of(entry.perms) & 0o111)


def _expr(words: Sequence[str], state: State) -> Behavior:
    computes = len(words) == 3 and words[1] in {"+", "-", "*", "/", "%"}
    if computes and any(map(_PLAIN.fullmatch, (words[0], words[2]))):
        return _refused("expr: non-integer argument", 2)
    if computes and words[1] in {"/", "%"} and re.fullmatch("0+", words[2]):
        return _refused("expr: division by zero", 2)
    if len(words) == 3 and words[1] == ":":
        return _matched(words[2], words[0])
    if len(words) == 3 and words[1] in {"=", "!="} and all(map(_PLAIN.fullmatch, words[::2])):
        same = (words[0] == words[2]) == (words[1] == "=")
        return _said([str(int(same))], int(not same))
    value = _computed(["==" if word == "=" else word for word in words])
    return _said([str(value)], int(not value))


def _matched(pattern: str, text: str) -> Behavior:
    """Match a basic expression at the start of a text (expr(1)): its group, or its length."""
    if not text.isascii() or "\n" in text or _searches_long(pattern):
        raise Abstained("a pattern that is beyond it")
    try:
        found = re.match(translated(pattern, "basic"), text)
    except (ValueError, re.error):
        raise Abstained("a pattern that is beyond it") from None
    if "\\(" in pattern:
        shown = (found[1] or "") if found else ""
    else:
        shown = str(found.end()) if found else "0"
    return _said([shown], int(shown in ("", "0")))


def _searches_long(pattern: str) -> bool:
    """Whether matching a pattern may take long: it has alternatives, or repeats a group."""
    return len(pattern) > 100 or re.search(r"\\\||\\\)[*\\]|\\\d", pattern) is not None


def _computed(tokens: Sequence[str]) -> int:
    """Evaluate integers joined by operators. Errors: Abstained for other tokens."""
    signs = [token for token in tokens if token in _SIGNS]
    kinds = "".join(
        "n" if _SHORT.fullmatch(token) else "s" if token in _SIGNS else token for token in tokens
    )
    compared = sum(token[0] in "<>=!" for token in signs)
    if not _IN_TURN.fullmatch(kinds) or signs.count("*") > 1 or compared > 1:
        raise Abstained("more than arithmetic of small numbers")
    return evaluate(" ".join(tokens), lambda name: None)


def _seq(words: Sequence[str], state: State) -> Behavior:
    at = next((at for at, word in enumerate(words) if re.match(r"-[\d.]", word)), len(words))
    options, numbers = parse_options(words[:at], "w", "s", _OF_SEQ, permutes=False)
    given, numbers = dict(options), [*numbers, *words[at:]]
    if not 1 <= len(numbers) <= 3 or not all(map(_WHOLE.fullmatch, numbers)):
        raise Abstained("no one to three whole numbers")
    first, last = numbers[0] if len(numbers) > 1 else "1", numbers[-1]
    by = int(numbers[1]) if len(numbers) == 3 else 1
    counted = range(int(first), int(last) + (1 if by > 0 else -1), by or 1)
    if not by or len(counted) > _MOST_NUMBERS:
        raise Abstained("no step, or too many numbers")
    spend(len(counted))
    width = max(len(first), len(last)) if "w" in given else 0
    shown = given.get("s", "\n").join(f"{number:0{width}}" for number in counted)
    return _output(os.fsencode(f"{shown}\n" if counted else ""))


def _comm(words: Sequence[str], state: State) -> Behavior:
    return _pieces(*common_lines(words, state))


def _sort(words: Sequence[str], state: State) -> Behavior:
    return _output(sorted_text(words, state))


def _env(words: Sequence[str], state: State) -> Behavior:
    if words:
        raise Abstained("a separate command")
    variables = _environment(state, "env")
    return _said(f"{name}={value}" for name, value in variables.items())


def _printenv(words: Sequence[str], state: State) -> Behavior:
    _, names = _leading(words, "")
    variables = _environment(state, "printenv")
    if not names:
        return _said(f"{name}={value}" for name, value in variables.items())
    return _said(
        (variables[name] for name in names if name in variables),
        int(not variables.keys() >= {*names}),
    )


def _environment(state: State, program: str) -> dict[str, str]:
    """Return a program's environment in the order in which Bash exports it: by hash bucket."""
    document = state.before.document
    if "PATH" not in document["env"] or document["settings"].get("-o allexport"):
        raise Abstained("more is in the environment than is known")
    left = Variables(state).variable("OLDPWD")
    values = {**document["env"], **({} if left is None else {"OLDPWD": left})}
    if len({_hash(name) % _BUCKETS for name in values}) < len(values):
        raise Abstained("two names in one list")
    names = sorted(values, key=lambda name: _hash(name) % _BUCKETS)
    variables = {name: str(values[name]) for name in names}
    for directory in variables["PATH"].split(":"):
        whole = posixpath.join(directory, program)
        if directory.startswith("/") and state.entry(whole):
            return {**variables, "_": whole}
    raise Abstained("a program that is not found")


def _hash(name: str) -> int:
    """Return the hash of a name in Bash's tables (`hash_string`, `hashlib.c`: 32-bit FNV-1)."""
    number = 2166136261
    for byte in os.fsencode(name):
        number = (number * 16777619 & 0xFFFFFFFF) ^ byte
    return number


def _diff(words: Sequence[str], state: State) -> Behavior:
    shown, wrong, code = run_diff(words, state)
    return _pieces([(shown, False), (wrong, True)], code)


def _readlink(words: Sequence[str], state: State) -> Behavior:
    options, names = options_of(words, "fe")
    if len(names) != 1 or len(options) > 1:
        raise Abstained("several names")
    (name,) = names
    if not name or name.endswith("/"):
        raise Abstained("no name of a file")
    if not options:
        last = last_part(name)
        whole = posixpath.join(state.resolve(above(name)), last)
        entry = None if last in {".", ".."} else state.entry_at(whole)
        if entry is None or entry.target is None:
            return _said([], 1)
        return _said([entry.target])
    whole = state.resolve(name)
    if whole.startswith("/proc/"):
        raise Abstained("files of processes")
    there = state.entry_at(whole)
    if there is not None and there.target is not None:
        raise Abstained("circular links")
    around = state.entry_at(posixpath.dirname(whole))
    if around is None or not around.perms.startswith("d") or ("e" in options and there is None):
        return _said([], 1)
    return _said([whole])


def _wc(words: Sequence[str], state: State) -> Behavior:
    """Count in several files if some cannot be read (wc(1)); records answer other uses."""
    options, names = options_of(words, "clmwL")
    entries = [state.entry(state.resolve(name)) for name in names]
    wrong = {
        name: "No such file or directory" if entry is None else "Is a directory"
        for name, entry in zip(names, entries, strict=True)
        if entry is None or entry.perms[0] == "d"
    }
    if not wrong or not all(map(_NAME.fullmatch, names)):
        raise Abstained("what records show")
    kinds = [kind for letter, kind in _COUNTED.items() if letter in (options or "lwc")]
    rows, size, least = list[tuple[str, dict[str, int]]](), 0, 1
    for name, entry in zip(names, entries, strict=True):
        content = b"" if entry is None or name in wrong else state.read(name)
        if content is None or not content.isascii() or re.search(rb"[^\t-\r -~]", content):
            raise Abstained("a content that is unknown, or not plain text")
        size += len(content)
        least = 7 if entry is not None and entry.perms[0] != "-" else least
        rows.append((name, figures(content.decode())))
    if len(rows) > 1:
        totals = {kind: sum(each[kind] for _, each in rows) for kind in kinds}
        if "longest" in kinds:
            totals["longest"] = max(each["longest"] for _, each in rows)
        rows.append(("total", totals))
    width = max(least, len(str(size))) if len(rows) > 1 or len(kinds) > 1 else 1
    pieces = []
    for name, each in rows:
        if name in wrong:
            pieces.append((f"wc: {name}: {wrong[name]}\n", True))
        if wrong.get(name, "Is")[:2] == "Is":
            pieces.append((row(each, kinds, width, (name,)), False))
    return _pieces(pieces, 1)


_COUNTED = {"l": "lines", "w": "words", "m": "characters", "c": "bytes", "L": "longest"}
"""What each option of `wc` counts, in the order of its columns."""
_NAME = re.compile(r"[\w./+@%=,:-]+", re.ASCII)
"""Names that error messages show unchanged."""


def _yes(words: Sequence[str], state: State) -> Behavior:
    if any(word.startswith("-") for word in words):
        raise Abstained("options")
    line = os.fsencode(" ".join(words or ["y"])) + b"\n"
    output = (line * (_PRINTED // len(line) + 1))[:_PRINTED]
    return Behavior(
        KILLED, output, stdout=output, stderr=b"", output_truncated=True, died_by_signal=9
    )


PROGRAMS: Mapping[str, Callable[[Sequence[str], State], Behavior]] = MappingProxyType(
    {
        "base64": _base64, "basename": _basename, "bc": _bc, "cat": _cat, "comm": _comm,
        "diff": _diff, "dirname": _dirname,
        "env": _env, "expr": _expr, "groups": _of_users(groups_of_users),
        "id": _of_users(id_lines),
        "printenv": _printenv, "readlink": _readlink, "seq": _seq, "sort": _sort, "wc": _wc,
        "which": _which, "yes": _yes,
    }
)  # fmt: skip
"""Functions that compute a program's behavior, by name. Errors: Abstained if no rule applies."""
