"""A machine whose shells support a few commands, and commands that enter it, without a system.

`ScriptedMachine` replaces a `SandboxRunner`, `ScriptedLines` the `Lines` that it lends.
"""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from shioenv.behavior.typed_rows import Row, RowKind
from shioenv.domain.behavior import Behavior
from shioenv.domain.context import Context
from shioenv.domain.patch import diff_documents
from shioenv.domain.runner import ScriptedRunner, State
from shioenv.errors import SandboxError, ShellEndedError
from shioenv.sandbox.base import Entered, Limits, Request

LISTING = "cd /proc;"
"""The beginning of the input that lists the machine's processes."""


def scripted_context(cwd: str, files: dict[str, str]) -> Context:
    """Return the context of a machine with files in its start directory."""
    document = dict(ScriptedRunner().context(cwd).document)
    entry = {
        "perms": "-rw-r--r--", "links": 1, "owner": "root", "group": "root",
        "month": "Oct", "day": 16, "year": 2025, "time": "19:43",
    }  # fmt: skip
    document["fs"] = {name: {**entry, "size": len(text)} for name, text in files.items()}
    return Context(document)


class ScriptedLines:
    """A shell: `put FILE TEXT`, `rm FILE`, `set NAME TEXT`, `echo WORDS`, `exit N`.

    `$NAME` in a line is a variable's value. `count` prints how often any shell of the machine
    counted. `hang` runs out of time, `die` is killed, `crash` loses the machine. Any other line
    prints itself.
    """

    def __init__(self, machine: ScriptedMachine, cwd: str) -> None:
        self.machine, self.cwd = machine, cwd
        self.files: dict[str, str] = {}
        self.variables: dict[str, str] = {}
        self.ended = self.gone = self.given_back = self.busy = self.unkillable = False
        self.seconds = 0.0
        self.restarts = 0
        self.timeouts = machine.timeouts
        self._seen: dict[str, str] = {}
        self._last = Behavior(0, b"")

    def run(self, line: str, *, wall_seconds: float | None = None) -> Behavior:
        """Run a line; the patch starts from the line before."""
        with self.turn():
            return self._told(self._do(line, wall_seconds))

    def repeat(self, line: str, *, wall_seconds: float | None = None) -> Behavior:
        """As `run`, without a patch."""
        with self.turn():
            return self._do(line, wall_seconds)

    def beside(
        self, text: str, *, wall_seconds: float | None = None, separate: bool = False
    ) -> Behavior:
        """As `run`, with separate variables."""
        own, self.variables = self.variables, {}
        was_ended, self.ended = self.ended, False
        with self.turn():
            behavior = self._told(self._do(text, wall_seconds))
        self.variables, self.ended = own, was_ended
        return behavior

    def apart(self, text: str, *, wall_seconds: float | None = None) -> Behavior:
        """Return the machine's output about state outside of patches."""
        from shioenv_agents.tasks.unrecorded import PROBE  # the core has no such question

        assert text == PROBE
        return Behavior(0, b"\0".join([b"1", self.machine.unrecorded, b"", b""]))

    def look(self) -> Behavior:
        """Return the changes since the line before."""
        with self.turn():
            return self._told(Behavior(0, b""))

    def whole(self) -> Behavior:
        """Return the changes since the start."""
        return self.machine.changed(self.cwd, {}, self.files, self._last)

    def kill(self) -> None:
        """End the shell."""
        if self.unkillable:
            raise SandboxError("it cannot be killed")
        self.ended = True

    def settle(self) -> Behavior:
        """End everything."""
        self.kill()
        return self.whole()

    def restart(self, *, idle_seconds: float) -> None:
        """Start another shell on the same files."""
        self.ended = False
        self.variables = {}
        self.restarts += 1

    def enter(self, text: str, *, wall_seconds: float, idle_seconds: float) -> Entered:
        """Run an input with the host's bash; a list of processes is the machine's own."""
        if text.startswith(LISTING):
            text = f"echo {self.machine.processes}"
        return self.machine.enter(text)

    def interrupt(self) -> None:
        """End the machine."""
        self.ended = self.gone = True

    def close(self) -> None:
        """Give the machine back."""
        self.ended = self.given_back = True

    @contextmanager
    def turn(self, *, closed: bool = False) -> Iterator[None]:
        """Refuse calls after `close`, unless they do without the machine."""
        if self.given_back and not closed:
            raise ShellEndedError("the shell was closed")
        yield

    def _told(self, behavior: Behavior) -> Behavior:
        told = self.machine.changed(self.cwd, self._seen, self.files, behavior)
        self._seen = dict(self.files)
        return told

    def _do(self, line: str, wall_seconds: float | None) -> Behavior:
        if self.ended:
            raise ShellEndedError("the shell has ended")
        self.timeouts.append(wall_seconds)
        self.seconds += 1
        for name, value in self.variables.items():
            line = line.replace(f"${name}", value)
        word, first, rest = [*line.split(" ", 2), "", ""][:3]
        self._last = self._done(word, first, rest, line)
        return self._last

    def _done(self, word: str, first: str, rest: str, line: str) -> Behavior:
        output, status = b"", 0
        if word == "put":
            self.files[first] = rest
        elif word == "rm":
            status = 0 if self.files.pop(first, None) is not None else 1
        elif word == "set":
            self.variables[first] = rest
        elif word == "exit":
            self.ended, status = True, int(first or 0)
        elif word == "count":
            self.machine.counted += 1
            output = b"%d\n" % self.machine.counted
        elif word == "hang":
            self.ended = True
            return Behavior(124, b"", timed_out=True, limits_hit=("wall_seconds",))
        elif word == "die":
            self.ended = True
            return Behavior(137, b"", died_by_signal=9)
        elif word == "crash":
            self.ended = self.gone = True
            raise SandboxError("the machine is gone")
        else:
            output = f"{line.removeprefix('echo ')}\n".encode()
        return Behavior(status, output)


class ScriptedMachine:
    """A machine without files at first, on which any number of separate shells run."""

    seconds = whole_seconds = 2.0

    def __init__(self, *, keeps_shells: bool = True, limits: Limits | None = None) -> None:
        self.keeps_shells = keeps_shells
        self.limits = limits or Limits()
        self.system: Any = SimpleNamespace(
            name="scripted", digest="0" * 64, users={"root": 0, "ann": 1000},
            declaration=SimpleNamespace(
                start_directory="/start", machine=SimpleNamespace(processes=())
            ),
        )  # fmt: skip
        self.counted = self.closed = 0
        self.unrecorded = b""
        self.processes = "1 2"
        self.timeouts: list[float | None] = []
        """The time limit of each line in seconds."""
        self.typed: list[list[Row]] = []
        """The rows of each call of `type`."""
        self.lent: list[ScriptedLines] = []
        self._programs: list[subprocess.Popen[bytes]] = []

    def state(self, cwd: str | None = None) -> State:
        """The pristine state."""
        return State(cwd=cwd or "/start", pristine=self)

    def context(self, cwd: str | None = None) -> Context:
        """The pristine context."""
        return scripted_context(cwd or "/start", {})

    def read(self, path: str) -> bytes | None:
        """Return None: there are no files."""
        return None

    def lend_shell(self, cwd: str) -> Any:
        """Return a new shell."""
        self.lent.append(ScriptedLines(self, cwd))
        return self.lent[-1]

    def start_shell(self, cwd: str, *, idle_seconds: float) -> Any:
        """A new shell."""
        return self.lend_shell(cwd)

    def start_copies(self, lines: ScriptedLines, count: int, *, idle_seconds: float) -> str:
        """Return why a shell of a script has no copies."""
        return "it has no memory"

    def type(
        self,
        rows: Iterable[Row],
        cwd: str,
        *,
        separate: bool = False,
        wall_seconds: float | None = None,
    ) -> Behavior:
        """Run rows together; the newest typed one prints."""
        rows = list(rows)
        self.typed.append(rows)
        self.timeouts.append(wall_seconds)
        lines = ScriptedLines(self, cwd)
        lines.timeouts = []
        last = Behavior(0, b"")
        for row in rows:
            if row.how is RowKind.END:
                lines.variables = {}
                continue
            if row.how in (RowKind.BESIDE, RowKind.BESIDE_AGAIN):
                last = lines.beside(row.text)
            elif not lines.ended:
                last = lines.run(row.text)
            if row.how in (RowKind.AGAIN, RowKind.BESIDE_AGAIN):
                last = replace(last, output=b"")
        return self.changed(cwd, {}, lines.files, last)

    def since(
        self, before: Behavior, whole: Behavior, cwd: str, *, of_moved: bool = False
    ) -> Behavior:
        """Return the effects of the rows that only the second behavior has."""
        pristine = self.context(cwd).document
        documents = [each.patch.apply(pristine) for each in (before, whole)]
        digests = dict(whole.content_digests.items() - before.content_digests.items())
        return replace(whole, patch=diff_documents(*documents), content_digests=digests)

    def changed(
        self, cwd: str, before: dict[str, str], after: dict[str, str], behavior: Behavior
    ) -> Behavior:
        """Return a behavior with the patch between two sets of files."""
        documents = [scripted_context(cwd, files).document for files in (before, after)]
        digests = {
            name: hashlib.sha256(text.encode()).hexdigest()
            for name, text in after.items()
            if before.get(name) != text
        }
        return replace(behavior, patch=diff_documents(*documents), content_digests=digests)

    def enter(self, text: str) -> Entered:
        """Run an input with the host's bash, with the descriptors that a sandbox gives it."""
        Request(text).argument()  # as a sandbox takes it
        talk, theirs = socket.socketpair()
        output, to_output = os.pipe()
        errors, to_errors = os.pipe()
        words = ["/bin/bash", "--norc", "--noprofile", "-c", text]
        self._programs.append(
            subprocess.Popen(words, stdin=theirs.fileno(), stdout=to_output, stderr=to_errors)
        )
        theirs.close()
        os.close(to_output)
        os.close(to_errors)
        return Entered(talk.detach(), output, errors)

    def close(self) -> None:
        """Count the call, and wait for the programs that were entered."""
        self.closed += 1
        for program in self._programs:
            program.wait()
