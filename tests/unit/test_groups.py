"""Tests of one group or file run in one worker, so that their shared fixtures are made once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).parents[2] / "conftest.py"

TESTS = """
import os, pytest
from pathlib import Path

pytestmark = MARK

@pytest.mark.parametrize("number", range(6))
def test_worker(number):
    with Path(__file__).with_name(FILE).open("a") as file:
        file.write(os.environ["PYTEST_XDIST_WORKER"] + "\\n")
"""


def workers(place: Path) -> dict[str, list[str]]:
    """The workers of two workers that ran each test, by the files to which the tests wrote."""
    words = ("-p", "no:cacheprovider", "-n", "2", "--dist", "loadgroup", "--rootdir", ".", ".")
    command = [sys.executable, "-m", "pytest", *words]
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(CONFTEST.parent / "tests")}
    done = subprocess.run(
        command, cwd=place, capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stdout
    return {file.name: file.read_text().split() for file in place.glob("*.ran")}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    place = tmp_path_factory.mktemp("tests")
    (place / "conftest.py").symlink_to(CONFTEST)
    mark = """pytest.mark.xdist_group("one")"""
    for name in ("first", "second"):
        content = TESTS.replace("MARK", mark).replace("FILE", "'group.ran'")
        (place / f"test_{name}.py").write_text(content)
    for name in ("one", "other"):
        content = TESTS.replace("MARK", "[]").replace("FILE", repr(f"{name}.ran"))
        (place / f"test_{name}.py").write_text(content)
    return workers(place)


def test_a_group_stays_together(ran: dict[str, list[str]]) -> None:
    """xdist 3.8 names the group in a way that pytest 9.2 silently ignores."""
    assert len(ran["group.ran"]) == 12
    assert len({*ran["group.ran"]}) == 1


def test_a_file_stays_together(ran: dict[str, list[str]]) -> None:
    assert {name: len(each) for name, each in ran.items()} == {
        "group.ran": 12, "one.ran": 6, "other.ran": 6,
    }  # fmt: skip
    assert {worker for each in ran.values() for worker in each} == {"gw0", "gw1"}
    assert all(len({*ran[name]}) == 1 for name in ("one.ran", "other.ran"))
