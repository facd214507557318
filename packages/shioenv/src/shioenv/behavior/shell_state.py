"""The shell's own state, parsed from the dump that the shell writes when it ends.

The dump consists of sections. Each is a NUL byte, a name, a newline and the output of bash's
builtin of that name. The process that writes it may have been manipulated, so the dump is
untrusted. Parsing takes time linear in the dump's length. A dump that differs from bash's format is
`Malformed`. Then the whole shell state is unknown, which is no error of the run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

from shioenv.bash.words import unquoted
from shioenv.domain.names import value_text

Sections: TypeAlias = dict[str, bytes]
State: TypeAlias = dict[str, Any]
"""Context fields by name: `env`, `settings`, `shell_options`, ..."""

DECLARE, FUNCTIONS, SHOPT, SET = "declare -p", "function", "shopt -p", "set +o"
LIMITS, ALIASES, UMASK, TRAPS, GROUPS = "ulimit -a", "alias -p", "umask", "trap -p", "groups"
SECTIONS = (DECLARE, FUNCTIONS, SHOPT, SET, LIMITS, ALIASES, UMASK, TRAPS, GROUPS)
"""Every section of a dump, in any order. Each function has a separate `function` section."""
_MOST_SECTIONS = 10_000

LEFT_OUT = frozenset(
    {
        *("_", "OLDPWD", "PPID", "BASHPID", "COPROC_PID"),
        *("RANDOM", "SRANDOM", "SECONDS", "LINENO", "HISTCMD"),
        *("PIPESTATUS", "FUNCNAME", "DIRSTACK", "GROUPS", "SHELLOPTS", "BASHOPTS"),
    }
)
"""Variables that are not recorded, along with every `BASH_*` and `EPOCH*` (D-3). Some are counters,
some depend on how the shell was started, and some repeat `cwd`, `groups`, `settings` or
`shell_options`."""

_LEVEL = b"declare -x SHLVL="
_LEFT_OUT_PREFIXES = ("BASH_", "EPOCH")

# Possessive quantifiers and atomic groups throughout: no hostile value makes a pattern backtrack.
# (Groups are never possessive: Python before 3.11.5 matches possessive groups wrongly.)
_DOUBLE = rb'"(?>(?:[^"\\]++|\\.)*)"'
_ANSI = rb"\$'(?>(?:[^'\\]++|\\.)*)'"
_ARRAY = rb"\((?>(?:[^\"'\\()$]++|" + _DOUBLE + rb"|" + _ANSI + rb"|\\.|\$(?!'))*)\)"
_DECLARATION = re.compile(
    rb"declare -([-A-Za-z]{1,20}+) ([A-Za-z_][A-Za-z0-9_]*+)(?>(?:=("
    + rb"|".join((_DOUBLE, _ANSI, _ARRAY))
    + rb"))?)\n",
    re.DOTALL,
)
_SHORT = 512  # maximum bytes of a declaration whose result is cached
_QUOTED = rb"(?>(?:'[^']*+'|\\')+)"
_ALIAS = re.compile(rb"alias (?:-- )?([^\s=]++)=(" + _QUOTED + rb")\n")
_TRAP = re.compile(rb"trap -- (-|" + _QUOTED + rb") (\S++)\n")
_SHOPT = re.compile(rb"shopt -([su]) (\w++)\n")
_SET = re.compile(rb"set ([-+])o ([\w-]++)\n")
_LIMIT = re.compile(rb"([^(\n]{1,80}+)\([^)\n]{1,40}+\) (\S++)\n")
_UMASK = re.compile(rb"([0-7]{4})\n")
_FUNCTION = re.compile(rb"(?:function )?([^\s()]++) \(\) *+\n(?=[{(])")
_ATTRIBUTES = re.compile(rb"declare -f([a-z]{0,9}+) \S++")
_EVENTS = frozenset({"EXIT", "DEBUG", "ERR", "RETURN"})


class Malformed(Exception):  # noqa: N818 - it never leaves this package
    """The dump differs from bash's format."""


class ShellDump:
    """A lazily parsed dump. Errors: Malformed if the part that is read is not in bash's format."""

    def __init__(self, dump: bytes, groups: Mapping[int, str]) -> None:
        """`groups` are the system's group names by number."""
        self.dump = dump
        self.sections = sections(dump)
        self._groups = groups
        self._states: dict[str, State] = {}

    def state(self, name: str) -> State:
        """Return the context fields that one section fills, with their values."""
        if name not in self._states:
            self._states[name] = section_state(name, self.sections[name], self._groups)
        return self._states[name]

    def fields(self) -> State:
        """Return the context fields that all sections fill, with their values."""
        return merged(self.state(name) for name in self.sections)

    @cached_property
    def declarations(self) -> Declarations:
        """The variables, for comparison with those of a later dump."""
        return Declarations(self.sections[DECLARE], self.state(DECLARE))


def sections(dump: bytes) -> Sections:
    """Return the contents of a dump's sections by name.

    Sections of functions are joined, with a NUL byte before each. Errors: Malformed for a missing,
    doubled or unknown section.
    """
    before, *chunks = dump.split(b"\0", _MOST_SECTIONS)
    known: Sections = {}
    functions = []
    for chunk in chunks:
        name, newline, content = chunk.partition(b"\n")
        section = name.decode("ascii", "replace")
        if section == FUNCTIONS:
            functions.append(b"\0" + content)
        elif section in known or not newline:
            raise Malformed
        else:
            known[section] = content
    known[FUNCTIONS] = b"".join(functions)
    if before or known.keys() != set(SECTIONS):
        raise Malformed
    return known


def section_state(name: str, content: bytes, groups: Mapping[int, str]) -> State:
    """Return the context fields that one section fills, with their values.

    `groups` are the system's group names by number. Errors: Malformed if the section is not in
    bash's format.
    """
    return _READERS[name](content, groups)


def merged(states: Iterable[State]) -> State:
    """Merge the context fields of several sections; some sections share `env` or `settings`."""
    document: State = {}
    for part in states:
        for field, values in part.items():
            if isinstance(values, dict):
                document.setdefault(field, {}).update(values)
            else:
                document[field] = values
    return document


def is_left_out(name: str) -> bool:
    """Whether a variable is never recorded."""
    return name in LEFT_OUT or name.startswith(_LEFT_OUT_PREFIXES)


class Declarations:
    """Compares `declare -p` after a run with that before, without parsing unchanged lines."""

    def __init__(self, before: bytes, parsed: State) -> None:
        """`parsed` is the result of `section_state` for `before`."""
        lines = frozenset(before.splitlines(keepends=True))
        recorded = {line for line in lines if not _line_is_left_out(line)}
        self._comparable = len(parsed["env"]) + len(parsed["settings"]) == len(recorded)
        # `exec` decrements SHLVL, and so does bash before a last command that runs without a fork
        level = next((line for line in recorded if line.startswith(_LEVEL)), None)
        lowered = None if level is None else _lowered(level)
        self._levels = frozenset(line for line in (level, lowered) if line is not None)
        self._recorded = frozenset(recorded - self._levels)
        self._known = lines | self._levels

    def unchanged(self, after: bytes) -> bool:
        """Whether only left-out variables differ. May be False if only parsing could decide this.

        Lines are compared as a set. That is sound if every line of the first dump is a complete
        declaration. A value of several lines begins with a line that is no complete declaration, so
        is not among them.
        """
        if not self._comparable:
            return False
        lines = frozenset(after.splitlines(keepends=True))
        if not self._recorded <= lines or (self._levels and len(self._levels & lines) != 1):
            return False
        return all(_line_is_left_out(line) for line in lines - self._known)


def _lowered(line: bytes) -> bytes | None:
    """Return the declaration of the shell's level minus one; None if the level is not a number."""
    match = _DECLARATION.fullmatch(line)
    value = _unquoted(match[3]).decode("ascii", "replace") if match and match[3] else ""
    return b'%b"%d"\n' % (_LEVEL, int(value) - 1) if value.isdecimal() else None


def _line_is_left_out(line: bytes) -> bool:
    return _short_is_left_out(line) if len(line) <= _SHORT else _is_left_out(line)


def _is_left_out(line: bytes) -> bool:
    match = _DECLARATION.fullmatch(line)
    return match is not None and is_left_out(match[2].decode())


_short_is_left_out = lru_cache(maxsize=2048)(_is_left_out)


def _contiguous(pattern: re.Pattern[bytes], content: bytes) -> Iterator[re.Match[bytes]]:
    """Yield every match of the pattern. Errors: Malformed if there is a gap between them."""
    position = 0
    while position < len(content):
        match = pattern.match(content, position)
        if match is None:
            raise Malformed
        yield match
        position = match.end()


def _declarations(content: bytes, _: Mapping[int, str]) -> State:
    """Return exported variables as `env` and all others as `settings`.

    A value is its text; an array is written as in bash: `([0]="a" [1]="b")`. If a variable has
    further attributes, no value, or is an exported array, its value alone would be ambiguous, so
    the declaration is recorded. Variables without a value and exported arrays are in `settings`.
    """
    env: dict[str, str] = {}
    settings: dict[str, str] = {}
    for match in _contiguous(_DECLARATION, content):
        line = match[0]
        known = _short_declaration(line) if len(line) < _SHORT else _declaration(match)
        if known is not None:
            exported, name, text = known
            (env if exported else settings)[name] = text
    return {"env": env, "settings": settings}


def _declaration(match: re.Match[bytes]) -> tuple[bool, str, str] | None:
    """Return whether a variable belongs in `env`, its name and its text; None if not recorded."""
    flags, raw, value = match[1].decode(), match[2], match[3]
    name = raw.decode()
    if is_left_out(name):
        return None
    if value is None or set(flags) - set("-xaA"):
        text = value_text(match[0].rstrip(b"\n"))
    elif value.startswith(b"("):
        text = value_text(value if "x" not in flags else match[0].rstrip(b"\n"))
    else:
        text = value_text(_unquoted(value))
    return "x" in flags and value is not None and not value.startswith(b"("), name, text


@lru_cache(maxsize=2048)
def _short_declaration(line: bytes) -> tuple[bool, str, str] | None:
    """Cached `_declaration`: most variables do not change between runs."""
    match = _DECLARATION.fullmatch(line)
    return None if match is None else _declaration(match)


def _functions(content: bytes, _groups: Mapping[int, str]) -> State:
    """Return function definitions by name, without headers. Exported ones are in `env` as well."""
    functions: dict[str, str] = {}
    env: dict[str, str] = {}
    for definition in content.split(b"\0")[1:]:
        header = _FUNCTION.match(definition)
        if header is None:
            raise Malformed
        name, body = value_text(header[1]), definition[header.end() :].rstrip(b"\n")
        rest, _, last = body.rpartition(b"\n")
        attributes = _ATTRIBUTES.fullmatch(last)
        text = functions[name] = value_text(rest if attributes else body)
        if attributes and b"x" in attributes[1]:
            env[f"BASH_FUNC_{name}%%"] = f"() {text}"
    return {"functions": functions, "env": env}


def _shopt(content: bytes, _: Mapping[int, str]) -> State:
    matches = _contiguous(_SHOPT, content)
    return {"shell_options": {match[2].decode(): match[1] == b"s" for match in matches}}


def _set(content: bytes, _: Mapping[int, str]) -> State:
    """Return the options of `set -o` as settings named `-o NAME`, which no variable can have."""
    matches = _contiguous(_SET, content)
    names = ((match, match[2].decode("ascii", "replace")) for match in matches)
    return {"settings": {f"-o {name}": match[1] == b"-" for match, name in names}}


def _limits(content: bytes, _: Mapping[int, str]) -> State:
    matches = _contiguous(_LIMIT, content)
    return {"limits": {value_text(match[1].strip()): value_text(match[2]) for match in matches}}


def _aliases(content: bytes, _: Mapping[int, str]) -> State:
    matches = _contiguous(_ALIAS, content)
    return {"aliases": {value_text(match[1]): value_text(_unquoted(match[2])) for match in matches}}


def _traps(content: bytes, _: Mapping[int, str]) -> State:
    """Return traps as settings named `trap SIGNAL`, because the context has no field for traps.

    In POSIX mode bash also lists traps that are not set, as `-`, and omits the SIG of names.
    """
    traps: dict[str, str] = {}
    for match in _contiguous(_TRAP, content):
        if match[1] != b"-":
            signal = value_text(match[2])
            if not (signal in _EVENTS or signal.startswith("SIG") or signal.isdigit()):
                signal = f"SIG{signal}"
            traps[f"trap {signal}"] = value_text(_unquoted(match[1]))
    return {"settings": traps}


def _umask(content: bytes, _: Mapping[int, str]) -> State:
    match = _UMASK.fullmatch(content)
    if match is None:
        raise Malformed
    return {"umask": match[1].decode()}


def _groups(content: bytes, groups: Mapping[int, str]) -> State:
    words = content.split()
    if not all(word.isdigit() and len(word) <= 10 for word in words):
        raise Malformed
    numbers = [int(word) for word in words]
    return {"groups": [groups.get(number, str(number)) for number in numbers]}


_READERS: Mapping[str, Callable[[bytes, Mapping[int, str]], State]] = {
    DECLARE: _declarations,
    FUNCTIONS: _functions,
    SHOPT: _shopt,
    SET: _set,
    LIMITS: _limits,
    ALIASES: _aliases,
    UMASK: _umask,
    TRAPS: _traps,
    GROUPS: _groups,
}


def _unquoted(value: bytes) -> bytes:
    """Return the value that bash wrote in quotes as `value`."""
    text = unquoted(value.decode("utf-8", "surrogateescape"))
    return text.encode("utf-8", "surrogateescape")
