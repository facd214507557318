"""Complete commands of a script that is read line by line, by Bash's grammar."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from shioenv.bash.read import Reader
from shioenv.bash.scan import Refused

MOST_PARSED = 2_000_000
"""Characters that callers have parsed at most to find the end of one command (ours).

A long quotation or expansion is parsed again at each line that may close it."""

_ANY = re.compile("")
_CONTINUED = re.compile(r"(?<!\\)(?:\\\\)*\\\n\Z")
_UNCLOSED = re.compile(r"an? (\S+) is never closed")
_CLOSING = re.compile(r"[)\]}'\"`]")
_CLOSING_QUOTES = {"'": re.compile("'"), '"': re.compile('[")]'), "`": re.compile("`")}
"""What may close a quotation, or show that Bash refuses a substitution within it."""


class ScriptReader:
    """Groups the lines of a script into commands, as Bash does that reads a script from a pipe.

    `add` takes the next line, `end` the end of the script, which ends the last command. Each
    returns a command without its last newline, or None where no command is complete. NUL bytes are
    dropped, as Bash does, and so are lines without a command.
    """

    def __init__(self) -> None:
        self._text, self._wanted = "", _ANY
        self._short = ""
        """The text with `:` in place of whole commands within the one that has begun.

        The same lines complete it, and parsing it again at each line costs little."""
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
        self._short += line
        if not self._wanted.search(self._text, max(0, len(self._text) - len(line) - 2)):
            return None
        self.parsed += len(self._short)
        missing, self._short = _missing(self._short)
        self._wanted = missing or _ANY
        return self.end() if missing is None else None

    def end(self) -> str | None:
        """The command that has begun, as the end of the script leaves it."""
        text, self._text, self._short = self._text, "", ""
        self._wanted, self.parsed = _ANY, 0
        try:
            if not Reader(text).whole():
                return None
        except Refused as refused:
            self.refused = not _is_too_deep(refused)
        except RecursionError:
            pass
        # a backslash in front of the end of the script is dropped with the newline behind it
        return text if _CONTINUED.search(text) else text.removesuffix("\n")

    def status(self, exit_code: int) -> int:
        """The status of a shell that reads the newest command, which `bash -c` ended like this.

        Where Bash refuses a substitution, `bash -c` ends with 127, and any other shell with 2.
        """
        return 2 if self.refused and exit_code == 127 else exit_code

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


def _missing(text: str) -> tuple[re.Pattern[str] | None, str]:
    """What the next lines have to hold before they may complete a text; None for a complete one.

    A text that no line can complete is complete: Bash refuses it. The pattern is searched for in
    the last two characters of a line and in the line behind it. Also returns a text that the same
    lines complete, shorter where the open command holds whole ones.
    """
    reader = Reader(text)
    try:
        reader.whole()
    except Refused as refused:
        if reader.open_document is not None and refused.place >= len(text):
            return _ending(reader.open_document), text
        short = text
        if reader.shortened is not None and not _CONTINUED.search(text):
            place, instead = reader.shortened
            short = text[:place] + instead
            if not short.endswith("\n") or _CONTINUED.search(short):
                short += "\n"
        if unclosed := _UNCLOSED.fullmatch(refused.why):
            return _CLOSING_QUOTES.get(unclosed[1], _CLOSING), short
        is_open = refused.place >= len(text) and not _is_too_deep(refused)
        return _ANY if is_open else None, short
    except RecursionError:
        return None, text
    if reader.open_document is not None:
        return _ending(reader.open_document), text
    if _CONTINUED.search(text):
        try:  # a backslash at the end of a comment joins no line to it
            Reader(f"{text[:-2]}'").whole()
        except (Refused, RecursionError):
            return _ANY, text
    return None, text


def _ending(delimiter: str) -> re.Pattern[str]:
    """A line that may end a here-document, after the newline or the joined line before it."""
    ends = "|".join(re.escape(delimiter[place:]) for place in range(len(delimiter)))
    return re.compile(rf"\n\t*(?:{ends})\n?\Z|\\\n\n\Z" if ends else r"\n\n\Z")


def _is_too_deep(refused: Refused) -> bool:
    return refused.why == "it is nested too deeply"
