"""The built system compared with another side: the machine itself, and hostile programs."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from shioenv.behavior.observe import SandboxRunner
from shioenv.dataset.questions import read_questions
from shioenv.domain.inputs import Input
from shioenv.domain.predictor import PatchLevel
from shioenv.domain.runner import State
from shioenv.errors import PredictorError, UsageError
from shioenv.system.store import System
from shioenv_eval.conform.comparison import CaseComparison, compare_with_machine, write_comparison
from shioenv_eval.conform.truth import CaseInput, CaseMachine, Choice, TruthCase, truth_of
from shioenv_eval.predictor_pool import Bounds
from support.nightly import LARGER, NIGHTLY, scaled

SHIOENV = Path(sys.executable).with_name("shioenv")

PROGRAM = """\
import json, os, subprocess, sys, time
for line in sys.stdin:
    question = json.loads(line)
    if "hello" in question:
        assert open(question["root"] + "/etc/debian_version").read().startswith("12")
        said = {"version": "1", "patch_level": "files", "shell": "sh -c", "install": "true"}
    else:
        HOSTILE
    print(json.dumps(said), flush=True)
"""
HOSTILE = """\
what = question["input"]
        if what == "whoami --version": time.sleep(60)
        if what == "whoami --help": os._exit(3)
        if what == "arch --version":
            sys.stdout.write("x" * (9 << 20)); sys.stdout.flush(); os._exit(0)
        said = {"exitCode": 0} if what == "arch --help" else {"output": ""}"""
LOST = {
    "whoami --version": "timed_out",
    "whoami --help": "crashed",
    "arch --version": "invalid",
    "arch --help": "invalid",
}


def program(directory: Path, hostile: str = "said = {'output': ''}") -> str:
    path = directory / "shell.py"
    path.write_text(PROGRAM.replace("HOSTILE", hostile))
    return shlex.join([sys.executable, str(path)])


class Unused(CaseMachine):
    """A machine that must not be asked."""

    def behaviors(self, tasks: object) -> Iterator[tuple[int, None]]:
        raise AssertionError("something is executed")


@pytest.fixture(scope="module", autouse=True)
def cache(system: System, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Make a new cache for truths, with the built system."""
    directory = tmp_path_factory.mktemp("truths")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shioenv_eval.conform.truth.cache_directory", lambda: directory)
        yield


def test_the_machine_does_what_the_machine_does(system: System) -> None:
    done = compare(
        "sandbox",
        choice=Choice(
            ("wc", "mkdir"),
            40,
        ),
        workers=2,
    )
    assert (done.share, done.findings, done.level) == (1.0, (), PatchLevel.FULL)
    assert len(done.verdicts) >= 37
    kinds = done.document["kinds"]
    assert sum(kind["drawn"] for kind in kinds.values()) == 40


def test_truth_is_executed_once(
    system: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shioenv_eval.conform.truth.cache_directory", lambda: tmp_path / "cache")
    with CaseMachine(system, 1) as machine:
        first = truth_of(machine, Choice(("wc",), 12))
    with Unused(system, 1) as unused:
        assert truth_of(unused, Choice(("wc",), 12)) == first
        assert truth_of(unused, Choice(("wc",), 5)) == first[:5]
    (kept,) = (tmp_path / "cache").rglob("cases.ndjson")
    lines = kept.read_bytes().splitlines(keepends=True)
    kept.write_bytes(b"".join((*lines[:4], b"00000000 {}\n", *lines[5:-1], lines[-1][:-20])))
    asked: list[int] = []

    class Counted(CaseMachine):
        def behaviors(self, tasks):  # type: ignore[no-untyped-def]
            given = list(tasks)
            asked.extend(number for number, _ in given)
            return super().behaviors(given)

    with Counted(system, 1) as machine:
        assert truth_of(machine, Choice(("wc",), 12)) == first
    assert sorted(asked) == sorted((number_of(lines[4]), number_of(lines[-1])))


def number_of(line: bytes) -> int:
    return int(json.loads(line[9:])[0])


@NIGHTLY
def test_a_hostile_program_loses_its_cases_and_never_the_run(tmp_path: Path) -> None:
    """It hangs, dies, floods and answers nonsense."""
    done = compare(
        program(tmp_path, HOSTILE),
        choice=Choice(("whoami", "arch"), 10),
        workers=2,
        bounds=Bounds(answer=1.0),
    )
    lost = {
        one.case.drawn.input.text: one.said.status.value
        for one in done.verdicts
        if "answer" in one.classes
    }
    assert {text: lost[text] for text in lost if text in LOST} == lost
    assert len(lost) >= 3
    assert len(done.verdicts) > len(lost)
    found = {one.reduced.asked.input.text for one in done.findings}
    assert found >= lost.keys()


def compare(against: str, **settings: Any) -> CaseComparison:
    """Run a comparison whose answers are not kept."""
    with compare_with_machine(against, **settings) as comparison:
        return comparison


@pytest.fixture(scope="module")
def wc_and_mkdir(cache: None, tmp_path_factory: pytest.TempPathFactory) -> CaseComparison:
    return compare(
        program(tmp_path_factory.mktemp("silent")),
        choice=Choice(
            ("wc", "mkdir"),
            20,
        ),
        workers=2,
    )


def test_a_finding_is_minimal_and_its_script_shows_it(
    wc_and_mkdir: CaseComparison, observer: SandboxRunner
) -> None:
    done = wc_and_mkdir
    assert done.level is PatchLevel.FILES
    assert sum(one.count for one in done.findings) == sum(not one.right for one in done.verdicts)
    finding = next(
        one
        for one in done.findings
        if one.reduced.asked.input.text.startswith("wc") and not one.reduced.asked.history
    )
    shown = done.shown(finding)
    assert any(line.startswith("-") for line in shown[2:])
    # a Debian root with an empty start directory
    script = done.script(finding)
    state = State(cwd="/", history=("rm -rf /home/ubuntu",))
    typed = f"cat > /tmp/s <<'SCRIPT'\n{script}SCRIPT\nbash /tmp/s; echo status $?"
    did = observer.run(typed, state)
    assert "status 1\n" in did.text, did.text  # sh and bash call the same wc
    assert "exists already" in observer.run(typed, State(cwd="/")).text
    other = script.replace("sh -c", "sh -c 'echo other;'")
    typed = f"cat > /tmp/s <<'SCRIPT'\n{other}SCRIPT\nbash /tmp/s; echo status $?"
    did = observer.run(typed, state)
    assert "+other\n" in did.text
    assert did.text.endswith("status 0\n")


@LARGER
@pytest.mark.parametrize(
    ("command", "patch", "right"),
    [
        ("wc", [], "machine"),
        ("mkdir", [["a", "/fs/x", {}], ["r", "/fs/README.md"]], "touch x; rm README.md"),
    ][:: scaled(2, 1)],
)
def test_a_script_holds_the_answer_of_a_side_that_no_shell_calls(
    observer: SandboxRunner, tmp_path: Path, command: str, patch: list[object], right: str
) -> None:
    silent = program(tmp_path, f"said = {{'output': '', 'context_patch': {patch}}}")
    file = tmp_path / "shell.py"
    file.write_text(file.read_text().replace('"shell": "sh -c", ', ""))
    done = compare(silent, choice=Choice((command,), 20), workers=2)
    finding = next(one for one in done.findings if not one.reduced.asked.history)
    script = done.script(finding)
    assert "cannot be run from a script" in script
    alike = f"machine() {{ {right}; }}\n" if patch else "other() { machine; }\n"
    same = script.replace("for side in", f"{alike}for side in")
    # one without files has none that could be removed
    same = same.replace("listed >", "touch README.md; listed >") if patch else same
    state = State(cwd="/", history=("rm -rf /home/ubuntu",))
    for text, status in ((script, 0), (same, 1)):
        typed = f"cat > /tmp/s <<'SCRIPT'\n{text}SCRIPT\nbash /tmp/s; echo status $?"
        did = observer.run(typed, state)
        assert did.text.endswith(f"status {status}\n"), did.text


def test_a_comparison_is_written_for_programs_and_people(
    wc_and_mkdir: CaseComparison, tmp_path: Path
) -> None:
    done = wc_and_mkdir
    write_comparison(done, tmp_path / "out")
    out = tmp_path / "out"
    document = json.loads((out / "results.json").read_text())
    assert document["steady"] == len(done.verdicts)
    assert document["commands"]["wc"]["right"] + document["commands"]["mkdir"]["right"] == sum(
        one.right for one in done.verdicts
    )
    root = ElementTree.parse(out / "junit.xml").getroot()
    failures = root.findall("testsuite/testcase/failure")
    assert len(root.findall("testsuite/testcase")) == 20
    assert len(failures) == sum(not one.right for one in done.verdicts)
    assert len([*(out / "findings").iterdir()]) == len(done.findings)
    page = (out / "report.html").read_text()
    assert "<script>" in page
    assert f"lines with + from {done.title}." in page


def test_a_program_that_knows_files_is_not_asked_for_more(tmp_path: Path) -> None:
    with pytest.raises(PredictorError, match="reports only the names of changed files"):
        compare(program(tmp_path), choice=Choice(("wc",), 1), level=PatchLevel.FULL, workers=1)


def test_there_is_at_least_one_case() -> None:
    with pytest.raises(UsageError):
        compare("sandbox", choice=Choice(count=0))


@NIGHTLY
def test_the_exit_status_says_whether_enough_is_right(tmp_path: Path) -> None:
    words = [str(SHIOENV), "conform", "--against", program(tmp_path), "--command", "whoami"]
    words += ["--count", "6", "--workers", "1", "--json"]
    for share, status in (("0", 0), ("1", 1)):
        done = subprocess.run(
            [*words, "--at-least", share], capture_output=True, text=True, check=False
        )
        assert done.returncode == status, done.stderr
        assert json.loads(done.stdout)["share"] < 1
    refused = subprocess.run([str(SHIOENV), "conform"], capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "--against" in refused.stderr


def test_a_case_knows_what_is_asked(system: System) -> None:
    with CaseMachine(system, 1) as machine:
        (case,) = truth_of(machine, Choice(("whoami",), 1))
    assert isinstance(case, TruthCase)
    assert case.asked.task == (case.drawn.input.text, State(cwd="/home/ubuntu"))


def test_rounds_are_executed_by_the_same_processes(system: System) -> None:
    """A process takes a second to start, and a difference is made smaller in dozens of rounds."""
    asked = CaseInput("/home/ubuntu", (), Input.from_marked(("wc", "README.md")))
    with CaseMachine(system, 1) as machine:
        assert dict(machine.behaviors([(1, asked)])).keys() == {1}
        processes = children()
        assert dict(machine.behaviors([(2, asked)])).keys() == {2}
        assert children() == processes != set()


def children() -> set[str]:
    """Return the running child processes."""
    return set(Path("/proc/thread-self/children").read_text().split())


KILLED = """
import os, signal, sys
from pathlib import Path
from shioenv_eval.conform import truth
from shioenv_eval.conform.comparison import compare_with_machine
from shioenv_eval.conform.truth import Choice
from shioenv.files import unfinished
program, cache, what, at = sys.argv[1:]
truth.cache_directory = unfinished.cache_directory = lambda: Path(cache)
seen = []
def progress(doing, done, total):
    seen.append(doing)
    if seen.count(what) == int(at):
        os.kill(os.getpid(), signal.SIGKILL)
with compare_with_machine(program, choice=Choice(("wc",), 20), workers=1, progress=progress):
    pass
"""


@NIGHTLY
def test_a_comparison_that_was_killed_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is killed during the answers, then during minimisation; no question is repeated."""
    cache = tmp_path / "cache"
    monkeypatch.setattr("shioenv_eval.conform.truth.cache_directory", lambda: cache)
    questions = tmp_path / "questions"
    asks = f"open({str(questions)!r}, 'a').write(line); said = {{'output': ''}}"
    other = program(tmp_path, asks)
    monkeypatch.setattr("shioenv.files.unfinished.cache_directory", lambda: cache)

    def asked() -> list[str]:
        lines = questions.read_text().splitlines() if questions.exists() else []
        questions.unlink(missing_ok=True)
        return lines

    for what, at in (("answers", 6), ("differences", 3)):
        words = [sys.executable, "-c", KILLED, other, str(cache), what, str(at)]
        assert subprocess.run(words, check=False).returncode == -signal.SIGKILL
    asked()
    assert len(list((cache / "unfinished").iterdir())) == 1
    told: list[str] = []
    choice = Choice(("wc",), 20)
    went_on = compare(other, choice=choice, workers=1, tell=told.append)
    kept = [int(one.split()[4]) for one in told if "of its answers are reused" in one]
    rest = asked()
    assert not list((cache / "unfinished").iterdir())
    whole = compare(other, choice=choice, workers=1)
    assert went_on.document == whole.document
    assert kept[0] > len(whole.verdicts)
    assert len(rest) == len(asked()) - kept[0]


def test_given_inputs_are_cases(system: System, tmp_path: Path) -> None:
    inputs = tmp_path / "inputs"
    lines = ["wc  -l documents/notes.txt", "true", "true", "echo $RANDOM"]
    lines.append(json.dumps({"input": "ls -a | sort", "history": ["cd /tmp"]}))
    inputs.write_text("\n".join(lines))
    choice = Choice(given=tuple(read_questions(inputs)))
    done = compare(program(tmp_path), choice=choice, workers=1)
    assert [case.drawn.input.text for case in done.truth] == [*lines[:2], lines[3], "ls -a | sort"]
    assert done.document["kinds"]["given"] == done.counted(done.truth)
    assert (done.document["drawn"], done.document["steady"], done.document["right"]) == (4, 3, 1)
    minimal = {finding.reduced.asked.input.text for finding in done.findings}
    assert minimal <= {"wc  -l documents/notes.txt", "ls -a | sort", "ls -a", "ls"}
    with Unused(system, 1) as unused:
        assert truth_of(unused, choice) == list(done.truth)
