"""Cowrie itself, with this project's endpoint as its LLM: terminals and commands, over real SSH."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from support.needs import needed_module
from support.paths import ROOT

needed_module("starlette")

from shioenv_eval.predictors import cowrie  # noqa: E402
from support.openai_server import KEY, Server, serving  # noqa: E402

pytestmark = [pytest.mark.usefixtures("system"), pytest.mark.xdist_group("openai")]

VISIT = ROOT / "benchmarks" / "cowrie_visit.py"


@dataclass(frozen=True)
class Honeypot:
    process: subprocess.Popen[str]
    server: Server

    def ask(self, **asked: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps(asked), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def typed(self, *lines: str) -> list[str]:
        return [text for text, _ in self.ask(lines=lines)]


@pytest.fixture(scope="module")
def honeypot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Honeypot]:
    home = tmp_path_factory.mktemp("cowrie")
    found = importlib.util.find_spec("shioenv_eval.predictors")
    assert found is not None
    assert found.submodule_search_locations is not None
    predictors = found.submodule_search_locations[0]
    with serving(home, "--key", KEY, "--cwd", "/root") as server:
        words = [str(cowrie.interpreter()), str(VISIT), predictors, str(home / "cowrie")]
        words += [str(cowrie.free_port()), f"http://127.0.0.1:{server.port}", KEY, "sandbox"]
        with subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            yield Honeypot(process, server)
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(60) == 0


def test_a_terminal_has_one_shell(honeypot: Honeypot) -> None:
    lines = ["cd /tmp", "x=5", "echo a > f; ls", "", "ls nowhere", "echo $x; pwd"]
    assert honeypot.typed(*lines) == [
        "",
        "",
        "f\r\n",
        "",
        "ls: cannot access 'nowhere': No such file or directory\r\n",
        "5\r\n/tmp\r\n",
    ]


def test_a_terminal_goes_on_beyond_cowries_window(honeypot: Honeypot) -> None:
    assert honeypot.typed("secret=abc", *["true"] * 15, "echo $secret")[-1] == "abc\r\n"


def test_what_cowrie_changes_of_an_answer_does_not_end_the_shell(honeypot: Honeypot) -> None:
    lines = ["x=1", "printf '  a\\n\\n'", "echo '`b`'", "echo $x"]
    assert honeypot.typed(*lines)[1:] == ["a\r\n", "b\r\n", "1\r\n"]
    assert not any("again" in told for told in honeypot.server.logged()[-4:])


def test_two_terminals_have_two_shells(honeypot: Honeypot) -> None:
    assert honeypot.typed("echo a > f", "ls f") == ["", "f\r\n"]
    assert "No such file" in honeypot.typed("true", "ls f")[1]


def test_a_command_is_run_where_nobody_has_a_terminal(honeypot: Honeypot) -> None:
    (text, _), status = honeypot.ask(command="pwd; id -un; false")
    assert (text, status) == ("/root\r\nroot\r\n", 0)  # Cowrie reports no other status
    assert honeypot.server.logged()[-1]["exit_code"] == 1
    (text, _), _ = honeypot.ask(command="true")
    assert text == ""
