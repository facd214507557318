"""Splitting of a script, read line by line, into complete commands by Bash's grammar."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from shioenv.bash.read import Reader
from shioenv.bash.scan import Refused

MOST_PARSED = 2_000_000
"""Characters that a caller lets a reader parse to find the end of one command (our choice).

A long quotation or expansion is parsed again at each line that may close it."""

_ANY = re.compile("")
_CONTINUED = re.compile(r"(?<!\\)(?:\\\\)*\\\n\Z")
_UNCLOSED = re.compile(r"an? (\S+) is never closed")
_CLOSING = re.compile(r"[)\]}'\"`]")
_CLOSING_QUOTES = {"'": re.compile("'"), '"': re.compile('[")]'), "`": re.compile("`")}
"""Characters that may close a quotation, or end a substitution in it that Bash refuses."""


class ScriptReader:
    """Groups the lines of a script into commands, like a Bash that reads a script from a pipe.

    `add` takes the next line. `end` marks the end of the script and ends the last command. Both
    return a command without its last newline, or None if no command is complete. As in Bash, NUL
    bytes and lines without a command are dropped.
    """

    def __init__(self) -> None:
        self._text, self._wanted = "", _ANY
        self._short = ""
        """The unfinished command's text, with `:` in place of complete commands inside it.

        A line that completes one of the two texts also completes the other, and the short one is
        cheap to parse again at each line."""
        self.refused = False
        """Whether Bash refuses the newest command; if so, Bash reads no further commands."""
        self.parsed = 0
        """Number of characters parsed so far to find the end of the unfinished command."""

    @property
    def begun(self) -> int:
        """The length of the unfinished command, in characters."""
        return len(self._text)

    def add(self, line: str) -> str | None:
        """Add a line, with or without its newline, and return the command that it completes."""
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
        """End the script and return the unfinished command."""
        text, self._text, self._short = self._text, "", ""
        self._wanted, self.parsed = _ANY, 0
        try:
            if not Reader(text).whole():
                return None
        except Refused as refused:
            self.refused = not _is_too_deep(refused)
        except RecursionError:
            pass
        # a backslash at the end of the script is dropped together with the newline after it
        return text if _CONTINUED.search(text) else text.removesuffix("\n")

    def status(self, exit_code: int) -> int:
        """Convert the exit code of `bash -c` for the newest command to that of a script's shell.

        If Bash refuses a substitution, `bash -c` exits with 127, but a script with 2.
        """
        return 2 if self.refused and exit_code == 127 else exit_code

    def commands(self, next_line: Callable[[bool], str]) -> Iterator[str]:
        """Yield the commands of a script, up to one that Bash refuses.

        `next_line` returns the next line with its newline, or "" at the end of the script. Its
        argument is true inside an unfinished command. No line is read before the caller has taken
        the commands above it.
        """
        while not self.refused and (line := next_line(self.begun > 0)):
            if (command := self.add(line)) is not None:
                yield command
        if not self.refused and (command := self.end()) is not None:
            yield command


def _missing(text: str) -> tuple[re.Pattern[str] | None, str]:
    """Return what later lines must contain before they may complete a text.

    The first value is a pattern, or None if the text is complete. A text that no line can complete
    counts as complete: Bash refuses it. The pattern is searched for in the last two characters of a
    line and in the line after it. The second value is a text that the same lines complete. It is
    shorter than the given text if the open command contains complete commands.
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
        try:  # a backslash at the end of a comment does not continue the line
            Reader(f"{text[:-2]}'").whole()
        except (Refused, RecursionError):
            return _ANY, text
    return None, text


def _ending(delimiter: str) -> re.Pattern[str]:
    """Return a pattern for a newline and a line after it that may end a here-document."""
    ends = "|".join(re.escape(delimiter[place:]) for place in range(len(delimiter)))
    return re.compile(rf"\n\t*(?:{ends})\n?\Z|\\\n\n\Z" if ends else r"\n\n\Z")


def _is_too_deep(refused: Refused) -> bool:
    return refused.why == "it is nested too deeply"
