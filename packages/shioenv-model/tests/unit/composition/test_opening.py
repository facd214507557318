"""Bash's errors for files that a redirection cannot open, compared with Bash itself."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from shioenv.bash.program import Redirect
from shioenv.domain.context import Context
from shioenv.domain.runner import ScriptedRunner, State
from shioenv_model.composition.call import Call
from shioenv_model.composition.opening import opening

FILE = {"perms": "-rw-r--r--", "links": 1, "owner": "root", "group": "root", "size": 0}
FILE |= {"month": "Jan", "day": 1, "year": 2025, "time": "00:00"}
DIRECTORY = FILE | {"perms": "drwxr-xr-x"}


@pytest.fixture
def state(tmp_path: Path) -> State:
    """A file and a directory, in a state and on the disk."""
    (tmp_path / "file").touch()
    (tmp_path / "sub").mkdir()
    document: dict[str, Any] = dict(ScriptedRunner().context(str(tmp_path)).document)
    document["fs"] = {".": DIRECTORY, "file": FILE, "sub": DIRECTORY}
    return State(cwd=str(tmp_path), context=Context(document))


@pytest.mark.parametrize(
    "text",
    [
        "> gone/", "> gone/x", "> gone/x/", "> file/", "> file/x", "> file/x/", "> sub", "> sub/",
        "> sub/x/", "> ''", "< gone", "< gone/", "< file/", "< file/x", "< sub/", "< ''",
    ],
)  # fmt: skip
def test_a_file_that_is_not_opened_has_bashs_error(state: State, tmp_path: Path, text: str) -> None:
    operator, word = text.split()
    call = Call(":", opens=Redirect(None, operator, word))
    done = subprocess.run(
        ["bash", "-c", call.text], cwd=tmp_path, capture_output=True, check=False, env={}
    )
    said = opening(call, state, FILE)
    assert said is not None
    assert (said.exit_code, said.output) == (done.returncode, done.stderr)
