"""OpenAI's protocol over a real socket: its own client, Cowrie's requests, and hostile ones."""

from __future__ import annotations

import asyncio
import http.client
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from support.needs import needed_module

needed_module("starlette")

import openai  # noqa: E402

from shioenv.domain.behavior import Behavior  # noqa: E402
from shioenv.domain.context import Context  # noqa: E402
from shioenv.domain.runner import ScriptedRunner, State  # noqa: E402
from shioenv.live.model_shell import ModelShell  # noqa: E402
from shioenv.live.shells import Shells  # noqa: E402
from shioenv_serve.events import EventLog  # noqa: E402
from shioenv_serve.openai import OpenAIFront  # noqa: E402
from shioenv_serve.visits import Visits  # noqa: E402
from support.cowrie_history import History, executed  # noqa: E402
from support.openai_server import KEY, Server, serving  # noqa: E402
from support.waiting import wait_until  # noqa: E402

pytestmark = [pytest.mark.usefixtures("system"), pytest.mark.xdist_group("openai")]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("openai")
    keys = directory / "keys"
    keys.write_text(f"{KEY}\nanother-key\n")
    with serving(directory, "--key-file", str(keys), "--rate", "100000") as made:
        yield made


def chat(client: openai.OpenAI, messages: Sequence[Any], **options: Any) -> Any:
    given = {"model": "sandbox", "messages": list(messages), **options}
    return client.chat.completions.create(**given)


def typed(client: openai.OpenAI, history: History, *lines: str) -> list[str]:
    shown = []
    for line in lines:
        answer = chat(client, history.messages(line), max_tokens=500, temperature=0.7)
        shown.append(answer.choices[0].message.content)
        history.answered(shown[-1])
    return shown


def test_its_client_is_answered_with_what_the_shell_prints(server: Server) -> None:
    answer = chat(server.client(), History().messages("seq 600; printf '\\377\\t`a` \\n'"))
    text = "".join(f"{n}\n" for n in range(1, 601)) + "\ufffd\t`a` \n"
    assert answer.choices[0].message.content == text
    assert (answer.object, answer.choices[0].finish_reason) == ("chat.completion", "stop")
    assert answer.choices[0].message.refusal is None
    assert answer.usage.completion_tokens == len(text.encode())
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + len(text.encode())


def test_an_output_that_was_cut_says_so(server: Server) -> None:
    answer = chat(server.client(), executed("yes | head -c 70000"))
    assert answer.choices[0].finish_reason == "length"
    assert len(answer.choices[0].message.content) == 65_536


def test_its_client_is_given_a_stream(server: Server) -> None:
    usual = list(chat(server.client(), executed("echo a; echo b"), stream=True))
    assert [chunk.choices[0].delta.content for chunk in usual] == ["a\nb\n", None]
    assert [chunk.choices[0].finish_reason for chunk in usual] == [None, "stop"]
    told = {"include_usage": True}
    *_, last = chat(server.client(), executed("echo a"), stream=True, stream_options=told)
    assert (last.choices, last.usage.completion_tokens) == ([], 2)


def test_its_models_are_listed(server: Server) -> None:
    client = server.client()
    assert [model.id for model in client.models.list()] == ["sandbox"]
    assert client.models.retrieve("sandbox").owned_by == "shioenv"
    with pytest.raises(openai.NotFoundError, match="gpt-4o"):
        client.models.retrieve("gpt-4o")


def test_a_visitor_of_cowries_has_one_shell(server: Server) -> None:
    lines = ["cd /tmp", "x=1", *["true"] * 12, "touch f; ls; echo $x"]
    assert typed(server.client(), History(), *lines)[-1] == "f\n1\n"


@pytest.mark.parametrize("key", ["wrong", "a-ke", "a-key-", "é"])
def test_a_wrong_key_is_refused(server: Server, key: str) -> None:
    status, said = server.post(b"{}", Authorization=f"Bearer {key}")
    assert (status, said["error"]["code"]) == (401, "invalid_api_key")


def test_no_key_is_refused(server: Server) -> None:
    for header in ("", "Bearer", f"Basic {KEY}"):
        assert server.post(b"{}", Authorization=header)[0] == 401
    with pytest.raises(openai.AuthenticationError):
        server.client("wrong").models.list()


def body(**fields: Any) -> bytes:
    usual = {"model": "sandbox", "messages": [{"role": "user", "content": "true"}]}
    return json.dumps({**usual, **fields}).encode()


def message(content: object, role: str = "user") -> bytes:
    return body(messages=[{"role": role, "content": content}])


WRONG = {
    "nothing": b"",
    "no JSON": b"ls -la",
    "cut": body()[:-5],
    "no object": b"[]",
    "no messages": b'{"model": "sandbox"}',
    "empty messages": body(messages=[]),
    "too many messages": body(messages=[{"role": "user", "content": "true"}] * 2049),
    "messages of another type": body(messages="ls"),
    "a message of another type": body(messages=["ls"]),
    "content of another type": message(5),
    "an image": message([{"type": "image_url", "image_url": {"url": "http://x/"}}]),
    "a role that is none": message("ls", "tool"),
    "the assistant last": message("ls", "assistant"),
    "the system alone": message("Be a shell.", "system"),
    "two answers": body(n=2),
    "no answers": body(n=0),
    "stream of another type": body(stream="yes"),
    "deep": b"[" * 100_000,
    "deep inside": b'{"model": "sandbox", "messages": ' + b'{"a":' * 50_000,
    "no UTF-8": b'{"model": "sandbox", "messages": [{"role": "user", "content": "\xff"}]}',
    "a lone surrogate": message("\ud800"),
    "NUL": message("echo a\0b"),
    "a long line": message("x" * 140_000),
    "a large number": body(n=10**400),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_request_is_an_error_in_its_form(server: Server, name: str) -> None:
    status, said = server.post(WRONG[name])
    assert status == 400, said
    assert said["error"].keys() == {"message", "type", "param", "code"}
    assert said["error"]["type"] == "invalid_request_error"
    assert said["error"]["message"]


def test_an_error_says_where_it_is(server: Server) -> None:
    said = server.post(message(5))[1]["error"]
    assert said["param"] == "messages[0].content"
    assert "expected str or array or null, got int" in said["message"]


@pytest.mark.parametrize("line", ["echo '\x1b[2J\x07\x7f'", "echo '\r\n'", "echo '\u202e'", "  "])
def test_odd_characters_are_run_as_they_are(server: Server, line: str) -> None:
    status, said = server.post(message(line))
    assert status == 200
    assert server.logged()[-1]["input"] == line
    shown = said["choices"][0]["message"]["content"]
    assert shown.rstrip("\n") == line.strip().removeprefix("echo '").removesuffix("'").rstrip("\n")


def test_a_large_body_is_refused_before_it_is_read(server: Server) -> None:
    status, said = server.post(b" " * (1 << 20) + body())
    assert (status, said["error"]["type"]) == (413, "invalid_request_error")
    with socket.create_connection(("127.0.0.1", server.port), 60) as raw:
        raw.sendall(HEAD + b"Content-Length: 10000000\r\n\r\n{")
        assert answered(raw).startswith(b"HTTP/1.1 413")
    with socket.create_connection(("127.0.0.1", server.port), 60) as raw:
        raw.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        with suppress(OSError):  # it may have closed the connection already
            for _ in range(10):
                raw.sendall(b"100000\r\n" + b" " * 0x100000 + b"\r\n")
        with suppress(ConnectionResetError):
            assert answered(raw)[:12] in (b"HTTP/1.1 413", b"")


HEAD = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
    b"Authorization: Bearer a-key\r\nContent-Type: application/json\r\n"
)

HALF = {
    "nothing at all": b"",
    "half a head": HEAD,
    "half a body": HEAD + b"Content-Length: 100\r\n\r\n{",
    "half a chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{",
}


def answered(raw: socket.socket) -> bytes:
    data = b""
    while piece := raw.recv(65536):
        data += piece
    return data


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that waits for half a second until a request is complete."""
    with serving(tmp_path_factory.mktemp("impatient"), request_seconds=0.5) as made:
        yield made


@pytest.mark.parametrize("name", HALF)
def test_what_does_not_come_whole_is_given_up(impatient: Server, name: str) -> None:
    with socket.create_connection(("127.0.0.1", impatient.port), 60) as raw:
        raw.sendall(HALF[name])
        head, _, said = answered(raw).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 408")
    assert json.loads(said)["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    "sent",
    [
        b"GARBAGE\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"1" * 18 + b"\r\n{",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n" + b"f" * 20 + b"\r\n",
        HEAD + b"Content-Length: -1\r\n\r\n{",
    ],
    ids=["garbage", "TLS", "a large chunk", "a second chunk", "a negative length"],
)
def test_what_is_no_http_is_refused_in_its_form(server: Server, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port), 60) as raw:
        raw.sendall(sent)
        raw.shutdown(socket.SHUT_WR)
        head, _, said = answered(raw).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400")
    assert json.loads(said)["error"]["message"] == "this is not an HTTP request"


@pytest.mark.parametrize(
    "sent",
    [
        HEAD + b"X: " + b"x" * 20_000,
        HEAD + b"X: " + b"x" * 20_000 + b"\r\n\r\n",
        HEAD + b"X: " + b" " * 20_000 + b"x\r\n\r\n",
        b"GET /nowhere" + b"x" * 17_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /nowhere HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 3000 + b"\r\n",
    ],
    ids=["no end", "one field", "blanks", "a path", "many fields"],
)
@pytest.mark.parametrize("pieces", [1, 3])
def test_a_long_head_is_refused_in_whatever_pieces_it_comes(
    server: Server, sent: bytes, pieces: int
) -> None:
    with socket.create_connection(("127.0.0.1", server.port), 60) as raw:
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
        size = len(sent) // pieces
        with suppress(OSError):  # it may have closed the connection already
            for at in range(0, len(sent), size):
                raw.sendall(sent[at : at + size])
            raw.shutdown(socket.SHUT_WR)
        with suppress(ConnectionResetError):  # by what it had not read yet
            head, _, said = answered(raw).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 400")
            assert json.loads(said)["error"]["message"] == "the head exceeds 16,384 bytes"


def test_a_head_that_is_just_short_enough_is_answered(server: Server) -> None:
    begin = b"GET /nowhere HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX: "
    for length, status in ((16_384, b"404"), (16_385, b"400")):
        with socket.create_connection(("127.0.0.1", server.port), 60) as raw:
            raw.sendall(begin + b"x" * (length - len(begin) - 4) + b"\r\n\r\n")
            assert answered(raw).startswith(b"HTTP/1.1 " + status)


@pytest.mark.parametrize("size", [b"100010", b"f" * 15, b"7" + b"f" * 15])
def test_a_chunk_that_is_larger_than_a_body_is_refused_at_once(server: Server, size: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port), 60) as raw:
        raw.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + size + b"\r\n{")
        assert answered(raw).startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/v1/chat/completions", 405), ("POST", "/v1/models", 405), ("GET", "/", 404)],
)
def test_other_paths_are_errors_in_its_form(
    server: Server, method: str, path: str, status: int
) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request(method, path)
    answer = connection.getresponse()
    assert answer.status == status
    assert json.loads(answer.read())["error"]["code"] == "unknown_url"
    connection.close()


def test_one_connection_too_many_is_refused(server: Server) -> None:
    held: list[socket.socket] = []
    try:
        said = b""
        while not said and len(held) < 200:
            held.append(socket.create_connection(("127.0.0.1", server.port), 60))
            held[-1].setblocking(False)
            if len(held) > 80:
                held[-1].setblocking(True)
                said = answered(held[-1])
        assert said.startswith(b"HTTP/1.1 503")
    finally:
        for raw in held:
            raw.close()
    assert server.client().models.list()


def test_fifty_visitors_at_once_see_their_own_alone(server: Server) -> None:
    client = server.client()

    def visit(number: int) -> list[str]:
        lines = ["cd /tmp", f"echo sentinel{number} >> f; true", *["true"] * 7, "cat f"]
        return typed(client, History(), *lines)

    with ThreadPoolExecutor(50) as threads:
        shown = list(threads.map(visit, range(50)))
    assert [lines[-1] for lines in shown] == [f"sentinel{number}\n" for number in range(50)]
    told = [each for each in server.logged() if each["input"] == "cat f"]
    assert sorted(each["output"] for each in told) == sorted(lines[-1] for lines in shown)


def test_the_log_has_a_line_for_each(server: Server) -> None:
    typed(server.client(), History(), "cd /tmp", "echo a > f", "printf '\\377'; false")
    moved, made, printed = server.logged()[-3:]
    assert len({each["session"] for each in (moved, made, printed)}) == 1
    assert ["=", "/cwd", "/tmp"] in moved["context_patch"]
    assert made["context_patch"][0][:2] == ["a", "/fs/~1tmp~1f"]
    assert (printed["exit_code"], printed["output_b64"]) == (1, "/w==")
    assert printed["runner"] == "machine"
    assert 0 < printed["latency"] < 60
    assert "confidence" not in printed


def test_the_log_has_the_lines_that_fail(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        for messages in (History().messages("a\0b"), executed("a\0b")):
            with pytest.raises(openai.BadRequestError):
                chat(server.client(), messages)
        server.process.send_signal(signal.SIGTERM)
        server.process.communicate(timeout=60)
        events = [json.loads(line) for line in server.log.read_text().splitlines()]
    order = ["cowrie.session.connect", "cowrie.command.input", "shioenv.unanswered"]
    order.append("cowrie.session.closed")
    sessions = dict.fromkeys(event["session"] for event in events)
    assert len(sessions) == 2
    for session in sessions:
        told = [event for event in events if event["session"] == session]
        assert [event["eventid"] for event in told] == order
        assert [event.get("input") for event in told] == [None, "a\0b", "a\0b", None]
        assert "NUL" in told[2]["reason"]


def test_the_log_tells_a_visit_from_its_beginning_to_its_end(tmp_path: Path) -> None:
    with serving(tmp_path, "--model", "default") as server:
        chat(server.client(), History().messages("pwd"), model="default")
        chat(server.client(), executed("ls"), model="default")
        server.process.send_signal(signal.SIGTERM)
        server.process.communicate(timeout=60)
        events = [json.loads(line) for line in server.log.read_text().splitlines()]
    order = [
        "cowrie.session.connect", "cowrie.command.input", "shioenv.command",
        "cowrie.session.closed",
    ]  # fmt: skip
    sessions = dict.fromkeys(event["session"] for event in events)
    assert len(sessions) == 2
    for session in sessions:
        assert [event["eventid"] for event in events if event["session"] == session] == order
    assert {event["protocol"] for event in events} == {"openai"}
    assert {event["src_ip"] for event in events} == {"127.0.0.1"}


def test_a_hybrid_says_who_answered(tmp_path: Path) -> None:
    with serving(tmp_path, "--model", "default", "--machine-below", "0.9") as server:
        client, history = server.client(), History()
        for line in ("cd /tmp", "x=$SRANDOM; echo $x > f", "pwd", "wc -w f"):
            answer = chat(client, history.messages(line), model="default")
            history.answered(answer.choices[0].message.content)
        assert answer.choices[0].message.content == "1 f\n"
        told = server.logged()
        assert {"model", "machine"} == {each["runner"] for each in told}
        for each in told:
            assert (each.get("confidence", 0) >= 0.9) == (each["runner"] == "model")


class Scripted(Shells):
    """Shells of a runner that declines every input outside its table."""

    def __init__(self) -> None:
        runner = ScriptedRunner(table={"pwd": Behavior(0, b"/\n")})
        start = State(cwd="/", context=Context({"cwd": "/", "fs": {}, "env": {}}))
        self.open = lambda: ModelShell(runner, start)  # type: ignore[method-assign]

    def make_ready(self) -> None:
        """Nothing is opened."""

    def close(self) -> None:
        """Nothing is open."""


def test_what_a_runner_declines_is_a_refusal(tmp_path: Path) -> None:
    async def answered_to(line: str) -> tuple[Any, Any]:
        with EventLog(tmp_path / "log", "box", print) as log:
            front = OpenAIFront(Visits(Scripted(), 4, 900.0), "sandbox", rate=9, log=log)
            sent: list[Any] = []

            async def receive() -> Any:
                return {"type": "http.request", "body": message(line), "more_body": False}

            async def send(event: Any) -> None:
                sent.append(event)

            scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions"}
            await front.application()({**scope, "headers": [], "query_string": b""}, receive, send)
        told = map(json.loads, (tmp_path / "log").read_text().splitlines())
        logged = [event for event in told if event["eventid"].startswith("shioenv.")][-1]
        return json.loads(sent[1]["body"])["choices"][0]["message"], logged

    said, logged = asyncio.run(answered_to("ls"))
    assert (said["content"], logged["reason"]) == (None, said["refusal"])
    assert "output" not in logged
    said, logged = asyncio.run(answered_to("pwd"))
    assert (said["content"], said["refusal"]) == ("/\n", None)
    assert (logged["runner"], logged["confidence"]) == ("model", 1.0)


def test_a_log_that_cannot_be_written_is_said_once_and_serving_goes_on(tmp_path: Path) -> None:
    with serving(tmp_path, "--log", "/dev/full", "--model", "default") as server:
        for _ in range(3):
            chat(server.client(), executed("pwd"), model="default")
        server.process.send_signal(signal.SIGTERM)
        _, said = server.process.communicate(timeout=60)
    assert said.count("the log cannot be written: /dev/full: No space left on device") == 1


def test_a_minute_has_so_many_requests(tmp_path: Path) -> None:
    with serving(tmp_path, "--rate", "2", "--model", "default") as server:
        client = server.client("whatever")
        client.models.list()
        client.models.list()
        with pytest.raises(openai.RateLimitError) as refused:
            client.models.list()
        assert 0 < int(refused.value.response.headers["retry-after"]) <= 60


def below(parent: int) -> set[int]:
    """Return all descendants of a process."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            parents[int(stat.parent.name)] = int(fields[1])
    found = {parent}
    while more := {pid for pid, above in parents.items() if above in found} - found:
        found |= more
    return found - {parent}


def alive(processes: set[int]) -> set[int]:
    """Return the living processes, without zombies."""
    found = set()
    for pid in processes:
        with suppress(OSError):
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                found.add(pid)
    return found


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 0), (signal.SIGKILL, -signal.SIGKILL)],
)
def test_a_server_that_is_stopped_leaves_no_process(
    tmp_path: Path, number: signal.Signals, status: int
) -> None:
    with serving(tmp_path) as server, ThreadPoolExecutor(1) as threads:
        client = server.client()
        typed(client, History(), "sleep 1000 &", "cd /tmp")
        running = threads.submit(chat, client, executed("sleep 1; echo done"))
        wait_until(lambda: len(below(server.process.pid)) >= 4, "four processes of the server")
        started = below(server.process.pid)
        server.process.send_signal(number)
        server.process.communicate(timeout=60)
        assert server.process.returncode == status
        if number != signal.SIGKILL:
            assert not alive(started)
            assert running.exception() or running.result().choices[0].message.content == "done\n"
        # the kernel ends them once their supervisor ended
        wait_until(lambda: not alive(started), lambda: f"the end of {alive(started)}")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--host", "0.0.0.0"], "--key-file"),
        (["--machine-below", "0.5"], "--model"),
        (["--host", "192.0.2.1", "--key", "k"], "cannot listen on 192.0.2.1"),
        (["--key", "two words"], "one word"),
        (["--key-file", "/nonexistent"], "cannot be read"),
        (["--model", "nosuch"], "nosuch"),
        (["--timeout", "0"], "wall_seconds"),
        (["--cwd", "/nonexistent"], "/nonexistent"),
        (["--log", "/nonexistent/log"], "No such file or directory"),
    ],
)
def test_what_cannot_be_served_is_said(options: list[str], said: str) -> None:
    words = [sys.executable, "-m", "shioenv.cli.main", "serve", "openai", "--port", "0", *options]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode in (1, 2)
    assert said in done.stderr
