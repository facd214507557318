"""Scores that are added later equal those added at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shioenv.dataset import generate as scores
from shioenv.dataset.generate import Summary, add_scores
from shioenv.dataset.manifest import read_manifest
from shioenv.dataset.record_reader import read_records
from shioenv.dataset.select import Selection, select
from shioenv.dataset.verify import replay, verify
from shioenv.domain.record import SCHEMA_VERSION
from shioenv.errors import DatasetMismatchError, UsageError
from shioenv.execution.local import SerialExecutor
from shioenv.irreducibility.scoring import Scoring
from support.dataset_fakes import contents, interspersed, make, open_fake, plan, sample

COUNT = 30
BARE = plan(budget=0, noise_runs=2)
SPECIAL = {4: sample("echo", "hangs"), 9: sample("echo", "random", "x")}


@pytest.fixture(autouse=True)
def _this_release(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores, "package_version", lambda: "0.1.0")


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("score") / "bare"
    make(directory, COUNT, asked=BARE, stream=interspersed(SPECIAL))
    return directory


def added(bare: Path, directory: Path, **how: Any) -> Summary:
    return add_scores(
        bare,
        directory,
        system=str(directory.parent),
        executor=SerialExecutor(open_fake),
        **{"scoring": Scoring(budget=8), **how},
    )


def test_records_say_that_they_have_no_score_and_are_sound(bare: Path, tmp_path: Path) -> None:
    assert verify(bare).ok, verify(bare).problems
    assert replay(bare, 10, system=str(tmp_path), opener=open_fake).ok
    records = list(read_records(bare))
    assert all(record.irreducibility is None and not record.n_executions for record in records)
    assert {record.volatile for record in records} == {True, False}
    assert read_manifest(bare).plan.scoring == Scoring(budget=0, noise_runs=2)


def test_the_lines_are_those_of_a_run_with_scores(bare: Path, tmp_path: Path) -> None:
    summary = added(bare, tmp_path / "new")
    make(tmp_path / "whole", COUNT, stream=interspersed(SPECIAL))
    assert summary.new == COUNT
    assert verify(tmp_path / "new").ok
    assert read_manifest(tmp_path / "new").plan == read_manifest(tmp_path / "whole").plan
    lines, whole = (
        contents(tmp_path / name)["data/00000.ndjson"].splitlines() for name in ("new", "whole")
    )
    volatile = [record.session_id for record in read_records(bare) if record.volatile]
    assert volatile == [4, 9]
    assert [n for n in range(COUNT) if lines[n] != whole[n]] in ([], [9])


def test_records_of_an_earlier_version_are_scored_in_this_one(tmp_path: Path) -> None:
    make(tmp_path / "old", 5, asked=plan(budget=0, noise_runs=2, record_schema=5))
    added(tmp_path / "old", tmp_path / "new")
    assert {record.schema_version for record in read_records(tmp_path / "old")} == {5}
    assert {record.schema_version for record in read_records(tmp_path / "new")} == {SCHEMA_VERSION}
    assert read_manifest(tmp_path / "new").plan.record_schema == SCHEMA_VERSION


def test_it_goes_on_where_it_was_stopped(bare: Path, tmp_path: Path) -> None:
    def stop(progress: Any) -> None:
        if progress.done == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        added(bare, tmp_path / "new", report=stop)
    assert added(bare, tmp_path / "new").new == COUNT - 7
    assert verify(tmp_path / "new").ok


def test_what_cannot_be_scored_is_refused(bare: Path, tmp_path: Path) -> None:
    make(tmp_path / "scored", 3)
    select(bare, tmp_path / "selected", Selection(exclude_volatile=True))
    for source in ("scored", "selected"):
        with pytest.raises(UsageError, match=r"--without-scores|is a selection"):
            added(tmp_path / source, tmp_path / "new")
    with pytest.raises(UsageError, match="a budget of 0"):
        added(bare, tmp_path / "new", scoring=Scoring(budget=0))
    assert not (tmp_path / "new").exists()


def test_another_release_is_refused(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scores, "package_version", lambda: "0.2.0")
    with pytest.raises(DatasetMismatchError, match=r"'0\.1\.0' in the dataset"):
        added(bare, tmp_path / "new")
