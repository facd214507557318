"""Interactive shells: on a terminal that the package opens, and on the user's."""

from __future__ import annotations

import hashlib
import json
import os
import pty
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shioenv.behavior.observe import SandboxRunner, open_sandbox
from shioenv.domain.behavior import Behavior
from shioenv.errors import OutputExistsError
from shioenv.live.asciicast import AsciicastWriter
from shioenv.live.attached import TerminalShell
from shioenv.system.store import System
from support.host_state import descendants
from support.needs import needs
from support.waiting import wait_until

pytestmark = pytest.mark.xdist_group("attached")
PROMPT = b"# "


@pytest.fixture(scope="module")
def runner(system: System) -> Iterator[SandboxRunner]:
    with open_sandbox(system) as opened:
        yield opened


@pytest.fixture
def shell(runner: SandboxRunner) -> Iterator[TerminalShell]:
    with TerminalShell(runner) as opened:
        until(opened, PROMPT)
        yield opened


def until(shell: TerminalShell, *wanted: bytes) -> bytes:
    """Return the screen's text up to these texts, which must appear in this order."""
    return read_until(lambda: shell.read(0.1), *wanted)


def read_until(read: Callable[[], bytes], *wanted: bytes) -> bytes:
    """Call `read` until it has returned these texts in this order; return everything it
    returned."""
    shown = bytearray()
    pattern = re.compile(b".*?".join(map(re.escape, wanted)), re.DOTALL)

    def is_shown() -> bool:
        shown.extend(read())
        return pattern.search(shown) is not None

    wait_until(is_shown, lambda: f"{wanted} in {bytes(shown)!r}")
    return bytes(shown)


def read_to_the_end(shell: TerminalShell) -> None:
    def has_ended() -> bool:
        shell.read(1.0)
        return shell.ended

    wait_until(has_ended, "the end of the shell")


def test_what_changed_is_told_at_the_prompt(shell: TerminalShell) -> None:
    shell.send(b"echo one > made; echo do''ne\n")
    until(shell, b"done", PROMPT)
    behavior = shell.look()
    assert [operation[:2] for operation in behavior.patch.operations] == [("a", "/fs/made")]
    assert not behavior.shell_state_known
    assert not shell.look().patch
    assert not shell.busy


def test_a_script_without_an_interpreter_runs(shell: TerminalShell) -> None:
    script = "printf '%s\\n' 'echo i''s $0 $#; x=in' 'exit 3' > s; chmod +x s"
    shell.send(f"{script}; ./s a; echo en''d $? [$x]\n".encode())
    until(shell, b"is ./s 1\r\n", b"end 3 []\r\n", PROMPT)
    shell.send(b"(./s b c); ./s | cat; ./s & wait $!; echo en''d $?\n")
    until(shell, b"is ./s 2\r\n", b"is ./s 0\r\n", b"is ./s 0\r\n", b"end 3\r\n", PROMPT)
    shell.send(b"exec ./s\n")
    until(shell, b"is /home/ubuntu/s 0\r\n")  # exec makes the path a full one
    read_to_the_end(shell)


def test_keys_are_signals_and_the_size_is_the_terminals(shell: TerminalShell) -> None:
    shell.resize(33, 77)
    shell.send(b"stty size; bash -c 'echo rea''dy; sleep 100'\n")
    until(shell, b"33 77", b"ready")
    # before that bash itself may lose the signal
    wait_until(lambda: "sleep" in descendants(os.getpid()).values(), "the sleep")
    shell.look()
    assert shell.busy
    shell.send(b"\x03")
    until(shell, PROMPT)
    shell.send(b"echo $?\n")
    until(shell, b"130")


def test_a_program_takes_the_whole_screen(shell: TerminalShell) -> None:
    shell.send(b"less README.md\n")
    until(shell, b"(END)")
    shell.send(b"q")
    until(shell, PROMPT)
    shell.send(b"python3\n")
    until(shell, b">>> ")
    shell.send(b"6 * 7\nopen('by-python', 'w').close()\nexit()\n")
    until(shell, b"42", PROMPT)
    assert ("a", "/fs/by-python") in [one[:2] for one in shell.look().patch.operations]


def test_the_end_is_told_with_the_shells_own_exit_code(runner: SandboxRunner) -> None:
    with TerminalShell(runner) as shell:
        until(shell, PROMPT)
        shell.send(b"exit 5\n")
        read_to_the_end(shell)
        assert wait_until(lambda: shell.look().exit_code, "an exit code") == 5
    with TerminalShell(runner) as shell:
        shell.send(b"sleep 1000 & disown; trap '' HUP\n")
        until(shell, PROMPT)
    assert b"made" not in runner.run("ls").output


def test_a_terminal_of_the_users_is_connected(runner: SandboxRunner, tmp_path: Path) -> None:
    user, ours = pty.openpty()
    seen: list[object] = []

    def at_prompt(behavior: Behavior) -> list[str]:
        seen.append(behavior)
        return ["inserted"]

    with TerminalShell(runner) as shell, AsciicastWriter(tmp_path / "cast", "a title") as cast:

        def type_keys() -> None:
            read_until(lambda: os.read(user, 4096), PROMPT)
            os.write(user, b"touch typed\n")
            read_until(lambda: os.read(user, 4096), b"inserted", PROMPT)
            os.write(user, b"exit\n")

        typist = threading.Thread(target=type_keys)
        typist.start()
        shell.attach(ours, ours, recording=cast, at_prompt=at_prompt)
        typist.join()
    assert shell.ended
    assert "added typed" in str(seen)
    header, *events = map(json.loads, (tmp_path / "cast").read_text().splitlines())
    assert (header["version"], header["title"]) == (2, "a title")
    shown = "".join(data for _, kind, data in events if kind == "o")
    typed = "".join(data for _, kind, data in events if kind == "i")
    assert "touch typed" in shown
    assert typed == "touch typed\nexit\n"
    (marker,) = [json.loads(data) for _, kind, data in events if kind == "m" and "typed" in data]
    assert marker["context_patch"][0][:2] == ["a", "/fs/typed"]
    os.close(user)
    os.close(ours)


def test_what_is_pasted_at_once_arrives_whole(runner: SandboxRunner) -> None:
    keyboard, keys = os.pipe()
    shown, screen = os.pipe()
    text = b"".join(b"%d %s\n" % (number, b"x" * 60) for number in range(1000))
    behaviors: list[Behavior] = []

    def at_prompt(behavior: Behavior) -> list[str]:
        behaviors.append(behavior)
        return []

    def paste() -> None:
        os.write(keys, b"echo rea''dy; cat > pasted\n")
        read_until(lambda: os.read(shown, 4096), b"ready")  # the terminal hands lines on then
        threading.Thread(target=lambda: [*iter(lambda: os.read(shown, 4096), b"")]).start()
        os.write(keys, text + b"\x04exit\n")

    typist = threading.Thread(target=paste)
    typist.start()
    with TerminalShell(runner) as shell:
        shell.attach(keyboard, screen, at_prompt=at_prompt)
        assert shell.ended
    typist.join()
    for descriptor in (keyboard, keys, screen):
        os.close(descriptor)
    digests = [each.content_digests["pasted"] for each in behaviors if each.content_digests]
    assert digests[-1] == hashlib.sha256(text).hexdigest()


def test_a_terminal_takes_no_more_than_fits(shell: TerminalShell) -> None:
    shell.send(b"echo rea''dy; sleep 100\n")
    until(shell, b"ready")
    line, taken = b"x" * 100 + b"\n", 0
    while now := shell.send(line):
        taken += now
    assert taken < 1 << 20
    assert not shell.ended


def test_a_recording_takes_nobodys_place(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("kept")
    with pytest.raises(OutputExistsError):
        AsciicastWriter(tmp_path / "there", "")
    assert (tmp_path / "there").read_text() == "kept"


def run_shell(lines: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run `shioenv shell` with lines on its standard input."""
    command = [sys.executable, "-m", "shioenv", "shell", *options]
    return subprocess.run(command, input=lines, capture_output=True, text=True, check=False)


def test_lines_of_a_pipe_are_run_as_they_are_read(system: System, tmp_path: Path) -> None:
    file = tmp_path / "cast"
    done = run_shell("cd documents\nx=5; echo $x\ntouch made\nexit 3\necho never\n",
                     "--changes", "--record", str(file))  # fmt: skip
    assert (done.returncode, done.stdout) == (3, "5\n")
    assert "added   documents/made" in done.stderr
    markers = [json.loads(line)[2] for line in file.read_text().splitlines()[1:] if '"m"' in line]
    assert [json.loads(marker)["line"] for marker in markers][-1] == "exit 3"


@needs("shioenv-model")
def test_a_model_answers_where_nothing_is_executed(system: System) -> None:
    done = run_shell("cd documents\npwd\nno-such-command\n", "--model", "default")
    assert done.stdout.splitlines()[0] == "/home/ubuntu/documents"
    assert done.returncode == 127
