"""The example of a package that adds a command and a predictor is installed and used."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from shioenv.dataset.questions import question_of
from shioenv.domain.behavior import Behavior
from shioenv_eval.suite import Head, Suite, SuiteCase, write_suite

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "guest"
PAGE = ROOT / "docs" / "how-to" / "guest.md"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory for PYTHONPATH with the installed example."""
    place = tmp_path_factory.mktemp("guest")
    source, target = place / "source", place / "target"
    shutil.copytree(EXAMPLE, source, ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"),
            *("--no-build-isolation", "--disable-pip-version-check", "--target", target, source),
        ],
        check=True,
    )
    return target


def shioenv(installed: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(installed), "COLUMNS": "100"}
    command = [sys.executable, "-m", "shioenv.cli.main", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done


def test_its_command_works_on_a_dataset(installed: Path, tmp_path: Path) -> None:
    inputs = ["ls", "ls -l /tmp", "ls -a -l"]
    rows = [json.dumps({"input": each, "output": "", "exit_code": 0}) for each in inputs]
    (tmp_path / "rows").write_text("\n".join(rows))
    released = ("--out", tmp_path / "made", "--format", "released")
    shioenv(installed, "dataset", "import", tmp_path / "rows", *released)
    done = shioenv(installed, "dataset", "longest", tmp_path / "made", "--count", "2")
    assert done.stdout == "   2  ls -l /tmp\n   2  ls -a -l\n"
    done = shioenv(installed, "dataset", "longest", tmp_path / "made", "--count", "1", "--json")
    assert json.loads(done.stdout) == [{"id": 1, "arguments": 2}]
    said = shioenv(installed, "dataset", "--help").stdout
    names = re.findall(r"(?m)^\W*([a-z]+)  ", said)
    assert names[-2:] == ["report", "longest"]


def test_its_predictor_is_judged(installed: Path, tmp_path: Path) -> None:
    does = {"echo a  b": b"a b\n", "echo $HOME": b"/root\n", "pwd": b"/home/ubuntu\n"}
    cases = tuple(
        SuiteCase(question_of({"input": text}, number, "guest"), (Behavior(0, output),))
        for number, (text, output) in enumerate(does.items())
    )
    head = Head("guest", "debian-12", "0" * 64, "/home/ubuntu", 5, 61.0, {})
    write_suite(Suite(head, cases), tmp_path / "guest.suite")
    suite = ("--suite", tmp_path / "guest.suite")
    done = shioenv(installed, "evaluate", "--predictor", "echoes", *suite, "--json")
    facts = json.loads(done.stdout)["predictors"]["echoes"]
    assert facts["version"] == "1"
    assert facts["all"]["abstained"][0] == pytest.approx(2 / 3, abs=1e-4)
    assert facts["all"]["em"][0] == pytest.approx(1 / 3, abs=1e-4)


def test_the_page_shows_the_example() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for kind, name in (("toml", "pyproject.toml"), ("python", "shioenv_longest.py")):
        file = (EXAMPLE / name).read_text(encoding="utf-8")
        shown = re.findall(rf"```{kind}\n(.*?)```", page, re.DOTALL)
        assert shown == [file]


def test_it_imports_public_modules_of_the_core_alone() -> None:
    page = (ROOT / "docs" / "reference" / "interfaces.md").read_text(encoding="utf-8")
    public = set(re.findall(r"^\| `(shioenv\.[\w.]+)` \|", page, re.MULTILINE))
    tree = ast.parse((EXAMPLE / "shioenv_longest.py").read_text(encoding="utf-8"))
    used = {
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("shioenv")
        for name in (str(node.module), *(f"{node.module}.{one.name}" for one in node.names))
    }
    assert all({name, name.rpartition(".")[0]} & public or name == "shioenv.cli" for name in used)
