"""The benchmarks run to their end and print every line. Their figures are not checked here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shioenv.system.store import System
from support.needs import needs
from support.nightly import NIGHTLY

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def printed(script: str, *arguments: str) -> str:
    command = [sys.executable, str(BENCHMARKS / script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@NIGHTLY
def test_bench_measures_every_line(system: System) -> None:
    sizes = ("--pairs", "2", "--aged", "20", "--window", "0.05")
    report: dict[str, Any] = json.loads(printed("bench.py", *sizes, "--json"))
    assert system.digest.startswith(report["system"].split()[1])
    rows = report["rows"]
    names = [row["name"] for row in rows]
    assert len(names) == len(set(names))
    counts = dict.fromkeys(("reads", "writes", "sandboxes", "opening", "workers", "growth"), 0)
    for row in rows:
        counts[row["group"]] += 1
        if row["failure"] is None:
            assert row["n"] >= 1, row
            assert (row["median"] or row["ratio_median"]) > 0, row
    assert counts.pop("sandboxes") >= 2
    assert counts == {"reads": 7, "writes": 7, "opening": 3, "workers": 1, "growth": 1}
    assert "shioenv" in names
    bounded = {row["group"] for row in rows if row["must"] is not None and row["verdict"]}
    assert bounded == {"reads", "writes", "opening", "workers", "growth"}


def test_the_table_has_a_line_for_every_row(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    import bench

    compared = bench.Row("reads", "true", must=1.0, aim=0.8)
    compared.add(2.0, 1.0)
    compared.add(2.0, 3.0)
    alone = bench.Row("opening", "open a sandbox", measured=[30.0, 40.0], must=25, aim=10)
    more = bench.Row("workers", "two processes", "inputs/s", ratios=[1.9, 1.95], must=1.8, aim=1.9)
    missing = bench.Row("sandboxes", "nsjail", failure="not installed")
    bench.print_table([compared, alone, more, missing])
    lines = capsys.readouterr().out.splitlines()
    found = {line.split()[0]: line.split() for line in lines if line.startswith("  ")}
    assert found["true"][1:] == [
        "2",
        "2.00",
        "2.00",
        "2.00",
        "2.90",
        "1.00",
        "1.45",
        "1.00",
        "0.80",
        "good",
        "enough",
    ]
    assert found["open"][3:] == ["2", "35.00", "39.50", "25.00", "10.00", "MISSED"]
    assert found["two"][2:] == ["2", "1.93", "1.95", "1.80", "1.90", "reaches", "the", "aim"]
    assert found["nsjail"][1:] == ["not", "installed"]


@NIGHTLY
@needs("root")  # it compares with bare bash in a chroot
def test_steps_measures_every_step(system: System) -> None:
    report: dict[str, Any] = json.loads(printed("steps.py", "--times", "5", "--json"))
    assert len(report["variants"]) == 16
    assert len(report["primitives"]) == 9
    for low, middle in (*report["variants"].values(), *report["primitives"].values()):
        assert 0 < low <= middle
    assert {*report["processor_time"]} == {
        ":", "/bin/true", "ls -la", "cat /etc/passwd | sort", "touch x",
    }  # fmt: skip
    for spent in report["processor_time"].values():
        assert {*spent} == {"bare", "Python", "supervisor", "fork server", "input"}


@NIGHTLY
def test_where_splits_all_of_the_time(system: System) -> None:
    report: dict[str, Any] = json.loads(printed("where.py", "--count", "12", "--json"))
    assert system.digest.startswith(report["system"].split()[1])
    assert report["records"] == 12
    assert report["executions"] >= report["known"] > 12
    places = report["milliseconds"]
    assert len(places) == 6
    assert all(ms >= 0 for ms in places.values())
    assert abs(sum(places.values()) - report["an execution"]) < 0.01
    assert 0 < report["share of the dearest hundredth"] <= 1


@needs("mcp")
def test_mcp_calls_measures_each_call(system: System) -> None:
    report = json.loads(printed("mcp_calls.py", "--calls", "2", "--files", "5", "--json"))
    assert [row["call"] for row in report["rows"]] == ["run", "shell", "preview"]
    assert all(row["mcp_ms"] > 0 and row["n"] >= 1 for row in report["rows"])
