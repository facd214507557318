"""Workflows and hooks run the clone's own commands, and publishing needs no password."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def loaded(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return document


def steps(name: str, job: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = loaded(ROOT / f".github/workflows/{name}.yml")["jobs"][job][
        "steps"
    ]
    return found


def test_continuous_integration_runs_what_the_clone_runs() -> None:
    run = [step["run"] for step in steps("ci", "ci") if "run" in step]
    assert run[-1].endswith(" .ci/run")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_of_others_are_named_by_their_commit(path: Path) -> None:
    used = re.findall(r"uses: (.*)", path.read_text(encoding="utf-8"))
    assert used
    for action in used:
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v[\d.]+", action), action


def test_the_job_that_may_publish_runs_nothing_of_the_repository() -> None:
    jobs = loaded(ROOT / ".github/workflows/publish.yml")["jobs"]
    assert [name for name, job in jobs.items() if "id-token" in job["permissions"]] == ["publish"]
    used = [
        step.get("uses", step.get("run", "")).partition("@")[0] for step in jobs["publish"]["steps"]
    ]
    assert used == ["actions/download-artifact", "pypa/gh-action-pypi-publish"]
    assert [step for step in steps("publish", "build") if step.get("run") == "make release"]
    assert "secrets." not in (ROOT / ".github/workflows/publish.yml").read_text(encoding="utf-8")


def test_hooks_before_a_commit_are_those_of_make_check() -> None:
    hooks = loaded(ROOT / ".pre-commit-config.yaml")["repos"][0]["hooks"]
    entries = " ".join(hook["entry"] for hook in hooks)
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8")
    found = re.search(r"^check:.*\n((?:\t.*\n)+)", recipe, re.MULTILINE)
    assert found is not None
    checks = re.findall(r"\$\(BIN\)/(.*)", found[1])
    assert len(checks) == 3
    for check in checks:
        assert f".venv/bin/{check}" in entries
