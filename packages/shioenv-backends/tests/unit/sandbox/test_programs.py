"""The programs of microVMs."""

from __future__ import annotations

from shioenv_backends.microvm.boot import guest_agent, guest_sandbox


def test_they_are_compiled_with_the_package() -> None:
    for path in (guest_agent(), guest_sandbox()):
        assert path.read_bytes().startswith(b"\x7fELF"), path
