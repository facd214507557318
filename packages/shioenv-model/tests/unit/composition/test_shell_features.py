"""Features of the language, one after the other: the interpreter does what the host's Bash does.

`shell_features.txt` has a program on each line. ¶ is a newline, and ⏎ divides lines that are typed
one after the other.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from shioenv_model.bash.work import answering
from support.composed_shell import composed, executed, make_files

PROGRAMS = Path(__file__).with_name("shell_features.txt").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("case", [one for one in PROGRAMS if one and not one.startswith("## ")])
def test_a_feature_does_what_bash_does(case: str, tmp_path: Path) -> None:
    make_files(tmp_path)
    lines = [line.replace("¶", "\n") for line in case.split(" ⏎ ")]
    with answering(case):
        ours = composed(lines, tmp_path)
    theirs = executed(lines, tmp_path)
    assert (ours.output, ours.status) == (theirs.output, theirs.status)
    assert ours.files == theirs.files
