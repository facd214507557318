"""Modifiers of a parameter's value: trims, parts, replacements, case, and `@` with a letter."""

from __future__ import annotations

import posixpath
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from shioenv.bash.read import Reader
from shioenv.bash.words import ansi
from shioenv.errors import Abstained
from shioenv_model.bash.arithmetic import Complaint
from shioenv_model.bash.arrays import Array, quote_value
from shioenv_model.bash.patterns import matches
from shioenv_model.bash.work import COPIED, spend

_CASE = re.compile(r"(\^\^?|,,?|~~?)(.*)", re.DOTALL)
LONGEST_REPLACED = 1_000
"""Maximum length of a value in which a pattern is replaced.

Every pair of start and end is tried, so the work is quadratic.
"""
_PROMPT = re.compile(r"\\([0-7]{3}|.)", re.DOTALL)
_PROMPTS: Mapping[str, str] = MappingProxyType(
    {
        "a": "\a", "e": "\x1b", "n": "\n", "r": "\r", "s": "bash", "v": "5.2", "V": "5.2.15",
        "j": "0", "[": "", "]": "", "\\": r"\\",
    }
)  # fmt: skip
"""The escapes of prompts that do not depend on the state."""


class Modifiers(ABC):
    """The modifiers of an expander."""

    @property
    @abstractmethod
    def _document(self) -> Mapping[str, Any]:
        """The context of the expansion."""

    @abstractmethod
    def text(self, word: str, *, assigned: bool = False) -> str:
        """See `Expander.text`."""

    @abstractmethod
    def pieces(self, word: str) -> list[tuple[str, bool]]:
        """See `Expander.pieces`."""

    @abstractmethod
    def pattern(self, word: str) -> str:
        """See `Expander.pattern`."""

    @abstractmethod
    def document(self, text: str) -> str:
        """See `Expander.document`."""

    @abstractmethod
    def number(self, expression: str) -> int:
        """See `Expander.number`."""

    def matches(self, pattern: str, text: str) -> bool:
        """Whether a pattern matches the whole text under the shell's options."""
        return matches(
            pattern, text, extended=self._option("extglob"), folds=self._option("nocasematch")
        )

    def _option(self, name: str) -> bool:
        return bool(self._document["shell_options"].get(name))

    def edited(self, value: str, rest: str, inside: str) -> str:
        """Return a value after the modifier `rest` of the expansion `${inside}`.

        Errors: Abstained; Complaint.
        """
        if rest[0] in "#%":
            longest = rest[:2] in ("##", "%%")
            pattern = self.pattern(rest[1 + longest :])
            return self._trimmed(value, pattern, end=rest[0] == "%", longest=longest)
        if rest[0] == ":" and "`" not in rest:
            offset, colon, length = _divided(rest[1:])
            return self._slice(value, offset, length if colon else None)
        if rest[0] == "/":
            return self._replaced(value, rest[1:])
        if rest[0] == "@":
            return self._transformed(value, rest[1:], inside)
        case = _CASE.fullmatch(rest)
        if case is None:
            raise Abstained(f"the expansion ${{{inside:.40}}} is not supported")
        pattern = self.pattern(case[2]) if case[2] else "?"
        head = 1 if len(case[1]) == 1 else len(value)
        change = {"^": str.upper, ",": str.lower, "~": str.swapcase}[rest[0]]
        changed = (change(each) if self.matches(pattern, each) else each for each in value[:head])
        return "".join(changed) + value[head:]

    def _transformed(self, value: str, letter: str, inside: str) -> str:
        if letter == "Q":
            return single_quoted(value)
        if letter in ("U", "L", "u"):
            return {"U": value.upper(), "L": value.lower(), "u": value[:1].upper() + value[1:]}[
                letter
            ]
        if letter == "E":
            return unescaped_ansi(value)
        if letter == "P":
            prompt = self._prompt(value)
            return self.document(prompt) if self._option("promptvars") else prompt
        if letter in ("K", "k"):
            return single_quoted(value)
        raise Abstained(f"the expansion ${{{inside:.40}}} is not supported")

    def _prompt(self, text: str) -> str:
        """Return a prompt with its escapes resolved, before its expansions. Errors: Abstained."""
        document = self._document
        directory, home = document["cwd"], document["env"].get("HOME", "")
        inside = home and f"{directory}/".startswith(f"{home}/")
        tilde = "~" + directory[len(home) :] if inside else directory
        host = str(document["settings"].get("HOSTNAME", document["env"].get("HOSTNAME", "")))
        is_root = '"0"' in str(document["settings"].get("EUID", ""))
        last = "~" if tilde == "~" else posixpath.basename(directory) or "/"
        known: dict[str, str] = {
            **_PROMPTS, "w": tilde, "W": last,
            "$": "#" if is_root else r"\$", "H": host, "h": host.split(".")[0],
            "u": "root" if is_root else str(document["env"].get("USER", "")),
        }  # fmt: skip

        def one(match: re.Match[str]) -> str:
            letter = match[1]
            if letter[0].isdigit() and len(letter) == 3:
                return chr(int(letter, 8))
            if letter in "dtT@Al!#D" or (not known.get(letter, "-") and letter in "uhH"):
                raise Abstained(f"the prompt \\{letter}")
            return known.get(letter, f"\\\\{letter}")

        return _PROMPT.sub(one, text)

    def _slice(self, value: str, offset: str, length: str | None) -> str:
        start = self.number(offset)
        if start < 0:
            start += len(value)
            if start < 0:
                return ""
        if length is None:
            return value[start:]
        count = self.number(length)
        if count < 0:
            if len(value) + count < start:
                raise Complaint(f"{length.strip()}: substring expression < 0")
            return value[start : len(value) + count]
        return value[start : start + count]

    def part(
        self, values: list[str], array: Array | None, rest: str, zero: Callable[[], str] | None
    ) -> list[str]:
        """Slice a list by `offset:length`. For the positional parameters, `zero` returns `$0`.

        For an indexed array, the offset is an index. Errors: Abstained; Complaint.
        """
        offset, colon, length = _divided(rest)
        start, count = self.number(offset), self.number(length) if colon else None
        if not values and zero is None:
            return []
        if count is not None and count < 0:
            raise Complaint(f"{length.strip()}: substring expression < 0")
        if zero is not None:
            start += len(values) + 1 if start < 0 else 0
            values = [] if start < 0 else [zero(), *values] if start == 0 else values[start - 1 :]
        elif array is not None and array.associative:
            raise Abstained("a part of an associative array")
        else:
            keys = list(map(int, array.items)) if array is not None else list(range(len(values)))
            start += max(keys, default=-1) + 1 if start < 0 else 0
            pairs = zip(keys, values, strict=True)
            values = [value for key, value in pairs if key >= start] if start >= 0 else []
        return values if count is None else values[:count]

    def _replaced(self, value: str, rest: str) -> str:
        every = rest.startswith("/")
        rest = rest[1:] if every else rest
        anchor = rest[:1] if rest[:1] in ("#", "%") and not every else ""
        rest = rest[len(anchor) :]
        reader = Reader(rest, extended=True)
        place = int(every and rest[:1] == "/")  # the pattern may begin with a slash
        while place < len(rest) and rest[place] != "/":
            place = reader.unit_end(place)
        pattern, made = self.pattern(rest[:place]), self.pieces(rest[place + 1 :])
        if not pattern:
            text = "".join(piece for piece, _ in made)
            return text + value if anchor == "#" else value + text if anchor else value
        if len(value) > LONGEST_REPLACED:
            raise Abstained("the text for a replacement is too long")
        refers = self._option("patsub_replacement")
        done: list[str] = []
        place = 0
        while place <= len(value):
            tried = range(len(value), place if anchor != "%" else len(value) - 1, -1)
            spend(len(tried))
            here = (end for end in tried if place < end and self.matches(pattern, value[place:end]))
            end = next(here, None) if anchor != "#" or place == 0 else None
            if end is not None:
                found = value[place:end]
                done += [_referring(text, found) if refers and not q else text for text, q in made]
                spend(1 + len(done[-1] if done else "") // COPIED)
                place = end
                if not every:
                    break
            else:
                done.append(value[place : place + 1])
                place += 1
        return "".join(done) + value[place:]

    def _trimmed(self, value: str, pattern: str, *, end: bool, longest: bool) -> str:
        lengths = range(len(value), -1, -1) if longest else range(len(value) + 1)
        for length in lengths:
            spend(1 + len(value) // COPIED)
            part = value[len(value) - length :] if end else value[:length]
            if matches(pattern, part, extended=self._option("extglob")):
                return value[: len(value) - length] if end else value[length:]
        return value


def _divided(text: str) -> tuple[str, str, str]:
    """Divide `offset:length` at the first `:` outside of parentheses and of `? :`."""
    depth = 0
    for place, character in enumerate(text):
        depth += (character in "(?{[") - (character in ")}]")
        if character == ":":
            if not depth:
                return text[:place], ":", text[place + 1 :]
            depth -= text.count("?", 0, place) > 0
    return text, "", ""


def _referring(text: str, found: str) -> str:
    r"""Return a replacement in which each `&` without a backslash is replaced by the match."""
    return re.sub(
        r"\\([\\&])|&", lambda match: match[1] if match[1] else found, text
    )  # `\\` stands for a backslash


def single_quoted(value: str) -> str:
    """Quote a value as `${x@Q}` does."""
    if not value.isprintable():
        return quote_value(value)
    if value == "'":
        return "\\'"
    return "'" + value.replace("'", "'\\''") + "'"


def unescaped_ansi(value: str) -> str:
    """Return a text with the escapes of `$'…'` decoded. Errors: Abstained if it is not UTF-8."""
    decoded = ansi(value)
    if re.search("[\ud800-\udfff]", decoded):
        raise Abstained("bytes that are not text")
    return decoded
