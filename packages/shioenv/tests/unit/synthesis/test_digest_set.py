"""A set of texts, stored as digests, behaves as a set, and is small."""

from __future__ import annotations

import tracemalloc
from random import Random

import pytest

from shioenv.synthesis import stream
from shioenv.synthesis.stream import DigestSet


def test_a_text_is_new_once() -> None:
    kept, known = DigestSet(), set[tuple[str, str]]()
    random = Random(1)
    for _ in range(20_000):
        pair = (random.choice(("/a", "/b")), str(random.randrange(6000)))
        assert kept.add(*pair) == (pair not in known)
        known.add(pair)
        assert len(kept) == len(known)


def test_texts_are_not_run_together() -> None:
    kept = DigestSet()
    pairs = [("a", "b"), ("ab",), ("", "ab"), ("ab", ""), ("a", "", "b"), ("\udc80",), ("é",)]
    assert all(kept.add(*pair) for pair in pairs)
    assert not any(kept.add(*pair) for pair in pairs)


def test_a_digest_across_two_others_is_not_in_the_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bucket is searched as one row of bytes."""

    class Chosen:
        def __init__(self, data: bytes, *, digest_size: int) -> None:
            self.data = data

        def digest(self) -> bytes:
            return self.data

    monkeypatch.setattr(stream, "blake2b", Chosen)
    kept = DigestSet()
    assert kept.add("0123456789abcdef")
    assert kept.add("ABCDEFGHIJKLMNOP")
    assert kept.add("89abcdefABCDEFGH")
    assert not kept.add("89abcdefABCDEFGH")
    assert len(kept) == 3


def test_it_keeps_less_than_32_bytes_a_text() -> None:
    tracemalloc.start()
    try:
        kept = DigestSet()
        for number in range(30_000):
            kept.add("/home/ubuntu", f"a text of some length, number {number}")
        size, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size / len(kept) < 32
    assert most / len(kept) < 32
