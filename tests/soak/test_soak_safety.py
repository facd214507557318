"""Small runs of the soak scripts: their findings are violations as in full size."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shioenv.sandbox.base import LONGEST_INPUT
from shioenv.system.store import System
from shioenv_agents.tasks.task import write_tasks
from shioenv_backends.microvm.boot import build_microvm
from support.known_tasks import known_tasks
from support.needs import MICROVM, needs
from support.nightly import NIGHTLY

SOAK = Path(__file__).parents[2] / "soak"


def soak(script: str, *options: str, work: Path) -> tuple[int, dict[str, Any]]:
    """Return exit status and report of a script, run in `work`."""
    done = subprocess.run(
        [sys.executable, str(SOAK / script), "--json", *options],
        capture_output=True,
        text=True,
        cwd=work,
        check=False,
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.fixture(scope="module")
def fuzz() -> Iterator[Any]:
    """The script as a module."""
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(SOAK))
        yield importlib.import_module("fuzz")
        sys.modules.pop("fuzz")


@pytest.fixture(scope="module")
def inputs(fuzz: Any, system: System) -> Any:
    """Return the script's inputs for seed 5 and few samples."""
    return fuzz.Inputs(system, 5, samples=50)


@NIGHTLY
def test_fuzzing_finds_nothing(system: System, tmp_path: Path) -> None:
    options = ("--count", "60", "--workers", "1", "--seed", "3", "--oracle", "10")
    status, found = soak("fuzz.py", *options, work=tmp_path)
    assert status == 0, found["violations"]
    assert found["inputs"] == 60
    assert sum(row["inputs"] for row in found["compared with a new bash"]) >= 5
    assert not list(tmp_path.iterdir())


@NIGHTLY
def test_the_reader_accepts_what_bash_accepts(system: System, tmp_path: Path) -> None:
    status, found = soak("reading.py", "--count", "600", "--seed", "9", work=tmp_path)
    assert status == 0, found["violations"]
    assert found["accepted by Bash"] > 1_500
    assert found["refused by Bash"] > 100


def test_previews_are_what_commands_do_and_leave_nothing(tmp_path: Path) -> None:
    status, found = soak("previewing.py", "--count", "4", "--kills", "2", work=tmp_path)
    assert status == 0, found["violations"]


def test_a_preview_that_changes_the_host_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    previewing = importlib.import_module("previewing")
    captured = previewing.captured

    def run_and_preview(*command: str) -> Any:
        subprocess.run(command, capture_output=True, check=False)
        return captured("sh", "-c", ":")

    monkeypatch.setattr(previewing, "captured", run_and_preview)
    monkeypatch.setattr(previewing, "PARTS", ["echo more >> text"])
    previewing.fill(tmp_path)
    made = previewing.Previewing(seed=0)
    made.trial(0, tmp_path)
    assert {each["what"] for each in made.violations} == {"the host changed", "files"}


@NIGHTLY
@needs(*MICROVM)
@pytest.mark.xdist_group("microvm")
def test_a_killed_machine_costs_time_and_no_record(system: System, tmp_path: Path) -> None:
    build_microvm(system)
    status, found = soak(
        "microvm.py", "--only", "kills", "--records", "4", "--seed", "1", work=tmp_path
    )
    assert status == 0, found["violations"]
    assert found["machines killed"] >= 1
    assert found["records compared beside kills"] == 4
    assert found["of them volatile"] == 0


def test_an_input_is_made_of_seed_and_number(system: System, fuzz: Any, inputs: Any) -> None:
    made = [inputs.make(number) for number in range(300)]
    assert {each.kind for each in made} >= {"mutated", "spliced", "syntax", "script", "bytes"}
    assert {each.is_argument for each in made} == {True, False}
    again = fuzz.Inputs(system, 5, samples=50)
    assert [again.make(number) for number in (250, 7)] == [made[250], made[7]]


@NIGHTLY
def test_the_fuzzer_tells_what_is_contaminated_and_makes_it_short(
    system: System, fuzz: Any, inputs: Any, tmp_path: Path
) -> None:
    """A sentinel with access to the run before it simulates the contamination."""
    fuzzer = fuzz.Fuzzer(system, inputs, 0.5, 0, tmp_path)
    looked = fuzzer._contaminated
    ran: list[str] = []
    run = fuzzer._run

    def watched(one: Any, tally: Any = None) -> Any:
        ran.append(one.text)
        return run(one, tally)

    def contaminated(sentinel: str) -> Any:
        if "dirt" in ran[-1]:
            return {"what": "contaminated", "detail": "dirt", "sentinel": sentinel}
        return looked(sentinel)

    fuzzer._run, fuzzer._contaminated = watched, contaminated
    tally = fuzz.Tally()
    for number, text in enumerate(("true", "echo some dirt here", "false")):
        fuzzer._check(fuzz.Hostile(number, "syntax", text, None), tally)
    fuzzer._expected["ids"] = fuzzer._expected["jobs"]
    at = list(fuzz.SENTINELS).index("ids")
    fuzzer._check(fuzz.Hostile(at, "syntax", ":", None), tally)
    fuzzer.close()
    dirty, wrong = tally.failures
    assert (dirty["what"], dirty["number"], dirty["input"]) == ("contaminated", 1, "dirt")
    assert (wrong["what"], wrong["number"]) == ("contaminated", at)
    assert "uid=0(root)" in wrong["detail"]
    assert (tmp_path / "contaminated-1.sh").read_text() == "echo some dirt here"


def test_what_is_no_argument_is_an_input_error(
    system: System, fuzz: Any, inputs: Any, tmp_path: Path
) -> None:
    fuzzer = fuzz.Fuzzer(system, inputs, 0.5, 0, tmp_path)
    texts = ("a\0b", "\ud800", "x" * LONGEST_INPUT, "x" * (LONGEST_INPUT + 1), "\udcff")
    hostile = [fuzz.Hostile(number, "bytes", text, None) for number, text in enumerate(texts)]
    assert [each.is_argument for each in hostile] == [False, False, True, False, True]
    tally = fuzz.Tally()
    for each in hostile:
        fuzzer._check(each, tally)
    fuzzer.close()
    assert not tally.failures
    assert tally.outcomes["refused"] == 3


@NIGHTLY
def test_nothing_leaks(system: System, tmp_path: Path) -> None:
    options = ("--count", "100", "--files", "0", "--runs", "0")
    status, found = soak("leaks.py", *options, work=tmp_path)
    assert status == 0, found["violations"]
    samples = found["what is there (the last line: after closing)"]
    assert len(samples) == 11
    assert samples[0]["processes"] == samples[-2]["processes"] > samples[-1]["processes"] == 1
    assert not list(tmp_path.iterdir())


@NIGHTLY
def test_killing_loses_no_line(tmp_path: Path) -> None:
    status, found = soak("lines.py", "--count", "4", "--seed", "5", work=tmp_path)
    assert status == 0, found["faults"]
    assert found["lines told"] > 4


@NIGHTLY
def test_no_reward_is_forged(system: System, tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    write_tasks(known_tasks(system), file)
    options = ("--count", "1", "--workers", "1", "--tasks", str(file))
    status, found = soak("forging.py", *options, work=tmp_path)
    assert status == 0, found["violations"]
    assert (found["tasks"], found["kinds of attacks"] >= 40) == (1, True)


@NIGHTLY
def test_killing_changes_no_record(system: System, tmp_path: Path) -> None:
    options = ("--count", "4", "--kills", "1", "--seed", "2")
    status, found = soak("faults.py", *options, work=tmp_path)
    assert status == 0, found["violations"]
    assert found["kills"] == 1
    assert found["records compared"] >= 8
    if os.geteuid() == 0:
        assert found["disk"].startswith("full: SHIO-D04")
