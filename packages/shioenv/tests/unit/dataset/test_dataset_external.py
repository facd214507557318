"""Lists of inputs become records, and every loss is reported."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shioenv.dataset import external
from shioenv.dataset.external import (
    Accepted,
    CommandList,
    import_list,
    read_list,
)
from shioenv.dataset.record_reader import read_records
from shioenv.dataset.repair import repair
from shioenv.dataset.verify import verify
from shioenv.errors import DatasetCorruptError, DatasetMismatchError, ImportFileError, RepairError
from shioenv.execution.local import SerialExecutor
from shioenv.grammar.library import load_grammars
from shioenv.grammar.parse import InputParser
from support.dataset_fakes import HOME, contents, open_fake, plan


@pytest.fixture(scope="module")
def parser() -> InputParser:
    return InputParser(load_grammars(["ls", "find", "cut", "mktemp", "chown", "grep"]))


def read(
    tmp_path: Path, parser: InputParser, content: bytes | str
) -> tuple[Accepted, list[list[Any]]]:
    path = tmp_path / "list.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    found = read_list(
        CommandList(path, seed=1), parser, [HOME], exists=lambda directory: directory == "/tmp"
    )
    return found, [json.loads(one) for one in found.samples]


def test_lines_are_taken_apart(tmp_path: Path, parser: InputParser) -> None:
    _, samples = read(tmp_path, parser, "ls -laT 32\r\nmktemp -u\nfor i in 1; do ls; done")
    assert samples == [
        [["ls", "-l<ns>", "<ns>a<ns>", "<ns>T 32"], HOME, False, []],
        [["mktemp", "-u"], HOME, True, []],
        [["for i in 1; do ls; done"], HOME, False, []],
    ]


def test_every_line_that_is_left_out_has_a_reason(tmp_path: Path, parser: InputParser) -> None:
    content = b"ls -a\n\n  \n# x\nls\0b\n\xff\nls   -a\necho " + b"x" * 131_072 + b"\n"
    found, samples = read(tmp_path, parser, content)
    assert len(samples) == 1
    assert found.lines == 8
    assert [(one.line, one.reason) for one in found.rejected] == [
        (2, "empty"),
        (3, "empty"),
        (4, "only a comment"),
        (5, "a NUL byte"),
        (6, "not UTF-8"),
        (7, "duplicate of an earlier input"),
        (8, "too long"),
    ]


def test_a_line_of_json_says_where_it_starts(tmp_path: Path, parser: InputParser) -> None:
    lines = [
        {"input": "ls -a", "cwd": "/tmp", "id": "a"},
        {"input": "ls -a"},
        {"input": "ls", "cwd": "/nowhere"},
        {"input": "ls", "cwd": 1},
        {"input": "ls -l", "history": ["cd /"]},
        {"input": " "},
    ]
    content = "".join(f"{json.dumps(line)}\n" for line in lines) + "{ ls; }\n"
    found, samples = read(tmp_path, parser, content)
    assert [(sample[0], sample[1]) for sample in samples] == [
        (["ls", "-a"], "/tmp"),
        (["ls", "-a"], HOME),
        (["{ ls; }"], HOME),
    ]
    assert [(one.line, one.reason) for one in found.rejected] == [
        (3, "the start directory does not exist"),
        (4, "the start directory is not a text"),
        (5, "`history` is not supported"),
        (6, "empty"),
    ]
    assert found.elsewhere([HOME]) == ["/tmp"]


@pytest.mark.parametrize(
    "cwd",
    [
        "tmp", ".", "./", "../tmp", "//tmp", "///tmp", "/tmp/", "/usr/../tmp", "/tmp/.", "/./tmp",
        "/..", "~", "C:\\\\tmp", " /tmp",
    ],
)  # fmt: skip
def test_a_start_directory_is_a_plain_absolute_path(
    cwd: str, tmp_path: Path, parser: InputParser
) -> None:
    path = tmp_path / "list"
    path.write_text(f"{json.dumps({'input': 'ls', 'cwd': cwd})}\nls\n")
    found = read_list(CommandList(path), parser, [HOME], exists=lambda directory: True)
    assert len(found.samples) == 1
    (rejected,) = found.rejected
    assert "not an absolute path" in rejected.reason


def test_lines_that_are_left_out_do_not_fill_the_memory(
    tmp_path: Path, parser: InputParser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(external, "MOST_REJECTED", 1000)
    found, _ = read(tmp_path, parser, b"ls\n" + b"\n" * 1000)
    assert len(found.rejected) == 1000
    with pytest.raises(ImportFileError, match=r"list\.txt:1001: more than 1,000 lines cannot be"):
        read(tmp_path, parser, b"\n" * 1500)


def test_what_no_score_can_weigh_is_left_out(tmp_path: Path, parser: InputParser) -> None:
    found, samples = read(tmp_path, parser, f"ls{' a' * 400}\nls{' a' * 401}\n{'if ' * 9000}\n")
    assert len(samples) == 1
    assert {one.reason for one in found.rejected} == {"more than 400 arguments"}


def test_a_key_that_is_there_twice_is_not_chosen_from(tmp_path: Path, parser: InputParser) -> None:
    lines = ['{"input": "ls", "input": "id"}', '{"cwd": "/tmp", "input": "ls", "cwd": "/"}']
    lines += ['{"input": "ls", "x": {"input": "id", "input": 1}}', r'{"input": "echo \"input\""}']
    found, samples = read(tmp_path, parser, "".join(f"{line}\n" for line in lines))
    assert [sample[0] for sample in samples] == [["ls"], ["echo", '"input"']]
    reasons = ["`input` occurs twice", "`cwd` occurs twice"]
    assert [one.reason for one in found.rejected] == reasons


def test_half_a_character_is_left_out(tmp_path: Path, parser: InputParser) -> None:
    lines = [r'{"input": "\ud800"}', r'{"input": "ls \udc00x"}', r'{"input": "ls \ud83d\ude00"}']
    lines += [r'{"input": "ls", "cwd": "/\ud800"}', r'{"input": "id", "x": "\ud800"}']
    found, samples = read(tmp_path, parser, "".join(f"{line}\n" for line in lines))
    assert [sample[0] for sample in samples] == [["ls", "\U0001f600"], ["id"]]
    assert [(one.line, one.reason) for one in found.rejected] == [
        (1, "invalid Unicode: a JSON escape names a lone surrogate"),
        (2, "invalid Unicode: a JSON escape names a lone surrogate"),
        (4, "the start directory does not exist"),
    ]


def test_an_import_is_a_dataset_that_resumes(
    tmp_path: Path, parser: InputParser, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, _ = read(tmp_path, parser, "".join(f"echo n{n} useless a\n" for n in range(30)) + "\n")
    origin = {"kind": "commands", "sha256": found.sha256}
    made = plan(sampler="mine", horizon=0, origin=origin)

    def run(directory: Path, **changes: Any) -> Any:
        return import_list(
            found, directory, replace(made, **changes), system=str(tmp_path),
            executor=SerialExecutor(open_fake),
        )  # fmt: skip

    done = run(tmp_path / "whole")
    assert done.to_json()["rejected"] == {"empty": 1}
    assert verify(tmp_path / "whole").ok
    records = list(read_records(tmp_path / "whole"))
    assert len(records) == 30
    assert {one.sampler for one in records} == {"mine"}
    assert all(one.irreducibility is not None for one in records)
    run(tmp_path / "two")
    assert contents(tmp_path / "two") == contents(tmp_path / "whole")
    assert run(tmp_path / "two").summary.new == 0
    with pytest.raises(DatasetMismatchError, match=r"origin\.sha256"):
        run(tmp_path / "two", origin={"kind": "commands", "sha256": "other"})
    (tmp_path / "two/data/00000.ndjson").unlink()
    with pytest.raises(RepairError) as caught:
        repair(tmp_path / "two")
    assert "shioenv dataset import" in str(caught.value.hint)
    with pytest.raises(DatasetCorruptError, match="lists finished shards, but none of them"):
        run(tmp_path / "two")


def test_a_file_that_is_not_there(parser: InputParser, tmp_path: Path) -> None:
    with pytest.raises(ImportFileError, match="cannot be read"):
        read_list(CommandList(tmp_path / "none"), parser, [HOME])
