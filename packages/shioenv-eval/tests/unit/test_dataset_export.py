"""Exports hold every record, with types that do not depend on the values, and are written whole."""

from __future__ import annotations

import builtins
import errno
import gzip
import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from msgspec import convert, structs

from shioenv.dataset.manifest import read_manifest
from shioenv.dataset.record_reader import read_records
from shioenv.domain.record import NAMES, Effect, Record, ScoredSegment
from shioenv.errors import (
    DatasetCorruptError,
    MissingExtraError,
    OutputExistsError,
    UsageError,
)
from shioenv_eval import export as export_module
from shioenv_eval.export import Exported, export, schema
from support.dataset_fakes import make

COUNT = 25


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("export") / "dataset"
    make(directory, COUNT)
    return directory


def back(row: dict[str, Any]) -> Record:
    return convert(row, Record)


def lines(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(directory.glob("data/*.ndjson")))


def test_parquet_holds_the_records(dataset: Path, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    done = export(
        dataset, tmp_path / "a.parquet", format="parquet", report=lambda *one: told.append(one)
    )
    table = pyarrow.parquet.read_table(tmp_path / "a.parquet")
    assert table.schema.remove_metadata() == schema(pyarrow)
    assert [back(row) for row in table.to_pylist()] == list(read_records(dataset))
    size = (tmp_path / "a.parquet").stat().st_size
    assert done == Exported(tmp_path / "a.parquet", "parquet", COUNT, 1, size)
    assert told[-1] == (COUNT, COUNT)


def test_columns_follow_from_the_fields_of_a_record() -> None:
    columns = schema(pyarrow)
    assert columns.names == list(NAMES)
    assert [one.name for one in columns if one.nullable] == [
        "irreducibility", "irreducibility_strict", "necessary", "standard_error", "noise_threshold",
        "stdout", "stderr", "output_b64", "mistake",
    ]  # fmt: skip
    shown = dict(zip(NAMES, columns.types, strict=True))
    assert (shown["exit_code"], shown["exact"], shown["irreducibility"]) == (
        pyarrow.int64(), pyarrow.bool_(), pyarrow.float64(),
    )  # fmt: skip
    assert shown["limits_hit"] == pyarrow.list_(pyarrow.string())
    assert [one.name for one in shown["content_digests"].value_type] == ["name", "sha256"]
    segment = shown["segments"].value_type
    assert [one.name for one in segment] == list(ScoredSegment.__struct_fields__)
    effect = segment.field("arguments").type.value_type
    assert [one.name for one in effect] == list(Effect.__struct_fields__)


def test_the_hub_layout_opens_as_a_dataset(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(export_module, "FILE_RECORDS", 10)
    done = export(dataset, tmp_path / "hub", format="hf", licence="cc-by-4.0")
    names = sorted(str(path.relative_to(tmp_path / "hub")) for path in done.output.rglob("*.*"))
    assert names == [
        "README.md",
        "contexts/00000.json",
        "data/train-00000-of-00003.parquet",
        "data/train-00001-of-00003.parquet",
        "data/train-00002-of-00003.parquet",
        "source-manifest.json",
    ]
    import datasets

    opened = datasets.load_dataset(
        str(tmp_path / "hub"), split="train", cache_dir=str(tmp_path / "cache")
    )
    assert [back(row) for row in opened] == list(read_records(dataset))
    assert done.files == 3


def test_the_card_says_what_it_is(dataset: Path, tmp_path: Path) -> None:
    export(dataset, tmp_path / "hub", format="hf", licence="cc-by-4.0")
    text = (tmp_path / "hub/README.md").read_text()
    assert text.startswith("---\nlicense: cc-by-4.0\n")
    assert "size_categories:\n- n<1K\n" in text
    for said in (f"| records | {COUNT} (", "gcs, mixed policy", "| seed | 7 |", "fake", "d1935"):
        assert said in text
    for name in NAMES:
        assert f"| `{name}` |" in text
    manifest = (tmp_path / "hub/source-manifest.json").read_bytes()
    assert manifest == (dataset / "manifest.json").read_bytes()


def test_json_lines_are_the_shards_own(dataset: Path, tmp_path: Path) -> None:
    for name in ("a.jsonl", "a.jsonl.gz", "a.jsonl.zst"):
        export(dataset, tmp_path / name, format="jsonl")
    assert (tmp_path / "a.jsonl").read_bytes() == lines(dataset)
    assert gzip.decompress((tmp_path / "a.jsonl.gz").read_bytes()) == lines(dataset)
    with pyarrow.input_stream(str(tmp_path / "a.jsonl.zst"), compression="zstd") as stream:
        assert stream.read() == lines(dataset)


@pytest.mark.parametrize("name", ["a.parquet", "a.jsonl", "a.jsonl.gz", "hub"])
def test_the_same_dataset_gives_the_same_bytes(dataset: Path, tmp_path: Path, name: str) -> None:
    kind = {"hub": "hf"}.get(name, name.split(".")[1] if "." in name else "")
    (tmp_path / "x").mkdir()
    first, second = tmp_path / name, tmp_path / "x" / name
    for output in (first, second):
        export(dataset, output, format=kind)
    if kind == "hf":
        first, second = (one / "data/train-00000-of-00001.parquet" for one in (first, second))
    assert first.read_bytes() == second.read_bytes()


def test_row_groups_are_bounded_by_records_and_text(dataset: Path) -> None:
    (record,) = islice(read_records(dataset), 1)

    def many(count: int, text: str) -> Iterator[Record]:
        return (structs.replace(record, output=text) for _ in range(count))

    groups = [len(group) for group in export_module._groups(many(25_000, "x"))]
    assert groups == [10_000, 10_000, 5_000]
    long = "x" * (export_module.GROUP_BYTES // 4)
    assert [len(group) for group in export_module._groups(many(8, long))] == [3, 3, 2]


@pytest.mark.parametrize(("kind", "name"), [("parquet", "o"), ("jsonl", "o"), ("hf", "o")])
def test_nothing_is_overwritten(dataset: Path, tmp_path: Path, kind: str, name: str) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(OutputExistsError):
        export(dataset, tmp_path / name, format=kind)
    assert (tmp_path / name).read_text() == "mine"


@pytest.mark.parametrize("links", [True, False])
def test_what_came_to_be_there_meanwhile_is_not_overwritten_either(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    if not links:
        monkeypatch.setattr(os, "link", unsupported)

    def other(done: int, count: int) -> None:
        (tmp_path / "o").write_text("mine")

    with pytest.raises(OutputExistsError):
        export(dataset, tmp_path / "o", format="jsonl", report=other)
    assert (tmp_path / "o").read_text() == "mine"
    export(dataset, tmp_path / "p", format="jsonl")
    assert (tmp_path / "p").read_bytes() == lines(dataset)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["o", "p"]


def unsupported(*_: object, **__: object) -> None:
    raise OSError(errno.EPERM, "no hard links here")


def test_two_exports_to_one_name_do_not_mix(dataset: Path, tmp_path: Path) -> None:
    def other(done: int, count: int) -> None:
        if done == 1:
            export(dataset, tmp_path / "o", format="jsonl")

    with pytest.raises(OutputExistsError):
        export(dataset, tmp_path / "o", format="jsonl", report=other)
    assert (tmp_path / "o").read_bytes() == lines(dataset)
    assert [path.name for path in tmp_path.iterdir()] == ["o"]


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "hf"])
def test_all_of_an_export_is_on_the_disk(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    synced = set()
    real = os.fsync

    def fsync(handle: int) -> None:
        synced.add(os.fstat(handle).st_ino)
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    export(dataset, tmp_path / "out", format=kind)
    written = [tmp_path, *tmp_path.rglob("*")]
    assert {path.stat().st_ino for path in written} <= synced


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "hf"])
def test_an_export_that_fails_leaves_nothing(dataset: Path, tmp_path: Path, kind: str) -> None:
    shard = dataset / "data/00000.ndjson"
    content = shard.read_bytes()
    try:
        shard.write_bytes(content.replace(b'"exit_code":0', b'"exit_code":1', 1))
        with pytest.raises(DatasetCorruptError, match="was changed"):
            export(dataset, tmp_path / "out", format=kind)
    finally:
        shard.write_bytes(content)
    assert list(tmp_path.iterdir()) == []


def test_requests_that_cannot_be_meant(dataset: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown format 'parket'") as caught:
        export(dataset, tmp_path / "out", format="parket")
    assert caught.value.hint == "did you mean parquet?"
    (tmp_path / "empty").mkdir()
    for count, why in ((0, "has no records"), (COUNT, f"is not finished: 0 of {COUNT} records")):
        manifest = replace(read_manifest(dataset), shards=(), count=count)
        (tmp_path / "empty/manifest.json").write_bytes(manifest.encode())
        with pytest.raises(UsageError, match=why):
            export(tmp_path / "empty", tmp_path / "out", format="jsonl")


@pytest.mark.parametrize(
    "name", ["x.xml", "x.csv", "x.json", "x.gz", "x.jsonl.xz", "x.parquet.gz", "x.JSONL", "v1.2"]
)
def test_an_ending_that_says_no_format_is_refused(dataset: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="unknown extension") as caught:
        export(dataset, tmp_path / name)
    for ending in (".parquet", ".jsonl", ".jsonl.gz", ".jsonl.zst", "hf"):
        assert ending in str(caught.value.hint)
    assert not any(tmp_path.iterdir())
    assert export(dataset, tmp_path / name, format="jsonl").output.is_file()


@pytest.mark.parametrize(
    ("name", "kind"), [("x.jsonl", "hf"), ("x.parquet", "jsonl"), ("x.jsonl.gz", "parquet")]
)
def test_a_format_that_the_name_contradicts_is_refused(
    dataset: Path, tmp_path: Path, name: str, kind: str
) -> None:
    with pytest.raises(UsageError, match=f"the format is {kind}"):
        export(dataset, tmp_path / name, format=kind)
    assert not any(tmp_path.iterdir())


def test_a_missing_library_is_named_with_its_extra(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", without)
    for kind, name in (("parquet", "a"), ("hf", "a")):
        with pytest.raises(MissingExtraError, match="needs pyarrow") as caught:
            export(dataset, tmp_path / name, format=kind)
        assert caught.value.hint == "pip install 'shioenv[export]'"
        assert caught.value.exit_status == 3
    export(dataset, tmp_path / "a.jsonl", format="jsonl")
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]
