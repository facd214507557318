"""Cases that need the system even where another of the project's machines behaves the same."""

from __future__ import annotations

import re

import pytest

from shioenv.domain.behavior import Behavior
from shioenv.domain.inputs import Input
from shioenv_eval.conform.cases import DrawnCase
from shioenv_eval.conform.data import _tells
from shioenv_eval.conform.truth import TruthCase

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
        ("tar czvf names --directory x ./", True),
        ("tar --exclude-vcs -cf x.tar documents", True),
        ("tar --create -f backup.tar -T todo", True),
        ("gzip --to-stdout copy.csv", True),
        ("gzip -9c copy.csv", True),
        ("chmod -v -R u+x documents nodir", True),
        ("rm -rf -v -- data/ | uniq", True),
        ("cp -rv data new", True),
        ("dir -g --no-group bin", True),
        ("dir -D --sort none", True),
        ("touch -h --reference x y", True),
        ("xargs grep -vd recurse x", True),
        ("tar -xf x.tar documents", False),
        ("tar -tf cut.tar", False),
        ("rm -rf data", False),
        ("gzip -k9 data/x", False),
        ("touch -c data/x", False),
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
