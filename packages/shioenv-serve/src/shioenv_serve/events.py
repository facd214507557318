"""A server's events as JSON Lines, with Cowrie's names of events and fields.

Events that Cowrie does not have begin with `shioenv.`, and its log parsers skip them. The effects
of a line are named as in `shioenv run --json`.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from shioenv.domain.answer_json import behavior_json
from shioenv.domain.behavior import Behavior
from shioenv.errors import DatasetStorageError
from shioenv.files.durable import storage_errors
from shioenv.sandbox.base import Closing
from shioenv_serve.sessions import TYPED

LONGEST: Final = 16_384
"""Maximum characters of a text in an event; our choice.

A longer text is truncated and named in the event's `cut`. Truncated base64 holds whole bytes.
"""

LONGEST_PATCH: Final = 262_144
"""Maximum characters of a patch in an event, and of all its digests; our choice.

The first operations of a longer patch are kept, and the event's `cut` names it.
"""

MESSAGES: Final[Mapping[str, str]] = {
    "cowrie.session.connect": (
        "New connection: {src_ip}:{src_port} ({dst_ip}:{dst_port}) [session: {session}]"
    ),
    "cowrie.client.version": "Remote SSH version: {version}",
    "cowrie.client.kex": "SSH client hassh fingerprint: {hassh}",
    "cowrie.client.fingerprint": (
        "public key attempt for user {username} of type {type} with fingerprint {fingerprint}"
    ),
    "cowrie.client.var": "request_env: {name}={value}",
    "cowrie.client.size": "Terminal Size: {width} {height}",
    "cowrie.login.success": "login attempt [{username}/{password}] succeeded",
    "cowrie.login.failed": "login attempt [{username}/{password}] failed",
    "cowrie.session.params": "",
    TYPED: "CMD: {input}",
    "cowrie.session.file_upload": "SFTP Uploaded file '{filename}' to {outfile}",
    "cowrie.direct-tcpip.request": (
        "direct-tcp connection request to {dst_ip}:{dst_port} from {src_ip}:{src_port}"
    ),
    "cowrie.log.closed": "Closing TTY Log: {ttylog} after {duration_ms} milliseconds",
    "cowrie.session.closed": "Connection lost after {duration_ms} milliseconds",
    "shioenv.command": "{runner} answered {input!r} in {latency} s",
    "shioenv.abstained": "no answer to {input!r}: {reason}",
    "shioenv.unanswered": "failed to answer {input!r}: {reason}",
    "shioenv.forward.refused": "refused: {request}",
    "shioenv.dropped": "dropped a connection from {src_ip}:{src_port}: {reason}",
    "shioenv.upload.dropped": "did not save the file {filename!r}: {reason}",
    "shioenv.protocol": "sshd: {text}",
    "shioenv.session.lost": "the machine ended: {reason}",
    "shioenv.session.ended": "ended by the server: {reason}",
}
"""Each event with the message that Cowrie writes in addition to its fields."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The connection that an event belongs to."""

    session: str
    """Twelve hexadecimal digits, as in Cowrie."""
    address: str
    port: int
    local: tuple[str, int]
    """The server's address and port."""
    protocol: str = "ssh"
    """`ssh`, or `openai` for a visit of `shioenv serve openai`."""


def origin(peer: tuple[str, int], local: tuple[str, int]) -> Origin:
    """Return a new connection's origin, with an unpredictable session name."""
    return Origin(uuid4().hex[:12], peer[0], peer[1], local)


def duration(seconds: float) -> dict[str, float]:
    """Return a duration under the field names of newer and older versions of Cowrie."""
    return {"duration_ms": round(seconds * 1000), "duration": round(seconds, 3)}


class EventLog(Closing):
    """A file of events, each written immediately and completely, from any thread."""

    def __init__(self, file: Path, sensor: str, failed: Callable[[Exception], object]) -> None:
        """Open the file for appending.

        `failed` is called for the first event that cannot be written, not for those that follow.
        The next event that is written reports their number as `lost`. Errors: DatasetStorageError.
        """
        self._path, self._sensor, self._failed = file, sensor, failed
        self._lock = threading.Lock()
        self._lost = 0
        self._session = uuid4().hex
        with storage_errors(file):
            self._fd = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._torn = _ends_torn(file, self._fd)

    def tell(self, event: str, where: Origin, **fields: Any) -> None:
        """Write an event of a connection, with its fields, as one line.

        Fields that are too long are truncated and named in `cut`, in addition to those that the
        caller passes as `cut`.
        """
        document: dict[str, Any] = {"eventid": event}
        document |= {"src_ip": where.address, "session": where.session}
        document |= {"protocol": where.protocol}
        if event == "cowrie.session.connect":
            document |= {"src_port": where.port, "dst_ip": where.local[0]}
            document |= {"dst_port": where.local[1]}
        cut = set(fields.pop("cut", ())) & fields.keys()
        kept = {name: _bounded(value) for name, value in fields.items()}
        cut |= {name for name, value in fields.items() if kept[name] is not value}
        document |= kept | ({"cut": sorted(cut)} if cut else {})
        told = {"src_port": where.port, **document}
        document["message"] = MESSAGES[event].format_map(told)
        document |= {"sensor": self._sensor, "uuid": self._session}
        document["timestamp"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        with self._lock:
            if self._fd >= 0:
                self._write(document | ({"lost": self._lost} if self._lost else {}))

    def did(
        self,
        where: Origin,
        line: str,
        behavior: Behavior,
        latency: float,
        runner: str,
        confidence: float | None = None,
        **fields: Any,
    ) -> None:
        """Log the effects of a line.

        `runner` is `machine` or `model`, and `confidence` the model's confidence. `latency` is the
        time until the answer in seconds. `fields` override those of the behavior; None means
        unknown.
        """
        sure = {} if confidence is None else {"confidence": round(confidence, 4)}
        told = {"runner": runner, **sure, "latency": round(latency, 6)}
        told |= behavior_json(behavior) | fields
        self.tell("shioenv.command", where, input=line, **told)

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
            self._fd = -1

    def _write(self, document: Mapping[str, Any]) -> None:
        # after a line that is incomplete, for example because the disk was full, begin a new one
        data = b"\n" * self._torn + json.dumps(document).encode() + b"\n"
        try:
            with storage_errors(self._path):
                while data:
                    data = data[os.write(self._fd, data) :]
                    self._torn = bool(data)
        except DatasetStorageError as error:
            self._lost += 1
            if self._lost == 1:
                self._failed(error)
        else:
            self._lost = 0


def _ends_torn(file: Path, opened: int) -> bool:
    """Whether a file ends within a line, for example after a crash."""
    if os.fstat(opened).st_size == 0:
        return False
    with file.open("rb") as read:
        read.seek(-1, os.SEEK_END)
        return read.read(1) != b"\n"


def _bounded(value: Any) -> Any:
    """Return a field's value truncated to the limits; the same object if it fits."""
    if isinstance(value, str) and len(value) > LONGEST:
        return value[:LONGEST]
    if isinstance(value, list | dict):
        parts = list(value.items()) if isinstance(value, dict) else value
        length = 0
        for number, part in enumerate(parts):
            length += len(json.dumps(part)) + 2
            if length > LONGEST_PATCH:
                return type(value)(parts[:number])
    return value
