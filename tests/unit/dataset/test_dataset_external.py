"""Lists of inputs become records; generic words become names of the system; nothing is silent."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dataset_fakes import HOME, contents, open_fake, plan

from shioenv.dataset.external import (
    Accepted,
    Binder,
    CommandList,
    import_list,
    placeholder_table,
    read_list,
)
from shioenv.dataset.read import read_records
from shioenv.dataset.repair import repair
from shioenv.dataset.verify import verify
from shioenv.errors import DatasetCorruptError, DatasetMismatchError, ImportFileError, RepairError
from shioenv.execution.local import SerialExecutor
from shioenv.grammar.library import load_grammars
from shioenv.grammar.parse import InputParser
from shioenv.grammar.tokens import FALLBACK, STAND_IN, SYSTEM_TOKENS, VOCABULARY

TOKENS = {**FALLBACK, **VOCABULARY, **STAND_IN}
DOCS = Path(__file__).parents[3] / "docs/how-to/datasets.md"


@pytest.fixture(scope="module")
def parser() -> InputParser:
    return InputParser(load_grammars(["ls", "find", "cut", "mktemp", "chown", "grep"]))


def read(
    tmp_path: Path, parser: InputParser, content: bytes | str, **options: Any
) -> tuple[Accepted, list[list[Any]]]:
    path = tmp_path / "list.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    settings = {"placeholders": "reject", "bindings": 1, "seed": 1, **options}
    found = read_list(CommandList(path, **settings), parser, {HOME: TOKENS})
    return found, [json.loads(one) for one in found.samples]


def test_lines_are_taken_apart(tmp_path: Path, parser: InputParser) -> None:
    _, samples = read(tmp_path, parser, "ls -laT 32\r\nmktemp -u\nfor i in 1; do ls; done")
    assert samples == [
        [["ls", "-l<ns>", "<ns>a<ns>", "<ns>T 32"], HOME, False],
        [["mktemp", "-u"], HOME, True],
        [["for i in 1; do ls; done"], HOME, False],
    ]


def test_every_line_that_is_left_out_has_a_reason(tmp_path: Path, parser: InputParser) -> None:
    content = b"ls -a\n\n  \n# x\nls\0b\n\xff\nls   -a\necho " + b"x" * 131_072 + b"\nls Size\n"
    found, samples = read(tmp_path, parser, content)
    assert len(samples) == 1
    assert found.lines == 9
    assert [(one.line, one.reason) for one in found.rejected] == [
        (2, "empty"),
        (3, "empty"),
        (4, "only a comment"),
        (5, "a NUL byte"),
        (6, "not UTF-8"),
        (7, "the same input as an earlier one"),
        (8, "too long"),
        (9, "a placeholder"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "find Path -name Regex",
        'grep "Regex" [File]',
        "chown User:Group 'File'",
        "sort --output=NewFile < File",
        "cat File|cut -f Number;ls $(dirname Path)",
    ],
)
def test_generic_words_become_names_of_the_system(
    tmp_path: Path, parser: InputParser, text: str
) -> None:
    found, samples = read(tmp_path, parser, text, placeholders="bind", bindings=5)
    assert len(samples) == 5
    assert found.rejected == ()
    for arguments, _, _ in samples:
        line = " ".join(arguments)
        assert not any(name in line for name in ("Path", "Regex", "File", "User", "Number"))


def test_values_are_quoted_as_shell_text() -> None:
    names = {**TOKENS, "File": ("a b.txt", "-x", "new\nline", "it's")}
    binder = Binder({HOME: names})
    drawn = {binder.bind("cat File", HOME, random.Random(seed)) for seed in range(50)}
    assert drawn == {"cat 'a b.txt'", "cat ./-x", "cat 'it'\"'\"'s'"}


@pytest.mark.parametrize(
    "text", ["find . -size +Size", "cut '-f Number' x", "ls File.txt", "ls a/Directory"]
)
def test_words_that_cannot_be_bound_are_left_over(
    tmp_path: Path, parser: InputParser, text: str
) -> None:
    found, samples = read(tmp_path, parser, text, placeholders="bind")
    assert samples == []
    assert [one.reason for one in found.rejected] == ["a placeholder inside a word"]
    found, samples = read(tmp_path, parser, text, placeholders="keep")
    assert len(samples) == 1


def test_bindings_depend_on_seed_and_line_alone(tmp_path: Path, parser: InputParser) -> None:
    options = {"placeholders": "bind", "bindings": 3}
    _, one = read(tmp_path, parser, "ls\nls File", **options)
    _, other = read(tmp_path, parser, "#\nls File", **options)
    assert one[1:] == other
    _, seeded = read(tmp_path, parser, "ls\nls File", **options, seed=2)
    assert one != seeded


def test_the_table_names_tokens_that_exist_and_is_documented() -> None:
    page = DOCS.read_text()
    for name, entry in placeholder_table().items():
        assert set(entry) <= {"about", "tokens", "values"}
        assert bool(entry.get("tokens")) != bool(entry.get("values")), name
        assert set(entry.get("tokens", ())) <= set(SYSTEM_TOKENS), name
        assert f"| `{name}` | {entry['about']} |" in page


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
        read_list(CommandList(tmp_path / "none"), parser, {HOME: TOKENS})
