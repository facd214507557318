"""Progress output: the completed share of the work, and the remaining time."""

from __future__ import annotations

import pytest

from shioenv.cli import progress
from shioenv.dataset.generate import Progress


@pytest.mark.parametrize(
    ("new", "missing", "seconds", "shown"),
    [
        (0, 100, 10.0, ""),
        (100, 0, 10.0, ""),
        (100, 50, 10.0, ", 5 s left"),
        (100, 599, 10.0, ", 1 min left"),
        (10, 590, 10.0, ", 9 min left"),
        (1, 3661, 1.0, ", 1 h 1 min left"),
        (1, 360_000, 1.0, ", 100 h 0 min left"),
    ],
)
def test_the_time_left_is_told_for_people(
    new: int, missing: int, seconds: float, shown: str
) -> None:
    assert progress.time_left(new, missing, seconds) == shown


def test_what_an_earlier_run_left_is_no_speed_of_this_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 100.0
    monkeypatch.setattr("shioenv.cli.progress.time.monotonic", lambda: now)
    with progress.counting("inputs") as tell:
        tell(9_000, 10_000)
        now += 20
        tell(9_010, 10_000)
        now += 20
        tell(9_500, 0)
    assert capsys.readouterr().err.splitlines() == [
        "9010/10000 inputs, 33 min left",
        "9500 inputs",
    ]


def test_a_line_of_generate_tells_speed_and_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    meter = progress.Meter("records", lasting=True)
    meter.report(Progress(done=600, count=1_000, kept=500, executions=0, volatile=0, seconds=10.0))
    assert capsys.readouterr().err == "600/1000 records (500 reused), 10.0 records/s, 40 s left\n"


def test_one_meter_shows_one_thing_after_the_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 100.0
    monkeypatch.setattr("shioenv.cli.progress.time.monotonic", lambda: now)
    with progress.Meter() as meter:
        for label in ("inputs", "estimates"):
            meter.update(label, 0, 40)
            now += 10
            meter.update(label, 20, 40)
    assert capsys.readouterr().err.splitlines() == [
        "20/40 inputs, 10 s left",
        "20/40 estimates, 10 s left",
    ]


def test_who_interrupts_is_told_what_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    with (
        pytest.raises(KeyboardInterrupt) as caught,
        progress.Meter("records", stopped="stopped; all is kept"),
    ):
        raise KeyboardInterrupt
    assert caught.value.__notes__ == ["stopped; all is kept"]
    assert capsys.readouterr().err == "stopped; all is kept\n"
