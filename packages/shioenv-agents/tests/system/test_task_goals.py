"""Valid and invalid goals, found in a review; each has the input that showed it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import permutations
from random import Random
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from shioenv.behavior.observe import SandboxRunner
from shioenv.domain.inputs import Session
from shioenv.errors import SandboxError, ShellEndedError, TerminalError
from shioenv.irreducibility.scoring import Scoring
from shioenv.recording.session import SessionRecorder
from shioenv.recording.text_score import read_arguments
from shioenv_agents.tasks.entered_machine import Command, Running
from shioenv_agents.tasks.episode import Episode
from shioenv_agents.tasks.goal_check import Judge
from shioenv_agents.tasks.make import make_task
from shioenv_agents.tasks.task import Task
from shioenv_agents.tasks.terminal import Terminal

pytestmark = pytest.mark.usefixtures("system")

HOME = "/home/ubuntu"


@pytest.fixture(scope="module")
def task(observer: SandboxRunner) -> Callable[[str], Task | None]:
    def made(text: str) -> Task | None:
        shell_input = read_arguments(text, observer.system).input
        recorder = SessionRecorder(scoring=Scoring(budget=8))
        recorded = recorder.record(Session(HOME, (shell_input,)), observer, Random(0))
        record = recorded.record(1, system=observer.system.name, sampler="test")
        found = make_task(record, observer)
        return found if isinstance(found, Task) else None

    return made


@pytest.mark.parametrize(
    "text", ["tar -xf archives/backup.tar.gz", "touch data documents", "touch -d 2020-01-02 data"]
)
def test_times_of_directories_alone_are_no_goal(
    text: str, task: Callable[[str], Task | None]
) -> None:
    assert task(text) is None


def test_times_of_directories_count_nowhere(
    observer: SandboxRunner, task: Callable[[str], Task | None]
) -> None:
    made = task("mv data/empty logs/empty")
    assert made is not None
    assert "modification time" not in made.prompt
    for rows in (
        ["mv data/empty logs/empty"],
        ["mkdir logs/empty; chown ubuntu:ubuntu logs/empty", "rmdir data/empty"],
        ["cp -a data/empty logs/ && rm -r data/empty; touch -d 2020-01-02 documents"],
    ):
        episode = Episode(made, observer)
        for row in rows:
            episode.act(row)
        assert episode.verdict.passed, (rows, episode.verdict)
    episode = Episode(made, observer)
    assert not episode.act("cp -a data/empty logs/").done


@pytest.mark.parametrize(
    "text", ["printenv USER", "id --user -n", "pwd -P", "ls logs/syslog.log", "whoami --help"]
)
def test_what_can_be_read_off_the_prompt_is_no_task(
    text: str, task: Callable[[str], Task | None]
) -> None:
    assert task(text) is None


def test_where_the_goal_is_a_time_other_files_keep_theirs(
    observer: SandboxRunner, task: Callable[[str], Task | None]
) -> None:
    made = task("cp documents/chapter1.txt documents/old/draft1.txt")
    assert made is not None
    for row, passed in ((made.solution, True), ("find . -type f -exec touch {} +", False)):
        terminal = Terminal(observer, HOME)
        terminal.run(row)
        assert Judge(made, observer).judge(terminal).passed is passed, row


def test_what_has_to_be_looked_up_is_a_task(task: Callable[[str], Task | None]) -> None:
    for text in ("printenv LANG PWD", "sort documents/names.txt", "wc -l data/users.csv"):
        assert task(text) is not None, text


BROKEN = ('echo "$(', "cat <<EOF", "if true; then")


@pytest.mark.parametrize("rows", list(permutations(BROKEN)))
def test_rows_that_cannot_be_read_end_no_episode(
    rows: tuple[str, ...], observer: SandboxRunner, task: Callable[[str], Task | None]
) -> None:
    made = task("chmod 600 data/numbers.txt")
    assert made is not None
    episode = Episode(made, observer)
    for row in (*rows, *rows):
        assert not episode.act(row).done
    assert episode.act("echo on").text == "on\n"
    assert episode.act("chmod 600 data/numbers.txt").done


def test_what_is_done_after_the_row_is_not_done(
    observer: SandboxRunner, task: Callable[[str], Task | None]
) -> None:
    made = task("chmod 600 data/numbers.txt")
    assert made is not None
    episode = Episode(made, observer)
    assert not episode.act("trap 'chmod 600 data/numbers.txt' EXIT").done
    assert episode.act("exit").done
    terminal = Terminal(observer, HOME)
    terminal.run("trap 'chmod 600 data/numbers.txt' EXIT")
    assert not Judge(made, observer).judge(terminal).passed


def test_rows_are_not_run_again_until_the_goal_is_reached(
    observer: SandboxRunner, task: Callable[[str], Task | None]
) -> None:
    made = task("chmod 600 data/numbers.txt")
    assert made is not None
    with patch.object(observer, "type", wraps=observer.type) as runs:
        episode = Episode(made, observer)
        for _ in range(6):
            episode.act(":")
        assert runs.call_count == 0
        assert episode.act("chmod 600 data/numbers.txt").done
        repeated = [one for one in runs.call_args_list if len(one.args[0]) == 7]
        assert len(repeated) == 1


QUEUE = "import ctypes; ctypes.CDLL(None).mq_open(b'/left', 66, 0o600, None)"
UNASKED = (
    ("ip neigh add 192.168.100.8 lladdr 02:00:00:00:00:08 dev eth0 nud permanent", "neighbours"),
    ("ip neigh add proxy 192.168.100.9 dev eth0", "proxies of neighbours"),
    ("ip mptcp endpoint add 192.168.100.2 dev eth0", "MPTCP endpoints"),
    ("ip mptcp limits set subflow 4", "MPTCP limits"),
    ("ip addrlabel add prefix 2001:db8::/32 label 77", "labels of addresses"),
    ("ip nexthop add id 5 blackhole", "next hops"),
    ("ipcmk -Q", "IPC objects"),
    ("ipcmk -M 64", "IPC objects"),
    ("ipcmk -S 1", "IPC objects"),
    (f'python3 -c "{QUEUE}"', "message queues"),
    ("pkill -9 -x cron; while pgrep -x cron > /dev/null; do :; done", "services"),
)


@pytest.fixture(scope="module")
def chmod(task: Callable[[str], Task | None]) -> Task:
    made = task("chmod 600 data/numbers.txt")
    assert made is not None
    return made


@pytest.mark.parametrize(("row", "name"), UNASKED)
def test_state_that_no_patch_names_has_to_stay(
    row: str, name: str, observer: SandboxRunner, chmod: Task
) -> None:
    terminal = Terminal(observer, HOME)
    assert terminal.run(row).exit_code == 0
    terminal.run(chmod.solution)
    verdict = Judge(chmod, observer).judge(terminal)
    assert (verdict.passed, verdict.missing, verdict.extra) == (False, (), (name,))


@pytest.mark.parametrize("last", ["exit", ":", "sleep 60 > /dev/null 2>&1 &"])
def test_state_that_was_put_back_does_not_count(
    last: str, observer: SandboxRunner, chmod: Task
) -> None:
    terminal = Terminal(observer, HOME)
    terminal.run(UNASKED[0][0])
    terminal.run("ip neigh del 192.168.100.8 dev eth0; ipcrm -q $(ipcmk -Q | grep -o '[0-9]*$')")
    terminal.run(chmod.solution)
    terminal.run(last)
    assert Judge(chmod, observer).judge(terminal).passed


def test_no_program_that_a_row_replaced_reads_this_state(
    observer: SandboxRunner, chmod: Task
) -> None:
    judge = Judge(chmod, observer)
    terminal = Terminal(observer, HOME)
    terminal.run(f"{UNASKED[0][0]}; mv /usr/sbin/ip /usr/sbin/ip.old; ln -s /bin/true /usr/sbin/ip")
    terminal.run(f"{chmod.solution}; rm /usr/sbin/ip; mv /usr/sbin/ip.old /usr/sbin/ip")
    assert "neighbours" in judge.judge(terminal).extra


def test_this_state_is_that_of_where_the_task_begins(observer: SandboxRunner, chmod: Task) -> None:
    begun = replace(chmod, history=[UNASKED[0][0], UNASKED[-1][0]])
    judge = Judge(begun, observer)
    terminal = Terminal(observer, HOME, begun.history)
    terminal.run(chmod.solution)
    assert judge.judge(terminal).passed
    terminal.run("ip neigh del 192.168.100.8 dev eth0")
    assert judge.judge(terminal).extra == ("neighbours",)


def test_commands_that_entered_have_to_leave_this_state(
    observer: SandboxRunner, chmod: Task
) -> None:
    for row, extra in ((":", ()), *((row, (name,)) for row, name in UNASKED[-2:])):
        terminal = Terminal(observer, HOME)
        entered = terminal.enter(Command(text=f"{row}; {chmod.solution}", cwd=HOME))
        asyncio.run(Running(entered).finish())
        assert Judge(chmod, observer).judge(terminal).extra == extra


def interrupted(*_: object) -> object:
    raise KeyboardInterrupt


def test_an_interrupted_row_loses_no_machine_that_was_entered(
    observer: SandboxRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal(observer, HOME)
    asyncio.run(Running(terminal.enter(Command(text="touch /tmp/mark"))).finish())
    terminal.run("ls /tmp/mark")
    with monkeypatch.context() as patched:
        patched.setattr("shioenv.behavior.line_behaviors.LineRecorder.behavior", interrupted)
        with pytest.raises(KeyboardInterrupt):
            terminal.run("true")
    with pytest.raises(TerminalError, match="a command entered the machine"):
        terminal.run("ls /tmp/mark")
    with pytest.raises(TerminalError, match="a command entered the machine"):
        terminal.done()
    with pytest.raises(TerminalError, match="a command entered the machine"):
        terminal.enter(Command(text="true"))


def test_rows_are_typed_again_after_an_interrupted_one(
    observer: SandboxRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal(observer, HOME)
    terminal.run("touch /tmp/mark; v=1")
    with monkeypatch.context() as patched:
        patched.setattr("shioenv.behavior.line_behaviors.LineRecorder.behavior", interrupted)
        with pytest.raises(KeyboardInterrupt):
            terminal.run("v=2")
    assert terminal.run("ls /tmp/mark; echo $v").output == b"/tmp/mark\n1\n"


def test_a_shell_whose_machine_is_gone_starts_no_other_one(
    observer: SandboxRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = observer.start_shell(HOME, idle_seconds=60)
    with monkeypatch.context() as patched:
        patched.setattr(lines._recorder, "behavior", interrupted)
        with pytest.raises(KeyboardInterrupt):
            lines.run("true")
    with pytest.raises(ShellEndedError):
        lines.run("true")
    for use in (
        lambda: lines.restart(idle_seconds=60),
        lambda: lines.start_terminal("true", idle_seconds=60),
        lambda: lines.enter("true", wall_seconds=60, idle_seconds=60),
        lambda: lines.beside("true"),
        lines.look,
        lines.settle,
    ):
        with pytest.raises(SandboxError, match="machine has ended"):
            use()
    lines.close()


@pytest.mark.parametrize("row", [row for row, _ in UNASKED])
def test_state_that_no_patch_names_keeps_the_machine_that_was_entered(
    row: str, observer: SandboxRunner
) -> None:
    terminal = Terminal(observer, HOME)
    before = terminal.unrecorded()
    asyncio.run(Running(terminal.enter(Command(text=row))).finish())
    after = terminal.unrecorded()
    assert after != before
    terminal.run("true")
    assert (terminal.entered, terminal.unrecorded()) == (True, after)


def test_a_process_in_place_of_another_keeps_the_machine_that_was_entered(
    observer: SandboxRunner,
) -> None:
    terminal = Terminal(observer, HOME)
    text = "setsid -f sleep 1000 > /dev/null 2>&1 < /dev/null; kill -9 $(pgrep -o cron)"
    asyncio.run(Running(terminal.enter(Command(text=text))).finish())
    assert terminal.run("pgrep -cx sleep").output == b"1\n"


def test_commands_that_changed_nothing_leave_the_terminal_as_it_was(
    observer: SandboxRunner,
) -> None:
    terminal = Terminal(observer, HOME)
    for text in ("ls /", "sleep .1 > /dev/null 2>&1 < /dev/null &"):  # one that ends a bit later
        asyncio.run(Running(terminal.enter(Command(text=text))).finish())
    terminal.run("v=1")
    assert not terminal.entered
    assert terminal.fork().run("echo $v").output == b"1\n"
