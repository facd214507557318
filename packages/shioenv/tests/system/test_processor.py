"""The declared processor: the value that a built system's loader gets in place of the host's."""

from __future__ import annotations

import dataclasses
import hashlib
import re
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path

import capstone
import pytest

from shioenv.system import processor
from shioenv.system.answers import Answers, UnfitError
from shioenv.system.declare import Cpu, SystemDeclaration, load_declaration
from shioenv.system.elf import sections, segments
from shioenv.system.image import ImageEntry
from shioenv.system.store import System
from support.bases import of_the_c_library

V2 = (
    "fpu", "vme", "de", "pse", "tsc", "msr", "pae", "mce", "cx8", "apic", "sep", "mtrr", "pge",
    "mca", "cmov", "pat", "pse36", "clflush", "mmx", "fxsr", "sse", "sse2", "ss", "ht", "syscall",
    "nx", "lm", "constant_tsc", "rep_good", "nopl", "xtopology", "cpuid", "tsc_known_freq", "pni",
    "ssse3", "cx16", "sse4_1", "sse4_2", "x2apic", "popcnt", "tsc_deadline_timer", "hypervisor",
    "lahf_lm",
)  # fmt: skip
TOLD = Answers("declared", "declared", glibc="2.36")


@pytest.fixture(scope="module")
def declaration() -> SystemDeclaration:
    found = load_declaration()
    cpu = dataclasses.replace(found.machine.cpu, flags=V2)
    return dataclasses.replace(found, machine=dataclasses.replace(found.machine, cpu=cpu))


@pytest.fixture(scope="module")
def cpu(declaration: SystemDeclaration) -> Cpu:
    return declaration.machine.cpu


@pytest.fixture(scope="module")
def loader(system: System) -> bytes:
    """Return the distribution's own loader from the base."""
    return of_the_c_library(system, "ld-linux-x86-64.so.2")


@pytest.fixture(scope="module")
def answering(loader: bytes, cpu: Cpu) -> bytes:
    return processor._answering(loader, processor.rows(cpu))


def diagnostics(loader: bytes, directory: Path) -> dict[str, int]:
    """Return the loader's diagnostics of its processor, run by the host."""
    file = directory / "ld.so"
    file.write_bytes(loader)
    file.chmod(0o755)
    done = subprocess.run([file, "--list-diagnostics"], capture_output=True, check=True, text=True)
    return {
        name: int(value, 16)
        for name, value in re.findall(r"^x86\.cpu_features\.(\S+)=(0x\w+)$", done.stdout, re.M)
    }


def instructions(elf: bytes) -> list[capstone.CsInsn]:
    text = sections(elf)[".text"]
    decoder = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    return list(decoder.disasm(elf[text.offset :][: text.size], text.address))


def test_the_loader_says_what_is_declared(answering: bytes, cpu: Cpu, tmp_path: Path) -> None:
    found = diagnostics(answering, tmp_path)
    for name, size in (
        ("level1_dcache_size", "L1d"), ("level1_icache_size", "L1i"), ("level2_cache_size", "L2"),
        ("level3_cache_size", "L3"),
    ):  # fmt: skip
        assert found[name] == cpu.caches[size]
    basic = [found[f"basic.{name}"] for name in ("max_cpuid", "family", "model", "stepping")]
    assert basic == [processor.level(cpu), cpu.family, cpu.model, cpu.stepping]
    assert found["isa_1"] == 0b11  # x86-64 and x86-64-v2
    assert found["xsave_state_size"] == 0
    # features[0] is leaf 1, features[2] is leaf 0x80000001; 0 to 3 are eax to edx
    for index, leaf in ((0, 1), (2, 0x80000001)):
        row = next(row for row in processor.rows(cpu) if row[0] == leaf)
        kept = {1: 0x00FFFFFF} if leaf == 1 else {}  # its top byte: who asks
        for register, value in enumerate(row[2:]):
            shown = found[f"features[{index:#x}].cpuid[{register:#x}]"]
            assert shown & kept.get(register, 0xFFFFFFFF) == value & kept.get(register, 0xFFFFFFFF)


@pytest.mark.parametrize("name", ["sse4_2", "popcnt", "lahf_lm", "nonstop_tsc"])
def test_a_flag_more_or_less_is_a_bit(name: str, cpu: Cpu) -> None:
    ((leaf, register), bit) = next(
        (place, bits[name]) for place, bits in processor.FLAGS.items() if name in bits
    )
    at = 2 + ("eax", "ebx", "ecx", "edx").index(register)

    def row(*flags: str) -> tuple[int, ...]:
        return next(
            row for row in processor.rows(dataclasses.replace(cpu, flags=flags)) if row[0] == leaf
        )

    assert (row("fpu", name)[at] ^ row("fpu")[at]) == 1 << bit


def test_no_question_is_left_and_nothing_else_moved(loader: bytes, answering: bytes) -> None:
    before, after = instructions(loader), instructions(answering)
    asked = {one.address for one in before if one.mnemonic == "cpuid"}
    assert len(asked) > 30
    assert not [one for one in after if one.mnemonic == "cpuid"]
    changed = [at for at in range(len(loader)) if loader[at] != answering[at]]
    text = sections(loader)[".text"]
    within = {at for at in changed if text.offset <= at < text.offset + text.size}
    near = {at for address in asked for at in range(address - 9, address + 2)}
    assert within <= {at - text.address + text.offset for at in near}
    (code,) = (row for _, row in segments(answering) if row[:2] == (1, 5))
    headers = struct.calcsize("<16sHHIQQQIHHHHHH") + 56 * sum(1 for _ in segments(loader))
    for at in set(changed) - within:
        assert at < headers or text.offset + text.size <= at < code[2] + code[5]


def test_what_stood_before_a_question_does_the_same_elsewhere(
    loader: bytes, answering: bytes
) -> None:
    """The instructions replaced by a jump: the same, with the same memory operands."""
    old = {one.address: one for one in instructions(loader)}
    decoder = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    (code,) = (row for _, row in segments(answering) if row[:2] == (1, 5))
    data = answering[code[2] : code[2] + code[5]]

    def at(address: int) -> capstone.CsInsn:
        return next(decoder.disasm(data[address - code[3] :][:16], address, 1))

    def place(one: capstone.CsInsn) -> str:
        found = re.search(r"rip ([+-]) (0x\w+|\d+)", one.op_str)
        if found is None:
            return str(one.op_str)
        moved = int(f"{found[1]}{int(found[2], 0)}") + one.address + one.size
        return str(one.op_str).replace(found[0], hex(moved))

    text = sections(loader)[".text"]
    jumps = [
        one
        for one in instructions(answering)
        if one.mnemonic == "jmp"
        and one.op_str.startswith("0x")
        and int(one.op_str, 16) >= text.address + text.size
    ]
    assert len(jumps) == sum(one.mnemonic == "cpuid" for one in old.values())
    for jump in jumps:
        was, there = jump.address, int(jump.op_str, 16)
        while old[was].mnemonic != "cpuid":
            moved = at(there)
            assert (moved.mnemonic, place(moved)) == (old[was].mnemonic, place(old[was]))
            was, there = was + old[was].size, there + moved.size
        back = at(there)
        assert (back.mnemonic, place(back)) == ("lea", f"rdx, [{hex(was + 2)}]")


def entries_of(loader: bytes) -> list[ImageEntry]:
    digests = f"{hashlib.md5(loader).hexdigest()}  lib/x86_64-linux-gnu/ld-linux-x86-64.so.2\n"
    return [
        ImageEntry(path, 0o100000, 0o755, 0, 0, 0, size=len(data), data=data)
        for path, data in (
            ("usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2", loader),
            ("var/lib/dpkg/info/libc6:amd64.md5sums", digests.encode()),
        )
    ]


def installed(
    entries: Sequence[ImageEntry], declaration: SystemDeclaration, told: Answers = TOLD
) -> tuple[list[ImageEntry], Answers]:
    with Path("/dev/null").open("rb") as base:
        return processor.install(declaration, entries, base, told)


def test_the_package_manager_knows_the_loader(
    loader: bytes, answering: bytes, declaration: SystemDeclaration
) -> None:
    entries, told = installed(entries_of(loader), declaration)
    assert (told.processor, told.why_processor) == ("declared", "")
    assert entries[0].data == answering
    assert entries[1].data is not None
    assert entries[1].data.split()[0].decode() == hashlib.md5(answering).hexdigest()


def refusal(loader: bytes, declaration: SystemDeclaration, told: Answers = TOLD) -> str:
    before = entries_of(loader)
    entries, now = installed(before, declaration, told)
    assert (entries, now.processor) == (before, "host")
    return now.why_processor


def test_a_flag_that_not_every_host_has_keeps_the_hosts_processor(
    loader: bytes, declaration: SystemDeclaration
) -> None:
    for flag in ("avx", "xsave", "erms", "no_such_flag"):
        own = dataclasses.replace(declaration.machine.cpu, flags=(*V2, flag))
        machine = dataclasses.replace(declaration.machine, cpu=own)
        said = refusal(loader, dataclasses.replace(declaration, machine=machine))
        assert said == f"the processor flag {flag} is not available on every host"


def test_a_loader_that_was_not_tried_keeps_the_hosts_processor(
    loader: bytes, declaration: SystemDeclaration
) -> None:
    ask = b"\x31\xc9\x0f\xa2"  # xor ecx, ecx; cpuid
    assert ask in loader
    other = loader.replace(ask, b"\x58\x58\x0f\xa2", 1)  # pop rax, twice
    assert "in an unsupported way" in refusal(other, declaration)
    assert "be disassembled" in refusal(loader.replace(ask, b"\x06\x06\x06\x06", 1), declaration)
    for damaged in (loader[:3000], loader[:64], b"", b"\x7fELF" + bytes(200)):
        assert refusal(damaged, declaration) == "its loader is damaged"
    untried = dataclasses.replace(TOLD, glibc="", why="its glibc is 2.35")
    assert refusal(loader, declaration, untried) == "its glibc is 2.35"
    assert installed([], declaration)[1].why_processor.startswith("it has no lib")


@pytest.mark.parametrize("code", [b"\x53\x53", b"\x31\xdb"])  # push rbx, twice; xor ebx, ebx
def test_an_instruction_before_the_question_may_be_of_another_kind(
    loader: bytes, cpu: Cpu, code: bytes
) -> None:
    """Debian 13's loader pushes a register just before it executes `cpuid`."""
    other = loader.replace(b"\x31\xc9\x0f\xa2", code + b"\x0f\xa2", 1)
    answered = processor._answering(other, processor.rows(cpu))
    assert code in answered[len(loader) // 2 :]
    assert code + b"\x0f\xa2" not in answered


def test_a_loader_without_room_keeps_its_own_processor(loader: bytes, cpu: Cpu) -> None:
    with pytest.raises(UnfitError, match="no space"):
        processor._answering(loader, processor.rows(cpu) * 10)
