"""Where instructions of x86-64 begin and end, for code that is moved when a system is built.

Source: Intel's manual, volume 2, appendix A. The tables hold what compilers write for user space.
An unknown instruction gets a wrong length, so callers check where the last instruction ends.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

PREFIXES = frozenset(b"\x26\x2e\x36\x3e\x64\x65\x66\x67\xf0\xf2\xf3")
_OPERANDS = frozenset(  # one-byte opcodes with a byte that names registers and memory
    [8 * row + column for row in range(8) for column in range(4)]
    + [0x63, 0x69, 0x6B, *range(0x80, 0x90), 0xC0, 0xC1, 0xC6, 0xC7]
    + [*range(0xD0, 0xD4), *range(0xD8, 0xE0), 0xF6, 0xF7, 0xFE, 0xFF]
)
_BARE = frozenset(
    [5, 6, 7, 8, 9, 0xB, *range(0x30, 0x38), 0x77, 0xA0, 0xA1, 0xA2, 0xA8, 0xA9, 0xAA]
)
"""Those behind 0F without such a byte, beside the jumps and `bswap`."""
_NONE = frozenset(
    b"\x06\x07\x0e\x16\x17\x1e\x1f\x27\x2f\x37\x3f\x60\x61\x82\x9a\xce\xd4\xd5\xd6\xea"
)
_BYTE = frozenset(
    [8 * row + 4 for row in range(8)]
    + [0x6A, 0x6B, *range(0x70, 0x81), 0x83, 0xA8, *range(0xB0, 0xB8), 0xC0, 0xC1, 0xC6, 0xCD]
    + [*range(0xE0, 0xE8), 0xEB]
)
_WORD = frozenset([8 * row + 5 for row in range(8)] + [0x68, 0x69, 0x81, 0xA9, 0xC7])
_BYTE_0F = frozenset([*range(0x70, 0x74), 0xA4, 0xAC, 0xBA, 0xC2, 0xC4, 0xC5, 0xC6])


class Instruction(NamedTuple):
    """One instruction; `leads_to` is the address of a jump or call that names one."""

    address: int
    data: bytes
    opcode: int
    """With 0x0F00 for the table behind 0F, 0x3800 and 0x3A00 for those behind it."""
    extension: int
    """The register that the byte with operands names: a part of some opcodes. 8 without it."""
    relative: int | None
    """Where in `data` the four bytes of an address relative to the next instruction are."""
    leads_to: int | None

    @property
    def end(self) -> int:
        """The address behind it."""
        return self.address + len(self.data)


def instructions(code: bytes, address: int) -> Iterator[Instruction]:
    """The instructions of code that lies at an address.

    Errors: IndexError where the end is cut, ValueError for an opcode that there is not.
    """
    begin = 0
    while begin < len(code):
        at, rex, small = begin, 0, False
        while code[at] in PREFIXES:
            small |= code[at] == 0x66
            at += 1
        if code[at] & 0xF0 == 0x40:
            rex, at = code[at], at + 1
        table, first = 0, code[at]
        if first in (0xC5, 0xC4, 0x62):  # VEX, EVEX
            table = 1 if first == 0xC5 else code[at + 1] & (0x1F if first == 0xC4 else 7)
            at += {0xC5: 2, 0xC4: 3, 0x62: 4}[first]
        elif first == 0x0F:
            table = {0x38: 2, 0x3A: 3}.get(code[at + 1], 1)
            at += 1 if table == 1 else 2
        opcode, at = code[at], at + 1
        if table == 0 and opcode in _NONE:
            raise ValueError(f"no instruction begins with {opcode:#x}")
        jump = opcode & 0xF0 == 0x80 if table == 1 else opcode in (0xE8, 0xE9)
        bare = opcode in _BARE or jump or opcode & 0xF8 == 0xC8
        relative, extension = None, 8
        if opcode in _OPERANDS if table == 0 else table > 1 or not bare:
            mode, extension, base = code[at] >> 6, code[at] >> 3 & 7, code[at] & 7
            at += 1
            if mode < 3 and base == 4:
                base, at = code[at] & 7, at + 1
            elif mode == 0 and base == 5:
                relative = at - begin
            at += {0: 4 * (base == 5), 1: 1, 2: 4, 3: 0}[mode]
        if table == 0:
            wide = 2 if small else 4
            at += opcode in _BYTE
            at += wide if opcode in _WORD or (opcode == 0xF7 and extension < 2) else 0
            at += opcode == 0xF6 and extension < 2
            at += (8 if rex & 8 else wide) if opcode & 0xF8 == 0xB8 else 0
            at += {0xC2: 2, 0xCA: 2, 0xC8: 3}.get(opcode, 8 * (opcode & 0xFC == 0xA0))
        else:
            at += table == 3 or (table == 1 and opcode in _BYTE_0F)
        at += 4 * (jump and table < 2)
        data = code[begin:at]
        leads_to = None
        if jump and table < 2:
            leads_to = address + at + struct.unpack_from("<i", code, at - 4)[0]
        elif table == 0 and (opcode & 0xF0 == 0x70 or opcode in (0xE3, 0xEB)):
            leads_to = address + at + struct.unpack_from("<b", code, at - 1)[0]
        names = (0, 0x0F00, 0x3800, 0x3A00)
        yield Instruction(
            address + begin, data, names[min(table, 3)] + opcode, extension, relative, leads_to
        )
        begin = at
