"""The program outside a sandbox is linked with the usual protections against hostile processes.

It uses nothing of the host's libraries, so that one wheel runs on every distribution.
"""

from __future__ import annotations

import re
import subprocess

import pytest

from shioenv.native import sandbox_program


def listed(*command: str) -> str:
    arguments = [*command, str(sandbox_program())]
    return subprocess.run(arguments, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--segments", "GNU_RELRO"),  # relocated data is read-only
        ("--dynamic", "BIND_NOW"),  # and is all written before main()
        ("--file-header", "DYN (Position-Independent Executable"),  # loaded anywhere
    ],
)
def test_its_own_tables_cannot_be_rewritten(option: str, said: str) -> None:
    assert said in listed("readelf", "--wide", option)


def test_its_stack_may_hold_no_code() -> None:
    (stack,) = [line for line in listed("readelf", "-Wl").splitlines() if "GNU_STACK" in line]
    assert "RWE" not in stack


def test_overruns_of_its_stack_and_of_known_buffers_end_it() -> None:
    called = listed("objdump", "--disassemble", "--no-show-raw-insn")
    assert re.search(r"\bcall +[0-9a-f]+ <__stack_chk_fail", called)
    assert re.search(r"\bcall +[0-9a-f]+ <___?snprintf_chk>", called)  # _FORTIFY_SOURCE


def test_it_needs_no_library_and_no_loader() -> None:
    assert "(NEEDED)" not in listed("readelf", "--wide", "--dynamic")
    assert "INTERP" not in listed("readelf", "--wide", "--segments")
