"""Copy bytes between descriptors without blocking."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable
from typing import Any, Final

PIECE: Final = 1 << 16

_SHORT = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


async def ready(fd: int, *, write: bool) -> None:
    """Wait until a descriptor is ready for reading, or for writing."""
    loop = asyncio.get_running_loop()
    waiting = loop.create_future()

    def now() -> None:
        if not waiting.done():
            waiting.set_result(None)

    (loop.add_writer if write else loop.add_reader)(fd, now)
    try:
        await waiting
    finally:
        (loop.remove_writer if write else loop.remove_reader)(fd)


def accept(
    listener: socket.socket, take: Callable[[socket.socket, Any], object], rest: float = 1.0
) -> None:
    """Pass each connection of a listener, and its peer, to `take` until the listener is closed.

    If descriptors or memory run out, accepting pauses for `rest` seconds.
    """
    loop = asyncio.get_running_loop()

    def come() -> None:
        try:
            connection, peer = listener.accept()
        except OSError as error:
            if error.errno in _SHORT:
                loop.remove_reader(listener)
                loop.call_later(rest, listen)
            return
        take(connection, peer)

    def listen() -> None:
        if listener.fileno() >= 0:
            loop.add_reader(listener, come)

    listener.setblocking(False)
    listen()


async def read_descriptor(fd: int, most: int = PIECE) -> bytes:
    """Return the next bytes of a non-blocking descriptor; empty at the end."""
    while True:
        try:
            return os.read(fd, most)
        except BlockingIOError:
            await ready(fd, write=False)
        except OSError:  # EIO: no process has the terminal open any more
            return b""


async def write_descriptor(fd: int, data: bytes) -> bool:
    """Write all of `data` to a non-blocking descriptor; return False once no reader is left."""
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(fd, left) :]
        except BlockingIOError:
            await ready(fd, write=True)
        except OSError:
            return False
    return True
