"""Datasets of an earlier release can be read, checked, selected from and exported, not extended."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from shioenv.dataset.manifest import MANIFEST, Plan, read_manifest
from shioenv.dataset.record_reader import read_records
from shioenv.dataset.repair import repair_with
from shioenv.dataset.select import Selection, select
from shioenv.dataset.verify import replay, verify
from shioenv.domain.record import SCHEMA_VERSION, share_necessary
from shioenv.errors import DatasetMismatchError
from shioenv.sandbox.base import Limits
from support.dataset_fakes import contents, make, open_fake, plan, samples, shards_of

COUNT = 20
OLD = plan(estimator="paper", record_schema=3)
_VERSIONS = f"3 in the dataset, {SCHEMA_VERSION} requested"


def as_it_was(directory: Path) -> None:
    """Return the manifest of the earlier release, which did not name the paper's estimator."""
    document = json.loads((directory / MANIFEST).read_bytes())
    document["schema_version"] = 4
    assert document.pop("estimator") == "paper"
    (directory / MANIFEST).write_text(json.dumps(document, indent=2) + "\n")


@pytest.fixture
def old(tmp_path: Path) -> Path:
    make(tmp_path / "old", COUNT, asked=OLD)
    as_it_was(tmp_path / "old")
    return tmp_path / "old"


def test_its_lines_have_the_layout_of_their_version(old: Path) -> None:
    for line in (old / "data/00000.ndjson").read_bytes().splitlines():
        document = json.loads(line)
        assert document["schema_version"] == 3
        assert not {"necessary", "mistake"} & document.keys()
        assert not any("necessary" in segment for segment in document["segments"])


def test_it_is_read_and_checked_and_tells_what_its_effects_tell(old: Path) -> None:
    assert verify(old).ok, verify(old).problems
    assert read_manifest(old).plan == OLD
    known = 0
    for record in read_records(old):
        effects = [effect for part in record.segments for effect in part.arguments or ()]
        assert record.necessary == share_necessary(effects)
        known += record.necessary is not None
    assert known > 0


def test_it_is_selected_from_as_it_is(old: Path, tmp_path: Path) -> None:
    lines = (old / "data/00000.ndjson").read_bytes()
    select(old, tmp_path / "new", Selection())
    assert (tmp_path / "new/data/00000.ndjson").read_bytes() == lines
    assert verify(tmp_path / "new").ok


def test_no_record_of_this_release_is_added_to_it(old: Path) -> None:
    before = contents(old)
    with pytest.raises(DatasetMismatchError) as caught:
        make(old, COUNT + 10, asked=plan(estimator="paper"))
    assert caught.value.differences == (f"record_schema_version: {_VERSIONS}",)
    assert "choose another directory for new records" in str(caught.value.hint)
    assert contents(old) == before


def test_a_call_that_lacks_no_record_ends_as_ever(old: Path) -> None:
    lines = (old / "data/00000.ndjson").read_bytes()
    assert make(old, COUNT, asked=plan(estimator="paper")).new == 0
    assert (old / "data/00000.ndjson").read_bytes() == lines


def test_a_lost_shard_of_it_is_not_made_again(tmp_path: Path) -> None:
    directory, system = tmp_path / "old", str(tmp_path)
    with shards_of(10):
        make(directory, COUNT, asked=OLD)
        (directory / "data/00001.ndjson").unlink()
        with pytest.raises(DatasetMismatchError, match="record_schema_version"):
            make(directory, COUNT, asked=OLD)
        with pytest.raises(DatasetMismatchError, match="record_schema_version"):
            repair_with(directory, lambda count: islice(samples(), count), system=system)


def test_its_records_are_not_replayed(old: Path) -> None:
    with pytest.raises(DatasetMismatchError) as caught:
        replay(old, 5, system=str(old), opener=open_fake)
    assert caught.value.differences == (f"record_schema_version: {_VERSIONS}",)


@pytest.mark.parametrize("change", [{"system_digest": "e" * 8}, {"grammar_digest": "0" * 64}])
def test_another_system_is_refused_with_what_it_takes(old: Path, change: dict[str, Any]) -> None:
    before = contents(old)
    with pytest.raises(DatasetMismatchError) as caught:
        make(old, COUNT + 10, asked=plan(estimator="paper", **change))
    assert "use the system, grammars and release" in str(caught.value.hint)
    assert contents(old) == before


def test_an_older_manifest_says_in_other_words_how_inputs_were_drawn_and_run() -> None:
    now = plan(session_length=4, limits=Limits(sandbox="microvm-bare"))
    document = now.to_json()
    document["history"] = document.pop("session_length")
    document["limits"] |= {"sandbox": "microvm", "inside": "bare"}
    assert Plan.from_json(document) == now
    document["limits"]["inside"] = "namespaces"
    assert Plan.from_json(document).limits == Limits(sandbox="microvm", without_shell_state=True)
