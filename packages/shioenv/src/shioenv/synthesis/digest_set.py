"""A set of texts that stores 16 bytes of each, for duplicate detection in long streams."""

from __future__ import annotations

from hashlib import blake2b

_SIZE = 16
"""Bytes of a digest. A billion texts contain a collision with a probability of 1 in 10^21."""

_FULL = 64
"""Maximum average number of digests per bucket."""


class DigestSet:
    """A set of texts, stored as digests.

    A Python set of as many `bytes` takes six times the memory. This is a linear hash table with a
    row of digests per bucket. Buckets are split one by one as the set grows, so that no insertion
    copies the whole set.
    """

    __slots__ = ("_buckets", "_count", "_round")

    def __init__(self) -> None:
        self._buckets = [bytearray()]
        self._count = 0
        self._round = 1
        """The number of buckets at the start of this round of splits; a power of 2."""

    def __len__(self) -> int:
        return self._count

    def add(self, *texts: str) -> bool:
        """Add a sequence of texts without NUL; return whether it was new."""
        whole = "\0".join(texts).encode("utf-8", "surrogatepass")
        digest = blake2b(whole, digest_size=_SIZE).digest()
        bucket = self._buckets[self._place(digest)]
        at = bucket.find(digest)
        while at > 0 and at % _SIZE:  # the match crosses the border of two digests
            at = bucket.find(digest, at + 1)
        if at >= 0:
            return False
        bucket += digest
        self._count += 1
        if self._count > _FULL * len(self._buckets):
            self._split()
        return True

    def _place(self, digest: bytes | bytearray) -> int:
        number = int.from_bytes(digest[:8], "little")
        place = number & (2 * self._round - 1)
        return place if place < len(self._buckets) else place & (self._round - 1)

    def _split(self) -> None:
        """Split the next bucket."""
        old = len(self._buckets) - self._round
        digests, self._buckets[old] = self._buckets[old], bytearray()
        self._buckets.append(bytearray())
        for start in range(0, len(digests), _SIZE):
            digest = digests[start : start + _SIZE]
            self._buckets[self._place(digest)] += digest
        if len(self._buckets) == 2 * self._round:
            self._round *= 2
