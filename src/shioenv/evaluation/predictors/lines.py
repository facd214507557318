"""Programs that are asked by a line and answer by a line, and where they are installed."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from shioenv.errors import HostError, PredictorError
from shioenv.system.build import cache_directory


class LineProcess:
    """A program that runs until it is closed; one that ended is started again when it is asked.

    `first` is what it is told before anything else; its answer to that is `hello`. Errors:
    PredictorError where it cannot be run.
    """

    def __init__(self, words: Sequence[str], first: Mapping[str, Any]) -> None:
        self._words, self._first = list(words), dict(first)
        self._process: subprocess.Popen[str] | None = None
        self.hello = self._begun()

    def ask(self, document: Mapping[str, Any]) -> str:
        """What it answers. Errors: EOFError where it ends instead."""
        if self._process is None or self._process.poll() is not None:
            self._begun()
        return self._asked(document)

    def close(self) -> None:
        """Ends it: its standard input ends, and if that does not help, it is killed."""
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(OSError, ValueError, subprocess.TimeoutExpired):
            process.communicate(timeout=2)
        if process.poll() is None:
            process.kill()
            process.wait()

    def _begun(self) -> str:
        self.close()
        try:
            self._process = subprocess.Popen(
                self._words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                encoding="utf-8",
                errors="surrogateescape",
            )
        except OSError as error:
            raise PredictorError(f"{self._words[0]} cannot be run: {error.strerror}") from None
        return self._asked(self._first)

    def _asked(self, document: Mapping[str, Any]) -> str:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):
            process.stdin.write(json.dumps(document) + "\n")
            process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            raise EOFError(f"{self._words[0]} ended with status {process.wait()}")
        return line


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
