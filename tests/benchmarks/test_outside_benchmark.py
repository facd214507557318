"""The benchmark of outside suites reads each suite's format, and keeps the halves apart."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from shioenv.system.store import System

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

OILS = """\
## compare_shells: dash bash-4.4

#### A value and a block
x=1
echo $x
## STDOUT:
1
## END
## OK dash STDOUT:
one
## END

#### One line
## code: $SH -c 'exit 3'
## status: 3

#### A program of the project
argv.py a
## stdout: ['a']
"""
BRUSH = """\
name: "lists"
cases:
  - name: "and"
    stdin: |
      true && echo yes
  - name: "with arguments"
    args: ["-c", "echo no"]
    stdin: ""
"""
BASHKIT = """\
# About sums

### sum
# adds
echo $((1 + 2))
### expect
3
### end

### skipped
### skip: not yet
echo later
### expect
later
### end
"""
TLDR = """\
# ls

> List files.

- With [l]ong lines:

`ls {{[-l|--long]}} {{path/to/file}}`
"""


@pytest.fixture
def suites(tmp_path: Path) -> Path:
    """Write a small checkout of each suite."""
    golds = json.dumps([{"query": "List files.", "gold": "ls /"}])
    texts = {
        "oils/spec/a.test.sh": OILS,
        "oils/spec/other.test.sh": OILS.replace("dash bash-4.4", "zsh"),
        "brush/cases/lists.yaml": BRUSH,
        "bashkit/spec_cases/bash/sums.test.sh": BASHKIT,
        "bashkit/spec_cases/python/sums.test.sh": BASHKIT,
        "intercode/data/nl2bash_fs_1.json": golds,
        "tldr/pages/common/ls.md": TLDR,
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_each_format_is_parsed(suites: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    import outside

    found = {
        name: [text for _, text in read(suites / name)] for name, read in outside.SUITES.items()
    }
    assert found == {
        "oils": ["x=1\necho $x", "bash -c 'exit 3'"],
        "brush": ["true && echo yes"],
        "bashkit": ["# adds\necho $((1 + 2))", "echo later"],
        "intercode": ["ls /"],
        "tldr": ["ls -l path/to/file"],
    }


def run(suites: Path, *more: str) -> subprocess.CompletedProcess[str]:
    given = [str(suites), "--predictor", "trivial", "--out", str(suites / "out"), *more]
    command = [sys.executable, str(BENCHMARKS / "outside.py"), *given]
    return subprocess.run(command, capture_output=True, text=True)


def test_truth_is_executed_once_and_misses_of_the_held_half_stay_unread(
    system: System, suites: Path
) -> None:
    import shutil

    names = [f"oils/spec/{letter}.test.sh" for letter in "abcdefgh"]
    for name in names[1:]:
        shutil.copy(suites / names[0], suites / name)
    misses = suites / "misses"
    for _ in range(2):
        shown = run(suites, "--suite", "oils", "--half", "work", "--misses", str(misses), "--json")
        assert shown.returncode == 0, shown.stderr
        (row,) = json.loads(shown.stdout)
        assert (row["suite"], row["inputs"], row["right"]) == ("oils", 2, 0)
        assert [json.loads(line)["gold"] for line in misses.read_text().splitlines()] == [
            [0, "1\n"], [3, ""],
        ]  # fmt: skip
    refused = run(suites, "--suite", "oils", "--misses", str(misses))
    assert "misses of the held half" in refused.stderr
    assert refused.returncode == 2
    missing = run(suites / "out")
    assert missing.returncode == 1


def test_factors_are_those_that_the_answers_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    import fit_confidence as fit
    from shioenv_model.confidence import LINE, OF_SCRIPTS, SCRIPT

    def cases(tags: dict[str, int], right: int) -> list[fit.Case]:
        return [("suite", tags, 1.0, number < right) for number in range(10_000)]

    table = fit.fitted(cases({"rule": 1}, 9900) + cases({"rule": 1, "pipe": 2}, 8019))
    assert table == pytest.approx({"rule": 0.99, "pipe": 0.9}, abs=0.001)
    scripts = cases({"rule": 1, SCRIPT: 1, LINE: 2}, 9704) + cases({"rule": 1}, 5000)
    found = fit.fitted_scripts(scripts, table)
    assert found.keys() <= {*OF_SCRIPTS}
    assert found[SCRIPT] * found[LINE] ** 2 == pytest.approx(0.98, abs=0.002)
    assert fit.estimate({"rule": 1, LINE: 2}, 0.5, table) == pytest.approx(0.495, abs=0.001)
