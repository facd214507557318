"""The Hugging Face library opens native directories, and a multi-part export as one repository."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from msgspec import UNSET, convert, structs

from shioenv.dataset.manifest import SHARD_RECORDS, read_manifest
from shioenv.dataset.record_reader import read_contexts, read_records
from shioenv.dataset.split import Shares, split
from shioenv.dataset.verify import verify
from shioenv.dataset.write import ShardWriter
from shioenv.domain.record import ContentDigest, Record
from shioenv.errors import UsageError
from shioenv_eval import export as export_module
from shioenv_eval.export import export
from support.dataset_fakes import contents, make, plan

README = "README.md"
PARTS = ("train", "validation", "test")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("published") / "dataset"
    make(directory, 40)
    return directory


@pytest.fixture(scope="module")
def parts(dataset: Path) -> Path:
    directory = dataset.with_name("parts")
    split(dataset, directory, Shares(test=0.3, validation=0.3), seed=2)
    return directory


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def opened(directory: Path, tmp_path: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the splits as a Hugging Face user opens them first."""
    import datasets

    found = datasets.load_dataset(str(directory), cache_dir=str(tmp_path / "cache"))
    return {name: list(rows) for name, rows in found.items()}


def writer_like(source: Path, directory: Path, records: Iterator[Record]) -> None:
    manifest = read_manifest(source)
    directory.mkdir()
    writer = ShardWriter(directory, manifest.plan, manifest.kernels, manifest.layers)
    writer.keep_contexts(read_contexts(source).values())
    for record in records:
        writer.add(record)
    writer.finish()


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_a_native_directory_opens(tmp_path: Path, compression: str | None) -> None:
    directory = tmp_path / "dataset"
    make(directory, 12, asked=plan(compression=compression))
    rows = opened(directory, tmp_path)
    assert [convert(row, Record) for row in rows["train"]] == list(read_records(directory))
    assert verify(directory).ok


def test_columns_that_are_empty_at_first_have_their_types(dataset: Path, tmp_path: Path) -> None:
    """A shard of nulls and empty lists, then one with values."""
    first = next(read_records(dataset))
    bare = structs.replace(first, segments=[], irreducibility=None, stdout=None, stderr=None)
    full = structs.replace(
        first, irreducibility=0.5, mistake="typo", output_b64="AA==", history=["cd /"],
        content_digests=[ContentDigest(name="a b", sha256="0" * 64)], stdout="x", stderr="",
    )  # fmt: skip

    def records() -> Iterator[Record]:
        for number in range(SHARD_RECORDS + 3):
            record = bare if number < SHARD_RECORDS else full
            yield structs.replace(record, session_id=number, input=f"echo {number}")

    directory = tmp_path / "made"
    writer_like(dataset, directory, records())
    (rows,) = opened(directory, tmp_path).values()
    assert len(rows) == SHARD_RECORDS + 3
    assert convert(rows[0], Record).irreducibility is None
    assert rows[-1]["content_digests"] == [{"name": "a b", "sha256": "0" * 64}]
    assert (rows[-1]["mistake"], rows[-1]["history"]) == ("typo", ["cd /"])


def test_records_that_were_not_executed_here_open(dataset: Path, tmp_path: Path) -> None:
    directory = tmp_path / "released"
    directory.mkdir()
    manifest = read_manifest(dataset)
    writer = ShardWriter(directory, replace(manifest.plan, system="", limits=None, scoring=None))
    for record in read_records(dataset):
        bare = {
            name: UNSET
            for name in record.segments[0].__struct_fields__
            if name not in {"command", "n_arguments", "executed"}
        }
        segments = [structs.replace(segment, **bare) for segment in record.segments]
        writer.add(structs.replace(record, segments=segments, system=""))
    writer.finish()
    (rows,) = opened(directory, tmp_path).values()
    assert [convert(row, Record) for row in rows] == list(read_records(directory))


def test_a_directory_without_a_readme_gets_one_when_it_is_continued(tmp_path: Path) -> None:
    directory = tmp_path / "dataset"
    make(directory, 8)
    once = (directory / README).read_bytes()
    (directory / README).unlink()
    assert verify(directory).ok
    make(directory, 12)
    assert (directory / README).read_bytes() == once
    (directory / README).write_text("mine")
    make(directory, 14)
    assert (directory / README).read_text() == "mine"
    assert verify(directory).ok


def test_the_directory_of_a_split_opens_with_its_parts(parts: Path, tmp_path: Path) -> None:
    rows = opened(parts, tmp_path)
    assert list(rows) == list(PARTS)
    for name in PARTS:
        here = [convert(row, Record) for row in rows[name]]
        assert here == list(read_records(parts / name))


def test_parts_are_exported_as_one_repository(parts: Path, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    done = export(parts, tmp_path / "hub", format="hf", report=lambda *one: told.append(one))
    assert (done.records, done.files, told[-1]) == (40, 3, (40, 40))
    assert sorted(contents(done.output)) == [
        README,
        "contexts/00000.json",
        "data/test-00000-of-00001.parquet",
        "data/train-00000-of-00001.parquet",
        "data/validation-00000-of-00001.parquet",
        "source-manifests/test.json",
        "source-manifests/train.json",
        "source-manifests/validation.json",
    ]
    rows = opened(done.output, tmp_path)
    assert list(rows) == list(PARTS)
    for name in PARTS:
        here = [convert(row, Record) for row in rows[name]]
        assert here == list(read_records(parts / name))
    card = (done.output / README).read_text()
    counts = {name: read_manifest(parts / name).records for name in PARTS}
    assert all(f"{name}: {count} (" in card for name, count in counts.items())
    assert card.count("| seed | 7 |") == 1
    export(parts, tmp_path / "again", format="hf")
    assert contents(tmp_path / "again") == contents(done.output)


@pytest.mark.parametrize("name", ["all.parquet", "all.jsonl"])
def test_one_file_holds_no_parts(parts: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="train, validation, test") as refused:
        export(parts, tmp_path / name)
    assert "--format hf" in str(refused.value)
    assert not (tmp_path / name).exists()


def test_parts_of_different_machines_are_refused(dataset: Path, tmp_path: Path) -> None:
    place = tmp_path / "parts"
    place.mkdir()
    (place / "train").symlink_to(dataset)
    make(place / "test", 3, asked=plan(system="other"))
    with pytest.raises(UsageError, match="test"):
        export(place, tmp_path / "hub", format="hf")
    assert not (tmp_path / "hub").exists()


def test_a_directory_whose_name_is_no_split_is_refused(dataset: Path, tmp_path: Path) -> None:
    place = tmp_path / "parts"
    place.mkdir()
    (place / "my part").symlink_to(dataset)
    with pytest.raises(UsageError, match="my part"):
        export(place, tmp_path / "hub", format="hf")


def test_row_groups_are_bounded_in_bytes(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_module, "GROUP_BYTES", bound := 1_000_000)
    first = next(read_records(dataset))
    digests = [ContentDigest(name=f"f{number}", sha256=f"{number:064}") for number in range(400)]

    def records() -> Iterator[Record]:
        """Return records of about 110 kB each, where one character has three bytes."""
        for number in range(20):
            yield structs.replace(
                first, session_id=number, input=f"echo {number}", output="\u20ac" * 21_000,
                content_digests=digests,
            )  # fmt: skip

    writer_like(dataset, tmp_path / "made", records())
    export(tmp_path / "made", tmp_path / "a.parquet")
    file = pyarrow.parquet.ParquetFile(tmp_path / "a.parquet")
    groups = [file.read_row_group(number) for number in range(file.num_row_groups)]
    assert sum(group.num_rows for group in groups) == 20
    assert bound / 2 < max(group.nbytes for group in groups) <= bound
