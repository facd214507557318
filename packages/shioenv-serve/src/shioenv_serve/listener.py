"""A server's listening address, and whether other hosts can reach it."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass

from shioenv.errors import UsageError


@dataclass(frozen=True, slots=True)
class Door:
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
        """Return a listening socket. Errors: UsageError, with the next step."""
        try:
            family = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)[0][0]
            return socket.create_server((self.host, self.port), family=family, backlog=1024)
        except OSError as error:
            raise UsageError(
                f"nothing can listen on {self.host}, port {self.port}: {error.strerror}",
                hint="choose another one with --host and --port; port 0 is any free one",
            ) from None


def socket_url(listening: socket.socket) -> str:
    """Return the address and port of a listening socket in the form of a URL."""
    host, port = listening.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
