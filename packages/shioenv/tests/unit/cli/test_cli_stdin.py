"""Inputs on standard input: each line gets one line of JSON, whatever it holds."""

from __future__ import annotations

import base64
import json
from dataclasses import asdict
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from shioenv.cli import shared, stdin
from shioenv.cli.commands import CommandGroup
from shioenv.errors import Abstained
from shioenv.sandbox.base import LONGEST_INPUT

app = typer.Typer(cls=CommandGroup)


@app.callback()
def _group() -> None:
    """Make a group, which turns errors into messages."""


@shared.command(app, "shioenv echo -")
def echo() -> shared.Printout:
    """Answer each line with its parts."""

    def answer(line: stdin.GivenInput) -> dict[str, Any]:
        if line.input == "unsure":
            raise Abstained("no idea")
        return asdict(line)

    return stdin.answer_lines(answer)


def answered(content: bytes) -> tuple[int, list[dict[str, Any]]]:
    done = CliRunner().invoke(app, ["echo"], input=content)
    assert done.stderr == ""
    return done.exit_code, [json.loads(line) for line in done.stdout.splitlines()]


def one(content: bytes) -> dict[str, Any]:
    """Return the only answer, with the exit status as `status`."""
    status, (found,) = answered(content)
    return {"status": status, **found}


def test_a_line_is_text_or_an_object() -> None:
    status, found = answered(
        b"\xef\xbb\xbfls -l\r\n\n{ ls; }\n"
        b'{"input": "pwd", "cwd": "/tmp", "history": ["cd /", "x=1"], "id": 5, "kind": "any"}\n'
        b"last"
    )
    assert status == 0
    assert [each["input"] for each in found] == ["ls -l", "", "{ ls; }", "pwd", "last"]
    assert found[3] == {
        "id": 5,
        "input": "pwd",
        "cwd": "/tmp",
        "history": ["cd /", "x=1"],
    }


def test_no_lines_no_answers() -> None:
    assert answered(b"") == (0, [])


def test_a_record_starts_in_its_directory() -> None:
    record = {"session_id": 1, "input": "cd /tmp; ls", "cwd": "/tmp", "schema_version": 6}
    found = one(json.dumps(record).encode())
    assert (found["input"], found["cwd"], found["status"]) == ("ls", "/tmp", 0)
    typed = one(b'{"input": "cd /tmp; ls", "cwd": "/tmp"}')
    assert typed["input"] == "cd /tmp; ls"


def test_bytes_that_are_not_utf8() -> None:
    found = one(b"echo \xff\n")
    assert (found["status"], found["input"]) == (0, "echo \ufffd")
    assert base64.b64decode(found["input_b64"]) == b"echo \xff"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"input": "ls"', "expected a JSON object"),
        (b'{"input": "l\xffs"}', "not UTF-8"),
        (b'["ls"]', "got a list"),
        (b"{}", "expected text as `input`, got None"),
        (b'{"input": 7}', "expected text as `input`, got 7"),
        (b'{"input": "ls", "cwd": 7}', "`cwd`"),
        (b'{"input": "ls", "history": "pwd"}', "`history`"),
        (b'{"input": "ls", "history": [1]}', "`history`"),
        (b'{"input": "ls", "histroy": ["pwd"]}', "did you mean history?"),
        (b'{"input": "l\xef\xbf\xbd", "input_b64": "bP8="}', "input_b64 is not supported"),
        (rb'{"input": "\ud800"}', "lone surrogate"),
        (rb'{"input": "a\u0000b"}', "NUL"),
        (b"a\0b", "NUL"),
        (b'{"input": "ls", "history": ["\\u0000"]}', "NUL"),
        (b"x" * (LONGEST_INPUT + 1), "at most"),
        (b'{"input": ' + b"[" * 100_000, "nested too deeply"),
        (b"unsure", "no idea"),
    ],
)
def test_a_faulty_line_does_not_end_the_rest(line: bytes, reason: str) -> None:
    status, (before, found, after) = answered(b"first\n" + line + b"\nlast\n")
    assert status == 1
    assert (before["input"], after["input"]) == ("first", "last")
    assert found["line"] == 2
    assert reason in found["error"]
    assert found["code"].startswith("SHIO-")
    assert found.get("abstained", False) == (line == b"unsure")


def test_a_huge_line_is_refused_without_being_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdin, "LONGEST_LINE", 10)
    for end in (b"\n", b"\r\n"):
        status, found = answered(b"x" * 10 + end + b"y" * 35 + end + b"z" + end)
        assert status == 1
        assert [each.get("input") for each in found] == ["x" * 10, None, "z"]
        assert "more than 10 bytes" in found[1]["error"]
