"""Sessions whose lines are answered by a model, with or without a machine as fallback.

The visitor types on sshd's terminal, which echoes and edits lines as for any line-based program.
"""

from __future__ import annotations

import asyncio
import re
import signal
import time
from functools import partial
from typing import cast

from shioenv.bash.complete import MOST_PARSED, ScriptReader
from shioenv.domain.behavior import Behavior
from shioenv.domain.patch import diff_documents
from shioenv.errors import Abstained
from shioenv.live.machine_thread import Seat
from shioenv.live.model_shell import HybridShell, ModelShell
from shioenv.live.resident import ResidentShell
from shioenv.live.shell import Shell
from shioenv.live.shells import answered_by
from shioenv.sandbox.base import LONGEST_INPUT
from shioenv_serve.events import LONGEST
from shioenv_serve.ssh.calls import Caller, LoginCall, read_descriptor, write_descriptor
from shioenv_serve.ssh.machine_channel import connect_command
from shioenv_serve.ssh.machines import login_words, start_command
from shioenv_serve.ssh.model_files import ModelFiles, ScpAnswers, SftpAnswers
from shioenv_serve.ssh.uploads import tap_of
from shioenv_serve.ssh.visitor_channel import Ended, House, SshChannel, Visitor, cancel_tasks
from shioenv_serve.visit_log import PROTOCOL

_ENDS = re.compile(r"\b(?:exit|exec|logout)\b")
"""Words that may end the shell. A command that contains such a word runs in a subshell."""

_EXIT = re.compile(r"\s*(?:exit|logout)(?:\s+(\d{1,3}))?\s*")


class ModelChannel(SshChannel):
    """A channel whose lines are answered by a shell without a terminal."""

    def __init__(
        self, house: House, visit: Visitor, call: LoginCall, caller: Caller, shell: Seat[Shell]
    ) -> None:
        super().__init__(house, visit, call, caller)
        self._shell, self._cwd, self._ended = shell, "", False

    async def _sit(self) -> Ended:
        if self._call.command is not None:
            return await self._answer(self._call.command), None
        await self._show(self._greeting)
        script, status = ScriptReader(), 0
        await self._shell.do(self._look)
        while not self._ended:
            await self._show(b"> " if script.begun else self._prompt())
            line = await self._line()
            if line is None:
                await self._show(b"logout\n")
                break
            if not line or self._is_too_long(script):  # Ctrl-C discards an incomplete command
                script = ScriptReader()
                continue
            self.entered(line.rstrip("\n"), False)
            if not script.begun and (leaves := _EXIT.fullmatch(line)):
                await self._show(b"logout\n")
                status = int(leaves[1] or status) & 255
                break
            command = await asyncio.to_thread(script.add, line)
            script.refused = False  # on a terminal, Bash continues after a syntax error
            if command is not None:
                status = await self._answer(command)
        return status, None

    async def _run(self) -> Ended:
        command = self._call.command
        if command is not None:
            self.entered(command, False)
            if protocol := PROTOCOL.match(command):
                return await self._speak(command, protocol[1])
            return await self._answer(command), None
        return await self._read_script(), None

    async def _read_script(self) -> int:
        """Answer the commands on standard input, and return the last exit code."""
        script, status, kept = ScriptReader(), 0, b""
        while not self._ended and not script.refused:
            data = await read_descriptor(self._call.fds[0])
            self.typed(data)
            *lines, kept = (kept + data).split(b"\n") if data else [kept, b""]
            for line in lines:
                command = await asyncio.to_thread(script.add, _text(line))
                status = script.status(await self._piped(command, status))
                if self._ended or script.refused:
                    return status
            if not data:
                return script.status(await self._piped(await asyncio.to_thread(script.end), status))
            if self._is_too_long(script, kept):
                return status
        return status

    def _is_too_long(self, script: ScriptReader, kept: bytes = b"") -> bool:
        """Whether an incomplete command and `kept` together are too long; if so, log that."""
        if script.begun + len(kept) <= LONGEST_INPUT and script.parsed <= MOST_PARSED:
            return False
        reason = "the command has more than one line, which a model cannot answer"
        self._tell("shioenv.abstained", input=_text(kept)[:LONGEST], reason=reason)
        return True

    async def _speak(self, command: str, protocol: str) -> Ended:
        """Serve a transfer protocol from the fallback machine if there is one, else the model."""
        shell = await self._shell.do(lambda shell: shell)
        if isinstance(shell, HybridShell):
            words = login_words(self._account, command, self._call.environment, tty=False)
            user = self._account.name
            entered = await self._shell.do(lambda _: start_command(_resident(shell), words, user))
            tap = tap_of(command, self._uploads)
            return await connect_command(
                self, command, entered, tap, partial(self._followed, shell)
            )
        if protocol == "rsync" or not isinstance(shell, ModelShell):
            return await self._answer(command), None
        began, before = time.monotonic(), shell.state.before.document
        seat = cast("Seat[ModelShell]", self._shell)
        files = ModelFiles(shell, self._house.accounts)
        if protocol == "scp":
            scp = ScpAnswers(seat, files, self._uploads, self._heard, self._said)
            exit_code = await scp.answer(command)
        else:
            exit_code = await self._sftp(seat, SftpAnswers(files, self._uploads))
        patch = diff_documents(before, shell.state.before.document)
        took = time.monotonic() - began
        self.did(command, Behavior(exit_code, b"", patch), took, "model")
        return exit_code, None

    async def _sftp(self, seat: Seat[ModelShell], answers: SftpAnswers) -> int:
        """Answer an SFTP session until the visitor's input ends, and return its exit code."""
        try:
            while not answers.over and (data := await self._heard()):
                said = await seat.do(lambda _, data=data: answers.answer(data))  # type: ignore[misc]
                await self._uploads.write()
                await self.hold()
                await self._said(said)
        finally:
            answers.close()
        return int(answers.over)

    async def _heard(self) -> bytes:
        return await read_descriptor(self._call.fds[0])

    async def _said(self, data: bytes) -> bool:
        return await write_descriptor(self._call.fds[1], data)

    async def _followed(self, shell: HybridShell) -> Behavior:
        """Return the changes in the fallback machine, and add them to the model's state."""

        def look(_: Shell) -> Behavior:
            behavior = _resident(shell).look()
            shell.follow()
            return behavior

        return await self._shell.do(look)

    async def _piped(self, command: str | None, status: int) -> int:
        """Answer a command from standard input, if any; return its exit code, else `status`."""
        if command is None:
            return status
        self.entered(command, False)
        return await self._answer(command)

    async def _line(self) -> str | None:
        """Return the next line with its newline; empty after Ctrl-C, None at the end."""
        reading = asyncio.create_task(read_descriptor(self._call.fds[0]))
        heard = asyncio.create_task(self._interrupted())
        try:
            await asyncio.wait({reading, heard}, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                await self._show(b"\n")
                return "" if heard.result() else None
            data = reading.result()
        finally:
            await cancel_tasks(reading, heard)
        self.typed(data)
        return f"{_text(data).rstrip(chr(10))}\n" if data else None

    async def _interrupted(self) -> bool:
        """Wait for Ctrl-C, and return True; False if the visitor is gone."""
        while True:
            kind, number = await self._caller.message()
            if kind == "w":
                self._tell_size()
            elif not kind or number == signal.SIGHUP:
                return False
            elif number == signal.SIGINT:
                return True

    async def _answer(self, line: str) -> int:
        """Answer a line, and return the exit code."""
        began = time.monotonic()
        alone = self._call.command is not None and _ENDS.search(line)
        text = f"({line}\n)" if alone else line  # the visitor's other channels share the shell
        try:
            behavior, runner, confidence = await self._shell.do(
                lambda shell: self._ran(shell, text)
            )
        except Abstained as error:
            self._tell("shioenv.abstained", input=line, reason=error.message)
            return 0
        took = time.monotonic() - began
        self.did(line, behavior, took, runner, confidence)
        await self.hold()
        errors = b"" if self._call.tty else behavior.stderr or b""
        await self._show(behavior.output if not errors else behavior.stdout or b"")
        await write_descriptor(self._call.fds[2], errors)
        return behavior.exit_code

    def _ran(self, shell: Shell, line: str) -> tuple[Behavior, str, float | None]:
        """Return a shell's answer to a line, its source and confidence, in the shell's thread."""
        behavior = shell.run(line)
        self._look(shell)
        return behavior, *answered_by(shell)

    def _look(self, shell: Shell) -> None:
        """Note a shell's working directory and whether it ended; runs in the shell's thread."""
        self._cwd, self._ended = str(shell.state.before.document["cwd"]), shell.ended

    def _prompt(self) -> bytes:
        place = self._cwd
        if place == "/root" or place.startswith("/root/"):
            place = "~" + place.removeprefix("/root")
        return f"root@{self._house.hostname}:{place}# ".encode("utf-8", "surrogateescape")

    async def _show(self, data: bytes) -> None:
        self.shown(data.replace(b"\n", b"\r\n"))
        await write_descriptor(self._call.fds[1], data)


def _text(line: bytes) -> str:
    return line.decode("utf-8", "surrogateescape")


def _resident(shell: HybridShell) -> ResidentShell:
    """Return the shell in the fallback machine, after it has run all lines."""
    machine = shell.settled()
    assert isinstance(machine, ResidentShell)  # `Shells` opens no other kind
    return machine
