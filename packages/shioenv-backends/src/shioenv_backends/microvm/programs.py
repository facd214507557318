"""The C programs that run in a microVM, which are compiled when the package is built."""

from __future__ import annotations

from pathlib import Path

from shioenv.native import built

_PROGRAMS = Path(__file__).parents[1] / "native" / "bin"


def guest_agent() -> Path:
    """Process 1 of a microVM. Errors: HostError where it is missing."""
    return built(_PROGRAMS, "shioenv-guest", "shioenv-backends")


def guest_sandbox() -> Path:
    """The supervisor of a sandbox in a microVM. Errors: HostError where it is missing."""
    return built(_PROGRAMS, "shioenv-guest-sandbox", "shioenv-backends")
