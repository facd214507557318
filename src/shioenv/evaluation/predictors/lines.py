"""Programs that are asked by a line and answer by a line, and where they are installed."""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, TypeVar

from shioenv.errors import AnswerError, HostError, PredictorError
from shioenv.evaluation.predictor import Setting
from shioenv.execution.supervised import ended, supervised
from shioenv.files.documents import parse_json
from shioenv.system.build import cache_directory

T = TypeVar("T")

LONGEST_ANSWER = 8 << 20
"""Bytes of the line that a program answers with: a hundred times the longest output kept."""


class _UntouchedError(EOFError):
    """It ended and had read nothing of the question."""


class LineProcess:
    """A program that runs until it is closed; one that ended is started again when it is asked.

    `first` is what it is told before anything else; its answer to that is `hello`, a JSON object.
    Errors: PredictorError where it cannot be run, ends, writes anything else, or says nothing to
    that in the time that it has to start.
    """

    def __init__(self, words: Sequence[str], first: Mapping[str, Any], setting: Setting) -> None:
        self._words, self._setting = list(words), setting
        self._first = json.dumps(first).encode() + b"\n"
        self._process: subprocess.Popen[bytes] | None = None
        self._said = bytearray()
        self.hello = self._begun()

    def make_ready(self) -> None:
        """Starts it again where it has ended. Errors: those of making one."""
        if self._process is None or self._process.poll() is not None or self._says(select.POLLHUP):
            self._begun()

    def ask(self, document: Mapping[str, Any], read: Callable[[dict[str, Any]], T]) -> T:
        """What `read` makes of the JSON object that it answers.

        One that ended between two questions is started again. Errors: EOFError where the program
        ends instead. TimeoutError where it says nothing in time. AnswerError where the line is no
        JSON object, does not end, or comes before the question is read, and where a line came
        before that nobody asked for. After each the program is ended: the next line could be the
        answer to this question. So it is where `read` raises an AnswerError that received nothing.
        """
        self.make_ready()
        question = json.dumps(document).encode() + b"\n"
        try:
            return self._asked(question, self._setting.reply_seconds, read)
        except _UntouchedError:
            self._begun()
            return self._asked(question, self._setting.reply_seconds, read)

    def close(self) -> None:
        """Ends it and all that it started: its standard input ends, and if that does not help in
        two seconds, it is killed.
        """
        self._end(2.0)

    def _begun(self) -> dict[str, Any]:
        self._end(0.0)
        name = self._words[0]
        try:
            self._process = supervised(self._words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        except OSError as error:
            raise PredictorError(f"{name} cannot be run: {error.strerror}") from None
        for pipe in self._pipes():
            os.set_blocking(pipe.fileno(), False)
        seconds = self._setting.start_seconds
        try:
            return self._asked(self._first, seconds, dict)
        except TimeoutError:
            raise PredictorError(
                f"{name} said nothing to its first line in {seconds:g} s",
                hint="it has to answer each line with a line and flush it; --start-timeout SECONDS "
                "gives it longer to start",
            ) from None
        except EOFError as error:
            raise PredictorError(f"{error} before it answered its first line") from None
        except AnswerError as error:
            raise PredictorError(
                f"{name} did not answer its first line: {error.message}",
                hint="standard output is for answers alone, a JSON object on a line each; print to "
                "standard error what is for people",
            ) from None

    def _asked(self, line: bytes, seconds: float, read: Callable[[dict[str, Any]], T]) -> T:
        try:
            self._refuse_unasked()
            return read(_object(self._exchanged(line, time.monotonic() + seconds)))
        except TimeoutError:
            self._end(0.0)
            raise TimeoutError(f"no answer in {seconds:g} s") from None
        except AnswerError as error:
            if error.received is None:  # what comes next would be taken for the next answer
                self._end(0.0)
            raise

    def _refuse_unasked(self) -> None:
        """AnswerError where it has written something since its last answer."""
        if not self._said and self._says(select.POLLIN):
            self._said += os.read(self._pipes()[1].fileno(), 1 << 16)
        if self._said:
            raise AnswerError(f"it wrote a line that nobody asked for: {_beginning(self._said)}")

    def _says(self, event: int) -> bool:
        """Whether its standard output has something to read, or is at its end."""
        poll = select.poll()
        poll.register(self._pipes()[1], event)
        return any(events & event for _, events in poll.poll(0))

    def _exchanged(self, line: bytes, until: float) -> bytes:
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
                    untouched = len(waiting) + _unread(stdin) == len(line)
                    raise (_UntouchedError if untouched else EOFError)(self._why_silent())
                self._said += said
            elif stdin.fileno() in ready:
                try:
                    waiting = waiting[os.write(stdin.fileno(), waiting) :]
                except BrokenPipeError:  # what waits stays unread
                    poll.unregister(stdin)
                else:
                    if not waiting:
                        poll.unregister(stdin)
        if len(waiting) + _unread(stdin) > 1:  # some read a value and not the end of its line
            raise AnswerError(
                f"it answered before it had read the question: {_beginning(self._said)}"
            )
        answer = bytes(self._said[:end])
        del self._said[: end + 1]
        return answer

    def _why_silent(self) -> str:
        """Why its standard output is at its end; it is ended."""
        process = self._process
        assert process is not None
        with suppress(subprocess.TimeoutExpired):
            process.wait(1.0)
        lives = process.returncode is None
        status = self._end(0.0)
        return f"{self._words[0]} " + (
            "closed its standard output" if lives else f"ended with status {status}"
        )

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


def _object(line: bytes) -> dict[str, Any]:
    try:
        text = line.decode()
    except UnicodeDecodeError:
        raise AnswerError(
            f"no UTF-8: {_beginning(line)}; an output of other bytes is said by output_b64"
        ) from None
    try:
        document = parse_json(text, finite=True)
    except ValueError:
        raise AnswerError(f"no JSON: {_beginning(line)}") from None
    if not isinstance(document, dict):
        raise AnswerError(f"expected a JSON object, got {document!r:.60}")
    return document


def _beginning(said: bytes | bytearray) -> str:
    """The beginning of its first line, for a message."""
    return repr(bytes(said[:320]).partition(b"\n")[0].decode("utf-8", "replace")[:80])


def _unread(pipe: IO[bytes]) -> int:
    """The bytes that lie in a pipe."""
    count = fcntl.ioctl(pipe, termios.FIONREAD, bytes(4))
    return int.from_bytes(count, sys.byteorder)


def installed(name: str, install: Callable[[Path], None]) -> Path:
    """The directory in the cache where something lies that a predictor needs. `install` puts it
    there on first use. One process does so while others wait.

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
