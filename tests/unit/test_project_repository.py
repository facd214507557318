"""The repository in the home tree of debian-12-dev is the one that its script makes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from shioenv.system.build import load_trees
from shioenv.system.declare import load_declaration
from support.paths import ROOT


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The working tree as a directory, with the declared times."""
    top = tmp_path_factory.mktemp("home")
    for entry in load_trees(load_declaration("debian-12-dev")):
        if entry.path.partition("/")[0] == "project":
            assert entry.owner == "root"  # else Git refuses root's commands
            path = top / entry.path
            if entry.kind == "directory":
                path.mkdir()
            else:
                path.write_bytes(entry.data)
                os.utime(path, (entry.mtime, entry.mtime))
    return top / "project"


def git(project: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-c", "safe.directory=*", *words],
        cwd=project, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return done.stdout


def test_the_tree_is_what_the_script_makes() -> None:
    script = ROOT / "scripts" / "project_repository.py"
    done = subprocess.run(
        [sys.executable, script, "--check"], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


def test_git_accepts_every_object_and_need_not_write_the_index(project: Path) -> None:
    assert git(project, "fsck", "--full", "--strict") == ""
    assert git(project, "rev-list", "--count", "--all").strip() == "14"
    index = (project / ".git" / "index").read_bytes()
    assert git(project, "status", "--porcelain") == " M README.md\n?? notes.txt\n"
    assert (project / ".git" / "index").read_bytes() == index


def test_the_tests_fail_since_the_commit_that_cut_prices(project: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(project, tmp_path / "copy")

    def tested(commit: str) -> int:
        git(copy, "checkout", "--force", "--quiet", commit)
        return subprocess.run(
            [sys.executable, "tests/run.py"], cwd=copy, check=False, capture_output=True
        ).returncode

    bad = git(project, "rev-list", "-n", "1", "--grep=Cut prices", "main").strip()
    assert [tested("main"), tested(bad), tested(f"{bad}^")] == [1, 1, 0]
