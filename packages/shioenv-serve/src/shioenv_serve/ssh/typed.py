"""What a visitor typed on a terminal, put together to lines."""

from __future__ import annotations

import re
from typing import Final

LONGEST: Final = 4096
"""Characters of a line that are kept, as many as a terminal takes."""

_ERASES = {"\x7f", "\b"}
_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.|[^\[O])")


class Typed:
    """Puts keys together to lines, as far as keys alone tell.

    Erasing is followed. What history and completion fill in is not known: `edited` then says that
    the line that ran may be another one.
    """

    def __init__(self) -> None:
        self._line: list[str] = []
        self._escape = ""
        self.edited = False
        """Whether a key of the newest line did what keys do not tell."""
        self.pasting = False
        """Whether the newest key is one of a paste, which ends with keys of its own."""

    def keys(self, data: bytes) -> list[tuple[str, bool]]:
        """The lines that these keys end, each with its `edited`."""
        lines = []
        for key in data.decode("utf-8", "replace"):
            if self._escape or key == "\x1b":
                self._escape += key
                if _SEQUENCE.fullmatch(self._escape) or len(self._escape) > 16:
                    pasted = self._escape in {"\x1b[200~", "\x1b[201~"}
                    self.edited = self.edited or not pasted
                    self.pasting = self._escape == "\x1b[200~" if pasted else self.pasting
                    self._escape = ""
            elif key in "\r\n":
                lines.append(("".join(self._line), self.edited))
                self._forget()
            elif key in _ERASES:
                del self._line[-1:]
            elif key in "\x03\x15":
                self._forget()
            elif key == "\x17":
                self._line = list(re.sub(r"\S*\s*$", "", "".join(self._line)))
            elif key < " ":
                self.edited = self.edited or key != "\x04"
            elif len(self._line) < LONGEST:
                self._line.append(key)
        return lines

    def _forget(self) -> None:
        self._line.clear()
        self.edited = False
