"""Conversations of OpenAI's protocol read as a shell's lines, of Cowrie's and Beelzebub's too."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Annotated, Final, Literal

import msgspec

MOST_MESSAGES: Final = 2048
"""Messages of one conversation at most; ours, because each may have to be run again."""

WINDOW: Final = 10
"""Messages that Cowrie sends at most, the newest line among them (`cowrie.llm.protocol`)."""

EXEC: Final = "'. The command to execute is: "
"""What stands before the command in Cowrie's system message, where nobody has a terminal."""

_FENCE = re.compile(r"```\w*\n?")


class TextPart(msgspec.Struct, frozen=True, tag="text"):
    """A part of a message; parts of other types are refused."""

    text: str


class ChatMessage(msgspec.Struct, frozen=True):
    """One message of a conversation."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart] | None = None

    @property
    def text(self) -> str:
        """What the message says."""
        if isinstance(self.content, list):
            return "".join(part.text for part in self.content)
        return self.content or ""


class StreamOptions(msgspec.Struct, frozen=True):
    """What else a stream tells."""

    include_usage: bool = False


class ChatRequest(msgspec.Struct, frozen=True):
    """What is asked of `/v1/chat/completions`. Other fields are allowed, and say nothing here."""

    model: str
    messages: Annotated[list[ChatMessage], msgspec.Meta(min_length=1, max_length=MOST_MESSAGES)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, msgspec.Meta(ge=1, le=1)] | None = None
    user: str | None = None


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a visitor typed so far, as a request tells it, and the line to be answered."""

    key: str
    """Whose it can be: conversations with other keys are other visitors'."""
    line: str
    """The line to be answered."""
    lines: tuple[str, ...] = ()
    """The earlier lines that are told of, oldest first."""
    answers: tuple[str, ...] = ()
    """What `likeness` makes of the earlier answers that are told of and not empty."""
    is_cut: bool = False
    """Whether there may have been lines before these."""
    is_alone: bool = False
    """Whether nothing can follow: a command of Cowrie's without a terminal."""


def conversation_of(request: ChatRequest, caller: str) -> Conversation:
    """The conversation that a request tells of. `caller` is who sent it: a key or an address.

    ValueError where no line stands at its end.
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
            raise ValueError("there is no message of the user: its text is the line to run")
        return Conversation(key, command, is_alone=True)
    if told[-1].role != "user":
        raise ValueError("the last message is not the user's: its text is the line to run")
    return Conversation(
        key,
        told[-1].text,
        tuple(message.text for message in told[:-1] if message.role == "user"),
        tuple(filter(None, (likeness(said.text) for said in told if said.role == "assistant"))),
        is_cut=len(told) == WINDOW or told[0].role == "assistant",
    )


def likeness(answer: str) -> str:
    """What is the same of an answer and of what honeypots send back of it; empty for no answer.

    Cowrie removes backticks, the word behind three of them, and blanks at both ends. Beelzebub
    removes some backticks.
    """
    left = _FENCE.sub("", answer).replace("`", "").strip()
    return hashlib.sha256(left.encode("utf-8", "surrogatepass")).hexdigest() if left else ""
