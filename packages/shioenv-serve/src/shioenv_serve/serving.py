"""Serve an ASGI application over HTTP, with limits on requests and a clean shutdown."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, NoReturn

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from shioenv.execution.process import adopt_orphans
from shioenv_serve.listener import ListenAddress, socket_url

LARGEST_BODY: Final = 1 << 20
"""Maximum bytes of a request's body; our choice: an input has 128 KiB at most."""

LARGEST_HEAD: Final = 16 << 10
"""Maximum bytes of a request's line and headers."""

LARGEST_SIZE: Final = (1 << 63) - 1
"""The largest chunk size accepted as a number; our choice."""

NO_HTTP: Final = 400, "this is not an HTTP request"
LONG_HEAD: Final = 400, f"the head exceeds {LARGEST_HEAD:,} bytes"
LARGE_BODY: Final = 413, f"the body exceeds {LARGEST_BODY:,} bytes"

MOST_CONNECTIONS: Final = 1024
"""Maximum simultaneous connections; our choice."""

REQUEST_SECONDS: Final = 10.0
"""Seconds that a client has to send a request, its body included; our choice."""

LATE: Final = f"the request was not complete within {REQUEST_SECONDS:g} s"

KEPT_SECONDS: Final = 300
"""Seconds that a connection waits for its next request; our choice.

Cowrie closes its connections after 240 seconds. A line sent while the server closes would be lost.
"""

STOP_SECONDS: Final = 10
"""Seconds that a stopping server waits for pending answers; our choice."""

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]


def detail(status: int, message: str) -> dict[str, Any]:
    """Return an error body in FastAPI's format."""
    return {"detail": message}


def serve(
    application: Application,
    listen_address: ListenAddress,
    said: Callable[[str], None],
    refusal: Callable[[int, str], dict[str, Any]] = detail,
    *,
    bounded: bool = True,
) -> None:
    """Serve an ASGI application until Ctrl-C or SIGTERM; its lifespan ends before this returns.

    `said` is called with the address once the server listens. `refusal` returns the body of an
    error in the format of the application's protocol. Without `bounded` the application itself
    limits bodies and their chunks. Errors: UsageError if the address cannot be used.
    """
    listening = listen_address.opened()
    # asyncio sets this option only on sockets that were created with an explicit protocol (TCP).
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
    said(f"running on http://{socket_url(listening)} (Ctrl-C stops it)")
    configuration = uvicorn.Config(
        Bounded(application, refusal) if bounded else application,
        http=protocol(refusal, LARGEST_BODY if bounded else LARGEST_SIZE),
        log_level="warning",
        access_log=False,
        server_header=False,
        ws_ping_timeout=None,
        timeout_keep_alive=KEPT_SECONDS,
        timeout_graceful_shutdown=STOP_SECONDS,
    )
    _Server(configuration).run([listening])


class _Server(uvicorn.Server):
    """Uvicorn's server; at shutdown it becomes the parent of the machines' orphaned processes."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Wait for pending answers, then shut the application down."""
        adopt_orphans()
        await super().shutdown(sockets)


class Bounded:
    """Wraps an ASGI application, to which it passes only complete HTTP requests within limits."""

    def __init__(
        self, application: Application, refusal: Callable[[int, str], dict[str, Any]]
    ) -> None:
        self._application, self._refusal = application, refusal

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Handle one ASGI request."""
        if scope["type"] != "http":
            await self._until_closed(scope, receive, send)
            return
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                body = await self._body(scope, receive)
        except TimeoutError:
            await self._refuse(send, 408, LATE)
            return
        if body is None:
            return
        if len(body) > LARGEST_BODY:
            await self._refuse(send, *LARGE_BODY)
            return
        given = False

        async def again() -> Message:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": bytes(body), "more_body": False}

        await self._application(scope, again, send)

    async def _until_closed(self, scope: Message, receive: Receive, send: Send) -> None:
        """Run the application; errors after the client closed the connection are ignored."""
        closed = False

        async def told(message: Message) -> None:
            nonlocal closed
            try:
                await send(message)
            except OSError:  # as the ASGI specification requires
                closed = True
                raise

        try:
            await self._application(scope, receive, told)
        except Exception:
            if not closed:
                raise

    async def _body(self, scope: Message, receive: Receive) -> bytearray | None:
        """Return the body, or an oversized prefix; None if the client disconnected."""
        body = bytearray()
        for name, value in scope["headers"]:
            if name == b"content-length" and int(value) > LARGEST_BODY:
                return bytearray(LARGEST_BODY + 1)
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            if len(body) > LARGEST_BODY or not message.get("more_body", False):
                return body

    async def _refuse(self, send: Send, status: int, message: str) -> None:
        content = json.dumps(self._refusal(status, message)).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(content)).encode()),
            (b"connection", b"close"),
        ]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})


class BoundedConnection(h11.Connection):
    """An h11 connection with limits that do not depend on the pieces in which bytes arrive.

    h11 itself limits only the length of an incomplete head, and not the size of a chunk.
    """

    refused: tuple[int, str] = NO_HTTP
    """Status and message of the error response, after `next_event` raised RemoteProtocolError."""
    largest_chunk = LARGEST_BODY
    """Maximum bytes of a chunk."""

    def next_event(self) -> Any:
        """Return the next event. Errors: h11.RemoteProtocolError, also for exceeded limits."""
        is_head = self.their_state is h11.IDLE
        before = len(self.trailing_data[0]) if is_head else 0
        try:
            event = super().next_event()
        except h11.RemoteProtocolError as error:
            if is_head and error.error_status_hint == 431:
                self.refused = LONG_HEAD
            raise
        if is_head and event is not h11.NEED_DATA:
            if before - len(self.trailing_data[0]) > LARGEST_HEAD:
                self._refuse(LONG_HEAD)
        elif (size := getattr(self._reader, "_bytes_in_chunk", 0)) > self.largest_chunk:
            self._refuse(LARGE_BODY if size <= LARGEST_SIZE else NO_HTTP)
        return event

    def _refuse(self, refused: tuple[int, str]) -> NoReturn:
        self.refused = refused
        raise h11.RemoteProtocolError(refused[1], refused[0])


def protocol(
    refusal: Callable[[int, str], dict[str, Any]], largest_chunk: int = LARGEST_BODY
) -> type[asyncio.Protocol]:
    """Return Uvicorn's HTTP protocol with limits on connections and on the time for headers."""

    class BoundedProtocol(H11Protocol):
        """A connection that is closed if its next request does not arrive in time."""

        _due: asyncio.TimerHandle | None = None

        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            self.conn = BoundedConnection(h11.SERVER, LARGEST_HEAD)
            self.conn.largest_chunk = largest_chunk

        def connection_made(self, transport: asyncio.Transport) -> None:
            """Start waiting for the first request."""
            super().connection_made(transport)
            if len(self.connections) > MOST_CONNECTIONS:
                self._refuse(503, "too many connections")
            else:
                self._wait()

        def data_received(self, data: bytes) -> None:
            """Process data; wait for the next request if none is being answered."""
            super().data_received(data)
            self._wait()

        def connection_lost(self, error: Exception | None) -> None:
            """Stop waiting."""
            self._stop_waiting()
            super().connection_lost(error)

        def send_400_response(self, msg: str) -> None:
            """Refuse invalid HTTP."""
            self._refuse(*self.conn.refused)

        def _wait(self) -> None:
            if self.conn.their_state is not h11.IDLE or self.transport.is_closing():
                self._stop_waiting()
            elif self._due is None:
                self._due = self.loop.call_later(REQUEST_SECONDS, self._give_up)

        def _stop_waiting(self) -> None:
            if self._due is not None:
                self._due.cancel()
                self._due = None

        def _give_up(self) -> None:
            if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
                self._refuse(408, LATE)

        def _refuse(self, status: int, message: str) -> None:
            content = json.dumps(refusal(status, message)).encode()
            if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                headers = [
                    (b"content-type", b"application/json"),
                    (b"content-length", str(len(content)).encode()),
                    (b"connection", b"close"),
                ]
                answer = h11.Response(status_code=status, headers=headers)
                for event in (answer, h11.Data(data=content), h11.EndOfMessage()):
                    self.transport.write(self.conn.send(event))
            if self.cycle is not None:  # the application's answer, if any, is not sent
                self.cycle.disconnected = True
                self.cycle.message_event.set()
            self.transport.close()

    return BoundedProtocol
