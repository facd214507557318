"""Clients of external services: endpoints with OpenAI's API, and the Hugging Face Hub."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from shioenv.errors import AnswerError, HostError, HubError, MissingExtraError

LONGEST_REPLY = 8 << 20
"""Maximum bytes of a reply: hundreds of times the longest output of a model."""

REPLY_SECONDS = 600.0
"""Seconds within which a reply must be complete."""

RETRIES = 4
"""Retries of a request that the endpoint temporarily refuses."""


class Endpoint:
    """Requests chat completions from an endpoint.

    `feature` names what needs the endpoint, in error messages. `url` is the endpoint's base URL; if
    empty, $OPENAI_BASE_URL or OpenAI's URL is used. The API key is $OPENAI_API_KEY.
    """

    def __init__(self, feature: str, url: str = "") -> None:
        self._feature, self._url = feature, url
        self._client: Any = None

    def check(self) -> None:
        """Check the configuration, without a request.

        Errors: MissingExtraError if the client is not installed; HostError if no endpoint is
        configured.
        """
        self._opened()

    def reply(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request; return its `text`, `prompt_tokens` and `completion_tokens`.

        Errors: those of `check`. HostError for failures that would affect any request (no server,
        invalid key, rate limit). AnswerError for a reply that is too long or too slow. Other
        exceptions of the client pass through.
        """
        client = self._opened()
        try:
            done = client.chat.completions.create(**request)
        except _deaf() as error:
            if isinstance(error.__cause__, AnswerError):
                raise error.__cause__ from None
            raise HostError(
                f"{self._feature}: {client.base_url} does not reply: {error}",
                hint="fix the endpoint, then run the same command to resume",
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
            raise MissingExtraError(self._feature, "llm", "openai") from None
        if self._client is None:
            url = self._url or os.environ.get("OPENAI_BASE_URL")
            key = os.environ.get("OPENAI_API_KEY", "none" if url else None)
            if key is None:
                raise HostError(
                    f"{self._feature} needs an endpoint", hint="set OPENAI_API_KEY, or give a URL"
                )
            http = openai.DefaultHttpxClient(event_hooks={"response": [_bound]})
            self._client = openai.OpenAI(
                base_url=url, api_key=key, max_retries=RETRIES, http_client=http
            )
        return self._client


def _bound(reply: Any) -> None:
    """Make an unread HTTP reply fail with AnswerError if it is too long or too slow."""
    pieces = reply.iter_bytes

    def bounded(*how: Any) -> Iterator[bytes]:
        left, until = LONGEST_REPLY, time.monotonic() + REPLY_SECONDS
        for piece in pieces(*how):
            left -= len(piece)
            if left < 0:
                raise AnswerError(f"the reply exceeds {LONGEST_REPLY >> 20} MiB")
            if time.monotonic() > until:
                raise AnswerError(f"the reply takes more than {REPLY_SECONDS:g} s")
            yield piece

    reply.iter_bytes = bounded


def _deaf() -> tuple[type[Exception], ...]:
    """Return the client's exceptions that would affect any request."""
    import openai

    return (
        openai.APIConnectionError, openai.AuthenticationError, openai.PermissionDeniedError,
        openai.NotFoundError, openai.RateLimitError, openai.InternalServerError,
    )  # fmt: skip


class ReplyFile:
    """Replies by request, in an append-only file.

    Invalid lines are skipped, because a killed process may leave an incomplete line.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, dict[str, Any]] = {}
        with suppress(FileNotFoundError):
            for line in path.read_bytes().splitlines():
                with suppress(ValueError, KeyError, TypeError):
                    document = json.loads(line)
                    self._known[document["request"]] = document["reply"]

    def get(self, request: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the stored reply to a request; None if there is none."""
        return self._known.get(_key(request))

    def keep(self, request: Mapping[str, Any], reply: dict[str, Any]) -> dict[str, Any]:
        """Add a reply to the file and return it.

        The request's last message is stored with the reply, for human readers.
        """
        key = _key(request)
        self._known[key] = reply
        asked = request["messages"][-1]["content"]
        line = json.dumps({"request": key, "input": asked, "reply": reply}) + "\n"
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if size := os.fstat(file.fileno()).st_size:
                torn = os.pread(file.fileno(), 1, size - 1) != b"\n"
                line = "\n" * torn + line
            file.write(line.encode())
        return reply


def _key(request: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()


def push_folder(directory: Path, repository: str, *, private: bool, message: str) -> str:
    """Publish a directory as a dataset on the Hugging Face Hub, and return its address.

    One commit replaces all files of the repository with those of the directory. A missing
    repository is created. `HF_ENDPOINT` selects another server with the Hub's protocol, and
    `HF_TOKEN` holds the right to write. Errors: HubError, MissingExtraError.
    """
    hub = hub_library("publishing on a hub", "hub")
    try:
        api = hub.HfApi()
        made = api.create_repo(repository, repo_type="dataset", private=private, exist_ok=True)
        api.upload_folder(
            repo_id=repository,
            repo_type="dataset",
            folder_path=directory,
            commit_message=message,
            delete_patterns="*",
        )
    except Exception as error:  # the library's classes differ by release
        raise HubError(
            f"{repository}: {short_message(error)}",
            hint="a token with the right to write belongs in HF_TOKEN",
        ) from None
    return str(made)


def hub_library(feature: str, extra: str) -> Any:
    """Return the library of the Hugging Face Hub, which then shows no progress.

    Errors: MissingExtraError, which names the feature and the extra that has the library.
    """
    try:
        import huggingface_hub
        from huggingface_hub.utils import disable_progress_bars
    except ImportError:
        raise MissingExtraError(feature, extra, "huggingface-hub") from None
    disable_progress_bars()
    return huggingface_hub


def short_message(error: Exception) -> str:
    """Return an error's message in one line of at most 300 characters, or else its class."""
    return " ".join(str(error).split())[:300] or type(error).__name__
