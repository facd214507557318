"""Messages of Cowrie 3.1.4's LLM back end, built as in `cowrie/llm/protocol.py` and `llm.py`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

GUIDANCE = " The hostname is 'svr04' and username is 'root'. The current working directory is '/'."


@dataclass
class History:
    """One visitor's terminal in Cowrie."""

    entries: list[dict[str, Any]] = field(default_factory=list)
    system: str = "You are simulating a Linux server." + GUIDANCE

    def messages(self, line: str) -> list[dict[str, Any]]:
        """Return the messages of the request for the next line."""
        self.entries.append({"role": "user", "content": line.strip()})
        return [{"role": "system", "content": self.system}, *self.entries[-10:]]

    def answered(self, text: str | None) -> None:
        """Take an answer, as Cowrie shows it."""
        if text:
            self.entries.append({"role": "assistant", "content": shown(text)})


def shown(text: str) -> str:
    """Return an answer as Cowrie shows it and sends it back (`strip_markdown`)."""
    return re.sub(r"```\w*\n?", "", text).replace("`", "").strip()


def executed(command: str) -> list[dict[str, Any]]:
    """Return the messages for a command without a terminal."""
    content = f"Respond with ONLY the output.{GUIDANCE} The command to execute is: {command}"
    return [{"role": "system", "content": content}]
