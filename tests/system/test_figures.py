"""The figures of the method are drawn from what happens, and can be read on both pages."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from shioenv.behavior.observe import SandboxRunner
from shioenv.cli.main import app
from shioenv.report.drawing import DARK

pytestmark = pytest.mark.usefixtures("system")


def texts(path: Path) -> list[str]:
    return [
        one.text or "" for one in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text")
    ]


def test_what_is_drawn_is_what_happens(tmp_path: Path, observer: SandboxRunner) -> None:
    for _ in range(2):
        done = CliRunner().invoke(app, ["experiment", "figures", "--out", str(tmp_path)])
        assert done.exit_code == 0, done.output
        first = [path.read_bytes() for path in sorted(tmp_path.iterdir())]
    assert first == [path.read_bytes() for path in sorted(tmp_path.iterdir())]
    life = texts(tmp_path / "life.svg")
    (typed,) = (text.partition("; ")[2] for text in life if text.startswith("$ cd "))
    assert "s0  <df:start>" in life
    states = [text.partition(" ")[2].strip() for text in life if text.startswith("s")]
    assert typed in states, "the last state is the input"
    for line in observer.run(typed).text.splitlines():
        assert line in life
    assert sum("differs: " in text or text == "does the same" for text in life) >= 3
    option = texts(tmp_path / "option.svg")
    assert any("its policy chooses one of" in text for text in option)
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
