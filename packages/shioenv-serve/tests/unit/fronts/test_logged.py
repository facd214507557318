"""Logs of servers, parsed again, and recordings, replayed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shioenv.domain.behavior import Behavior
from shioenv.domain.context import Context
from shioenv.domain.patch import ContextPatch
from shioenv.domain.runner import ScriptedRunner, State
from shioenv.errors import LogError
from shioenv.live.model_shell import ModelShell
from shioenv.sandbox.base import Request
from shioenv_serve.cli.replaying import Harmless, compared, play_visit, read_asciicast
from shioenv_serve.events import EventLog, origin
from shioenv_serve.ssh.visitor_channel import LONGEST_RECORDING, ChannelRecording
from shioenv_serve.visit_log import LoggedLine, LoggedVisit, RepeatedLine, read_visits, repeated


def log_of(tmp_path: Path) -> Path:
    log = EventLog(tmp_path / "log.jsonl", "box", print)
    where = origin(("1.2.3.4", 5), ("6.7.8.9", 22))
    log.tell("cowrie.session.connect", where)
    log.tell("cowrie.login.success", where, username="eve", password="x")
    log.tell("cowrie.command.input", where, input="touch a", channel=1)
    patch = ContextPatch.from_json('[["a","/fs/root~1a",{"size":0,"time":"19:43"}]]')
    log.did(where, "touch a", Behavior(0, b"", patch), 0.1, "machine", channel=1)
    log.tell("cowrie.log.closed", where, ttylog="x", cast="/elsewhere/s-1.cast", duration_ms=1)
    log.close()
    with (tmp_path / "log.jsonl").open("a") as file:
        file.write('{"eventid": "cowrie.comm\n[1]\n{"eventid": 3, "session": "x"}\n')
    return tmp_path


def test_a_visit_is_read_as_it_was_logged(tmp_path: Path) -> None:
    (visit,) = read_visits(log_of(tmp_path)).values()
    assert (visit.address, visit.user, visit.typed) == ("1.2.3.4", "eve", 1)
    assert visit.recordings == [str(tmp_path / "recordings" / "s-1.cast")]
    (line,) = visit.lines
    assert line.fields["context_patch"][0][:2] == ["a", "/fs/root~1a"]
    assert read_visits(tmp_path / "log.jsonl").keys() == {visit.session}


@pytest.mark.parametrize("name", ["missing", "recordings"])
def test_a_log_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "recordings").mkdir()
    with pytest.raises(LogError, match=name):
        read_visits(tmp_path / name)


def again(fields: dict[str, object], behavior: Behavior) -> tuple[str, ...]:
    return repeated_line(fields, behavior).differs


def repeated_line(fields: dict[str, object], behavior: Behavior) -> RepeatedLine:
    start = State(cwd="/", context=Context({"cwd": "/", "fs": {}, "env": {}}))
    shell = ModelShell(ScriptedRunner(table={"x": behavior}), start)
    (line,) = repeated([LoggedLine("x", fields)], shell)
    return line


def test_what_a_line_does_again_is_compared_as_far_as_the_log_tells_it() -> None:
    file = '{"perms":"-rw-r--r--","size":SIZE,"time":"TIME"}'
    made = ContextPatch.from_json(
        f'[["a","/fs/f",{file.replace("SIZE", "1").replace("TIME", "10:00")}]]'
    )
    later = json.loads(file.replace("SIZE", "1").replace("TIME", "11:00"))
    larger = json.loads(file.replace("SIZE", "2").replace("TIME", "10:00"))
    did = Behavior(1, b"out\n", made)
    fields = {"exit_code": 1, "output": "out\n", "context_patch": [["a", "/fs/f", later]]}
    assert again(fields, did) == ()
    assert again({**fields, "exit_code": None, "output": None}, did) == ()
    assert again({**fields, "output": "o…"}, did) == ("output",)
    assert again({**fields, "output": "o", "cut": ["output"]}, did) == ()
    assert again({**fields, "output": "o", "output_b64": "bw==", "cut": ["output_b64"]}, did) == ()
    assert again({**fields, "context_patch": [], "cut": ["context_patch"]}, did) == ()
    assert again({**fields, "output": "o", "cut": 7}, did) == ("output",)
    assert again({**fields, "exit_code": 0}, did) == ("exit_code",)
    assert again({**fields, "output": "other"}, did) == ("output",)
    assert again({**fields, "context_patch": [["a", "/fs/f", larger]]}, did) == ("files",)
    assert again({**fields, "context_patch": "[["}, did) == ("files",)


@pytest.mark.parametrize("path", ["/fs/root~1.bash_history", "/fs/.bash_history/size"])
def test_the_history_that_a_terminal_writes_at_its_end_is_not_compared(path: str) -> None:
    fields = {"output": None, "context_patch": [["a", path, {"size": 46}]]}
    assert again({**fields, "exit_code": 1}, Behavior(1, b"")) == ()
    assert again({**fields, "exit_code": None}, Behavior(1, b"")) == ("files",)
    assert again({**fields, "exit_code": 1, "output": ""}, Behavior(1, b"")) == ("files",)
    named = [["a", path.replace("_history", "_histories"), {"size": 46}]]
    assert again({**fields, "exit_code": 1, "context_patch": named}, Behavior(1, b"")) == ("files",)


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({"exit_code": 1, "output": "a\n"}, "same exit code, output, changes"),
        ({"exit_code": None, "output": None}, "same changes; exit code, output not in the log"),
        (
            {"exit_code": 1, "output": "a", "cut": ["output", "output_b64"]},
            "same exit code, changes; output not whole in the log",
        ),
        (
            {"exit_code": 0, "output": None},
            "different exit code; same changes; output not in the log",
        ),
        (
            {"exit_code": None, "output": None, "cut": ["context_patch"]},
            "exit code, output, changes not whole in the log",
        ),
    ],
)
def test_a_line_is_the_same_only_as_far_as_the_log_has_it(
    fields: dict[str, object], shown: str
) -> None:
    line = repeated_line(fields, Behavior(1, b"a\n"))
    first, last = compared([line])
    assert first == f"x: {shown}"
    assert last == f"no difference in {int(not line.differs)} of 1 line"


def test_a_line_that_cannot_be_executed_is_told_and_the_others_are() -> None:
    class Refusing(ScriptedRunner):
        def run(self, shell_input: str, state: State | None = None) -> Behavior:
            Request(shell_input).argument()
            return super().run(shell_input, state)

    start = State(cwd="/", context=Context({"cwd": "/", "fs": {}, "env": {}}))
    runner = Refusing(table={"x": Behavior(0, b""), "cut": Behavior(0, b"")})
    lines = [
        LoggedLine("a\0b", {"exit_code": 0}),
        LoggedLine("cut", {"exit_code": 3, "cut": ["input"]}),
        LoggedLine("x", {"exit_code": 1}),
    ]
    first, second, third = repeated(lines, ModelShell(runner, start))
    assert "NUL" in (first.refusal or "")
    assert second.refusal == "the log contains only its beginning"
    assert (first.behavior, second.behavior, first.to_json()["again"]) == (None, None, None)
    assert (third.differs, third.refusal) == (("exit_code",), None)


@pytest.mark.parametrize(("output", "refusal"), [("", "its input was not kept"), (None, None)])
def test_a_transfer_is_not_repeated_but_a_typed_scp_is(
    output: str | None, refusal: str | None
) -> None:
    start = State(cwd="/", context=Context({"cwd": "/", "fs": {}, "env": {}}))
    shell = ModelShell(ScriptedRunner(table={"scp -t x": Behavior(0, b"")}), start)
    (line,) = repeated([LoggedLine("scp -t x", {"output": output}, "1")], shell)
    assert line.refusal == refusal


@pytest.mark.parametrize(
    ("command", "output", "shown"),
    [
        (
            "/usr/lib/openssh/sftp-server",
            [b"\0\0\0\x05\x02\0\0\0\x03", b"-rw-r--r-- secret"],
            "  the protocol of sftp-server is not shown",
        ),
        (
            "scp -f /etc/passwd",
            [b"C0644 7 passwd\n", b"secret\n\0"],
            "  the protocol of scp is not shown",
        ),
        ("scp", [b"usage: scp [-r] source target\r\n"], "usage: scp [-r] source target"),
        ("printf 'a\\0b\\n'", [b"a\0b\r\n"], "ab"),
    ],
)
def test_the_protocol_of_a_transfer_is_not_shown(
    tmp_path: Path, command: str, output: list[bytes], shown: str
) -> None:
    with ChannelRecording(tmp_path, "s-1", command, (24, 80)) as recording:
        for data in output:
            recording.shown(data)
    visit = LoggedVisit("s", recordings=[str(recording.cast_file)])
    first, *rest = play_visit(visit, 1, 0, plain=True).parts
    assert first == f"$ {command}"
    assert [line for line in rest if line] == [shown]


@pytest.mark.parametrize("name", ["a\0b", "\ud800"])
def test_a_recording_that_no_file_can_be_is_passed_over(tmp_path: Path, name: str) -> None:
    event = {"eventid": "cowrie.log.closed", "session": "a", "cast": name}
    (tmp_path / "log").write_text(json.dumps(event) + "\n")
    assert read_visits(tmp_path / "log")["a"].recordings == []


# ---- recordings ----


def test_a_recording_is_a_cast_and_a_ttylog(tmp_path: Path) -> None:
    with ChannelRecording(tmp_path, "s-1", "id", (24, 80)) as made:
        made.shown(b"a\r\n")
        made.typed(b"\xff")
        made.did("id", Behavior(0, b""))
    kinds = [(event.kind, event.text) for event in read_asciicast(made.cast_file)][:3]
    assert kinds == [("title", "id"), ("o", "a\r\n"), ("i", "\ufffd")]
    assert (made.size, made.whole) == (len(b"ida\r\n\xff"), True)


def test_a_recording_ends_at_its_bound(tmp_path: Path) -> None:
    with ChannelRecording(tmp_path, "s-1", None, (24, 80)) as made:
        made.shown(b"x" * (LONGEST_RECORDING - 1))
        made.shown(b"yy")
        made.typed(b"z")
    assert not made.whole
    assert made.file.stat().st_size < LONGEST_RECORDING + 100


def test_a_recording_ends_at_its_bound_where_markers_reach_it(tmp_path: Path) -> None:
    output = b"x" * (LONGEST_RECORDING // 4)
    with ChannelRecording(tmp_path, "s-1", None, (24, 80)) as made:
        for _ in range(8):
            made.did("cat", Behavior(0, output))
        made.shown(b"z")
    assert not made.whole
    assert made.size == 0
    assert made.cast_file.stat().st_size < LONGEST_RECORDING + 1000


@pytest.mark.parametrize(
    ("texts", "left"),
    [
        (["\x1b[31mred\x1b[0m\r\n"], "\x1b[31mred\x1b[0m\r\n"),
        (["\x1b[2J\x1b[1;1H\x1b[?1049h\x1b7\x1b8"], "\x1b[2J\x1b[1;1H\x1b[?1049h\x1b7\x1b8"),
        (["\x1b]0;title\x07a\x1b]52;c;ZXZpbA==\x1b\\b"], "ab"),
        (["a\x1b]52;c;ZX", "ZpbA==\x07b"], "ab"),
        (["\x1b[6", "n\x1b[c\x1b[5nx"], "x"),
        (["\x1bP$q q\x1b\\x\x1b(0\x1bc"], "x"),
        (["\x9b6n\x05\x0e"], "6n"),
        (["\x1b[?1000h\x1b[?9001h"], ""),
        (["\x1b\x00]0;evil\x07"], "]0;evil\x07"),
        (["\x1b\x1b[9y]52;c;ZXZpbA==\x07"], "]52;c;ZXZpbA==\x07"),
        (["\x1b\x7f[6n"], "[6n"),
        (["\x1b\n]0;evil\x07"], "\n]0;evil\x07"),
        (["\x1b", "\x1b", "\x00]0;evil"], "]0;evil"),
    ],
)
def test_what_a_terminal_would_obey_is_left_out(texts: list[str], left: str) -> None:
    screen = Harmless()
    assert "".join(map(screen.of, texts)) == left


PIECE = st.sampled_from(
    [*"\x1b\x00\x7f\x9b\n\x07[]P(7c\\", "0;", "52;c;", "6n", "9y", "31m", "?25h", "\x1b[31m"]
)


@given(st.lists(st.lists(PIECE, max_size=8).map("".join), max_size=4))
def test_each_escape_that_is_left_begins_a_harmless_sequence(texts: list[str]) -> None:
    screen = Harmless()
    left = "".join(map(screen.of, texts))
    harmless = re.compile(r"\x1b(?:\[(?:[0-9;]*[A-HJKLMPSTXdfmr@]|\?(?:25|1049|2004)[hl])|[78M])")
    for escape in re.finditer("\x1b", left):
        assert harmless.match(left, escape.start()), (texts, left)
    assert not re.search("[\x80-\x9f\x00-\x06\x0e-\x1a\x1c-\x1f\x7f]", left)


def test_a_recording_that_was_cut_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    (tmp_path / "x").write_text('{"version": 2}\n[0.1, "o", "a"]\n[0.2, "o"\n[[[\n7\n')
    with (tmp_path / "x").open("a") as file:
        file.write(f'[{"1" * 400}, "o", "b"]\n{"[" * 100_000}\n')
    assert [event.text for event in read_asciicast(tmp_path / "x")] == ["a"]
