"""Guests: packages that extend this one by entry points, such as `shioenv-backends`."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

from shioenv.errors import missing_guest


def find_guest(group: str, name: str) -> Any | None:
    """Load the entry point of a group and a name; None where no installed package has one."""
    for point in entry_points(group=group, name=name):
        return point.load()
    return None


def load_guest(group: str, name: str, *, feature: str, extra: str) -> Any:
    """Load the entry point of a group and a name, for a feature such as `--engine ray`.

    Errors: MissingExtraError where no installed package has the entry point. The message has the
    command that installs `shioenv-EXTRA`.
    """
    found = find_guest(group, name)
    if found is None:
        raise missing_guest(feature, extra)
    return found
