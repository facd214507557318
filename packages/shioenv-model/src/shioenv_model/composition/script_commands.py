"""Scripts that commands run: in a child shell, or in this one."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from shioenv.bash.program import Program, Simple
from shioenv.bash.scan import Refused
from shioenv.domain.behavior import Behavior
from shioenv.domain.runner import Carried, Runner, State
from shioenv.errors import Abstained
from shioenv_model.composition.assigning import assign_word
from shioenv_model.composition.callers import Callers
from shioenv_model.composition.environment import Environment
from shioenv_model.composition.frames import Own, Position, Return, Stdin, Streams
from shioenv_model.composition.reading import broken, known_functions
from shioenv_model.composition.redirecting import Redirections
from shioenv_model.composition.scripts import (
    DEEPEST,
    READING,
    NotRun,
    Script,
    content,
    fresh_shell,
    read_file,
    refuse_bashisms,
    script_of,
)


class ScriptCommands(ABC):
    """Runs scripts in an environment; subclasses evaluate their programs."""

    def __init__(self, runner: Runner, state: State, text: str) -> None:
        self._here = Environment(runner, state, text, self._inside)
        self._here.own.functions.update(known_functions(state))
        self._here.place.line += sum(1 + line.count("\n") for line in state.history)
        self._redirections = Redirections(self._here)
        self._callers = Callers(self._here)
        self._above = self._here.place.line - 1
        self._end_line = self._here.place.line
        self._final = 0
        self._conditions = 0
        self._has_jobs, self._refused_whole = False, False
        self._aliases: dict[str, str] = {}
        self._expanding: set[str] = set()
        self._trapping = False
        """Whether the commands of a trap are being run; they cause no other traps."""

    @abstractmethod
    def _program(self, program: Program) -> None:
        """Run a program that is parsed as a whole."""

    @abstractmethod
    def _lines(self, program: Program) -> None:
        """Run a program that Bash parses in parts. A `Discard` skips the rest of its part."""

    def _inside(self, program: Program) -> None:
        """Run an embedded program, whose line numbers continue from the shell's line."""
        saved = self._above, self._here.place.line, self._end_line
        self._above = self._here.place.line - 1
        try:
            self._program(program)
        finally:
            self._above, self._here.place.line, self._end_line = saved

    def _script(self, command: Simple) -> bool:
        """Run a script. Return whether the command runs one; if not, nothing changes."""
        here = self._here
        if here.asking.executes:
            return False
        here.asking.refuse_tracing()
        words = [field for word in command.words for field in here.expander.fields(word)]
        if not words:
            return False
        opened = self._redirections.open_all(command.redirects)
        if isinstance(opened, int):
            here.status = opened
            return True
        streams = Streams(opened.fds, self._redirections.content(opened))
        if words[0] in READING:
            return self._read_file(words, streams)
        script = script_of(here, words, streams.stdin)
        if script is None and command.redirects:
            raise Abstained("an unknown program, redirected")
        if isinstance(script, NotRun):
            here.write(streams.fds[2], os.fsencode(f"{script.said}\n"))
            here.status = script.status
        elif script is not None:
            self._run_script(script, streams, command.assignments)
        return script is not None

    def _run_script(self, script: Script, streams: Streams, assignments: Sequence[str]) -> None:
        here = self._here
        if script.is_dash:
            refuse_bashisms(script.text)
        if here.place.scripts >= DEEPEST:
            raise Abstained("scripts that call each other too deeply")
        place = f"{script.file}: -c: " if script.is_argument else f"{script.file}: "
        program, wrong = self._parsed(script.text, place)
        if wrong and script.is_dash:
            raise Abstained("invalid syntax in a script of dash")
        if script.reads_itself:
            streams = Streams(streams.fds, Stdin(b""))
        outer, conditions, jobs = here.place, self._conditions, self._has_jobs
        with here.to(streams), here.subshell(), self._counting_from(0, 1):
            for assignment in assignments:
                if assignment.partition("=")[0] in ("UID", "EUID", "PPID", "SHELLOPTS"):
                    raise Abstained("a read-only variable before a script")
                assign_word(here, assignment)
                here.export(assignment.partition("=")[0])
            here.advance(":", Behavior(0, b"", fresh_shell(here, script)))
            carried = Carried(left=here.own.carried.left, arguments=script.arguments)
            here.own = Own(carried, name=script.name)
            here.place = Position(
                file=script.file, scripts=outer.scripts + 1, is_dash=script.is_dash,
                refused=127 if script.is_argument else 1,
            )  # fmt: skip
            here.status, self._conditions, self._has_jobs = 0, 0, False
            try:
                self._lines(program)
                self._end_of(wrong)
            finally:
                here.place, self._conditions, self._has_jobs = outer, conditions, jobs

    def _parsed(self, text: str, place: str, above: int = 0) -> tuple[Program, bytes]:
        """Parse a text; return the program before a syntax error, and Bash's message about it.

        Errors: Abstained for an error that no rule describes.
        """
        try:
            return self._here.program(text), b""
        except Refused as refused:
            found = broken(refused, text)
            if found is None:
                raise
            return found.program, found.message(place, above)

    def _end_of(self, wrong: bytes) -> None:
        """Report the syntax error `wrong`, if there is one, once the lines before it have run."""
        if wrong:
            self._here.report(wrong)
            self._here.status = 2

    def _read_file(self, words: Sequence[str], streams: Streams) -> bool:
        """Run `. FILE`: execute a script in this shell."""
        here = self._here
        words = [words[0], *words[2:]] if words[1:2] == ["--"] else words
        path = read_file(here, words[1]) if len(words) > 1 else None
        text = None if path is None else content(here, path)
        if text is None:
            return False
        if here.place.scripts >= DEEPEST:
            raise Abstained("scripts that call each other too deeply")
        program, wrong = self._parsed(text, f"{path}: ")
        saved, place = here.own.carried.arguments, here.place
        if len(words) > 2:
            here.carry(arguments=tuple(words[2:]))
        with here.to(streams), self._counting_from(0, 1):
            here.place = replace(
                place, line=1, file=path or "", scripts=place.scripts + 1, is_read=True
            )
            try:
                self._lines(program)
                self._end_of(wrong)
            except Return as returned:
                here.status = returned.status
            finally:
                here.place = place
                if len(words) > 2:
                    here.carry(arguments=saved)
        return True

    @contextmanager
    def _counting_from(self, above: int, end: int) -> Iterator[None]:
        """In the block, number lines from the line after `above`."""
        saved = self._above, self._end_line
        self._above, self._end_line = above, end
        try:
            yield
        finally:
            self._above, self._end_line = saved
