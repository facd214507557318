"""`make release` refuses what must not be tagged, before it installs or builds anything."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CORE = "packages/shioenv/pyproject.toml"
FILES = {
    CORE: 'version = "1.2.0"\n[project.urls]\nRepository = "https://forge.test/us"\n',
    "CHANGELOG.md": "## 1.2.0\n",
    "CITATION.cff": "version: 1.2.0\n",
}


def git(place: Path, *words: str) -> None:
    named = ("-c", "user.name=A", "-c", "user.email=a@b.test")
    subprocess.run(["git", *named, *words], cwd=place, check=True, capture_output=True)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Return a repository from which a release could be made."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / CORE).parent.mkdir(parents=True)
    shutil.copy(ROOT / "scripts/release.sh", tmp_path / "scripts")
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "all")
    return tmp_path


def refusal(clone: Path) -> str:
    """Return the script's error; `false` is the Python with which it would go on."""
    done = subprocess.run(
        ["scripts/release.sh"], cwd=clone, env={"PATH": "/usr/bin:/bin", "PYTHON": "false"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    return done.stdout + done.stderr


def test_a_clone_that_is_ready_is_gone_on_with(clone: Path) -> None:
    assert refusal(clone) == "release: making an environment (pip)\n"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("CHANGELOG.md", "## 1.1.0\n", "CHANGELOG.md has no section 1.2.0"),
        ("CHANGELOG.md", "## Unreleased\n## 1.2.0\n", "has a section Unreleased"),
        ("CITATION.cff", "version: 1.1.0\n", "CITATION.cff is of another version"),
        (CORE, 'version = "1.2.0"\n', "names no Repository"),
    ],
)
def test_what_does_not_fit_is_named(clone: Path, name: str, text: str, said: str) -> None:
    (clone / name).write_text(text)
    assert "the working tree has changes" in refusal(clone)
    git(clone, "commit", "-qam", "other")
    assert said in refusal(clone)


def test_a_version_is_tagged_once(clone: Path) -> None:
    git(clone, "tag", "v1.2.0")
    assert "making an environment" in refusal(clone)
    git(clone, "commit", "-q", "--allow-empty", "-m", "more")
    assert "the tag v1.2.0 stands on another commit" in refusal(clone)


def test_versions_are_written_as_the_script_reads_them() -> None:
    text = (ROOT / CORE).read_text(encoding="utf-8")
    (version,) = re.findall(r'^version = "(.*)"$', text, re.MULTILINE)
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\n## {version}\n" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
