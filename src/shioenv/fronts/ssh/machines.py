"""The machines behind a server: one for each visitor, pristine when the visitor comes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from shioenv.bash.words import quoted
from shioenv.behavior.lines import Lines
from shioenv.behavior.observe import SandboxRunner
from shioenv.domain.behavior import Behavior
from shioenv.errors import SandboxError
from shioenv.live.resident import ResidentShell
from shioenv.sandbox.base import MEBIBYTE, Limits
from shioenv.system.store import System

LIMITS: Final = Limits(
    wall_seconds=60.0,
    cpu_seconds=120.0,
    output_bytes=4 * MEBIBYTE,
    drain_bytes=64 * MEBIBYTE,
)
"""What one visitor's machine may use. `wall_seconds` are those of a command that is not typed on a
terminal; ours, because a scan of a file system takes less."""

READY: Final = 2
"""Machines that wait for the next visitors; ours, because each takes 15 MB and opens in 0.1 s."""

IDLE_SECONDS: Final = 7200.0
"""Seconds for which a machine waits by itself: more than any server lets a visitor stay."""

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Account:
    """A user of the system, as a login finds the user."""

    name: str
    uid: int
    gid: int
    home: str
    shell: str


_NO_LOGIN = ("nologin", "false", "sync")
_PASSED_ON = re.compile(r"TERM|LANG|LC_[A-Z_]+|SSH_CLIENT|SSH_CONNECTION")
_ROOTS_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/games:/usr/games"


def accounts(system: System) -> Mapping[str, Account]:
    """Users of the system that can log in, by name; the first is `root`."""
    found: dict[str, Account] = {}
    text = (system.content("/etc/passwd") or b"").decode("utf-8", "replace")
    for line in text.splitlines():
        fields = line.split(":")
        if len(fields) != 7 or not (fields[2].isdecimal() and fields[3].isdecimal()):
            continue
        name, _, uid, gid, _, home, shell = fields
        if shell.rpartition("/")[2] not in _NO_LOGIN:
            home = home if system.is_directory(home) else "/"
            found[name] = Account(name, int(uid), int(gid), home, shell or "/bin/sh")
    return found or {"root": Account("root", 0, 0, "/root", "/bin/bash")}


def login_input(
    account: Account, command: str | None, given: Mapping[str, str], *, tty: bool
) -> str:
    """The input that becomes what a login of the account runs: its shell, or a command by it.

    `given` are the variables that sshd gave; those that a real login gets are passed on.
    """
    variables = {name: text for name, text in given.items() if _PASSED_ON.fullmatch(name)}
    path = _PATH if account.uid else _ROOTS_PATH
    variables |= {"USER": account.name, "LOGNAME": account.name, "HOME": account.home}
    variables |= {"PATH": path, "SHELL": account.shell}
    if tty:
        variables["SSH_TTY"] = "/dev/pts/0"
    words = [
        "env",
        "-i",
        "-C",
        account.home,
        *(f"{name}={text}" for name, text in sorted(variables.items())),
    ]
    if account.uid:
        become = ["setpriv", f"--reuid={account.uid}", f"--regid={account.gid}", "--init-groups"]
        words = [*become, *words]
    if command is None:
        base = account.shell.rpartition("/")[2]
        words += ["bash", "-c", f"exec -a -{base} {quoted(account.shell)}"]
    else:
        words += [account.shell, "-c", command]
    return f"exec {' '.join(map(quoted, words))}"


class VisitorMachine:
    """One visitor's machine. Its calls wait for each other, in a thread of their own."""

    def __init__(self, lines: Lines, give_back: Callable[[Lines], Future[None]]) -> None:
        self._lines, self._give_back = lines, give_back
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="visitor")
        self._closed = False
        self._newest: Future[Any] | None = None
        self.seated = False
        """Whether a shell has the machine's terminal."""

    async def run(self, text: str, stdin: bytes) -> Behavior:
        """What an input does, with two channels. Errors: SandboxError, InputError."""
        return await self._do(lambda: self._lines.beside(text, separate=True, stdin=stdin))

    async def sit(self, text: str) -> int:
        """Runs an input on the machine's terminal; the other end. Errors: SandboxError."""
        self.seated = True
        try:
            return await self._do(
                lambda: self._lines.start_terminal(text, idle_seconds=IDLE_SECONDS)
            )
        except BaseException:
            self.seated = False
            raise

    async def look(self) -> Behavior:
        """What changed since the last look. Errors: SandboxError."""
        return await self._do(self._lines.look)

    @property
    def ended(self) -> bool:
        """Whether the shell on the terminal had ended at the last look."""
        return self._lines.ended

    @property
    def busy(self) -> bool:
        """Whether a program was in front on the terminal at the last look."""
        return self._lines.busy

    async def close(self) -> None:
        """Ends everything in the machine, what runs now included; closing twice does nothing."""
        if self._closed:
            return
        self._closed = True
        if self._newest and not self._newest.done():
            self._lines.interrupt()
        ended = self._thread.submit(lambda: self._give_back(self._lines).result())
        self._thread.shutdown(wait=False)
        await asyncio.shield(asyncio.wrap_future(ended))

    async def _do(self, action: Callable[[], Answer]) -> Answer:
        if self._closed:
            raise SandboxError("the visitor's machine is closed")
        self._newest = future = self._thread.submit(action)
        return await asyncio.wrap_future(future)


class Machines:
    """Opens machines, and keeps a few ready. One thread opens and ends all of them.

    A sandbox ends with the thread that opened it, so that thread stays until the end.
    """

    def __init__(self, system: System, ready: int = READY) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="machines")
        self._runner = self._thread.submit(self._opened, system).result()
        self._wanted = ready
        self._ready: list[Future[Lines]] = []
        self._refill()

    async def take(self) -> VisitorMachine:
        """A pristine machine. Errors: SandboxError where none can be opened."""
        future = self._ready.pop(0) if self._ready else self._thread.submit(self._start)
        self._refill()
        return VisitorMachine(await asyncio.wrap_future(future), self._end)

    async def resident(self) -> ResidentShell:
        """A shell of lines on a machine of its own, in the system's first start directory.

        Errors: SandboxError where none can be opened.
        """
        start = self._runner.system.declaration.start_directory
        opened = self._thread.submit(ResidentShell, self._runner, start)
        return await asyncio.wrap_future(opened)

    def close(self) -> None:
        """Ends every machine."""
        self._wanted = 0
        self._thread.submit(self._runner.close).result()
        self._thread.shutdown(cancel_futures=True)

    def _opened(self, system: System) -> SandboxRunner:
        runner = SandboxRunner(system, LIMITS)
        runner.context("/")  # the network too is read by this thread alone
        return runner

    def _refill(self) -> None:
        while len(self._ready) < self._wanted:
            self._ready.append(self._thread.submit(self._start))

    def _start(self) -> Lines:
        return self._runner.start_shell("/", idle_seconds=IDLE_SECONDS)

    def _end(self, lines: Lines) -> Future[None]:
        return self._thread.submit(lines.end)
