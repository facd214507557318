"""Cowrie's own programs parse the logs of `shioenv serve ssh`: its outputs, and its `playlog`."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from support.needs import needed_module, needs
from support.ssh_server import serving

needed_module("starlette")

from shioenv_eval.predictors import cowrie  # noqa: E402

pytestmark = [pytest.mark.usefixtures("system"), pytest.mark.xdist_group("openai"), needs("ssh")]

READS = Path(__file__).with_name("cowrie_reads.py")


def test_its_outputs_and_its_player_take_a_visit(tmp_path: Path) -> None:
    python = cowrie.interpreter()
    (tmp_path / "brought").write_text("payload")
    with serving(tmp_path / "visits", "--passwords", "try:2") as server:
        first = server.ssh("root@127.0.0.1", "true")
        assert first.returncode == 255
        server.ssh(str(tmp_path / "brought"), "root@127.0.0.1:there", program="scp")
        server.ssh("-tt", "root@127.0.0.1", "echo sh''own")
        told = server.until("cowrie.command.input", input="echo sh''own")
        closed = server.until("cowrie.log.closed", session=told["session"])
        server.until("cowrie.session.closed", session=told["session"])
    log = tmp_path / "visits" / "log.jsonl"
    words = [python, READS, log]
    read = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    tables = read["tables"]
    assert read["ocsf"] == read["cef"] == len(log.read_text().splitlines())
    assert [row[2:5] for row in tables["auth"]][:2] == [
        [0, "root", "hunter2"],
        [1, "root", "hunter2"],
    ]
    assert "echo sh''own" in [row[-1] for row in tables["input"]]
    assert [Path(row[4]).read_text() for row in tables["downloads"]] == ["payload"]
    assert [row[3] for row in tables["ttylog"] if row[2] == closed["ttylog"]] == [closed["size"]]
    assert all(ended for _, _, ended, *_ in tables["sessions"])
    play = [python, python.with_name("playlog"), "-m", "0", closed["ttylog"]]
    assert subprocess.run(play, check=True, capture_output=True).stdout.endswith(b"shown\r\n")
