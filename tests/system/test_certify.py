"""Certificates: what is found out about a task, written down, and found out again."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from shioenv.behavior.observe import SandboxRunner
from shioenv.cli.main import app
from shioenv.domain.inputs import Session
from shioenv.errors import TaskError
from shioenv.irreducibility.scoring import Scoring
from shioenv.live.terminal import Terminal
from shioenv.recording.session import SessionRecorder
from shioenv.recording.text import read_arguments
from shioenv.tasks import certify
from shioenv.tasks.certificate import Certificate, JudgeCertificate
from shioenv.tasks.certify import certificate_of, certify_tasks, faults_now, judge_digests
from shioenv.tasks.check import Judge, Verdict
from shioenv.tasks.make import made_of
from shioenv.tasks.task import Task, read_tasks, write_tasks

pytestmark = [pytest.mark.usefixtures("system"), pytest.mark.xdist_group("tasks")]

HOME = "/home/ubuntu"
JUDGE, CHANNEL = judge_digests()
STOOD = JudgeCertificate(judge=JUDGE, channel=CHANNEL, attacks=60, tasks=50)
TEXTS = (
    "chmod --verbose 600 data/numbers.txt",
    "sort -r documents/names.txt",
    "cp data/ids.txt logs/copy",
    "sort -u documents/names.txt > sorted.txt",
    "mv data/dates.txt logs/when",
    "export DB_PORT=100",
    "ln -s ../logs data/here",
    "echo more >> documents/todo.txt",
    "ip addr add 192.168.100.10 dev eth0",
    "truncate -s 8 data/scores.csv",
)


@pytest.fixture(scope="module")
def tasks(observer: SandboxRunner) -> dict[str, Task]:
    made = {}
    for number, text in enumerate(TEXTS):
        recorder = SessionRecorder(scoring=Scoring(budget=8))
        session = Session(HOME, (read_arguments(text, observer.system).input,))
        recorded = recorder.record(session, observer, Random(0))
        record = recorded.record(number, system=observer.system.name, sampler="test")
        task = made_of(record, observer)
        assert isinstance(task, Task), task
        made[text] = task
    return made


@pytest.fixture
def certified(observer: SandboxRunner, tasks: dict[str, Task]) -> Callable[..., Certificate]:
    def of(text: str, near: tuple[str, ...] = (), **changed: Any) -> Certificate:
        task = replace(tasks[text], **changed)
        return certificate_of(task, near, observer, k=2, judged_by=STOOD)

    return of


@pytest.mark.parametrize("text", TEXTS)
def test_a_sound_task_passes_every_line(text: str, certified: Callable[..., Certificate]) -> None:
    others = tuple(other for other in TEXTS if other != text)
    found = certified(text, others)
    assert replace(found, loaded=2).faults == ()
    assert (found.solved, found.idle) == (2, 0)
    assert len(found.near_misses) >= len(others)
    assert len(found.alternatives) >= 2


def test_alternatives_are_of_several_sorts(certified: Callable[..., Certificate]) -> None:
    found = certified("chmod --verbose 600 data/numbers.txt").alternatives
    assert "chmod 600 data/numbers.txt" in found  # an argument that the goal does not need
    assert "chmod -v 600 data/numbers.txt" in found
    assert "chmod 600 data/numbers.txt --verbose" in found
    assert any(f"{HOME}/data/numbers.txt" in text for text in found)
    assert any("0600" in text for text in found)
    assert any("printf" in text for text in certified(TEXTS[3]).alternatives)


def test_what_a_prompt_leaves_open_makes_a_task_underspecified(
    tasks: dict[str, Task], certified: Callable[..., Certificate]
) -> None:
    for text in TEXTS:
        lines = tasks[text].prompt.split("\n")
        facts = [n for n, line in enumerate(lines) if line.startswith(("- ", "Print "))]
        for fact in facts:
            if lines[fact].endswith("data/scores.csv` has 8 bytes"):
                continue  # the content implies it
            prompt = "\n".join(line for n, line in enumerate(lines) if n != fact)
            assert certified(text, prompt=prompt).untold, (text, lines[fact])


def test_a_value_that_is_wrong_is_not_told(
    tasks: dict[str, Task], certified: Callable[..., Certificate]
) -> None:
    prompt = tasks[TEXTS[0]].prompt.replace("-rw-------", "-rw-r-----")
    assert certified(TEXTS[0], prompt=prompt).untold == ("/fs/data~1numbers.txt/perms",)
    prompt = tasks[TEXTS[2]].prompt.replace(
        "what `data/ids.txt` held", "what `data/dates.txt` held"
    )
    assert certified(TEXTS[2], prompt=prompt).untold == ("content of logs/copy",)


def test_a_solution_that_can_be_read_is_found(
    tasks: dict[str, Task], observer: SandboxRunner, certified: Callable[..., Certificate]
) -> None:
    text = "sort -r documents/names.txt"
    told = f"Type sort -r, please.\n\n{tasks[text].prompt}"
    assert certified(text, prompt=told).leaks == ("prompt",)
    history = (observer.read(f"{HOME}/.bash_history") or b"").decode().splitlines()
    typed = next(line for line in history if " " in line)
    assert certified(text, solution=typed).leaks == (f"{HOME}/.bash_history",)


def _lax(judge: Judge, terminal: Terminal) -> Verdict:
    return Verdict(True, 1.0, (), ())


def _narrow(judge: Judge, terminal: Terminal) -> Verdict:
    passed = terminal.rows == [judge.task.solution]
    return Verdict(passed, float(passed), (), ())


def test_a_judge_that_forgives_too_much_or_too_little_is_found(
    certified: Callable[..., Certificate], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "cp data/ids.txt logs/copy"
    monkeypatch.setattr(Judge, "judge", _lax)
    lax = certified(text)
    assert lax.idle == 2
    assert lax.mistaken == lax.near_misses
    assert len(lax.faults) == 3  # and it was not run under load
    monkeypatch.setattr(Judge, "judge", _narrow)
    narrow = certified(text)
    assert narrow.refused == narrow.alternatives != ()
    assert replace(narrow, loaded=2).faults[0].startswith("right answers fail: ")


def test_a_forged_reward_stops_every_task(certified: Callable[..., Certificate]) -> None:
    forged = replace(STOOD, forged=("000001: a trap",))
    found = replace(certified(TEXTS[0]), loaded=2, judged_by=forged)
    assert found.faults == ("rewards forged: 000001: a trap",)


def test_what_was_changed_since_is_found(
    observer: SandboxRunner, tasks: dict[str, Task], certified: Callable[..., Certificate]
) -> None:
    text = "sort -r documents/names.txt"
    found = replace(certified(text), loaded=2)
    task = replace(tasks[text], certificate=found)
    assert faults_now(task, observer) == ()
    assert faults_now(tasks[text], observer) == ("there is no certificate",)
    prompt = replace(task, prompt=task.prompt + "\n")
    assert faults_now(prompt, observer) == ("the prompt was changed since",)
    output = replace(task, goal=replace(task.goal, output="x\n"))
    assert "the goal was changed since" in faults_now(output, observer)
    assert any(fault.startswith("right answers fail") for fault in faults_now(output, observer))
    judge = replace(task, certificate=replace(found, judged_by=replace(STOOD, channel="0")))
    assert faults_now(judge, observer) == ("the judge was changed since",)


@pytest.fixture
def stood(monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge's own certificate, which takes minutes; `test_forged_rewards` tries the attacks."""
    monkeypatch.setattr(certify, "certified_judge", lambda *given: STOOD)


def test_tasks_are_certified_and_checked_by_a_command(
    tasks: dict[str, Task], tmp_path: Path, stood: None
) -> None:
    file, out = tmp_path / "tasks.jsonl", tmp_path / "certified.jsonl"
    broken = replace(tasks[TEXTS[1]], id="broken", prompt="Print it.")
    write_tasks([tasks[TEXTS[0]], broken, tasks[TEXTS[2]]], file)
    options = ["--k", "2", "--workers", "1", "--json"]
    made = CliRunner().invoke(app, ["tasks", "certify", str(file), "--out", str(out), *options])
    assert made.exit_code == 0, made.output
    document = json.loads(made.stdout)
    assert (document["tasks"], document["certified"]) == (3, 2)
    assert [one["id"] for one in document["faulty"]] == ["broken"]
    shipped = read_tasks(out)
    assert [one.certificate and one.certificate.loaded for one in shipped] == [2, 2]
    assert not list(tmp_path.glob("*.partial"))
    checked = CliRunner().invoke(app, ["tasks", "certify", str(out), "--check", "--workers", "1"])
    assert (checked.exit_code, "2 of 2 tasks are certified" in checked.stdout) == (0, True)
    worse = tmp_path / "worse.jsonl"
    write_tasks([shipped[0], replace(shipped[1], prompt="Copy it.")], worse)
    checked = CliRunner().invoke(app, ["tasks", "certify", str(worse), "--check", "--workers", "1"])
    assert checked.exit_code == 1
    assert "the prompt was changed since" in checked.stdout
    refused = CliRunner().invoke(app, ["tasks", "certify", str(out)])
    assert refused.exit_code == 2


def test_tasks_of_another_build_are_taken_over(
    tasks: dict[str, Task], tmp_path: Path, stood: None
) -> None:
    file, out = tmp_path / "tasks.jsonl", tmp_path / "certified.jsonl"
    here = tasks[TEXTS[0]]
    impossible = replace(tasks[TEXTS[2]], id="impossible", solution="mv nowhere.txt other.txt")
    write_tasks([replace(one, system_digest="cd" * 32) for one in (here, impossible)], file)
    words = ["tasks", "certify", str(file), "--out", str(out), "--k", "1", "--workers", "1"]
    refused = CliRunner().invoke(app, words)
    assert refused.exit_code == 1
    assert "--rebase" in refused.stderr
    done = CliRunner().invoke(app, [*words, "--rebase"])
    assert done.exit_code == 0, done.output
    assert "1 of 2 tasks are certified" in done.stdout
    (kept,) = read_tasks(out)
    assert (kept.id, kept.system_digest) == (here.id, here.system_digest)
    elsewhere = tmp_path / "elsewhere.jsonl"
    write_tasks([replace(here, system="debian-13", system_digest="cd" * 32)], elsewhere)
    words = ["tasks", "certify", str(elsewhere), "--out", str(tmp_path / "none.jsonl"), "--rebase"]
    other = CliRunner().invoke(app, [*words, "--system", here.system])
    assert other.exit_code == 1
    assert f"made on debian-13, and not on a build of {here.system}" in other.stderr
    check = CliRunner().invoke(app, ["tasks", "certify", str(file), "--check", "--rebase"])
    assert check.exit_code == 2


def test_who_was_stopped_goes_on(
    tasks: dict[str, Task], tmp_path: Path, stood: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certify, "BATCH", 1)
    monkeypatch.setattr(certify, "_load", nullcontext)
    some = [tasks[text] for text in TEXTS[:3]]
    kept = tmp_path / "kept"
    seen: list[int] = []

    def stop(done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        certify_tasks(some, k=1, kept=kept, workers=1, report=stop)
    whole = certify_tasks(
        some, k=1, kept=kept, workers=1, report=lambda done, total: seen.append(done)
    )
    assert seen == [2, 3]
    assert all(one.certificate is not None and one.certificate.k == 1 for one in whole)


def test_tasks_of_several_systems_are_refused(tasks: dict[str, Task]) -> None:
    one, other = tasks[TEXTS[0]], replace(tasks[TEXTS[1]], system="another")
    with pytest.raises(TaskError, match="several systems"):
        certify_tasks([one, other], k=1)
