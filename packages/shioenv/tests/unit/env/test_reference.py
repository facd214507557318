"""The reference page names every option and every returned field."""

import inspect

import pytest

from shioenv.env.grammar_env import ActionFault as GrammarFault
from shioenv.env.grammar_env import GrammarEnv
from shioenv.env.session_env import EpisodeOptions
from shioenv.env.shio_env import ActionFault, ShIOEnv
from shioenv.env.spaces import ACTION_FIELDS
from shioenv.env.wrappers import ENCODINGS
from shioenv.recording.execution_cache import CACHED_BEHAVIORS
from shioenv.registration import ENTRY_POINTS
from support.paths import ROOT

PAGE = (ROOT / "docs" / "reference" / "environment.md").read_text()
OPTIONS = EpisodeOptions.__optional_keys__ | {
    name
    for made in (ShIOEnv, GrammarEnv)
    for name in inspect.signature(made.__init__).parameters
    if name not in ("self", "options")
}


@pytest.mark.parametrize(
    "name", sorted({*OPTIONS, *ActionFault, *GrammarFault, *ENTRY_POINTS, *ACTION_FIELDS})
)
def test_reference_names(name: str) -> None:
    assert f"`{name}`" in PAGE


def test_reference_shows_the_defaults() -> None:
    rows = dict(line.split("|")[1:3] for line in PAGE.splitlines() if line.startswith("| `"))
    shown = {name.strip(" `"): default.strip() for name, default in rows.items()}
    for name, parameter in inspect.signature(ShIOEnv.__init__).parameters.items():
        if isinstance(parameter.default, int):
            assert shown[name] == str(parameter.default)
    assert f"{CACHED_BEHAVIORS:,}" in PAGE
    assert all(f'"{encoding}"' in PAGE for encoding in ENCODINGS)
