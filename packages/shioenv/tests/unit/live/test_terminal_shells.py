"""A shell on a terminal: keys, screens, sizes, prompts and the end; the test has its other end."""

from __future__ import annotations

import json
import os
import pty
import termios
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from shioenv.domain.behavior import Behavior
from shioenv.domain.patch import ContextPatch
from shioenv.live.asciicast import AsciicastWriter
from shioenv.live.attached import TerminalShell
from support.waiting import wait_until

CHANGED = Behavior(0, b"", ContextPatch((("=", "/cwd", "/there"),)))


class Terminals:
    """A runner that starts a terminal whose other end is `slave`; `looks` are returned in turn."""

    def __init__(self) -> None:
        self.master, self.slave = pty.openpty()
        os.set_blocking(self.master, False)
        self.looks: list[Behavior] = []
        self.busy = False
        self.closed = 0
        self.started: list[Any] = []

    def start_terminal(self, text: str, cwd: str | None, *, idle_seconds: float) -> Any:
        self.started.append((text, cwd, idle_seconds))
        return self, self.master

    def look(self) -> Behavior:
        return self.looks.pop(0) if self.looks else Behavior(0, b"")

    def close(self) -> None:
        self.closed += 1

    def hang_up(self) -> None:
        if self.slave >= 0:
            os.close(self.slave)
        self.slave = -1


@pytest.fixture
def runner() -> Iterator[Terminals]:
    runner = Terminals()
    yield runner
    runner.hang_up()


def opened(runner: Any, **options: Any) -> TerminalShell:
    return TerminalShell(runner, **options)


def test_bytes_go_in_and_come_out_until_the_shell_hangs_up(runner: Terminals) -> None:
    closed: list[bool] = []
    shell = opened(runner, terminal="vt100", cwd="/tmp", rows=5, columns=7, idle_seconds=3,
                   close=lambda: closed.append(True))  # fmt: skip
    assert runner.started == [("exec env TERM=vt100 bash -i", "/tmp", 3)]
    assert os.get_terminal_size(runner.slave) == (7, 5)
    shell.resize(9, 11)
    assert os.get_terminal_size(runner.slave) == (11, 9)
    assert shell.read(0) == b""
    assert shell.send(b"a\r") == 2
    assert os.read(runner.slave, 9) == b"a\n"
    os.write(runner.slave, b"shown")
    assert b"shown" in b"".join(iter(lambda: shell.read(0), b""))
    assert not shell.busy
    assert shell.look() == Behavior(0, b"")
    runner.hang_up()
    assert shell.read(1) == b""
    assert shell.ended
    assert shell.read() == b""
    assert shell.send(b"x") == 0
    shell.close()
    shell.close()
    assert (closed, runner.closed) == ([True], 1)


def test_a_terminal_that_nobody_reads_takes_no_more(runner: Terminals) -> None:
    attributes = termios.tcgetattr(runner.slave)
    attributes[3] &= ~(termios.ICANON | termios.ECHO)
    termios.tcsetattr(runner.slave, termios.TCSANOW, attributes)
    shell = opened(runner)
    while shell.send(b"x" * 65_536):
        pass
    assert not shell.ended


class Attached:
    """A shell that is attached in a thread to pipes, or to the caller's terminal."""

    def __init__(self, shell: TerminalShell, keyboard: int, **options: Any) -> None:
        self.screen, to_screen = os.pipe()
        self._ends = (self.screen, to_screen)
        self._error: list[BaseException] = []

        def attach() -> None:
            try:
                shell.attach(keyboard, to_screen, **options)
            except BaseException as error:
                self._error.append(error)

        self._thread = threading.Thread(target=attach)
        self._thread.start()

    def join(self) -> None:
        self._thread.join(60)
        assert not self._thread.is_alive()
        for end in self._ends:
            os.close(end)
        if self._error:
            raise self._error[0]


@pytest.fixture
def signals(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the installed signal handlers: only the main thread can set any."""
    handlers: list[Any] = []

    def set_handler(_number: int, handler: Any) -> str:
        handlers.append(handler)
        return "before"

    monkeypatch.setattr("shioenv.live.attached.signal.signal", set_handler)
    return handlers


def test_keys_and_screen_are_passed_on_and_recorded(
    runner: Terminals, signals: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shioenv.live.attached.QUIET_SECONDS", 0.01)
    runner.looks = [CHANGED]
    keyboard, keys = os.pipe()
    prompts: list[Behavior] = []
    file = tmp_path / "cast"
    with AsciicastWriter(file, "shell") as recording, opened(runner) as shell:
        attached = Attached(shell, keyboard, recording=recording, at_prompt=prompts.append)
        os.write(keys, b"cd there\n")
        assert os.read(runner.slave, 99) == b"cd there\n"
        wait_until(lambda: bool(prompts), "what a line changed")
        os.write(runner.slave, b"bye\n")
        runner.hang_up()
        attached.join()
    assert prompts == [CHANGED]
    events = [json.loads(line) for line in file.read_text().splitlines()][1:]
    assert "".join(text for _, kind, text in events if kind == "i") == "cd there\n"
    assert "bye" in "".join(text for _, kind, text in events if kind == "o")
    assert [json.loads(text)["line"] for _, kind, text in events if kind == "m"] == [None]
    assert signals[1] == "before"
    for end in (keyboard, keys):
        os.close(end)


def test_a_program_in_front_is_looked_at_again(
    runner: Terminals, signals: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shioenv.live.attached.QUIET_SECONDS", 0.001)
    runner.busy = True
    runner.looks = [Behavior(0, b""), Behavior(0, b""), CHANGED]
    keyboard, keys = os.pipe()
    prompts: list[Behavior] = []
    shell = opened(runner)
    attached = Attached(shell, keyboard, at_prompt=prompts.append)
    os.write(keys, b"\x04")
    wait_until(lambda: bool(prompts), "what a program changed")
    os.close(keys)  # end of the typed input
    attached.join()
    assert not shell.ended
    shell.close()
    os.close(keyboard)


def test_nobody_looks_where_nobody_is_told(runner: Terminals, signals: list[Any]) -> None:
    runner.looks = [CHANGED]
    keyboard, keys = os.pipe()
    attached = Attached(opened(runner), keyboard)
    runner.hang_up()
    attached.join()
    assert runner.looks == [CHANGED]
    for end in (keyboard, keys):
        os.close(end)


def test_the_callers_terminal_is_raw_meanwhile_and_gives_its_size(runner: Terminals) -> None:
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (31, 77))
    before = termios.tcgetattr(theirs)
    seen: list[Any] = []

    class Typing(TerminalShell):
        def resize(self, rows: int, columns: int) -> None:
            super().resize(rows, columns)
            os.write(ours, b"\n")

    def at_prompt(_: Behavior) -> tuple[str, ...]:
        seen.append((os.get_terminal_size(runner.slave), termios.tcgetattr(theirs)[3]))
        runner.hang_up()
        return ()

    runner.looks = [CHANGED]
    Typing(cast("Any", runner)).attach(theirs, theirs, at_prompt=at_prompt)
    assert seen[0][0] == (77, 31)
    assert not seen[0][1] & termios.ICANON
    assert termios.tcgetattr(theirs) == before
    for end in (ours, theirs):
        os.close(end)
