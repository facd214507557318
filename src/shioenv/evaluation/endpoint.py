"""An endpoint that speaks OpenAI's protocol, and a file of what it replied."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from shioenv.errors import HostError, MissingExtraError

RETRIES = 4
"""Of a request that the endpoint refuses for a while."""


class Endpoint:
    """Asks an endpoint, for a feature by whose name errors are told.

    `url` is where it is; empty: OPENAI_BASE_URL, else OpenAI's own. The key is OPENAI_API_KEY.
    """

    def __init__(self, feature: str, url: str = "") -> None:
        self._feature, self._url = feature, url
        self._client: Any = None

    def check(self) -> None:
        """Finds out whether it could be asked, without asking. Errors: MissingExtraError, HostError
        where no endpoint is known.
        """
        self._opened()

    def reply(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """What it replies to a request for a chat completion: `text`, and the tokens of prompt and
        reply. Errors: those of `check`; HostError where it would not reply to any other request
        either (nobody listens, the key is refused, too many were sent); what its client raises.
        """
        client = self._opened()
        try:
            done = client.chat.completions.create(**request)
        except _deaf() as error:
            raise HostError(
                f"{self._feature}: {client.base_url} does not reply: {error}",
                hint="once it does, the same command goes on",
            ) from None
        usage = done.usage
        return {
            "text": done.choices[0].message.content or "",
            "prompt_tokens": usage.prompt_tokens if usage else 0,
            "completion_tokens": usage.completion_tokens if usage else 0,
        }

    def _opened(self) -> Any:
        try:
            import openai
        except ImportError:
            raise MissingExtraError(self._feature, "openai", "evaluation") from None
        if self._client is None:
            url = self._url or os.environ.get("OPENAI_BASE_URL")
            key = os.environ.get("OPENAI_API_KEY", "none" if url else None)
            if key is None:
                raise HostError(
                    f"{self._feature} needs an endpoint", hint="set OPENAI_API_KEY, or give its URL"
                )
            self._client = openai.OpenAI(base_url=url, api_key=key, max_retries=RETRIES)
        return self._client


def _deaf() -> tuple[type[Exception], ...]:
    """What a client raises, whatever it was asked."""
    import openai

    return (
        openai.APIConnectionError, openai.AuthenticationError, openai.PermissionDeniedError,
        openai.NotFoundError, openai.RateLimitError, openai.InternalServerError,
    )  # fmt: skip


class Replay:
    """Replies by their requests, in a file that is only ever appended to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, dict[str, Any]] = {}
        with suppress(FileNotFoundError):
            for line in path.read_bytes().splitlines():
                with suppress(ValueError, KeyError):
                    document = json.loads(line)
                    self._known[document["request"]] = document["reply"]

    def get(self, request: Mapping[str, Any]) -> dict[str, Any] | None:
        """What was replied; None where it was never asked."""
        return self._known.get(_key(request))

    def keep(self, request: Mapping[str, Any], reply: dict[str, Any]) -> dict[str, Any]:
        """The reply, once it is in the file; its input stands beside it for people."""
        key = _key(request)
        self._known[key] = reply
        asked = request["messages"][-1]["content"]
        line = json.dumps({"request": key, "input": asked, "reply": reply}) + "\n"
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(line.encode())
        return reply


def _key(request: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()
