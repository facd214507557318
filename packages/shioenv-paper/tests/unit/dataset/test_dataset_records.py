"""The project's own records are imported without execution; invalid ones are refused with their
place."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import re
import tarfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
import zstandard

from shioenv.dataset.external import CommandList, read_list
from shioenv.dataset.importers import kind_of
from shioenv.dataset.input_lines import read_lines
from shioenv.dataset.manifest import read_manifest
from shioenv.dataset.record_reader import read_records
from shioenv.dataset.repair import repair
from shioenv.dataset.select import Selection, select
from shioenv.dataset.verify import replay, verify
from shioenv.domain.record import encode
from shioenv.errors import (
    DatasetCorruptError,
    ImportFileError,
    OutputExistsError,
    RepairError,
    UsageError,
)
from shioenv.grammar.library import load_grammars
from shioenv.grammar.parse import InputParser
from shioenv_eval.export import export
from shioenv_eval.exported_records import import_records
from shioenv_eval.leakage import find_leaks
from shioenv_eval.report.statistics import statistics
from shioenv_paper.released import import_released
from support.dataset_fakes import contents, make


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("records") / "dataset"
    make(directory, 25)
    return directory


@pytest.fixture
def lines(dataset: Path) -> list[bytes]:
    return [encode(record) for record in read_records(dataset)]


def refused(source: Path, content: bytes | None = None) -> ImportFileError:
    """Return the error of an import, which leaves no files."""
    if content is not None:
        source.write_bytes(content)
    with pytest.raises(ImportFileError) as caught:
        import_records(source, source.with_name("again"))
    assert not source.with_name("again").exists()
    return caught.value


def test_what_only_a_manifest_says_is_unknown(dataset: Path, tmp_path: Path) -> None:
    export(dataset, tmp_path / "a.jsonl")
    told: list[int] = []
    manifest = import_records(tmp_path / "a.jsonl", tmp_path / "again", report=told.append)
    assert told[-1] == manifest.records == 25
    assert manifest == read_manifest(tmp_path / "again")
    assert (manifest.plan.system, manifest.plan.drawing.sampler) == ("fake", "gcs")
    assert verify(tmp_path / "again").ok
    described = statistics(tmp_path / "again")
    assert (described.system, described.seed) == ("fake", None)
    assert described.irreducibility == statistics(dataset).irreducibility
    with pytest.raises(UsageError, match="the system and limits of its records are unknown"):
        replay(tmp_path / "again", 1)
    (tmp_path / "again/data/00000.ndjson").write_bytes(b"")
    with pytest.raises(RepairError) as caught:
        repair(tmp_path / "again")
    assert "shioenv dataset import" in str(caught.value.hint)


def test_the_whole_dataset_comes_back_from_the_hubs_layout(dataset: Path, tmp_path: Path) -> None:
    high = Selection(min_irreducibility=0.5)
    select(dataset, tmp_path / "high", high)
    for source in (dataset, tmp_path / "high"):
        export(source, tmp_path / f"hub-{source.name}")
        import_records(tmp_path / f"hub-{source.name}", tmp_path / f"again-{source.name}")
        assert contents(tmp_path / f"again-{source.name}") == contents(source)


def test_a_layout_whose_records_were_changed_is_refused(dataset: Path, tmp_path: Path) -> None:
    export(dataset, tmp_path / "hub")
    (path,) = (tmp_path / "hub/data").iterdir()
    table = pyarrow.parquet.read_table(path)
    pyarrow.parquet.write_table(table.slice(3), path)
    error = refused(tmp_path / "hub")
    assert "the records differ from source-manifest.json" in error.message
    (tmp_path / "hub/source-manifest.json").unlink()
    assert import_records(tmp_path / "hub", tmp_path / "again").records == 22


def test_a_context_that_was_changed_is_refused(dataset: Path, tmp_path: Path) -> None:
    export(dataset, tmp_path / "hub")
    (tmp_path / "hub/contexts/00000.json").write_text("{}")
    assert "00000.json was changed" in refused(tmp_path / "hub").message


def test_files_of_a_directory_are_read_in_the_order_of_their_numbers(
    lines: list[bytes], tmp_path: Path
) -> None:
    (tmp_path / "export").mkdir()
    (tmp_path / "export/part-9.jsonl").write_bytes(b"".join(lines[:9]))
    (tmp_path / "export/part-10.jsonl.gz").write_bytes(gzip.compress(b"".join(lines[9:])))
    assert kind_of(tmp_path / "export") == "records"
    import_records(tmp_path / "export", tmp_path / "again")
    assert [encode(record) for record in read_records(tmp_path / "again")] == lines


def test_nothing_is_overwritten(dataset: Path, tmp_path: Path) -> None:
    export(dataset, tmp_path / "a.jsonl")
    import_records(tmp_path / "a.jsonl", tmp_path / "again")
    with pytest.raises(OutputExistsError):
        import_records(tmp_path / "a.jsonl", tmp_path / "again")


Spoil = Callable[[list[dict[str, Any]]], list[Any]]
SPOILED: dict[str, tuple[Spoil, str]] = {
    "a field is missing": (lambda rows: [{**rows[0]}, _without(rows[1], "stdout")], "list:2"),
    "a field has another name": (
        lambda rows: [rows[0], {**_without(rows[1], "stdout"), "stdou": ""}], "unknown field",
    ),
    "another type": (lambda rows: [{**rows[0], "exit_code": "0"}], "list:1: expected int"),
    "another sampler": (lambda rows: [rows[0], {**rows[1], "sampler": "ucs"}], "sampler is 'ucs'"),
    "another system": (lambda rows: [rows[0], {**rows[1], "system": "x"}], "system is 'x'"),
    "another layout": (
        lambda rows: [rows[0], {**rows[1], "schema_version": 4, "content_digests": {}}],
        "schema_version is 4",
    ),
    "a layout of the future": (
        lambda rows: [rows[0], {**rows[1], "schema_version": 99}], "schema version 99",
    ),
    "another order": (lambda rows: [rows[1], rows[0]], "list:2: session_id 0 follows 1"),
    "two of a number": (lambda rows: [rows[0], rows[0]], "list:2: session_id 0 follows 0"),
    "an input twice": (
        lambda rows: [rows[0], {**rows[0], "session_id": 9}], "duplicate of an earlier input",
    ),
    "an input of a list": (lambda rows: [rows[0], "ls"], "list:2: not a record"),
    "an object of a list": (lambda rows: [rows[0], {"input": "ls"}], "list:2: "),
    "an exit code that is none": (
        lambda rows: [rows[0], {**rows[1], "exit_code": -5}], "list:2: exit_code is -5",
    ),
    "invalid context_patch": (
        lambda rows: [{**rows[0], "context_patch": '[["x"]]'}], "list:1: context_patch",
    ),
    "another input than its arguments give": (
        lambda rows: [{**rows[0], "input": "rm -r x"}], "list:1: input is 'rm -r x'",
    ),
    "a score that its segments do not give": (
        lambda rows: [{**rows[0], "irreducibility": 0.123}], "list:1: irreducibility is 0.123",
    ),
    "lone surrogate": (
        lambda rows: [json.dumps({**rows[0], "input": "\ud800"})], "list:1: ",
    ),
    "nested deeply": (lambda rows: [rows[0], "[" * 100_000 + "]" * 100_000], "nested too deeply"),
}  # fmt: skip


def _without(row: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != name}


@pytest.mark.parametrize(("spoil", "why"), SPOILED.values(), ids=SPOILED)
def test_one_line_that_cannot_stand_there_is_an_error_with_its_place(
    spoil: Spoil, why: str, lines: list[bytes], tmp_path: Path
) -> None:
    rows = spoil([json.loads(line) for line in lines[:2]])
    texts = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    error = refused(tmp_path / "list", "".join(f"{text}\n" for text in texts).encode())
    assert why in error.message
    assert "list:" in error.message


def test_a_parquet_file_of_others_is_refused_by_its_columns(dataset: Path, tmp_path: Path) -> None:
    table = pyarrow.table({"input": ["ls"], "cwd": ["/tmp"]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    assert "has no column" in refused(tmp_path / "a.parquet").message
    export(dataset, tmp_path / "b.parquet")
    table = pyarrow.parquet.read_table(tmp_path / "b.parquet")
    pyarrow.parquet.write_table(table.append_column("x", [["y"] * 25]), tmp_path / "b.parquet")
    assert "has an unknown column 'x'" in refused(tmp_path / "b.parquet").message


def test_damage_of_a_parquet_file_is_one_error_wherever_it_is(
    dataset: Path, tmp_path: Path
) -> None:
    export(dataset, tmp_path / "a.parquet")
    content = (tmp_path / "a.parquet").read_bytes()
    kept = 0
    for place in range(0, len(content), len(content) // 40):
        changed = bytes(255 - byte for byte in content[place : place + 8])
        for damaged in (content[:place], content[:place] + changed + content[place + 8 :]):
            (tmp_path / "b.parquet").write_bytes(damaged)
            again = tmp_path / f"again-{place}"
            with suppress(ImportFileError):
                import_records(tmp_path / "b.parquet", again)
            if again.exists():  # what was changed is no value, such as who wrote the file
                kept += 1
                assert [*read_records(again)] == [*read_records(dataset)]
    assert kept <= 8


@pytest.fixture(scope="module")
def parser() -> InputParser:
    return InputParser(load_grammars(["ls"]))


def tar_of(text: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        member = tarfile.TarInfo("list.txt")
        member.size = len(text)
        archive.addfile(member, io.BytesIO(text))
    return packed.getvalue()


INPUTS = b"ls -a\nls -b\nls -c\n" * 50
NO_LISTS = {
    "Parquet": b"PAR1\x15\x04" + INPUTS,
    "bzip2": bz2.compress(INPUTS),
    "bzip2 of nothing": bz2.compress(b""),
    "xz": lzma.compress(INPUTS),
    "a tar archive": tar_of(INPUTS),
    "a ZIP archive": b"PK\x03\x04" + INPUTS,
    "a ZIP archive of nothing": b"PK\x05\x06" + bytes(18),
    "an archive": b"!<arch>\nx/              0           0     0     644     6         `\n"
    + INPUTS,
    "a program": b"\x7fELF\x02\x01\x01\x00" + INPUTS,
    "a PDF": b"%PDF-1.7\n" + INPUTS,
    "HTML": b"<!DOCTYPE html>\n" + INPUTS,
    "HTML without its type": b'<html lang="en">\n' + INPUTS,
    "HTML in one line": b"<HTML><body>" + INPUTS,
    "XML": b'\xef\xbb\xbf<?xml version="1.0"?>\n' + INPUTS,
    "a database": b"SQLite format 3\0" + INPUTS,
    "gzip in gzip": gzip.compress(gzip.compress(INPUTS)),
    "gzip that is cut": gzip.compress(INPUTS)[:-5],
    "Zstandard that is cut": zstandard.compress(INPUTS)[:-5],
    "text of another character set": "ls старый\n".encode("koi8-r") * 50,
    "bytes of everything": bytes(range(256)) * 20,
    "nothing but NUL": bytes(5000),
}


@pytest.mark.parametrize("content", NO_LISTS.values(), ids=NO_LISTS)
def test_what_is_no_text_is_refused_and_not_executed(
    content: bytes, tmp_path: Path, parser: InputParser
) -> None:
    (tmp_path / "list.txt").write_bytes(content)
    with pytest.raises(ImportFileError, match=r"list\.txt (is not a text file|cannot be read)"):
        read_list(CommandList(tmp_path / "list.txt"), parser, ["/"])


@pytest.mark.parametrize(
    "line",
    [
        "BZh=9 ls", "BZh91 x", "PAR1=1", "PAR1 x", "ARROW1=2 ls", "<html.txt sort",
        "<html sort > x", "<htmlfile", "<?xml sort", "<!doctype sort", "%PDF", "7z a x y", "PK=3",
        "SQLite format", "!<arch", "echo " + "x" * 252 + "ustar",
    ],
)  # fmt: skip
def test_an_input_that_begins_like_another_file_is_an_input(
    line: str, tmp_path: Path, parser: InputParser
) -> None:
    (tmp_path / "list").write_text(f"{line}\nls -a\n")
    assert kind_of(tmp_path / "list") == "commands"
    assert len(read_list(CommandList(tmp_path / "list"), parser, ["/"]).samples) == 2


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16le", "utf-16be", "utf-32", "utf-32be"])
@pytest.mark.parametrize("text", ["ls -a\nls -b\n", "ls\n", "\n# старый\n"])
def test_another_encoding_of_unicode_is_refused(
    encoding: str, text: str, tmp_path: Path, parser: InputParser
) -> None:
    (tmp_path / "list").write_bytes(text.encode(encoding))
    with pytest.raises(ImportFileError, match="is not a text file") as caught:
        read_list(CommandList(tmp_path / "list"), parser, ["/"])
    assert "iconv" in str(caught.value.hint)


def test_lines_that_end_in_cr_alone_are_refused(tmp_path: Path, parser: InputParser) -> None:
    (tmp_path / "list").write_bytes(b"ls -a\rls -b\r")
    with pytest.raises(ImportFileError, match="lines end in CR without LF"):
        read_list(CommandList(tmp_path / "list"), parser, ["/"])
    (tmp_path / "list").write_bytes(b"ls -a\r")
    assert len(read_list(CommandList(tmp_path / "list"), parser, ["/"]).samples) == 1


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress, bytes])
def test_a_list_is_read_compressed_too(
    pack: Callable[[bytes], bytes], tmp_path: Path, parser: InputParser
) -> None:
    (tmp_path / "list").write_bytes(pack(b"\xef\xbb\xbfls -a\nls -b\n"))
    (tmp_path / "plain").write_bytes(b"\xef\xbb\xbfls -a\nls -b\n")
    found = read_list(CommandList(tmp_path / "list"), parser, ["/"])
    assert found == read_list(CommandList(tmp_path / "plain"), parser, ["/"])
    assert [json.loads(sample)[0] for sample in found.samples] == [["ls", "-a"], ["ls", "-b"]]
    assert kind_of(tmp_path / "list") == "commands"


@pytest.mark.parametrize(
    "line",
    [
        '{"inptu": "ls"}', '  {"inptu": "ls"}', '{"input": 5}', '{"input": null}', "{}",
        '{"input": ["ls"]}', '{"input": "ls"', '{"input": "ls"},', '["ls", "-a"]',
        '[{"input": "ls"}]', "[", "{", '{"suite": {}}',
        '{"input": ' + "[" * 5000 + "]" * 5000 + "}", "[" * 100_000, "[" * 5000 + "]" * 5000,
        '{ "input": "x" },', '{ "input" :', '[ {', '[{ "input": "x; }"', "[ { }, {", '["ls",',
        '[ "ls", "-a" ]', '[\t{"a": 1},', "{'input': 'ls'}", '{ "input": "ls', '{"inp', '[["ls"],',
        '{"input": "ls"} {"input": "id"}', '[1, 2, {"x": "; }"', '[ { "input": "ls" } ]',
    ],
    ids=lambda line: line[:20],
)  # fmt: skip
def test_json_that_holds_no_input_is_an_error_with_its_line(
    line: str, tmp_path: Path, parser: InputParser
) -> None:
    (tmp_path / "list").write_text(f"ls\n{line}\nls -a\n")
    with pytest.raises(ImportFileError, match="list:2: ") as caught:
        read_list(CommandList(tmp_path / "list"), parser, ["/"])
    assert "`input`" in str(caught.value.hint)


def test_what_bash_groups_is_an_input(tmp_path: Path, parser: InputParser) -> None:
    inputs = [
        "{ ls; }", "[ -f x ]", "{a,b}", "[[ x ]]", '{ "ls"; }', '{ "ls" -a; } | wc', '{"ls","-a"}',
        '{ "test" : ; }', '{ "x:" y; }', '{ "a": "{"; } > x', "{ 'ls'& }", '[ "x" ]', "[ 1 ]",
        "[ ]", '[[ "a" ]]', '[ "-n" "x" ]', '[ "a" = "b" ] && ls', "[ 'a,b' ]", "[0-9]*", "[[ 1 ]]",
        '{ "ls" ; } 2>&1', '{ true; "ls"; }', '{ "ls"; } && { "id"; }', "{1..3}",
    ]  # fmt: skip
    (tmp_path / "list").write_text("".join(f"{line}\n" for line in inputs))
    found = read_list(CommandList(tmp_path / "list"), parser, ["/"])
    assert [rejected.text for rejected in found.rejected] == []
    assert len(found.samples) == len(inputs)


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        ('{"inptu": "ls"}', "no `input` in", "did you mean `input` by 'inptu'?"),
        ('{"input": 5}', "expected text as `input`, got 5", "each line must be"),
        ('{"input": null, "inputs": "x"}', "expected text as `input`, got null", "each line"),
        ('["ls -a", "id"]', "a JSON list is not an input", "jq -r '.[]'"),
        ('[{"input": "ls"}]', "a JSON list is not an input", "jq -c '.[]'"),
        ("{", "invalid JSON", "jq -c ."),
    ],
)
def test_a_hint_says_what_is_wrong_with_json(
    line: str, message: str, hint: str, tmp_path: Path, parser: InputParser
) -> None:
    (tmp_path / "list").write_text(f"{line}\n")
    with pytest.raises(ImportFileError, match=re.escape(message)) as caught:
        read_list(CommandList(tmp_path / "list"), parser, ["/"])
    assert hint in str(caught.value.hint)
    assert ("meant" in str(caught.value.hint)) == ("meant" in hint)


@pytest.mark.parametrize(
    ("name", "content"), [("a.csv", "ls\n"), ("a.TSV", "ls\tx\n"), ("a.csv.gz", "ls\n")]
)
def test_a_table_is_refused(name: str, content: str, tmp_path: Path, parser: InputParser) -> None:
    (tmp_path / name).write_text(f"{content}x\n")
    with pytest.raises(ImportFileError, match="is a table, not a list of inputs") as caught:
        read_list(CommandList(tmp_path / name), parser, ["/"])
    command = str(caught.value.hint).partition('-c "')[2].partition('" <')[0]
    compile(command, "hint", "exec")


def test_a_long_line_of_json_may_hold_a_short_input(tmp_path: Path, parser: InputParser) -> None:
    rows = [{"input": "ls -a", "output": "x" * 200_000}, {"input": "ls " + "x" * 140_000}]
    (tmp_path / "list").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    found = read_list(CommandList(tmp_path / "list"), parser, ["/"])
    assert len(found.samples) == 1
    assert [(one.line, one.reason) for one in found.rejected] == [(2, "too long")]


def test_kinds_are_told_by_content(dataset: Path, tmp_path: Path, lines: list[bytes]) -> None:
    (tmp_path / "list.parquet").write_bytes(b"# a list\n\n" + b"ls\n")
    assert kind_of(tmp_path / "list.parquet") == "commands"
    (tmp_path / "list.txt").write_bytes(b"\n" + b"".join(lines))
    assert kind_of(tmp_path / "list.txt") == "records"
    released = b'{"input": "ls", "output": "", "exit_code": 0, "context_patch": "[]"}\n'
    (tmp_path / "released").write_bytes(released)
    with pytest.raises(ImportFileError, match="records of another program") as caught:
        kind_of(tmp_path / "released")
    assert "--format released" in str(caught.value.hint)
    with pytest.raises(ImportFileError, match="is a dataset, not an export") as caught:
        kind_of(dataset)
    (tmp_path / "none").mkdir()
    with pytest.raises(ImportFileError, match="has no files of records"):
        kind_of(tmp_path / "none")


def test_a_directory_of_lists_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"input": "ls"}\n')
    with pytest.raises(ImportFileError, match="is a directory of lists of inputs") as caught:
        kind_of(tmp_path)
    assert "shioenv dataset import -" in str(caught.value.hint)


def test_records_behind_blanks_are_records(tmp_path: Path, lines: list[bytes]) -> None:
    (tmp_path / "list").write_bytes(b"\n" + b"".join(b"  " + line for line in lines))
    assert kind_of(tmp_path / "list") == "records"


def test_a_pipe_is_no_list(tmp_path: Path) -> None:
    with pytest.raises(ImportFileError, match="it is a device, not a regular file"):
        list(read_lines("/dev/zero"))


def test_a_name_that_no_file_can_have_is_no_traceback(tmp_path: Path) -> None:
    named = tmp_path / ("a" * 300)
    with pytest.raises(ImportFileError, match="cannot be read: File name too long"):
        kind_of(named)
    with pytest.raises(ImportFileError, match="cannot be read: File name too long"):
        import_released(named, tmp_path / "new")
    with pytest.raises(DatasetCorruptError, match="File name too long"):
        find_leaks(named, named)
