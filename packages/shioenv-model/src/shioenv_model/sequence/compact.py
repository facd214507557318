"""A compact text format of behaviors for sequence models, with an incremental validator.

A target is the text that the model generates. It has the exit code, the pieces of output in order,
and the patch: a line for each file or value. It omits values that can be derived from the state and
the clock. By default, a new file belongs to the session's user and has the current time. An
`Acceptor` admits only text that can be completed to lines that fit the state. So every finished
text is a valid patch.
"""

from __future__ import annotations

import codecs
import json
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import regex

from shioenv.domain.behavior import Behavior
from shioenv.domain.context import MONTHS, OF_DATE, keys, pointer
from shioenv.domain.names import name_bytes, name_text
from shioenv.domain.patch import ContextPatch, Operation
from shioenv.errors import ContextError, PatchError

OUTPUT, ERRORS, PATCH = "<output>", "<errors>", "<patch>"
"""The marks before text on standard output, text on standard error, and the patch."""

_REQUIRED = ("perms", "links", "owner", "group", "size", *OF_DATE)

_MONTH = rb"(?:" + "|".join(MONTHS).encode() + rb")"
_DAY, _YEAR, _TIME = rb"(?:[1-9]|[12]\d|3[01])", rb"[1-9]\d{3}", rb"(?:[01]\d|2[0-3]):[0-5]\d"
_COUNT = rb"(?:0|[1-9]\d{0,14})"
_PERMS = rb"[-dlcbps](?:[-r][-w][-xsS]){2}[-r][-w][-xtT]"
_OWNER = rb"[A-Za-z0-9_][\w.-]*"
_WORD = rb"(?:[^\s\\\x00]|\\\\|\\x[0-9a-f]{2})+"
_ATTRIBUTES: Mapping[str, bytes] = {
    "perms": _PERMS, "links": _COUNT, "owner": _OWNER, "group": _OWNER, "size": _COUNT,
    "month": _MONTH, "day": _DAY, "year": _YEAR, "time": _TIME, "target": _WORD,
}  # fmt: skip
_NUMBERS = frozenset({"links", "size", "day", "year"})

_STRING = rb'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u00[0-9a-f]{2}))*"'
_NUMBER = rb"-?(?:0|[1-9]\d{0,14})"
_SCALAR = rb"(?:" + _STRING + rb"|" + _NUMBER + rb"|true|false|null)"


def _nested(inner: bytes) -> bytes:
    items = rb"\[(?:" + inner + rb"(?:," + inner + rb")*)?\]"
    pair = _STRING + rb":" + inner
    return rb"(?:" + inner + rb"|" + items + rb"|\{(?:" + pair + rb"(?:," + pair + rb")*)?\})"


_JSON = _nested(_nested(_SCALAR))
_ADDED = regex.compile(
    rb"\+(?P<name>" + _WORD + rb") (?P<perms>" + _PERMS + rb") (?P<links>" + _COUNT
    + rb") (?P<size>" + _COUNT + rb")(?: (?P<owner>" + _OWNER + rb"):(?P<group>" + _OWNER + rb"))?"
    rb"(?: @(?P<month>" + _MONTH + rb") (?P<day>" + _DAY + rb") (?P<year>" + _YEAR
    + rb") (?P<time>" + _TIME + rb"))?(?: >(?P<target>" + _WORD + rb"))?"
)  # fmt: skip
_CHANGED = regex.compile(
    rb"(?: (?:" + b"|".join(name.encode() + rb" " + shape for name, shape in _ATTRIBUTES.items()
    if name != "target") + rb"|target " + _WORD + rb"))*(?: @)?"
)  # fmt: skip
_VALUES = regex.compile(_JSON)
_STRINGS, _FLAGS, _INTEGERS = map(regex.compile, (_STRING, rb"true|false", _NUMBER))
_NAMED = ("env", "settings", "functions", "aliases")
_LINKED = ("links", "addresses", "routes")


@dataclass(frozen=True, slots=True)
class Now:
    """The fixed instant of the machine, in the format of file entries."""

    month: str
    day: int
    year: int
    time: str

    @property
    def text(self) -> str:
        """The instant in readable form: `2025-10-16 19:43`."""
        return f"{self.year}-{MONTHS.index(self.month) + 1:02}-{self.day:02} {self.time}"


@dataclass(frozen=True, slots=True)
class Target:
    """The text that a sequence model generates for a command."""

    exit_code: int
    printed: tuple[tuple[str, bytes], ...] = ()
    """Pieces of output, each with `OUTPUT` or `ERRORS`, in the order they arrived."""
    patch: str = ""
    """The lines of the patch, each with its newline."""

    def behavior(self, patch: ContextPatch) -> Behavior:
        """Return the behavior with this patch, the result of `operations_of` for the lines."""
        return Behavior(
            self.exit_code,
            b"".join(text for _, text in self.printed),
            patch,
            stdout=b"".join(text for channel, text in self.printed if channel == OUTPUT),
            stderr=b"".join(text for channel, text in self.printed if channel == ERRORS),
        )


def target_of(behavior: Behavior, names: DocumentNames, now: Now) -> Target | None:
    """Convert a behavior to a target; None if the format cannot express it.

    `names` are the names in the document to which the behavior's patch applies.
    """
    lines = patch_lines(behavior.patch, names, now)
    if lines is None:
        return None
    return Target(behavior.exit_code, _pieces(behavior), lines)


def _pieces(behavior: Behavior) -> tuple[tuple[str, bytes], ...]:
    whole, out, err = behavior.output, behavior.stdout or b"", behavior.stderr or b""
    if not whole:
        return ()
    if not err:
        return ((OUTPUT, whole),)
    if not out:
        return ((ERRORS, whole),)
    left = {OUTPUT: out, ERRORS: err}
    found: list[tuple[str, bytes]] = []
    for line in whole.splitlines(keepends=True):
        order = sorted(left, key=lambda channel: not found or found[-1][0] != channel)
        channel = next((each for each in order if left[each].startswith(line)), "")
        if not channel:
            return ((OUTPUT, whole),)
        left[channel] = left[channel][len(line) :]
        if found and found[-1][0] == channel:
            found[-1] = channel, found[-1][1] + line
        else:
            found.append((channel, line))
    return tuple(found)


def patch_lines(patch: ContextPatch, names: DocumentNames, now: Now) -> str | None:
    """Convert a patch to lines; None if the format cannot express it."""
    before = names.before
    lines: list[str] = []
    changed: dict[str, dict[str, Any]] = {}
    for operation in patch.operations:
        code, path = operation[0], operation[1]
        area, *inner = keys(path) or [""]
        attribute = inner[1] if area == "fs" and len(inner) == 2 else ""
        if attribute and (code == "=" or (code, attribute) == ("a", "target")):
            changed.setdefault(inner[0], {})[inner[1]] = operation[2]
            continue
        line = _line(operation, area, inner, before, now)
        if line is None:
            return None
        lines.append(line)
    for name, attributes in changed.items():
        lines.append(_change(name, attributes, before, now))
    text = "".join(f"{line}\n" for line in lines)
    try:
        said = ContextPatch(tuple(operations_of(text, before, now)))
        same = said.apply(before) == patch.apply(before) and len(said.operations) == len(
            patch.operations
        )
    except (PatchError, ContextError, ValueError, KeyError):
        return None
    return text if same and accepts(text, names) else None


def _line(
    operation: Operation, area: str, names: list[str], before: Mapping[str, Any], now: Now
) -> str | None:
    code, path = operation[0], _word(operation[1])
    if area == "fs" and len(names) == 1:
        if code == "r":
            return f"-{_word(names[0])}"
        if code == "m":
            there, *target = keys(operation[2])
            return f">{_word(names[0])} {_word(target[0])}" if there == "fs" and target else None
        if code == "a" and isinstance(operation[2], dict):
            return _addition(names[0], operation[2], str(before.get("user", "root")), now)
        return None
    if code == "r":
        return f"r {path}"
    if code in {"a", "="}:
        value = json.dumps(operation[2], ensure_ascii=False, separators=(",", ":"))
        return f"{'a' if code == 'a' else 's'} {path} {value}"
    return None


def _addition(name: str, made: Mapping[str, Any], user: str, now: Now) -> str | None:
    if not set(_REQUIRED) <= made.keys() <= {*_REQUIRED, "target"}:
        return None
    line = f"+{_word(name)} {made['perms']} {made['links']} {made['size']}"
    if (made["owner"], made["group"]) != (user, user):
        line += f" {made['owner']}:{made['group']}"
    if Now(*(made[each] for each in OF_DATE)) != now:
        line += f" @{made['month']} {made['day']} {made['year']} {made['time']}"
    if "target" in made:
        line += f" >{_word(made['target'])}"
    return line


def _change(name: str, values: Mapping[str, Any], before: Mapping[str, Any], now: Now) -> str:
    line = f"={_word(name)}"
    old = before["fs"].get(name, {})
    dates = {each: values[each] for each in OF_DATE if each in values}
    is_now = bool(dates) and dates == _to_now(old, now)
    for each, value in values.items():
        if not (is_now and each in OF_DATE):
            line += f" {each} {_word(value) if each == 'target' else value}"
    return line + " @" * is_now


def _to_now(old: Mapping[str, Any], now: Now) -> dict[str, Any]:
    """Return the attributes that change if an entry's date is set to `now`."""
    return {each: getattr(now, each) for each in OF_DATE if old.get(each) != getattr(now, each)}


def operations_of(text: str, before: Mapping[str, Any], now: Now) -> Iterator[Operation]:
    """Parse lines into operations. Errors: ValueError, KeyError for other texts."""
    files: dict[str, Mapping[str, Any] | None] = {}

    def entry(name: str) -> Mapping[str, Any]:
        found = files[name] if name in files else before["fs"].get(name)
        return found or {}

    for line in text.split("\n")[:-1]:
        mark, rest = line[:1], line[1:]
        if mark == "+":
            name, made = _made(rest, str(before.get("user", "root")), now)
            files[name] = made
            yield "a", pointer("fs", name), made
        elif mark == "-":
            files[_key(rest)] = None
            yield "r", pointer("fs", _key(rest))
        elif mark == ">":
            name, target = map(_key, rest.split(" "))
            files[target], files[name] = entry(name), None
            yield "m", pointer("fs", name), pointer("fs", target)
        elif mark == "=":
            head, *words = rest.split(" ")
            name, is_now = _key(head), len(words) % 2 == 1
            words = words[:-1] if is_now else words
            values: dict[str, Any] = {
                each: int(value) if each in _NUMBERS else value
                for each, value in zip(words[::2], words[1::2], strict=True)
            }
            if "target" in values:
                values["target"] = _key(values["target"])
            values |= _to_now(entry(name), now) if is_now else {}
            for each, value in values.items():
                is_new = each == "target" and "target" not in entry(name)
                yield "a" if is_new else "=", pointer("fs", name, each), value
        elif mark == "r":
            yield "r", _unspaced(rest.strip())
        else:
            path, _, value = rest[1:].partition(" ")
            yield {"a": "a", "s": "="}[mark], _unspaced(path), json.loads(value)


def _made(line: str, user: str, now: Now) -> tuple[str, dict[str, Any]]:
    match = _ADDED.fullmatch(b"+" + line.encode())
    if match is None:
        raise ValueError(f"no file is made by {line!r:.60}")
    said = {name: text.decode() for name, text in match.groupdict().items() if text is not None}
    name = _key(said.pop("name"))
    made: dict[str, Any] = {}
    for each in _REQUIRED:
        default = user if each in {"owner", "group"} else getattr(now, each, "")
        value = said.get(each, default)
        made[each] = int(value) if each in _NUMBERS else value
    if "target" in said:
        made["target"] = _key(said["target"])
    return name, made


def _word(key: str) -> str:
    return "".join(f"\\x{ord(one):02x}" if one in " \t\n\r\v\f" else one for one in key)


def _key(word: str) -> str:
    return name_text(name_bytes(word))


def _unspaced(path: str) -> str:
    """Restore the spaces in a pointer written by `_word`. Such pointers have no backslash."""
    return path.replace("\\x20", " ")


def accepts(text: str, names: DocumentNames) -> bool:
    """Whether an `Acceptor` accepts the lines."""
    state: Acceptor | None = Acceptor(names)
    for byte in text.encode("utf-8", "surrogatepass"):
        state = state.after(bytes([byte])) if state else None
    return state is not None and not state.line


class DocumentNames:
    """The names in a document, sorted once for acceptors."""

    def __init__(self, before: Mapping[str, Any]) -> None:
        self.before = before

    @cached_property
    def files(self) -> list[bytes]:
        """The files, as written in lines, sorted."""
        return sorted(_word(key).encode("utf-8", "surrogatepass") for key in self.before["fs"])

    @cached_property
    def values(self) -> dict[bytes, Any]:
        """The values outside `fs` by their pointers, as written in lines.

        Pointers are up to three keys deep. Pointers with a backslash or unprintable characters are
        left out.
        """
        found: dict[str, Any] = {}
        for area, inner in self.before.items():
            if area == "fs":
                continue
            if not isinstance(inner, Mapping):
                found[pointer(area)] = inner
                continue
            for name, value in inner.items():
                if not isinstance(value, Mapping):
                    found[pointer(area, name)] = value
                    continue
                for each, last in value.items():
                    found[pointer(area, name, each)] = last
        plain = (path for path in found if "\\" not in path and path.replace(" ", "").isprintable())
        return {_word(path).encode(): found[path] for path in plain}

    @cached_property
    def new(self) -> Any:
        """The pattern of a line that adds a value outside `fs`."""
        network = self.before.get("network", {})
        shapes = [
            rb"a /" + each.encode() + rb"/[A-Za-z_][\w.-]* (?:" + _STRING + rb"|true|false)"
            for each in _NAMED
            if each in self.before
        ]
        shapes += [
            rb"a /network/" + each.encode() + rb"/[^\s/~\\]+ " + _JSON
            for each in _LINKED
            if each in network
        ]
        return regex.compile(b"|".join(shapes) if shapes else rb"[^\x00-\xff]")

    @cached_property
    def removable(self) -> frozenset[bytes]:
        """The pointers of `values` that a line may remove."""
        kept = ("/env/", "/settings/", "/functions/", "/aliases/", "/network/")
        deep = (path for path in self.values if path.startswith(tuple(map(str.encode, kept))))
        return frozenset(
            path for path in deep if path.count(b"/") == 2 + path.startswith(b"/network/")
        )


@dataclass(frozen=True, slots=True)
class Acceptor:
    """A partial patch that can be completed to one that applies to a document. Immutable."""

    names: DocumentNames
    line: bytes = b""
    """The partial last line."""
    gone: frozenset[bytes] = field(default_factory=frozenset)
    """Files and pointers removed by earlier lines."""
    made: frozenset[bytes] = field(default_factory=frozenset)
    """Files that earlier lines added, or targets of moves."""

    def after(self, data: bytes) -> Acceptor | None:
        """Return the state after these bytes; None if no valid patch starts with them."""
        state: Acceptor | None = self
        *whole, rest = data.split(b"\n")
        for piece in whole:
            state = state._with(piece) if state else None
            state = state._ended() if state else None
        return state._with(rest) if state else None

    def _with(self, piece: bytes) -> Acceptor | None:
        line = self.line + piece
        if not piece:
            return self
        if not _is_text(line) or not self._begins(line):
            return None
        return Acceptor(self.names, line, self.gone, self.made)

    def _ended(self) -> Acceptor | None:
        line = self.line
        try:
            line.decode()
        except UnicodeDecodeError:
            return None
        if not line or not self._complete(line):
            return None
        gone, made = self.gone, self.made
        name, _, target = line[1:].partition(b" ")
        if line[:1] in b"->":
            gone, made = gone | {name}, made - {name}
        elif line[:1] in b"r":
            gone = gone | {target}
        if line[:1] == b"+":
            target = name
        if line[:1] in b"+>":
            gone, made = gone - {target}, made | {target}
        return Acceptor(self.names, b"", gone, made)

    def _begins(self, line: bytes) -> bool:
        mark, rest = line[:1], line[1:]
        name, space, tail = rest.partition(b" ")
        if mark == b"+":
            return _fits(_ADDED, line)
        if mark == b"-":
            return not space and self._is_begun(name)
        if mark in b">=":
            if not space:
                return self._is_begun(name)
            if not self._is_there(name):
                return False
            if mark == b">":
                return _fits(_TARGETS, tail)
            return _fits(_CHANGED, space + tail)
        if mark == b"a":
            return _fits(self.names.new, line)
        if rest[:1] not in (b"", b" ") or mark not in b"rs":
            return False
        path, space, value = rest[1:].partition(b" ")
        if mark == b"r":
            return not space and any(
                each.startswith(path) for each in self.names.removable - self.gone
            )
        if not space:
            return any(
                each.startswith(path) and each not in self.gone for each in self.names.values
            )
        return self._is_value(path) and _fits(_shape(self.names.values[path]), value)

    def _complete(self, line: bytes) -> bool:
        mark, rest = line[:1], line[1:]
        name, space, tail = rest.partition(b" ")
        if mark == b"+":
            return _ADDED.fullmatch(line) is not None
        if mark == b"-":
            return self._is_there(name)
        if mark == b">":
            return bool(tail) and tail != name and _TARGETS.fullmatch(tail) is not None
        if mark == b"=":
            return bool(space) and _CHANGED.fullmatch(space + tail) is not None
        if mark == b"a":
            return self.names.new.fullmatch(line) is not None
        if mark == b"r":
            return tail in self.names.removable - self.gone
        path, space, value = tail.partition(b" ")
        return bool(space) and _shape(self.names.values[path]).fullmatch(value) is not None

    def _is_value(self, path: bytes) -> bool:
        return path in self.names.values and path not in self.gone

    def _is_there(self, name: bytes) -> bool:
        if name in self.made:
            return True
        if name in self.gone:
            return False
        files = self.names.files
        at = bisect_left(files, name)
        return at < len(files) and files[at] == name

    def _is_begun(self, name: bytes) -> bool:
        if any(each.startswith(name) for each in self.made):
            return True
        files = self.names.files
        at = bisect_left(files, name)
        while at < len(files) and files[at].startswith(name):
            if files[at] not in self.gone:
                return True
            at += 1
        return False


_TARGETS = regex.compile(_WORD)


def _fits(pattern: Any, data: bytes) -> bool:
    """Whether data is a match, or a prefix of a match."""
    return pattern.fullmatch(data, partial=True) is not None


def _shape(value: object) -> Any:
    """Return the pattern of values that may replace a value."""
    if isinstance(value, bool):
        return _FLAGS
    if isinstance(value, str):
        return _STRINGS
    return _INTEGERS if isinstance(value, int) else _VALUES


def _is_text(line: bytes) -> bool:
    """Whether bytes are UTF-8; the last character may be truncated."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(line)
    except UnicodeDecodeError:
        return False
    return True
