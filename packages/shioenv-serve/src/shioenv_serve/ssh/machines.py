"""The machines of a server: one for each visitor, pristine when the visitor connects."""

from __future__ import annotations

import asyncio
import os
import re
import select
import signal
import socket
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Final

from shioenv.bash.words import quoted
from shioenv.behavior.line_behaviors import Lines
from shioenv.behavior.observe import SandboxRunner
from shioenv.domain.behavior import Behavior
from shioenv.live.entered import RUN, SAY_STATUS, START_SECONDS, parse_control_line, send_first
from shioenv.live.machine_thread import Seat
from shioenv.live.resident import ResidentShell
from shioenv.sandbox.base import MEBIBYTE, Entered, Limits
from shioenv.system.store import System

LIMITS: Final = Limits(
    wall_seconds=60.0,
    cpu_seconds=120.0,
    output_bytes=4 * MEBIBYTE,
    drain_bytes=64 * MEBIBYTE,
)
"""Limits of one visitor's machine; our choice.

The limits on time and output apply only to lines that a model delegates to the machine. A visitor's
own commands have no such limits: they run until the connection ends.
"""

READY: Final = 2
"""Machines kept ready for new visitors; our choice, because each takes 15 MB and opens in 0.1 s."""

IDLE_SECONDS: Final = 7200.0
"""Seconds for which an idle machine stays open: longer than any server's session limit."""


@dataclass(frozen=True, slots=True)
class Account:
    """A user of the system, as found at login."""

    name: str
    uid: int
    gid: int
    home: str
    shell: str
    given: Mapping[str, str] = field(default_factory=dict)
    """Variables that the system's PAM sets at login."""


_SITTER: Final = (
    "exec 9<&0; set -m\n"
    "( SHLVL=2 exec -a {name} /bin/bash <&9 8>&2 2>&9 ) &\n"
    "printf 'group %d\\n' $! >&9"
)
"""Start a background process that looks like a real server's in `ps`; print its process group.

The process reads its command from the control socket, so that no process list shows it. With
`SHLVL` 1, Bash would read the user's start-up file, because its input is a socket.
"""

_ORDER: Final = (
    f"printf sshd 2>/dev/null >/proc/$$/comm; set -- {{command}}; {RUN}; {SAY_STATUS}; exit\n"
)
"""Make that background process run a command with the socket as input, and print its status."""

_PLAIN: Final = (
    "( read -ra fields < /proc/$$/stat; from=$((fields[47] + 5)) "
    "count=$((fields[48] - fields[47] - 5))\n"
    "exec dd if=/dev/zero of=/proc/$$/mem bs=1 seek=$from count=$count conv=notrunc ) 2> /dev/null"
)
"""Reduce the arguments that `ps` shows for the idle shell of a machine to `bash`.

The shell overwrites its arguments in memory, as `setproctitle` does.
"""

_MOTD = re.compile(rb"^session\s.*\bpam_motd\.so", re.MULTILINE)
_NO_LOGIN = ("nologin", "false", "sync")
_PASSED_ON = re.compile(r"TERM|LANG|LC_[A-Z_]+|SSH_CLIENT|SSH_CONNECTION")
_ROOTS_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/games:/usr/games"


def login_accounts(system: System) -> Mapping[str, Account]:
    """Return users of the system that can log in, by name; the first is `root`."""
    found: dict[str, Account] = {}
    shows_motd = _MOTD.search(system.content("/etc/pam.d/sshd") or b"")
    given = {"MOTD_SHOWN": "pam"} if shows_motd else {}
    text = (system.content("/etc/passwd") or b"").decode("utf-8", "replace")
    for line in text.splitlines():
        fields = line.split(":")
        if len(fields) != 7 or not (fields[2].isdecimal() and fields[3].isdecimal()):
            continue
        name, _, uid, gid, _, home, shell = fields
        if shell.rpartition("/")[2] not in _NO_LOGIN:
            home = home if system.is_directory(home) else "/"
            found[name] = Account(name, int(uid), int(gid), home, shell or "/bin/sh", given)
    return found or {"root": Account("root", 0, 0, "/root", "/bin/bash", given)}


def login_words(
    account: Account, command: str | None, given: Mapping[str, str], *, tty: bool
) -> str:
    """Return the quoted words that a login of the account runs: its shell, or a command in it.

    `given` are the variables set by sshd; those that a real login receives are passed on.
    """
    variables = {name: text for name, text in given.items() if _PASSED_ON.fullmatch(name)}
    path = _PATH if account.uid else _ROOTS_PATH
    variables |= {"USER": account.name, "LOGNAME": account.name, "HOME": account.home}
    variables |= {"PATH": path, "SHELL": account.shell, **account.given}
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
    return " ".join(map(quoted, words))


class VisitorMachine:
    """One visitor's machine: a terminal, and any number of other commands."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._seat = Seat.at(lines, Lines.interrupt)
        self.seated = False
        """Whether a shell uses the machine's terminal."""

    async def enter(self, words: str, user: str) -> Entered:
        """Start a user's command, given as quoted words, and return its descriptors.

        The control socket works as in `EnteredMachine.start`, and also carries standard input.
        Errors: SandboxError, InputError.
        """
        return await self._seat.do(lambda lines: start_command(lines, words, user))

    async def sit(self, words: str) -> int:
        """Run quoted words on the machine's terminal, and return the master end.

        Errors: SandboxError.
        """
        self.seated = True
        try:
            return await self._seat.do(
                lambda lines: lines.start_terminal(f"exec {words}", idle_seconds=IDLE_SECONDS)
            )
        except BaseException:
            self.seated = False
            raise

    async def look(self) -> Behavior:
        """Return the changes since the last look. Errors: SandboxError."""
        return await self._seat.do(Lines.look)

    @property
    def ended(self) -> bool:
        """Whether the shell on the terminal had ended at the last look."""
        return self._lines.ended

    async def close(self) -> None:
        """End everything in the machine, running commands included; a second call does nothing."""
        await self._seat.close()


def start_command(machine: Lines | ResidentShell, words: str, user: str) -> Entered:
    """Start a user's command, given as quoted words, in a machine.

    Errors: SandboxError, InputError.
    """
    order = _ORDER.format(command=words).encode("utf-8", "surrogateescape")
    text = _SITTER.format(name=quoted(f"sshd: {user}@notty"))
    entered = machine.enter(text, wall_seconds=START_SECONDS, idle_seconds=IDLE_SECONDS)
    send_first(entered, order)
    return entered


def run_with_input(
    machine: ResidentShell, account: Account, command: str, content: bytes
) -> Behavior:
    """Run a user's command with a standard input. Errors: SandboxError, InputError."""
    words = login_words(account, command, {}, tty=False)
    entered = start_command(machine, words, account.name)
    control, output, left = bytearray(), bytearray(), memoryview(content)
    status, end = None, time.monotonic() + LIMITS.wall_seconds
    outputs = os.fdopen(entered.output, "rb"), os.fdopen(entered.errors, "rb")
    with socket.socket(fileno=entered.talk) as talk, outputs[0], outputs[1]:
        sources: dict[Any, bytearray] = {talk: control, **dict.fromkeys(outputs, output)}
        while sources and (seconds := end - time.monotonic()) > 0:
            ready, free, _ = select.select(sources, [talk] * bool(left), [], seconds)
            if free:
                try:
                    left = left[talk.send(left) :]
                except ConnectionError:  # the command no longer reads
                    left = left[:0]
                if not left:
                    talk.shutdown(socket.SHUT_WR)
            for source in ready:
                data = os.read(source.fileno(), 65_536)
                sources[source] += data
                events = map(parse_control_line, bytes(control).split(b"\n")[:-1])
                status = dict(filter(None, events)).get("status")
                if not data or (source is talk and status is not None):
                    del sources[source]
    code = 128 + signal.SIGKILL if status is None else status & 255
    return replace(machine.look(), exit_code=code, output=bytes(output))


class Machines:
    """Open machines, and keep a few ready. A single thread opens all of them.

    A sandbox ends with the thread that opened it, so the thread lives until the end.
    """

    def __init__(self, system: System, ready: int = READY) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="machines")
        self._runner = self._thread.submit(self._opened, system).result()
        self._wanted = ready
        self._ready: list[Future[Lines]] = []
        self._refill()

    async def take(self) -> VisitorMachine:
        """Return a pristine machine. Errors: SandboxError if none can be opened."""
        future = self._ready.pop(0) if self._ready else self._thread.submit(self._start)
        self._refill()
        return VisitorMachine(await asyncio.wrap_future(future))

    def close(self) -> None:
        """Close every machine."""
        self._wanted = 0
        self._thread.submit(self._runner.close).result()
        self._thread.shutdown(cancel_futures=True)

    def _opened(self, system: System) -> SandboxRunner:
        runner = SandboxRunner(system, LIMITS)
        runner.context("/")  # read the network here: only this thread may use the sandbox
        return runner

    def _refill(self) -> None:
        while len(self._ready) < self._wanted:
            self._ready.append(self._thread.submit(self._start))

    def _start(self) -> Lines:
        lines = self._runner.start_shell("/", idle_seconds=IDLE_SECONDS)
        lines.run(_PLAIN)
        return lines
