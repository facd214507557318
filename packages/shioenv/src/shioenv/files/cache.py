"""Where what can be made again is kept on this machine."""

from __future__ import annotations

import os
from pathlib import Path


def cache_directory() -> Path:
    """`$SHIOENV_CACHE`, else `shioenv` in `$XDG_CACHE_HOME`, else in `~/.cache`. May not exist."""
    if chosen := os.environ.get("SHIOENV_CACHE"):
        return Path(chosen).absolute()
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base).absolute() / "shioenv"
    return Path.home() / ".cache" / "shioenv"
