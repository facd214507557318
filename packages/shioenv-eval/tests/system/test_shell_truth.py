"""Cases as data: the shipped checker runs the system's own bash on them, inside the sandbox."""

from __future__ import annotations

import base64
import io
import json
import lzma
import shutil
import tarfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from shioenv.behavior.observe import open_sandbox
from shioenv.domain.runner import State
from shioenv.errors import OutputExistsError
from shioenv.sandbox.base import Limits
from shioenv.system.store import System
from shioenv_eval.conform.data import CHECKER, FACTS, HOME, SPLITS, TruthData, export_truth
from shioenv_eval.conform.truth import Choice
from support.nightly import NIGHTLY

PATIENCE = Limits(wall_seconds=120.0, cpu_seconds=120.0)
CHOICE = Choice((), 60, 7)


@pytest.fixture(scope="module")
def made(system: System, tmp_path_factory: pytest.TempPathFactory) -> TruthData:
    top = tmp_path_factory.mktemp("truth")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shioenv_eval.conform.truth.cache_directory", lambda: top / "cache")
        return export_truth(top / "made", choice=CHOICE, workers=2)


def cases(directory: Path, split: str) -> list[dict[str, Any]]:
    with lzma.open(directory / "data" / f"{split}.jsonl.xz") as lines:
        return [json.loads(line) for line in lines]


def checked(system: System, directory: Path, words: str) -> tuple[int, list[str]]:
    """Return the exit code and the lines of the checker, run in a sandbox without ShIOEnv."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz") as archive:
        for name in (CHECKER, HOME, "data/portable.jsonl.xz"):
            archive.add(directory / name, name)
    text = base64.b64encode(packed.getvalue()).decode()
    unpack = f"mkdir /opt/data; base64 -d <<'END' | tar -xJm -C /opt/data\n{text}\nEND"
    with open_sandbox(system, PATIENCE) as opened:
        did = opened.run(f"{unpack}\npython3 /opt/data/{CHECKER} {words}", State(cwd="/"))
    return did.exit_code, did.text.splitlines()


@NIGHTLY
def test_the_systems_bash_does_what_every_portable_case_says(
    system: System, made: TruthData, tmp_path: Path
) -> None:
    status, lines = checked(system, made.directory, "'bash -c'")
    count = made.splits["portable"]
    assert (status, lines) == (0, [f"{count} of {count} right: 1.0000; differ: {{}}"])
    assert count >= 30

    # a wrong answer, in each compared field
    planted = tmp_path / "planted"
    shutil.copytree(made.directory, planted)
    rows = cases(planted, "portable")
    touched = next(row for row in rows if any(one["sha256"] for one in row["files"]))
    others = [row for row in rows if row is not touched]
    others[0]["exit_code"] ^= 1
    others[1]["output"], others[1]["output_b64"] = f"{others[1]['output']}x", None
    others[2]["files"].append({"name": "never", "change": "added", "sha256": None})
    next(one for one in touched["files"] if one["sha256"])["sha256"] = "0" * 64
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (planted / "data" / "portable.jsonl.xz").write_bytes(lzma.compress(text.encode()))
    status, lines = checked(system, planted, "'bash -c'")
    found = {one["number"]: one["differs"] for one in map(json.loads, lines[:-1])}
    assert found == {
        others[0]["number"]: ["exit code"],
        others[1]["number"]: ["output"],
        others[2]["number"]: ["files"],
        touched["number"]: ["contents"],
    }
    assert status == 1
    assert lines[-1].startswith(f"{count - 4} of {count} right")


@NIGHTLY
def test_a_shell_that_hangs_or_is_not_there_loses_its_cases(
    system: System, made: TruthData
) -> None:
    status, lines = checked(system, made.directory, "'sh -c \"sleep 60\"' --cases 2 --timeout 0.1")
    assert (status, lines[-1].split(":")[0]) == (1, "0 of 2 right")
    status, lines = checked(system, made.directory, "/nowhere")
    assert (status, lines[-1].split(":")[0]) == (2, "error")


def test_the_data_says_what_it_was_made_from(system: System, made: TruthData) -> None:
    facts = json.loads((made.directory / FACTS).read_text())
    assert (facts["version"], facts["system_digest"]) == (1, system.digest)
    assert (facts["seed"], facts["drawn"], facts["splits"]) == (7, 60, made.splits)
    for name, digest in facts["sha256"].items():
        assert sha256((made.directory / name).read_bytes()).hexdigest() == digest
    rows = [row for split in SPLITS for row in cases(made.directory, split)]
    assert len(rows) == sum(made.splits.values())
    assert len({tuple(row) for row in rows}) == 1
    assert any(row["stderr"] and row["stderr"] in row["output"] for row in rows)
    card = (made.directory / "README.md").read_text()
    for split in SPLITS:
        assert f"- split: {split}\n    path: data/{split}.jsonl.xz\n" in card


@NIGHTLY
def test_what_needs_the_system_is_not_portable(
    system: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shioenv_eval.conform.truth.cache_directory", lambda: tmp_path / "cache")
    choice = Choice(("whoami", "df", "basename"), 16)
    done = export_truth(tmp_path / "made", choice=choice, workers=2)
    again = export_truth(tmp_path / "again", choice=choice, workers=1)
    facts = [(one.directory / FACTS).read_bytes() for one in (done, again)]
    assert facts[0] == facts[1]
    with pytest.raises(OutputExistsError):
        export_truth(tmp_path / "made", choice=choice)
    portable = {row["input"].split()[0] for row in cases(done.directory, "portable")}
    assert "basename" in portable
    for row in cases(done.directory, "portable"):
        assert row["command"] != "df"
        assert "root" not in row["output"].split()
