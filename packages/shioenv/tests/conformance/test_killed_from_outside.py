"""A record is not an ordinary one if the host killed a program inside during the run."""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from shioenv.behavior.observe import SandboxRunner, open_sandbox
from shioenv.errors import SandboxError
from shioenv.system import idmap
from shioenv.system.store import System
from support.nightly import by_day


@pytest.fixture(scope="module")
def sandbox(system: System) -> Iterator[SandboxRunner]:
    with open_sandbox(system) as opened:
        yield opened


@contextmanager
def killing(chosen: Callable[[], Iterable[int]], pause: float = 0.0) -> Iterator[list[int]]:
    """Kill, from the host, the first chosen process.

    The choice is repeated until then, or until the end, every `pause` seconds.
    """
    killed: list[int] = []
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(pause):
            for pid in chosen():
                with suppress(OSError):  # it is gone
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)
                    return

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield killed
    finally:
        ended.set()
        thread.join()


def called(command: bytes) -> Iterator[int]:
    """Return the processes with this command line."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if path.read_bytes() == command:
                yield int(path.parent.name)


@pytest.mark.parametrize(
    ("text", "output"),
    by_day(
        [
            ("sleep {}", b""),
            ("sleep {}; echo $?", b"0\n"),
            ("echo x | (sleep {}; cat)", b"x\n"),
            ("sleep {} | cat", b""),
            ("xargs sleep <<< {}", b""),
            ("find /etc/motd -exec sleep {} ';'", b""),
        ],
        2,
        unpacked=True,
    ),
)
def test_what_was_killed_from_outside_is_run_again_and_volatile(
    sandbox: SandboxRunner, text: str, output: bytes
) -> None:
    seconds = f"1.{os.getpid()}"  # other tests' sleeps are not meant
    with killing(partial(called, f"sleep\0{seconds}\0".encode()), pause=0.005) as killed:
        behavior = sandbox.run(text.format(seconds))
    assert killed
    assert (behavior.exit_code, behavior.output) == (0, output)
    assert behavior.volatile


@pytest.mark.parametrize(
    ("text", "exit_code"),
    [
        ("kill -9 $$", 137),
        ("timeout -s KILL 0.05 sleep 9", 137),
        ("exit 137", 137),
        ("(kill -9 $BASHPID) | cat", 0),
        ("echo Killed by signal 9", 0),
    ],
)
def test_an_input_that_kills_does_so_twice_and_is_not_volatile(
    sandbox: SandboxRunner, text: str, exit_code: int
) -> None:
    behavior = sandbox.run(text)
    assert behavior.exit_code == exit_code
    assert not behavior.volatile


def children(pid: int) -> set[int]:
    """Return all processes below one."""
    found: set[int] = set()
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                found |= {child, *children(child)}
    except OSError:  # it is gone
        pass
    return found


def newest(after: int) -> Callable[[], Iterator[int]]:
    """Choose the process below this one that appears after a number of others."""
    before = children(os.getpid())
    seen = set(before)

    def chosen() -> Iterator[int]:
        for pid in children(os.getpid()) - seen:
            seen.add(pid)
            if len(seen) - len(before) > after:
                yield pid

    return chosen


@pytest.mark.parametrize("after", [*range(6), 9, 20])
def test_whoever_is_killed_while_a_sandbox_opens_it_opens_the_next_time(
    system: System, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idmap, "_PATIENCE", 20.0)
    with killing(newest(after)):
        try:
            with open_sandbox(system) as opened:
                opened.run("true")
        except SandboxError as error:
            assert os.strerror(errno.ETIMEDOUT) not in error.message  # noqa: PT017
    with open_sandbox(system) as opened:
        assert opened.run("echo still here").output == b"still here\n"


def makers_of_namespaces() -> Iterator[int]:
    """Return the processes below this one that have a grandchild: init."""
    for pid in children(os.getpid()):
        if any(children(child) for child in children(pid)):
            yield pid


def test_who_makes_the_namespaces_dies_with_its_supervisor(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idmap, "_PATIENCE", 20.0)
    message = None
    for _ in range(50):  # init's maker lives for milliseconds: it may be seen too late, or not
        with killing(makers_of_namespaces):
            try:
                open_sandbox(system).close()
            except SandboxError as error:
                message = error.message
                break
    assert message
    assert os.strerror(errno.ETIMEDOUT) not in message
