"""The control plane of the E2B API, and the services inside a sandbox, as an ASGI application."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import ipaddress
import os
import re
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, MutableMapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import IO, Any, Final, Literal, TypeVar
from urllib.parse import parse_qsl, unquote

import msgspec
from connectrpc.code import Code
from connectrpc.errors import ConnectError
from e2b.envd.filesystem.filesystem_connect import FilesystemASGIApplication
from e2b.envd.process.process_connect import ProcessASGIApplication
from protobuf import Message
from starlette.applications import Starlette
from starlette.datastructures import Headers, QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route

from shioenv.errors import OverloadedError, ShioenvError
from shioenv_agents.e2b.filesystem_service import FileService, read_file, write_file
from shioenv_agents.e2b.process_service import ProcessService
from shioenv_agents.e2b.requests import CURRENT, checked_user
from shioenv_agents.e2b.sandboxes import (
    NOT_FOUND,
    SWEEP_SECONDS,
    ClientSandbox,
    NewSandbox,
    Sandboxes,
    check_network,
    check_seconds,
)
from shioenv_agents.e2b.snapshots import Snapshot
from shioenv_agents.mcp.workers import Slots
from shioenv_serve.listener import ListenAddress
from shioenv_serve.serving import LARGEST_BODY, Application, Bounded, Receive, Send

SDK: Final = "2.63.0"
"""The version of the Python SDK that this API is for."""

ENVD: Final = "0.6.1"
"""The reported version of the services inside: the SDK then uses only features that they have."""

TRANSFERS: Final = 8
"""Maximum files that are sent or received at a time (our choice, because each is on the disk)."""

IDLE_SECONDS: Final = 60.0
"""Seconds that a client may wait between two pieces of a file or of input (our choice)."""

PAGE: Final = 100
"""The most rows on a page of a list."""

_PIECE: Final = 1 << 16

_TIME = re.compile(r"[0-9]{1,12}")

Scope = MutableMapping[str, Any]
Body = TypeVar("Body")
State = Literal["running", "paused"]


class SandboxOptions(msgspec.Struct, frozen=True):
    """The body of a request about a sandbox; each kind of request uses some of its fields."""

    timeout: int = 300
    memory: bool | None = None
    count: int = 1
    name: str = ""


def refusal(status: int, message: str) -> dict[str, Any]:
    """Return an error body in the API's format."""
    return {"code": status, "message": message}


class ControlPlane:
    """The handlers of requests about sandboxes."""

    def __init__(self, sandboxes: Sandboxes) -> None:
        self._sandboxes = sandboxes

    async def create(self, request: Request) -> Response:
        """Open a sandbox."""
        asked = await _body(request, NewSandbox)
        sandbox = await self._sandboxes.create(self._owner(request), asked)
        return JSONResponse(_created(sandbox), 201)

    async def show_all(self, request: Request) -> Response:
        """List the client's sandboxes."""
        asked = request.query_params
        found = self._sandboxes.of_owner(self._owner(request))
        states = set(filter(None, asked.get("state", "").split(",")))
        wanted = [
            (unquote(name), unquote(value)) for name, value in parse_qsl(asked.get("metadata", ""))
        ]
        found = [
            each
            for each in found
            if (not states or each.state in states)
            and asked.get("template", each.asked.template_id) == each.asked.template_id
            and each.started >= _instant(asked.get("startedAfter"))
            and all(each.asked.metadata.get(name) == value for name, value in wanted)
        ]
        if asked.get("order") == "desc":
            found.reverse()
        return _page(asked, [_details(each) for each in found])

    async def show(self, request: Request) -> Response:
        """Return the facts of a sandbox."""
        sandbox = self._found(request)
        rest = {"envdAccessToken": sandbox.token, "lifecycle": _lifecycle(sandbox)}
        return JSONResponse({**_details(sandbox), **rest, "allowInternetAccess": False})

    async def end(self, request: Request) -> Response:
        """End a sandbox."""
        await self._sandboxes.end(self._found(request))
        return Response(status_code=204)

    async def set_timeout(self, request: Request) -> Response:
        """Set the seconds that a sandbox has from now on."""
        sandbox = self._found(request)
        sandbox.ends = time.time() + check_seconds((await _body(request, SandboxOptions)).timeout)
        return Response(status_code=204)

    async def pause(self, request: Request) -> Response:
        """Pause a sandbox."""
        memory = (await _body(request, SandboxOptions)).memory
        if not await self._sandboxes.pause(self._found(request), memory=memory is not False):
            raise HTTPException(409, "the sandbox is paused already")
        return Response(status_code=204)

    async def connect(self, request: Request) -> Response:
        """Return the address of a sandbox, and resume it if it is paused."""
        given, sandbox = await _body(request, SandboxOptions), self._found(request)
        was_paused = await self._sandboxes.connect(
            sandbox, check_seconds(given.timeout), memory=given.memory is not False
        )
        return JSONResponse(_created(sandbox), 201 if was_paused else 200)

    async def fork(self, request: Request) -> Response:
        """Open sandboxes with the files of another."""
        given, sandbox = await _body(request, SandboxOptions), self._found(request)
        made = await self._sandboxes.fork(sandbox, given.count, given.timeout)
        rows = [
            {"error": refusal(each.status_code, each.detail)}
            if isinstance(each, HTTPException)
            else {"sandbox": _created(each)}
            for each in made
        ]
        return JSONResponse(rows, 201)

    async def snapshot(self, request: Request) -> Response:
        """Keep the files of a sandbox."""
        given, sandbox = await _body(request, SandboxOptions), self._found(request)
        made = await self._sandboxes.snapshot(sandbox, given.name)
        return JSONResponse(_kept(made), 201)

    async def show_snapshots(self, request: Request) -> Response:
        """List the client's snapshots."""
        asked = request.query_params
        rows = [
            _kept(each)
            for each in self._sandboxes.snapshots_of(self._owner(request))
            if asked.get("sandboxID", each.source) == each.source
            and asked.get("name", each.id) in (each.id, each.name)
        ]
        return _page(asked, rows)

    async def delete_snapshot(self, request: Request) -> Response:
        """Forget a snapshot."""
        self._sandboxes.delete_snapshot(self._owner(request), request.path_params["id"])
        return Response(status_code=204)

    async def set_network(self, request: Request) -> Response:
        """Accept network rules that only deny."""
        self._found(request)
        check_network(await _body(request, dict[str, object]))
        return Response(status_code=204)

    async def refuse(self, request: Request) -> Response:
        """Refuse a part of the API that this server lacks."""
        self._owner(request)
        raise HTTPException(501, f"this server does not support {request.url.path:.200}")

    def _owner(self, request: Request) -> str:
        return self._sandboxes.owner_of(request.headers.get("x-api-key", ""))

    def _found(self, request: Request) -> ClientSandbox:
        return self._sandboxes.find(self._owner(request), request.path_params["id"])


async def _body(request: Request, kind: type[Body]) -> Body:
    """Return a request's body. Errors: HTTPException."""
    try:
        return msgspec.json.decode(await request.body() or b"{}", type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise HTTPException(400, f"the body is not accepted: {error!s:.200}") from None


def _page(asked: QueryParams, rows: list[dict[str, Any]]) -> Response:
    """Return the requested page of a list, and the number at which the next page starts."""
    start = _number(asked.get("nextToken", "0"), len(rows))
    end = start + _number(asked.get("limit", str(PAGE)), PAGE)
    headers = {"x-next-token": str(end)} if end < len(rows) else {}
    return JSONResponse(rows[start:end], headers=headers)


def _number(text: str, most: int) -> int:
    if not text.isdecimal() or len(text) > 9:
        raise HTTPException(400, f"{text!r:.80} is no number")
    return min(int(text), most)


def _instant(text: str | None) -> float:
    try:
        return datetime.fromisoformat(text).timestamp() if text else 0.0
    except ValueError:
        raise HTTPException(400, f"{text!r:.80} is no time") from None


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def _created(sandbox: ClientSandbox) -> dict[str, Any]:
    return {
        "templateID": sandbox.asked.template_id,
        "sandboxID": sandbox.id,
        "clientID": "shioenv",
        "envdVersion": ENVD,
        "envdAccessToken": sandbox.token,
    }


def _kept(snapshot: Snapshot) -> dict[str, Any]:
    return {"snapshotID": snapshot.id, "names": [snapshot.name] if snapshot.name else []}


def _details(sandbox: ClientSandbox) -> dict[str, Any]:
    created = _created(sandbox)
    del created["envdAccessToken"]
    return {
        **created,
        "startedAt": _time(sandbox.started),
        "endAt": _time(sandbox.ends),
        "cpuCount": os.cpu_count() or 1,
        "memoryMB": sandbox.limits.memory_bytes >> 20,
        "diskSizeMB": sandbox.limits.disk_bytes >> 20,
        "state": sandbox.state,
        "metadata": sandbox.asked.metadata,
    }


def _lifecycle(sandbox: ClientSandbox) -> dict[str, Any]:
    on_timeout = "pause" if sandbox.asked.auto_pause else "kill"
    return {"autoResume": sandbox.resumes, "onTimeout": on_timeout}


class Inside:
    """Admits requests that have a sandbox's token to the services in this sandbox."""

    def __init__(self, application: Application, sandboxes: Sandboxes) -> None:
        self._application, self._sandboxes = application, sandboxes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        headers = Headers(scope=scope)
        name, token = headers.get("e2b-sandbox-id", ""), headers.get("x-access-token", "")
        sandbox = self._sandboxes.with_token(name, token) or self._signed(scope)
        try:
            await self._admit(sandbox)
        except (HTTPException, ShioenvError) as error:
            status = error.status_code if isinstance(error, HTTPException) else 500
            text = error.detail if isinstance(error, HTTPException) else error.message
            await JSONResponse(refusal(status, text), status)(scope, receive, send)
            return
        assert sandbox is not None
        CURRENT.set(sandbox)
        await self._application(scope, receive, send)

    async def _admit(self, sandbox: ClientSandbox | None) -> None:
        """Resume a paused sandbox made with `auto_resume`. Errors: HTTPException, SandboxError."""
        if sandbox is not None and sandbox.state == "paused" and sandbox.resumes:
            await self._sandboxes.connect(sandbox, sandbox.asked.timeout, memory=True)
        if sandbox is None or sandbox.state != "running":
            raise HTTPException(502, NOT_FOUND)

    def _signed(self, scope: Scope) -> ClientSandbox | None:
        """Return the sandbox whose token signed the address of a file; None without one."""
        given = dict(parse_qsl(scope.get("query_string", b"").decode("latin-1")))
        signature, until = given.get("signature"), given.get("signature_expiration")
        if signature is None or scope["path"] != "/files":
            return None
        if until is not None and (not _TIME.fullmatch(until) or int(until) < time.time()):
            return None
        operation = {"GET": "read", "POST": "write"}.get(scope["method"], "")
        rest = [] if until is None else [until]

        def is_right(token: str) -> bool:
            words = [given.get("path", ""), operation, given.get("username", ""), token, *rest]
            digest = hashlib.sha256(":".join(words).encode()).digest()
            right = f"v1_{base64.b64encode(digest).decode().rstrip('=')}"
            return hmac.compare_digest(right.encode(), signature.encode())

        return self._sandboxes.signing(is_right)


class Transfers:
    """The handlers of requests that read and write whole files."""

    def __init__(self, most: int) -> None:
        """`most` is the maximum number of bytes of a file."""
        self._most = most
        self._slots = Slots(TRANSFERS, "a transfer")

    async def health(self, request: Request) -> Response:
        """Report that the sandbox runs."""
        return Response(status_code=204)

    async def read(self, request: Request) -> Response:
        """Send a file."""
        user = checked_user(request.query_params.get("username", ""))
        path = request.query_params.get("path", "")
        async with self._slots.taken():
            file = await read_file(CURRENT.get(), path, user, self._most)
        size = os.fstat(file.fileno()).st_size
        headers = {"content-length": str(size)}
        return StreamingResponse(_pieces(file), 200, headers, "application/octet-stream")

    async def write(self, request: Request) -> Response:
        """Receive files: one as it is, or any number as parts of a form."""
        user = checked_user(request.query_params.get("username", ""))
        path = request.query_params.get("path", "")
        kind = request.headers.get("content-type", "")
        sandbox, written = CURRENT.get(), []
        async with self._slots.taken():
            if kind.startswith("multipart/form-data"):
                async with request.form(max_files=1000, max_fields=1) as form:
                    parts = [part for part in form.getlist("file") if not isinstance(part, str)]
                    for part in parts:
                        name = path or part.filename or ""
                        written.append(await write_file(sandbox, name, user, part.file))
            else:
                with tempfile.TemporaryFile() as file:
                    await _save(request, file, self._most)
                    written.append(await write_file(sandbox, path, user, file))
        if not written:
            raise HTTPException(400, "the form has no file")
        rows = [{"name": os.path.basename(each), "type": "file", "path": each} for each in written]  # noqa: PTH119
        return JSONResponse(rows)


def _pieces(file: IO[bytes]) -> AsyncIterator[bytes]:
    async def pieces() -> AsyncIterator[bytes]:
        with file:
            while piece := await asyncio.to_thread(file.read, _PIECE):
                yield piece

    return pieces()


async def _save(request: Request, file: IO[bytes], most: int) -> None:
    """Write a request's body to a file. Errors: HTTPException."""
    if "content-encoding" in request.headers:
        raise HTTPException(415, "compressed files are not supported")
    length = 0
    async for piece in request.stream():
        length += len(piece)
        if length > most:
            raise HTTPException(413, f"the file exceeds {most:,} bytes")
        file.write(piece)
    file.seek(0)


class Streamed:
    """An application whose request bodies are limited in length and in their pauses."""

    def __init__(self, application: Application, most: int) -> None:
        self._application, self._most = application, most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request. A body that is too long or too slow ends the connection."""
        length = 0

        async def received() -> MutableMapping[str, Any]:
            nonlocal length
            try:
                async with asyncio.timeout(IDLE_SECONDS):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(408, f"nothing came for {IDLE_SECONDS:g} s") from None
            length += len(message.get("body", b""))
            if length > self._most:
                raise HTTPException(413, f"the body exceeds {self._most:,} bytes")
            return message

        await self._application(scope, received, send)


class _Messages:
    """The codec of the services: JSON, as the SDK sends it."""

    def name(self) -> str:
        return "json"

    def encode(self, message: Message[Any]) -> bytes:
        return message.to_json().encode()

    def decode(self, data: bytes | bytearray, message_class: type[Any]) -> Any:
        """Return a message. Errors: ConnectError."""
        try:
            return message_class.from_json(bytes(data), ignore_unknown_fields=True)
        except Exception as error:  # the library raises many
            text = f"the message is not accepted: {error!s:.200}"
            raise ConnectError(Code.INVALID_ARGUMENT, text) from None


STREAMED: Final = ("/files", "/process.Process/StreamInput")
"""Addresses whose requests have no bound on their time."""

_STATUS: Final[Mapping[Code, int]] = {
    Code.NOT_FOUND: 404,
    Code.INVALID_ARGUMENT: 400,
    Code.UNAUTHENTICATED: 401,
    Code.PERMISSION_DENIED: 403,
    Code.RESOURCE_EXHAUSTED: 507,
}


def e2b_application(sandboxes: Sandboxes, listen_address: ListenAddress) -> Application:
    """Return the server as an ASGI application. Its lifespan ends all sandboxes.

    Pages in a browser cannot use it: requests with an `Origin` are refused. On a local address,
    requests with a foreign `Host` are refused as well, to prevent DNS rebinding.
    """
    plane, transfers = ControlPlane(sandboxes), Transfers(sandboxes.disk_bytes)
    options: dict[str, Any] = {"read_max_bytes": LARGEST_BODY, "codecs": [_Messages()]}
    services = {
        "/process.Process": ProcessASGIApplication(ProcessService(), **options),
        "/filesystem.Filesystem": FilesystemASGIApplication(FileService(), **options),
    }
    whole = Starlette(
        routes=[
            Route("/files", transfers.read, methods=["GET"]),
            Route("/files", transfers.write, methods=["POST"]),
            Route("/health", transfers.health, methods=["GET"]),
        ],
        exception_handlers=_HANDLERS,
    )
    inside = [Mount(path, Inside(each, sandboxes)) for path, each in services.items()]
    one = "/sandboxes/{id:str}"
    application = Starlette(
        routes=[
            Route("/v2/sandboxes", plane.create, methods=["POST"]),
            Route("/sandboxes", plane.create, methods=["POST"]),
            Route("/v2/sandboxes", plane.show_all, methods=["GET"]),
            Route(one, plane.show, methods=["GET"]),
            Route(one, plane.end, methods=["DELETE"]),
            Route(f"{one}/timeout", plane.set_timeout, methods=["POST"]),
            Route(f"{one}/network", plane.set_network, methods=["PUT"]),
            Route(f"{one}/pause", plane.pause, methods=["POST"]),
            Route(f"/v2{one}/connect", plane.connect, methods=["POST"]),
            Route(f"{one}/connect", plane.connect, methods=["POST"]),
            Route(f"{one}/fork", plane.fork, methods=["POST"]),
            Route(f"{one}/snapshots", plane.snapshot, methods=["POST"]),
            Route("/snapshots", plane.show_snapshots, methods=["GET"]),
            Route("/templates/{id:str}", plane.delete_snapshot, methods=["DELETE"]),
            *inside,
            Route("/files", Inside(whole, sandboxes)),
            Route("/health", Inside(whole, sandboxes)),
            Route("/{rest:path}", plane.refuse, methods=["GET", "POST", "PUT", "PATCH", "DELETE"]),
        ],
        exception_handlers=_HANDLERS,
        lifespan=_lifespan(sandboxes),
    )
    bounded = Bounded(application, refusal)
    streamed = Streamed(application, sandboxes.disk_bytes + LARGEST_BODY)

    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (refused := _foreign(Headers(scope=scope), listen_address)):
            await JSONResponse(refusal(*refused), refused[0])(scope, receive, send)
            return
        chosen = streamed if scope.get("path") in STREAMED else bounded
        await chosen(scope, receive, send)

    return served


def _lifespan(sandboxes: Sandboxes) -> Callable[[Starlette], Any]:
    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async def sweep() -> None:
            while True:
                await asyncio.sleep(SWEEP_SECONDS)
                await sandboxes.sweep()

        task = asyncio.create_task(sweep())
        try:
            yield
        finally:
            task.cancel()
            await sandboxes.close()

    return lifespan


def _foreign(headers: Headers, listen_address: ListenAddress) -> tuple[int, str] | None:
    """Return the refusal of a request that a page in a browser may have sent; else None."""
    if "origin" in headers:
        return 403, "requests from pages in a browser are refused"
    name = headers.get("host", "").rpartition(":")[0].strip("[]") or headers.get("host", "")
    try:
        is_here = (
            name in ("localhost", listen_address.host) or ipaddress.ip_address(name).is_loopback
        )
    except ValueError:
        is_here = False
    if listen_address.is_local and not is_here:
        return 421, f"{name!r:.80} is not this host"
    return None


async def _as_json(request: Request, error: Exception) -> Response:
    """Return an error in the API's format."""
    if isinstance(error, HTTPException):
        return JSONResponse(refusal(error.status_code, error.detail), error.status_code)
    if isinstance(error, ConnectError):
        status = _STATUS.get(error.code, 500)
        return JSONResponse(refusal(status, error.message), status)
    assert isinstance(error, ShioenvError)
    status = 429 if isinstance(error, OverloadedError) else 500
    return JSONResponse(refusal(status, error.message), status)


_HANDLERS: Final[Mapping[Any, Any]] = dict.fromkeys(
    (HTTPException, ConnectError, ShioenvError), _as_json
)
