"""Start commands in sandboxes, stream their output to clients, write their input, and kill them."""

from __future__ import annotations

import asyncio
import posixpath
import select
import socket
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from math import inf
from typing import Any, Final, TypeAlias

from connectrpc.code import Code
from connectrpc.errors import ConnectError
from connectrpc.request import RequestContext
from e2b.envd.process import process_pb as pb
from protobuf import Oneof

from shioenv.bash.words import quoted
from shioenv.live.entered import parse_control_line
from shioenv.sandbox.base import Entered
from shioenv_agents.e2b.requests import CURRENT, as_connect_errors, given_user
from shioenv_agents.e2b.sandboxes import NOT_FOUND, ClientSandbox, open_pipe
from shioenv_agents.tasks.entered_machine import DRAIN_SECONDS

MOST_PROCESSES: Final = 16
"""Maximum commands of a sandbox at a time (our choice, because each uses three descriptors)."""

PIECES: Final = 16
"""Pieces of output that a stream may lag behind before the command waits (our choice)."""

PIECE: Final = 1 << 16
"""Bytes of the longest piece of output."""

PING_SECONDS: Final = 50.0
"""Seconds without output after which a stream sends a sign of life (as the SDK asks)."""

INPUT_SECONDS: Final = 60.0
"""Seconds for which input waits until the command reads it (our choice)."""

_TERMINAL: Final = "stty rows {rows} cols {columns}; exec {words}"
_RESIZE: Final = (
    'tty=$(ps -o tty= --ppid "$(pgrep -x -g "$1" script)" | head -n 1)\n'
    'exec stty -F "/dev/${tty// /}" rows "$2" cols "$3"'
)
"""Shell text that resizes the terminal of the child of `script`, the only one in its group."""


Queue: TypeAlias = asyncio.Queue[Oneof[Any, Any] | None]
"""Pieces of output; None is the end."""


class ClientProcess:
    """A command in a sandbox. A stream gets its output from the moment at which it joins."""

    def __init__(
        self, entered: Entered, pid: int, request: pb.StartRequest, writer: asyncio.StreamWriter
    ) -> None:
        """`pid` is the command's process group in the machine; `writer` writes to its input."""
        self.pid, self.request, self.writer = pid, request, writer
        self.end: pb.ProcessEvent.EndEvent | None = None
        self._entered = entered
        self._followers: set[Queue] = set()
        self._moved = time.monotonic()
        self._putting = 0
        self.task: asyncio.Task[None] | None = None  # a loop holds its tasks weakly

    def join(self) -> Queue:
        """Return a queue of all later output; None is its end. `leave` has to be called."""
        queue: Queue = asyncio.Queue(PIECES)
        self._followers.add(queue)
        return queue

    def leave(self, queue: Queue) -> None:
        """Stop following, so that the command no longer waits for this queue."""
        self._followers.discard(queue)
        while not queue.empty():
            queue.get_nowait()

    async def run(self, reader: asyncio.StreamReader) -> None:
        """Pass the output on until the command has ended; `reader` is its control channel."""
        names = ("pty", "pty") if self.request.pty is not None else ("stdout", "stderr")
        ends = (self._entered.output, self._entered.errors)
        pumps = {
            asyncio.create_task(self._pump(descriptor, name)): descriptor
            for descriptor, name in zip(ends, names, strict=True)
        }
        status = None
        try:
            status = await _status(reader)
            await self._drain(pumps)
        finally:
            for task in pumps:
                task.cancel()
            self.writer.transport.abort()
            await asyncio.gather(*pumps, return_exceptions=True)
            self.end = _end_of(status)
            for queue in list(self._followers):
                await queue.put(None)

    async def write(self, data: bytes) -> None:
        """Write to standard input, and wait until the command has room for it.

        Errors: ConnectError if the command has no input, or does not read it in time.
        """
        if not (self.request.stdin or self.request.pty is not None):
            raise ConnectError(Code.FAILED_PRECONDITION, "the command has no standard input")
        try:
            async with asyncio.timeout(INPUT_SECONDS):
                self.writer.write(data)
                await self.writer.drain()
        except TimeoutError:
            raise ConnectError(Code.DEADLINE_EXCEEDED, "the command reads no input") from None
        except (ConnectionError, RuntimeError):
            raise ConnectError(Code.FAILED_PRECONDITION, "the input is closed") from None

    def close_input(self) -> None:
        """Close standard input."""
        with suppress(OSError, RuntimeError):
            self.writer.write_eof()

    async def _pump(self, descriptor: int, name: Any) -> None:
        reader, transport = await open_pipe(descriptor)
        try:
            while piece := await reader.read(PIECE):
                self._putting += 1
                for queue in list(self._followers):
                    await queue.put(Oneof(name, piece))
                self._putting -= 1
                self._moved = time.monotonic()
        finally:
            transport.close()

    async def _drain(self, pumps: dict[asyncio.Task[None], int]) -> None:
        """Wait for the rest of the output, but not for background processes with open pipes.

        On a busy host, what the command wrote may be read long after its end.
        """
        quiet = 0
        while (pending := (await asyncio.wait(pumps, timeout=DRAIN_SECONDS))[1]) and quiet < 2:
            pipes = select.poll()
            for task in pending:
                pipes.register(pumps[task], select.POLLIN)
            is_moving = time.monotonic() - self._moved <= DRAIN_SECONDS
            quiet = 0 if self._putting or is_moving or pipes.poll(0) else quiet + 1


async def _status(reader: asyncio.StreamReader) -> int | None:
    """Return the exit status from the control channel; None for a command that was killed."""
    with suppress(ValueError, ConnectionError):
        while line := await reader.readline():
            word, number = parse_control_line(line) or ("", 0)
            if word == "status":
                return number & 0xFF
    return None


def _end_of(status: int | None) -> pb.ProcessEvent.EndEvent:
    text = "signal: killed" if status is None else f"exit status {status}"
    return pb.ProcessEvent.EndEvent(
        exit_code=-1 if status is None else status,
        exited=status is not None,
        status=text,
        error=text if status != 0 else None,
    )


class ProcessService:
    """The process service of sandboxes, with the methods that the protocol names."""

    async def list(self, request: pb.ListRequest, ctx: RequestContext[Any, Any]) -> pb.ListResponse:
        """Return the running commands that were started through this service."""
        return pb.ListResponse(
            processes=[
                pb.ProcessInfo(
                    config=each.request.process,
                    pid=each.pid,
                    tag=each.request.tag if each.request.has_field("tag") else None,
                )
                for each in CURRENT.get().processes.values()
            ]
        )

    async def start(
        self, request: pb.StartRequest, ctx: RequestContext[Any, Any]
    ) -> AsyncIterator[pb.StartResponse]:
        """Start a command and stream its output. It is killed at the deadline of the request."""
        sandbox = CURRENT.get()
        with as_connect_errors():
            process, queue = await start_process(
                sandbox, request, given_user(ctx), among=sandbox.processes, most=MOST_PROCESSES
            )
        try:
            async for event in _events(sandbox, process, queue, ctx):
                yield pb.StartResponse(event=event)
        except ConnectError as error:
            if error.code == Code.DEADLINE_EXCEEDED:
                await sandbox.seat.do(lambda machine: machine.end_group(process.pid))
            raise

    async def connect(
        self, request: pb.ConnectRequest, ctx: RequestContext[Any, Any]
    ) -> AsyncIterator[pb.ConnectResponse]:
        """Stream a running command's output from now on."""
        process = _selected(request.process)
        async for event in _events(CURRENT.get(), process, process.join(), ctx):
            yield pb.ConnectResponse(event=event)

    async def update(
        self, request: pb.UpdateRequest, ctx: RequestContext[Any, Any]
    ) -> pb.UpdateResponse:
        """Change the size of a terminal."""
        process = _selected(request.process)
        if process.request.pty is None:
            raise ConnectError(Code.INVALID_ARGUMENT, "the command has no terminal")
        rows, columns = _size(request.pty)
        numbers = (str(process.pid), str(rows), str(columns))
        done = await CURRENT.get().finish("/bin/bash", "-c", _RESIZE, "resize", *numbers)
        if done.exit_code:
            raise ConnectError(Code.INTERNAL, "the terminal cannot be resized")
        return pb.UpdateResponse()

    async def stream_input(
        self, request: AsyncIterator[pb.StreamInputRequest], ctx: RequestContext[Any, Any]
    ) -> pb.StreamInputResponse:
        """Write a stream of pieces to a command's input, in order."""
        process: ClientProcess | None = None
        async for message in request:
            match message.event:
                case Oneof(field="start", value=start):
                    process = _selected(start.process)
                case Oneof(field="data", value=data):
                    if process is None:
                        raise ConnectError(Code.INVALID_ARGUMENT, "the stream names no command")
                    await process.write(_bytes(data.input))
        return pb.StreamInputResponse()

    async def send_input(
        self, request: pb.SendInputRequest, ctx: RequestContext[Any, Any]
    ) -> pb.SendInputResponse:
        """Write to a command's input."""
        await _selected(request.process).write(_bytes(request.input))
        return pb.SendInputResponse()

    async def send_signal(
        self, request: pb.SendSignalRequest, ctx: RequestContext[Any, Any]
    ) -> pb.SendSignalResponse:
        """Send SIGTERM or SIGKILL to a command's process group."""
        sandbox, pid = CURRENT.get(), _selected(request.process).pid
        if request.signal == pb.Signal.SIGKILL:
            await sandbox.seat.do(lambda machine: machine.end_group(pid))
        elif request.signal == pb.Signal.SIGTERM:
            await sandbox.finish("/bin/bash", "-c", f"kill -TERM -- -{pid:d}")
        else:
            raise ConnectError(Code.INVALID_ARGUMENT, "the signal is neither SIGTERM nor SIGKILL")
        return pb.SendSignalResponse()

    async def close_stdin(
        self, request: pb.CloseStdinRequest, ctx: RequestContext[Any, Any]
    ) -> pb.CloseStdinResponse:
        """Close a command's input. A terminal's input ends by Ctrl-D."""
        _selected(request.process).close_input()
        return pb.CloseStdinResponse()


async def start_process(
    sandbox: ClientSandbox,
    request: pb.StartRequest,
    user: str | None,
    *,
    among: dict[int, ClientProcess],
    most: int,
) -> tuple[ClientProcess, Queue]:
    """Start a command and add it to `among`, which may hold at most `most` commands.

    Return it with a queue of its output, for which `leave` has to be called. Errors: ConnectError,
    SandboxError.
    """
    if len(among) >= most:
        raise ConnectError(Code.RESOURCE_EXHAUSTED, f"{most} are running, which is the limit")
    config = request.process
    if config is None or not config.cmd:
        raise ConnectError(Code.INVALID_ARGUMENT, "the request names no program")
    words = [config.cmd, *config.args]
    if request.pty is not None:
        rows, columns = _size(request.pty)
        text = _TERMINAL.format(rows=rows, columns=columns, words=" ".join(map(quoted, words)))
        words = ["/usr/bin/script", "-q", "-e", "-f", "-c", text, "/dev/null"]
    elif not request.has_field("stdin"):
        request.stdin = True  # the protocol's default
    command = replace(
        sandbox.command(*words, user=user, fed=request.stdin or request.pty is not None),
        cwd=posixpath.join(sandbox.home, config.cwd),
        env={**sandbox.asked.env_vars, **config.envs},
    )
    for name in command.env:
        if not name or "=" in name:
            raise ConnectError(Code.INVALID_ARGUMENT, f"{name!r:.80} is no variable's name")
    entered, pid = await sandbox.enter(command)
    reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=entered.talk))
    process = ClientProcess(entered, pid, request, writer)
    queue = process.join()
    among[process.pid] = process
    process.task = asyncio.create_task(process.run(reader))
    process.task.add_done_callback(lambda _: among.pop(process.pid))
    return process, queue


async def outputs(
    queue: Queue, ctx: RequestContext[Any, Any]
) -> AsyncIterator[Oneof[Any, Any] | None]:
    """Yield pieces of output until the end, and None as a sign of life while there are none.

    Errors: ConnectError at the deadline of the request.
    """
    while True:
        left = ctx.timeout_ms
        try:
            async with asyncio.timeout(min(PING_SECONDS, inf if left is None else left / 1e3)):
                output = await queue.get()
        except TimeoutError:
            if left is not None and left <= PING_SECONDS * 1e3:
                raise ConnectError(Code.DEADLINE_EXCEEDED, "the time is over") from None
            yield None
            continue
        if output is None:
            return
        yield output


async def _events(
    sandbox: ClientSandbox, process: ClientProcess, queue: Queue, ctx: RequestContext[Any, Any]
) -> AsyncIterator[pb.ProcessEvent]:
    """Yield a command's events until its end. Errors: those of `outputs`."""
    try:
        yield pb.ProcessEvent(event=Oneof("start", pb.ProcessEvent.StartEvent(pid=process.pid)))
        async for output in outputs(queue, ctx):
            if output is None:
                yield pb.ProcessEvent(event=Oneof("keepalive", pb.ProcessEvent.KeepAlive()))
            else:
                data = pb.ProcessEvent.DataEvent(output=output)
                yield pb.ProcessEvent(event=Oneof("data", data))
        if sandbox.state == "ended":
            raise ConnectError(Code.UNAVAILABLE, NOT_FOUND)
        assert process.end is not None
        yield pb.ProcessEvent(event=Oneof("end", process.end))
    finally:
        process.leave(queue)


def _selected(selector: pb.ProcessSelector | None) -> ClientProcess:
    """Return the running command that a request selects. Errors: ConnectError."""
    processes = CURRENT.get().processes
    match selector.selector if selector is not None else None:
        case Oneof(field="pid", value=pid) if pid in processes:
            return processes[pid]
        case Oneof(field="tag", value=tag):
            for each in processes.values():
                if each.request.tag == tag:
                    return each
    raise ConnectError(Code.NOT_FOUND, "no such command runs")


def _size(terminal: pb.PTY | None) -> tuple[int, int]:
    size = terminal.size if terminal is not None else None
    if size is None or not (0 < size.rows < 1 << 16 and 0 < size.cols < 1 << 16):
        raise ConnectError(Code.INVALID_ARGUMENT, "the size of a terminal is out of range")
    return size.rows, size.cols


def _bytes(given: pb.ProcessInput | None) -> bytes:
    return given.input.value if given is not None and given.input is not None else b""
