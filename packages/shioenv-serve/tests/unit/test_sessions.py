"""Inputs with histories, read from logs of honeypots."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shioenv.dataset.external import CommandList
from shioenv.dataset.importers import kind_of
from shioenv.dataset.input_lines import shipped_parser
from shioenv_serve.sessions import MOST_HISTORY, read_sessions


def typed(session: str, line: str, **fields: Any) -> str:
    return json.dumps(
        {"eventid": "cowrie.command.input", "session": session, "input": line, **fields}
    )


def read(tmp_path: Path, *lines: str) -> tuple[list[tuple[str, list[str]]], dict[int, str]]:
    """Return the inputs with their histories, and the reasons by line number."""
    log = tmp_path / "cowrie.json"
    log.write_text("".join(f"{line}\n" for line in lines))
    accepted = read_sessions(CommandList(log), shipped_parser(), ["/home/ubuntu", "/"])
    samples = [json.loads(sample) for sample in accepted.samples]
    assert {cwd for _, cwd, _, _ in samples} <= {"/home/ubuntu"}
    inputs = [(" ".join(tokens), history) for tokens, _, _, history in samples]
    return inputs, {each.line: each.reason for each in accepted.rejected}


def test_each_line_follows_those_before_it_in_its_shell(tmp_path: Path) -> None:
    inputs, rejected = read(
        tmp_path,
        '{"eventid": "cowrie.session.connect", "session": "a"}',
        typed("a", "cd /tmp"),
        typed("b", "uname"),
        '{"eventid": "cowrie.command.input", "sess',
        typed("a", "pwd"),
        typed("b", "id", channel=2),
        json.dumps({"eventid": "cowrie.command.failed", "session": "a", "input": "pwd"}),
    )
    assert inputs == [("cd /tmp", []), ("uname", []), ("pwd", ["cd /tmp"]), ("id", [])]
    assert rejected == {}


def test_a_session_starts_where_its_user_does(tmp_path: Path) -> None:
    def login(session: str, name: object) -> str:
        event = {"eventid": "cowrie.login.success", "session": session, "username": name}
        return json.dumps(event)

    log = tmp_path / "log.jsonl"
    names = ["root", "ubuntu", "admin", "../etc", 5]
    lines = [typed("none", "id 0")]
    for number, name in enumerate(names, 1):
        lines += [login(str(number), name), typed(str(number), f"id {number}")]
    log.write_text("\n".join(lines))
    there = {"/root", "/home/ubuntu", "/srv"}.__contains__

    def starts(*given: str) -> list[str]:
        commands = CommandList(log, start_directories=given)
        directories = given or ("/srv",)
        accepted = read_sessions(commands, shipped_parser(), directories, there)
        return [json.loads(sample)[1] for sample in accepted.samples]

    assert starts() == ["/srv", "/root", "/home/ubuntu", "/root", "/root", "/srv"]
    assert starts("/tmp") == ["/tmp"] * 6


def test_what_cannot_follow_is_left_out_with_its_reason(tmp_path: Path) -> None:
    inputs, rejected = read(
        tmp_path,
        typed("a", "id"),
        typed("a", ""),
        typed("a", "cat x", edited=True),
        typed("a", "id"),
        typed("b", "exit"),
        typed("b", "uname"),
        typed("c", "id"),
        typed("c", "x\0"),
        typed("c", "pwd"),
        typed("d", "\ud800"),
        typed("e", "echo aaa", cut=["input"]),
        typed("e", "id -u"),
    )
    assert inputs == [("id", []), ("exit", [])]
    assert rejected == {
        2: "empty",
        3: "filled in by history or completion, or truncated in the log",
        4: "after a skipped line",
        6: "after a line that ended its shell",
        7: "duplicate of an earlier input",
        8: "a NUL byte",
        9: "after a skipped line",
        11: "filled in by history or completion, or truncated in the log",
        12: "after a skipped line",
        10: "invalid Unicode: a JSON escape names a lone surrogate",
    }


@pytest.mark.parametrize("line", ["cat <<E", "echo 'a", "for x in 1; do", "if true"])
def test_a_line_that_ends_no_command_is_left_out_with_what_follows(
    tmp_path: Path, line: str
) -> None:
    inputs, rejected = read(tmp_path, typed("a", line), typed("a", "hello"), typed("b", "pwd"))
    assert inputs == [("pwd", [])]
    assert rejected == {1: "incomplete command", 2: "after a skipped line"}


def test_a_shell_is_left_by_its_own_commands(tmp_path: Path) -> None:
    inputs, rejected = read(
        tmp_path,
        *(typed("a", "exec 3>f"), typed("a", "echo a | exit"), typed("a", "pwd")),
        *(typed("b", "cd / && exit"), typed("b", "hostname")),
        *(typed("c", "exec sh"), typed("c", "whoami")),
    )
    assert [text for text, _ in inputs] == [
        *("exec 3>f", "echo a | exit", "pwd", "cd / && exit", "exec sh")
    ]
    assert rejected == dict.fromkeys((5, 7), "after a line that ended its shell")


def test_a_history_has_so_many_lines_and_no_more(tmp_path: Path) -> None:
    lines = [typed("a", f"echo {number}") for number in range(MOST_HISTORY + 2)]
    inputs, rejected = read(tmp_path, *lines)
    assert len(inputs[-1][1]) == MOST_HISTORY
    assert list(rejected) == [MOST_HISTORY + 2]


def test_a_log_is_told_from_a_list_of_inputs(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(typed("a", "id") + "\n")
    assert kind_of(tmp_path / "log") == "sessions"
    (tmp_path / "list").write_text('{"input": "id"}\n')
    assert kind_of(tmp_path / "list") == "commands"
