"""Any bytes through a terminal, with an end: what a program reads that expects a pipe.

A terminal that hands on every byte at once has no end of input for a reader that waits already. So
the terminal takes lines. ^D hands a line on early, and is the end where a line begins. A quoted ^D
or ^V is itself.
"""

from __future__ import annotations

import re
import termios
from collections.abc import Iterator
from typing import Final

BEGIN: Final = b"\n"
"""What the program behind the terminal waits for, so that it begins on the terminal as set."""

END: Final = b"\x04"
"""The end of input."""

_LINE = 1024  # a fourth of what a terminal holds
_QUOTE = b"\x16"
_SPECIAL = re.compile(rb"[\x04\x16]")


def set_for_bytes(terminal: int) -> None:
    """Has a terminal take what `packed` makes, and hand output on as it is."""
    settings = termios.tcgetattr(terminal)
    settings[0] = settings[1] = 0
    settings[3] = termios.ICANON | termios.IEXTEN
    settings[6] = [b"\0"] * len(settings[6])
    settings[6][termios.VEOF] = END
    settings[6][termios.VLNEXT] = _QUOTE
    termios.tcsetattr(terminal, termios.TCSANOW, settings)


def packed(data: bytes) -> Iterator[bytes]:
    """Bytes as they are typed on such a terminal."""
    for at in range(0, len(data), _LINE):
        piece = data[at : at + _LINE]
        typed = _SPECIAL.sub(b"\x16\\g<0>", piece)
        yield typed if piece.endswith(b"\n") else typed + END
