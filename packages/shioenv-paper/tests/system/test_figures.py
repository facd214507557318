"""The figures of the method are drawn from real runs, and are legible on both pages."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

import shioenv
from shioenv.behavior.observe import SandboxRunner
from shioenv.cli.main import app
from shioenv_eval.report.chart_style import DARK

pytestmark = pytest.mark.usefixtures("system")


def texts(path: Path) -> list[str]:
    return [
        "".join(one.itertext())
        for one in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text")
    ]


def test_what_is_drawn_is_what_happens(tmp_path: Path, observer: SandboxRunner) -> None:
    for _ in range(2):
        done = CliRunner().invoke(app, ["experiment", "figures", "--out", str(tmp_path)])
        assert done.exit_code == 0, done.output
        first = [path.read_bytes() for path in sorted(tmp_path.iterdir())]
    assert first == [path.read_bytes() for path in sorted(tmp_path.iterdir())]
    life = texts(tmp_path / "life.svg")
    (typed,) = (text.removeprefix("$ ") for text in life if text.startswith("$ "))
    assert life[life.index("<start>") - 1] == "A grammar generates an input"
    assert typed in life, "the last state is the input"
    behavior = observer.run(typed)
    assert behavior.patch.operations
    for line in behavior.text.splitlines():
        assert line in life
    scored = shioenv.score(typed)
    assert f"irreducibility {scored.irreducibility:.3f}" in life
    contrasts = [one for part in scored.segments for one in part.contrasts]
    shown = [text for text in life if text.startswith("other ") or text == "the same"]
    assert [one == "the same" for one in shown] == [one.difference is None for one in contrasts]
    assert 0 < shown.count("the same") < len(shown) - 1
    option = texts(tmp_path / "option.svg")
    assert sum("chooses one of" in text for text in option) >= 3
    assert sum("the argument is complete" in text for text in option) == 1
    assert "=" in option[-1], "the argument has a value"
    assert any(text.endswith("README.md") for text in texts(tmp_path / "tree.svg"))


def test_dark_pages_have_their_own_colours(tmp_path: Path) -> None:
    CliRunner().invoke(app, ["experiment", "figures", "--out", str(tmp_path)])
    for name in ("life", "option", "tree"):
        light = (tmp_path / f"{name}.svg").read_text()
        dark = (tmp_path / f"{name}-dark.svg").read_text()
        assert texts(tmp_path / f"{name}.svg") == texts(tmp_path / f"{name}-dark.svg")
        for colour, other in DARK.items():
            assert other not in light
            assert colour not in dark


def test_what_the_readme_shows_fits_its_picture(tmp_path: Path) -> None:
    """Text of a narrow picture fits inside it, in the widest font that browsers use for it."""
    CliRunner().invoke(app, ["experiment", "figures", "--out", str(tmp_path), "--seed", "3"])
    root = ElementTree.parse(tmp_path / "life.svg").getroot()
    assert float(root.get("width", "")) <= 420, "a phone shows it hardly smaller than it is"
    for one in root.iter("{http://www.w3.org/2000/svg}text"):
        if one.get("text-anchor") is None:
            wide = {"code": 7.3, "heading": 9.6, "strong": 8.3}.get(one.get("class", ""), 7.6)
            room = float(root.get("width", "")) - float(one.get("x", ""))
            assert len("".join(one.itertext())) * wide <= room, "".join(one.itertext())
