"""Small runs of the long checks of determinism and completeness, as a user runs them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.nightly import NIGHTLY

SOAK = Path(__file__).parents[2] / "soak"


pytestmark = pytest.mark.usefixtures("system")


def script(name: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SOAK / name), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)


def answer(name: str, *options: str) -> dict[str, Any]:
    """Return the script's JSON, which must be printed for every result."""
    done = script(name, *options, "--json")
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (1 if found["violations"] else 0), done.stderr
    return found


@pytest.mark.parametrize("name", ["determinism.py", "completeness.py", "flags.py", "orders.py"])
def test_help_says_what_a_check_shows(name: str) -> None:
    done = script(name, "--help")
    assert done.returncode == 0
    assert re.search("^Check that ", done.stdout, re.MULTILINE)
    assert "--count" in done.stdout


def test_rows_of_sessions_are_recorded_alike_in_both_ways() -> None:
    done = script("sessions.py", "--count", "56", "--seed", "6", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, int] = json.loads(done.stdout)
    assert found["same"] > 10
    assert "different" not in found


@NIGHTLY
def test_the_same_inputs_do_the_same_in_four_passes() -> None:
    found = answer("determinism.py", "--count", "40", "--seed", "3", "--passes", "4")
    assert found["inputs"] == 40
    assert found["passes"] == 4
    unexplained = [one for one in found["violations"] if "input" in one]
    assert unexplained == []


@NIGHTLY
def test_what_was_kept_earlier_is_compared_again(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    options = ("--count", "8", "--seed", "4", "--passes", "1", "--kept", str(kept))
    first = answer("determinism.py", *options)
    again = answer("determinism.py", *options)
    assert kept.stat().st_size > 0
    assert (first["passes"], again["passes"]) == (1, 2)


@NIGHTLY
def test_patches_say_what_a_search_of_the_whole_system_finds() -> None:
    found = answer("completeness.py", "--count", "15", "--seed", "2", "--workers", "1")
    assert found["files compared"] == 15
    assert found["files compared, with changes"] >= 5
    assert found["shell compared"] >= 8
    assert found["violations"] == []


@NIGHTLY
@pytest.mark.parametrize("kind", [(), ("--programs",)])
def test_inputs_put_together_do_what_they_do_whole(kind: tuple[str, ...]) -> None:
    done = script("composition.py", "--count", "12", "--seed", "5", "--json", *kind)
    found = json.loads(done.stdout)
    assert found["inputs"] >= 10
    assert found["agree"] >= found["inputs"] - 1, found["violations"]
    assert done.returncode == int(float(found["share"]) < 0.97)


@NIGHTLY
def test_a_flag_is_the_same_in_every_generation() -> None:
    found = answer("flags.py", "--count", "20", "--seed", "5", "--times", "3")
    assert (found["records"], found["generations"]) == (20, 3)
    assert (found["volatile in some"], found["another one, and not volatile"]) == (0, 0)


def test_the_runs_of_an_input_with_a_pipe_are_told_apart() -> None:
    found = answer("orders.py", "--count", "8", "--seed", "5", "--extra", "1")
    assert found["inputs"] == 8
    fewest, *others, most = (one["inputs"] for one in found["unsteady inputs found by"])
    assert fewest <= min(others)
    assert max(others) <= most <= found["unsteady"]
    assert len(found["violations"]) == found["unsteady"] - others[-1]
