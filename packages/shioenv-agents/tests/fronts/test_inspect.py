"""An evaluation of Inspect with a scripted model, and its sandbox `shioenv` by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from support.needs import needed_module

inspect_ai = needed_module("inspect_ai")

from inspect_ai.dataset import Sample  # noqa: E402
from inspect_ai.model import ModelOutput, ModelUsage, get_model  # noqa: E402
from inspect_ai.scorer import includes  # noqa: E402
from inspect_ai.solver import basic_agent, system_message  # noqa: E402
from inspect_ai.tool import bash  # noqa: E402
from inspect_ai.util import OutputLimitExceededError, SandboxEnvironment  # noqa: E402
from inspect_ai.util._sandbox import self_check  # noqa: E402
from msgspec.structs import replace  # noqa: E402

from shioenv.errors import ShioenvError, TaskError  # noqa: E402
from shioenv_agents.fronts.inspect_ai import SampleMachine, ShioenvSandbox, tasks  # noqa: E402
from shioenv_agents.tasks.goal_check import REASON  # noqa: E402
from shioenv_agents.tasks.task import write_tasks  # noqa: E402
from support.fronts_tasks import REPLIES, TASKS  # noqa: E402

pytestmark = pytest.mark.usefixtures("system")

ROOT = "who works here is root, who may do everything"
OTHERWISE = {
    "test_read_file_not_allowed": ROOT,
    "test_write_binary_file_without_permissions": ROOT,
    "test_write_text_file_without_permissions": ROOT,
}
"""Inspect's own checks that fail, with the reason."""


def scripted(*lines: str, tool: str = "terminal", argument: str = "line") -> Any:
    calls = [ModelOutput.for_tool_call("mockllm", tool, {argument: line}) for line in lines]
    submit = ModelOutput.for_tool_call("mockllm", "submit", {"answer": "done"})
    for output in (*calls, submit):  # else its tokens are counted, by a table from the network
        output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
    return get_model("mockllm/model", custom_outputs=[*calls, submit])


def evaluated(tmp_path: Path, evaluation: Any, model: Any, **options: Any) -> Any:
    (log,) = inspect_ai.eval(
        evaluation, model=model, log_dir=str(tmp_path / "logs"), display="none", **options
    )
    assert log.status == "success", log.error
    return log


@pytest.mark.parametrize("number", [0, 1])
def test_a_scripted_model_does_a_task(tmp_path: Path, number: int) -> None:
    task = TASKS[number]
    write_tasks([task], tmp_path / "tasks.jsonl")
    model = scripted(*REPLIES[task.id])
    log = evaluated(tmp_path, tasks(tmp_path / "tasks.jsonl"), model)
    assert log.results.scores[0].metrics["accuracy"].value == 1.0
    assert log.samples[0].scores["solved"].metadata == {"progress": 1.0}


def test_a_model_that_does_nothing_fails(tmp_path: Path) -> None:
    write_tasks(TASKS[:1], tmp_path / "tasks.jsonl")
    log = evaluated(tmp_path, tasks(tmp_path / "tasks.jsonl"), scripted("ls"))
    assert log.results.scores[0].metrics["accuracy"].value == 0.0
    assert "notes" in log.samples[0].scores["solved"].explanation


def test_another_evaluation_takes_it_as_its_sandbox(tmp_path: Path) -> None:
    """By its name alone, with Inspect's own tool and files of the sample."""
    evaluation = inspect_ai.Task(
        dataset=[Sample(input="x", target="done", files={"given/a.txt": "words\n"})],
        solver=basic_agent(init=system_message("x"), tools=[bash()]),
        scorer=includes(),
        sandbox="shioenv",
    )
    model = scripted("cat given/a.txt; nosuch", tool="bash", argument="command")
    log = evaluated(tmp_path, evaluation, model)
    said = [str(message.content) for message in log.samples[0].messages if message.role == "tool"]
    assert "words" in said[0]
    assert "nosuch: command not found" in said[0]


def within(check: Callable[[Any], Awaitable[None]]) -> None:
    async def run() -> None:
        environments = await ShioenvSandbox.sample_init("t", None, {})
        try:
            await check(environments["default"])
        finally:
            await ShioenvSandbox.sample_cleanup("t", None, environments, False)

    asyncio.run(run())


def test_programs_and_files_are_as_inspect_says() -> None:
    async def check(box: SandboxEnvironment) -> None:
        await box.write_file("deep/er/b.bin", b"\0\xff\r\n")
        assert await box.read_file("deep/er/b.bin", text=False) == b"\0\xff\r\n"
        done = await box.exec(["cat", "-"], input="in\n", env={"X": "a b"}, cwd="deep")
        assert (done.success, done.stdout, done.stderr) == (True, "in\n", "")
        done = await box.exec(["sh", "-c", "echo $X; pwd; echo e >&2; exit 3"], env={"X": "a b"})
        assert (done.returncode, done.stdout, done.stderr) == (3, "a b\n/home/ubuntu\n", "e\n")
        with pytest.raises(FileNotFoundError):
            await box.read_file("missing")
        with pytest.raises(IsADirectoryError):
            await box.read_file("deep")
        with pytest.raises(TimeoutError):
            await box.exec(["sleep", "30"], timeout=1)
        await box.exec(["sh", "-c", "seq 2000000 > long"])
        assert (await box.read_file("long")).endswith("2000000\n")
        for channel in ("cat long", "cat long >&2"):
            with pytest.raises(OutputLimitExceededError) as limit:
                await box.exec(["sh", "-c", channel])
            assert (limit.value.truncated_output or "").startswith("1\n2\n")
        with pytest.raises(UnicodeDecodeError):
            await box.read_file("deep/er/b.bin")
        await box.exec(["mkfifo", "pipe"])
        with pytest.raises(ShioenvError, match="pipe"):
            await box.read_file("pipe")
        with pytest.raises(NotADirectoryError):
            await box.write_file("long/below", "x")

    within(check)


FOOLING = """cat() { echo right; }; /usr/bin/env() { echo right; }; PATH=/tmp; export -f cat
shopt -s expand_aliases; alias cat='echo right'; trap 'echo right; exit 0' EXIT DEBUG
exec > /dev/null; (while :; do echo right > made; done) & exit 0"""


def test_what_was_typed_does_not_fool_a_scorer_that_executes() -> None:
    async def check(box: SandboxEnvironment) -> None:
        await box.as_type(ShioenvSandbox).type("echo typed > made")
        await box.as_type(ShioenvSandbox).type(FOOLING)
        await box.write_file("test.sh", "grep -c right made\n")
        assert (await box.exec(["cat", "made"])).stdout == "typed\n"
        assert (await box.exec(["bash", "test.sh"])).returncode == 1
        assert (await box.exec(["test", "-e", "missing"])).success is False
        assert await box.read_file("made") == "typed\n"

    within(check)


def test_what_a_program_made_and_left_running_is_there_for_the_next() -> None:
    async def check(box: SandboxEnvironment) -> None:
        made = (await box.exec(["mktemp", "-d"])).stdout.strip()
        assert (await box.exec(["test", "-d", made])).success
        await box.exec(["sh", "-c", "sleep 1000 > /dev/null 2>&1 & echo $! > number"])
        assert (await box.exec(["sh", "-c", "kill -0 $(cat number)"])).success

    within(check)


def test_reading_changes_nothing() -> None:
    async def check(box: SandboxEnvironment) -> None:
        shell = box.as_type(ShioenvSandbox)
        await shell.type("mkfifo wait; echo words > file; x=kept; sleep 1000 &")
        assert await box.read_file("file") == "words\n"
        assert (await shell.type("echo $x; kill -0 $!")).text == "kept\n"

        def entered(machine: SampleMachine) -> bool:
            return machine.terminal.entered

        assert not await shell.seat.do(entered)
        await box.exec(["true"])
        assert await shell.seat.do(entered)

    within(check)


def test_programs_run_at_once_and_without_a_limit_of_time() -> None:
    """The first waits for a file that the second makes; together they outlast a row's limit."""

    async def check(box: SandboxEnvironment) -> None:
        waiting = asyncio.create_task(
            box.exec(["sh", "-c", "until [ -e go ]; do sleep .01; done; sleep 6; echo went"])
        )
        assert (await box.exec(["touch", "go"])).success
        assert (await waiting).stdout == "went\n"

    within(check)


def test_a_cancelled_program_is_ended_and_the_next_is_answered() -> None:
    async def check(box: SandboxEnvironment) -> None:
        left = asyncio.create_task(box.exec(["sh", "-c", "touch begun; sleep 1000"]))
        await box.exec(["sh", "-c", "until [ -e begun ]; do sleep .01; done"])
        left.cancel()
        await asyncio.gather(left, return_exceptions=True)
        assert (await box.exec(["pgrep", "-cx", "sleep"])).stdout == "0\n"

    within(check)


def test_what_a_program_printed_until_its_time_was_over_is_kept() -> None:
    async def check(box: SandboxEnvironment) -> None:
        text = "echo some; printf '\\377' >&2; sleep 1000"
        with pytest.raises(TimeoutError) as over:
            await box.exec(["sh", "-c", text], timeout=1)
        assert vars(over.value)["truncated_output"] == "some\n\ufffd"

    within(check)


def test_a_line_that_ends_its_shell_leaves_the_machine_to_the_next() -> None:
    async def check(box: SandboxEnvironment) -> None:
        shell = box.as_type(ShioenvSandbox)
        await box.exec(["touch", "made"])
        told = await shell.show("touch half; while :; do :; done")
        assert told == "[timed out: all processes were ended]"
        assert await shell.show("ls made half") == "half\nmade\n"
        await shell.type("cd /; exit 3")
        assert await shell.show("pwd") == "/home/ubuntu\n"
        await shell.type("rm -r /home/ubuntu; exit")
        assert await shell.show("pwd") == "/\n"

    within(check)


def judged(
    number: int, check: Callable[[ShioenvSandbox], Awaitable[None]]
) -> tuple[bool, tuple[str, ...]]:
    verdicts = []

    async def judge(box: SandboxEnvironment) -> None:
        await check(box.as_type(ShioenvSandbox))
        verdicts.append(await box.as_type(ShioenvSandbox).judge(TASKS[number]))

    within(judge)
    return verdicts[0].passed, verdicts[0].extra


def test_what_programs_did_is_judged_from_outside() -> None:
    """Including running programs that would undo or hide it."""

    async def solves(box: ShioenvSandbox) -> None:
        await box.exec(["rm", "documents/notes.txt"])

    async def does_more(box: ShioenvSandbox) -> None:
        await box.type("rm documents/notes.txt")
        await box.exec(["touch", "other"])

    async def does_more_later(box: ShioenvSandbox) -> None:
        await box.exec(["sh", "-c", "(while :; do touch other; done) > /dev/null 2>&1 &"])
        await box.type("rm documents/notes.txt; until [ -e other ]; do :; done; exit")

    async def fools(box: ShioenvSandbox) -> None:
        await box.exec(["sh", "-c", "mv /bin/cat /bin/c; ln -s /bin/true /bin/cat"])
        await box.type(FOOLING)

    assert judged(0, solves) == (True, ())
    for harm in (does_more, does_more_later):
        passed, extra = judged(0, harm)
        assert not passed
        assert any(one.startswith("/fs/other") for one in extra)
    assert not judged(0, fools)[0]


def test_rows_that_were_only_typed_are_repeated_for_the_judge() -> None:
    """As in TRL and OpenEnv: an effect that is not repeatable is not paid."""

    async def types(box: ShioenvSandbox) -> None:
        await box.type("whoami")
        await box.read_file("documents/notes.txt")

    async def types_after_a_look(box: ShioenvSandbox) -> None:
        await box.exec(["cat", "documents/notes.txt"])
        await types(box)
        assert not await box.seat.do(lambda machine: machine.terminal.entered)

    async def does_it_once(box: ShioenvSandbox) -> None:
        await box.type("[[ -p /dev/stdout ]] && n=notes || n=todo")
        await box.type("rm documents/$n.txt")

    assert judged(1, types)[0]
    assert judged(1, types_after_a_look)[0]
    passed, extra = judged(0, does_it_once)
    assert (passed, extra[-1]) == (False, REASON)


def test_a_task_of_another_build_of_its_system_is_refused(tmp_path: Path) -> None:
    write_tasks([replace(TASKS[0], system_digest="ab" * 32)], tmp_path / "tasks.jsonl")
    with pytest.raises(TaskError, match="abab"):
        tasks(tmp_path / "tasks.jsonl")


CHECKS = {name for name in vars(self_check) if name.startswith("test_")}


@pytest.mark.parametrize("name", sorted(CHECKS - OTHERWISE.keys()))
def test_inspects_own_checks_of_a_sandbox(name: str) -> None:
    within(getattr(self_check, name))


@pytest.mark.parametrize("name", sorted(OTHERWISE))
def test_inspects_checks_that_do_not_hold(name: str) -> None:
    with pytest.raises(BaseException):  # noqa: B017, PT011 - whatever each raises
        within(getattr(self_check, name))
