"""Which cases need the system though another machine of ours does the same."""

from __future__ import annotations

import re

import pytest

from shioenv.domain.behavior import Behavior
from shioenv.domain.inputs import Input
from shioenv.evaluation.conform.data import _tells
from shioenv.evaluation.conform.truth import TruthCase
from shioenv.synthesis.cases import DrawnCase

NOWHERE = re.compile(r"(?!)")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("dmesg --clear", True),
        ("dir --numeric-uid-gid", True),
        ("ls -lan misc | wc -l", True),
        ("ls -UT4 -c -b data", True),
        ("ls --sort=none", True),
        ("grep -rl --regexp the", True),
        ("grep -d recurse user .", True),
        ("echo x | grep -Ro the scripts", True),
        ("echo $HOSTNAME > f", True),
        ("dir -u", True),
        ("gzip -v -r data", True),
        ("cpio -Fx --numeric-uid-gid -itv", True),
        ("find . -empty", True),
        ("ls -la | head -n 3", False),
        ("ls data; sort -rn data/x", False),
        ("grep -n the README.md", False),
        ("cat README.md | tr -d r", False),
    ],
)
def test_what_a_plain_root_shows_otherwise_is_not_portable(text: str, expected: bool) -> None:
    drawn = DrawnCase(
        kind="option", command="x", options=(), cwd="/home", history=(),
        input=Input.from_marked(text.split(" ")),
    )  # fmt: skip
    case = TruthCase(drawn, Behavior(0, b""))
    assert _tells(case, Behavior(0, b""), NOWHERE) is expected
