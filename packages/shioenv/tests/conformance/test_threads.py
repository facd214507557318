"""Threads that share a sandbox, a shell or a model: each call gets its own answer, or an error."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from shioenv.behavior.observe import SandboxRunner, open_sandbox
from shioenv.domain.behavior import Behavior
from shioenv.domain.runner import ScriptedRunner
from shioenv.errors import SandboxError, ShellEndedError
from shioenv.live.model_shell import ModelShell, RepeatedShell
from shioenv.live.resident import ResidentShell, open_shell
from shioenv.sandbox.base import Limits, Request
from shioenv.sandbox.namespaces.backend import NamespaceSandbox
from shioenv.system.store import System
from support.waiting import wait_until

HOME = "/home/ubuntu"
THREADS = 8


@pytest.fixture(scope="module")
def runner(system: System) -> Iterator[SandboxRunner]:
    with open_sandbox(system) as opened:
        yield opened


@pytest.fixture
def sandbox(system: System) -> Iterator[NamespaceSandbox]:
    with NamespaceSandbox(system) as opened:
        yield opened


def test_each_thread_gets_its_own_answer(runner: SandboxRunner) -> None:
    with ThreadPoolExecutor(THREADS) as threads:
        said = threads.map(lambda n: runner.run(f"echo {n}; exit $(({n} % 256))"), range(1000))
        for number, behavior in enumerate(said):
            assert (behavior.output, behavior.exit_code) == (b"%d\n" % number, number % 256)


def test_each_thread_gets_its_own_changes_after_its_own_history(runner: SandboxRunner) -> None:
    def made(number: int) -> bool:
        state = runner.state(("/tmp", HOME)[number % 2])
        before = state.after(f"v={number}", runner.run(f"v={number}", state))
        behavior = runner.run("echo $v > f$v; ip link set lo down", before)
        context = runner.context(state.cwd).document
        assert context["cwd"] == state.cwd
        names = {one[1] for one in behavior.patch.operations if one[0] == "a"}
        return names == {f"/fs/f{number}"} and any(
            "lo" in one[1] or "links" in one[1] for one in behavior.patch.operations
        )

    with ThreadPoolExecutor(THREADS) as threads:
        assert all(threads.map(made, range(8)))


def test_tasks_of_an_event_loop_share_a_sandbox(runner: SandboxRunner) -> None:
    async def all_of_them() -> list[bytes]:
        asked = (asyncio.to_thread(runner.run, f"echo {number}") for number in range(100))
        return [behavior.output for behavior in await asyncio.gather(*asked)]

    assert asyncio.run(all_of_them()) == [b"%d\n" % number for number in range(100)]


def test_a_sandbox_outlives_the_thread_that_opened_it(system: System) -> None:
    opened: list[SandboxRunner] = []
    thread = threading.Thread(target=lambda: opened.append(open_sandbox(system)))
    thread.start()
    thread.join()
    with opened[0] as runner:
        sandbox: Any = runner._sandbox
        before = sandbox._process.pid
        assert runner.run("echo here").output == b"here\n"
        assert sandbox._process.pid == before


def test_an_interrupted_call_leaves_no_answer_for_the_next(sandbox: NamespaceSandbox) -> None:
    receive = sandbox._receive

    def interrupted(least: int, so_far: bytes) -> bytes:
        sandbox._receive = receive  # type: ignore[method-assign]
        raise KeyboardInterrupt

    sandbox._receive = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        sandbox.run(Request("echo interrupted"))
    with ThreadPoolExecutor(2) as threads:
        said = threads.map(lambda n: sandbox.run(Request(f"echo {n}")).output, range(20))
        assert list(said) == [b"%d\n" % number for number in range(20)]


def test_a_call_that_is_interrupted_between_its_requests_leaves_nothing(
    sandbox: NamespaceSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(ask: object) -> bytes:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(sandbox, "_read_network", interrupted)
        with pytest.raises(KeyboardInterrupt):
            sandbox.run(Request("ip link set lo down"))
    assert b"UP" in sandbox.run(Request("ip -o link show lo")).output


def test_a_call_within_a_call_of_the_same_thread_is_refused(sandbox: NamespaceSandbox) -> None:
    """For example from a signal handler."""
    receive, refused = sandbox._receive, []

    def handled(least: int, so_far: bytes) -> bytes:
        sandbox._receive = receive  # type: ignore[method-assign]
        with pytest.raises(SandboxError, match="busy with another call") as error:
            sandbox.run(Request("echo inner"))
        refused.append(error)
        return receive(least, so_far)

    sandbox._receive = handled  # type: ignore[method-assign]
    assert sandbox.run(Request("echo outer")).output == b"outer\n"
    assert refused
    assert sandbox.run(Request("echo next")).output == b"next\n"


def test_closing_ends_the_call_of_another_thread(system: System) -> None:
    runner = open_sandbox(system, Limits(wall_seconds=3600))
    sandbox: Any = runner._sandbox
    with ThreadPoolExecutor(3) as threads:
        running = threads.submit(runner.run, "sleep 3600")
        wait_until(lambda: sandbox._asking, "the question")
        waiting = threads.submit(runner.run, "echo never")
        runner.close()
        for call in (running, waiting):
            assert isinstance(call.exception(), SandboxError)
    with pytest.raises(SandboxError, match="closed"):
        runner.run("true")
    with pytest.raises(SandboxError, match="closed"):
        runner.start_shell(idle_seconds=1)


def test_a_fork_is_refused_while_a_thread_holds_the_sandbox(system: System) -> None:
    with open_sandbox(system, Limits(wall_seconds=3600)) as runner:
        sandbox: Any = runner._sandbox
        with ThreadPoolExecutor(1) as threads:
            running = threads.submit(runner.run, "sleep 3600")
            wait_until(lambda: sandbox._asking, "the question")
            child = os.fork()
            if not child:
                try:
                    runner.run("true")
                except SandboxError:
                    runner.close()
                    os._exit(0)
                finally:
                    os._exit(1)
            assert os.waitpid(child, 0)[1] == 0
            assert not running.done()
            runner.close()


def test_threads_share_a_shell_line_by_line(system: System) -> None:
    with open_shell(system, HOME) as shell, ThreadPoolExecutor(THREADS) as threads:

        def lines(number: int) -> tuple[bytes, list[str]]:
            behavior = shell.run(f"mine={number}; touch file$mine; echo $mine")
            names = [one[1] for one in behavior.patch.operations if one[0] == "a"]
            return behavior.output, [name for name in names if name.startswith("/fs/file")]

        for number, (output, names) in enumerate(threads.map(lines, range(100))):
            assert output == b"%d\n" % number
            assert names == [f"/fs/file{number}"]
        assert len(shell.state.history) == 100
        with shell.fork() as other:
            assert other.run("echo $mine").output == shell.run("echo $mine").output


def test_an_interrupted_line_ends_its_shell(
    runner: SandboxRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> object:
        raise KeyboardInterrupt

    with ResidentShell(runner, HOME) as shell:
        with monkeypatch.context() as patched:
            patched.setattr(shell._lines._recorder, "behavior", interrupted)
            with pytest.raises(KeyboardInterrupt):
                shell.run("touch unseen")
        with pytest.raises(ShellEndedError):
            shell.run("true")


def test_closing_a_shell_ends_the_line_of_another_thread(system: System) -> None:
    with open_sandbox(system, Limits(wall_seconds=3600)) as runner:
        shell = ResidentShell(runner, HOME)
        lines: Any = shell._lines
        with ThreadPoolExecutor(2) as threads:
            running = threads.submit(shell.run, "sleep 3600")
            wait_until(lambda: lines._sandbox._asking, "the question")
            waiting = threads.submit(shell.run, "touch /tmp/late")
            shell.close()
            assert isinstance(running.exception(), SandboxError)
            assert isinstance(waiting.exception(), (SandboxError, ShellEndedError))
        with pytest.raises(ShellEndedError):
            lines.run("true")
        with ResidentShell(runner, HOME) as other:
            shell.interrupt()
            assert other.run("ls /tmp/late 2> /dev/null; echo here").output == b"here\n"


def test_a_shell_is_lent_at_no_running_shells_cost(system: System) -> None:
    with open_sandbox(system, Limits(wall_seconds=3600)) as runner:
        busy: list[Any] = [runner.lend_shell(HOME) for _ in range(runner.lends)]
        with ThreadPoolExecutor(len(busy)) as threads:
            text = "sleep 3600"
            running = [threads.submit(lines.run, text) for lines in busy]
            wait_until(lambda: all(lines._sandbox._asking for lines in busy), "both questions")
            third = runner.lend_shell(HOME)
            assert not third.ended
            fourth = runner.lend_shell(HOME)
            assert third.given_back
            assert not any(lines.given_back for lines in busy)
            assert fourth.run("echo here").output == b"here\n"
            assert not any(call.done() for call in running)
            runner.close()


def test_threads_share_shells_without_a_machine(runner: SandboxRunner) -> None:
    script = ScriptedRunner(lambda text: Behavior(0, f"{text.split()[1]}\n".encode()))
    for shell in (RepeatedShell(runner, HOME), ModelShell(script, runner.state(HOME))):
        with shell, ThreadPoolExecutor(THREADS) as threads:
            said = threads.map(lambda n, shell=shell: shell.run(f"echo {n}").output, range(10))
            assert list(said) == [b"%d\n" % number for number in range(10)]
            assert len(shell.state.history) == 10


def test_a_shell_that_opens_while_the_sandbox_is_closed_is_closed_too(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[NamespaceSandbox] = []
    opens, goes_on = threading.Event(), threading.Event()

    def slow(*given: Any) -> NamespaceSandbox:
        opened.append(NamespaceSandbox(*given))
        opens.set()
        goes_on.wait()
        return opened[0]

    with ThreadPoolExecutor(1) as threads, open_sandbox(system) as sandbox:
        sandbox.run("true")  # so the shell does not take its machine
        monkeypatch.setattr("shioenv.behavior.observe.default_sandbox", slow)
        started = threads.submit(sandbox.start_shell, HOME, idle_seconds=60)
        opens.wait()
        sandbox.close()
        goes_on.set()
        with pytest.raises(SandboxError, match="was closed"):
            started.result()
    with pytest.raises(SandboxError):
        opened[0].run(Request("true"))
