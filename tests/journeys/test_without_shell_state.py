"""If no bash of a system can be served, scores and records require an explicit option.

The library inside bash is really broken: it needs a symbol that no C library has, like one that was
compiled on a newer host.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from shioenv.dataset.manifest import read_manifest
from shioenv.dataset.record_reader import read_records
from shioenv.system.store import System
from support.nightly import NIGHTLY, by_day
from support.paths import ROOT

PACKAGE = ROOT / "packages/shioenv/src/shioenv"
FLAG = "--without-shell-state"
SMALL = ("--budget", "2", "--seed", "3", "--workers", "1")

pytestmark = pytest.mark.xdist_group("without_shell_state")


class Shioenv:
    """The package in a separate directory, run as a program."""

    def __init__(self, directory: Path, system: System) -> None:
        self.directory, self.system = directory, system

    def python(self, *words: str | Path, status: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, *map(str, words)],
            env=os.environ | {"PYTHONPATH": str(self.directory)},
            cwd=self.directory,
            capture_output=True,
            text=True,
        )
        assert done.returncode == status, (done.stdout, done.stderr)
        return done

    def __call__(self, *words: str | Path, status: int = 0) -> subprocess.CompletedProcess[str]:
        return self.python("-m", "shioenv.cli.main", *words, status=status)

    def refuses(self, *words: str | Path) -> None:
        said = self(*words, status=3).stderr
        assert "error: shell state on" in said
        assert f"shell state on {self.system.name} cannot be read" in said
        assert "SHIO-H03" in said
        assert FLAG in said


@pytest.fixture(scope="module")
def broken(system: System, tmp_path_factory: pytest.TempPathFactory) -> Shioenv:
    directory = tmp_path_factory.mktemp("broken")
    shutil.copytree(PACKAGE, directory / "shioenv")
    source = directory / "broken.c"
    source.write_text(
        "long of_a_newer_library(void);\nlong f(void) { return of_a_newer_library(); }\n"
    )
    library = directory / "shioenv/native/bin/preload.so"
    command = ["cc", "-shared", "-fPIC", "-nostdlib", "-o", str(library), str(source)]
    subprocess.run(command, check=True)
    return Shioenv(directory, system)


@pytest.fixture(scope="module")
def whole(system: System) -> Shioenv:
    return Shioenv(PACKAGE.parent, system)


def test_the_build_says_it_in_one_line(broken: Shioenv) -> None:
    said = broken("system", "build").stderr.splitlines()
    (line,) = [line for line in said if line.startswith("shell: ")]
    assert line.startswith("shell: NOT SUPPORTED: the shell state cannot be read")
    assert FLAG in line
    assert "late: cannot open the sandbox" in line


def test_the_doctor_says_it_as_a_failure_with_the_fix(broken: Shioenv, whole: Shioenv) -> None:
    document = json.loads(broken("doctor", "--json", status=3).stdout)
    missing = {check["name"]: check for check in document["checks"] if not check["ok"]}
    needed = {name: check for name, check in missing.items() if check["needed"]}
    assert document["ok"] is False
    assert needed.keys() == {"shell state"}
    assert "its bash does not support the fork server" in needed["shell state"]["detail"]
    assert FLAG in needed["shell state"]["fix"]
    checks = json.loads(whole("doctor", "--json").stdout)["checks"]
    (found,) = [check for check in checks if check["name"] == "shell state"]
    assert found["ok"]


def test_a_single_run_says_it_and_shows_the_rest(broken: Shioenv) -> None:
    done = broken("run", "--json", "touch x; cd /")
    assert "warning: shell state on" in done.stderr
    document = json.loads(done.stdout)
    assert document["shell_state_known"] is False
    assert [operation[:2] for operation in document["context_patch"]] == [["a", "/fs/x"]]


def test_what_asks_for_no_shell_state_works(broken: Shioenv) -> None:
    assert json.loads(broken("grammar", "coverage", "true", "--json").stdout)["commands"] == 1


def test_a_score_is_refused_unless_told(broken: Shioenv) -> None:
    broken.refuses("score", "cd documents")
    told = json.loads(broken("score", FLAG, "--json", "ls documents").stdout)
    assert told["irreducibility"] == 1.0


def shell_states(directory: Path) -> set[bool]:
    manifest = read_manifest(directory)
    assert manifest.plan.limits is not None
    assert manifest.plan.limits.without_shell_state
    document = json.loads((directory / "manifest.json").read_text())
    assert document["limits"]["without_shell_state"] is True
    return {record.shell_state_known for record in read_records(directory)}


def test_a_dataset_is_refused_unless_told_and_says_so(
    broken: Shioenv, whole: Shioenv, tmp_path: Path
) -> None:
    asked = ("--count", "3", "--command", "ls", "--command", "touch", *SMALL)
    broken.refuses("generate", tmp_path / "set", *asked)
    assert not (tmp_path / "set").exists()
    assert "state not read" in broken("generate", tmp_path / "set", FLAG, *asked).stdout
    assert shell_states(tmp_path / "set") == {False}
    broken("dataset", "verify", tmp_path / "set", "--replay", "1")
    # the same everywhere, and different from a dataset with the state
    whole("generate", tmp_path / "same", FLAG, *asked)
    ours, theirs = (
        (tmp_path / name / "data/00000.ndjson").read_bytes() for name in ("set", "same")
    )
    if not read_manifest(tmp_path / "set").volatile:
        assert ours == theirs
    said = whole("generate", tmp_path / "set", *asked, status=2).stderr
    assert "limits.without_shell_state: true in the dataset, false requested" in said


@NIGHTLY
def test_an_import_is_refused_unless_told_and_says_so(broken: Shioenv, tmp_path: Path) -> None:
    (tmp_path / "list").write_text("cd documents\nls -a\n")
    asked = ("dataset", "import", tmp_path / "list", "--out", tmp_path / "set", *SMALL)
    broken.refuses(*asked)
    broken(*asked, FLAG)
    assert shell_states(tmp_path / "set") == {False}


@NIGHTLY
def test_an_experiment_is_refused_unless_told(broken: Shioenv, tmp_path: Path) -> None:
    sizes = ("--count", "1", "--max-arguments", "2", "--estimates", "1", "--workers", "1")
    asked = ("experiment", "sampling-efficiency", "--out", tmp_path, *sizes)
    broken.refuses(*asked)
    broken(*asked, FLAG)
    assert '"without shell state": true' in (tmp_path / "data/exact/inputs.ndjson").read_text()


PYTHON = """
import gymnasium, shioenv
from shioenv.errors import ShellStateError
known = shioenv.Limits(without_shell_state={without})

def env(name):
    made = gymnasium.make(name, limits=known)
    made.reset(seed=1)
    if name == "ShIOEnv-v0":
        made.step({{"input_addition": "ls", "exec_action": 0, "new_global": 1}})
        return made.step({{"input_addition": "", "exec_action": 1, "new_global": 0}})[4]
    while True:
        mask = made.unwrapped.action_masks()
        _, _, ended, _, info = made.step(int(mask.argmax()))
        if ended:
            return info

for what in (
    lambda: shioenv.open_sandbox(limits=known).run("true").shell_state_known,
    lambda: shioenv.score("ls -a", limits=known).behavior.shell_state_known,
    lambda: env("ShIOEnv-v0")["shell_state_known"],
    lambda: env("ShIOEnv-Grammar-v0")["shell_state_known"],
):
    try:
        print(what())
    except ShellStateError as error:
        print(error.code, error.system)
"""


@pytest.mark.parametrize("without", by_day([False, True], 2))
def test_in_python_limits_say_it(broken: Shioenv, *, without: bool) -> None:
    said = broken.python("-c", PYTHON.format(without=without)).stdout.splitlines()
    assert said == (["False"] if without else [f"SHIO-H03 {broken.system.name}"]) * 4


def test_nothing_of_it_is_remembered(broken: Shioenv, whole: Shioenv, system: System) -> None:
    """A repaired package finds the shell served again, and a newly broken one finds it out."""
    broken.refuses("score", "ls -a")
    assert json.loads(whole("run", "--json", "cd /").stdout)["shell_state_known"] is True
    kept = json.loads((system.path / "shell.json").read_text())
    assert (kept["mode"], kept["reason"]) == ("late", "")
    broken.refuses("score", "ls -a")
