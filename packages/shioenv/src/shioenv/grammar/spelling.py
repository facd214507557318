"""Plain words: words as their program receives them, without quotes and backslashes."""

from __future__ import annotations

import re
from typing import TypeAlias

from shioenv.bash.words import BARE, CLOSING, ansi, quotation_end

BLANK, TAB, NEWLINE, SUBSTITUTION, VARIABLE = "\x01", "\x02", "\x03", "\x04", "\x05"
"""Placeholders in plain text: for a protected blank, tab and newline, for `$(…)`, and for
`$NAME`."""

PROTECTED = str.maketrans({" ": BLANK, "\t": TAB, "\n": NEWLINE})
SHOWN = str.maketrans({BLANK: " ", TAB: "\t", NEWLINE: "\n"})

State: TypeAlias = "tuple[str, ...]"
"""The quotes and substitution brackets that are open at a position, innermost last."""

_NAME = re.compile(r"\$(?:\w+|[?#$!@*-])")


def received_form(text: str) -> str:
    """Convert a word, or words separated by blanks, to the form that the program receives.

    Quotes and backslashes are removed. The blanks, tabs and newlines that they protected become
    `BLANK`, `TAB` and `NEWLINE`. Every substitution becomes `SUBSTITUTION`, every variable
    `VARIABLE`.
    """
    return SpellingReader(()).read(text)


def spelt(text: str, quotes: str = "") -> str:
    """Spell a plain word for the shell, in `quotes`, or without quotes if possible.

    `quotes` is `'`, `"` or "". With "", the word is quoted with `'` only if it needs quotes. A word
    that needs quotes and contains a `'` is quoted with `"`.
    """
    if not quotes and text and BARE.fullmatch(text):
        return text
    if quotes == '"' or "'" in text:
        return '"' + re.sub(r'([\\"$`])', r"\\\1", text) + '"'
    return f"'{text}'"


class SpellingReader:
    """Reads the texts of one argument and keeps track of open quotes and brackets."""

    def __init__(self, state: State) -> None:
        self.state = state

    def read(self, text: str) -> str:
        """Return the next text of the argument as plain words."""
        parts: list[str] = []
        index = 0
        while index < len(text):
            mark = self.state[-1] if self.state else ""
            if mark in {"(", "{"}:
                index = self._inside(text, index, mark)
            elif mark == "'":
                index = self._single(text, index, parts)
            elif mark == '"':
                index = self._double(text, index, parts)
            else:
                index = self._bare(text, index, parts)
        return "".join(parts)

    def _inside(self, text: str, index: int, mark: str) -> int:
        """Skip and discard one character or quotation inside `$(` or `${`."""
        end = quotation_end(text, index)
        if end > index:
            return end
        if text[index] == mark:
            self.state = (*self.state, mark)
        elif text[index] == CLOSING[mark]:
            self.state = self.state[:-1]
        return index + 1

    def _single(self, text: str, index: int, parts: list[str]) -> int:
        if text[index] == "'":
            self.state = self.state[:-1]
        else:
            parts.append(text[index].translate(PROTECTED))
        return index + 1

    def _double(self, text: str, index: int, parts: list[str]) -> int:
        character, following = text[index], text[index + 1 : index + 2]
        if character == '"':
            self.state = self.state[:-1]
        elif character == "\\" and following and following in '"\\$`':
            parts.append(following)
            return index + 2
        elif character in "$`" and (end := self._expansion(text, index, parts)):
            return end
        else:
            parts.append(character.translate(PROTECTED))
        return index + 1

    def _bare(self, text: str, index: int, parts: list[str]) -> int:
        character = text[index]
        if character in "'\"":
            self.state = (*self.state, character)
        elif character == "\\" and index + 1 < len(text):
            parts.append(text[index + 1].translate(PROTECTED))
            return index + 2
        elif text.startswith("$'", index):
            end = quotation_end(text, index)
            parts.append(ansi(text[index + 2 : end - 1]).translate(PROTECTED))
            return end
        elif character in "$`" and (end := self._expansion(text, index, parts)):
            return end
        elif text.startswith(("<(", ">("), index):
            parts.append(SUBSTITUTION)
            self.state = (*self.state, "(")
            return index + 2
        else:
            parts.append(character)
        return index + 1

    def _expansion(self, text: str, index: int, parts: list[str]) -> int:
        """Return the index after the `$…` or backquote at `index`; 0 if no expansion begins."""
        if text[index] == "`":
            parts.append(SUBSTITUTION)
            return quotation_end(text, index)
        if text.startswith(("$(", "${"), index):
            parts.append(SUBSTITUTION if text[index + 1] == "(" else VARIABLE)
            self.state = (*self.state, text[index + 1])
            return index + 2
        if match := _NAME.match(text, index):
            parts.append(VARIABLE)
            return match.end()
        return 0
