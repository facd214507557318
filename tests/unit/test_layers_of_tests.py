"""The layers of the tests: each test is in one, and a test named by its id always runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.nightly import SWITCH, by_day, scaled

CONFTEST = Path(__file__).parents[2] / "conftest.py"

TESTS = """
import pytest
from support.nightly import LARGER, NIGHTLY, by_day, scaled
def test_quick(): pass
@NIGHTLY
def test_long(): pass
@LARGER
def test_counted(): assert scaled("day", "night") == WHEN
@pytest.mark.parametrize("case", by_day("abcde", 2))
def test_cases(case): pass
@pytest.mark.usefixtures("system")
def test_of_a_system(): pass
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "conftest.py").symlink_to(CONFTEST)
    (tmp_path / "pyproject.toml").write_bytes((CONFTEST.parent / "pyproject.toml").read_bytes())
    (tmp_path / "unit").mkdir()
    return tmp_path


def run(place: Path, tests: str, *words: str) -> subprocess.CompletedProcess[str]:
    (place / "unit/test_some.py").write_text(tests)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-v", *words],
        cwd=place, capture_output=True, text=True, check=False,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(CONFTEST.parent / "tests")},
    )  # fmt: skip


def passed(place: Path, *words: str, when: str = "day") -> set[str]:
    """The tests that ran, each with a pass."""
    done = run(place, TESTS.replace("WHEN", repr(when)), *words)
    assert done.returncode == 0, done.stdout
    return {
        line.split()[0].rpartition("::")[2]
        for line in done.stdout.splitlines()
        if line.endswith("%]") and " PASSED" in line
    }


def test_each_test_is_in_a_layer(place: Path) -> None:
    by_name = ("unit", "--deselect", "unit/test_some.py::test_of_a_system")
    day = {"test_quick", "test_counted", "test_cases[a]", "test_cases[c]", "test_cases[e]"}
    night = {"test_long", "test_counted", "test_cases[b]", "test_cases[d]"}
    assert passed(place, *by_name) == day
    assert passed(place, *by_name, "--layer=first") == day
    assert passed(place, *by_name, "--layer=rest") == set()
    assert passed(place, *by_name, "--layer=nightly", when="night") == night
    assert passed(place, "unit/test_some.py::test_long") == {"test_long"}


def test_a_file_that_the_second_layer_would_not_find_is_refused(place: Path) -> None:
    done = run(place, "def test_untyped(system): pass\n", "--layer=first")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "test_some.py: declare `system` or `observer` with its type" in done.stderr


def test_sizes_are_those_of_the_day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SWITCH, raising=False)
    assert scaled(1, 2) == 1
    monkeypatch.setenv(SWITCH, "1")
    assert scaled(1, 2) == 2


def test_each_of_a_few_runs_by_day() -> None:
    found = by_day("abcdef", 3, range(6))
    assert [one.id for one in found if not one.marks] == ["0", "3"]
    assert [one.values for one in found] == [("a",), ("b",), ("c",), ("d",), ("e",), ("f",)]
