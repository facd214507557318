"""Tasks on a scripted machine: generation, prompts, judging, certificates, composition, export."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from shioenv.errors import ActionError, EnvironmentOptionError, EpisodeError, TaskError
from shioenv.recording.text_score import read_arguments
from shioenv_agents.tasks import agents, certify, make, task_composition
from shioenv_agents.tasks import env as task_env
from shioenv_agents.tasks.agents import attempts, results_of
from shioenv_agents.tasks.attacks import ATTACKS, forgeries
from shioenv_agents.tasks.certificate import Certificate
from shioenv_agents.tasks.certify import (
    certificate_of,
    certify_file,
    certify_tasks,
    faults_now,
    recheck_tasks,
    sealed,
    verify_tasks,
)
from shioenv_agents.tasks.episode import SHOWN, Episode, shown
from shioenv_agents.tasks.goal_check import Judge
from shioenv_agents.tasks.harbor.task_folders import refusal
from shioenv_agents.tasks.make import make_task, make_tasks, proved_with_part, reworded, unsuited
from shioenv_agents.tasks.prompt import in_file
from shioenv_agents.tasks.task import Goal, GoalKind, Task, read_tasks, write_tasks
from shioenv_agents.tasks.task_composition import composed_tasks, of_lines, repair_of
from shioenv_agents.tasks.terminal import Terminal
from support.scripted_tasks import (
    MACHINE,
    STOOD,
    made,
    record,
    task,
    typed,
    use_scripted_machines,
)
from support.toy_machine import DIGEST, FILES, HOME, SYSTEM, ToyMachine

MADE = {
    "rm b": ["`b` no longer exists"],
    "mv a data/n": ["`a` has been moved to `data/n`"],
    "cp a n": [
        "`n` is a regular file: permissions 0644 (rw-r--r--), owner root, group root, size 8 bytes",
        "`n` has the original content of `a`",
    ],
    "chmod 600 a": ["the permissions of `a` are 0600 (rw-------)"],
    "chown adm a": ["the owner of `a` is adm"],
    "chown adm:sys a": ["the owner of `a` is adm", "the group of `a` is sys"],
    "mkdir n": ["`n` is a directory: permissions 0755 (rwxr-xr-x), owner root, group root"],
    "mkfifo n": ["`n` is a named pipe: permissions 0644 (rw-r--r--), owner root, group root"],
    "ln -s a n": ["`n` is a symbolic link to `a`: owner root, group root"],
    "touch a": ["the modification time of `a` is the current time"],
    "touch n": [
        "`n` is a regular file: permissions 0644 (rw-r--r--), owner root, group root, size 0 bytes",
        "`n` is empty",
    ],
    "truncate -s 3 a": [
        "the size of `a` is 3 bytes",
        "`a` contains only the first 3 bytes of its original content",
    ],
    "truncate -s 9 a": [
        "the size of `a` is 9 bytes",
        "`a` contains its original content, followed by null bytes",
    ],
    "truncate -s 4 n": [
        "`n` is a regular file: permissions 0644 (rw-r--r--), owner root, group root, size 4 bytes",
        "`n` contains only null bytes",
    ],
    "sort -r b a > n": [
        "`n` is a regular file: permissions 0644 (rw-r--r--), owner root, group root, "
        "size 14 bytes",
        "`n` contains exactly this text, with a newline at the end:\n```\ntwo\nother\none\n```",
    ],
    "echo more >> a": [
        "the size of `a` is 13 bytes",
        "`a` contains its original content, followed by this text, with a newline at the end:\n"
        "```\nmore\n```",
    ],
    "printf x > n": [
        "`n` is a regular file: permissions 0644 (rw-r--r--), owner root, group root, size 1 byte",
        "`n` contains exactly this text, without a newline at the end:\n```\nx\n```",
    ],
    "export LANG=de": ["the shell exports the variable `LANG` with the value `de`"],
    "unset LANG": ["the shell exports no variable `LANG`"],
    "cd data": ["the shell's working directory is `/home/ubuntu/data`"],
    "umask 0077": ["the shell's umask is 0077"],
    "hostname other": ["the host name is `other`"],
}
"""Sentences of a prompt about the final state, by the input that the task is made from."""

KINDS = {
    "rm b": "Remove a file.",
    "mv a data/n": "Move or rename a file.",
    "cp a n": "Copy a file.",
    "chmod 600 a": "Change the permissions of a file.",
    "chown adm:sys a": "Change the owner or group of a file.",
    "mkdir n": "Create a directory.",
    "mkfifo n": "Create a named pipe.",
    "ln -s a n": "Create a symbolic link.",
    "touch a": "Change the modification time of a file.",
    "touch n": "Create a file.",
    "truncate -s 3 a": "Change the content of a file.",
    "sort -r b a > n": "Create a file.",
    "export LANG=de": "Change the shell's environment.",
    "cd data": "Change the shell's working directory.",
    "umask 0077": "Change the shell's settings.",
    "hostname other": "Change the host name.",
}


@pytest.mark.parametrize("text", MADE)
def test_each_fact_of_a_goal_is_told(text: str) -> None:
    found = task(text)
    facts = "\n".join(f"- {line}" for line in MADE[text])
    begin = f"You are root, in a Bash shell whose working directory is `{HOME}`. "
    assert found.prompt.startswith(begin + KINDS.get(text, ""))
    assert f"leave everything else unchanged:\n\n{facts}\n" in f"{found.prompt}\n"
    assert found.kind is GoalKind.STATE
    assert "`" not in facts or found.prompt.endswith(f"Relative paths start from `{HOME}`.")
    assert certificate_of(found, (), MACHINE, k=1, judged_by=STOOD).untold == ()


def test_a_moved_file_keeps_its_content() -> None:
    wanted = task("mv a data/n")
    assert wanted.goal.digests == {"data/n": hashlib.sha256(FILES["a"]).hexdigest()}
    terminal = Terminal(MACHINE, HOME)
    terminal.run("rm a; cp b data/n")
    assert "content of data/n" in Judge(wanted, MACHINE).judge(terminal).missing


def test_an_output_is_asked_for() -> None:
    found = task("sort -r a")
    asked = "the result of these steps: take the lines of `a`; sort the lines, in reverse order."
    alone = "The last command that you run must print this and nothing else."
    end = f"{alone} Leave the machine unchanged."
    assert f"\n\nPrint {asked}\n\n{end}" in found.prompt
    assert (found.kind, found.goal.output) == (GoalKind.OUTPUT, "two\none\n")
    told = in_file(found.prompt, "/answer")
    assert told is not None
    assert f"\n\nWrite to the file `/answer` {asked}\n\nThe file must contain nothing" in told
    both = task("rm b; sort -r a")
    assert f"\n\nThe last command that you run must also print {asked}" in both.prompt
    assert both.kind is GoalKind.BOTH


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("touch 'n*'", "its file is named by a pattern that matched nothing"),
        ("pwd", make.GIVEN_AWAY),
        ("pwd --nothing", "it changes nothing, and its output cannot be described"),
        ("rm b b", make.REDUCED),
        ("printf '\\x01' > n", None),
        ("echo x; rm b", None),
    ],
)
def test_what_makes_no_task_says_why(text: str, why: str | None) -> None:
    found = made(text)
    assert isinstance(found, str) == (why is not None) or isinstance(found, Task)
    assert why is None or found == why


def test_a_record_of_another_behavior_makes_no_task() -> None:
    other = record("sort -r a", output_bytes=b"x\n")
    assert make_task(other, MACHINE) == "its input has another effect in a persistent shell"


@pytest.mark.parametrize(
    ("solution", "why"), [("rm a", make.UNSOLVED), (": x", make.IDLE), ("rm b b", make.REDUCED)]
)
def test_a_draft_that_is_not_proved_is_no_task(solution: str, why: str) -> None:
    goal = Goal() if why == make.IDLE else task("rm b").goal
    draft = replace(task("rm b"), goal=goal, solution=solution)
    assert proved_with_part(draft, "", read_arguments(solution).input, MACHINE) == why


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"system": "other"}, "it belongs to another system"),
        ({"cwd": ""}, "it belongs to another system"),
        ({"exit_code": 1}, "its input failed"),
        ({"mistake": "an option"}, "its input contains a mistake"),
        ({"timed_out": True}, "it reached a limit"),
        ({"limits_hit": ("processes",)}, "it reached a limit"),
        ({"volatile": True}, "its input is volatile"),
        ({"n_arguments": 0}, "its input has no argument"),
        ({"irreducibility": None}, "its irreducibility is too low or unknown"),
        ({"irreducibility": 0.5}, "its irreducibility is too low or unknown"),
        ({"irreducibility": 0.7}, None),
    ],
)
def test_a_record_that_does_not_suit_says_why(change: dict[str, Any], why: str | None) -> None:
    assert unsuited(record("rm b", **change), "toy", 0.7) == why


# ---- judging

GONE_A = tuple(f"/fs/a/{key}" for key in ("group", "links", "owner", "perms", "size"))


@pytest.mark.parametrize(
    ("text", "rows", "missing", "extra"),
    [
        ("rm b", ["rm b"], (), ()),
        ("rm b", ["ls", "cd data", "rm b"], (), ()),
        ("rm b", [":"], ("/fs/b",), ()),
        ("rm b", ["rm a"], ("/fs/b",), GONE_A),
        ("rm b", ["rm b", "hostname x"], (), ("/hostname",)),
        ("rm b", ["rm b", "touch data/c"], (), ()),  # times of files do not count
        ("touch a", ["touch a", "touch data/c"], (), ("/fs/data~1c/date",)),
        ("rm b", ["rm b", "echo x > a"], (), ("/fs/a/size", "content of a")),
        ("chmod 600 a", ["chmod 640 a"], ("/fs/a/perms",), ()),
        ("cp a n", ["cp b n"], ("/fs/n", "content of n"), ()),
        ("mv a data/n", ["cp a data/n", "rm a"], ("/fs/data~1n",), ()),
        ("export LANG=de", ["export LANG=de", "export X=1"], (), ()),
        ("cd data", ["cd /"], ("/cwd",), ()),
        ("sort -r a", ["rm a", "echo two; echo one"], (), GONE_A),
        ("sort -r a", ["echo two; echo one"], (), ()),
        ("sort -r a", ["sort a"], ("output",), ()),
    ],
)
def test_what_counts_is_the_goal(
    text: str, rows: list[str], missing: tuple[str, ...], extra: tuple[str, ...]
) -> None:
    terminal = Terminal(MACHINE, HOME)
    for row in rows:
        terminal.run(row)
    verdict = Judge(task(text), MACHINE).judge(terminal)
    assert (verdict.missing, verdict.extra) == (missing, extra)
    assert verdict.passed == (not missing and not extra)


def test_progress_is_the_share_that_holds() -> None:
    wanted = task("chown adm:sys a")
    episode = Episode(wanted, MACHINE, max_turns=2)
    assert episode.act("chown adm a").verdict.progress == 0.5
    turn = episode.act(":")
    assert (turn.truncated, turn.done, episode.over) == (True, False, True)
    with pytest.raises(EpisodeError):
        episode.act(":")


def test_a_fork_knows_nothing_of_later_lines() -> None:
    first = Episode(task("rm b"), MACHINE)
    first.act("ls")
    other = first.fork()
    assert other.act("rm b").done
    assert (first.over, first.terminal.rows, first.turns) == (False, ["ls"], 1)


def test_a_task_of_another_build_is_refused() -> None:
    for system, hint in (("toy", "--rebase"), ("tok", "--system tok")):
        other = replace(task("rm b"), system=system, system_digest="0" * 64)
        with pytest.raises(TaskError) as raised:
            Judge(other, MACHINE)
        assert hint in str(raised.value)


def test_an_output_is_shown_with_its_exit_code() -> None:
    run = typed("cat missing")
    assert shown(run) == "cat: No such file\n[exit code 1]"
    assert shown(typed(":")) == "[no output]"
    long = typed(f"echo {'x' * 2 * SHOWN}")
    assert f"[{SHOWN + 1} characters omitted]" in shown(long)
    slow = dataclasses.replace(run, timed_out=True)
    assert shown(slow).endswith("[timed out: the effects of this line were undone]")
    assert shown(slow, stays=True).endswith("[timed out: all processes were ended]")


# ---- certificates


@pytest.mark.parametrize("text", [*MADE, "sort -r a"])
def test_a_sound_task_has_no_fault(text: str) -> None:
    found = certificate_of(task(text), ["rm data/c"], MACHINE, k=2, judged_by=STOOD)
    assert replace(found, loaded=2).faults == ()
    assert (found.solved, found.idle, found.loaded) == (2, 0, 0)
    assert "rm data/c" in found.near_misses


def test_right_answers_are_spelt_otherwise() -> None:
    found = certificate_of(task("cp a n"), (), MACHINE, k=1, judged_by=STOOD)
    assert f"cp {HOME}/a n" in found.alternatives
    assert "{ cp a n; }" in found.alternatives
    assert any(text.startswith("cat a > n") for text in found.alternatives)
    assert "cp a n\ndd status=none conv=notrunc bs=1 count=1 if=/dev/zero of=n" not in (
        found.alternatives
    )


@pytest.mark.parametrize("text", MADE)
def test_a_prompt_without_a_fact_leaves_the_goal_open(text: str) -> None:
    whole = task(text)
    for fact in MADE[text]:
        if "bytes" in fact and "holds" not in fact and len(MADE[text]) > 1:
            continue  # the content may imply the size
        less = replace(whole, prompt=whole.prompt.replace(f"- {fact}", ""))
        assert certificate_of(less, (), MACHINE, k=1, judged_by=STOOD).untold, fact


def test_a_solution_in_the_prompt_is_a_leak() -> None:
    whole = task("chmod 600 a")
    told = replace(whole, prompt=f"Do chmod 600 a. {whole.prompt}")
    assert certificate_of(told, (), MACHINE, k=1, judged_by=STOOD).leaks == ("prompt",)


def test_each_fault_is_named() -> None:
    found = certificate_of(task("rm b"), (), MACHINE, k=2, judged_by=STOOD)
    wrong: dict[str, Any] = {
        "solved": 1, "idle": 1, "loaded": 1, "mistaken": ("x",), "refused": ("a", "b", "c", "d"),
        "untold": ("x",), "leaks": ("prompt",), "altered": ("f",),
        "judged_by": replace(STOOD, forged=("x",)),
    }  # fmt: skip
    faults = replace(found, **wrong).faults
    assert len(faults) == len(wrong)
    assert "correct answers fail: a, b, c and 1 more" in faults


def certified(text: str = "chmod 600 a") -> Task:
    whole = task(text)
    found = certificate_of(whole, (), MACHINE, k=2, judged_by=STOOD)
    return sealed(whole, replace(found, loaded=2))


def with_certificate(whole: Task, **change: Any) -> Task:
    assert whole.certificate is not None
    return replace(whole, certificate=replace(whole.certificate, **change))


def test_a_certificate_is_found_again() -> None:
    assert faults_now(certified(), MACHINE) == ()
    assert faults_now(task("rm b"), MACHINE) == ("the certificate is missing",)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"digest": ""}, "the certificate has no digest"),
        ({"digest": "0" * 64}, "the task or its certificate was changed after certification"),
        ({"goal": ""}, "changed after certification: goal"),
        ({"prompt": ""}, "changed after certification: prompt"),
        ({"tests": ""}, "changed after certification: tests"),
        ({"system": ""}, "changed after certification: system"),
        ({"judged_by": replace(STOOD, judge="x")}, "the judge was changed after certification"),
        (
            {"judged_by": replace(STOOD, attacks=1)},
            "the number of attacks was changed after certification",
        ),
    ],
)
def test_an_edit_of_a_certificate_is_a_fault(change: dict[str, Any], fault: str) -> None:
    assert fault in faults_now(with_certificate(certified(), **change), MACHINE)


def test_an_edit_of_a_task_is_a_fault() -> None:
    whole = certified()
    assert faults_now(replace(whole, id="other", solved_by={"x": True}), MACHINE) == ()
    assert "a part of the solution passes" in faults_now(
        replace(whole, reduced="chmod 600 a"), MACHINE
    )
    faults = faults_now(replace(whole, solution=":"), MACHINE)
    assert "the solution passed 0 of 2 times" in faults


def test_no_attack_is_paid_on_a_scripted_machine() -> None:
    quick = [one for one in ATTACKS if one.kind in ("an exit code", "the goal printed")]
    assert forgeries(task("rm b"), MACHINE, quick) == []
    assert ATTACKS[1].on(task("rm b"))[0].startswith("printf '%s\\n' '{\"patch\": ")


# ---- many tasks


@pytest.fixture
def serial(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every machine the scripted one, and skip the attacks."""
    use_scripted_machines(monkeypatch)


def test_records_become_tasks(serial: None) -> None:
    texts = ["rm b", "chmod 600 a", "pwd --nothing"]
    done: list[tuple[int, int]] = []
    records = [record(text) for text in texts] + [record("rm b", exit_code=1)]
    found = make_tasks(records, report=lambda *counts: done.append(counts))
    assert [one.solution for one in found.tasks] == texts[:2]
    assert set(found.refused) == {
        "its input failed",
        "it changes nothing, and its output cannot be described",
    }
    assert done == [(1, 3), (2, 3), (3, 3)]


def test_proofs_are_verified(serial: None) -> None:
    sound = task("rm b")
    wrong = replace(sound, solution="rm a", reduced="rm b")
    found = verify_tasks([sound, wrong, replace(sound, goal=replace(sound.goal, patch=[]))])
    assert found[0] == ()
    assert found[1][0].startswith("the recorded solution fails: /fs/b, /fs/a/")
    assert found[1][1:] == ("a part of the solution passes",)
    assert "doing nothing passes" in found[2]


def test_tasks_are_certified_and_checked_again(serial: None, tmp_path: Path) -> None:
    tasks = [replace(task(text), id=text[:2]) for text in ("rm b", "cp a n")]
    open_ = replace(tasks[0], id="open", prompt="Do it.")
    write_tasks([*tasks, open_], tmp_path / "tasks")
    found = certify_file(tmp_path / "tasks", tmp_path / "out", k=1)
    assert [bool(one.certificate and one.certificate.faults) for one in found] == [
        False,
        False,
        True,
    ]
    kept = read_tasks(tmp_path / "out")
    assert [one.id for one in kept] == ["rm", "cp"]
    assert recheck_tasks(kept) == [(), ()]
    assert recheck_tasks([tasks[0]]) == [("the certificate is missing",)]
    assert not (tmp_path / "out.partial").exists()
    write_tasks([open_], tmp_path / "open")
    with pytest.raises(TaskError, match="have faults"):
        certify_file(tmp_path / "open", tmp_path / "none", k=1)


def test_rebased_tasks_get_prompts_in_the_present_wording(serial: None, tmp_path: Path) -> None:
    tasks = [task(text) for text in ("rm b", "sort -r a", "rm b; sort -r a")]
    words = "Please tidy up.\n\n"
    old = [
        replace(one, id=str(number), prompt=f"{words}You are root. Old words.")
        for number, one in enumerate(tasks)
    ]
    write_tasks(old, tmp_path / "tasks")
    found = certify_file(tmp_path / "tasks", tmp_path / "out", k=1, rebase=True)
    assert [one.prompt for one in found] == [words + one.prompt for one in tasks]
    unknown = replace(old[0], goal=replace(tasks[0].goal, digests={"b": "0" * 64}))
    assert reworded(unknown, MACHINE) == unknown


def test_certifying_goes_on_where_it_was_stopped(
    serial: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = [replace(task(text), id=text[:2]) for text in ("rm b", "cp a n")]
    first = certify_tasks(tasks, k=1, kept=tmp_path / "kept")
    monkeypatch.setattr(certify, "certificate_of", lambda *given, **more: pytest.fail("again"))
    assert certify_tasks(tasks, k=1, kept=tmp_path / "kept") == first
    with pytest.raises(TaskError, match="several systems"):
        certify_tasks([tasks[0], replace(tasks[1], system="other")], k=1)


def test_longer_tasks_are_composed(serial: None) -> None:
    tasks = [task(text) for text in ("rm b", "cp a n", "chmod 600 a", "mkdir d", "mv data/c e")]
    found = composed_tasks(tasks, lines=4, broken=3, seed=1)
    again = composed_tasks(tasks, lines=4, broken=3, seed=1)
    assert [one.id for one in found.tasks] == [one.id for one in again.tasks]
    several = [one for one in found.tasks if not one.history]
    broken = [one for one in found.tasks if one.history]
    assert several
    assert broken
    assert all("Make several changes." in one.prompt for one in several)
    assert all(
        "Someone made unwanted changes to this machine. Undo them." in one.prompt for one in broken
    )
    assert verify_tasks(found.tasks) == [()] * len(found.tasks)
    with pytest.raises(TaskError, match="only a state as its goal"):
        composed_tasks([task("sort -r a")], lines=1, broken=1)


@pytest.mark.parametrize(
    ("harm", "rows"),
    [
        ("chmod 600 a", ["chmod 0644 a"]),
        ("chown adm:sys a", ["chgrp -h root a", "chown -h root a"]),
        ("mv a n", ["mv n a"]),
        ("export LANG=de", ["export LANG='C'"]),
        ("cp a b", None),
        ("ln -sf data/c a", None),
        ("hostname other", None),
        ("cd data", None),
    ],
)
def test_what_a_line_did_is_undone(harm: str, rows: list[str] | None) -> None:
    found = repair_of([task(harm)], MACHINE)
    if rows is None:
        assert not isinstance(found, Task) or harm == "cp a b"
        return
    assert isinstance(found, Task), found
    assert sorted(found.solution.split("\n")) == rows
    assert found.history == [harm]


def test_lines_that_are_not_all_needed_make_no_task() -> None:
    base = task("chmod 600 a")
    found = task_composition.proved_rows(MACHINE, base, (), ["rm b", "ls"], ["rm", "ls"], kind="")
    assert found == make.REDUCED


def test_lines_need_others_that_begin_where_they_do() -> None:
    assert of_lines([task("rm b")], Random(0), MACHINE) == "too few tasks begin in its directory"


def test_agents_try_tasks(serial: None) -> None:
    tasks = [task(text) for text in ("rm b", "chmod 600 a", "cp a n", "sort -r a")]
    facts = attempts(tasks, "facts", system="toy")
    recorded = attempts(tasks, "recorded", turns=2)
    idle = attempts(tasks, "idle", turns=1)
    assert [one.solved for one in facts] == [True, True, True, False]
    assert [(one.solved, one.turns) for one in recorded] == [(True, 2)] * 4
    assert [one.solved for one in idle] == [False] * 4
    rows = results_of(tasks, {"facts": facts, "idle": idle})
    assert rows[0] == {
        "agent": "facts", "by": "kind", "group": "state", "tasks": 3, "solved": 3,
        "progress": 1.0, "turns": 1.0,
    }  # fmt: skip
    assert [(row["by"], row["group"]) for row in rows[:4]] == [
        ("kind", "state"), ("kind", "output"), ("length", "one line"), ("all", "all"),
    ]  # fmt: skip
    assert agents.names(task("rm b"))([]) == "ls"


# ---- environment, Harbor


def test_the_environment_plays_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = ToyMachine()
    monkeypatch.setattr(task_env, "open_sandbox", lambda system, limits: machine)
    env = task_env.TaskEnv([replace(task("rm b"), id="x")], max_turns=2, render_mode="ansi")
    with pytest.raises(EpisodeError):
        env.step("ls")
    told, info = env.reset(seed=1, options={"task": "x"})
    assert told in env.observation_space
    assert info == {
        "task": "x", "progress": 0.0, "turns": 0, "missing": ("/fs/b",), "extra": (),
    }  # fmt: skip
    with pytest.raises(ActionError):
        env.step("x\0")
    assert env.step("ls")[1:4] == (0.0, False, False)
    assert env.step("rm b")[1:4] == (1.0, True, False)
    assert str(env.render()).endswith("$ rm b\n[no output]")
    env.reset(seed=1)
    assert env.step(":")[3] is False
    assert env.step(":")[1:4] == (0.0, False, True)
    for options in ({"task": "y"}, {"tusk": "x"}):
        with pytest.raises(EnvironmentOptionError):
            env.reset(options=options)
    env.close()
    assert machine.closed == 1


@pytest.mark.parametrize(
    "given",
    [
        {"tasks": []}, {"max_turns": 0}, {"render_mode": "human"}, {"tasks": ["one", "other"]},
    ],
)  # fmt: skip
def test_an_environment_that_cannot_be_is_refused(given: dict[str, Any]) -> None:
    known = {"tasks": ["toy"], **given}
    tasks = [replace(task("rm b"), system=name) for name in known.pop("tasks")]
    with pytest.raises(EnvironmentOptionError):
        task_env.TaskEnv(tasks, **known)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("rm b", None),
        ("mv a data/n", None),
        ("sort -r a", None),
        ("hostname x", "it is about the host name"),
        ("cd data", "it is about the state of the shell"),
        ("touch a", "it is about file times"),
        ("echo more >> a", None),
        ("cp a /tests/n", "it changes a file that belongs to Harbor or the container"),
    ],
)
def test_what_harbor_cannot_be_told_says_why(text: str, why: str | None) -> None:
    assert refusal(task(text), SYSTEM) == why


def test_a_certificate_is_read_as_it_was_written() -> None:
    known = certified().certificate
    assert known is not None
    assert msgspec.json.decode(msgspec.json.encode(known), type=Certificate) == known
    assert json.loads(msgspec.json.encode(known))["system"] == DIGEST
