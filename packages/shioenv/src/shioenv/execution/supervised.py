"""External programs that end together with the calling process, including their descendants.

Two small supervisor processes run between the calling process and each program. The kernel notifies
a supervisor when the calling process has ended for any reason. The kernel also makes the supervisor
the parent of orphaned processes of the program. So no process escapes by starting a new session.

The outer and the inner supervisor watch each other: if one is killed, the other ends the program. A
stopped supervisor is continued when the calling process ends. The program's descendants and its
temporary directory survive only if both supervisors are killed at the same instant. The next start
removes that directory.

The supervisors run this file, so it uses only the standard library.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

LAST_WORDS = 2000
"""Bytes kept from the end of a program's output, if only the end is needed."""

ENDING_SECONDS = 10.0
"""Seconds within which killed processes end; only unkillable processes take longer."""

_SCRATCH = "shioenv-outside-"
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def supervised(
    words: Sequence[str],
    *,
    last_words: IO[bytes] | None = None,
    pass_fds: Sequence[int] = (),
    stdin: int = subprocess.DEVNULL,
    stdout: int | None = None,
) -> subprocess.Popen[bytes]:
    """Start a program and return its supervisor, which exits with the program's status.

    `terminate` on the supervisor ends the program and its descendants. The end of this process or
    of the program itself has the same effect. The program has a separate session, and a directory
    for temporary files (TMPDIR) that is removed afterwards.

    The program's standard output goes to `stdout`, its standard error to that of this process. With
    `last_words`, the last 2,000 bytes of both are written to that file instead, after the program
    has ended. Errors: OSError if the program cannot be run.
    """
    kept, lock = _scratch()
    said, told = os.pipe()
    mode = "output" if last_words is None else "last-words"
    facts = [str(os.getpid()), str(told), str(lock), kept, mode]
    this = [sys.executable, "-X", "utf8", "-I", "-S", __file__, *facts]
    try:
        process = subprocess.Popen(
            [*this, *words],
            stdin=stdin,
            stdout=stdout if last_words is None else last_words,
            stderr=last_words,
            pass_fds=[*pass_fds, told, lock],
            start_new_session=True,  # Ctrl-C is only for the calling process
            env={**os.environ, "TMPDIR": kept},
        )
    except BaseException:
        os.close(said)
        shutil.rmtree(kept, ignore_errors=True)
        raise
    finally:
        os.close(told)
        os.close(lock)
    try:
        with os.fdopen(said, "rb") as answer:
            trouble = answer.read()  # returns once the program runs or has failed to start
    except BaseException:
        process.terminate()
        raise
    if trouble:
        process.wait()
        raise OSError(int(trouble), os.strerror(int(trouble)))
    return process


def ended(process: subprocess.Popen[bytes], patience: float = 0.0) -> int:
    """Wait for a supervised program, kill it after `patience` seconds; return its exit status."""
    process.send_signal(signal.SIGCONT)  # a stopped supervisor would not react
    with suppress(subprocess.TimeoutExpired):
        return process.wait(patience)
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        return process.wait(2 * ENDING_SECONDS)
    process.kill()
    return process.wait()


def _scratch() -> tuple[str, int]:
    """Create a directory for temporary files, and a file descriptor that locks it while open.

    Unlocked directories are removed first, since their supervisors were killed.
    """
    import tempfile

    for left in Path(tempfile.gettempdir()).glob(f"{_SCRATCH}*"):
        with suppress(OSError):
            if left.lstat().st_uid == os.geteuid() and (lock := _lock(left)) is not None:
                shutil.rmtree(left, ignore_errors=True)
                os.close(lock)
    while True:
        kept = tempfile.mkdtemp(prefix=_SCRATCH)
        with suppress(FileNotFoundError):  # another start removed it before it was locked
            if (lock := _lock(Path(kept))) is not None:
                if Path(kept).is_dir():
                    return kept, lock
                os.close(lock)


def _lock(directory: Path) -> int | None:
    """Lock the directory and return the descriptor; None if another process has the lock."""
    file = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        return None
    return file


# ---- the supervisors ----


class _Supervisor:
    """Watches one child until the child or the calling process has ended.

    `asker` is a pidfd of the calling process. `kept` are file descriptors that stay open.
    """

    def __init__(self, asker: int, kept: Sequence[int], last_words: bool) -> None:
        self._asker = asker
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._woken, self._waking = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(self._waking, False)
        signal.set_wakeup_fd(self._waking)
        self._told_to_end = False
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.signal(signal.SIGTERM, self._end)
        self._heard, self._mouth = os.pipe() if last_words else (-1, -1)
        self._tail = b""
        self._kept = {self._asker, self._woken, self._waking, self._heard, *kept}
        self._child = 0
        self.status: int | None = None
        """The child's wait status; None before the child has ended."""

    def start(self, become: Callable[[], None], told: int) -> None:
        """Fork the child, which calls `become`; on OSError it writes the errno to `told`."""
        self._child = os.fork()
        if self._child == 0:
            try:
                os.setsid()  # a program that kills its process group spares its supervisors
                if self._mouth >= 0:
                    os.dup2(self._mouth, 1)
                    os.dup2(self._mouth, 2)
                become()
            except OSError as error:
                os.write(told, str(error.errno).encode())
            finally:
                os._exit(127)
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, 0)
        os.dup2(nowhere, 1)  # only the program must keep its input and output open
        for file in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
            if file > 2 and file not in self._kept:
                with suppress(OSError):  # the descriptor of the listing itself is already closed
                    os.close(file)

    def watch(self) -> None:
        """Wait until the program has ended or must be ended."""
        poll = select.poll()
        for file in (self._asker, self._woken, self._heard):
            if file >= 0:
                poll.register(file, select.POLLIN)
        while self.status is None and not self._told_to_end:
            for file, _ in poll.poll():
                if file == self._asker:
                    self._told_to_end = True
                elif file == self._heard:
                    if not self._hear():
                        poll.unregister(file)
                else:
                    os.read(file, 4096)
            self._reap()

    def end(self) -> None:
        """Kill the program and its descendants, and write the end of its output."""
        until = time.monotonic() + ENDING_SECONDS
        while self._reap() and time.monotonic() < until:
            stopped: set[int] = set()
            while new := _descendants() - stopped:  # a stopped process cannot fork
                for each in new:
                    _signal(each, signal.SIGSTOP)
                stopped |= new
            for each in stopped:
                _signal(each, signal.SIGKILL)
            time.sleep(0.001)
        if self._heard >= 0:
            os.set_blocking(self._heard, False)
            with suppress(BlockingIOError):
                while self._hear():
                    pass
            os.write(2, self._tail)

    def _end(self, number: int, frame: object) -> None:
        self._told_to_end = True

    def _hear(self) -> bool:
        said = os.read(self._heard, 65536)
        self._tail = (self._tail + said)[-LAST_WORDS:]
        return bool(said)

    def _reap(self) -> bool:
        """Reap the ended children; return whether others are left."""
        try:
            while True:
                who, status = os.waitpid(-1, os.WNOHANG)
                if who == 0:
                    return True
                if who == self._child:
                    self.status = status
        except ChildProcessError:
            return False


def wake_at_end_of_caller() -> None:
    """Have the kernel send SIGCONT to this process when its parent process ends.

    SIGCONT continues a stopped process and has no effect on a running one. The kernel also sends it
    when the thread that started this process ends, even if the parent process continues.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGCONT, 0, 0, 0)


def _signal(process: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(process, number)


def _descendants() -> set[int]:
    """Return the ids of all descendants of this process."""
    children: dict[int, list[int]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            with suppress(OSError):
                facts = Path(entry.path, "stat").read_bytes()
                parent = int(facts.rpartition(b")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found: set[int] = set()
    waiting = [os.getpid()]
    while waiting:
        for child in children.get(waiting.pop(), ()):
            found.add(child)
            waiting.append(child)
    return found


def _main() -> None:
    """Run the outer supervisor. Its child is the inner supervisor, whose child is the program."""
    parent, told, lock, scratch, mode, *words = sys.argv[1:]
    try:
        asker = os.pidfd_open(int(parent))
    except ProcessLookupError:
        asker = -1
    if asker < 0 or os.getppid() != int(parent):  # it has ended; its id may be reused
        shutil.rmtree(scratch, ignore_errors=True)
        return
    this = os.pidfd_open(os.getpid())
    wake_at_end_of_caller()
    outer = _Supervisor(asker, [int(lock)], mode == "last-words")

    def inner() -> None:
        supervisor = _Supervisor(this, [int(lock)], False)
        here = os.getpid()
        _supervise(supervisor, lambda: _run(words, here, int(told)), int(told), scratch)

    _supervise(outer, inner, int(told), scratch)


def _supervise(
    supervisor: _Supervisor, become: Callable[[], None], told: int, scratch: str
) -> None:
    """Run a child to its end, kill its remaining descendants, then exit with its status."""
    try:
        supervisor.start(become, told)
        supervisor.watch()
    finally:
        supervisor.end()
    shutil.rmtree(scratch, ignore_errors=True)
    status = -signal.SIGKILL
    if supervisor.status is not None:
        status = os.waitstatus_to_exitcode(supervisor.status)
    if status < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with suppress(OSError):
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


def _run(words: list[str], supervisor: int, told: int) -> None:
    """Execute the program in place of this process. Errors: OSError."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != supervisor:
        os._exit(127)
    os.set_inheritable(told, False)
    signal.set_wakeup_fd(-1)
    for number in (
        signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD, signal.SIGTERM,
        signal.SIGPIPE, signal.SIGXFSZ,
    ):  # fmt: skip
        signal.signal(number, signal.SIG_DFL)
    os.execvp(words[0], words)


if __name__ == "__main__":
    _main()
