"""Upload models to a hub and download them: the library's own requests, to a fake hub."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shioenv_model.files import pack, write_card
from support.hub_server import hub
from support.small_world import small_memory

Called = subprocess.CompletedProcess[str]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[dict[str, str], dict[str, dict[str, bytes]]]]:
    with hub() as (url, repositories):
        # the library reads its settings when it is imported, hence the separate process
        yield {
            **os.environ,
            "HF_ENDPOINT": url, "HF_TOKEN": "hf_x", "HF_HOME": str(tmp_path / "hf"),
            "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1",
            "SHIOENV_CACHE": str(tmp_path / "cache" / "shioenv"), "NO_PROXY": "127.0.0.1",
        }, repositories  # fmt: skip


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    directory = tmp_path / "memory"
    small_memory(directory)
    limits = "no execution"
    write_card(directory, {"name": "mine", "kind": "memory", "system": "small", "limits": limits})
    pack(directory, tmp_path / "mine.model")
    return tmp_path / "mine.model"


def called(environment: dict[str, str], *words: str) -> Called:
    line = [sys.executable, "-m", "shioenv.cli.main", "model", *words]
    return subprocess.run(line, env=environment, capture_output=True, text=True, check=False)


def test_what_is_pushed_can_be_got_and_asked(
    served: tuple[dict[str, str], dict[str, dict[str, bytes]]], mine: Path, tmp_path: Path
) -> None:
    environment, repositories = served
    pushed = called(environment, "push", str(mine), "somebody/shell")
    assert pushed.returncode == 0, pushed.stderr
    kept = repositories["somebody/shell"]
    assert kept["shioenv.model"] == mine.read_bytes()
    assert "# mine" in kept["README.md"].decode()
    assert "no execution" in kept["README.md"].decode()
    got = called(environment, "get", "somebody/shell", "--name", "theirs", "--json")
    assert got.returncode == 0, got.stderr
    file = Path(json.loads(got.stdout)["file"])
    assert file == tmp_path / "cache" / "shioenv" / "models" / "theirs.model"
    assert file.read_bytes() == mine.read_bytes()
    shown = called(environment, "show", "theirs", "--json")
    assert json.loads(shown.stdout)["name"] == "mine"


def test_what_cannot_be_got_says_why_and_leaves_nothing(
    served: tuple[dict[str, str], dict[str, dict[str, bytes]]], tmp_path: Path
) -> None:
    environment, repositories = served
    repositories["somebody/empty"] = {}
    repositories["somebody/bad"] = {"shioenv.model": b"no model at all"}
    for name, said in [("empty", "shioenv.model"), ("bad", "not a packed model"), ("gone", "gone")]:
        got = called(environment, "get", f"somebody/{name}")
        assert got.returncode != 0
        assert said in got.stderr, got.stderr
        assert "SHIO-M01" in got.stderr
        assert "Traceback" not in got.stderr
    assert not list((tmp_path / "cache" / "shioenv" / "models").glob("*.model"))


def test_who_may_not_push_is_told(
    served: tuple[dict[str, str], dict[str, dict[str, bytes]]], mine: Path
) -> None:
    environment, repositories = served
    del environment["HF_TOKEN"]
    pushed = called(environment, "push", str(mine), "somebody/shell")
    assert pushed.returncode != 0
    assert "somebody/shell" in pushed.stderr
    assert not repositories
