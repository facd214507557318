"""The control channel of commands that are started in a machine from outside."""

from __future__ import annotations

import os
import re
import socket
from typing import Final

from shioenv.errors import SandboxError
from shioenv.sandbox.base import Entered

START_SECONDS: Final = 60.0
"""Seconds that starting a command may take (our choice)."""

RUN: Final = '"$@" 2>&8 8>&- 9>&-'
"""Runs `$@` without access to the control channel.

When a signal kills a command, Bash reports that on the control channel and quotes this text. So a
command's words never appear on the control channel.
"""

SAY_STATUS: Final = "printf 'status %d\\n' $? >&9"
"""Reports the previous command's exit status on the control channel."""

_CONTROL_LINE = re.compile(rb"(group|status) ([0-9]{1,10})\s*")


def parse_control_line(line: bytes) -> tuple[str, int] | None:
    """Parse a line of the control channel: `group` or `status`, and its number; None for others."""
    found = _CONTROL_LINE.fullmatch(line)
    return (found[1].decode(), int(found[2])) if found else None


def send_first(entered: Entered, order: bytes) -> None:
    """Send the first bytes that a started input reads. Errors: SandboxError, with all closed."""
    try:
        with socket.socket(fileno=os.dup(entered.talk)) as talk:
            talk.settimeout(START_SECONDS)
            talk.sendall(order)
            talk.setblocking(False)
    except OSError as error:
        close(entered)
        raise SandboxError(f"cannot start the command: {error}") from error


def close(entered: Entered) -> None:
    """Close all descriptors of a started input."""
    for descriptor in (entered.talk, entered.output, entered.errors):
        os.close(descriptor)
