"""An evaluation of Inspect with a scripted model, and its sandbox `shioenv` by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from needs import needed_module

inspect_ai = needed_module("inspect_ai")

from fronts_tasks import REPLIES, TASKS  # noqa: E402
from inspect_ai.dataset import Sample  # noqa: E402
from inspect_ai.model import ModelOutput, ModelUsage, get_model  # noqa: E402
from inspect_ai.scorer import includes  # noqa: E402
from inspect_ai.solver import basic_agent, system_message  # noqa: E402
from inspect_ai.tool import bash  # noqa: E402
from inspect_ai.util import OutputLimitExceededError, SandboxEnvironment  # noqa: E402
from inspect_ai.util._sandbox import self_check  # noqa: E402
from msgspec.structs import replace  # noqa: E402

from shioenv.errors import TaskError  # noqa: E402
from shioenv.fronts.inspect_ai import ShioenvSandbox, tasks  # noqa: E402
from shioenv.tasks.task import write_tasks  # noqa: E402

pytestmark = pytest.mark.usefixtures("system")

LONG = "a program with its input has 128 KiB at most, a sample 1 MiB: all of it is run again"
ROOT = "who works here is root, who may do everything"
OTHERWISE = {
    "test_read_file_not_allowed": ROOT,
    "test_write_binary_file_without_permissions": ROOT,
    "test_write_text_file_without_permissions": ROOT,
    "test_read_and_write_large_file_binary": LONG,
    "test_exec_input_large": LONG,
    "test_exec_large_command": LONG,
}
"""Inspect's own checks that do not hold, and why."""


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
        with pytest.raises(OutputLimitExceededError):
            await box.read_file("long")
        with pytest.raises(OutputLimitExceededError):
            await box.exec(["cat", "long"])
        await box.exec(["sh", "-c", "seq 500000 > shorter"])
        assert (await box.read_file("shorter")).endswith("500000\n")
        for number in range(4):
            await box.write_file(f"part{number}", b"\0\xff" * 70_000)
        assert await box.read_file("part3", text=False) == b"\0\xff" * 70_000
        with pytest.raises(UnicodeDecodeError):
            await box.read_file("deep/er/b.bin")

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


def test_limits_are_those_of_each_call() -> None:
    async def check(box: SandboxEnvironment) -> None:
        for _ in range(3):
            assert (await box.exec(["sleep", "3"])).success
        assert (await box.exec(["sleep", "6"], timeout=10)).success
        with pytest.raises(TimeoutError):
            await box.exec(["sleep", "60"])

    within(check)


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
