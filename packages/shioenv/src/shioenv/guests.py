"""Entry points of guests (packages that extend this one), and this package's version."""

from __future__ import annotations

from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from typing import Any

from shioenv.errors import missing_guest


def installed_points(group: str) -> dict[str, EntryPoint]:
    """Return the installed entry points of a group by name.

    If several packages use the same name, a package of this project takes precedence.
    """
    points = sorted(entry_points(group=group), key=lambda one: one.value.startswith("shioenv"))
    return {point.name: point for point in points}


def find_guest(group: str, name: str) -> Any | None:
    """Load an entry point by group and name; None if no installed package provides it."""
    point = installed_points(group).get(name)
    return None if point is None else point.load()


def load_guest(group: str, name: str, *, feature: str, extra: str) -> Any:
    """Load an entry point by group and name, for a feature such as `--engine ray`.

    Errors: MissingExtraError if no installed package provides it. The message contains the command
    that installs `shioenv-EXTRA`.
    """
    found = find_guest(group, name)
    if found is None:
        raise missing_guest(feature, extra)
    return found


def package_version() -> str:
    """Return the package's version; `unknown` if it is not installed."""
    try:
        return version("shioenv")
    except PackageNotFoundError:
        return "unknown"
