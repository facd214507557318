"""A set of texts that keeps 16 bytes of each: what a long stream has drawn already."""

from __future__ import annotations

from hashlib import blake2b

_SIZE = 16
"""Bytes of a digest. Two of a billion texts have the same one with a probability of 1 to 10^21."""

_FULL = 64
"""Digests of one bucket on average, at most."""


class DigestSet:
    """The texts added so far, by their digests.

    A Python set of as many `bytes` takes six times the memory. The table is a linear hash table,
    and a bucket is a row of digests. Buckets are split one by one as the set grows, so that no
    addition copies the whole set.
    """

    __slots__ = ("_buckets", "_count", "_round")

    def __init__(self) -> None:
        self._buckets = [bytearray()]
        self._count = 0
        self._round = 1
        """The buckets there were when they were last split all; a power of 2."""

    def __len__(self) -> int:
        return self._count

    def add(self, *texts: str) -> bool:
        """Add a sequence of texts without NUL. Whether the set did not have it."""
        whole = "\0".join(texts).encode("utf-8", "surrogatepass")
        digest = blake2b(whole, digest_size=_SIZE).digest()
        bucket = self._buckets[self._place(digest)]
        at = bucket.find(digest)
        while at > 0 and at % _SIZE:  # found across the border of two digests
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
        """Divide the next bucket in two."""
        old = len(self._buckets) - self._round
        digests, self._buckets[old] = self._buckets[old], bytearray()
        self._buckets.append(bytearray())
        for start in range(0, len(digests), _SIZE):
            digest = digests[start : start + _SIZE]
            self._buckets[self._place(digest)] += digest
        if len(self._buckets) == 2 * self._round:
            self._round *= 2
