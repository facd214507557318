"""`shioenv compare`: inputs that do the same, and in which channel others differ."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from shioenv.behavior.observe import SandboxRunner
from shioenv.cli.main import app
from shioenv_eval.conform.verdicts import compare_effects

PAIRS = [
    ("cat documents/notes.txt | wc -l", "wc -l < documents/notes.txt", ()),
    ("touch new", ": > new", ()),
    ("mv documents/notes.txt n", "cp -a documents/notes.txt n && rm documents/notes.txt", ()),
    ("echo $RANDOM", "echo $RANDOM", ()),
    ("mktemp", "mktemp /tmp/tmp.XXXXXXXXXX", ()),
    ("echo a", "echo b", ("output",)),
    ("true", "false", ("exit_code",)),
    ("mkdir new", "touch new", ("patch", "contents")),
    ("echo 12 > new", "echo 34 > new", ("contents",)),
    ("x=1", "x=2", ("patch",)),
    ("echo $RANDOM", "echo none", ("output",)),
]


@pytest.mark.parametrize(("first", "second", "differs"), PAIRS)
def test_channels_in_which_two_inputs_differ(
    observer: SandboxRunner, first: str, second: str, differs: tuple[str, ...]
) -> None:
    done = compare_effects(observer, (first, second), observer.state())
    assert done.differs == differs
    assert compare_effects(observer, (second, first), observer.state()).differs == differs


def test_the_command_prints_the_difference_and_ends_with_1(observer: SandboxRunner) -> None:
    words = ["compare", "echo $x", "echo 1; cd /tmp", "--after", "x=1", "--runs", "1"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 1, done.output
    assert "patch differs" in done.stdout
    assert "output differs" not in done.stdout
    same = CliRunner().invoke(app, ["compare", "pwd", "echo $PWD", "--json"])
    document = json.loads(same.stdout)
    assert (same.exit_code, document["same"], document["differs"]) == (0, True, [])
