"""Patch a system's dynamic loader to see the declared processor instead of the host's.

`ld.so` executes `cpuid` about 40 times at each program start, to select string functions and block
sizes. On a virtual machine each `cpuid` causes a VM exit, which takes 6 microseconds. In a built
system, jumps to `native/loader` replace the loader's `cpuid` instructions. That code looks up the
result in a table of the declared processor. Nothing else is mapped, and no other code moves. Table
and code use the unused end of the last page of the loader's code.

The table must hold on every host that runs the system. Only flags in `FLAGS` and `_QUIET` may
therefore be declared: those of x86-64-v2, and flags that do not affect programs. The loader finds
no XSAVE, so it saves registers with FXSAVE. Statically linked programs, and programs that execute
`cpuid` themselves, see the host's processor.

Sources: Intel's manual, volume 2, CPUID; Linux, arch/x86/include/asm/cpufeatures.h for names of
flags; the x86-64 psABI for x86-64-v2. Instruction lengths follow the manual's volume 2, appendix A,
for the instructions that compilers emit in user space. The length of an unknown instruction is
wrong, so callers check where the last instruction ends.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import IO, NamedTuple

from shioenv import native
from shioenv.system.answers import Answers, UnfitError, put
from shioenv.system.declare import Cpu, SystemDeclaration
from shioenv.system.elf import EXECUTABLE, LOADED, SEGMENT, first_segment, sections, segments
from shioenv.system.image import ImageEntry, content

FLAGS = {
    (1, "edx"): {
        "fpu": 0, "vme": 1, "de": 2, "pse": 3, "tsc": 4, "msr": 5, "pae": 6, "mce": 7, "cx8": 8,
        "apic": 9, "sep": 11, "mtrr": 12, "pge": 13, "mca": 14, "cmov": 15, "pat": 16, "pse36": 17,
        "clflush": 19, "mmx": 23, "fxsr": 24, "sse": 25, "sse2": 26, "ss": 27, "ht": 28,
    },
    (1, "ecx"): {
        "pni": 0, "ssse3": 9, "cx16": 13, "pcid": 17, "sse4_1": 19, "sse4_2": 20, "x2apic": 21,
        "popcnt": 23, "tsc_deadline_timer": 24, "hypervisor": 31,
    },
    (0x80000001, "ecx"): {"lahf_lm": 0},
    (0x80000001, "edx"): {"syscall": 11, "nx": 20, "pdpe1gb": 26, "lm": 29},
    (0x80000007, "edx"): {"nonstop_tsc": 8},
}  # fmt: skip
"""Bit numbers of flags by their names in /proc/cpuinfo, for each leaf and register of `cpuid`."""
_QUIET = frozenset({
    "constant_tsc", "cpuid", "nopl", "pti", "rep_good", "tsc_known_freq", "xtopology",
})  # fmt: skip
"""Flags that Linux derives by other means, without a bit of `cpuid`."""
_REGISTERS = ("eax", "ebx", "ecx", "edx")
LINE = 64
"""Size of a cache line in bytes."""
CACHES = (
    ("L1d", 1, "Data", 8), ("L1i", 1, "Instruction", 8), ("L2", 2, "Unified", 16),
    ("L3", 3, "Unified", 16),
)  # fmt: skip
"""Name, level, type and associativity (ways) of each cache."""
ADDRESS_BITS = (46, 48)
"""Bits of physical and virtual addresses."""
_BASIC, _BASIC_WITH_STATE = 11, 13
_KINDS = {"Data": 1, "Instruction": 2, "Unified": 3}
_ANY = 0xFFFFFFFF
_LOADER = re.compile(r"(usr/)?lib/x86_64-linux-gnu/ld-linux-x86-64\.so\.2")
_ROW = struct.Struct("<6I")
_CPUID = b"\x0f\xa2"
_MOVABLE = frozenset({
    *range(0x30, 0x36), *range(0x50, 0x58), *range(0x88, 0x8C), *range(0xB0, 0xC0),
    *range(0x0F90, 0x0FA0), 0x0FB6, 0x0FB7, 0x0FBE, 0x0FBF,
})  # fmt: skip
_MOVABLE_BY = {0x80: 6, 0x81: 6, 0x83: 6, 0xC6: 0, 0xC7: 0}
"""Extensions by opcode for the opcodes of `xor` and `mov` that need one.

Like the opcodes in `_MOVABLE`, they can be moved to another address.
"""
_WAY_BACK = struct.Struct("<3si")
_JUMP = struct.Struct("<Bi")


def level(cpu: Cpu) -> int:
    """Return the highest basic leaf of `cpuid`, as shown by /proc/cpuinfo."""
    return _BASIC_WITH_STATE if "xsave" in cpu.flags else _BASIC


def rows(cpu: Cpu) -> list[tuple[int, ...]]:
    """Return the `cpuid` table of the declared processor.

    The columns are leaf, subleaf or `_ANY`, eax, ebx, ecx and edx. The last row gives zeros for all
    other leaves. Errors: UnfitError for a flag that some hosts lack or whose bit is unknown.
    """
    unknown = set(cpu.flags) - _QUIET - {name for bits in FLAGS.values() for name in bits}
    if unknown:
        raise UnfitError(f"the processor flag {min(unknown)} is not available on every host")
    asked = {
        (leaf, register): sum(1 << bit for name, bit in bits.items() if name in cpu.flags)
        for (leaf, register), bits in FLAGS.items()
    }

    def row(leaf: int, subleaf: int = _ANY, **registers: int) -> tuple[int, ...]:
        given = [registers.get(name, 0) | asked.get((leaf, name), 0) for name in _REGISTERS]
        return (leaf, subleaf, *given)

    vendor = struct.unpack("<3I", cpu.vendor.encode()[:12].ljust(12, b"\0"))
    extended = cpu.family - 15 if cpu.family > 15 else 0
    signature = (extended << 20) | (min(cpu.family, 15) << 8) | cpu.stepping
    signature |= (cpu.model >> 4 << 16) | ((cpu.model & 15) << 4)
    found = [
        row(0, eax=level(cpu), ebx=vendor[0], edx=vendor[1], ecx=vendor[2]),
        row(1, eax=signature, ebx=(cpu.count << 16) | (LINE // 8 << 8)),
        row(2, eax=0x00FF0001),  # 0xff: the caches are those of leaf 4
    ]
    for number, (name, depth, kind, ways) in enumerate(CACHES):
        sharing = cpu.count if name == "L3" else 1
        about = _KINDS[kind] | (depth << 5) | (1 << 8) | ((sharing - 1) << 14)
        shape = (LINE - 1) | ((ways - 1) << 22)
        sets = cpu.caches[name] // LINE // ways
        found.append(row(4, number, eax=about | ((cpu.count - 1) << 26), ebx=shape, ecx=sets - 1))
    physical, virtual = ADDRESS_BITS
    found += [
        row(0x80000000, eax=0x80000008),
        row(0x80000001, eax=signature),
        row(0x80000006, ecx=(cpu.caches["L2"] >> 10 << 16) | (8 << 12) | LINE),
        row(0x80000007),
        row(0x80000008, eax=physical | (virtual << 8)),
        (_ANY, _ANY, 0, 0, 0, 0),
    ]
    return found


def install(
    declaration: SystemDeclaration,
    entries: Sequence[ImageEntry],
    base: IO[bytes],
    current: Answers,
) -> tuple[list[ImageEntry], Answers]:
    """Return the entries with a patched loader, and the values that programs see.

    The loader and its checksum in the package manager's database change. If the loader cannot be
    patched, the entries are unchanged, and the returned answers contain the reason.
    """
    result = list(entries)
    try:
        if not current.glibc:
            raise UnfitError(current.why)
        found = [at for at, entry in enumerate(result) if _LOADER.fullmatch(entry.path)]
        if not found:
            raise UnfitError("it has no lib/x86_64-linux-gnu/ld-linux-x86-64.so.2")
        before = content(result[found[0]], base)
        after = _answering(before, rows(declaration.machine.cpu))
    except UnfitError as unfit:
        return result, replace(current, processor="host", why_processor=str(unfit))
    put(result, found[0], after, base)
    return result, replace(current, processor="declared")


def _answering(loader: bytes, answers: Sequence[tuple[int, ...]]) -> bytes:
    """Return a copy of the loader in which table lookups replace all `cpuid` instructions."""
    try:
        text = sections(loader)[".text"]
        header, segment = next(
            (at, row) for at, row in segments(loader) if row[:2] == (LOADED, EXECUTABLE)
        )
    except (struct.error, ValueError, IndexError, KeyError, StopIteration) as error:
        raise UnfitError("its loader is damaged") from error
    _, _, offset, address, _, size, _, _ = segment
    lookup, shift = first_segment(native.processor_code()), address - offset
    start = -(-(offset + size) // 16) * 16
    code = bytearray(lookup + b"".join(_ROW.pack(*row) for row in answers))
    result = bytearray(loader)
    for first, end, moved in _asking(loader[text.offset :][: text.size], text.address):
        stub = start + shift + len(code)
        for instruction in moved:
            code += _moved(instruction, start + shift + len(code))
        here = start + shift + len(code) + _WAY_BACK.size
        code += _WAY_BACK.pack(b"\x48\x8d\x15", end - here)  # lea end(%rip), %rdx
        code += _JUMP.pack(0xE9, -(len(code) + _JUMP.size))  # to the code's first byte
        jump = _JUMP.pack(0xE9, stub - (first + _JUMP.size))
        result[first - shift : end - shift] = jump.ljust(end - first, b"\x90")
    room = min((row[2] for _, row in segments(loader) if row[2] > offset), default=len(loader))
    if start + len(code) > room:
        raise UnfitError("its loader has no space for the table")
    result[start : start + len(code)] = code
    grown = start + len(code) - offset
    SEGMENT.pack_into(result, header, *segment[:5], grown, grown, segment[7])
    return bytes(result)


def _asking(text: bytes, address: int) -> Iterator[tuple[int, int, list[Instruction]]]:
    """Yield the code range to replace by a jump for each `cpuid` instruction.

    A jump takes five bytes, so a range includes the instructions just before the `cpuid`. Yields
    the start and end addresses of the range, and these instructions.
    """
    try:
        code = list(instructions(text, address))
    except (IndexError, ValueError, struct.error):
        code = []
    if not code or code[-1].end != address + len(text):
        raise UnfitError("its loader cannot be disassembled")
    targets = sorted(one.leads_to for one in code if one.leads_to is not None)
    for number, one in enumerate(code):
        if one.data != _CPUID:
            continue
        first, end = number, one.end
        while end - code[first].address < _JUMP.size:
            first -= 1
        begin, moved = code[first].address, code[first:number]
        entered = bisect_right(targets, begin) != bisect_right(targets, end - 1)
        if entered or not all(map(_movable, moved)):
            raise UnfitError("its loader executes cpuid in an unsupported way")
        yield begin, end, moved


def _movable(instruction: Instruction) -> bool:
    """Whether the instruction is a `mov`, `xor`, `push` or `set` that can be moved."""
    extension = _MOVABLE_BY.get(instruction.opcode, 9)
    return instruction.opcode in _MOVABLE or instruction.extension == extension


def _moved(instruction: Instruction, address: int) -> bytes:
    """Relocate an instruction to another address; its memory operand stays the same."""
    data = bytearray(instruction.data)
    if instruction.relative is not None:
        (old,) = struct.unpack_from("<i", data, instruction.relative)
        moved = old + instruction.address - address
        struct.pack_into("<i", data, instruction.relative, moved)
    return bytes(data)


PREFIXES = frozenset(b"\x26\x2e\x36\x3e\x64\x65\x66\x67\xf0\xf2\xf3")
_OPERANDS = frozenset(  # one-byte opcodes that are followed by a ModRM byte
    [8 * row + column for row in range(8) for column in range(4)]
    + [0x63, 0x69, 0x6B, *range(0x80, 0x90), 0xC0, 0xC1, 0xC6, 0xC7]
    + [*range(0xD0, 0xD4), *range(0xD8, 0xE0), 0xF6, 0xF7, 0xFE, 0xFF]
)
_BARE = frozenset(
    [5, 6, 7, 8, 9, 0xB, *range(0x30, 0x38), 0x77, 0xA0, 0xA1, 0xA2, 0xA8, 0xA9, 0xAA]
)
"""Opcodes after 0F without a ModRM byte, except the jumps and `bswap`."""
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
    """One instruction; `leads_to` is the target of a direct jump or call, else None."""

    address: int
    data: bytes
    opcode: int
    """Opcode byte, plus 0x0F00 after 0F, 0x3800 after 0F 38, or 0x3A00 after 0F 3A."""
    extension: int
    """The `reg` field of the ModRM byte, which extends some opcodes; 8 without that byte."""
    relative: int | None
    """Offset in `data` of a 32-bit RIP-relative displacement, or None."""
    leads_to: int | None

    @property
    def end(self) -> int:
        """The address of the next instruction."""
        return self.address + len(self.data)


def instructions(code: bytes, address: int) -> Iterator[Instruction]:
    """Disassemble code at an address into instructions.

    Errors: IndexError for truncated code, ValueError for an invalid opcode.
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
