"""The dataset tools on records of the real system, called like a user."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from shioenv.cli.main import app
from shioenv.dataset.generate import generate
from shioenv.dataset.record_reader import read_records
from shioenv.irreducibility.scoring import Scoring
from shioenv.synthesis.drawing import Drawing
from support.needs import needs

COUNT = 30

pytestmark = pytest.mark.xdist_group("dataset_tools")  # one dataset for all

LIST = """\
ls -la documents
find Path -name Regex -type f
find . -size +Size
chown User:Group File
sudo head missing.csv

ls -la documents
"""


pytestmark = pytest.mark.usefixtures("system")


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tools") / "dataset"
    generate(directory, count=COUNT, drawing=Drawing(seed=3), scoring=Scoring(budget=4))
    return directory


Shioenv = Callable[..., Result]


@pytest.fixture
def shioenv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shioenv:
    """Call `shioenv dataset …` in an empty directory and expect a status."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object, status: int = 0) -> Result:
        result = CliRunner().invoke(app, ["dataset", *map(str, arguments)])
        assert result.exit_code == status, result.output
        return result

    return call


def answer(result: Result) -> Any:
    return json.loads(result.stdout)


def test_a_selection_is_verified_and_executed_again(dataset: Path, shioenv: Shioenv) -> None:
    found = answer(
        shioenv("filter", dataset, "--out", "high", "--min-irreducibility", 0.5,
                "--exclude-volatile", "--json")
    )  # fmt: skip
    assert 0 < found["records"] < found["of"] == COUNT
    assert found["selection"] == {"min_irreducibility": 0.5, "exclude_volatile": True}
    assert "no problems" in shioenv("verify", "high", "--replay", 5).stdout
    last = list(read_records("high"))[-1]
    assert f"record {last.session_id}" in shioenv("show", "high", "--id", last.session_id).stdout
    assert (
        "already exists (SHIO-D07)" in shioenv("filter", dataset, "--out", "high", status=2).stderr
    )


def test_every_format_is_written(dataset: Path, shioenv: Shioenv) -> None:
    for kind, name in (("parquet", "a.parquet"), ("hf", "hub"), ("jsonl", "a.jsonl.gz")):
        done = answer(shioenv("export", dataset, "--out", name, "--format", kind, "--json"))
        assert (done["records"], done["files"], done["format"]) == (COUNT, 1, kind)
        by_name = answer(shioenv("export", dataset, "--out", f"other-{name}", "--json"))
        assert (by_name["format"], by_name["bytes"]) == (kind, done["bytes"])
    assert f"{COUNT} records" in shioenv("export", dataset, "--out", "b", "--license", "mit").stdout
    assert Path("b/README.md").read_text().startswith("---\nlicense: mit\n")


def test_a_list_is_adapted_and_becomes_a_dataset(shioenv: Shioenv) -> None:
    Path("list.txt").write_text(LIST)
    made = CliRunner().invoke(
        app, ["suite", "adapt", "list.txt", "--out", "adapted.jsonl", "--count", "8", "--json"]
    )
    assert made.exit_code == 0, made.output
    facts = json.loads(made.stdout)
    assert (facts["inputs"], facts["of"], facts["set_aside"]) == (8, 6, 2)
    assert facts["reasons"] == {
        "unresolved: a placeholder inside a word": 1,
        "duplicate of an earlier input": 1,
    }
    lines = [json.loads(line) for line in Path("adapted.jsonl").read_text().splitlines()]
    assert len({line["id"] for line in lines}) == 8
    aside = [json.loads(line) for line in Path("adapted.aside.jsonl").read_text().splitlines()]
    assert [line["input"] for line in aside] == ["find . -size +Size", "ls -la documents"]
    call = ["import", "adapted.jsonl", "--out", "mine", "--budget", 4]
    assert "8, 8 of them new" in shioenv(*call, "--workers", 1).stdout
    records = {one.input_args[0]: one for one in read_records("mine")}
    assert records["find"].exit_code == records["chown"].exit_code == 0
    assert "missing" not in records["head"].input
    assert records["head"].exit_code == 0
    assert {one.cwd for one in records.values()} == {"/home/ubuntu"}
    assert "no problems" in shioenv("verify", "mine", "--replay", 6).stdout
    again = answer(shioenv(*call, "--json"))
    assert (again["new"], again["records"], again["lines"], again["rejected"]) == (0, 8, 8, {})


def test_lines_that_cannot_be_recorded_are_kept_with_the_reason(shioenv: Shioenv) -> None:
    Path("list.txt").write_text("touch made.txt && rm -f README.md\n\n# none\nls  x\nls x\n")
    call = ["import", "list.txt", "--out", "mine", "--budget", 4]
    result = shioenv(*call, "--workers", 1)
    assert "line 5 skipped, duplicate of an earlier input: ls x" in result.stderr
    touched = next(iter(read_records("mine")))
    assert '"/fs/made.txt"' in touched.context_patch
    assert '["r","/fs/README.md"]' in touched.context_patch
    assert len(Path("mine/rejected.ndjson").read_text().splitlines()) == 3


@needs("shioenv-paper")
def test_released_records_are_imported_without_execution(shioenv: Shioenv) -> None:
    line = {
        "input": "ls -a x",
        "input_args": ["ls", "-a<ns>", "x"],
        "output": "ls: cannot access 'x': No such file or directory",
        "exit_code": 0,
        "redundancy_score": 2 / 3,
        "context_patch": "[]",
    }
    Path("0-data.ndjson").write_text(json.dumps(line) + "\r\n{}\r\n")
    result = shioenv("import", "0-data.ndjson", "--out", "released", "--format", "released")
    assert "1, 1 with a score" in result.stdout
    assert "doubtful    1 with exit code 0" in result.stdout
    assert "no problems" in shioenv("verify", "released").stdout
    assert "not executed here" in shioenv("stats", "released").stdout
    assert "0.500 (as published)" in shioenv("show", "released").stdout


@needs("shioenv-paper")
def test_an_export_comes_back_as_it_was(dataset: Path, shioenv: Shioenv) -> None:
    lines = (dataset / "data/00000.ndjson").read_bytes()
    for name in ("a.parquet", "a.jsonl", "a.jsonl.gz", "hub"):
        shioenv("export", dataset, "--out", name)
        result = shioenv("import", name, "--out", f"from-{name}")
        assert f"{COUNT}, unchanged from the export; nothing was executed" in result.stdout
        assert Path(f"from-{name}/data/00000.ndjson").read_bytes() == lines
        assert "no problems" in shioenv("verify", f"from-{name}").stdout
        shioenv("filter", f"from-{name}", "--out", f"some-{name}", "--exclude-volatile")
    assert "no problems" in shioenv("verify", "from-hub", "--replay", 3).stdout
    assert f"{COUNT}, gcs on debian-12" in shioenv("stats", "from-a.jsonl").stdout
    assert "made by | import (records)" in _card(shioenv, "from-a.jsonl")
    assert (
        "--sampler-label does not apply to exported records"
        in shioenv("import", "hub", "--out", "c", "--sampler-label", "x", status=2).stderr
    )
    released = shioenv("import", "a.jsonl", "--out", "released", "--format", "released")
    assert "reparsed    0" in released.stdout
    scored = [record.irreducibility for record in read_records("released")]
    assert scored == [record.irreducibility for record in read_records(dataset)]


def _card(shioenv: Shioenv, directory: str) -> str:
    shioenv("export", directory, "--out", "card")
    return Path("card/README.md").read_text()


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("a.bin", b"PAR1\x15\x04\x15\nls\n", "is not a valid Parquet file"),
        ("a.json", b'{"inptu": "ls"}\n', "a.json:1: no `input` in the JSON object"),
        ("a.txt.gz", b"\x1f\x8b\nls\n", "damaged gzip file"),
    ],
)
def test_what_is_no_list_of_inputs_is_not_executed(
    shioenv: Shioenv, name: str, content: bytes, why: str
) -> None:
    Path(name).write_bytes(content)
    result = shioenv("import", name, "--out", "mine", status=1)
    assert why in result.stderr
    assert "SHIO-D08" in result.stderr
    assert not Path("mine").exists()


def test_a_lost_shard_is_named_and_made_again(dataset: Path, shioenv: Shioenv) -> None:
    shutil.copytree(dataset, "broken")
    shard = Path("broken/data/00000.ndjson")
    content = shard.read_bytes()
    lines = content.splitlines(keepends=True)
    lines[6] = lines[6].replace(b'"timed_out":false', b'"timed_out":true')
    shard.write_bytes(b"".join(lines))
    damaged = answer(shioenv("verify", "broken", "--json", status=1))["damaged"]
    assert damaged == ["data/00000.ndjson"]
    result = shioenv("repair", "broken")
    assert "was changed: restored with the same bytes" in result.stdout
    assert "record 6 differs in timed_out" in result.stdout
    assert shard.read_bytes() == content
    assert "nothing to repair" in shioenv("repair", "broken").stdout
    shard.unlink()
    (repaired,) = answer(shioenv("repair", "broken", "--json"))["repaired"]
    volatile = [one.session_id for one in read_records(dataset) if one.volatile]
    assert repaired["identical"] == (content == shard.read_bytes())
    assert repaired["identical"] or volatile
    for old, new in zip(read_records(dataset), read_records("broken"), strict=True):
        assert old.input_args == new.input_args
        assert old == new or old.volatile or new.volatile
    assert "no problems" in shioenv("verify", "broken").stdout


def test_leaks_end_with_a_status(dataset: Path, shioenv: Shioenv) -> None:
    records = list(read_records(dataset))
    Path("test.txt").write_text(records[4].input_args[0] + " nothing-like-it-anywhere\n")
    assert answer(shioenv("leakage", dataset, "test.txt", "--json"))["ok"] is True
    shioenv("export", dataset, "--out", "test.jsonl", "--format", "jsonl")
    result = shioenv("leakage", dataset, "test.jsonl", status=1)
    assert "exact" in result.stdout
    found = answer(shioenv("leakage", dataset, "test.jsonl", "--json", status=1))
    assert found["exact"] == COUNT
    assert shioenv("leakage", dataset, "none", status=2).stderr.count("SHIO-D06") == 1


def test_what_all_records_share_is_said_once(dataset: Path, shioenv: Shioenv) -> None:
    shutil.copytree(dataset, "renamed")
    path = Path("renamed/manifest.json")
    path.write_text(path.read_text().replace('"name": "debian-12"', '"name": "other"'))
    lines = shioenv("verify", "renamed", status=1).stdout.splitlines()
    assert len(lines) == 2
    assert lines[0].endswith(
        f"(and {COUNT - 1} more of this kind, the last at data/00000.ndjson:{COUNT})"
    )
