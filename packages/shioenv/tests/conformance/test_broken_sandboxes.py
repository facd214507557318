"""An input that breaks every sandbox is recorded as such, and nothing else ends.

The sandboxes are real, and so is their end: the test kills the supervisor of such an input.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from shioenv.behavior.observe import SandboxRunner
from shioenv.dataset.external import CommandList, import_commands
from shioenv.dataset.record_reader import read_records
from shioenv.dataset.verify import verify
from shioenv.domain.behavior import Behavior
from shioenv.errors import GenerationError, SandboxError
from shioenv.execution.job import NumberedJob
from shioenv.execution.lanes import Lane
from shioenv.execution.local import SerialExecutor
from shioenv.irreducibility.scoring import Scoring
from shioenv.sandbox.base import Execution, Limits, Request
from shioenv.sandbox.namespaces.backend import NamespaceSandbox
from shioenv.system.store import System


class Fragile(NamespaceSandbox):
    """Ends a given number of times where its input contains one of these words."""

    words: tuple[bytes, ...] = (b"break it",)
    left = 1 << 30
    runs = 0

    def run(self, request: Request) -> Execution:
        self.runs += 1
        breaks = any(word in request.argument() for word in self.words)
        if breaks and self.left:
            self.left -= 1
            if self._process is None:
                self._open()
            assert self._process is not None
            self._process.kill()
            self._process.wait()
        return super().run(request)


def fragile(system: System, limits: Limits | None = None) -> SandboxRunner:
    """Return a runner with such a sandbox, whose start directory is known."""
    runner = SandboxRunner(system, limits)
    runner._sandbox.close()
    runner._sandbox = Fragile(system, limits)
    return runner


@pytest.fixture
def runner(system: System) -> Iterator[SandboxRunner]:
    with fragile(system) as opened:
        opened.run("true")
        yield opened


def sandbox_of(runner: SandboxRunner) -> Fragile:
    assert isinstance(runner._sandbox, Fragile)
    return runner._sandbox


def says_that_it_broke(behavior: Behavior) -> bool:
    return (
        behavior.limits_hit == ("sandboxes",)
        and behavior.exit_code == 137
        and behavior.died_by_signal == 9
        and behavior.patch_truncated
        and behavior.volatile
        and not behavior.shell_state_known
        and (behavior.output, behavior.patch.operations) == (b"", ())
    )


def test_what_breaks_every_sandbox_is_a_behavior_that_says_so(runner: SandboxRunner) -> None:
    before = sandbox_of(runner).runs
    assert says_that_it_broke(runner.run(": break it"))
    assert sandbox_of(runner).runs == before + 6, "three, and one after each that showed it works"
    assert runner.run("echo still there").output == b"still there\n"
    split = runner.execute(": break it", separate=True, sandboxes=1)
    assert (split.stdout, split.stderr) == (b"", b"")
    after = runner.state().after("x=1", runner.run("x=1"))
    assert says_that_it_broke(runner.run(": break it", after))


def test_what_breaks_fewer_does_what_it_does(runner: SandboxRunner) -> None:
    sandbox_of(runner).left = 2
    assert runner.run("echo break it").output == b"break it\n"


def test_sandboxes_that_nothing_runs_in_are_an_error(runner: SandboxRunner) -> None:
    sandbox_of(runner).words = (b"",)
    with pytest.raises(SandboxError):
        runner.run("true")


class Starved(NamespaceSandbox):
    """Gives an input that ends with `history` no time, once."""

    starves = True

    def run(self, request: Request) -> Execution:
        if self.starves and request.argument().rstrip().endswith(b"history"):
            self.starves = False
            request = replace(request, wall_seconds=0.05)
        return super().run(request)


def test_a_history_that_was_cut_is_not_remembered(system: System) -> None:
    with SandboxRunner(system) as runner:
        runner._sandbox.close()
        runner._sandbox = Starved(system)
        state = replace(runner.state(), history=("sleep .2; echo made; : history",))
        cut = runner.run("echo new", state)
        assert cut.volatile
        whole = runner.run("echo new", state)
        assert (whole.output, whole.volatile) == (b"new\n", False)


def test_what_waited_after_a_history_is_told(system: System) -> None:
    with SandboxRunner(system, Limits(wall_seconds=0.6)) as runner:
        runner.run("sleep 9", replace(runner.state(), history=("x=1",)))
        assert runner.waited


def execute(lane: Lane, task: tuple[int, str]) -> Behavior:
    return lane.execute(task[1])


def test_a_host_that_breaks_sandboxes_ends_a_job(system: System) -> None:
    def opens(name: str, limits: Limits) -> SandboxRunner:
        runner = fragile(system, limits)
        sandbox_of(runner).words = (b"",)
        return runner

    with pytest.raises(GenerationError, match="failed in 5 attempts"):
        list(SerialExecutor(opens).map(NumberedJob(execute, system=system.name), [(0, "echo one")]))


def test_no_input_ends_an_import(system: System, tmp_path: Path) -> None:
    lines = tmp_path / "commands.txt"
    lines.write_text("echo one\nls 'break it' 1\nls 'break it' 2\nls missing\n")
    made = import_commands(
        CommandList(lines),
        tmp_path / "made",
        scoring=Scoring(budget=4),
        system=system.name,
        executor=SerialExecutor(lambda name, limits: fragile(system, limits)),
    )
    assert made.summary.retried == 0
    first, *broken, last = read_records(tmp_path / "made")
    for record in broken:
        assert (record.limits_hit, record.exit_code, record.output) == (["sandboxes"], 137, "")
        assert (record.context_patch, record.patch_truncated, record.volatile) == ("[]", True, True)
    assert len(broken) == 2
    assert (first.output, last.exit_code, first.limits_hit, last.limits_hit) == ("one\n", 2, [], [])
    assert verify(tmp_path / "made").ok
