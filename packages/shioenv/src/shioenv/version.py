"""The version of this package."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def package_version() -> str:
    """The package's version; `unknown` where the package was never installed."""
    try:
        return version("shioenv")
    except PackageNotFoundError:
        return "unknown"
