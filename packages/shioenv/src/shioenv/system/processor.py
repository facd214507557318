"""What a system's own loader is told of the processor: the declared one, whatever the host has.

`ld.so` asks the processor with `cpuid` some 40 times as a program starts. The answers choose string
functions and sizes of blocks. On a virtual machine each `cpuid` leaves the guest: 6 microseconds.
In a built system each `cpuid` of the loader leads to `native/loader`, which looks the answer up in
rows of the declared processor. Nothing more is mapped, and no other code moves. Rows and code lie
between the end of the loader's code and the end of its last page.

The rows are true on every host that runs the system. Only flags of `FLAGS` and `_QUIET` may be
declared for that: those of x86-64-v2, and ones that change nothing for programs. The loader then
finds no XSAVE, so it saves registers with FXSAVE. Statically linked programs, and programs that ask
the processor themselves, are told of the host's.

Sources: Intel's manual, volume 2, CPUID; Linux, arch/x86/include/asm/cpufeatures.h for names of
flags; the x86-64 psABI for x86-64-v2.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import IO

from shioenv import native
from shioenv.system.answers import Answers, UnfitError, put
from shioenv.system.declare import Cpu, SystemDeclaration
from shioenv.system.elf import EXECUTABLE, LOADED, SEGMENT, first_segment, sections, segments
from shioenv.system.image import ImageEntry, content
from shioenv.system.x86 import Instruction, instructions

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
"""Bits of flags by their names in /proc/cpuinfo, for each leaf and register of `cpuid`."""
_QUIET = frozenset({
    "constant_tsc", "cpuid", "nopl", "pti", "rep_good", "tsc_known_freq", "xtopology",
})  # fmt: skip
"""Flags that Linux found otherwise: no bit tells of them."""
_REGISTERS = ("eax", "ebx", "ecx", "edx")
LINE = 64
"""Bytes of a line of a cache."""
CACHES = (
    ("L1d", 1, "Data", 8), ("L1i", 1, "Instruction", 8), ("L2", 2, "Unified", 16),
    ("L3", 3, "Unified", 16),
)  # fmt: skip
"""Name, level, kind and ways of each cache."""
ADDRESS_BITS = (46, 48)
"""Of physical and virtual addresses."""
_BASIC, _BASIC_WITH_STATE = 11, 13
_KINDS = {"Data": 1, "Instruction": 2, "Unified": 3}
_ANY = 0xFFFFFFFF
_LOADER = re.compile(r"(usr/)?lib/x86_64-linux-gnu/ld-linux-x86-64\.so\.2")
_ROW = struct.Struct("<6I")
_CPUID = b"\x0f\xa2"
_MOVABLE = frozenset(
    [*range(0x30, 0x36), *range(0x88, 0x8C), *range(0xB0, 0xC0), 0x0FB6, 0x0FB7, 0x0FBE, 0x0FBF]
)
_MOVABLE_BY = {0x80: 6, 0x81: 6, 0x83: 6, 0xC6: 0, 0xC7: 0}
"""Opcodes of `xor` and `mov`, which do the same at another address; some with an extension."""
_WAY_BACK = struct.Struct("<3si")
_JUMP = struct.Struct("<Bi")


def level(cpu: Cpu) -> int:
    """The highest basic leaf of `cpuid`, as /proc/cpuinfo shows it."""
    return _BASIC_WITH_STATE if "xsave" in cpu.flags else _BASIC


def rows(cpu: Cpu) -> list[tuple[int, ...]]:
    """The answers of the declared processor: leaf, subleaf or `_ANY`, eax, ebx, ecx and edx.

    The last row answers everything else with zeros. Errors: UnfitError for a flag that is not true
    on every host, or that no bit is known of.
    """
    unknown = set(cpu.flags) - _QUIET - {name for bits in FLAGS.values() for name in bits}
    if unknown:
        raise UnfitError(f"its processor has {min(unknown)}, which not every host's has")
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
    told: Answers,
) -> tuple[list[ImageEntry], Answers]:
    """The entries with the declared processor in the loader, and what programs are then told.

    Changed are the loader and the digest that the package manager keeps of it. Where the code
    cannot be there the entries are as they were, and `told` says why.
    """
    result = list(entries)
    try:
        if not told.glibc:
            raise UnfitError(told.why)
        found = [at for at, entry in enumerate(result) if _LOADER.fullmatch(entry.path)]
        if not found:
            raise UnfitError("it has no loader where Debian keeps it")
        before = content(result[found[0]], base)
        after = _answering(before, rows(declaration.machine.cpu))
    except UnfitError as unfit:
        return result, replace(told, processor="host", why_processor=str(unfit))
    put(result, found[0], after, base)
    return result, replace(told, processor="declared")


def _answering(loader: bytes, answers: Sequence[tuple[int, ...]]) -> bytes:
    """A copy of the loader of which each `cpuid` is answered by the rows."""
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
        raise UnfitError("its loader has no room for the answers")
    result[start : start + len(code)] = code
    grown = start + len(code) - offset
    SEGMENT.pack_into(result, header, *segment[:5], grown, grown, segment[7])
    return bytes(result)


def _asking(text: bytes, address: int) -> Iterator[tuple[int, int, list[Instruction]]]:
    """Each `cpuid` of the code, widened to the five bytes of a jump by what stands before it.

    Gives the addresses where that begins and ends, and the instructions before the `cpuid` in it.
    """
    try:
        code = list(instructions(text, address))
    except (IndexError, ValueError, struct.error):
        code = []
    if not code or code[-1].end != address + len(text):
        raise UnfitError("its loader's code cannot be read")
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
            raise UnfitError("its loader asks the processor in a way that was not tried")
        yield begin, end, moved


def _movable(instruction: Instruction) -> bool:
    """Whether it is a `mov` or an `xor`."""
    extension = _MOVABLE_BY.get(instruction.opcode, 9)
    return instruction.opcode in _MOVABLE or instruction.extension == extension


def _moved(instruction: Instruction, address: int) -> bytes:
    """The instruction's bytes at another address: what it reads or writes stays where it was."""
    data = bytearray(instruction.data)
    if instruction.relative is not None:
        (old,) = struct.unpack_from("<i", data, instruction.relative)
        moved = old + instruction.address - address
        struct.pack_into("<i", data, instruction.relative, moved)
    return bytes(data)
