"""Execution caches that records, workers and runs share, keyed by everything a behavior depends on.

`SessionExecutions` and `MemoryCache` hold behaviors in memory. The behaviors of an `ExecutionCache`
are in one SQLite file in the user's cache directory. A wrong behavior must never be read from the
file. So if anything is wrong with the file, there is a warning, and inputs are executed.
"""

from __future__ import annotations

import hashlib
import json
import platform
import random
import resource
import sqlite3
import threading
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from shioenv.domain.behavior import Behavior
from shioenv.errors import ShioenvError
from shioenv.files.durable import cache_directory
from shioenv.irreducibility.score import Cache
from shioenv.protocols import EXECUTION
from shioenv.recording.effort import Effort
from shioenv.sandbox.backends import lower_layer
from shioenv.sandbox.base import MEBIBYTE, Limits

CACHE_BYTES = 512 * MEBIBYTE
"""Default limit on the file's size in bytes: about a million executions (our choice)."""

MAX_AGE = 86_400.0
"""Maximum age in seconds of a stored behavior (our choice). Some behaviors depend on real time
without showing it (`find -mtime`, the year in `ls -l`). Programs that ask the kernel directly see
real time, and in a system with the host's time all programs do (D-4)."""

CHECKED_SHARE = 0.02
"""Share of the cache hits for which the input is executed nevertheless and compared (our
choice)."""

LARGEST_VALUE = MEBIBYTE
"""Maximum compressed size in bytes of a stored behavior."""

_FILE = "1.sqlite"
_BUSY_SECONDS = 5.0
_PAGE = 4096
_GIVEN_BACK = 1024
"""Maximum number of free pages that one write releases, to keep the lock short (our choice)."""

_REMOVED = 2048
"""Maximum number of executions that one write removes (our choice). If an eighth of all executions
is less, it removes that many."""

_CHECKSUM = 16
_TABLE = """
CREATE TABLE IF NOT EXISTS executions
(key BLOB PRIMARY KEY, at REAL NOT NULL, value BLOB NOT NULL)
"""
_BEHAVIOR = msgspec.msgpack.Decoder(Behavior)
_STRUCK = b""
"""The value that permanently replaces the behavior of an input that once behaved differently."""


class ExecutionCache:
    """Behaviors on one system with one set of limits on this host, for any start directory.

    Only one thread at a time may use a cache object. Any number of threads, each with its own
    object, can share the file. Errors of the file are not raised: `trouble` describes them, and
    every later lookup is a miss. `use` counts lookups, hits and comparisons.
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
            about = [system_digest, asdict(limits), EXECUTION, host()]
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
        """Return the behaviors of inputs in one start directory, by the text of the input."""
        return _View(self, cwd)

    def close(self) -> None:
        """Close the file; every later lookup is a miss."""
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except sqlite3.Error as error:
                self._give_up(error)

    def get(self, cwd: str, text: str) -> Behavior | None:
        """Return an input's behavior; None if it is unknown, too old, or selected for a check.

        A behavior from the future counts as too old, because the host's clock must have been set
        back.
        """
        if self._connection is None:
            return None
        self.use.asked += 1
        at, behavior = self._read(self._key(cwd, text)) or (0.0, None)
        if behavior is None or not 0 <= self._clock() - at <= MAX_AGE:
            return None
        if self._dice.random() < CHECKED_SHARE:
            return None
        self.use.found += 1
        return behavior

    def update(self, cwd: str, behaviors: Mapping[str, Behavior]) -> None:
        """Store executed behaviors. If an input behaved differently before, it is disabled.

        Nothing is stored while the file stays locked for too long.
        """
        encoded = ((self._key(cwd, text), each, encode(each)) for text, each in behaviors.items())
        kept = [(key, each, value) for key, each, value in encoded if value is not None]
        if not kept or self._connection is None:
            return
        try:
            self._connection.execute("BEGIN IMMEDIATE")  # locks out other writers
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
        """Return the rows to write.

        An input that behaved differently before gets a disabling row.
        """
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
        """Return the time and behavior of an input (None: disabled); None for an unknown input."""
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
        """Write the rows and end the transaction of `update`."""
        assert self._connection is not None
        try:
            self._connection.executemany("REPLACE INTO executions VALUES (?, ?, ?)", rows)
            self._connection.execute("COMMIT")
            self._bound()
        except sqlite3.Error as error:
            self._give_up(error)

    def _bound(self) -> None:
        """Remove the oldest entries if the file has reached its limit.

        Entries of disabled inputs stay. Free pages above the limit are released, a few at a time,
        because other writers wait meanwhile.
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
        if above > 0:  # a step frees one page, and `execute` makes only one step
            given_back = min(above, _GIVEN_BACK)
            self._connection.executescript(f"PRAGMA incremental_vacuum({given_back})")

    def _give_up(self, error: Exception) -> None:
        if self.trouble is None:
            self.trouble = (
                f"continuing without the cache {self._file}: {error}; if the file is damaged, "
                "remove it"
            )
        self.close()


def _log_ahead(connection: sqlite3.Connection) -> None:
    """Allow reading the file while another connection writes, and let a new file shrink.

    This locks a new file. SQLite does not wait for such a lock, and many workers open the file at
    the same moment. So the attempt is repeated for up to `_BUSY_SECONDS`.
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
    """A view of a cache for one start directory."""

    def __init__(self, of: ExecutionCache, cwd: str) -> None:
        self._of, self._cwd = of, cwd

    def get(self, text: str, /) -> Behavior | None:
        return self._of.get(self._cwd, text)

    def update(self, behaviors: Mapping[str, Behavior], /) -> None:
        self._of.update(self._cwd, behaviors)


@cache
def sources_digest(*names: str) -> str:
    """Return the SHA-256 (hex) of the source of modules and packages, given by their dotted names.

    Errors: ModuleNotFoundError.
    """
    digest = hashlib.sha256()
    for name in names:
        spec = find_spec(name)
        if spec is None:
            raise ModuleNotFoundError(f"no module named {name}", name=name)
        places = map(Path, spec.submodule_search_locations or [str(spec.origin)])
        for place in places:
            for path in sorted(place.rglob("*")) if place.is_dir() else [place]:
                if path.is_file() and path.suffix != ".pyc":
                    digest.update(f"{name} {path.relative_to(place)}\0".encode())
                    digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def host() -> list[Any]:
    """Return the properties of this host on which behaviors may depend.

    These are the host's kernel, the location of systems' files, and the hard limits of this
    process.
    """
    names = sorted(name for name in dir(resource) if name.startswith("RLIMIT_"))
    bounds = [resource.getrlimit(getattr(resource, name))[1] for name in names]
    return [platform.release(), platform.version(), platform.machine(), lower_layer(), bounds]


def encode(behavior: Behavior) -> bytes | None:
    """Encode a behavior; None if it is too large, or if `decode` would not restore it."""
    try:
        value = zlib.compress(msgspec.msgpack.encode(behavior), 1)
    except (ValueError, OverflowError):
        return None
    if len(value) > LARGEST_VALUE or decode(value) != behavior:
        return None
    return value


def decode(value: bytes) -> Behavior | None:
    """Decode the bytes of `encode`; None for other bytes."""
    try:
        return _BEHAVIOR.decode(zlib.decompress(value))
    except (zlib.error, ValueError, ShioenvError):
        return None


def _sealed(key: bytes, value: bytes) -> bytes:
    return hashlib.blake2b(value, digest_size=_CHECKSUM, key=key).digest() + value


def _opened(key: bytes, sealed: object) -> bytes | None:
    """Return an entry's value; None if it is not what was written under this key."""
    if not isinstance(sealed, bytes):
        return None
    value = sealed[_CHECKSUM:]
    return value if _sealed(key, value) == sealed else None


CACHED_BEHAVIORS = 4096
"""Maximum number of behaviors kept between sessions; the least recently used are dropped first."""

CACHED_OUTPUT = 65_536
"""Maximum size in bytes of the output of a behavior that is kept."""


class SessionExecutions:
    """Behaviors of one session by text, with those of other sessions as fallback.

    The behaviors of other sessions are used while `hold()` is true. `hold()` becomes false once a
    sub-input timed out: from then on, sub-inputs get less time than in other sessions.
    """

    def __init__(self, others: Cache | None, hold: Callable[[], bool]) -> None:
        self.own: dict[str, Behavior] = {}
        self._others, self._hold = others, hold

    def get(self, text: str, /) -> Behavior | None:
        """Return the behavior of a text; None if it was not executed."""
        behavior = self.own.get(text)
        if behavior is None and self._others is not None and self._hold():
            behavior = self._others.get(text)
        return behavior

    def update(self, behaviors: Mapping[str, Behavior], /) -> None:
        """Keep behaviors for this session. At its end they may be shared with other sessions."""
        self.own.update(behaviors)


class MemoryCache:
    """Behaviors by text, in one start directory. `at` returns a view for another start directory.

    All views share one store. The number of its behaviors and their size are limited, because an
    environment may live for millions of episodes. `hits` counts the hits of one view. Several
    threads may use views of one store.
    """

    def __init__(
        self,
        cwd: str = "",
        store: OrderedDict[tuple[str, str], Behavior] | None = None,
        capacity: int = CACHED_BEHAVIORS,
        lock: threading.Lock | None = None,
    ) -> None:
        self.hits = 0
        self._cwd, self._capacity = cwd, capacity
        self._store = OrderedDict[tuple[str, str], Behavior]() if store is None else store
        self._lock = threading.Lock() if lock is None else lock

    def at(self, cwd: str) -> MemoryCache:
        """Return a view of the same store for a start directory, with no hits yet."""
        return MemoryCache(cwd, self._store, self._capacity, self._lock)

    def get(self, text: str, /) -> Behavior | None:
        """Return the behavior of a text; None if it is not kept."""
        with self._lock:
            behavior = self._store.get((self._cwd, text))
            if behavior is not None:
                self._store.move_to_end((self._cwd, text))
                self.hits += 1
        return behavior

    def update(self, behaviors: Mapping[str, Behavior], /) -> None:
        """Keep the behaviors whose output is not too large."""
        with self._lock:
            for text, behavior in behaviors.items():
                if len(behavior.output) <= CACHED_OUTPUT:
                    self._store[self._cwd, text] = behavior
                    self._store.move_to_end((self._cwd, text))
            while len(self._store) > self._capacity:
                self._store.popitem(last=False)
