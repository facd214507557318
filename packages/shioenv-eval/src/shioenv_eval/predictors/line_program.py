"""Line-based programs: one line in, one line out, and their installation directory."""

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
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, TypeVar

from shioenv.domain.predictor import Setting
from shioenv.errors import AnswerError, HostError, PredictorError
from shioenv.execution.supervised import ended, supervised
from shioenv.files.documents import parse_json
from shioenv.files.durable import cache_directory, locked

T = TypeVar("T")

LONGEST_ANSWER = 8 << 20
"""Maximum length in bytes of an answer line: a hundred times the longest output."""


class _UntouchedError(EOFError):
    """The program ended without reading any of the question."""


class LineProcess:
    """A long-running program that is restarted if it has ended before the next question.

    `first` is the first line sent to the program; its answer, a JSON object, is `hello`. Errors:
    PredictorError if the program cannot be run, or does not answer the first line with a JSON
    object in `start_seconds`.
    """

    def __init__(self, words: Sequence[str], first: Mapping[str, Any], setting: Setting) -> None:
        self._words, self._setting = list(words), setting
        self._first = json.dumps(first).encode() + b"\n"
        self._process: subprocess.Popen[bytes] | None = None
        self._said = bytearray()
        self.hello = self._start()

    def make_ready(self) -> None:
        """Restart the program if it has ended. Errors: PredictorError, as for the first start."""
        if (
            self._process is None
            or self._process.poll() is not None
            or self._has_event(select.POLLHUP)
        ):
            self._start()

    def ask(self, document: Mapping[str, Any], read: Callable[[dict[str, Any]], T]) -> T:
        """Send a question and return the answer, a JSON object, converted by `read`.

        A program that ended between two questions is restarted first. Errors: those of `make_ready`
        and of `read`. EOFError if the program ends instead of answering. TimeoutError if it does
        not answer in time. AnswerError if the line is not a JSON object, does not end, or arrives
        before the program has read the question. AnswerError for an unsolicited line before the
        question. A second answer that arrives after the next question was read is mistaken for that
        question's answer.

        After each of these errors the program is ended, since its next line could belong to this
        question. It is also ended if `read` raises an AnswerError without a received part.
        """
        self.make_ready()
        question = json.dumps(document).encode() + b"\n"
        try:
            return self._ask(question, self._setting.reply_seconds, read)
        except _UntouchedError:
            self._start()
            return self._ask(question, self._setting.reply_seconds, read)

    def close(self) -> None:
        """End the program and all that it started.

        Its standard input is closed. If it is still running two seconds later, it is killed.
        """
        self._end(2.0)

    def _start(self) -> dict[str, Any]:
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
            return self._ask(self._first, seconds, dict)
        except TimeoutError:
            raise PredictorError(
                f"{name} did not answer its first line within {seconds:g} s",
                hint="it must answer each line with one line, and flush it; if it starts slowly, "
                "use a longer --start-timeout SECONDS",
            ) from None
        except EOFError as error:
            raise PredictorError(f"{error} before it answered its first line") from None
        except AnswerError as error:
            raise PredictorError(
                f"{name} did not answer its first line: {error.message}",
                hint="standard output must contain only answers, one JSON object per line; print "
                "other messages to standard error",
            ) from None

    def _ask(self, line: bytes, seconds: float, read: Callable[[dict[str, Any]], T]) -> T:
        try:
            self._refuse_unasked()
            return read(_object(self._exchanged(line, time.monotonic() + seconds)))
        except TimeoutError:
            self._end(0.0)
            raise TimeoutError(f"no answer within {seconds:g} s") from None
        except AnswerError as error:
            if error.received is None:  # its next line would be mistaken for the next answer
                self._end(0.0)
            raise

    def _refuse_unasked(self) -> None:
        """Raise AnswerError if the program has written something since its last answer."""
        if not self._said and self._has_event(select.POLLIN):
            self._said += os.read(self._pipes()[1].fileno(), 1 << 16)
        if self._said:
            raise AnswerError(f"it printed a line without a question: {_beginning(self._said)}")

    def _has_event(self, event: int) -> bool:
        """Whether the program's standard output has an event: readable data, or its end."""
        poll = select.poll()
        poll.register(self._pipes()[1], event)
        return any(events & event for _, events in poll.poll(0))

    def _exchanged(self, line: bytes, until: float) -> bytes:
        """Send a line and return the answer line; reading and writing are interleaved."""
        stdin, stdout = self._pipes()
        waiting = memoryview(line)
        poll = select.poll()
        poll.register(stdout, select.POLLIN)
        poll.register(stdin, select.POLLOUT)
        while (end := self._said.find(b"\n")) < 0:
            if len(self._said) > LONGEST_ANSWER:
                raise AnswerError(
                    f"the answer exceeds {LONGEST_ANSWER >> 20} MiB without a newline"
                )
            left = until - time.monotonic()
            # the timer has a maximum, so wait for at most a day at a time
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
                except BrokenPipeError:  # the rest remains unread
                    poll.unregister(stdin)
                else:
                    if not waiting:
                        poll.unregister(stdin)
        if len(waiting) + _unread(stdin) > 1:  # some programs read a value and leave its newline
            raise AnswerError(f"it answered before reading the question: {_beginning(self._said)}")
        answer = bytes(self._said[:end])
        del self._said[: end + 1]
        return answer

    def _why_silent(self) -> str:
        """Return the reason why the program's standard output ended; the program is terminated."""
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
        """End the program and return its status; None if none was running."""
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
            f"not UTF-8: {_beginning(line)}; use output_b64 for an output of other bytes"
        ) from None
    try:
        document = parse_json(text, finite=True)
    except ValueError:
        raise AnswerError(f"not JSON: {_beginning(line)}") from None
    if not isinstance(document, dict):
        raise AnswerError(f"expected a JSON object, got {document!r:.60}")
    return document


def _beginning(said: bytes | bytearray) -> str:
    """Return the beginning of a program's first line, for a message."""
    return repr(bytes(said[:320]).partition(b"\n")[0].decode("utf-8", "replace")[:80])


def _unread(pipe: IO[bytes]) -> int:
    """Return the number of unread bytes in a pipe."""
    count = fcntl.ioctl(pipe, termios.FIONREAD, bytes(4))
    return int.from_bytes(count, sys.byteorder)


def installed(name: str, install: Callable[[Path], None]) -> Path:
    """Return a predictor's directory in the cache, installed on first use.

    `install` fills the given directory. One process installs while others wait. Errors: those of
    `install`; partial installations are removed.
    """
    directory = cache_directory() / "predictors" / name
    directory.parent.mkdir(parents=True, exist_ok=True)
    with locked(directory.parent, wait=True):
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


def run_installer(words: Sequence[str | Path], what: str, **how: Any) -> str:
    """Run a program that installs `what` and return its standard output.

    `how` is passed to `subprocess.run`. Errors: HostError, with the last line of output, if the
    program is missing or fails.
    """
    try:
        done: subprocess.CompletedProcess[str] = subprocess.run(
            [str(word) for word in words], capture_output=True, text=True, check=False, **how
        )
    except OSError as error:
        raise HostError(f"{what} cannot be installed: {words[0]}: {error.strerror}") from None
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise HostError(
            f"{what} cannot be installed: {said[-1] if said else f'exit status {done.returncode}'}"
        )
    return done.stdout
