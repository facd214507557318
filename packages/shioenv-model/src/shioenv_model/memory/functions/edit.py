"""Interpreter of sed(1) scripts."""

from __future__ import annotations

import re
from collections.abc import Sequence

from shioenv_model.bash.work import COPIED
from shioenv_model.memory.functions.match import search_steps
from shioenv_model.memory.functions.script import Address, EditCommand, read_script
from shioenv_model.memory.functions.space import (
    Flags,
    Given,
    Result,
    Roles,
    Steps,
    check_length,
    split_lines,
)
from shioenv_model.memory.functions.substitute import expanded, replace_matches

_LONGEST_SCRIPT = 2_000


def edit(given: Given, roles: Roles, flags: Flags) -> Result | None:
    """Run a script on each line of the text. Return None for scripts that use files.

    Errors: ValueError for an invalid script.
    """
    script = roles["script"]
    texts = given.texts or (given.text or "",)
    if len(script) > _LONGEST_SCRIPT or any(
        re.search(r"[\0\ud800-\udfff]", each) for each in texts
    ):
        return None
    commands = read_script(script, flags["syntax"])
    if flags["apart"]:
        made = [_Editor([each], flags).run(commands) for each in texts]
        return "".join(text for text, _ in made), made[-1][1]
    return _Editor(texts, flags).run(commands)


class _ScriptError(ValueError):
    """Ends the script; not an error.

    `number` is the exit code. `closes`: the last line gets a newline.
    """

    def __init__(self, number: int, *, prints: bool, closes: bool = False) -> None:
        self.number, self.prints, self.closes = number, prints, closes


class _CycleError(ValueError):
    """Ends the cycle; not an error. `again`: the next cycle reads no line."""

    def __init__(self, *, again: bool = False) -> None:
        self.again = again


class _JumpError(ValueError):
    """Jumps to a label; not an error."""

    def __init__(self, label: str) -> None:
        self.label = label


class _Editor:
    """Runs a script on the lines of texts."""

    def __init__(self, texts: Sequence[str], flags: Flags) -> None:
        self._lines = [line for text in texts for line in split_lines(text)]
        self._closed = "".join(texts[-1:])[-1:] == "\n"
        """Whether the last line ends in a newline."""
        self._steps = Steps()
        self._quiet = bool(flags["quiet"])
        self._at = 0
        """Number of lines read."""
        self._space, self._hold = "", ""
        self._ended = self._hold_ended = True
        """Whether the pattern space and the hold space are printed with a newline."""
        self._owed = False
        """Whether a newline must be printed before further output."""
        self._made: list[str] = []
        self._length = 0
        self._queue: list[str] = []
        self._replaced = False
        self._pattern: re.Pattern[str] | None = None
        self._open: dict[int, int | None] = {}
        """For each command with an open range: the range's last line, or None if a pattern ends the
        range."""

    def run(self, commands: Sequence[EditCommand]) -> Result:
        """Run the script; return the output and the exit code."""
        code, again = 0, False
        try:
            while again or self._at < len(self._lines):
                if not again:
                    self._space = self._read()
                    self._replaced = False
                again = False
                try:
                    self._cycle(commands)
                except _CycleError as ended:
                    again = ended.again
                else:
                    self._autoprint()
                self._flush()
        except _ScriptError as ended:
            code = ended.number
            if ended.prints:
                self._ended |= ended.closes
                self._autoprint()
            self._flush()
        return "".join(self._made), code

    def _read(self) -> str:
        line = self._lines[self._at]
        self._at += 1
        self._ended = self._closed or self._at < len(self._lines)
        return line

    def _autoprint(self) -> None:
        if not self._quiet:
            self._print(self._space)

    def _print(self, line: str) -> None:
        self._say(f"{line}\n" if self._ended else line)
        self._owed = not self._ended

    def _say(self, text: str) -> None:
        self._length += len(text)
        check_length(self._length)
        self._made += "\n" * self._owed, text
        self._owed = False

    def _flush(self) -> None:
        for each in self._queue:
            self._say(each)
        self._queue = []

    def _cycle(self, commands: Sequence[EditCommand]) -> None:
        while True:
            try:
                self._all(commands)
            except _JumpError as jump:
                if not jump.label:
                    return
                commands = _behind(commands, jump.label)
                continue
            return

    def _all(self, commands: Sequence[EditCommand]) -> None:
        for command in commands:
            self._steps.spend(2 + len(self._space) // COPIED)
            if self._selects(command) != command.negated:
                self._do(command)

    def _selects(self, command: EditCommand) -> bool:
        start, end = command.start, command.end
        if start is None:
            return True
        if end is None:
            return self._fits(start)
        key = id(command)
        if key not in self._open:
            if start.kind == "line" and start.first == 0:
                if self._at != 1:
                    return False
                if end.kind == "pattern" and self._fits(end):
                    return True
            elif not self._fits(start):
                return False
            last = self._last_of(end)
            if last is None or last > self._at:
                self._open[key] = last
            return True
        last = self._open[key]
        if last is None:
            if end.kind == "last":
                if self._at == len(self._lines):
                    del self._open[key]
                return True
            if self._fits(end):
                del self._open[key]
            return True
        if self._at >= last:
            del self._open[key]
        return self._at <= last or self._fits(start)

    def _last_of(self, end: Address) -> int | None:
        if end.kind == "line":
            return end.first
        if end.kind == "more":
            return self._at + end.first
        if end.kind == "multiple":
            return -(-self._at // end.first) * end.first if end.first else self._at
        return None

    def _fits(self, address: Address) -> bool:
        if address.kind == "line":
            return self._at == address.first
        if address.kind == "last":
            return self._at == len(self._lines)
        if address.kind == "step":
            if address.step == 0:
                return self._at == address.first
            return self._at >= address.first and (self._at - address.first) % address.step == 0
        return self._search(address.pattern, 0) is not None

    def _search(self, pattern: re.Pattern[str] | None, start: int) -> re.Match[str] | None:
        pattern = pattern or self._pattern
        if pattern is None:
            raise ValueError("nothing was searched for before")
        self._pattern = pattern
        self._steps.spend(search_steps(self._space, pattern.pattern))
        return pattern.search(self._space, start)

    def _do(self, command: EditCommand) -> None:
        name = command.name
        if name == "{":
            self._all(command.inner)
        elif name == "s":
            self._substitute(command)
        elif name == "y":
            self._space = self._space.translate(command.table)
        elif name in "dD":
            _, newline, rest = self._space.partition("\n")
            if name == "D" and newline:
                self._space = rest
                raise _CycleError(again=True)
            raise _CycleError
        elif name == "p":
            self._print(self._space)
        elif name == "P":
            self._print(self._space.split("\n")[0])
        elif name in "nN":
            self._more(name)
        elif name in "gGhHxz":
            self._held(name)
        elif name == "=":
            self._say(f"{self._at}\n")
        elif name == "a":
            self._queue.append(command.text)
        elif name == "i":
            self._say(command.text)
        elif name == "c":
            if command.end is None or command.negated or id(command) not in self._open:
                self._say(command.text)
            raise _CycleError
        elif name in "qQ":
            raise _ScriptError(command.number, prints=name == "q", closes=True)
        elif (
            name == "b" or (name == "t" and self._replaced) or (name == "T" and not self._replaced)
        ):
            self._replaced = self._replaced and name != "t"
            raise _JumpError(command.label)
        elif name == "T":
            self._replaced = False

    def _more(self, name: str) -> None:
        if self._at >= len(self._lines):
            raise _ScriptError(0, prints=True)
        if name == "n":
            self._autoprint()
        self._flush()
        following = self._read()
        self._space = following if name == "n" else f"{self._space}\n{following}"
        check_length(len(self._space))

    def _held(self, name: str) -> None:
        if name == "g":
            self._space, self._ended = self._hold, self._hold_ended
        elif name == "G":
            self._space, self._ended = f"{self._space}\n{self._hold}", True
        elif name == "h":
            self._hold, self._hold_ended = self._space, self._ended
        elif name == "H":
            self._hold = f"{self._hold}\n{self._space}"
        elif name == "x":
            self._space, self._hold = self._hold, self._space
            self._ended, self._hold_ended = self._hold_ended, self._ended
        else:
            self._space = ""
        check_length(len(self._space) + len(self._hold))

    def _substitute(self, command: EditCommand) -> None:
        made, count = replace_matches(
            self._space, lambda start: self._search(command.pattern, start),
            lambda match: expanded(command.replacement, match), command.nth, command.everywhere,
        )  # fmt: skip
        if not count:
            return
        check_length(len(made))
        self._space, self._replaced = made, True
        if command.printed:
            self._print(made)


def _behind(commands: Sequence[EditCommand], label: str) -> Sequence[EditCommand]:
    """Return the commands from a label on. Errors: ValueError if none is outside braces."""
    for place, each in enumerate(commands):
        if each.name == ":" and each.label == label:
            return commands[place:]
    raise ValueError(f"no label {label}")
