"""The version of this package."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def package_version() -> str:
    """Of this package; `unknown` where it runs from a directory that was never installed."""
    try:
        return version("shioenv")
    except PackageNotFoundError:
        return "unknown"
