"""Tasks on the real system: what passes, what fails, and a terminal to do them in."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from shioenv.behavior.observe import SandboxRunner, open_sandbox
from shioenv.cli.main import app
from shioenv.dataset.generate import Destination, generate
from shioenv.domain.inputs import Session
from shioenv.errors import InputError, TerminalError, UsageError
from shioenv.irreducibility.scoring import Scoring
from shioenv.live.resident import ResidentShell
from shioenv.recording.session import SessionRecorder
from shioenv.recording.text_score import read_arguments
from shioenv.sandbox.base import Limits
from shioenv.synthesis.drawing import Drawing
from shioenv.system.store import System
from shioenv_agents.tasks.certify import proof_faults
from shioenv_agents.tasks.goal_check import Judge, Verdict
from shioenv_agents.tasks.make import contents, make_task, unsuited
from shioenv_agents.tasks.prompt import rephrased
from shioenv_agents.tasks.task import GoalKind, Task, read_tasks, write_tasks
from shioenv_agents.tasks.terminal import Terminal
from support.chat_endpoint import Endpoint

pytestmark = pytest.mark.usefixtures("system")
HOME = "/home/ubuntu"
EXPLORING = [
    "pwd; ls -la",
    "cd logs && cat app.log | head -3",
    "x=1; f() { :; }",
    "cd ..; stat data",
]


def task_from(observer: SandboxRunner, text: str, history: tuple[str, ...] = ()) -> Task | None:
    shell_input = read_arguments(text, observer.system).input
    recorder = SessionRecorder(scoring=Scoring(budget=8))
    recorded = recorder.record(Session(HOME, (shell_input,), history), observer, Random(0))
    record = recorded.record(1, system=observer.system.name, sampler="test")
    if unsuited(record, observer.system.name, 0.1):
        return None
    found = make_task(record, observer)
    return found if isinstance(found, Task) else None


@pytest.fixture(scope="module")
def task(observer: SandboxRunner) -> Callable[[str], Task]:
    def made(text: str) -> Task:
        found = task_from(observer, text)
        assert found is not None, text
        return found

    return made


def verdict(observer: SandboxRunner, task: Task, *rows: str) -> Verdict:
    terminal = Terminal(observer, task.cwd, task.history)
    for row in rows:
        terminal.run(row)
    return Judge(task, observer).judge(terminal)


STATE = [
    "sort -u documents/names.txt > sorted.txt",
    "mv scripts/cleanup.sh data/empty/a.txt",
    "chmod 600 data/numbers.txt",
    "ln -s ../logs data/here",
    "rm documents/notes.txt",
    "touch -d 2020-01-02 old.txt",
    "touch data/numbers.txt",
    "truncate -s 8 data/scores.csv",
    "mkdir -p new/one/two",
    "cp documents/notes.txt copy.txt",
    "export REGION=north",
    "cd data/shared",
    "ip route add 10.99.0.0/16 via 10.20.30.2",
]


@pytest.mark.parametrize("text", STATE)
def test_who_looks_around_first_passes_and_who_leaves_something_behind_fails(
    text: str, observer: SandboxRunner, task: Callable[[str], Task]
) -> None:
    made = task(text)
    assert made.kind == GoalKind.STATE
    assert proof_faults(made, observer) == ()
    explored = verdict(observer, made, *EXPLORING, made.solution)
    assert explored == Verdict(True, 1.0, (), ())
    idle = verdict(observer, made, *EXPLORING)
    assert (idle.passed, idle.progress) == (False, 0.0)
    left = verdict(observer, made, made.solution, "cd; echo x > /tmp/left")
    assert not left.passed
    assert any("left" in name for name in left.extra)
    assert made.solution not in made.prompt


def test_the_same_by_other_commands_passes(
    observer: SandboxRunner, task: Callable[[str], Task]
) -> None:
    moved = task("mv scripts/cleanup.sh data/empty/a.txt")
    assert verdict(
        observer, moved, "cp -p scripts/cleanup.sh data/empty/a.txt", "rm scripts/cleanup.sh"
    ).passed
    copied = task("cp documents/notes.txt copy.txt")
    assert verdict(observer, copied, "cat documents/notes.txt > copy.txt").passed
    assert not verdict(observer, copied, "rev documents/notes.txt > copy.txt").passed


def test_progress_is_the_share_of_what_holds(
    observer: SandboxRunner, task: Callable[[str], Task]
) -> None:
    made = task("rm documents/notes.txt data/scores.csv logs/app.log data/users.csv")
    half = verdict(observer, made, "rm documents/notes.txt", "rm data/users.csv")
    assert (half.passed, half.progress) == (False, 0.5)
    assert set(half.missing) == {"/fs/data~1scores.csv", "/fs/logs~1app.log"}


def test_a_file_of_the_same_size_with_other_content_fails(
    observer: SandboxRunner, task: Callable[[str], Task]
) -> None:
    made = task("echo one > number.txt")
    wrong = verdict(observer, made, "echo two > number.txt")
    assert (wrong.passed, wrong.missing) == (False, ("content of number.txt",))


def test_a_goal_on_output_takes_the_last_row(
    observer: SandboxRunner, task: Callable[[str], Task]
) -> None:
    made = task("ls -S logs | head -n 3")
    assert made.kind == GoalKind.OUTPUT
    assert "the largest first" in made.prompt
    assert "ls" not in made.prompt.split()
    assert proof_faults(made, observer) == ()
    assert verdict(observer, made, *EXPLORING, "ls -S logs | sed -n 1,3p").passed
    assert not verdict(observer, made, made.solution, "echo done").passed
    assert verdict(observer, made, made.solution, "rm documents/notes.txt").extra


@pytest.mark.parametrize(
    "rows",
    [
        ["eval() { :; }", "touch mess2; {}"],
        ["[ /dev/stdout -ef /dev/null ] || touch mess; {}"],
        ['echo "' + "'" * 40_000 + '" > /dev/null; touch mess; {}'],
    ],
)
def test_a_row_does_for_the_judge_what_it_did(
    observer: SandboxRunner, task: Callable[[str], Task], rows: list[str]
) -> None:
    made = task("sort -rn data/numbers.txt")
    assert made.goal.output is not None
    assert verdict(observer, made, "sort -rn data/numbers.txt").passed
    typed = [row.replace("{}", "sort -rn data/numbers.txt") for row in rows]
    assert not verdict(observer, made, *typed).passed


MESS = [
    "rm documents/notes.txt; touch mess; kill -9 $$",
    "touch mess; kill -9 1; rm documents/notes.txt",
    "rm documents/notes.txt; touch mess; for p in /proc/[0-9]*; do kill -9 ${p#/proc/}; done",
    "(sleep .02; touch mess) & rm documents/notes.txt",
    "rm documents/notes.txt; touch mess; trap 'rm mess; kill -9 $$' EXIT; exec sleep 0",
    'rm() { command rm "$@"; touch mess; }; rm documents/notes.txt',
    "mv documents/notes.txt /dev/shm/",
    "mkdir /dev/shm/e; mount --bind /dev/shm/e documents",
    "ls() { :; }; alias cat=:; PATH=/tmp; [ -e documents/notes.txt ] && echo documents are gone",
    "rm documents/notes.txt; hostname gone",
    "rm documents/notes.txt; head -c 400M /dev/zero > mess",
]


@pytest.mark.parametrize("row", MESS)
def test_who_leaves_something_behind_cannot_hide_it(
    row: str, observer: SandboxRunner, task: Callable[[str], Task]
) -> None:
    made = task("rm documents/notes.txt")
    found = verdict(observer, made, row)
    assert not found.passed
    assert found.extra or found.missing


def test_a_time_beyond_all_calendars_is_no_error(
    observer: SandboxRunner, task: Callable[[str], Task]
) -> None:
    made = task("mkdir -p new/one/two")
    row = "mkdir -p new/one/two; touch -d @67768036191676799 extra"
    assert not verdict(observer, made, row).passed


def test_a_goal_on_both_needs_both(observer: SandboxRunner, task: Callable[[str], Task]) -> None:
    for text, other in (
        ("rm documents/notes.txt ; wc -l data/users.csv", "rm documents/notes.txt"),
        ("sort documents/names.txt | tee sorted.txt", "sort documents/names.txt > sorted.txt"),
    ):
        made = task(text)
        assert made.kind == GoalKind.BOTH
        assert proof_faults(made, observer) == ()
        part = verdict(observer, made, other)
        assert not part.passed
        assert part.missing == ("output",)
        assert 0 < part.progress < 1


@pytest.mark.parametrize(
    "text",
    [
        "true x",  # nothing to bring about
        "gzip -9 data/numbers.txt",  # its output is not deterministic
        "ls -la --color=always",  # no question asks for that
        "date +%N",
    ],
)
def test_what_cannot_be_told_or_does_not_repeat_is_no_task(
    text: str, observer: SandboxRunner
) -> None:
    assert task_from(observer, text) is None


def test_a_terminal_goes_on_goes_back_and_forks(observer: SandboxRunner) -> None:
    terminal = Terminal(observer, HOME)
    terminal.run("cd logs; x=7; alias ll='ls -l'")
    assert terminal.run("pwd; echo $x").output == b"/home/ubuntu/logs\n7\n"
    other = terminal.fork()
    terminal.run("echo one > here")
    assert other.run("cat here").exit_code == 1
    assert terminal.run("cat here").output == b"one\n"
    terminal.undo(2)
    assert terminal.run("cat here").exit_code == 1
    assert len(terminal.rows) == 3
    with pytest.raises(UsageError):
        terminal.undo(4)


def test_a_terminal_that_gave_its_machine_back_goes_on(observer: SandboxRunner) -> None:
    terminal = Terminal(observer, HOME)
    done = terminal.run("x=7; cd logs; echo one > here")
    terminal.rest()
    terminal.rest()
    machines = len(observer._opened)
    with ResidentShell(observer, HOME) as shell:  # in the machine that was given back
        assert shell.run("cat logs/here").exit_code == 1
        assert len(observer._opened) == machines
    assert terminal.done().patch == done.patch
    assert terminal.run("echo $x; pwd; cat here").output == b"7\n/home/ubuntu/logs\none\n"


def test_a_row_that_is_wrong_does_not_reach_into_the_next(observer: SandboxRunner) -> None:
    terminal = Terminal(observer, HOME)
    assert terminal.run("echo 'open").exit_code != 0
    assert terminal.run("cat <<END\nx").output.endswith(b"x\n")
    assert terminal.run("( echo").exit_code != 0
    assert terminal.run('echo "that\'s" fine').output == b"that's fine\n"
    assert terminal.since_start().exit_code == 0


def test_what_was_printed_before_does_not_count(observer: SandboxRunner) -> None:
    terminal = Terminal(observer, HOME)
    assert terminal.run("x=kept; seq 100000").output_truncated
    after = terminal.run("echo $x; echo error >&2")
    assert (after.output, after.output_truncated) == (b"kept\nerror\n", False)
    assert terminal.since_start().output == after.output


def test_a_row_without_end_is_taken_back(observer: SandboxRunner) -> None:
    terminal = Terminal(observer, HOME)
    terminal.run("echo kept > kept")
    assert terminal.run("echo gone > gone; sleep 1000").timed_out
    assert terminal.rows == ["echo kept > kept"]
    assert terminal.run("ls kept gone").output.endswith(b"kept\n")


MISCHIEF = [
    "cat() { echo fooled; }; /usr/bin/cat() { echo fooled; }; export -f cat",
    "shopt -s expand_aliases; alias cat='echo fooled'",
    "trap 'echo fooled' DEBUG EXIT ERR",
    "PATH=/tmp/bin; export PATH LD_PRELOAD=/tmp/x.so BASH_ENV=/tmp/env",
    "eval() { echo fooled; }; exec() { :; }; echo() { :; }",
    "set -en; false",
    "exec > /dev/null 2>&1 < /dev/zero",
    "cd /; umask 777; ulimit -f 0; ulimit -n 0",
    "exit 0",
    "( while :; do echo fooled > documents/notes.txt; done ) &",
    "(setsid bash -c 'trap \"\" TERM HUP; while :; do echo x > documents/notes.txt; done' & ) &",
]


@pytest.mark.parametrize("row", MISCHIEF)
def test_a_shell_beside_knows_nothing_of_what_was_typed_but_files(
    observer: SandboxRunner, row: str
) -> None:
    terminal = Terminal(observer, HOME)
    terminal.run("echo one > made; echo told > documents/notes.txt")
    terminal.run(row)
    terminal.run("echo two > /home/ubuntu/more")  # where that shell still can
    beside = terminal.beside("cat made; echo told > documents/notes.txt; cat documents/notes.txt")
    assert (beside.output, beside.exit_code) == (b"one\ntold\n", 0)
    assert terminal.beside("pwd; umask; sort documents/notes.txt").output == (
        b"/home/ubuntu\n0022\ntold\n"
    )


def test_what_is_done_beside_is_there_for_the_shell(observer: SandboxRunner) -> None:
    terminal = Terminal(observer, HOME)
    terminal.run("cd logs; x=7; cat() { echo fooled; }; export PATH=/nowhere")
    terminal.beside("x=8; cd /; echo beside > /home/ubuntu/logs/made; cat /etc/hostname > host")
    terminal.beside("cat /home/ubuntu/logs/made > again")
    assert terminal.run("pwd; echo $x; read y < made; echo $y").output == (
        b"/home/ubuntu/logs\n7\nbeside\n"
    )
    assert terminal.beside("cat logs/made again").output == b"beside\nbeside\n"
    assert len(terminal.rows) == 5
    terminal.undo(3)
    assert terminal.beside("ls again").exit_code == 2


def test_a_shell_that_killed_itself_leaves_its_machine_to_who_asks(
    observer: SandboxRunner,
) -> None:
    terminal = Terminal(observer, HOME)
    terminal.run("echo one > made; kill -9 $$")
    assert terminal.beside("cat made").output == b"one\n"


def test_a_command_that_kills_itself_is_an_answer(observer: SandboxRunner) -> None:
    asked = Terminal(observer, HOME).beside("/usr/bin/env sh -c 'kill -TERM $$'", separate=True)
    assert (asked.exit_code, asked.timed_out) == (143, False)


def test_where_no_shell_stays_one_that_was_killed_answers_nothing(system: System) -> None:
    with open_sandbox(system, Limits(without_shell_state=True)) as machine:
        terminal = Terminal(machine, HOME)
        terminal.run("kill -9 $$")
        with pytest.raises(TerminalError, match="killed"):
            terminal.beside("true")


FORGING = r"""python3 - $$ <<'X'
import sys
with open(f"/proc/{sys.argv[1]}/maps") as maps, open(f"/proc/{sys.argv[1]}/mem", "r+b", 0) as mem:
    for line in maps:
        begin, end = (int(at, 16) for at in line.split()[0].split("-"))
        try:
            mem.seek(begin)
            text = mem.read(end - begin) if "rw" in line else b""
        except OSError:
            continue
        at = text.find(b"cat README.md")
        while at >= 0:
            mem.seek(begin + at)
            mem.write(b"echo FORGED; ")
            at = text.find(b"cat README.md", at + 1)
X"""
"""A row that writes into the memory of its shell."""


def test_who_writes_into_the_memory_of_the_typed_shell_does_not_answer_for_it(
    observer: SandboxRunner,
) -> None:
    terminal = Terminal(observer, HOME)
    terminal.run(FORGING)
    asked = terminal.fork().beside("cat README.md", separate=True)
    assert asked.stdout == observer.read(f"{HOME}/README.md")
    assert terminal.beside("cat README.md").output == asked.stdout
    assert contents(terminal, ["README.md"]) == {"README.md": asked.stdout}


def test_contents_of_more_files_than_a_row_names_are_missing(observer: SandboxRunner) -> None:
    terminal = Terminal(observer, HOME)
    terminal.run(f"mkdir {'d' * 250}; for i in {{1..500}}; do echo $i > {'d' * 250}/$i; done")
    names = [f"{'d' * 250}/{number}" for number in range(1, 501)]
    found = contents(terminal, names)
    assert 100 < len(found) < 500
    assert all(found[name] == f"{n}\n".encode() for n, name in enumerate(names, 1) if name in found)


LURKING = [
    "(while :; do kill -9 $(pgrep -n bash); done) > /dev/null 2>&1 &",
    "(while :; do for p in /proc/[0-9]*; do printf x > $p/mem; done; done) > /dev/null 2>&1 &",
    "PS1=; trap '' TERM; set -n",
    "trap 'while :; do :; done' EXIT; kill() { :; }; readonly -f kill",
]
"""Rows that leave a process or a trap behind that attacks the shell which asks."""


@pytest.mark.parametrize("row", LURKING)
def test_nothing_that_lurks_is_there_when_somebody_asks(observer: SandboxRunner, row: str) -> None:
    terminal = Terminal(observer, HOME)
    terminal.run(row)
    try:
        asked = terminal.beside("ps -e -o args= | grep -c '[w]hile'; cat README.md")
    except TerminalError:
        return  # the guarantee: a shell that is hindered returns nothing
    assert asked.output == b"0\n" + (observer.read(f"{HOME}/README.md") or b"")


def test_a_goal_of_the_shell_is_still_judged_after_somebody_asked(
    observer: SandboxRunner, task: Callable[[str], Task]
) -> None:
    made = task("export DB_PORT=100")
    terminal = Terminal(observer, HOME)
    terminal.run("export DB_PORT=100")
    terminal.beside("cat README.md")
    assert Judge(made, observer).judge(terminal).passed
    terminal.beside("echo x > left")
    assert Judge(made, observer).judge(terminal).extra


def test_limits_are_those_of_a_row(system: str) -> None:
    with open_sandbox(system, Limits(wall_seconds=1)) as machine:
        terminal = Terminal(machine, HOME)
        for _ in range(2):
            assert not terminal.run("sleep .5").timed_out
            assert not terminal.beside("sleep .5").timed_out
        assert terminal.since_start().timed_out is False
        assert terminal.run("sleep 30").timed_out


def test_a_conversation_is_longer_than_a_row_can_be(observer: SandboxRunner) -> None:
    terminal = Terminal(observer, HOME)
    for number in range(3):
        assert terminal.run(f"echo {'x' * 100_000} > {number}").exit_code == 0
    assert terminal.run("cat 0 1 2 | wc -c; cat").output == b"300003\n"
    assert terminal.beside("cat 0 1 2 | wc -c; cat").output == b"300003\n"
    assert len(terminal.since_start().patch.operations) == 3
    with pytest.raises(InputError):
        terminal.run("x" * 200_000)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tasks") / "dataset"
    drawing = Drawing(seed=7, commands=("sort", "cp", "mv", "wc", "rm", "touch"))
    generate(Destination(directory), count=40, drawing=drawing, scoring=Scoring(budget=8))
    return directory


@pytest.fixture(scope="module")
def file(dataset: Path) -> Path:
    path = dataset.parent / "tasks.jsonl"
    done = CliRunner().invoke(app, ["tasks", "make", str(dataset), "--out", str(path), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["tasks"] == len(read_tasks(path))
    return path


def test_a_dataset_gives_tasks_that_verify(file: Path) -> None:
    tasks = read_tasks(file)
    assert len(tasks) >= 6
    assert len({one.id for one in tasks}) == len(tasks)
    done = CliRunner().invoke(app, ["tasks", "verify", str(file)])
    assert done.exit_code == 0, done.output
    shown = CliRunner().invoke(app, ["tasks", "show", str(file), "--count", "1"])
    assert tasks[0].prompt.split("\n")[0] in shown.stdout
    assert tasks[0].solution not in shown.stdout


def test_a_task_that_is_none_is_found(file: Path, tmp_path: Path) -> None:
    good = read_tasks(file)[0]
    bad = [
        replace(good, id="a", solution=":"),
        replace(good, id="b", reduced=good.solution),
        replace(good, id="c", goal=replace(good.goal, patch=[], digests={}, output="")),
    ]
    write_tasks([good, *bad], tmp_path / "bad.jsonl")
    done = CliRunner().invoke(app, ["tasks", "verify", str(tmp_path / "bad.jsonl"), "--json"])
    assert done.exit_code == 1
    assert [one["id"] for one in json.loads(done.stdout)["faulty"]] == ["a", "b", "c"]


def test_tasks_of_another_build_are_not_proved(file: Path, tmp_path: Path) -> None:
    good = read_tasks(file)[0]
    write_tasks([good, replace(good, id="b", system_digest="cd" * 32)], tmp_path / "other.jsonl")
    done = CliRunner().invoke(app, ["tasks", "verify", str(tmp_path / "other.jsonl")])
    assert done.exit_code == 1
    assert "task b was made on the build cdcdcdcdcdcd… of debian-12" in done.stderr


def test_a_history_comes_before_the_task(observer: SandboxRunner) -> None:
    made = task_from(observer, "mv made moved", ("echo x > made",))
    assert made is not None
    assert made.history == ["echo x > made"]
    assert proof_faults(made, observer) == ()
    assert verdict(observer, made, "cp made moved; rm made").passed


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    server = Endpoint({})
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def test_a_model_that_cannot_be_asked_is_told_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check comes before the dataset is read."""
    command = ["tasks", "make", str(tmp_path / "none"), "--out", str(tmp_path / "out")]
    command += ["--language-model", "m"]
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    done = CliRunner().invoke(app, command)
    assert (done.exit_code, "needs an endpoint" in done.stderr) == (3, True)
    monkeypatch.setitem(sys.modules, "openai", None)
    done = CliRunner().invoke(app, command)
    assert "shioenv[llm]" in done.stderr


def test_a_model_says_it_in_its_own_words_but_never_how(
    file: Path, endpoint: Endpoint, tmp_path: Path
) -> None:
    tasks = read_tasks(file)[:3]
    endpoint.replies = {
        tasks[0].prompt: "Please tidy up a little.",
        tasks[1].prompt: f"Run {tasks[1].solution}",
        tasks[2].prompt: "",
    }
    for _ in range(2):
        done = rephrased(tasks, "m", url=endpoint.url, replay=tmp_path / "replies.jsonl")
        assert done[0].prompt == f"Please tidy up a little.\n\n{tasks[0].prompt}"
        assert done[1:] == tasks[1:]
    assert len(endpoint.asked) == 3, "replies are kept"
