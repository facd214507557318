"""Anything in place of a dataset's file is one error with file and reason, and nothing blocks."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from shioenv.cli.main import app
from shioenv.dataset.importers import kind_of
from shioenv.dataset.manifest import read_manifest
from shioenv.dataset.questions import read_questions
from shioenv.dataset.record_reader import read_contexts, read_records
from shioenv.dataset.repair import repair
from shioenv.dataset.select import Selection, select
from shioenv.dataset.verify import verify
from shioenv.errors import (
    DatasetCorruptError,
    ShioenvError,
    SuiteError,
    TaskError,
    UnknownSystemError,
)
from shioenv_agents.tasks.task import read_tasks
from shioenv_eval.export import export
from shioenv_eval.exported_records import import_records
from shioenv_eval.suite import read_suite
from support.dataset_fakes import make


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("damaged") / "dataset"
    make(directory, 12)
    return directory


def linked(to: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(to)


def hole(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


def holding(content: bytes) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_bytes(content)

    return write


INSTEAD: dict[str, Callable[[Path], None]] = {
    "a pipe": os.mkfifo,
    "a device without an end": linked("/dev/zero"),
    "an empty device": linked("/dev/null"),
    "a directory": Path.mkdir,
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a link to nothing": linked("nothing"),
    "a terabyte without a line": hole,
    "nothing in it": Path.touch,
    "deep lists": holding(b"[" * 200_000 + b"]" * 200_000),
    "deep objects": holding(b'{"format":' * 5000 + b"1" + b"}" * 5000),
    "objects as deep as Python goes": holding(b'{"format":' * 800 + b"1" + b"}" * 800),
    "a list": holding(b"[]\n"),
    "a number": holding(b"1e999\n"),
    "a long number": holding(b"9" * 10_000),
    "null": holding(b"null\n"),
    "no UTF-8": holding(b"\xff\xfe\xfd\n"),
    "NUL": holding(bytes(3000)),
}


def tools(directory: Path, out: Path) -> Iterator[Callable[[], object]]:
    """Return everything that reads a dataset."""
    yield lambda: list(read_records(directory))
    yield lambda: list(read_records(directory, check=True, unfinished=True))
    yield lambda: read_contexts(directory)
    yield lambda: export(directory, out / "a.jsonl")
    yield lambda: select(directory, out / "selected", Selection())
    yield lambda: repair(directory)
    yield lambda: make(directory, 12)
    yield lambda: kind_of(directory)


def fault(tool: Callable[[], object]) -> ShioenvError | None:
    try:
        tool()
    except ShioenvError as error:
        return error
    return None


@pytest.mark.parametrize("file", ["manifest.json", "data/00000.ndjson", "contexts/00000.json"])
@pytest.mark.parametrize("place", INSTEAD.values(), ids=INSTEAD)
def test_a_file_that_is_something_else_is_one_error(
    dataset: Path, tmp_path: Path, file: str, place: Callable[[Path], None]
) -> None:
    shutil.copytree(dataset, tmp_path / "dataset")
    (tmp_path / "dataset" / file).unlink()
    place(tmp_path / "dataset" / file)
    if file != "manifest.json":
        assert not verify(tmp_path / "dataset").ok
    found = [error for tool in tools(tmp_path / "dataset", tmp_path) if (error := fault(tool))]
    assert len(found) > 1
    for error in found:
        assert str(tmp_path) in error.message or isinstance(error, UnknownSystemError)
        assert len(error.message) < 1000


@pytest.mark.parametrize("place", INSTEAD.values(), ids=INSTEAD)
@pytest.mark.parametrize("read", [read_suite, read_tasks, read_questions])
def test_a_suite_or_tasks_that_are_something_else_are_one_error(
    tmp_path: Path, read: Callable[[Path], object], place: Callable[[Path], None]
) -> None:
    place(tmp_path / "file")
    if read is read_questions and (tmp_path / "file").is_file():
        return  # any text is an input
    with pytest.raises((SuiteError, TaskError), match="file"):
        read(tmp_path / "file")


@pytest.mark.parametrize("place", INSTEAD.values(), ids=INSTEAD)
def test_an_export_that_holds_something_else_is_one_error(
    dataset: Path, tmp_path: Path, place: Callable[[Path], None]
) -> None:
    export(dataset, tmp_path / "hub")
    files = [path for path in (tmp_path / "hub").rglob("*.*") if path.suffix != ".md"]
    for path in files:
        path.rename(tmp_path / "aside")
        place(path)
        with pytest.raises(ShioenvError, match=str(tmp_path)):
            import_records(tmp_path / "hub", tmp_path / "again")
        assert not (tmp_path / "again").exists()
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        (tmp_path / "aside").rename(path)
    import_records(tmp_path / "hub", tmp_path / "again")


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Generate the paths of all values in a document."""
    yield path
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, part in inner:
        yield from leaves(part, (*path, key))


OTHERS: tuple[Any, ...] = (
    None, True, -1, 0, 2**63, 10**400, 1.5, float("nan"), "", "\0", "../../../etc/passwd",
    "x" * 100_000, [], {}, [[]], {"a": {}}, [None], json.loads("[" * 90 + "]" * 90),
)  # fmt: skip


def test_every_part_of_a_manifest_may_be_anything(dataset: Path, tmp_path: Path) -> None:
    shutil.copytree(dataset, tmp_path / "dataset")
    path = tmp_path / "dataset/manifest.json"
    whole = path.read_text()
    places = list(leaves(json.loads(whole)))
    for number, place in enumerate(places):
        for other in OTHERS if place else ():
            document = json.loads(whole)
            part = document
            for key in place[:-1]:
                part = part[key]
            part[place[-1]] = other
            path.write_text(json.dumps(document))
            error = fault(lambda: read_manifest(tmp_path / "dataset"))
            if error is not None:
                assert len(error.message) < 1000, (place, str(other)[:50])
                continue
            for words in (["show"], ["stats"]) if number % 15 == 0 else ():
                result = CliRunner().invoke(app, ["dataset", *words, str(tmp_path / "dataset")])
                known = (SystemExit, type(None))
                assert isinstance(result.exception, known), (place, str(other)[:50])


@pytest.mark.parametrize(
    "name", ["../../x.json", "/etc/passwd", "contexts/../x", "\0", "contexts/0.json"]
)
def test_a_context_lies_where_contexts_lie(dataset: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(dataset, tmp_path / "dataset")
    path = tmp_path / "dataset/manifest.json"
    document = json.loads(path.read_text())
    document["contexts"][0]["file"] = name
    path.write_text(json.dumps(document))
    with pytest.raises(DatasetCorruptError, match="invalid name of a context"):
        read_contexts(tmp_path / "dataset")


def test_a_shard_that_is_listed_often_is_not_read_often(dataset: Path, tmp_path: Path) -> None:
    shutil.copytree(dataset, tmp_path / "dataset")
    path = tmp_path / "dataset/manifest.json"
    document = json.loads(path.read_text())
    document["shards"] *= 3
    path.write_text(json.dumps(document))
    with pytest.raises(DatasetCorruptError, match="is listed after shard 0"):
        read_manifest(tmp_path / "dataset")


@pytest.mark.parametrize("place", [os.mkfifo, linked("/dev/zero"), Path.mkdir, linked("x"), hole])
def test_a_journal_that_is_something_else_is_one_error(
    dataset: Path, tmp_path: Path, place: Callable[[Path], None]
) -> None:
    shutil.copytree(dataset, tmp_path / "dataset")
    document = json.loads((tmp_path / "dataset/manifest.json").read_text())
    (tmp_path / "dataset/manifest.json").write_text(json.dumps({**document, "count": 1500}))
    place(tmp_path / "dataset/data/00001.journal")
    if place is not hole and not (tmp_path / "dataset/data/00001.journal").is_symlink():
        with pytest.raises(ShioenvError, match=r"00001\.journal"):
            list(read_records(tmp_path / "dataset", unfinished=True))
    for words in (["stats"], ["show"], ["verify"]):
        result = CliRunner().invoke(app, ["dataset", *words, str(tmp_path / "dataset")])
        assert isinstance(result.exception, SystemExit | None), result.exception
