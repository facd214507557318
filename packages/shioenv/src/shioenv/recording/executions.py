"""Executions that are used again: within a session, and in memory between sessions."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping

from shioenv.domain.behavior import Behavior
from shioenv.irreducibility.score import Cache

CACHED_BEHAVIORS = 4096
"""Most behaviors kept between sessions; those unused for longest are dropped first."""

CACHED_OUTPUT = 65_536
"""Most bytes of output of a behavior that is kept."""


class SessionExecutions:
    """Behaviors of one session by text, then those that other sessions left.

    The behaviors of other sessions are used while `hold()` is true. It is no longer true once a
    sub-input ran out of time, because the executions of other sessions had more time.
    """

    def __init__(self, others: Cache | None, hold: Callable[[], bool]) -> None:
        self.own: dict[str, Behavior] = {}
        self._others, self._hold = others, hold

    def get(self, text: str, /) -> Behavior | None:
        """The behavior of a text; None where it was not executed."""
        behavior = self.own.get(text)
        if behavior is None and self._others is not None and self._hold():
            behavior = self._others.get(text)
        return behavior

    def update(self, behaviors: Mapping[str, Behavior], /) -> None:
        """Keep behaviors for this session. Which other sessions may use is decided at its end."""
        self.own.update(behaviors)


class MemoryCache:
    """Behaviors by text, in one start directory. `at` gives a view for another start directory.

    All views share one store. The number of its behaviors and their size are bounded, because an
    environment may live for millions of episodes. `hits` counts the answers of one view. Several
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
        """A view of the same store for a start directory, with no hits yet."""
        return MemoryCache(cwd, self._store, self._capacity, self._lock)

    def get(self, text: str, /) -> Behavior | None:
        """The behavior of a text; None where it is not kept, or not any more."""
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
