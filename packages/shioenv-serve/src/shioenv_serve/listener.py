"""A server's listening address, and the keys that its clients need."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from shioenv.errors import UsageError


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """A listening address."""

    host: str
    port: int
    """0 selects any free port."""

    @property
    def is_local(self) -> bool:
        """Whether only this host can reach it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def opened(self) -> socket.socket:
        """Return a listening socket. Errors: UsageError if the address is unavailable."""
        try:
            family = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)[0][0]
            return socket.create_server((self.host, self.port), family=family, backlog=1024)
        except OSError as error:
            raise UsageError(
                f"cannot listen on {self.host}, port {self.port}: {error.strerror}",
                hint="choose another with --host and --port; port 0 selects a free port",
            ) from None


def socket_url(listening: socket.socket) -> str:
    """Return the address and port of a listening socket in the form of a URL."""
    host, port = listening.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def read_keys(given: Iterable[str], file: Path | None, listen_address: ListenAddress) -> list[str]:
    """Return the keys that clients must send. Errors: UsageError if they are missing or invalid."""
    keys = list(given)
    if file is not None:
        try:
            keys += file.read_text(encoding="utf-8").split()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{file} cannot be read: {error}") from None
    for name in keys:
        if not name or not name.isascii() or not name.isprintable() or " " in name:
            raise UsageError("an API key must be one word of ASCII characters")
    if file is not None and not keys:
        raise UsageError(f"{file} contains no API key")
    if not keys and not listen_address.is_local:
        raise UsageError(
            f"without a key, any host that reaches {listen_address.host} could use these shells",
            hint="require keys with --key-file FILE, or listen on 127.0.0.1",
        )
    return keys
