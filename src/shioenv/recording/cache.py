"""Executions shared between records, workers and runs: behaviors by what decides them.

One SQLite file in the user's cache directory. It may be wrong about nothing: whatever is odd about
it is a warning and an execution more.
"""

from __future__ import annotations

import hashlib
import json
import platform
import random
import resource
import sqlite3
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from shioenv.domain.behavior import Behavior
from shioenv.errors import ShioenvError
from shioenv.irreducibility.score import Cache
from shioenv.recording.effort import Effort
from shioenv.sandbox.base import MEBIBYTE, Limits
from shioenv.sandbox.default import lower_layer
from shioenv.system.build import cache_directory

CACHE_BYTES = 512 * MEBIBYTE
"""How large the file grows where nothing else is said: about a million executions (ours)."""

MAX_AGE = 86_400.0
"""Seconds that a stored behavior stands for its input. A program that asks the kernel itself sees
real time; where a system is told the host's, all programs do (D-4). What depends on real time
(`find -mtime`, the year in `ls -l`) need not show it (ours).
"""

CHECKED_SHARE = 0.02
"""Of the behaviors found, those that are executed all the same and compared (ours)."""

LARGEST_VALUE = MEBIBYTE
"""Bytes of the largest behavior that is kept."""

_FILE = "1.sqlite"
_BUSY_SECONDS = 5.0
_PAGE = 4096
_GIVEN_BACK = 1024
"""Pages at most that one write gives back, so that others do not wait long (ours)."""

_REMOVED = 2048
"""Executions at most that one write removes, of an eighth (ours)."""

_CHECKSUM = 16
_SOURCES = ("behavior", "domain", "native", "sandbox")
"""Packages that turn an input into a behavior."""

_TABLE = """
CREATE TABLE IF NOT EXISTS executions
(key BLOB PRIMARY KEY, at REAL NOT NULL, value BLOB NOT NULL)
"""
_BEHAVIOR = msgspec.msgpack.Decoder(Behavior)
_STRUCK = b""
"""Stands for an input that was seen to do different things; it is never removed."""


class ExecutionCache:
    """Behaviors of one system under one set of limits on this host, for any start directory.

    Used by one thread at a time; any number of them, each with one of its own, share the file.
    Nothing that goes wrong with the file is raised: `trouble` says it, and everything after is a
    miss. `use` counts what was asked.
    """

    def __init__(
        self,
        system_digest: str,
        limits: Limits,
        *,
        directory: Path | None = None,
        max_bytes: int = CACHE_BYTES,
        clock: Callable[[], float] = time.time,
        dice: random.Random | None = None,
    ) -> None:
        self.use = Effort()
        self.trouble: str | None = None
        self._max_bytes = max_bytes
        self._clock = clock
        self._dice = dice or random.Random()
        self._salt = b""
        self._file = (directory or cache_directory() / "executions") / _FILE
        self._connection: sqlite3.Connection | None = None
        try:
            about = [system_digest, asdict(limits), executor_digest(), host()]
            self._salt = hashlib.sha256(json.dumps(about).encode()).digest()
            self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._connection = sqlite3.connect(
                self._file, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            _log_ahead(self._connection)
            for pragma in ("synchronous=OFF", "cache_size=-2048"):
                self._connection.execute(f"PRAGMA {pragma}")
            self._connection.execute(_TABLE)
        except (OSError, sqlite3.Error) as error:
            self._give_up(error)

    def of(self, cwd: str) -> Cache:
        """The behaviors of inputs in one start directory, by their text."""
        return _View(self, cwd)

    def close(self) -> None:
        """Closes the file; whatever is asked afterwards is a miss."""
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except sqlite3.Error as error:
                self._give_up(error)

    def get(self, cwd: str, text: str) -> Behavior | None:
        """What the input did, if that is known and need not be checked."""
        if self._connection is None:
            return None
        self.use.asked += 1
        at, behavior = self._read(self._key(cwd, text)) or (0.0, None)
        if behavior is None or self._clock() - at > MAX_AGE:
            return None
        if self._dice.random() < CHECKED_SHARE:
            return None
        self.use.found += 1
        return behavior

    def update(self, cwd: str, behaviors: Mapping[str, Behavior]) -> None:
        """Keeps what was executed. An input that did something else before is struck off."""
        encoded = ((self._key(cwd, text), each, encode(each)) for text, each in behaviors.items())
        kept = [(key, each, value) for key, each, value in encoded if value is not None]
        if not kept or self._connection is None:
            return
        try:
            self._connection.execute("BEGIN IMMEDIATE")  # nobody writes between reading and writing
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_BUSY:
                self._give_up(error)
            return
        rows = self._rows(kept)
        if self._connection is not None:
            self._write(rows)

    def _rows(
        self, kept: Iterable[tuple[bytes, Behavior, bytes]]
    ) -> list[tuple[bytes, float, bytes]]:
        """What is to be written: of an input that did something else before, that it did."""
        rows = []
        now = self._clock()
        for key, behavior, value in kept:
            before = self._read(key)
            if before is not None:
                self.use.checked += 1
                if before[1] is None:
                    continue
                if before[1] != behavior:
                    self.use.differing += 1
                    value = _STRUCK
            rows.append((key, now, _sealed(key, value)))
        return rows

    def _key(self, cwd: str, text: str) -> bytes:
        content = f"{cwd}\0{text}".encode("utf-8", "surrogateescape")
        return hashlib.blake2b(content, digest_size=16, key=self._salt).digest()

    def _read(self, key: bytes) -> tuple[float, Behavior | None] | None:
        """When it was run and what it did (None: different things); None where it is unknown."""
        if self._connection is None:
            return None
        try:
            row = self._connection.execute(
                "SELECT at, value FROM executions WHERE key = ?", (key,)
            ).fetchone()
        except sqlite3.Error as error:
            self._give_up(error)
            return None
        if row is None:
            return None
        at, sealed = row
        value = _opened(key, sealed)
        behavior = decode(value) if value else None
        if not isinstance(at, float) or value is None or (value and behavior is None):
            self._give_up(ValueError("an entry is damaged"))
            return None
        return at, behavior

    def _write(self, rows: list[tuple[bytes, float, bytes]]) -> None:
        """Ends what was begun."""
        assert self._connection is not None
        try:
            self._connection.executemany("REPLACE INTO executions VALUES (?, ?, ?)", rows)
            self._connection.execute("COMMIT")
            self._bound()
        except sqlite3.Error as error:
            self._give_up(error)

    def _bound(self) -> None:
        """Removes what was written first where the file has reached its bound, but what is struck
        off. It gives back what is free above the bound, a little at a time, since all wait.
        """
        assert self._connection is not None
        pages, free = (
            self._connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count")
        )
        if (pages - free) * _PAGE > self._max_bytes:
            self._connection.execute(
                "DELETE FROM executions WHERE rowid IN (SELECT rowid FROM executions "
                "WHERE length(value) > ? ORDER BY rowid "
                "LIMIT min(?, 1 + (SELECT max(rowid) - min(rowid) FROM executions) / 8))",
                (_CHECKSUM + len(_STRUCK), _REMOVED),
            )
        above = pages - self._max_bytes // _PAGE
        if above > 0:  # each step gives one page back, and `execute` takes but one
            given_back = min(above, _GIVEN_BACK)
            self._connection.executescript(f"PRAGMA incremental_vacuum({given_back})")

    def _give_up(self, error: Exception) -> None:
        if self.trouble is None:
            self.trouble = (
                f"executions are not shared: {self._file} cannot be used ({error}); "
                "where it is damaged, remove it"
            )
        self.close()


def _log_ahead(connection: sqlite3.Connection) -> None:
    """Lets one write while others read, and a new file shrink. SQLite asks at once, not patiently,
    for the lock that a new file takes for that, and many lanes open it in the same moment.
    """
    until = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError:
            if time.monotonic() > until:
                raise
            time.sleep(0.01)


class _View:
    """One start directory's part of a cache."""

    def __init__(self, of: ExecutionCache, cwd: str) -> None:
        self._of, self._cwd = of, cwd

    def get(self, text: str, /) -> Behavior | None:
        return self._of.get(self._cwd, text)

    def update(self, behaviors: Mapping[str, Behavior], /) -> None:
        self._of.update(self._cwd, behaviors)


@cache
def executor_digest() -> str:
    """Of everything of this package that decides what a behavior looks like.

    The sources themselves rather than a version that somebody has to count up.
    """
    digest = hashlib.sha256()
    root = Path(__file__).parents[1]
    for package in _SOURCES:
        for path in sorted((root / package).rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                digest.update(f"{path.relative_to(root)}\0".encode())
                digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def host() -> list[Any]:
    """What of this host shows through in behaviors: its kernel, what it shows of
    systems' files, and its bounds on this process.
    """
    names = sorted(name for name in dir(resource) if name.startswith("RLIMIT_"))
    bounds = [resource.getrlimit(getattr(resource, name))[1] for name in names]
    return [platform.release(), platform.version(), platform.machine(), lower_layer(), bounds]


def encode(behavior: Behavior) -> bytes | None:
    """A behavior as it is kept; None where it is too large or would come back as another."""
    try:
        value = zlib.compress(msgspec.msgpack.encode(behavior), 1)
    except (ValueError, OverflowError):
        return None
    if len(value) > LARGEST_VALUE or decode(value) != behavior:
        return None
    return value


def decode(value: bytes) -> Behavior | None:
    """What `encode` kept; None for anything else."""
    try:
        return _BEHAVIOR.decode(zlib.decompress(value))
    except (zlib.error, ValueError, ShioenvError):
        return None


def _sealed(key: bytes, value: bytes) -> bytes:
    return hashlib.blake2b(value, digest_size=_CHECKSUM, key=key).digest() + value


def _opened(key: bytes, sealed: object) -> bytes | None:
    """The value of an entry; None where it is not what was written under this key."""
    if not isinstance(sealed, bytes):
        return None
    value = sealed[_CHECKSUM:]
    return value if _sealed(key, value) == sealed else None
