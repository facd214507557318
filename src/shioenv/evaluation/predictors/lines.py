"""Programs that are asked by a line and answer by a line, and where they are installed."""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from shioenv.errors import AnswerError, HostError, PredictorError
from shioenv.evaluation.predictor import Setting
from shioenv.execution.supervised import ended, supervised
from shioenv.system.build import cache_directory

LONGEST_ANSWER = 8 << 20
"""Bytes of the line that a program answers with: a hundred times the longest output kept."""


class LineProcess:
    """A program that runs until it is closed; one that ended is started again when it is asked.

    `first` is what it is told before anything else; its answer to that is `hello`. Errors:
    PredictorError where it cannot be run, ends, or says nothing to that in the time that it has to
    start; AnswerError where what it says does not end.
    """

    def __init__(self, words: Sequence[str], first: Mapping[str, Any], setting: Setting) -> None:
        self._words, self._setting = list(words), setting
        self._first = json.dumps(first).encode() + b"\n"
        self._process: subprocess.Popen[bytes] | None = None
        self._said = bytearray()
        self.hello = self._begun()

    def make_ready(self) -> None:
        """Starts it again where it has ended. Errors: those of making one."""
        if self._process is None or self._process.poll() is not None:
            self._begun()

    def ask(self, document: Mapping[str, Any]) -> str:
        """What it answers. Errors: EOFError where it ends instead; AnswerError where its answer
        does not end; TimeoutError where it says nothing in time. After each it is ended.
        """
        self.make_ready()
        seconds = self._setting.reply_seconds
        return self._asked(json.dumps(document).encode() + b"\n", seconds)

    def close(self) -> None:
        """Ends it and all that it started: its standard input ends, and if that does not help in
        two seconds, it is killed.
        """
        self._end(2.0)

    def _begun(self) -> str:
        self._end(0.0)
        try:
            self._process = supervised(self._words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        except OSError as error:
            raise PredictorError(f"{self._words[0]} cannot be run: {error.strerror}") from None
        for pipe in self._pipes():
            os.set_blocking(pipe.fileno(), False)
        seconds = self._setting.start_seconds
        try:
            return self._asked(self._first, seconds)
        except TimeoutError:
            raise PredictorError(
                f"{self._words[0]} said nothing to its first line in {seconds:g} s",
                hint="it has to answer each line with a line and flush it; --start-timeout SECONDS "
                "gives it longer to start",
            ) from None
        except EOFError as error:
            raise PredictorError(f"{error} before it answered its first line") from None

    def _asked(self, line: bytes, seconds: float) -> str:
        try:
            return self._exchanged(line, time.monotonic() + seconds)
        except TimeoutError:
            self._end(0.0)
            raise TimeoutError(f"no answer in {seconds:g} s") from None
        except AnswerError:
            self._end(0.0)  # the rest of its answer would be taken for the next one
            raise

    def _exchanged(self, line: bytes, until: float) -> str:
        """What it says in a line to a line: both are passed on as it takes and gives them."""
        stdin, stdout = self._pipes()
        waiting = memoryview(line)
        poll = select.poll()
        poll.register(stdout, select.POLLIN)
        poll.register(stdin, select.POLLOUT)
        while (end := self._said.find(b"\n")) < 0:
            if len(self._said) > LONGEST_ANSWER:
                raise AnswerError(
                    f"an answer of more than {LONGEST_ANSWER >> 20} MiB without the end of its line"
                )
            left = until - time.monotonic()
            # longer than a timer counts is as good as for ever
            ready = dict(poll.poll(min(max(0.0, left), 86_400.0) * 1e3)) if left > 0 else {}
            if left <= 0:
                raise TimeoutError
            if stdout.fileno() in ready:
                said = os.read(stdout.fileno(), 1 << 16)
                if not said:
                    raise EOFError(f"{self._words[0]} ended with status {self._end(1.0)}")
                self._said += said
            elif stdin.fileno() in ready:
                try:
                    waiting = waiting[os.write(stdin.fileno(), waiting) :]
                except BrokenPipeError:
                    waiting = waiting[:0]
                if not waiting:
                    poll.unregister(stdin)
        answer = bytes(self._said[: end + 1])
        del self._said[: end + 1]
        return answer.decode("utf-8", "surrogateescape")

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        return process.stdin, process.stdout

    def _end(self, patience: float) -> int | None:
        """Its status, None where it was not running."""
        if self._process is None:
            return None
        stdin, stdout = self._pipes()
        process, self._process = self._process, None
        self._said.clear()
        with suppress(OSError):
            stdin.close()
        status = ended(process, patience)
        stdout.close()
        return status


def installed(name: str, install: Callable[[Path], None]) -> Path:
    """The directory in the cache where something lies that a predictor needs; `install` puts it
    there on first use, which one process does while others wait.

    Errors: those of `install`; nothing half-installed stays behind.
    """
    directory = cache_directory() / "predictors" / name
    directory.parent.mkdir(parents=True, exist_ok=True)
    with waiting(directory.parent):
        if not directory.exists():
            temporary = directory.with_name(f".tmp-{name}")
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir()
            try:
                install(temporary)
                temporary.rename(directory)
            except BaseException:
                shutil.rmtree(temporary, ignore_errors=True)
                raise
    return directory


@contextmanager
def waiting(directory: Path) -> Iterator[None]:
    """Nobody else is in here meanwhile; who comes later waits."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def told(words: Sequence[str | Path], what: str, **how: Any) -> str:
    """What a program that installs something says. Errors: HostError where it is missing or fails,
    with its last words.
    """
    try:
        done: subprocess.CompletedProcess[str] = subprocess.run(
            [str(word) for word in words], capture_output=True, text=True, check=False, **how
        )
    except OSError as error:
        raise HostError(f"{what} needs {words[0]}: {error.strerror}") from None
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise HostError(f"{what} cannot be installed: {said[-1] if said else done.returncode}")
    return done.stdout
