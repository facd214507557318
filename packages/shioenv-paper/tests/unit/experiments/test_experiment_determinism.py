"""Comparison of several passes of an input, and its counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shioenv.domain.behavior import Behavior
from shioenv.domain.patch import ContextPatch
from shioenv.domain.runner import ScriptedCall, ScriptedRunner, State
from shioenv.errors import DatasetMismatchError, UsageError
from shioenv.execution.job import Executor
from shioenv.execution.local import SerialExecutor
from shioenv.synthesis.traces import Sample
from shioenv_paper import determinism
from shioenv_paper.determinism import CHANNELS, MASKED, digests
from shioenv_paper.experiment_output import Results, read_columns
from shioenv_paper.repeats import Cause, masked, shows_clock
from shioenv_paper.setting import ExperimentSetting, Stream
from support.experiment_fakes import HOME, SYSTEM, sample


@pytest.mark.parametrize(
    ("channel", "other"),
    [
        ("exit_code", Behavior(1, b"x")),
        ("output", Behavior(0, b"y")),
        ("patch", Behavior(0, b"x", ContextPatch((("r", "/fs/a"),)))),
        ("content_digests", Behavior(0, b"x", content_digests={"a": "0"})),
        ("timed_out", Behavior(0, b"x", timed_out=True)),
    ],
)
def test_a_digest_tells_the_channel_that_differs(channel: str, other: Behavior) -> None:
    a, b = digests(Behavior(0, b"x")), digests(other)
    assert [name for name in CHANNELS if a[name] != b[name]] == [channel]
    assert a[MASKED] != b[MASKED]


def test_the_order_of_files_tells_nothing() -> None:
    one, other = {"a": "0", "b": "1"}, {"b": "1", "a": "0"}
    assert digests(Behavior(0, b"", content_digests=one)) == digests(
        Behavior(0, b"", content_digests=other)
    )


def test_clocks_are_masked() -> None:
    texts = (b"Mon Jan  5 10:00:01 2026", b"Tue Nov 21 9:12:44 2026", b"2026-01-05 10:00", b"1 2")
    first, second, third, other = (masked(Behavior(0, text)).output for text in texts)
    assert first == second != third
    assert other == b"1 2"
    a, b = (digests(Behavior(0, text)) for text in texts[:2])
    assert a["output"] != b["output"]
    assert a[MASKED] == b[MASKED]


def test_some_commands_print_the_present() -> None:
    assert shows_clock(sample("uptime", "-p"), ["uptime"])
    assert not shows_clock(sample("ls", "-p"), ["uptime"])


def test_the_present_explains_nothing_where_another_command_is_volatile() -> None:
    date, ping = (sample(name).trace[0] for name in ("date", "ping"))
    both = replace(sample("date"), trace=(ping, date))
    assert not shows_clock(both, ["date", "ping"])
    assert shows_clock(both, ["date"])
    assert not shows_clock(replace(both, trace=(replace(ping, volatile=True), date)), [])


SAMPLES = [
    sample("ls", "a"),
    sample("touch", "b"),
    sample("mktemp", volatile=True),
    sample("find", "c"),
    sample("cat", "d"),
]
"""The first never differs, the second by a clock, the third as declared, the others otherwise."""


class Changing(ScriptedRunner):
    """A sandbox of a pass: what it gives depends on which pass it is."""

    system: Any = SYSTEM

    def __init__(self, time: int) -> None:
        super().__init__()
        self._time = time

    def answer_to(self, asked: ScriptedCall) -> Behavior:
        assert asked.state == State(cwd=HOME)
        texts = {
            "ls": "same",
            "touch": f"10:00:0{self._time}",
            "mktemp": f"/tmp/x{self._time}",
            "find": f"inode {self._time}",
            "cat": f"what {self._time}",
        }
        return Behavior(0, texts[asked.text.split()[0]].encode())


def executors(number: int) -> Executor:
    return SerialExecutor(lambda system, limits: Changing(number))


@pytest.fixture
def setting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ExperimentSetting:
    def cause_of(runner: object, task: tuple[int, Sample], volatile: object) -> Cause:
        marks = {"touch": "noticed", "mktemp": "declared", "find": "noticed", "cat": "none"}
        return Cause(marks[task[1].trace[0].grammar], "because")

    monkeypatch.setattr(determinism, "cause_of", cause_of)
    monkeypatch.setattr(
        determinism,
        "stream_of",
        lambda system, drawing, count: Stream(
            iter(SAMPLES[:count]), {"seed": drawing.seed, "system": system.name}
        ),
    )
    monkeypatch.setattr(ExperimentSetting, "system", SYSTEM)
    return ExperimentSetting(out=tmp_path)


def run(setting: ExperimentSetting, count: int, number_of_passes: int) -> Results:
    return determinism.run_determinism(
        setting, count=count, number_of_passes=number_of_passes, executors=executors
    )


def test_every_input_is_counted_by_its_reason(setting: ExperimentSetting) -> None:
    results = run(setting, 5, 3)
    data = read_columns(results.directory / "inputs.parquet")
    assert data["identical"] == [True, False, False, False, False]
    assert data["reason"] == [
        "", "time of day", "declared volatile", "noticed when recorded", "not explained",
    ]  # fmt: skip
    assert data["channels"] == ["", "output", "output", "output", "output"]
    assert data["differing_passes"] == [0, 2, 2, 2, 2]
    assert results.document["summary"] == {
        "identical, of all inputs": 0.2,
        "identical, without inputs that differ only by the time of day": 0.25,
        "identical, of those not declared volatile": 0.25,
        "identical or explained, of all inputs": 0.8,
    }
    unexplained = results.tables[-1]
    assert [row[0] for row in unexplained.rows] == ["`cat d`"]


def test_passes_that_are_there_are_not_run_again(setting: ExperimentSetting) -> None:
    run(setting, 5, 2)
    results = run(setting, 5, 3)
    assert results.document["counts"]["passes of earlier calls"] == 2
    (setting.data / "determinism" / "pass-1.parquet").unlink()
    again = run(setting, 5, 3)
    assert again.document["summary"] == results.document["summary"]


def test_passes_of_other_inputs_are_refused(setting: ExperimentSetting) -> None:
    run(setting, 5, 2)
    with pytest.raises(DatasetMismatchError, match="inputs: 5 in the directory, 4 requested"):
        run(setting, 4, 2)


def test_one_pass_says_nothing(setting: ExperimentSetting) -> None:
    with pytest.raises(UsageError):
        run(setting, 5, 1)
