"""Named, independent random generators from one root seed."""

from __future__ import annotations

import hashlib
import random


def generator(seed: int, *names: str | int) -> random.Random:
    """Return a generator that depends only on `seed` and `names`.

    Generators with different names are independent. Each is seeded with the SHA-256 of the seed
    and all names, so a new generator never changes the numbers of an existing one. Results are the
    same in all processes and Python versions, as for any `random.Random` seeded with an integer.
    """
    path = "\x1f".join([str(seed), *(f"{type(name).__name__}:{name}" for name in names)])
    return random.Random(int.from_bytes(hashlib.sha256(path.encode()).digest(), "big"))
