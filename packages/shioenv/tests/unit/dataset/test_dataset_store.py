"""Damage that a dataset directory survives, and damage that it refuses."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable
from functools import reduce
from itertools import islice
from operator import getitem, setitem
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from shioenv.dataset.manifest import Manifest, Plan, decode_manifest, read_manifest
from shioenv.dataset.record_reader import read_records
from shioenv.dataset.store import Store
from shioenv.domain.record import Record, encode
from shioenv.errors import (
    DatasetBusyError,
    DatasetCorruptError,
    DatasetMismatchError,
    DatasetStorageError,
    UnknownDatasetError,
)
from shioenv.files.journal import Journal
from shioenv.recording.effort import Line
from support.dataset_fakes import HOME, contents, plan


def record(number: int) -> Record:
    return Record(
        session_id=number,
        input=f"cd {HOME}; echo {number}",
        input_args=["echo", str(number)],
        exit_code=0,
        output=f"{number}\n",
        context_patch="[]",
        irreducibility=1.0,
        volatile=number % 10 == 0,
        n_executions=4,
    )


def line(number: int) -> Line:
    made = record(number)
    return Line(number, encode(made), made.volatile, made.n_executions)


def fill(
    directory: Path, count: int, numbers: Iterable[int] | None = None, asked: Plan | None = None
) -> Manifest:
    with Store(directory, asked or plan(), count, kernel="6.1.0") as store:
        missing = [
            number
            for number in range(count)
            if store.accept(number, record(number).input, record(number).input_args)
        ]
        for number in missing if numbers is None else numbers:
            store.append(line(number))
        return store.manifest


def test_shards_hold_a_thousand_records_and_the_last_the_rest(tmp_path: Path) -> None:
    manifest = fill(tmp_path / "a", 2300)
    assert [shard.records for shard in manifest.shards] == [1000, 1000, 300]
    assert sorted(contents(tmp_path / "a")) == [
        "README.md", "data/00000.ndjson", "data/00001.ndjson", "data/00002.ndjson", "manifest.json",
    ]  # fmt: skip
    assert [one.session_id for one in read_records(tmp_path / "a")] == list(range(2300))
    shard = manifest.shards[0]
    content = (tmp_path / "a/data/00000.ndjson").read_bytes()
    assert shard.sha256 == hashlib.sha256(content).hexdigest()
    assert (shard.volatile, shard.executions) == (100, 4000)
    assert manifest == read_manifest(tmp_path / "a")
    assert manifest.complete
    assert manifest.mean_executions == 4


def test_a_part_has_its_own_records_of_each_shard(tmp_path: Path) -> None:
    numbers = [*range(7, 2300, 10)]
    for asked in (150, len(numbers)):  # a larger part goes on where a smaller one ended
        own = numbers[:asked]
        with Store(tmp_path / "a", plan(), asked, numbers=own, kernel="6.1.0") as store:
            new = [n for n in own if store.accept(n, record(n).input, record(n).input_args)]
            assert new == numbers[0 if asked == 150 else 150 : asked]
            for number in reversed(new):
                store.append(line(number))
            manifest = store.manifest
    assert [shard.records for shard in manifest.shards] == [100, 100, 30]
    assert manifest.complete
    assert [one.session_id for one in read_records(tmp_path / "a")] == numbers


def test_what_was_appended_in_any_order_is_kept_and_only_the_rest_is_asked_for(
    tmp_path: Path,
) -> None:
    fill(tmp_path / "whole", 1200)
    with Store(tmp_path / "a", plan(), 1200, kernel="6.1.0") as store:
        for number in range(700):
            assert store.accept(number, record(number).input, record(number).input_args)
        for number in (5, 3, 1100, 699, 0):
            store.append(line(number))
    with Store(tmp_path / "a", plan(), 1200, kernel="6.1.0") as store:
        assert store.kept == 5
        asked = [
            number
            for number in range(1200)
            if store.accept(number, record(number).input, record(number).input_args)
        ]
        assert asked == sorted(set(range(1200)) - {0, 3, 5, 699, 1100})
        for number in reversed(asked):
            store.append(line(number))
    assert contents(tmp_path / "a") == contents(tmp_path / "whole")


@pytest.mark.parametrize("torn", [1, 100, 5000])
def test_a_torn_journal_loses_only_its_tail(tmp_path: Path, torn: int) -> None:
    fill(tmp_path / "whole", 50)
    fill(tmp_path / "a", 50, range(30))
    journal = tmp_path / "a/data/00000.journal"
    os.truncate(journal, journal.stat().st_size - torn)
    notes: list[str] = []
    Store(tmp_path / "a", plan(), 50, kernel="6.1.0", report=notes.append).close()
    assert "torn" in notes[0]
    fill(tmp_path / "a", 50)
    assert contents(tmp_path / "a") == contents(tmp_path / "whole")


def test_garbage_in_a_journal_is_left_out(tmp_path: Path) -> None:
    fill(tmp_path / "whole", 50)
    fill(tmp_path / "a", 50, range(30))
    with (tmp_path / "a/data/00000.journal").open("ab") as journal:
        journal.write(b"\0" * 512 + b"\n" + line(30).content)
    fill(tmp_path / "a", 50)
    assert contents(tmp_path / "a") == contents(tmp_path / "whole")


@pytest.mark.parametrize(
    ("was", "now"),
    [
        (b"echo 7", b"echo 8"),
        (b'"session_id":7,', b'"session_id":8,'),
        (b'"output":"7', b'"output":"8'),
        (b'"n_executions":4', b'"n_executions":5'),
    ],
)
def test_a_changed_byte_in_a_journal_costs_only_its_record(
    tmp_path: Path, was: bytes, now: bytes
) -> None:
    fill(tmp_path / "whole", 50)
    fill(tmp_path / "a", 50, range(30))
    journal = tmp_path / "a/data/00000.journal"
    lines = journal.read_bytes().splitlines(keepends=True)
    changed = lines[7].replace(was, now, 1)
    assert changed != lines[7]
    journal.write_bytes(b"".join([*lines[:7], changed, *lines[8:]]))
    with Store(tmp_path / "a", plan(), 50, kernel="6.1.0") as store:
        assert store.kept == 29
    fill(tmp_path / "a", 50)
    assert contents(tmp_path / "a") == contents(tmp_path / "whole")


def test_a_journal_changed_while_it_is_open_is_not_sealed(tmp_path: Path) -> None:
    with Store(tmp_path, plan(), 3, kernel="6.1.0") as store:
        for number in range(3):
            store.accept(number, record(number).input, record(number).input_args)
        store.append(line(0))
        store.append(line(1))
        journal = tmp_path / "data/00000.journal"
        journal.write_bytes(journal.read_bytes().replace(b'"output":"1', b'"output":"2'))
        with pytest.raises(DatasetStorageError, match="changed by another process"):
            store.append(line(2))
    assert fill(tmp_path, 3).complete
    assert [one.output for one in read_records(tmp_path)] == ["0\n", "1\n", "2\n"]


def test_a_damaged_line_of_a_journal_costs_only_its_record(tmp_path: Path) -> None:
    fill(tmp_path / "whole", 50)
    fill(tmp_path / "a", 50, range(30))
    journal = tmp_path / "a/data/00000.journal"
    lines = journal.read_bytes().splitlines(keepends=True)
    lines[3] = lines[3].replace(b'"input":', b'"inpxt":')
    lines[7] = lines[7][:40] + b"\n" + lines[7][40:]
    journal.write_bytes(b"".join(lines))
    notes: list[str] = []
    with Store(tmp_path / "a", plan(), 50, kernel="6.1.0", report=notes.append) as store:
        assert store.kept == 28
    assert "skipped 3 damaged lines; the others are kept" in notes[0]
    fill(tmp_path / "a", 50)
    assert contents(tmp_path / "a") == contents(tmp_path / "whole")


@pytest.mark.parametrize("step", ["rename", "manifest", "unlink"])
def test_a_shard_half_finished_at_any_step_is_finished_again(
    tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "whole", 1500)

    class Killed(BaseException):
        pass

    def killed(*arguments: object) -> Any:
        raise Killed

    targets = {
        "rename": (Path, "rename"),
        "manifest": (Store, "_write_manifest"),
        "unlink": (Journal, "remove"),
    }
    store = Store(tmp_path / "a", plan(), 1500, kernel="6.1.0")
    for number in range(1000):
        store.accept(number, record(number).input, record(number).input_args)
    for number in range(999):
        store.append(line(number))
    with monkeypatch.context() as patch:
        patch.setattr(*targets[step], killed)
        with pytest.raises(Killed):
            store.append(line(999))
    store.close()
    fill(tmp_path / "a", 1500)
    assert contents(tmp_path / "a") == contents(tmp_path / "whole")


def test_a_dataset_is_made_longer(tmp_path: Path) -> None:
    fill(tmp_path / "whole", 2100)
    for count in (300, 1300, 2000, 2100):
        fill(tmp_path / "a", count)
    assert contents(tmp_path / "a") == contents(tmp_path / "whole")


def test_a_dataset_is_never_cut(tmp_path: Path) -> None:
    fill(tmp_path, 300)
    before = contents(tmp_path)
    with pytest.raises(
        DatasetMismatchError, match="count: 300 records in the dataset, 200 requested"
    ):
        fill(tmp_path, 200)
    assert contents(tmp_path) == before


def test_fewer_than_first_wanted_is_fine_while_no_more_are_there(tmp_path: Path) -> None:
    fill(tmp_path / "whole", 100)
    fill(tmp_path / "a", 2000, range(40))
    fill(tmp_path / "a", 100)
    assert contents(tmp_path / "a") == contents(tmp_path / "whole")


def test_other_settings_are_refused_with_each_difference(tmp_path: Path) -> None:
    fill(tmp_path, 10)
    before = contents(tmp_path)
    other = plan(
        seed=8, budget=64, sampler="ucs", policy="lengths", composite_share=0.0,
        system_digest="e" * 8, packages={"bash": "6"},
    )  # fmt: skip
    with pytest.raises(DatasetMismatchError) as caught:
        fill(tmp_path, 10, asked=other)
    assert caught.value.differences == (
        'sampler: "gcs" in the dataset, "ucs" requested',
        'policy: "mixed" in the dataset, "lengths" requested',
        "seed: 7 in the dataset, 8 requested",
        "budget: 8 in the dataset, 64 requested",
        'system.digest: "d1935" in the dataset, "eeeeeeee" requested',
        "composite_share: 0.25 in the dataset, 0.0 requested",
    )
    assert "seed: 7 in the dataset, 8 requested" in str(caught.value)
    assert contents(tmp_path) == before


def test_a_second_generator_is_refused(tmp_path: Path) -> None:
    with Store(tmp_path, plan(), 10, kernel="6.1.0"), pytest.raises(DatasetBusyError):
        Store(tmp_path, plan(), 10, kernel="6.1.0")
    fill(tmp_path, 10)


def test_the_lock_is_the_directory_itself(tmp_path: Path) -> None:
    with Store(tmp_path, plan(), 10, kernel="6.1.0"):
        handle = os.open(tmp_path, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(handle)


@pytest.mark.parametrize("name", ["notes.txt", ".git", "data/x"])
def test_a_directory_of_somebody_else_is_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")
    with pytest.raises(DatasetCorruptError, match="neither empty nor a dataset"):
        fill(tmp_path, 10)
    assert contents(tmp_path) == {name: b"mine"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not a manifest"),
        (b"{}", "is not a manifest"),
        (b'{"name": "package"}', "is not a manifest"),
        (b'{"format": "shioenv-dataset"}', "has no 'schema_version'"),
        (
            b'{"format": "shioenv-dataset", "schema_version": 99}',
            "unsupported schema_version 99; this release reads up to 7",
        ),
    ],
)
def test_a_damaged_manifest_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    fill(tmp_path, 10)
    (tmp_path / "manifest.json").write_bytes(content)
    with pytest.raises(DatasetCorruptError, match=message):
        fill(tmp_path, 10)


def without(*path: Any) -> Callable[[Any], object]:
    return lambda document: reduce(getitem, path[:-1], document).pop(path[-1])


def changed(value: object, *path: Any) -> Callable[[Any], object]:
    return lambda document: setitem(reduce(getitem, path[:-1], document), path[-1], value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (changed("7", "seed"), r"expected int, got str - at \$.seed"),
        (changed(True, "count"), r"expected int, got bool - at \$.count"),
        (
            changed([3], "grammar", "commands"),
            r"got int - at \$.grammar.commands\[0\]",
        ),
        (
            changed("2", "shards", 0, "records"),
            r"got str - at \$.shards\[0\].records",
        ),
        (changed("1", "limits", "wall_seconds"), r"int or float, got str - at \$.limits"),
        (changed(1, "limits", "patience"), "patience"),
        (changed(0.0, "limits", "cpu_seconds"), "the limit cpu_seconds is 0.0"),
        (changed(1, "shards", 0, "size"), r"unknown field size - at \$.shards\[0\]"),
        (changed(-1, "budget"), "budget is -1"),
        (changed({"kind": "x"}, "origin"), "invalid origin"),
        (without("horizon"), "has no 'horizon'"),
        (without("system", "digest"), r"missing required field digest - at \$.system"),
        (without("shards", 0, "sha256"), r"missing required field sha256 - at \$.shards\[0\]"),
    ],
)
def test_what_is_wrong_in_a_manifest_is_named_with_its_place(
    tmp_path: Path, change: Callable[[Any], object], message: str
) -> None:
    document = json.loads(fill(tmp_path, 10).encode())
    change(document)
    with pytest.raises(DatasetCorruptError, match=message):
        decode_manifest(json.dumps(document).encode(), "manifest.json")


def test_a_changed_shard_is_refused_and_left_to_repair(tmp_path: Path) -> None:
    fill(tmp_path, 1200)
    shard = tmp_path / "data/00000.ndjson"
    shard.write_bytes(shard.read_bytes().replace(b"echo 17", b"echo 18"))
    before = contents(tmp_path)
    with pytest.raises(DatasetCorruptError, match=r"00000\.ndjson was changed") as caught:
        fill(tmp_path, 1200)
    assert caught.value.hint == f"shioenv dataset repair {tmp_path}"
    assert contents(tmp_path) == before


def test_a_changed_shard_of_an_import_is_made_again_by_the_import(tmp_path: Path) -> None:
    listed = plan(origin={"kind": "commands"})
    fill(tmp_path, 1200, asked=listed)
    whole = contents(tmp_path)
    shard = tmp_path / "data/00000.ndjson"
    shard.write_bytes(b"")
    with pytest.raises(DatasetCorruptError) as caught:
        fill(tmp_path, 1200, asked=listed)
    assert str(caught.value.hint).startswith(f"remove {shard} and import the same list again")
    shard.unlink()
    fill(tmp_path, 1200, asked=listed)
    assert contents(tmp_path) == whole


def test_a_shard_that_is_gone_stays_listed_until_it_is_made_again(tmp_path: Path) -> None:
    listed = fill(tmp_path, 1200).shards
    whole = contents(tmp_path)
    shard = tmp_path / "data/00000.ndjson"
    shard.rename(tmp_path / "elsewhere")
    notes: list[str] = []
    with Store(tmp_path, plan(), 1200, kernel="6.1.0", report=notes.append) as store:
        assert store.kept == 200
    assert notes == ["data/00000.ndjson is missing and will be generated again"]
    assert read_manifest(tmp_path).shards == listed
    fill(tmp_path, 1200, range(10))
    assert read_manifest(tmp_path).shards == listed
    (tmp_path / "elsewhere").rename(shard)
    with Store(tmp_path, plan(), 1200, kernel="6.1.0") as store:
        assert store.kept == 1200
    assert contents(tmp_path) == whole
    shard.unlink()
    fill(tmp_path, 1200)
    assert contents(tmp_path) == whole


@pytest.mark.parametrize("directory", [True, False])
def test_a_dataset_without_any_of_its_shards_is_left_alone(tmp_path: Path, directory: bool) -> None:
    fill(tmp_path / "a", 1200)
    shutil.rmtree(tmp_path / "a/data")
    if directory:
        (tmp_path / "a/data").mkdir()
    (tmp_path / "a/.tmp-x").touch()
    before = sorted(tmp_path.rglob("*")), contents(tmp_path / "a")
    with pytest.raises(DatasetCorruptError, match="lists finished shards, but none") as caught:
        fill(tmp_path / "a", 1200)
    assert "restore the files" in str(caught.value)
    assert (sorted(tmp_path.rglob("*")), contents(tmp_path / "a")) == before


@pytest.mark.parametrize("count", [1200, 1300])
def test_a_shard_made_again_with_other_bytes_is_noted(tmp_path: Path, count: int) -> None:
    was = fill(tmp_path, 1200).shards[1]
    (tmp_path / was.file).unlink()
    with Store(tmp_path, plan(), count, kernel="6.1.0") as store:
        for number in range(count):
            made = replace(record(number), output="other\n" if number == 1100 else f"{number}\n")
            if store.accept(number, made.input, made.input_args):
                store.append(Line(number, encode(made), made.volatile, made.n_executions))
    manifest = read_manifest(tmp_path)
    noted = {"file": was.file, "was_sha256": was.sha256, "volatile": (count - 1000) // 10}
    assert manifest.repaired == (noted,)
    assert manifest.complete
    assert fill(tmp_path, count) == manifest


def test_a_shard_made_longer_while_it_is_gone_is_not_called_another(tmp_path: Path) -> None:
    fill(tmp_path / "whole", 1300)
    shard = fill(tmp_path / "a", 1200).shards[1]
    (tmp_path / "a" / shard.file).unlink()
    fill(tmp_path / "a", 1300)
    assert contents(tmp_path / "a") == contents(tmp_path / "whole")


def test_a_shard_is_not_made_again_of_other_inputs(tmp_path: Path) -> None:
    shards = fill(tmp_path, 1200).shards
    (tmp_path / shards[1].file).unlink()
    with Store(tmp_path, plan(), 1200, kernel="6.1.0") as store:
        for number in range(1199):
            store.accept(number, record(number).input, record(number).input_args)
        with pytest.raises(DatasetCorruptError, match="inputs of its seed"):
            store.accept(1199, f"cd {HOME}; ls", ["ls"])
    assert read_manifest(tmp_path).shards == shards


def test_a_shard_made_again_and_not_yet_listed_is_listed_by_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    was = fill(tmp_path, 1200).shards[1]
    (tmp_path / was.file).unlink()
    other = [replace(record(number), output="other\n") for number in range(1000, 1200)]
    with Store(tmp_path, plan(), 1200, kernel="6.1.0") as store, monkeypatch.context() as patch:
        for number in range(1200):
            store.accept(number, record(number).input, record(number).input_args)
        patch.setattr(Store, "_write_manifest", lambda self, manifest: 1 / 0)
        lines = [Line(one.session_id, encode(one), one.volatile, 4) for one in other]
        for one in lines[:-1]:
            store.append(one)
        with pytest.raises(ZeroDivisionError):
            store.append(lines[-1])
    manifest = fill(tmp_path, 1200)
    assert [one["was_sha256"] for one in manifest.repaired] == [was.sha256]
    assert list(read_records(tmp_path))[1000:] == other


def test_a_shard_of_nobody_is_refused(tmp_path: Path) -> None:
    fill(tmp_path, 1200, range(3))
    (tmp_path / "data/00001.ndjson").write_bytes(line(1000).content)
    with pytest.raises(DatasetCorruptError, match="is not in"):
        fill(tmp_path, 1200)


def test_finished_shards_of_another_stream_are_noticed(tmp_path: Path) -> None:
    fill(tmp_path, 3)
    with Store(tmp_path, plan(), 3, kernel="6.1.0") as store:
        for number in range(2):
            store.accept(number, record(number).input, record(number).input_args)
        with pytest.raises(DatasetCorruptError, match="inputs of its seed"):
            store.accept(2, f"cd {HOME}; ls", ["ls"])


def test_a_record_of_another_input_in_a_journal_is_made_again(tmp_path: Path) -> None:
    fill(tmp_path / "whole", 30)
    directory = tmp_path / "a"
    strange = replace(record(4), input=f"cd {HOME}; ls", input_args=["ls"], volatile=True)
    with Store(directory, plan(), 30, kernel="6.1.0") as store:
        store.append(Line(4, encode(strange), True, 9))
        store.append(line(5))
    notes: list[str] = []
    with Store(directory, plan(), 30, kernel="6.1.0", report=notes.append) as store:
        asked = [
            number
            for number in range(6)
            if store.accept(number, record(number).input, record(number).input_args)
        ]
        assert asked == [0, 1, 2, 3, 4]
        store.append(line(4))
    assert notes == [f"{directory}/data/00000.journal: record 4 has another input and is skipped"]
    with Store(directory, plan(), 30, kernel="6.1.0") as store:
        for number in range(6):
            missing = store.accept(number, record(number).input, record(number).input_args)
            assert missing == (number < 4)
    fill(directory, 30)
    assert contents(directory) == contents(tmp_path / "whole")


def test_half_written_files_are_cleared_away(tmp_path: Path) -> None:
    tmp_path.joinpath(".tmp-manifest.json").write_bytes(b"{")
    fill(tmp_path, 10, range(3))
    (tmp_path / "data/.tmp-00000.ndjson").write_bytes(b"{")
    fill(tmp_path, 10)
    assert sorted(contents(tmp_path)) == ["README.md", "data/00000.ndjson", "manifest.json"]


def test_what_a_host_shows_of_the_systems_files_is_noted(tmp_path: Path) -> None:
    notes: list[str] = []
    with Store(tmp_path, plan(), 10, kernel="6.1.0", report=notes.append) as store:
        store.made_over("names over ext4")
        store.made_over("part over xfs")
        store.made_over("names over ext4")
    assert read_manifest(tmp_path).layers == ("names over ext4", "part over xfs")
    assert notes == [
        "note: the lower layer is part over xfs here, earlier records have names over ext4"
    ]


def test_a_new_kernel_is_added_and_told(tmp_path: Path) -> None:
    fill(tmp_path, 10, range(3))
    notes: list[str] = []
    store = Store(tmp_path, plan(), 10, kernel="6.9.0", report=notes.append)
    store.close()
    assert store.manifest.kernels == ("6.1.0", "6.9.0")
    assert notes == ["note: this host's kernel is 6.9.0, earlier records have 6.1.0"]
    done = fill(tmp_path, 10)
    with Store(tmp_path, plan(), 10, kernel="7.0.0") as store:  # nothing left to do
        assert store.manifest.kernels == done.kernels


def test_a_full_disk_is_an_error_that_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "whole", 50)
    write = os.pwrite

    def full(file: int, content: bytes, offset: int) -> int:
        if offset > 2000:
            if len(content) > 20:
                return write(file, content[:20], offset)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(file, content, offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(DatasetStorageError, match="No space left on device") as caught:
            fill(tmp_path / "a", 50)
    assert "the same command to resume" in str(caught.value)
    fill(tmp_path / "a", 50)
    assert contents(tmp_path / "a") == contents(tmp_path / "whole")


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.EDQUOT])
def test_forbidden_writes_say_what_to_do(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path, *arguments: Any, **keywords: Any) -> None:
        raise OSError(number, os.strerror(number), str(self))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(DatasetStorageError) as caught:
        fill(tmp_path / "a", 5)
    assert caught.value.hint
    assert str(tmp_path / "a") in str(caught.value)


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(DatasetStorageError, match="file"):
        fill(tmp_path / "file", 5)
    with pytest.raises(DatasetStorageError, match="file"):
        fill(tmp_path / "file/inside", 5)


def test_there_is_no_dataset_where_there_is_no_manifest(tmp_path: Path) -> None:
    with pytest.raises(UnknownDatasetError):
        read_records(tmp_path / "nowhere")


def test_reading_names_file_and_line(tmp_path: Path) -> None:
    fill(tmp_path, 5)
    shard = tmp_path / "data/00000.ndjson"
    shard.write_bytes(shard.read_bytes().replace(b'"session_id":3', b'"session_id":"3"'))
    with pytest.raises(DatasetCorruptError, match=r"00000\.ndjson:4: expected int, got str"):
        list(read_records(tmp_path))


@pytest.mark.parametrize("check", [True, False])
def test_shards_with_fewer_records_than_listed_are_noticed(tmp_path: Path, check: bool) -> None:
    fill(tmp_path, 1200)
    (tmp_path / "data/00000.ndjson").write_bytes(b"")
    with pytest.raises(DatasetCorruptError, match=r"00000\.ndjson has 0 records, but"):
        list(read_records(tmp_path, check=check))


def test_checked_reading_gives_no_record_of_a_changed_shard(tmp_path: Path) -> None:
    fill(tmp_path, 1200)
    shard = tmp_path / "data/00001.ndjson"
    content = shard.read_bytes()
    shard.write_bytes(content.replace(b'"output":"1100', b'"output":"1101'))
    assert len(list(read_records(tmp_path))) == 1200
    records = read_records(tmp_path, check=True)
    assert [one.session_id for one in islice(records, 1000)] == list(range(1000))
    with pytest.raises(DatasetCorruptError, match=r"00001\.ndjson was changed: its SHA-256 is"):
        next(records)
    shard.write_bytes(content.replace(b'"exit_code":0', b'"exit_code":NaN', 1))
    with pytest.raises(DatasetCorruptError, match=r"00001\.ndjson:1: .*not a finite number"):
        list(read_records(tmp_path, check=True))


def test_plans_and_manifests_read_back(tmp_path: Path) -> None:
    manifest = fill(tmp_path, 1100)
    assert decode_manifest(manifest.encode(), "x") == manifest
    assert Plan.from_json(plan().to_json()) == plan()
    assert plan(seed=3) != plan()
