"""Certificates: tests of a task, their written results, and their verification."""

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
from shioenv.errors import StartDirectoryError, TaskError
from shioenv.irreducibility.scoring import Scoring
from shioenv.recording.session import SessionRecorder
from shioenv.recording.text_score import read_arguments
from shioenv_agents.tasks import certify
from shioenv_agents.tasks.attacks import ATTACKS
from shioenv_agents.tasks.certificate import Certificate, JudgeCertificate
from shioenv_agents.tasks.certify import (
    SEALED,
    UNSEALED,
    certificate_of,
    certify_tasks,
    faults_now,
    judge_digests,
    sealed,
)
from shioenv_agents.tasks.goal_check import Judge, Verdict
from shioenv_agents.tasks.make import make_task
from shioenv_agents.tasks.task import Task, read_tasks, write_tasks
from shioenv_agents.tasks.terminal import Terminal
from support.nightly import NIGHTLY, by_day

pytestmark = pytest.mark.usefixtures("system")

HOME = "/home/ubuntu"
JUDGE, CHANNEL = judge_digests()
STOOD = JudgeCertificate(judge=JUDGE, channel=CHANNEL, attacks=len(ATTACKS), tasks=50)
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
        task = make_task(record, observer)
        assert isinstance(task, Task), task
        made[text] = task
    return made


@pytest.fixture
def certified(observer: SandboxRunner, tasks: dict[str, Task]) -> Callable[..., Certificate]:
    def of(text: str, near: tuple[str, ...] = (), **changed: Any) -> Certificate:
        task = replace(tasks[text], **changed)
        return certificate_of(task, near, observer, k=2, judged_by=STOOD)

    return of


@pytest.mark.parametrize("text", by_day(TEXTS, 3))
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
            if lines[fact] == "- the size of `data/scores.csv` is 8 bytes":
                continue  # the content implies it
            prompt = "\n".join(line for n, line in enumerate(lines) if n != fact)
            assert certified(text, prompt=prompt).untold, (text, lines[fact])


def test_a_value_that_is_wrong_is_not_told(
    tasks: dict[str, Task], certified: Callable[..., Certificate]
) -> None:
    prompt = tasks[TEXTS[0]].prompt.replace("0600 (rw-------)", "0640 (rw-r-----)")
    assert certified(TEXTS[0], prompt=prompt).untold == ("/fs/data~1numbers.txt/perms",)
    prompt = tasks[TEXTS[2]].prompt.replace(
        "content of `data/ids.txt`", "content of `data/dates.txt`"
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
    assert replace(narrow, loaded=2).faults[0].startswith("correct answers fail: ")


def test_a_forged_reward_stops_every_task(certified: Callable[..., Certificate]) -> None:
    forged = replace(STOOD, forged=("000001: a trap",))
    found = replace(certified(TEXTS[0]), loaded=2, judged_by=forged)
    assert found.faults == ("rewards forged: 000001: a trap",)


def test_what_was_changed_since_is_found(
    observer: SandboxRunner, tasks: dict[str, Task], certified: Callable[..., Certificate]
) -> None:
    text = "sort -r documents/names.txt"
    found = replace(certified(text), loaded=2)
    task = sealed(tasks[text], found)
    assert faults_now(task, observer) == ()
    assert faults_now(tasks[text], observer) == ("the certificate is missing",)
    prompt = replace(task, prompt=task.prompt + "\n")
    assert faults_now(prompt, observer) == ("changed after certification: prompt",)
    output = replace(task, goal=replace(task.goal, output="x\n"))
    assert "changed after certification: goal" in faults_now(output, observer)
    assert any(fault.startswith("correct answers fail") for fault in faults_now(output, observer))
    judge = sealed(task, replace(found, judged_by=replace(STOOD, channel="0")))
    assert faults_now(judge, observer) == ("the judge was changed after certification",)


def _edited(value: Any) -> Any:
    """Return another value of the same type."""
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case float():
            return value / 2 or 0.25
        case str():
            return f"{value}0"
        case tuple():
            return (*value, "true")
        case list():
            return [*value, "true"]
        case dict():
            return {**value, "names": True}
    assert value is None
    return 0.25


@pytest.fixture(scope="module")
def small(observer: SandboxRunner, tasks: dict[str, Task]) -> Task:
    """A certified task whose certificate is checked in few runs."""
    task = tasks[TEXTS[2]]
    whole = certificate_of(task, (), observer, k=2, judged_by=STOOD)
    misses, right = whole.near_misses[:1], whole.alternatives[:1]
    trial = certify.Trial(task, observer)
    found = replace(
        whole, near_misses=misses, alternatives=right, loaded=2, **trial.digests((*misses, *right))
    )
    done = sealed(replace(task, necessary=1.0), found)
    assert faults_now(done, observer) == ()
    return done


def test_an_edit_of_any_field_is_found(small: Task, observer: SandboxRunner) -> None:
    known = small.certificate
    assert known is not None
    edits: dict[str, Task] = {}
    for name in Certificate.__struct_fields__:
        if name != "judged_by":
            changed = replace(known, **{name: _edited(getattr(known, name))})
            edits[name] = replace(small, certificate=changed)
    for name in JudgeCertificate.__struct_fields__:
        judged_by = replace(STOOD, **{name: _edited(getattr(STOOD, name))})
        edits[f"judged_by.{name}"] = replace(small, certificate=replace(known, judged_by=judged_by))
    for name in Task.__struct_fields__:
        if name not in {"certificate", "goal", "system_digest"}:
            value = _edited(getattr(small, name))
            edits[f"task {name}"] = replace(small, **{name: value})
    for name, value in {"patch": [], "digests": {}, "output": "true\n"}.items():
        edits[f"goal {name}"] = replace(small, goal=replace(small.goal, **{name: value}))
    unseen = {name for name, task in edits.items() if not _is_refused(task, observer)}
    assert unseen == {f"task {name}" for name in UNSEALED}
    with pytest.raises(TaskError, match="was made on"):
        faults_now(replace(small, system_digest="ab" * 32), observer)


def _is_refused(task: Task, observer: SandboxRunner) -> bool:
    try:
        return bool(faults_now(task, observer))
    except StartDirectoryError:
        return True


@pytest.mark.parametrize(
    "edit",
    [
        {"k": 3},
        {"solved": 3},
        {"idle": 1},
        {"loaded": 3},
        {"mistaken": ("true",)},
        {"refused": ("true",)},
        {"untold": ("/cwd",)},
        {"leaks": ("prompt",)},
        {"near_misses": ("cp data/ids.txt logs/copy",)},
        {"alternatives": ("true",)},
        {"judged_by": replace(STOOD, attacks=1)},
        {"judged_by": replace(STOOD, forged=("000000: a trap",))},
        {"judged_by": replace(STOOD, judge="0")},
    ],
)
def test_what_a_check_finds_out_is_not_taken_from_a_digest(
    edit: dict[str, Any], small: Task, observer: SandboxRunner
) -> None:
    assert small.certificate is not None
    forged = sealed(small, replace(small.certificate, **edit))
    assert faults_now(forged, observer)


def test_the_solution_is_run_as_often_as_the_certificate_says(
    small: Task, observer: SandboxRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed: list[str] = []
    passes = certify.Trial.passes

    def counted(trial: certify.Trial, text: str) -> bool:
        typed.append(text)
        return passes(trial, text)

    monkeypatch.setattr(certify.Trial, "passes", counted)
    assert small.certificate is not None
    many = sealed(small, replace(small.certificate, k=50, solved=50))
    assert faults_now(many, observer, k=4) == ()
    assert (typed.count(small.solution), typed.count(certify.NOTHING)) == (4, 4)


@pytest.fixture
def stood(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the judge's own certificate, which takes minutes; `test_forged_rewards` tries the
    attacks."""
    monkeypatch.setattr(certify, "certified_judge", lambda *given: STOOD)


def test_tasks_are_certified_and_checked_by_a_command(
    tasks: dict[str, Task], tmp_path: Path, stood: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, out = tmp_path / "tasks.jsonl", tmp_path / "certified.jsonl"
    broken = replace(tasks[TEXTS[1]], id="broken", prompt="Print it.")
    write_tasks([tasks[TEXTS[0]], broken, tasks[TEXTS[2]]], file)
    options = ["--runs", "2", "--workers", "1", "--json"]
    made = CliRunner().invoke(app, ["tasks", "certify", str(file), "--out", str(out), *options])
    assert made.exit_code == 0, made.output
    document = json.loads(made.stdout)
    assert (document["tasks"], document["certified"]) == (3, 2)
    assert [one["id"] for one in document["faulty"]] == ["broken"]
    shipped = read_tasks(out)
    assert [one.certificate and one.certificate.loaded for one in shipped] == [2, 2]
    assert not list(tmp_path.glob("*.partial"))
    monkeypatch.setattr(certify, "_load", nullcontext)  # certifying has shown it
    checked = CliRunner().invoke(app, ["tasks", "certify", str(out), "--check", "--workers", "1"])
    assert (checked.exit_code, "certified: 2 of 2 tasks" in checked.stdout) == (0, True)
    assert all(name in checked.stdout for name in (*SEALED, *UNSEALED))
    worse = tmp_path / "worse.jsonl"
    write_tasks([shipped[0], replace(shipped[1], prompt="Copy it.")], worse)
    checked = CliRunner().invoke(app, ["tasks", "certify", str(worse), "--check", "--workers", "1"])
    assert checked.exit_code == 1
    assert "changed after certification: prompt" in checked.stdout
    refused = CliRunner().invoke(app, ["tasks", "certify", str(out)])
    assert refused.exit_code == 2


@NIGHTLY
def test_tasks_of_another_build_are_taken_over(
    tasks: dict[str, Task], tmp_path: Path, stood: None
) -> None:
    file, out = tmp_path / "tasks.jsonl", tmp_path / "certified.jsonl"
    here = tasks[TEXTS[0]]
    impossible = replace(tasks[TEXTS[2]], id="impossible", solution="mv nowhere.txt other.txt")
    write_tasks([replace(one, system_digest="cd" * 32) for one in (here, impossible)], file)
    words = ["tasks", "certify", str(file), "--out", str(out), "--runs", "1", "--workers", "1"]
    refused = CliRunner().invoke(app, words)
    assert refused.exit_code == 1
    assert "--rebase" in refused.stderr
    done = CliRunner().invoke(app, [*words, "--rebase"])
    assert done.exit_code == 0, done.output
    assert "certified: 1 of 2 tasks" in done.stdout
    (kept,) = read_tasks(out)
    assert (kept.id, kept.system_digest) == (here.id, here.system_digest)
    elsewhere = tmp_path / "elsewhere.jsonl"
    write_tasks([replace(here, system="debian-13", system_digest="cd" * 32)], elsewhere)
    words = ["tasks", "certify", str(elsewhere), "--out", str(tmp_path / "none.jsonl"), "--rebase"]
    other = CliRunner().invoke(app, [*words, "--system", here.system])
    assert other.exit_code == 1
    assert f"made on debian-13, not on {here.system}" in other.stderr
    check = CliRunner().invoke(app, ["tasks", "certify", str(file), "--check", "--rebase"])
    assert check.exit_code == 2


@NIGHTLY
def test_who_was_stopped_goes_on(
    tasks: dict[str, Task], tmp_path: Path, stood: None, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert seen == [1, 2, 3]
    assert all(one.certificate is not None and one.certificate.k == 1 for one in whole)


def test_tasks_of_several_systems_are_refused(tasks: dict[str, Task]) -> None:
    one, other = tasks[TEXTS[0]], replace(tasks[TEXTS[1]], system="another")
    with pytest.raises(TaskError, match="several systems"):
        certify_tasks([one, other], k=1)
