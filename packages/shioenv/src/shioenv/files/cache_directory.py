"""The cache directory of this user, for files that can be built again."""

from __future__ import annotations

import os
from pathlib import Path


def cache_directory() -> Path:
    """Return `$SHIOENV_CACHE`, else `shioenv` in `$XDG_CACHE_HOME` or `~/.cache`. May not exist."""
    if chosen := os.environ.get("SHIOENV_CACHE"):
        return Path(chosen).absolute()
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base).absolute() / "shioenv"
    return Path.home() / ".cache" / "shioenv"
