"""paramiko at each runner of `shioenv serve ssh`: a command, fifty lines on a terminal, SFTP.

paramiko is in Cowrie's environment, which the tests of this front make.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from support.needs import needed_module, needs
from support.ssh_server import BOT, RUNNERS, serving

needed_module("starlette")

from shioenv_eval.predictors import cowrie  # noqa: E402

pytestmark = [pytest.mark.usefixtures("system"), pytest.mark.xdist_group("openai"), needs("ssh")]

VISIT = Path(__file__).with_name("ssh_by_paramiko.py")


@pytest.mark.parametrize("runner", RUNNERS)
def test_paramiko_is_served(tmp_path: Path, runner: str) -> None:
    with serving(tmp_path / "visits", *RUNNERS[runner]) as server:
        words: list[str | Path] = [cowrie.interpreter(), "-I", VISIT, str(server.port)]
        done = subprocess.run(
            words, input="\n".join(BOT), capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        assert told["command"] == ["out\n", "", 4]
        assert len(told["lines"]) == len(BOT) == 50
        assert told["lines"][12].split("\r\n")[-2] == "40"
        assert told["sftp"] == [True, 76_800, 0o640, ["brought"], [], True]
        typed = server.events("cowrie.command.input")
        assert [event["input"] for event in typed][2:] == [*BOT]
