"""Complete commands of a script that is read line by line, by Bash's grammar."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from shioenv.bash.read import Reader
from shioenv.bash.scan import Refused

_ANY = re.compile("")
_CONTINUED = re.compile(r"(?<!\\)(?:\\\\)*\\\n\Z")
_UNCLOSED = re.compile(r"an? (\S+) is never closed")
_CLOSING = re.compile(r"[)\]}'\"`]")


class ScriptReader:
    """Groups the lines of a script into commands, as Bash does that reads a script from a pipe.

    `add` takes the next line, `end` the end of the script, which ends the last command. Each
    returns a command without its last newline, or None where no command is complete. NUL bytes are
    dropped, as Bash does, and so are lines without a command.
    """

    def __init__(self) -> None:
        self._text, self._wanted = "", _ANY
        self.refused = False
        """Whether Bash refuses the newest command, and reads no other one after it."""
        self.parsed = 0
        """Characters that were parsed to find the end of the command that has begun."""

    @property
    def begun(self) -> int:
        """The length of the command that has begun and is not complete, in characters."""
        return len(self._text)

    def add(self, line: str) -> str | None:
        """The command that a line completes; the line may lack its newline."""
        line = line.removesuffix("\n").replace("\0", "") + "\n"
        self._text += line
        text = self._text
        if not self._wanted.search(text, max(0, len(text) - len(line) - 2)):
            return None
        self.parsed += len(text)
        missing = _missing(text)
        self._wanted = missing or _ANY
        return self.end() if missing is None else None

    def end(self) -> str | None:
        """The command that has begun, as the end of the script leaves it."""
        text, self._text, self._wanted, self.parsed = self._text, "", _ANY, 0
        try:
            if not Reader(text).whole():
                return None
        except Refused as refused:
            self.refused = not _is_too_deep(refused)
        except RecursionError:
            pass
        # a backslash in front of the end of the script is dropped with the newline behind it
        return text if _CONTINUED.search(text) else text.removesuffix("\n")

    def commands(self, next_line: Callable[[bool], str]) -> Iterator[str]:
        """The commands of a script, up to one that Bash refuses.

        `next_line` returns the next line with its newline, or "" at the end of the script. Its
        argument says whether a command has begun before that line. No line is read before the
        commands above it were taken.
        """
        while not self.refused and (line := next_line(self.begun > 0)):
            if (command := self.add(line)) is not None:
                yield command
        if not self.refused and (command := self.end()) is not None:
            yield command


def _missing(text: str) -> re.Pattern[str] | None:
    """What the next lines have to hold before they may complete a text; None for a complete one.

    A text that no line can complete is complete: Bash refuses it. The pattern is searched for in
    the last two characters of a line and in the line behind it.
    """
    reader = Reader(text)
    try:
        reader.whole()
    except Refused as refused:
        if _UNCLOSED.fullmatch(refused.why):
            return _CLOSING
        is_open = refused.place >= len(text) and not _is_too_deep(refused)
        return _ANY if is_open else None
    except RecursionError:
        return None
    delimiter = reader.open_document
    if delimiter is not None:
        ends = "|".join(re.escape(delimiter[place:]) for place in range(len(delimiter)))
        return re.compile(rf"\n\t*(?:{ends})\n?\Z|\\\n\n\Z" if ends else r"\n\n\Z")
    if _CONTINUED.search(text):
        try:  # a backslash at the end of a comment joins no line to it
            Reader(f"{text[:-2]}'").whole()
        except (Refused, RecursionError):
            return _ANY
    return None


def _is_too_deep(refused: Refused) -> bool:
    return refused.why == "it is nested too deeply"
