"""The server on standard input and output, and over streamable HTTP."""

from __future__ import annotations

import hmac
import ipaddress
import os
import select
import stat
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
from mcp.server.auth.middleware.bearer_auth import BearerAuthBackend, RequireAuthMiddleware
from mcp.server.auth.provider import AccessToken, TokenVerifier
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from shioenv_agents.mcp.server import SESSION_HEADER, owner_of
from shioenv_serve.listener import ListenAddress

LARGEST_MESSAGE: Final = 1 << 20
"""Maximum size of a message or an HTTP body in bytes (our choice)."""

MOST_SESSIONS: Final = 256
"""Maximum number of HTTP sessions (our choice)."""

PATH: Final = "/mcp"
"""The path of the server's only address."""

_LOCAL: Final = ("127.0.0.1", "localhost", "[::1]")


async def serve_stdio(server: Server[Any]) -> None:
    """Serve one client on standard input and output, until the input ends.

    Meanwhile descriptor 0 is /dev/null and descriptor 1 is standard error, so that no child and no
    library can read or write a message.
    """
    given, taken = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    with os.fdopen(taken, "w", encoding="utf-8") as file:
        lines: Any = BoundedLines(given)
        is_pipe = stat.S_ISFIFO(os.fstat(taken).st_mode)
        output: Any = PipeWriter(taken) if is_pipe else anyio.wrap_file(file)
        async with stdio_server(lines, output) as (read, write):
            await server.run(read, write, server.create_initialization_options())


class BoundedLines:
    """Lines of text from a descriptor; a line that is too long becomes an empty one.

    An empty line is no message, so the session skips it.
    """

    def __init__(self, descriptor: int, longest: int = LARGEST_MESSAGE) -> None:
        self._descriptor, self._longest = descriptor, longest
        kind = os.fstat(descriptor).st_mode
        self._can_wait = stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind) or os.isatty(descriptor)

    async def __aiter__(self) -> AsyncIterator[str]:
        """Yield each line. A last line without a newline counts."""
        rest = bytearray()
        too_long = False
        while data := await self._read():
            *ended, last = data.split(b"\n")
            for part in ended:
                whole = not too_long and len(rest) + len(part) <= self._longest
                yield (rest + part).decode("utf-8", "replace") if whole else ""
                rest.clear()
                too_long = False
            rest += last
            if len(rest) > self._longest:
                rest.clear()
                too_long = True
        if rest:
            yield rest.decode("utf-8", "replace")

    async def _read(self) -> bytes:
        if self._can_wait:  # a file never blocks
            await anyio.wait_readable(self._descriptor)
        return os.read(self._descriptor, 1 << 16)


class PipeWriter:
    """Writes text into a pipe without a thread: a ready pipe accepts `PIPE_BUF` bytes at once."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    async def write(self, text: str) -> None:
        """Write a text, and wait while the pipe is full."""
        data = text.encode()
        for start in range(0, len(data), select.PIPE_BUF):
            await anyio.wait_writable(self._descriptor)
            os.write(self._descriptor, data[start : start + select.PIPE_BUF])

    async def flush(self) -> None:
        """Do nothing: writes are not buffered."""


class KeyVerifier(TokenVerifier):
    """Accepts the keys of the server as bearer tokens. Each key identifies a separate client."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = [key.encode() for key in keys]

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return the client of a key; None for another text."""
        found = [
            number
            for number, key in enumerate(self._keys)
            if hmac.compare_digest(token.encode(), key)
        ]
        if not found:
            return None
        return AccessToken(token=token, client_id=f"key {found[0] + 1}", scopes=[])


def http_application(
    server: Server[Any],
    ended: Callable[[str], None],
    *,
    listen_address: ListenAddress,
    keys: Sequence[str] = (),
    idle_seconds: float,
) -> Starlette:
    """Return the server as an ASGI application with one address, `PATH`.

    `ended` is called with the owner of a session that its client ended. With `keys`, every request
    needs one of them as a bearer token. A page in a browser cannot use the server: requests with an
    `Origin` other than this host are refused. On a local address, requests with a foreign `Host`
    are refused as well, to prevent DNS rebinding.
    """
    manager = StreamableHTTPSessionManager(
        server,
        security_settings=TransportSecuritySettings(
            enable_dns_rebinding_protection=listen_address.is_local,
            allowed_hosts=[f"{name}:*" for name in (*_LOCAL, _named(listen_address.host))],
            allowed_origins=[f"http://{name}:*" for name in _LOCAL],
        ),
        session_idle_timeout=idle_seconds,
        max_request_body_size=LARGEST_MESSAGE,
        max_sessions=MOST_SESSIONS,
    )
    endpoint: Any = _WithoutBrowsers(StreamableHTTPASGIApp(manager), ended)
    middleware = []
    if keys:
        endpoint = RequireAuthMiddleware(endpoint, [])
        backend = BearerAuthBackend(KeyVerifier(keys))
        middleware = [Middleware(AuthenticationMiddleware, backend=backend)]

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with manager.run():
            yield

    return Starlette(routes=[Route(PATH, endpoint)], middleware=middleware, lifespan=lifespan)


class _WithoutBrowsers:
    """Refuses requests from pages of other origins, and reports the end of sessions."""

    def __init__(self, application: Any, ended: Callable[[str], None]) -> None:
        self._application, self._ended = application, ended

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle one request."""
        headers = {name.decode("latin-1"): value for name, value in scope["headers"]}
        origin = headers.get("origin", b"").decode("latin-1")
        if origin and not _is_local(origin):
            refusal = PlainTextResponse("requests from pages of other sites are refused", 403)
            await refusal(scope, receive, send)
            return
        await self._application(scope, receive, send)
        if scope["method"] == "DELETE" and SESSION_HEADER in headers:
            key = headers.get("authorization", b"").decode("latin-1")
            self._ended(owner_of(key, headers[SESSION_HEADER].decode("latin-1")))


def _is_local(origin: str) -> bool:
    """Whether a page's origin is this host."""
    try:
        name = urlsplit(origin).hostname or ""
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _named(host: str) -> str:
    return f"[{host}]" if ":" in host else host
