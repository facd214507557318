"""Predictors of other packages, as pip would install them."""

from __future__ import annotations

from pathlib import Path

import pytest


def install_predictor(
    directory: Path, monkeypatch: pytest.MonkeyPatch, predictor: str, source: str
) -> None:
    """Let this process find a predictor `name:Class`, whose module is `name` with this source."""
    name = predictor.partition(":")[0]
    (directory / f"{name}.py").write_text(source)
    about = directory / f"{name}-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (about / "entry_points.txt").write_text(f"[shioenv.predictors]\n{name} = {predictor}\n")
    monkeypatch.syspath_prepend(str(directory))
