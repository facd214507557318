"""Executions that stand for others: within a session, and in memory between sessions."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping

from shioenv.domain.behavior import Behavior
from shioenv.irreducibility.score import Cache

CACHED_BEHAVIORS = 4096
"""Behaviors kept between sessions, the longest unused are dropped first."""

CACHED_OUTPUT = 65_536
"""Bytes of output above which a behavior is not kept."""


class SessionExecutions:
    """Behaviors of one session by text, and behind them those that other sessions left, while they
    `hold`. They do not hold once a sub-input ran out of time, since others had more of it.
    """

    def __init__(self, others: Cache | None, hold: Callable[[], bool]) -> None:
        self.own: dict[str, Behavior] = {}
        self._others, self._hold = others, hold

    def get(self, text: str, /) -> Behavior | None:
        """What the text did, if it was executed."""
        behavior = self.own.get(text)
        if behavior is None and self._others is not None and self._hold():
            behavior = self._others.get(text)
        return behavior

    def update(self, behaviors: Mapping[str, Behavior], /) -> None:
        """Keeps them for this session; what is left to others is decided at its end."""
        self.own.update(behaviors)


class MemoryCache:
    """Behaviors by text, in one start directory; `at` gives the same store for another one.

    Bounded in entries and in the size of each, since an environment may live for millions of
    episodes. `hits` counts what this view has answered. Views may be used by several threads.
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
        """The view for a start directory, with no hits yet."""
        return MemoryCache(cwd, self._store, self._capacity, self._lock)

    def get(self, text: str, /) -> Behavior | None:
        """What the text did; None where that is not known any more."""
        with self._lock:
            behavior = self._store.get((self._cwd, text))
            if behavior is not None:
                self._store.move_to_end((self._cwd, text))
                self.hits += 1
        return behavior

    def update(self, behaviors: Mapping[str, Behavior], /) -> None:
        """Keeps those that are not too large."""
        with self._lock:
            for text, behavior in behaviors.items():
                if len(behavior.output) <= CACHED_OUTPUT:
                    self._store[self._cwd, text] = behavior
                    self._store.move_to_end((self._cwd, text))
            while len(self._store) > self._capacity:
                self._store.popitem(last=False)
