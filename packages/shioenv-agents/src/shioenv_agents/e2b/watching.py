"""Changes below a directory of a sandbox, as the kernel reports them inside."""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncIterator
from typing import Any, Final

from connectrpc.code import Code
from connectrpc.errors import ConnectError
from connectrpc.request import RequestContext
from e2b.envd.filesystem import filesystem_pb as pb
from e2b.envd.process import process_pb
from protobuf import Oneof

from shioenv_agents.e2b.process_service import ClientProcess, Queue, outputs, start_process
from shioenv_agents.e2b.requests import CURRENT, as_connect_errors, given_user, sandbox_path
from shioenv_agents.e2b.sandboxes import ClientSandbox

MOST_WATCHERS: Final = 8
"""Maximum watchers of a sandbox (our choice, because each is a process)."""

MOST_EVENTS: Final = 10_000
"""Events that wait until a client asks for them; the oldest are dropped (our choice)."""

LONGEST_EVENT: Final = 8192
"""Bytes of the longest report of the program (our choice, because a path has 4,096)."""

READY_SECONDS: Final = 30.0
"""Seconds within which a watcher has to be ready (our choice)."""

_WATCH: Final = r"""
$| = 1;
my ($top, $deep) = @ARGV;
chdir $top or do { print STDERR "$!"; exit 1 };
my $inotify = syscall 294, 0;  # inotify_init1
my %at;
sub add {
  my ($name) = @_;
  my $path = $name eq "" ? "." : $name;
  my $number = syscall 254, $inotify, $path, 0x010003c6;  # inotify_add_watch, of a directory
  if ($number < 0) { if ($name eq "") { print STDERR "$!"; exit 1 } return }
  $at{$number} = $name;
  return unless $deep;
  opendir my $directory, $path or return;
  for (readdir $directory) {
    next if $_ eq "." or $_ eq "..";
    my $below = $name eq "" ? $_ : "$name/$_";
    add($below) if -d $below and not -l $below;
  }
}
add("");
print "0 \0";
open my $events, "<&=", $inotify;
while (sysread $events, my $read, 65536) {
  while (length $read) {
    my ($number, $mask, $cookie, $length) = unpack "iIII", $read;
    my $name = unpack "Z*", substr $read, 16, $length;
    $read = substr $read, 16 + $length;
    next unless exists $at{$number} and length $name;
    $name = "$at{$number}/$name" if $at{$number} ne "";
    print "$mask $name\0";
    add($name) if $deep and $mask & 0x40000000 and $mask & 0x180;
  }
}
"""
"""Prints `0 ` when it is ready, then a mask and a name for each event; NUL ends each."""

_KINDS: Final = {
    0x100: pb.EventType.CREATE,
    0x080: pb.EventType.CREATE,  # moved here
    0x002: pb.EventType.WRITE,
    0x200: pb.EventType.REMOVE,
    0x040: pb.EventType.RENAME,  # moved away
    0x004: pb.EventType.CHMOD,
}


class Watcher:
    """A program that reports changes below a directory."""

    def __init__(self, process: ClientProcess, queue: Queue) -> None:
        self.process, self.queue = process, queue
        self.kept: deque[pb.FilesystemEvent] = deque(maxlen=MOST_EVENTS)
        self.task: asyncio.Task[None] | None = None
        self._rest = b""

    async def ready(self) -> None:
        """Wait until changes are reported. Errors: ConnectError if a path is not a directory."""
        errors = b""
        async with asyncio.timeout(READY_SECONDS):
            while (output := await self.queue.get()) is not None:
                if output.field == "stdout":
                    _, _, self._rest = output.value.partition(b"\0")
                    return
                errors += output.value[:LONGEST_EVENT]
        is_missing = b"No such file" in errors
        code = Code.NOT_FOUND if is_missing else Code.INVALID_ARGUMENT
        raise ConnectError(code, errors.decode("utf-8", "replace")[:300] or "it cannot be watched")

    def parse(self, output: Oneof[Any, Any]) -> list[pb.FilesystemEvent]:
        """Return the events in a piece of the program's output."""
        if output.field != "stdout":
            return []
        *whole, rest = (self._rest + output.value).split(b"\0")
        self._rest = rest[:LONGEST_EVENT]
        return [event for each in whole for event in _parsed(each)]

    async def keep(self) -> None:
        """Keep all events until the end."""
        while (output := await self.queue.get()) is not None:
            self.kept.extend(self.parse(output))

    def leave(self) -> None:
        """Stop reading events."""
        self.process.leave(self.queue)
        if self.task is not None:
            self.task.cancel()


def _parsed(report: bytes) -> list[pb.FilesystemEvent]:
    """Parse a report of the program, which root inside may have replaced."""
    mask, _, name = report.partition(b" ")
    if not mask.isdigit() or len(mask) > 10 or not name:
        return []
    text = name.decode("utf-8", "replace")
    kinds = [kind for bit, kind in _KINDS.items() if int(mask) & bit]
    return [pb.FilesystemEvent(name=text, type=kind) for kind in kinds]


async def _watch(request: pb.WatchDirRequest | pb.CreateWatcherRequest, ctx: Any) -> Watcher:
    """Start a watcher. Errors: ConnectError."""
    sandbox = CURRENT.get()
    words = ["-e", _WATCH, sandbox_path(sandbox, request.path), "1" if request.recursive else ""]
    config = process_pb.ProcessConfig(cmd="/usr/bin/perl", args=words)
    given = process_pb.StartRequest(process=config, stdin=False)
    with as_connect_errors():
        process, queue = await start_process(
            sandbox, given, given_user(ctx), among=sandbox.watching, most=MOST_WATCHERS
        )
    watcher = Watcher(process, queue)
    try:
        await watcher.ready()
    except BaseException:
        await _stop(sandbox, watcher)
        raise
    return watcher


async def _stop(sandbox: ClientSandbox, watcher: Watcher) -> None:
    watcher.leave()
    with as_connect_errors():
        await sandbox.seat.do(lambda machine: machine.end_group(watcher.process.pid))


class Watching:
    """The methods of the file service that report changes."""

    async def watch_dir(
        self, request: pb.WatchDirRequest, ctx: RequestContext[Any, Any]
    ) -> AsyncIterator[pb.WatchDirResponse]:
        """Stream changes until the client leaves, or its time is over."""
        sandbox, watcher = CURRENT.get(), await _watch(request, ctx)
        try:
            start = pb.WatchDirResponse.StartEvent()
            yield pb.WatchDirResponse(event=Oneof("start", start))
            async for output in outputs(watcher.queue, ctx):
                if output is None:
                    ping = pb.WatchDirResponse.KeepAlive()
                    yield pb.WatchDirResponse(event=Oneof("keepalive", ping))
                    continue
                for event in watcher.parse(output):
                    yield pb.WatchDirResponse(event=Oneof("filesystem", event))
        finally:
            await _stop(sandbox, watcher)

    async def create_watcher(
        self, request: pb.CreateWatcherRequest, ctx: RequestContext[Any, Any]
    ) -> pb.CreateWatcherResponse:
        """Start a watcher whose events are kept until the client asks for them."""
        watcher, name = await _watch(request, ctx), secrets.token_hex(16)
        CURRENT.get().watchers[name] = watcher
        watcher.task = asyncio.create_task(watcher.keep())
        return pb.CreateWatcherResponse(watcher_id=name)

    async def get_watcher_events(
        self, request: pb.GetWatcherEventsRequest, ctx: RequestContext[Any, Any]
    ) -> pb.GetWatcherEventsResponse:
        """Return the events since the last question."""
        kept = _known(request.watcher_id).kept
        events = list(kept)
        kept.clear()
        return pb.GetWatcherEventsResponse(events=events)

    async def remove_watcher(
        self, request: pb.RemoveWatcherRequest, ctx: RequestContext[Any, Any]
    ) -> pb.RemoveWatcherResponse:
        """End a watcher."""
        watcher, sandbox = _known(request.watcher_id), CURRENT.get()
        del sandbox.watchers[request.watcher_id]
        await _stop(sandbox, watcher)
        return pb.RemoveWatcherResponse()


def _known(name: str) -> Watcher:
    """Return a watcher of the present sandbox. Errors: ConnectError."""
    watcher = CURRENT.get().watchers.get(name)
    if watcher is None:
        raise ConnectError(Code.NOT_FOUND, "no such watcher")
    return watcher
