"""What happened on a server, as JSON Lines with Cowrie's names of events and fields.

Events that Cowrie does not have begin with `shioenv.`. Every parser of Cowrie's log passes them.
What a line did has the names of `shioenv run --json`.
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

from shioenv.dataset.sessions import TYPED
from shioenv.domain.answers import behavior_json
from shioenv.domain.behavior import Behavior
from shioenv.errors import DatasetStorageError
from shioenv.files.durable import storage_errors
from shioenv.live.shell import Closing

LONGEST: Final = 16_384
"""Characters of the longest text in an event; ours. What is longer is cut, and the event's `cut`
names it. Of base64 whole bytes are left."""

LONGEST_PATCH: Final = 262_144
"""Characters of the longest patch in an event, and of all its digests; ours. The first operations
of a longer one are left, and the event's `cut` names it."""

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
    "shioenv.upload.dropped": "did not keep the file {filename!r}: {reason}",
    "shioenv.protocol": "sshd: {text}",
    "shioenv.session.lost": "the machine is gone: {reason}",
    "shioenv.session.ended": "ended by the server: {reason}",
}
"""Each event with the message that Cowrie writes beside its fields."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The connection that an event belongs to."""

    session: str
    """Twelve hexadecimal digits, as Cowrie's."""
    address: str
    port: int
    local: tuple[str, int]
    """Where the server was reached."""
    protocol: str = "ssh"
    """`ssh`, or `openai` for a visit of `shioenv serve openai`."""


def origin(peer: tuple[str, int], local: tuple[str, int]) -> Origin:
    """A new connection's origin, under a name that nobody can guess."""
    return Origin(uuid4().hex[:12], peer[0], peer[1], local)


def duration(seconds: float) -> dict[str, float]:
    """How long something lasted, by the names that newer and older versions of Cowrie have."""
    return {"duration_ms": round(seconds * 1000), "duration": round(seconds, 3)}


class EventLog(Closing):
    """A file of events, each written at once and whole. Callers may be in any thread."""

    def __init__(self, file: Path, sensor: str, failed: Callable[[Exception], object]) -> None:
        """Opens the file to append to. What is there stays.

        `failed` is told of an event that cannot be written, and not of those that follow. The
        next event that is written tells how many are `lost`. Errors: DatasetStorageError.
        """
        self._path, self._sensor, self._failed = file, sensor, failed
        self._lock = threading.Lock()
        self._lost = 0
        self._session = uuid4().hex
        with storage_errors(file):
            self._fd = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._torn = _ends_torn(file, self._fd)

    def tell(self, event: str, where: Origin, **fields: Any) -> None:
        """Writes an event of a connection, with its fields, as one line.

        Its `cut` names the fields that are longer than an event's may be, beside those that a field
        `cut` names.
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
        """Writes what a line did.

        `runner` is `machine` or `model`, and `confidence` how sure the model was. `latency` are the
        seconds until the answer. `fields` stand in place of the behavior's; one of None says that
        nobody knows.
        """
        sure = {} if confidence is None else {"confidence": round(confidence, 4)}
        told = {"runner": runner, **sure, "latency": round(latency, 6)}
        told |= behavior_json(behavior) | fields
        self.tell("shioenv.command", where, input=line, **told)

    def close(self) -> None:
        """Closes the file; closing twice does nothing."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
            self._fd = -1

    def _write(self, document: Mapping[str, Any]) -> None:
        # what a full disk took a part of is a line of its own
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
    """Whether a file ends within a line, as where the machine went down."""
    if os.fstat(opened).st_size == 0:
        return False
    with file.open("rb") as read:
        read.seek(-1, os.SEEK_END)
        return read.read(1) != b"\n"


def _bounded(value: Any) -> Any:
    """A field's value as far as an event has room for it; the value itself where it has."""
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
