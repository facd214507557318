"""The pristine network is the one on which two readings agree."""

from __future__ import annotations

from threading import RLock

import pytest

from shioenv.behavior.observe import SandboxRunner
from shioenv.errors import SandboxError


class Reader:
    """A fake sandbox whose readings are damaged by a killed process."""

    def __init__(self, *readings: bytes) -> None:
        self._readings = list(readings)

    def network(self) -> bytes:
        return self._readings.pop(0)


def read(*readings: bytes) -> bytes:
    observer = object.__new__(SandboxRunner)
    observer._network, observer._lock = None, RLock()
    observer._sandbox = Reader(*readings)  # type: ignore[assignment]
    return observer._pristine_network()


def test_a_spoiled_reading_is_not_taken_for_the_network() -> None:
    assert read(b"whole", b"whole") == b"whole"
    assert read(b"", b"whole", b"whole") == b"whole"
    assert read(b"whole", b"half", b"whole", b"whole") == b"whole"
    with pytest.raises(SandboxError, match="keeps changing"):
        read(*(str(number).encode() for number in range(9)))
