"""The package's public functions, called as on its front page."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

import shioenv
from shioenv.dataset.generate import Progress, progress_line
from shioenv.synthesis.drawing import Drawing, DrawingSettings
from shioenv.system.store import System


def test_sample_takes_what_is_drawn_directly(system: System) -> None:
    drawn = [one.input.text for one in shioenv.sample(count=3, seed=1, commands=["ls", "du"])]
    drawing = Drawing(seed=1, commands=("ls", "du"))
    assert drawn == [one.input.text for one in shioenv.sample(drawing, system=system, count=3)]
    assert len(set(drawn)) == 3
    (only,) = shioenv.sample(Drawing(composite_share=0), count=1, commands="df", system=system.name)
    assert only.input.text.split()[0] == "df"


def test_what_is_given_directly_stands_for_that_of_the_drawing() -> None:
    drawing = Drawing(seed=5, commands=("ls",), policy="paper", mistakes=0.5)
    assert drawing.but() == drawing
    changed = drawing.but(seed=0, commands=[], policy="mixed", start_directories="/tmp")
    there = ("/tmp",)
    assert changed == Drawing(seed=0, policy="mixed", mistakes=0.5, start_directories=there)
    with pytest.raises(TypeError, match="sead"):
        drawing.but(sead=1)  # type: ignore[call-arg]
    assert [*DrawingSettings.__annotations__] == [field.name for field in fields(Drawing)]


def test_generate_takes_what_is_drawn_directly(system: System, tmp_path: Path) -> None:
    made = shioenv.generate(
        tmp_path / "made", count=4, seed=1, commands=["ls", "wc"], policy="paper"
    )
    plan = made.manifest.plan
    assert (plan.drawing.seed, plan.drawing.policy) == (1, "paper")
    texts = [record.typed for record in shioenv.read_records(tmp_path / "made")]
    drawn = shioenv.sample(Drawing(seed=1, commands=("ls", "wc"), policy="paper"), count=4)
    assert texts == [one.input.text for one in drawn]


def test_a_behavior_as_json_is_what_run_prints(system: System) -> None:
    text = "echo ü > new; printf '\\377'; kill $$"
    with shioenv.open_sandbox() as sandbox:
        behavior = sandbox.run(text)
    done = subprocess.run(
        [sys.executable, "-m", "shioenv", "run", "--json", text], capture_output=True, check=False
    )
    printed = json.loads(done.stdout)
    assert {name: printed.pop(name) for name in ("input", "cwd", "system")}["input"] == text
    assert json.loads(json.dumps(behavior.to_json())) == printed
    assert printed["died_by_signal"] == 15


def _progress(done: int, note: str | None = None) -> Progress:
    return Progress(done, 30, 10, executions=0, volatile=0, seconds=2.0, note=note)


def test_progress_is_shown_on_a_terminal_and_nowhere_else(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    main, side = pty.openpty()
    with os.fdopen(side, "w") as terminal, monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", terminal)
        show = progress_line()
        for progress in (_progress(10), _progress(11), _progress(0, "a note"), _progress(30)):
            show(progress)
        shown = ""
        while not shown.endswith("10.0/s\r\n"):
            shown += os.read(main, 4096).decode()
    os.close(main)
    assert shown == "\r10/30 records\ra note       \r\n\r30/30 records, 10.0/s\r\n"
    monkeypatch.setattr(sys, "stderr", None)
    progress_line()(_progress(30))
    monkeypatch.undo()
    progress_line()(_progress(30))
    assert capfd.readouterr() == ("", "")
