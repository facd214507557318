"""What a system shows at a login: its message of the day, and the last login."""

from __future__ import annotations

import struct
import time

from shioenv.system.store import System

_RECORD = struct.Struct("=i32s256s")
"""`struct lastlog`: when, on which terminal, from where."""


def greeting(system: System, uid: int) -> bytes:
    """What sshd and pam_motd print before the shell of a user; lines end in a newline alone."""
    messages = [system.content("/run/motd.dynamic"), system.content("/etc/motd")]
    text = b"".join(message for message in messages if message)
    record = (system.content("/var/log/lastlog") or b"")[uid * _RECORD.size :][: _RECORD.size]
    if len(record) == _RECORD.size:
        seconds, _, host = _RECORD.unpack(record)
        if seconds:
            when = time.strftime("%a %b %e %H:%M:%S %Y", time.gmtime(seconds)).encode()
            text += b"Last login: " + when
            text += b" from " + host.rstrip(b"\0") + b"\n" if host.rstrip(b"\0") else b"\n"
    return text
