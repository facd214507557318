"""A server for shells over OpenAI's protocol, for Cowrie, Beelzebub and any other client."""

from __future__ import annotations

import hmac
import json
import secrets
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
from limits import RateLimitItemPerMinute
from limits.aio.storage import MemoryStorage
from limits.aio.strategies import MovingWindowRateLimiter
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from shioenv.errors import (
    ConversationTooLongError,
    InputError,
    OverloadedError,
    ShioenvError,
)
from shioenv.files.documents import fault
from shioenv_serve.conversations import ChatRequest, Conversation, conversation_of
from shioenv_serve.events import EventLog, Origin, duration
from shioenv_serve.sessions import TYPED
from shioenv_serve.visits import Answered, Visits

TYPES: Final = {401: "authentication_error", 429: "rate_limit_error"}
"""OpenAI's error types by status.

Other statuses below 500 are client errors, the rest are server errors.
"""


def openai_error(
    status: int, message: str, code: str | None = None, param: str | None = None
) -> dict[str, Any]:
    """Return an error in OpenAI's format."""
    usual = "invalid_request_error" if status < 500 else "server_error"
    kind = TYPES.get(status, usual)
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


class OpenAIFront:
    """An HTTP application that answers each request with the output of a visit's shell.

    `keys` are the accepted API keys; without any, every client is served. `rate` is the number of
    requests per minute for a key, or for an address if there are no keys.
    """

    def __init__(
        self,
        visits: Visits,
        name: str,
        *,
        keys: Sequence[str] = (),
        rate: int,
        log: EventLog | None = None,
        note: Any = print,
    ) -> None:
        self._visits, self._name, self._log, self._note = visits, name, log, note
        self._keys = [key.encode() for key in keys]
        self._rate = RateLimitItemPerMinute(rate)
        self._limiter = MovingWindowRateLimiter(MemoryStorage())
        self._began = int(time.time())
        self._logged: dict[str, tuple[Origin, float]] = {}
        """Logged visits that have not ended, each with its start time."""
        visits.on_end = self._ended

    def application(self) -> Starlette:
        """Return the server as an ASGI application. Its shutdown closes every shell."""

        @asynccontextmanager
        async def lifespan(served: Starlette) -> AsyncIterator[None]:
            await self._visits.start()
            try:
                yield
            finally:
                await self._visits.close()

        return Starlette(
            routes=[
                Route("/v1/chat/completions", self._chat, methods=["POST"]),
                Route("/v1/models", self._models),
                Route("/v1/models/{model:path}", self._model),
            ],
            exception_handlers={HTTPException: self._refused, Exception: self._broke},
            lifespan=lifespan,
        )

    async def _chat(self, request: Request) -> Response:
        began = time.monotonic()
        caller = await self._caller(request)
        asked, conversation = _asked(await request.body(), caller)
        if asked.model != self._name:
            raise _unknown(asked.model, self._name)
        told = await self._told(request, conversation, began)
        answer = {
            "id": f"chatcmpl-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": self._name,
        }
        usage = _usage(asked, told)
        if not asked.stream:
            return JSONResponse({**answer, **_completion(told), "usage": usage})
        with_usage = asked.stream_options is not None and asked.stream_options.include_usage
        chunks = _chunks(answer, told, usage if with_usage else None)
        return StreamingResponse(_events(chunks), media_type="text/event-stream")

    async def _told(self, request: Request, conversation: Conversation, began: float) -> Answered:
        """Return the shell's answer. The line is logged before it runs, its outcome afterwards."""
        line, visit = conversation.line, ""

        def heard(number: str) -> None:
            nonlocal visit
            visit = number
            self._tell(TYPED, self._origin(request, number, began), input=line)

        try:
            told = await self._visits.answer(conversation, heard)
            self._write(visit, line, told, time.monotonic() - began)
        except ShioenvError as error:
            if visit in self._logged:
                reason = {"input": line, "reason": error.message}
                self._tell("shioenv.unanswered", self._logged[visit][0], **reason)
            raise self._unanswered(error) from None
        finally:
            if conversation.is_alone:
                self._ended(visit)
        return told

    def _unanswered(self, error: ShioenvError) -> HTTPException:
        """Return the HTTP error for a line without an answer."""
        if isinstance(error, InputError):
            return _error(400, error.message, param="messages")
        if isinstance(error, ConversationTooLongError):
            code = "context_length_exceeded"  # OpenAI's code for a conversation that is too long
            return _error(400, error.message, code=code, param="messages")
        if isinstance(error, OverloadedError):
            return _error(503, error.message, code="overloaded")
        self._note(f"a line was not answered: {error}")
        return _error(500, "the machine of the shell failed")

    def _origin(self, request: Request, visit: str, began: float) -> Origin:
        """Return the origin of a visit, and log the start of a new visit."""
        if visit not in self._logged:
            client, server = request.scope.get("client"), request.scope.get("server")
            host, port = client or ("", 0)
            where = Origin(visit, host, port, server or ("", 0), "openai")
            self._logged[visit] = where, began
            self._tell("cowrie.session.connect", where)
        return self._logged[visit][0]

    def _tell(self, event: str, where: Origin, **fields: Any) -> None:
        if self._log is not None:
            self._log.tell(event, where, **fields)

    def _write(self, visit: str, line: str, told: Answered, latency: float) -> None:
        """Log the effects of a line."""
        if self._log is None:
            return
        where, _ = self._logged[visit]
        again = {"again": told.again} if told.again else {}
        if told.behavior is None:
            self._log.tell("shioenv.abstained", where, input=line, reason=told.declined, **again)
        else:
            self._log.did(
                where, line, told.behavior, latency, told.runner, told.confidence, **again
            )

    def _ended(self, visit: str) -> None:
        """Log the end of a visit."""
        if visit in self._logged:
            where, began = self._logged.pop(visit)
            self._tell("cowrie.session.closed", where, **duration(time.monotonic() - began))

    async def _models(self, request: Request) -> Response:
        await self._caller(request)
        return JSONResponse({"object": "list", "data": [self._card()]})

    async def _model(self, request: Request) -> Response:
        await self._caller(request)
        if request.path_params["model"] != self._name:
            raise _unknown(request.path_params["model"], self._name)
        return JSONResponse(self._card())

    def _card(self) -> dict[str, Any]:
        return {"id": self._name, "object": "model", "created": self._began, "owned_by": "shioenv"}

    async def _caller(self, request: Request) -> str:
        """Identify the client. HTTPException for a wrong key, or beyond the rate limit."""
        caller = request.client.host if request.client else ""
        if self._keys:
            scheme, _, shown = request.headers.get("authorization", "").partition(" ")
            given = shown.strip().encode("latin-1")
            known = [key for key in self._keys if hmac.compare_digest(key, given)]
            if scheme.lower() != "bearer" or not known:
                refused = _error(401, "the API key is missing or wrong", code="invalid_api_key")
                refused.headers = {"Connection": "close"}
                raise refused
            caller = str(self._keys.index(known[0]))
        if not await self._limiter.hit(self._rate, caller):
            window = await self._limiter.get_window_stats(self._rate, caller)
            wait = max(1, round(window.reset_time - time.time()))
            message = f"more than {self._rate.amount:,} requests per minute"
            raise _error(429, message, code="rate_limit_exceeded", wait=wait)
        return caller

    async def _refused(self, request: Request, error: Exception) -> Response:
        """Return any HTTPException in OpenAI's format."""
        assert isinstance(error, HTTPException)
        body = error.detail
        if isinstance(body, str):  # raised by Starlette: unknown path or method
            place = f"{request.method} {request.url.path}"
            body = openai_error(error.status_code, f"unknown URL: {place:.200}", code="unknown_url")
        return JSONResponse(body, error.status_code, headers=error.headers)

    async def _broke(self, request: Request, error: Exception) -> Response:
        return JSONResponse(openai_error(500, "the server failed to answer"), 500)


def _asked(body: bytes, caller: str) -> tuple[ChatRequest, Conversation]:
    """Parse a request and its conversation. HTTPException if they are invalid."""
    try:
        asked = msgspec.json.decode(body, type=ChatRequest)
        return asked, conversation_of(asked, caller)
    except RecursionError:
        raise _error(400, "the body is nested too deeply") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        _, _, path = str(error).partition(" - at `$.")
        raise _error(
            400, f"the body is invalid: {fault(error)}", param=path.rstrip("`") or None
        ) from None
    except ValueError as error:
        raise _error(400, str(error), param="messages") from None


def _error(
    status: int, message: str, *, code: str | None = None, param: str | None = None, wait: int = 0
) -> HTTPException:
    body: Any = openai_error(status, message, code, param)
    return HTTPException(status, body, {"Retry-After": str(wait)} if wait else None)


def _unknown(model: str, name: str) -> HTTPException:
    message = f"unknown model {model!r:.100}; the server has {name!r}"
    return _error(404, message, code="model_not_found", param="model")


def _message(told: Answered) -> dict[str, Any]:
    if told.behavior is None:
        return {"role": "assistant", "content": None, "refusal": told.declined}
    return {"role": "assistant", "content": told.text, "refusal": None}


def _finish(told: Answered) -> str:
    cut = told.behavior is not None and told.behavior.output_truncated
    return "length" if cut else "stop"


def _completion(told: Answered) -> dict[str, Any]:
    choice = {
        "index": 0,
        "message": _message(told),
        "logprobs": None,
        "finish_reason": _finish(told),
    }
    return {"object": "chat.completion", "choices": [choice]}


def _usage(asked: ChatRequest, told: Answered) -> dict[str, int]:
    """Return token counts, which are bytes of UTF-8, since a shell has no tokens."""
    prompt = sum(len(message.text.encode("utf-8", "replace")) for message in asked.messages)
    answer = len(told.text.encode())
    return {
        "prompt_tokens": prompt,
        "completion_tokens": answer,
        "total_tokens": prompt + answer,
    }


def _chunks(
    answer: dict[str, Any], told: Answered, usage: dict[str, int] | None
) -> Iterator[dict[str, Any]]:
    """Yield the answer as chunks of a stream. The output is one chunk, since it is complete."""
    whole = {**answer, "object": "chat.completion.chunk"}
    deltas = [(_message(told), None), ({}, _finish(told))]
    for delta, finish in deltas:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        yield {**whole, "choices": [choice]}
    if usage is not None:
        yield {**whole, "choices": [], "usage": usage}


def _events(chunks: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Format chunks as server-sent events."""
    for chunk in chunks:
        yield f"data: {json.dumps(chunk)}\n\n"
    yield "data: [DONE]\n\n"
