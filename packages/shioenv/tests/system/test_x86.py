"""Instruction boundaries, compared with a disassembler on the code of real systems."""

from __future__ import annotations

import re

import capstone
import pytest

from shioenv.system.elf import sections
from shioenv.system.processor import instructions
from shioenv.system.store import System
from support.bases import of_the_c_library


@pytest.mark.parametrize("name", ["ld-linux-x86-64.so.2", "libm.so.6"])
def test_instructions_are_those_of_a_disassembler(name: str, system: System) -> None:
    """The mathematical library holds code with VEX and EVEX for newer processors."""
    elf = of_the_c_library(system, name)
    text = sections(elf)[".text"]
    code = elf[text.offset :][: text.size]
    decoder = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    wanted = []
    for address, size, mnemonic, operands in decoder.disasm_lite(code, text.address):
        leads = re.match(r"j|call", mnemonic) and operands.startswith("0x")
        wanted.append((address, address + size, int(operands, 16) if leads else None))
    assert len(wanted) > 30_000
    found = [(one.address, one.end, one.leads_to) for one in instructions(code, text.address)]
    assert found == wanted


@pytest.mark.parametrize(
    ("code", "relative", "leads_to"),
    [
        ("8b 05 10 00 00 00", 2, None),  # mov 0x10(%rip), %eax
        ("48 b8 01 02 03 04 05 06 07 08", None, None),  # movabs
        ("66 81 c1 34 12", None, None),  # add $0x1234, %cx
        ("f7 c1 01 00 00 00", None, None),  # test $1, %ecx
        ("f7 d9", None, None),  # neg %ecx
        ("62 f1 7c 48 10 44 24 01", None, None),  # vmovups 64(%rsp), %zmm0
        ("eb fe", None, 0x1000),
        ("0f 84 fa ff ff ff", None, 0x1000),
    ],
)
def test_one_instruction(code: str, relative: int | None, leads_to: int | None) -> None:
    data = bytes.fromhex(code)
    (one,) = instructions(data, 0x1000)
    assert (one.data, one.relative, one.leads_to) == (data, relative, leads_to)


def test_code_that_is_cut_is_refused() -> None:
    with pytest.raises(IndexError):
        list(instructions(b"\x48", 0))
