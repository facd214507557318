"""Commands that are started without some of the standard streams do their work.

Output that they cannot print is an error, as on a full disk.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from support.nightly import LARGER, scaled

SCRIPT = shlex.quote(str(Path(sys.executable).with_name("shioenv")))

ALL = ["".join(each) for each in product(("", "<&- "), (">&- ", ""), ("2>&- ", ""))]
SOME = ["2>&- ", "<&- >&- ", "<&- >&- 2>&- "]

COMMANDS = [
    *(("run 'echo from the input'", closed) for closed in ALL),
    *(("--help", closed) for closed in SOME),
    *(("sample --count 1 --command ls", closed) for closed in SOME),
    *(("generate {} --count 2 --workers 1 --command true", closed) for closed in SOME),
]


@LARGER
@pytest.mark.parametrize(("command", "closed"), COMMANDS[:: scaled(6, 1)])
@pytest.mark.usefixtures("system")
def test_a_command_works_whichever_standard_streams_are_closed(
    tmp_path: Path, command: str, closed: str
) -> None:
    words = command.format(shlex.quote(str(tmp_path / "dataset")))
    done = subprocess.run(
        ["bash", "-c", f"{SCRIPT} {words} {closed}"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    mute = ">&- " in closed.replace("2>&- ", "")
    assert done.returncode == mute, done.stderr
    assert (done.stdout == "") == mute
    said = "error: cannot write to standard output: Bad file descriptor\n"
    assert done.stderr.endswith(said if mute and "2>&-" not in closed else "")
    assert "Traceback" not in done.stderr
    if command.startswith("run") and done.stdout:
        assert done.stdout == "from the input\n"
    if command.startswith("generate"):
        assert (tmp_path / "dataset" / "manifest.json").exists()
