"""Publish a dataset on a hub: the library's own requests, and the library that loads it there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shioenv.dataset.split import Shares, split
from support.dataset_fakes import make
from support.hub_server import hub

Repositories = dict[str, dict[str, bytes]]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[dict[str, str], Repositories]]:
    with hub() as (url, repositories):
        # the library reads its settings when it is imported, hence the separate process
        yield {
            **os.environ, "HF_ENDPOINT": url, "HF_TOKEN": "hf_x", "HF_HOME": str(tmp_path / "hf"),
            "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "NO_PROXY": "127.0.0.1",
        }, repositories  # fmt: skip


def pushed(environment: dict[str, str], *words: str | Path) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "shioenv.cli.main", "dataset", "push", *map(str, words)]
    return subprocess.run(line, env=environment, capture_output=True, text=True, check=False)


def test_three_splits_are_published_in_one_commit_and_loaded(
    served: tuple[dict[str, str], Repositories], tmp_path: Path
) -> None:
    environment, repositories = served
    make(tmp_path / "whole", 40)
    split(tmp_path / "whole", tmp_path / "parts", Shares(test=0.3, validation=0.3), seed=2)
    repositories["me/records"] = {"old.txt": b"of an earlier version", ".gitattributes": b"kept"}
    line = (tmp_path / "parts", "me/records", "--license", "cc-by-4.0", "--json")
    done = pushed(environment, *line)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["records"] == 40
    assert told["url"].endswith("/datasets/me/records")
    kept = repositories["me/records"]
    assert "old.txt" not in kept
    assert ".gitattributes" in kept
    card = kept["README.md"].decode()
    assert "license: cc-by-4.0" in card
    assert "licences of their\nown" in card
    for name, content in kept.items():
        (tmp_path / "got" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "got" / name).write_bytes(content)
    import datasets

    declared = datasets.load_dataset_builder(
        str(tmp_path / "got"), cache_dir=str(tmp_path / "cache")
    ).info
    loaded = datasets.load_dataset(str(tmp_path / "got"), cache_dir=str(tmp_path / "cache"))
    assert {name: len(part) for name, part in loaded.items()} == {
        name: each.num_examples for name, each in declared.splits.items()
    }
    assert set(loaded) == {"train", "validation", "test"}
    assert sum(map(len, loaded.values())) == 40
    assert declared.features == loaded["train"].features


def test_what_a_hub_refuses_is_reported(
    served: tuple[dict[str, str], Repositories], tmp_path: Path
) -> None:
    environment, repositories = served
    make(tmp_path / "whole", 3)
    del environment["HF_TOKEN"]
    done = pushed(environment, tmp_path / "whole", "me/records", "--license", "mit")
    assert done.returncode == 1
    assert "SHIO-W05" in done.stderr
    assert "HF_TOKEN" in done.stderr
    assert not repositories
