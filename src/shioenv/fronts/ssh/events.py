"""What happened on a server, as JSON Lines with Cowrie's names of events and fields.

Events that Cowrie does not have begin with `shioenv.`. Every parser of Cowrie's log passes them.
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

from shioenv.files.durable import storage_errors

LONGEST: Final = 16_384
"""Characters of the longest text in an event; ours: what is longer is cut, and ends with `…`."""

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
    "cowrie.command.input": "CMD: {input}",
    "cowrie.session.file_upload": "SFTP Uploaded file '{filename}' to {outfile}",
    "cowrie.direct-tcpip.request": (
        "direct-tcp connection request to {dst_ip}:{dst_port} from {src_ip}:{src_port}"
    ),
    "cowrie.log.closed": "Closing TTY Log: {ttylog} after {duration} seconds",
    "cowrie.session.closed": "Connection lost after {duration} seconds",
    "shioenv.command": "{runner} answered {input!r} in {seconds} s",
    "shioenv.abstained": "no answer to {input!r}: {reason}",
    "shioenv.forward.refused": "refused: {request}",
    "shioenv.dropped": "dropped a connection from {src_ip}:{src_port}: {reason}",
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


def origin(peer: tuple[str, int], local: tuple[str, int]) -> Origin:
    """A new connection's origin, under a name that nobody can guess."""
    return Origin(uuid4().hex[:12], peer[0], peer[1], local)


class EventLog:
    """A file of events, written line by line. Callers may be in any thread."""

    def __init__(self, file: Path, sensor: str, failed: Callable[[Exception], object]) -> None:
        """Opens the file to append to. `failed` is told of the first event that cannot be written.

        Errors: DatasetStorageError.
        """
        self._path, self._sensor, self._failed = file, sensor, failed
        self._lock = threading.Lock()
        self._session = uuid4().hex
        with storage_errors(file):
            file.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def tell(self, event: str, where: Origin, **fields: Any) -> None:
        """Writes an event of a connection, with its fields, as one line."""
        document: dict[str, Any] = {"eventid": event}
        document |= {"src_ip": where.address, "session": where.session, "protocol": "ssh"}
        if event == "cowrie.session.connect":
            document |= {"src_port": where.port, "dst_ip": where.local[0]}
            document |= {"dst_port": where.local[1]}
        document |= {name: _cut(value) for name, value in fields.items()}
        told = {"src_port": where.port, **document}
        document["message"] = MESSAGES[event].format_map(told)
        document |= {"sensor": self._sensor, "uuid": self._session}
        document["timestamp"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        line = json.dumps(document).encode() + b"\n"
        with self._lock:
            if self._fd < 0:
                return
            try:
                if os.write(self._fd, line) != len(line):
                    raise OSError(f"{self._path}: a line was cut")
            except OSError as error:
                os.close(self._fd)
                self._fd = -1
                self._failed(error)

    def close(self) -> None:
        """Closes the file; closing twice does nothing."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
            self._fd = -1


def _cut(value: Any) -> Any:
    if isinstance(value, str) and len(value) > LONGEST:
        return value[:LONGEST] + "…"
    return value
