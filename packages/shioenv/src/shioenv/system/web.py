"""The small web site that a system's gateway serves (ours: something for curl and wget)."""

from __future__ import annotations

from importlib.resources.abc import Traversable

from shioenv.system.declare import SystemDeclaration, systems_directory
from shioenv.system.home_files import HomeEntry

_ARCHIVE = "archives/backup.tar.gz"
"""The file of the home tree that the site offers as `files/archive.tar.gz`."""


def web_files(declaration: SystemDeclaration, home: tuple[HomeEntry, ...]) -> dict[str, bytes]:
    """Contents by path; every page ships with the package, the archive is the home tree's own."""
    files: dict[str, bytes] = {}

    def add(directory: Traversable, prefix: str) -> None:
        for page in sorted(directory.iterdir(), key=lambda page: page.name):
            if page.is_dir():
                add(page, f"{prefix}{page.name}/")
            else:
                files[prefix + page.name] = page.read_bytes()

    add(systems_directory().joinpath("web"), "")
    for entry in home:
        if entry.path == _ARCHIVE:
            files["files/archive.tar.gz"] = entry.data
    return files
