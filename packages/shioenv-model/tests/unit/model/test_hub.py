"""Upload models to a hub and download them: the library's own requests, to a fake hub."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from shioenv_model.files import pack, write_card
from support.hub_server import hub
from support.small_world import small_memory


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


ASKED = """
import json, sys
from typer.testing import CliRunner
from shioenv.cli.main import app
for words in json.load(sys.stdin):
    done = CliRunner().invoke(app, ["model", *words])
    print(json.dumps([done.exit_code, done.stdout, done.stderr]))
"""


def called(environment: dict[str, str], *commands: Sequence[str]) -> list[tuple[int, str, str]]:
    """Return exit code, output and errors of each command."""
    line, asked = [sys.executable, "-c", ASKED], json.dumps(commands)
    done = subprocess.run(
        line, input=asked, env=environment, capture_output=True, text=True, check=True
    )
    return [tuple(json.loads(each)) for each in done.stdout.splitlines()]


def test_what_is_pushed_can_be_got_and_asked(
    served: tuple[dict[str, str], dict[str, dict[str, bytes]]], mine: Path, tmp_path: Path
) -> None:
    environment, repositories = served
    (code, _, errors), (got, where, said), (_, shown, _) = called(
        environment,
        ["push", str(mine), "somebody/shell"],
        ["get", "somebody/shell", "--name", "theirs", "--json"],
        ["show", "theirs", "--json"],
    )
    assert code == 0, errors
    kept = repositories["somebody/shell"]
    assert kept["shioenv.model"] == mine.read_bytes()
    assert "# mine" in kept["README.md"].decode()
    assert "no execution" in kept["README.md"].decode()
    assert got == 0, said
    file = Path(json.loads(where)["file"])
    assert file == tmp_path / "cache" / "shioenv" / "models" / "theirs.model"
    assert file.read_bytes() == mine.read_bytes()
    assert json.loads(shown)["name"] == "mine"


def test_what_cannot_be_got_says_why_and_leaves_nothing(
    served: tuple[dict[str, str], dict[str, dict[str, bytes]]], tmp_path: Path
) -> None:
    environment, repositories = served
    repositories["somebody/empty"] = {}
    repositories["somebody/bad"] = {"shioenv.model": b"no model at all"}
    reasons = {"empty": "shioenv.model", "bad": "not a packed model", "gone": "gone"}
    done = called(environment, *(["get", f"somebody/{name}"] for name in reasons))
    for reason, (code, _, errors) in zip(reasons.values(), done, strict=True):
        assert code == 1
        assert reason in errors, errors
        assert "SHIO-M01" in errors
    assert not list((tmp_path / "cache" / "shioenv" / "models").glob("*.model"))


def test_who_may_not_push_is_told(
    served: tuple[dict[str, str], dict[str, dict[str, bytes]]], mine: Path
) -> None:
    environment, repositories = served
    del environment["HF_TOKEN"]
    ((code, _, errors),) = called(environment, ["push", str(mine), "somebody/shell"])
    assert code == 1
    assert "somebody/shell" in errors
    assert not repositories
