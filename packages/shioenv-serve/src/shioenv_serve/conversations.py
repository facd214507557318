"""Parse OpenAI conversations, also those sent by the honeypots Cowrie and Beelzebub, into lines."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Annotated, Final, Literal

import msgspec

MOST_MESSAGES: Final = 2048
"""Maximum messages of one conversation; our choice, because each may have to be replayed."""

WINDOW: Final = 10
"""Maximum messages that Cowrie sends, including the newest line (`cowrie.llm.protocol`)."""

EXEC: Final = "'. The command to execute is: "
"""The text before the command in Cowrie's system message for a command without a terminal."""

_FENCE = re.compile(r"```\w*\n?")


class TextPart(msgspec.Struct, frozen=True, tag="text"):
    """A text part of a message; parts of other types are rejected."""

    text: str


class ChatMessage(msgspec.Struct, frozen=True):
    """One message of a conversation."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart] | None = None

    @property
    def text(self) -> str:
        """The text of the message."""
        if isinstance(self.content, list):
            return "".join(part.text for part in self.content)
        return self.content or ""


class StreamOptions(msgspec.Struct, frozen=True):
    """Options of a streamed answer."""

    include_usage: bool = False


class ChatRequest(msgspec.Struct, frozen=True):
    """A request to `/v1/chat/completions`. Other fields are accepted and ignored."""

    model: str
    messages: Annotated[list[ChatMessage], msgspec.Meta(min_length=1, max_length=MOST_MESSAGES)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, msgspec.Meta(ge=1, le=1)] | None = None
    user: str | None = None


@dataclass(frozen=True, slots=True)
class Conversation:
    """A visitor's earlier lines, as contained in a request, and the line to be answered."""

    key: str
    """The client's identity: conversations with different keys belong to different visitors."""
    line: str
    """The line to be answered."""
    lines: tuple[str, ...] = ()
    """The earlier lines in the request, oldest first."""
    answers: tuple[str, ...] = ()
    """The `likeness` of each non-empty earlier answer in the request."""
    is_cut: bool = False
    """Whether earlier lines may be missing from the request."""
    is_alone: bool = False
    """Whether no line can follow, as after Cowrie's command without a terminal."""


def conversation_of(request: ChatRequest, caller: str) -> Conversation:
    """Return the conversation in a request. `caller` identifies the sender: a key or an address.

    ValueError if the request does not end with a line to run.
    """
    system = [
        message.text for message in request.messages if message.role in ("system", "developer")
    ]
    told = [message for message in request.messages if message.role in ("user", "assistant")]
    parts = "\0".join([caller, request.user or "", *system])
    key = hashlib.sha256(parts.encode("utf-8", "surrogatepass")).hexdigest()
    if not told:
        _, mark, command = system[-1].partition(EXEC)
        if not mark:
            raise ValueError(
                "the request needs a message with the role user, whose text is the line to run"
            )
        return Conversation(key, command, is_alone=True)
    if told[-1].role != "user":
        raise ValueError("the last message must have the role user: its text is the line to run")
    return Conversation(
        key,
        told[-1].text,
        tuple(message.text for message in told[:-1] if message.role == "user"),
        tuple(filter(None, (likeness(said.text) for said in told if said.role == "assistant"))),
        is_cut=len(told) == WINDOW or told[0].role == "assistant",
    )


def likeness(answer: str) -> str:
    """Return a digest shared by an answer and a honeypot's copy of it; empty for an empty answer.

    Cowrie removes backticks, the word after three of them, and surrounding whitespace. Beelzebub
    removes some backticks.
    """
    left = _FENCE.sub("", answer).replace("`", "").strip()
    return hashlib.sha256(left.encode("utf-8", "surrogatepass")).hexdigest() if left else ""
