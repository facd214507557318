"""The C programs that run in a microVM, which are compiled when the package is built."""

from __future__ import annotations

from pathlib import Path

from shioenv import native


def guest_agent() -> Path:
    """Process 1 of a microVM."""
    return native.built(native.PROGRAMS, "shioenv-guest")


def guest_sandbox() -> Path:
    """The supervisor of a sandbox in a microVM."""
    return native.built(native.PROGRAMS, "shioenv-guest-sandbox")
