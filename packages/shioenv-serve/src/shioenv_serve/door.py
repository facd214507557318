"""Where a server listens, and whether other hosts reach it there."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass

from shioenv.errors import UsageError


@dataclass(frozen=True, slots=True)
class Door:
    """Where a server listens."""

    host: str
    port: int
    """0 is any free port."""

    @property
    def is_local(self) -> bool:
        """Whether other hosts cannot reach it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def opened(self) -> socket.socket:
        """A socket that listens there. Errors: UsageError, with the next step."""
        try:
            family = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)[0][0]
            return socket.create_server((self.host, self.port), family=family, backlog=1024)
        except OSError as error:
            raise UsageError(
                f"nothing can listen on {self.host}, port {self.port}: {error.strerror}",
                hint="choose another one with --host and --port; port 0 is any free one",
            ) from None


def place_of(listening: socket.socket) -> str:
    """The address and port of a socket that listens, as a URL has them."""
    host, port = listening.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
