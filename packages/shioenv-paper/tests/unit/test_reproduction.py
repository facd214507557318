"""Comparison of values that a host made with the committed ones."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from shioenv_paper import reproduction
from shioenv_paper.reproduction import Reproduced, Reproduction, committed_values, reproduce

HERE = Reproduced(
    system="debian-12",
    system_digest="a" * 64,
    records={str(number): f"{number:016x}" for number in range(20)},
    volatile=("2", "11"),
    table={"all": {"em": 0.9, "djs": None}},
)


def test_equal_values_are_reproduced_whatever_volatile_records_hold() -> None:
    other = replace(HERE, records={**HERE.records, "2": "f" * 16})
    found = Reproduction(other, HERE)
    assert (found.faults, found.differing, found.apart) == ([], [], [])
    document = found.to_json()
    assert (document["reproduced"], document["compared_records"]) == (True, 18)
    assert document == Reproduction(HERE, HERE).to_json()


@pytest.mark.parametrize(
    ("other", "fault"),
    [
        (replace(HERE, system_digest="b" * 64), "the system is bbbbbbbbbbbb, not aaaaaaaaaaaa"),
        (replace(HERE, records={**HERE.records, "10": "f", "9": "f"}), "records differ: 9, 10"),
        (replace(HERE, records={**HERE.records, "20": "f"}), "records differ: 20"),
        (replace(HERE, table={"all": {"em": 0.8, "djs": None}}), "table, all, em: 0.8, not 0.9"),
    ],
)
def test_every_difference_is_a_fault(other: Reproduced, fault: str) -> None:
    assert Reproduction(other, HERE).faults == [fault]


def test_few_records_may_be_volatile_on_one_side() -> None:
    three = replace(HERE, volatile=("2", "3", "4"), records={**HERE.records, "3": "f", "11": "f"})
    found = Reproduction(three, HERE)
    assert (found.apart, found.faults) == (["3", "4", "11"], [])
    four = replace(three, volatile=("2", "3", "4", "5"))
    assert Reproduction(four, HERE).faults == ["volatile on one side only: 3, 4, 5, 11"]


def test_the_report_is_the_same_on_every_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reproduction, "committed_values", lambda: HERE)
    assert reproduce(HERE, tmp_path).faults == []
    document = json.loads((tmp_path / "report.json").read_text())
    assert document["reproduced"] is True
    assert Reproduced.from_json(json.loads(json.dumps(HERE.to_json()))) == HERE


def test_the_committed_values_are_whole() -> None:
    committed = committed_values()
    assert len(committed.records) == reproduction.COUNT
    assert committed.seed == reproduction.SEED
    assert set(committed.volatile) <= committed.records.keys()
    assert set(committed.table) == {"single", "multi", "all"}
