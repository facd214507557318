"""One root seed split into named, independent generators."""

from __future__ import annotations

import hashlib
import random


def generator(seed: int, *names: str | int) -> random.Random:
    """A generator that depends on `seed` and `names` alone.

    Streams with different names are independent. Each is seeded with SHA-256 of the whole path, so
    a new consumer never shifts the numbers that an existing consumer draws. Deterministic across
    processes and Python versions (`random.Random` seeded with an integer is).
    """
    path = "\x1f".join([str(seed), *(f"{type(name).__name__}:{name}" for name in names)])
    return random.Random(int.from_bytes(hashlib.sha256(path.encode()).digest(), "big"))
