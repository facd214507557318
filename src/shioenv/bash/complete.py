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

    Iterate over it for the commands, each without its last newline. `line` returns the next line
    with its newline, or "" at the end of the script. Its argument says whether a command has begun
    before that line. No line is read before the commands above it were taken. The end of the script
    ends the last command. NUL bytes are dropped, as Bash does, and so are lines without a command.
    """

    def __init__(self, line: Callable[[bool], str]) -> None:
        self._line = line
        self.refused = False
        """Whether Bash refuses the newest command, and reads no other one after it."""

    def __iter__(self) -> Iterator[str]:
        """The commands."""
        text, wanted = "", _ANY
        while line := self._line(bool(text)):
            line = line.removesuffix("\n").replace("\0", "") + "\n"
            text += line
            if not wanted.search(text, max(0, len(text) - len(line) - 2)):
                continue
            missing = _missing(text)
            if missing is None:
                yield from self._command(text)
                text = ""
            wanted = missing or _ANY
            if self.refused:
                return
        yield from self._command(text)

    def _command(self, text: str) -> Iterator[str]:
        try:
            if not Reader(text).whole():
                return
        except Refused as refused:
            self.refused = not _is_too_deep(refused)
        except RecursionError:
            pass
        # a backslash in front of the end of the script is dropped with the newline behind it
        yield text if _CONTINUED.search(text) else text.removesuffix("\n")


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
