"""What a process does with its sandbox, and batches of tasks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shioenv.errors import SandboxError
from shioenv.execution import processes
from shioenv.execution.processes import batches


class Observer:
    """Breaks as often as it is told to."""

    breaks = 0
    opened: list[Observer]

    def __init__(self) -> None:
        self.closed = False
        Observer.opened.append(self)

    def run(self, task: str) -> str:
        if Observer.breaks:
            Observer.breaks -= 1
            raise SandboxError("it broke")
        return task.upper()

    def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def _observer(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    Observer.opened, Observer.breaks = [], 0
    monkeypatch.setattr(processes, "open_sandbox", lambda *given: Observer())
    yield
    processes._close()


def run(observer: Any, task: str) -> str:
    answer: str = observer.run(task)
    return answer


def test_a_process_opens_one_sandbox_for_all_its_tasks() -> None:
    assert [processes._call(run, task) for task in ("a", "b")] == ["A", "B"]
    assert len(Observer.opened) == 1


def test_a_task_whose_sandbox_broke_is_begun_once_more_in_a_new_one() -> None:
    Observer.breaks = 1
    assert processes._call(run, "a") == "A"
    assert [one.closed for one in Observer.opened] == [True, False]


def test_a_sandbox_that_breaks_twice_is_an_error() -> None:
    Observer.breaks = 2
    with pytest.raises(SandboxError):
        processes._call(run, "a")


def test_batches_hold_all_tasks_in_order() -> None:
    assert list(batches("abcde", 2)) == [["a", "b"], ["c", "d"], ["e"]]
    assert list(batches("", 2)) == []


def alive(pid: int) -> bool:
    """Whether the process runs: one that ended and that nobody waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


KILLED = {
    "busy processors": """
        from shioenv.experiments.repeats import _busy
        with _busy(True):
            tell()
    """,
    "a pool": """
        from shioenv.execution.processes import new_processes
        with new_processes(2) as pool:
            list(pool.map(abs, range(4)))
            tell()
    """,
}


@pytest.mark.parametrize("what", KILLED)
def test_processes_end_with_one_that_is_killed(what: str) -> None:
    code = f"""
import multiprocessing, time
def tell():
    print(*(one.pid for one in multiprocessing.active_children()), flush=True)
    time.sleep(600)
if __name__ == "__main__":
{textwrap.indent(textwrap.dedent(KILLED[what]), "    ")}
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        children = [int(pid) for pid in parent.stdout.readline().split()]
        try:
            assert children
            assert all(map(alive, children))
            parent.kill()
            deadline = time.monotonic() + 60
            while any(map(alive, children)) and time.monotonic() < deadline:
                time.sleep(0.05)
            assert not any(map(alive, children))
        finally:
            for pid in filter(alive, children):
                os.kill(pid, signal.SIGKILL)
