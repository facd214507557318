"""Formats of `shioenv dataset import` that other packages add.

Each is an entry point of the group `shioenv.importers`, with the format's name.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from shioenv.dataset.input_lines import Rejection
from shioenv.dataset.records import KINDS
from shioenv.errors import UsageError, did_you_mean, missing_guest
from shioenv.guests import find_guest

GROUP = "shioenv.importers"


class Imported(Protocol):
    """The result of an import."""

    @property
    def rejected(self) -> tuple[Rejection, ...]:
        """Return the lines that were left out."""
        ...

    def to_json(self) -> dict[str, Any]:
        """Return the import as JSON for programs."""
        ...

    def rows(self) -> dict[str, str]:
        """Return labels and texts for people."""
        ...


class Importer(Protocol):
    """Creates a dataset in `directory` from the files at `source`.

    `sampler` is the sampler's name in the records. `report` is called with the number of lines
    read.
    """

    def __call__(
        self, source: Path, directory: Path, *, sampler: str, report: Callable[[int], None]
    ) -> Imported:
        """Make the dataset."""
        ...


def find_importer(name: str) -> Importer:
    """Return the importer of a format.

    Errors: UsageError for an unknown format. MissingExtraError if its package is not installed.
    """
    importer: Importer | None = find_guest(GROUP, name)
    if importer is not None:
        return importer
    if name == "released":
        raise missing_guest(f"shioenv dataset import --format {name}", "paper")
    raise UsageError(f"unknown format {name!r}", hint=did_you_mean(name, KINDS))
