"""Models come from another package, which the core finds by an entry point."""

from __future__ import annotations

from pathlib import Path

import pytest

import shioenv
from shioenv.errors import MissingExtraError
from shioenv.live.answerer import Answerer
from shioenv_model.files import write_card
from shioenv_model.model import Model
from support.small_world import small_memory


def test_the_installed_package_for_models_loads_them(tmp_path: Path) -> None:
    memory = small_memory(tmp_path)
    write_card(tmp_path, {"name": "small", "system": "debian-12"})
    model = shioenv.load_model(tmp_path, abstain_below=0.5)
    same: Answerer = Model(memory, {"name": "small"}, abstain_below=0.5)
    assert (model.version, model.system) == (same.version, "debian-12")
    assert model.run("cat a.txt") == same.run("cat a.txt")


def test_without_such_a_package_one_line_tells_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shioenv.guests.entry_points", lambda group: ())
    with pytest.raises(MissingExtraError, match="a model needs shioenv-model, which is") as caught:
        shioenv.load_model()
    assert (caught.value.hint or "").endswith("'shioenv[model]'")
