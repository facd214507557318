"""Predictors that are external programs: their limits, and their complete removal."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from shioenv.dataset.questions import question_of
from shioenv.domain.behavior import Behavior
from shioenv.execution.supervised import ended, supervised
from shioenv_eval.evaluate import Evaluation, evaluate
from shioenv_eval.suite import Head, Suite, SuiteCase, write_suite
from support.nightly import NIGHTLY, by_day
from support.waiting import let_time_pass, wait_until

PROGRAM = """
import json, os, subprocess, sys, time
time.sleep(float(os.environ.get("SLOW", 0)))
for line in sys.stdin:
    text = json.loads(line).get("input", "hello")
    if text == "die":
        os._exit(9)
    if text == "endless":
        while True:
            os.write(1, bytes(65536))
    if text == "hang" or text == os.environ.get("HANGS"):
        time.sleep(600)
    if text == "children":
        subprocess.Popen(["setsid", "sh", "-c", "sleep 600 & (setsid sleep 600 &); sleep 600"])
        subprocess.Popen(["sh", "-c", "trap '' TERM HUP INT; nohup sleep 600"])
    if text == "shut":
        os.close(1)
        time.sleep(600)
    if text == "deep":
        print("[" * 200_000, flush=True)
        continue
    print(json.dumps({"output": "x\\n"}), flush=True)
"""


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return f"command:{sys.executable} {path}"


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A mark in the environment of everything that the test starts, and nowhere else."""
    text = f"SHIOENV_TEST_MARK={uuid.uuid4()}"
    name, _, value = text.partition("=")
    monkeypatch.setenv(name, value)
    yield text
    for pid in marked(text):
        os.kill(pid, signal.SIGKILL)


def marked(mark: str) -> list[int]:
    """Return the processes with this in their environment, without zombies."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                if mark.encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def suite(*texts: str) -> Suite:
    cases = tuple(
        SuiteCase(question_of({"input": text}, number, "test"), (Behavior(0, b"x\n"),))
        for number, text in enumerate(texts)
    )
    return Suite(Head("test", "debian-12", "0" * 64, "/home/ubuntu", 5, 61.0, {}), cases)


def said(done: Evaluation) -> list[tuple[str, str]]:
    return [(one.status.value, one.why) for one in done.predictors[0].said]


def test_an_answer_without_end_is_none_and_the_next_is_not_touched(program: str) -> None:
    done = evaluate(suite("a", "endless", "deep", "b"), [program], workers=1)
    assert [status for status, _ in said(done)] == ["answered", "invalid", "invalid", "answered"]
    assert "exceeds 8 MiB" in said(done)[1][1]


OUT_OF_STEP = {
    "late": "threading.Timer(0.05, print, ['late'], {'flush': True}).start()",
    "twice": "answer += '\\n' + answer",
    "more": "print(answer + '\\n[half', end='', flush=True); continue",
    "early": "print(answer, flush=True); select.select([0], [], []); print(answer, flush=True); "
    "time.sleep(600)",
    "log": "print('a log line', flush=True)",
    "event": "print(json.dumps({'level': 'info'}), flush=True)",
    "list": "print('[1]', flush=True); time.sleep(0.05)",
}
"""A program's behavior before it answers a question with that name."""

STEPPING = """
import json, select, sys, threading, time
for line in sys.stdin:
    question = json.loads(line)
    text = question.get("input", "hello")
    answer = json.dumps({"output": text})
"""


@pytest.fixture
def stepping(tmp_path: Path) -> str:
    path = tmp_path / "stepping.py"
    parts = [STEPPING]
    parts += [f"    if text == {name!r}:\n        {did}\n" for name, did in OUT_OF_STEP.items()]
    parts += [
        "    if text == 'wait':\n        time.sleep(0.3)\n",
        "    print(answer, flush=True)\n",
    ]
    path.write_text("".join(parts))
    return f"command:{sys.executable} {path}"


@pytest.mark.parametrize("name", by_day([*OUT_OF_STEP], 4))
def test_no_answer_is_taken_for_that_to_another_question(stepping: str, name: str) -> None:
    texts = ("a", name, "wait", "b", "c", "d")
    done = evaluate(suite(*texts), [stepping], workers=1)
    answers = done.predictors[0].said
    for text, one in zip(texts, answers, strict=True):
        if one.status.value == "answered":
            assert one.behavior is not None
            assert one.behavior.output.decode() == text, said(done)
    assert [one.status.value for one in answers if one.status.value != "answered"] == ["invalid"]
    assert "answered" in {one.status.value for one in answers[1:]}


def script(tmp_path: Path, text: str) -> str:
    path = tmp_path / "predictor.sh"
    path.write_text(text)
    return f"command:sh {path}"


ANSWER = """echo '{"output": "x"}'"""
ANSWERS = f"""while read -r line; do {ANSWER}; done\n"""

BANNERS = {
    "a line": "echo 'Loading the model'",
    "a late line": "sleep 0.1; echo 'Loading the model'",
    "no end of line": "printf 'Loading the model'",
    "a late end": "printf 'Loading the model'; sleep 0.1",
    "an event": """echo '{"event": "Loading the model"}'; sleep 0.1""",
    "a number": "echo 12",
    "a list": "echo '[\"Loading the model\"]'",
}


@pytest.mark.parametrize("name", by_day([*BANNERS], 4))
def test_a_banner_is_refused_at_the_start(tmp_path: Path, name: str) -> None:
    program = script(tmp_path, f"{BANNERS[name]}\n{ANSWERS}")
    done = evaluate(suite("a", "b"), [program], workers=1)
    assert "did not answer its first line" in done.unable[program]
    assert "standard error" in done.unable[program]


@pytest.mark.parametrize(
    ("hello", "why"),
    [
        ('{"version": "\\ud800"}', "`version` in the answer"),
        ('{"training": 5}', "`training` in the answer"),
    ],
)
def test_what_a_program_says_of_itself_is_text(tmp_path: Path, hello: str, why: str) -> None:
    program = script(tmp_path, f"read -r line; cat <<'E'\n{hello}\nE\n{ANSWERS}")
    assert why in evaluate(suite("a"), [program], workers=1).unable[program]


@pytest.mark.parametrize("number", by_day(["NaN", "-Infinity", "1e999", "[" * 900 + "]" * 900], 3))
def test_a_value_that_no_json_has_is_no_answer(tmp_path: Path, number: str) -> None:
    answer = f'{{"output": "x", "context_patch": [["a", "/fs/a", {{"size": {number}}}]]}}'
    program = script(tmp_path, f"read -r line; echo '{{}}'; read -r line; echo '{answer}'")
    assert "not JSON" in evaluate(suite("a"), [program], workers=1).unable[program]


def test_bytes_that_are_no_text_are_no_answer(tmp_path: Path) -> None:
    answer = """printf '{"output": "\\377"}\\n'"""
    program = script(tmp_path, f"read -r line; echo '{{}}'; read -r line; {answer}")
    assert "output_b64" in evaluate(suite("a"), [program], workers=1).unable[program]


def test_a_banner_on_standard_error_is_welcome(tmp_path: Path) -> None:
    done = evaluate(suite("a"), [script(tmp_path, f"echo Loading >&2\n{ANSWERS}")], workers=1)
    assert said(done) == [("answered", "")]


EARLY = {
    "unread": "sleep 0.1",
    "closed": "exec 3<&- <&-; sleep 0.1",
    "the beginning": "head -c 100000 > /dev/null; sleep 0.1",
}


@pytest.mark.parametrize("name", EARLY)
def test_an_answer_before_the_end_of_its_question_is_none(tmp_path: Path, name: str) -> None:
    text = f"""read -r line; echo '{{}}'; {EARLY[name]}; echo '{{"output": "x"}}'; {ANSWERS}"""
    done = evaluate(suite("y" * 300_000), [script(tmp_path, text)], workers=1)
    (why,) = done.unable.values()
    assert "answered before reading the question" in why


def test_a_program_that_ends_after_each_answer_is_started_for_the_next(tmp_path: Path) -> None:
    text = """read -r line; echo '{}'; read -r line; echo '{"output": "x"}'; sleep 0.02\n"""
    done = evaluate(suite("a", "b", "c"), [script(tmp_path, text)], workers=1)
    assert said(done) == [("answered", "")] * 3


def test_a_program_that_shuts_its_mouth_has_crashed(program: str) -> None:
    done = evaluate(suite("shut", "a"), [program], workers=1)
    assert [status for status, _ in said(done)] == ["crashed", "answered"]
    assert "closed its standard output" in said(done)[0][1]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("cat /dev/zero", "exceeds 8 MiB|without a question"),  # seen after the question, or before
        ("sleep 600", "did not answer its first line within 2 s"),
        ("true", "ended with status 0 before it answered its first line"),
        ("/nowhere/at/all", "No such file"),
        ("/etc/passwd", "Permission denied"),
    ],
)
def test_what_does_not_start_is_told_at_once(words: str, why: str) -> None:
    done = evaluate(suite("a"), [f"command:{words}"], workers=1, start_timeout=2)
    assert re.search(why, done.unable[f"command:{words}"])
    assert ("--start-timeout" in done.unable[f"command:{words}"]) == ("sleep" in words)


@NIGHTLY
def test_no_answer_is_charged_with_the_start(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLOW", "3")
    done = evaluate(suite("a", "die", "b"), [program], workers=1, timeout=2.5)
    assert [status for status, _ in said(done)] == ["answered", "crashed", "answered"]


def test_nothing_stays_after_a_normal_end(program: str, mark: str) -> None:
    done = evaluate(suite("children", "a", "die", "hang"), [program], workers=1, timeout=3)
    assert [status for status, _ in said(done)] == ["answered", "answered", "crashed", "timed_out"]
    assert marked(mark) == []


def begun(tmp_path: Path, program: str, *texts: str) -> subprocess.Popen[bytes]:
    path = tmp_path / "made.suite"
    write_suite(suite(*texts), path)
    words = [sys.executable, "-m", "shioenv.cli.main", "evaluate", "--suite", str(path)]
    return subprocess.Popen([*words, "--predictor", program, "--workers", "2"])


@pytest.mark.parametrize("moment", ["starting", "asked"])
@pytest.mark.parametrize("number", by_day([signal.SIGKILL, signal.SIGTERM, signal.SIGINT], 3))
def test_nothing_outlives_an_evaluation_that_is_ended(
    tmp_path: Path, program: str, mark: str, moment: str, number: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("HANGS", "hello" if moment == "starting" else "hang")
    process = begun(tmp_path, program, "children", "hang")
    least = 6 if moment == "starting" else 14
    awaited = 4 if moment == "starting" else least
    wait_until(lambda: len(marked(mark)) >= awaited, lambda: f"{awaited} of {marked(mark)}")
    process.send_signal(number)
    process.wait()
    wait_until(lambda: not marked(mark), lambda: f"the end of {marked(mark)}")


def children_of(process: int) -> list[int]:
    text = Path(f"/proc/{process}/task/{process}/children").read_text()
    return [int(pid) for pid in text.split()]


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory for temporary files."""
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    return directory


LINGERING = "(setsid sh -c 'trap \"\" TERM HUP; sleep 600; :' &) ; (setsid sleep 600 &); sleep 600"


@pytest.mark.parametrize("killed", ["outer", "inner"])
def test_nothing_outlives_a_supervisor_that_is_killed(
    killed: str, temporary: Path, mark: str
) -> None:
    process = supervised(["sh", "-c", LINGERING])
    wait_until(lambda: len(marked(mark)) >= 6, lambda: f"6 processes, not {marked(mark)}")
    (inner,) = children_of(process.pid)
    os.kill(inner if killed == "inner" else process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    wait_until(lambda: not marked(mark), lambda: f"the end of {marked(mark)}")
    wait_until(
        lambda: not list(temporary.iterdir()),
        lambda: f"the removal of {list(temporary.iterdir())}",
    )


def test_a_directory_without_supervisors_is_removed_at_the_next_start(
    temporary: Path, mark: str
) -> None:
    lives = supervised(["sleep", "600"])
    process = supervised(["sh", "-c", 'touch "$TMPDIR/left"; exec sleep 600'])
    wait_until(lambda: list(temporary.glob("*/left")), "the file that is left")
    (left,) = temporary.glob("*/left")
    (inner,) = children_of(process.pid)
    os.kill(process.pid, signal.SIGSTOP)
    os.kill(inner, signal.SIGSTOP)
    os.kill(process.pid, signal.SIGKILL)
    os.kill(inner, signal.SIGKILL)
    process.wait()
    wait_until(lambda: len(marked(mark)) == 3, lambda: f"3 processes, not {marked(mark)}")
    assert left.exists()
    assert supervised(["true"]).wait() == 0
    assert not left.exists()
    assert len(list(temporary.iterdir())) == 1
    ended(lives)
    assert not list(temporary.iterdir())


def test_nothing_outlives_a_worker_that_is_killed(tmp_path: Path, program: str, mark: str) -> None:
    process = begun(tmp_path, program, "children", "hang", "hang", "hang")
    wait_until(lambda: len(marked(mark)) >= 14, lambda: f"14 processes, not {marked(mark)}")
    before = set(marked(mark)) - {process.pid}
    supervisors = [pid for outer in children_of(process.pid) for pid in children_of(outer)]
    for pid in [pid for inner in supervisors for pid in children_of(inner)]:
        os.kill(pid, signal.SIGKILL)
    wait_until(
        lambda: not before & set(marked(mark)),
        lambda: f"the end of {before & set(marked(mark))}",
    )
    process.kill()
    process.wait()
    wait_until(lambda: not marked(mark), lambda: f"the end of {marked(mark)}")


def test_a_program_ends_with_its_asker_and_not_with_the_thread_that_started_it(mark: str) -> None:
    started: list[subprocess.Popen[bytes]] = []
    thread = threading.Thread(
        target=lambda: started.append(
            supervised(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        )
    )
    thread.start()
    thread.join()
    (process,) = started
    said, _ = process.communicate(b"still here\n")
    assert (said, process.returncode) == (b"still here\n", 0)


@pytest.mark.parametrize(
    ("script", "status"), [("exit 7", 7), ("kill -9 $$", -9), ("kill 0; sleep 9", -15)]
)
def test_a_supervisor_ends_as_its_program_does(script: str, status: int) -> None:
    assert supervised(["sh", "-c", script]).wait() == status


def test_a_program_that_starts_others_all_the_time_is_ended(mark: str) -> None:
    script = "f() { while :; do (setsid sleep 60 &); done; }; f & f & wait"
    process = supervised(["sh", "-c", script])
    wait_until(
        lambda: len(marked(mark)) > 20, lambda: f"more than 20 processes, not {marked(mark)}"
    )
    assert ended(process) == -signal.SIGKILL
    assert marked(mark) == []


@NIGHTLY
def test_a_pause_of_everything_takes_no_time_from_an_answer(tmp_path: Path, mark: str) -> None:
    path, seen = tmp_path / "made.suite", tmp_path / "seen"
    write_suite(suite("a"), path)
    answers = f"""read -r line; echo '{{}}'; read -r line; touch {seen}; sleep 0.5; {ANSWER}"""
    words = [sys.executable, "-m", "shioenv.cli.main", "evaluate", "--suite", str(path)]
    words += ["--predictor", script(tmp_path, answers), "--workers", "1", "--timeout", "2"]
    with subprocess.Popen(
        [*words, "--json", "--out", str(tmp_path / "out")], stdout=subprocess.DEVNULL
    ) as process:
        wait_until(seen.exists, "the question")
        paused = marked(mark)
        assert process.pid in paused
        for number, seconds in ((signal.SIGSTOP, 3.5), (signal.SIGCONT, 0.0)):
            for pid in paused:
                os.kill(pid, number)
            let_time_pass(seconds, "the pause is longer than an answer may take")
    assert process.returncode == 0
    (answers_file,) = (tmp_path / "out" / "answers").glob("*.ndjson")
    assert '"timed_out"' not in answers_file.read_text()
    assert "answered" in answers_file.read_text()
