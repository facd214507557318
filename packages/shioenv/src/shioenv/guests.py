"""Installed packages: guests that extend this one by entry points, this one's own version.

A guest is a package such as `shioenv-backends`.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from typing import Any

from shioenv.errors import missing_guest


def installed_points(group: str) -> dict[str, EntryPoint]:
    """Return the installed entry points of a group by name.

    If several packages use one name, the entry point of this project's package is returned.
    """
    points = sorted(entry_points(group=group), key=lambda one: one.value.startswith("shioenv"))
    return {point.name: point for point in points}


def find_guest(group: str, name: str) -> Any | None:
    """Load the entry point of a group and a name; None where no installed package has one."""
    point = installed_points(group).get(name)
    return None if point is None else point.load()


def load_guest(group: str, name: str, *, feature: str, extra: str) -> Any:
    """Load the entry point of a group and a name, for a feature such as `--engine ray`.

    Errors: MissingExtraError where no installed package has the entry point. The message has the
    command that installs `shioenv-EXTRA`.
    """
    found = find_guest(group, name)
    if found is None:
        raise missing_guest(feature, extra)
    return found


def package_version() -> str:
    """The package's version; `unknown` where the package was never installed."""
    try:
        return version("shioenv")
    except PackageNotFoundError:
        return "unknown"
